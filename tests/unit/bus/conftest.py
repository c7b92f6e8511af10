"""A small owner, a small reader and a hub to join them, for the tests of the bus."""

import io
import shutil
import tempfile

import numpy as np
import pytest

from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, no_sets
from common.bus.bus import Bus
from common.bus.journal import JournalSource, Marks
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.bus.schema import NONE, RouteChanges, SessionChanges
from common.kernels.journal import Journal
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop

CHANNEL = "adj-rib-in/ipv4-unicast"
SOURCE = {"name": "a", "asn": 64601, "local_asn": 65000, "router_id": 1, "address": b"\x0a\0\0\1", "external": True}


class Owner:
    """A table of (row -> value), told as routes: hi is the row, the set holds the value, 0 is gone."""

    def __init__(self, bus: Bus, epoch: str = "e1", capacity_power: int = 12):
        self.values = np.zeros(1 << 16, np.uint32)
        self.limit = 1
        self.is_open = True
        self.journal = Journal(capacity_power)
        self.marks = Marks(self.journal)
        self.n_preambles = 0
        self.large_from = 1 << 32
        self.source = JournalSource(
            self.journal,
            RouteChanges,
            self.gather,
            lambda: self.limit,
            epoch=epoch,
            marks=self.marks,
            preamble=lambda: [session(1)],
            epilogue=lambda: [session(3)],
            gate=lambda: self.is_open,
            sizes=self.sizes,
        )
        self.server = bus.serve()
        self.server.add("adj-rib-in/*", lambda request: self.source)

    def put(self, row: int, value: int) -> None:
        self.values[row] = value
        self.limit = max(self.limit, row + 1)
        self.journal.append(np.array([row], np.uint32))

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """Values from `large_from` on count as sets of half a megabyte."""
        return np.where(self.values[rows] >= self.large_from, 1 << 19, 5)

    def gather(self, rows: np.ndarray, is_snapshot: bool):
        if is_snapshot:
            rows = rows[self.values[rows] != 0]
        return columns_of(rows, self.values[rows]), {"family": "ipv4-unicast", "sources": [SOURCE]}


def columns_of(rows: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return RouteChanges columns: each row with its value as an attribute set of five octets, 0 as gone."""
    distinct = np.unique(values[values != 0])
    octets = np.zeros((len(distinct), 5), np.uint8)
    octets[:, 0] = 4
    octets[:, 1:] = distinct.astype(">u4").view(np.uint8).reshape(-1, 4)
    local = np.where(values == 0, NONE, np.searchsorted(distinct, values)).astype(np.uint32)
    return {
        "hi": rows.astype(np.uint64),
        "length": np.full(len(rows), 32, np.uint8),
        "source": np.zeros(len(rows), np.uint32),
        "set": local,
        "reason": np.zeros(len(rows), np.uint8),
        "set_offset": (np.arange(len(distinct) + 1) * 5).astype(np.uint32),
        "set_octets": octets.reshape(-1),
    }


def session(event: int):
    """Return the content of a SessionChanges batch."""
    columns = {"source": np.zeros(1, np.uint32), "event": np.array([event], np.uint8)}
    return SessionChanges, columns, {"family": "ipv4-unicast", "sources": [SOURCE]}


class Copy:
    """A reader that keeps what it was told, as the contract asks: unconfirmed at BEGIN, removed at END."""

    def __init__(self):
        self.values: dict[int, int] = {}
        self.unconfirmed: set[int] = set()
        self.removed_at_end: list[int] = []
        self.batches: list[Batch] = []
        self.events: list[int] = []

    def handle(self, batch: Batch) -> None:
        self.batches.append(batch)
        if batch.flags & SNAPSHOT_BEGIN:
            self.unconfirmed = set(self.values)
        if batch.kind is SessionChanges:
            self.events += batch.columns["event"].tolist()
        else:
            octets = batch.columns["set_octets"].reshape(-1, 5)[:, 1:].copy().view(">u4").reshape(-1).tolist()
            for row, index in zip(batch.columns["hi"].tolist(), batch.columns["set"].tolist(), strict=True):
                self.unconfirmed.discard(row)
                if index == NONE:
                    self.values.pop(row, None)
                else:
                    self.values[row] = octets[index]
        if batch.flags & SNAPSHOT_END:
            self.removed_at_end = sorted(self.unconfirmed)
            for row in self.unconfirmed:
                del self.values[row]
            self.unconfirmed = set()

    @property
    def flags(self) -> list[int]:
        return [batch.flags for batch in self.batches]


class World:
    """Stages in one process, turned until all is quiet."""

    def __init__(self):
        self.clock = ManualClock()
        self.hub = MemoryHub()
        self.buses: dict[str, Bus] = {}
        self.logs: dict[str, Log] = {}
        self.loops: dict[str, Loop] = {}

    def bus(self, stage: str) -> Bus:
        """Add a stage and return its bus."""
        loop = Loop(self.clock)
        log = Log(stage, stream=io.StringIO(), clock=self.clock)
        bus = Bus("/run", stage, "0", loop, MemoryTransport(self.hub, loop), log)
        loop.add_turn(bus.pump)
        self.buses[stage], self.logs[stage], self.loops[stage] = bus, log, loop
        return bus

    def kill(self, stage: str) -> None:
        """End a stage, as its process would."""
        self.buses.pop(stage).close()
        self.loops.pop(stage).close()

    def settle(self, turns: int = 10_000) -> None:
        """Turn all loops until none has anything to do."""
        for _ in range(turns):
            if not any([loop.turn() for loop in self.loops.values()]):
                return
        raise AssertionError("not quiet")

    def wait(self, seconds: float) -> None:
        """Let time pass, then settle."""
        self.clock.advance(seconds)
        self.settle()


@pytest.fixture
def world():
    return World()


@pytest.fixture
def make_owner():
    return Owner


@pytest.fixture
def make_copy():
    return Copy


@pytest.fixture
def session_content():
    return session


@pytest.fixture
def make_batch():
    """Build a RouteChanges batch from {row: value}."""

    def make(values: dict[int, int], **more) -> Batch:
        rows = np.array(list(values), np.uint32)
        columns = columns_of(rows, np.array(list(values.values()), np.uint32)) if values else {**no_sets()}
        return Batch(RouteChanges, columns, {"family": "ipv4-unicast", "sources": [SOURCE]}, CHANNEL, **more)

    return make


@pytest.fixture
def run_dir():
    """A directory short enough for socket paths."""
    path = tempfile.mkdtemp(prefix="hr")
    yield path
    shutil.rmtree(path, ignore_errors=True)
