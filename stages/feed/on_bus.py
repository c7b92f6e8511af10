"""A speaker on the bus: senders' tables as the Adj-RIB-In of a pipeline, without TCP and without a session.

Owns prefixes, attribute sets, routes and journal of what it has fed, as a speaker does, and serves
`adj-rib-in/FAMILY` in the place of speaker instance 0. Never feeds faster than its readers read.
"""

import ipaddress
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from common.bgp.constants import Family
from common.bus import channels
from common.bus.bus import Bus
from common.bus.journal import Content, JournalSource, Marks, new_epoch
from common.bus.schema import RouteChanges, SessionChanges, SessionEvent
from common.kernels.attributes import AttributeTable
from common.kernels.journal import Journal
from common.kernels.prefixes import PrefixTable
from common.kernels.routes import RouteTable
from stages.feed.neighbor import Plan
from stages.feed.source import Source
from stages.feed.synthetic import Table

MOST_AHEAD = 1 << 18  # changes not read yet
PATIENCE_S = 2.0  # until it is said that nobody reads


class NotThere(ValueError):
    """There is no place on the bus for a speaker; the text says why."""


def description(plan: Plan, local_asn: int) -> dict:
    """Return a sender as a batch describes the source of a route."""
    return {
        "name": plan.name,
        "asn": plan.asn,
        "local_asn": local_asn,
        "router_id": int(ipaddress.IPv4Address(plan.router_id)),
        "address": ipaddress.ip_address(plan.address).packed,
        "local_address": b"",
        "external": plan.asn != local_asn,
        "rr_client": False,
        "path_id": 0,
        "interface": "",
    }


class FedTable:
    """What has been fed of one family."""

    def __init__(self, family: Family, sources: list[dict]):
        self.family = family
        self.sources = sources
        self.prefixes = PrefixTable(family.is_wide, 1, 1024)
        self.attributes = AttributeTable(1, 1024)
        self.routes = RouteTable(1024)
        self.journal = Journal()
        self.journal.ensure_rows(self.routes.capacity)
        self.marks = Marks(self.journal)
        self.ended: list[int] = []

    def apply(self, source: int, table: Table) -> int:
        """Enter a piece of a sender's table; return how many routes changed."""
        ids = self.attributes.intern_rows(table.set_offset, table.set_octets, table.set)
        rows = self.prefixes.intern(table.hi, table.lo, table.length, ids)
        changed = self.routes.apply(rows, np.array([source], np.uint32), ids, self.attributes.references)
        self.journal.append(changed)
        return len(changed)

    def end(self, source: int) -> None:
        """Mark that a sender has fed all."""
        self.ended.append(source)
        self.marks.append(lambda: self.session(source, SessionEvent.END_OF_RIB))

    def session(self, source: int, event: SessionEvent) -> Content:
        """Return a batch that tells what happened to a sender's session."""
        columns = {"source": np.zeros(1, np.uint32), "event": np.full(1, event, np.uint8)}
        return SessionChanges, columns, {"family": self.family.label, "sources": [self.sources[source]]}

    def gather(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        """Return (columns, meta) of a RouteChanges batch: the state of these routes now."""
        if is_snapshot:
            rows = rows[self.routes.attributes[rows] != 0]
        prefix_rows = self.routes.prefix[rows]
        local, set_offset, set_octets = self.attributes.extract(self.routes.attributes[rows])
        present, source = np.unique(self.routes.source[rows], return_inverse=True)
        columns = {
            "hi": self.prefixes.hi(prefix_rows),
            "lo": self.prefixes.lo(prefix_rows) if self.family.is_wide else np.empty(0, np.uint64),
            "length": self.prefixes.length(prefix_rows),
            "source": source.astype(np.uint32),
            "set": local,
            "reason": np.zeros(len(rows), np.uint8),
            "set_offset": set_offset,
            "set_octets": set_octets,
        }
        return columns, {"family": self.family.label, "sources": [self.sources[number] for number in present.tolist()]}


class BusSpeaker:
    """Feeds tables into a bus; `turn` is called once in each turn of the loop."""

    def __init__(self, bus: Bus, senders: list[tuple[Plan, Source]], local_asn: int = 65000):
        self.epoch = new_epoch()
        self.plans = [plan for plan, _ in senders]
        sources = [{}, *(description(plan, local_asn) for plan in self.plans)]  # sources are numbered from 1
        self.tables = {family: FedTable(family, sources) for family in Family}
        self.pieces = self._pieces(senders)
        self.is_fed = False
        self.n_fed = 0
        self.began_at = 0.0
        self.server = bus.serve()
        for family in Family:
            self.server.add(channels.adj_rib_in(family.label), lambda request, family=family: self._source(family))

    def _pieces(self, senders: list[tuple[Plan, Source]]) -> Iterator[tuple[int, Table | None]]:
        for number, (plan, source) in enumerate(senders, 1):
            for table in source.tables(plan):
                yield number, table
            yield number, None

    def _source(self, family: Family) -> JournalSource:
        table = self.tables[family]
        return JournalSource(
            table.journal,
            RouteChanges,
            table.gather,
            lambda: table.routes.row_limit,
            epoch=self.epoch,
            marks=table.marks,
            preamble=lambda: [table.session(number, SessionEvent.UP) for number in range(1, len(self.plans) + 1)],
            epilogue=lambda: [table.session(number, SessionEvent.END_OF_RIB) for number in table.ended],
        )

    @property
    def lag(self) -> int:
        """How many changes the slowest reader has not read; what there are when there is no reader."""
        return max(
            table.journal.head - (self.server.min_position(channels.adj_rib_in(family.label)) or 0)
            for family, table in self.tables.items()
        )

    @property
    def has_readers(self) -> bool:
        return all(self.server.min_position(channels.adj_rib_in(family.label)) is not None for family in self.tables)

    def turn(self) -> bool:
        """Feed the next piece, if readers keep up; return True if there may be more to do at once."""
        if self.is_fed or not self.has_readers or self.lag > MOST_AHEAD:
            return False
        self.began_at = self.began_at or time.monotonic()
        step = next(self.pieces, None)
        if step is None:
            self.is_fed = True
            return False
        source, piece = step
        if piece is None:
            for table in self.tables.values():
                table.end(source)
        else:
            self.n_fed += self.tables[piece.family].apply(source, piece)
        return True


def feed_bus(run_dir: Path, senders: list[tuple[Plan, Source]], time_limit_s: float) -> int:
    """Feed a pipeline that runs in `run_dir` without a speaker, until its time is over; return the exit status."""
    from common.bus.zmq_transport import ZmqTransport
    from common.runtime.log import Log
    from common.runtime.loop import Loop

    if not run_dir.is_dir():
        raise NotThere(f"--bus {run_dir}: there is no such directory: name the run_dir of a router without a speaker")
    loop = Loop()
    bus = Bus(run_dir, "speaker", "0", loop, ZmqTransport(loop), Log("feed", level="error"))
    try:
        speaker = BusSpeaker(bus, senders)
    except OSError as error:
        bus.close()
        raise NotThere(f"--bus {run_dir}: {error.strerror}: {error.filename}: stop that speaker first") from None
    began_at = time.monotonic()
    end = began_at + (time_limit_s or float("inf"))
    told = warned = False
    try:
        while time.monotonic() < end:
            is_busy = speaker.turn()
            is_busy |= bus.pump()
            loop.turn(0.0 if is_busy else 0.05)
            if not speaker.has_readers and not warned and time.monotonic() > began_at + PATIENCE_S:
                warned = True
                print(f"nobody reads in {run_dir} yet: are policy and rib of this router up?", file=sys.stderr)
            if speaker.is_fed and speaker.lag == 0 and not told:
                told = True
                seconds = time.monotonic() - speaker.began_at
                report = {"event": "fed", "routes": speaker.n_fed, "seconds": round(seconds, 3)}
                print(json.dumps(report | {"routes_per_s": round(speaker.n_fed / seconds)}), flush=True)
    except KeyboardInterrupt:
        pass
    finally:
        bus.close()
    if not told:
        print(f"failed: {speaker.n_fed:,} routes fed, not all, when it ended", file=sys.stderr)
    return 0 if told else 1
