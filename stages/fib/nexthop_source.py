"""Serves what is known of next hops, as NextHopChanges.

Owns the version of that knowledge. Next hops are few, so a reader that is behind gets all of them in one snapshot.
"""

from collections.abc import Callable
from socket import AF_INET

import numpy as np

from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, Position
from common.bus.channels import NEXTHOPS
from common.bus.schema import NextHopChanges
from common.bus.server import Source
from stages.fib.ways import Ways


class NextHopTable:
    """The version of the next hops: a new one whenever the answer for one of them is another."""

    def __init__(self, ways: Ways, epoch: str):
        self.ways = ways
        self.epoch = epoch
        self.version = 1
        self._told: dict[tuple[int, bytes], int | None] = {}

    def refresh(self) -> bool:
        """Compare with what was told last; return True if there is something new."""
        now: dict[tuple[int, bytes], int | None] = {}
        for way in self.ways.by_number.values():
            if way.is_resolved and not way.is_group:
                # A link-local address on several interfaces is told once: it can be reached where any of them can.
                before = now.get((way.family, way.address))
                now[way.family, way.address] = way.metric if before is None else before
        if now == self._told:
            return False
        self._told = now
        self.version += 1
        return True

    def columns(self) -> dict[str, np.ndarray]:
        """Return all next hops as the columns of NextHopChanges."""
        hops = list(self._told)
        values = [int.from_bytes(address.ljust(16, b"\0"), "big") for _, address in hops]
        metrics = list(self._told.values())
        return {
            "hi": np.array([value >> 64 for value in values], np.uint64),
            "lo": np.array([value & (2**64 - 1) for value in values], np.uint64),
            "length": np.array([4 if family == AF_INET else 16 for family, _ in hops], np.uint8),
            "reachable": np.array([metric is not None for metric in metrics], np.uint8),
            "metric": np.array([metric or 0 for metric in metrics], np.uint32),
        }


class NextHopSource(Source):
    """One reader's view of the table."""

    def __init__(self, table: NextHopTable, is_ready: Callable[[], bool]):
        self._table = table
        self._is_ready = is_ready

    @property
    def head(self) -> int:
        return self._table.version

    @property
    def epoch(self) -> str:
        return self._table.epoch

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        table = self._table
        after = Position(table.epoch, table.version, -1)
        if position == after or not self._is_ready():
            return []
        flags = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END
        return [Batch(NextHopChanges, table.columns(), {}, NEXTHOPS, after, table.version, table.version, flags)]
