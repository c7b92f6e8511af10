"""What the fib says of next hops: reachable or not, and at what metric.

Owns that table, and what holds where it says nothing:

    a new next hop              is not reachable before the fib, which is asked about it (wanted.py), has answered
    one the fib was asked about what it said last: a fib that has just started has not answered everything yet
    where no fib runs           what it said last; one it has never spoken of is reachable, at metric 0
"""

import numpy as np

from common.bgp.decision import UNREACHABLE
from common.bus.batch import Batch
from common.kernels.decide import SetFacts
from common.kernels.prefixes import PrefixTable

LINK_LOCAL = np.uint64(0xFE80 >> 6)  # fe80::/10
MAPPED = np.uint64(0xFFFF)  # ::ffff:0:0/96
_NOBODY = np.empty(0, np.uint32)


def is_asked_about(hi: np.ndarray, lo: np.ndarray, octets: np.ndarray) -> np.ndarray:
    """Tell which next hops the fib is asked about: not link-local ones, which mean something with an interface only."""
    is_wide = (octets == 16) & (hi >> np.uint64(54) != LINK_LOCAL) & ((hi != 0) | (lo >> np.uint64(32) > MAPPED))
    return (octets == 4) | is_wide


class NextHops:
    """Next hops by row of a prefix table (a next hop is a prefix of full length)."""

    def __init__(self, seed: int):
        self._seed = seed
        self._incoming: tuple[PrefixTable, np.ndarray] | None = None
        self.is_answered = False  # there is a fib, or will be soon: what it says of a new next hop is waited for
        self.n_updates = 0  # how often somebody has asked: it grows with every next hop that is new
        self._table, self._metric = self._empty()
        self._waiting: dict[SetFacts, np.ndarray] = {}  # ways of which the fib has never spoken

    def handle(self, batch: Batch) -> None:
        """Take over what a NextHopChanges batch says; a snapshot replaces all at its end."""
        if batch.begins_snapshot:
            self._incoming = self._empty()
        if self._incoming is not None:
            self._incoming = _write(*self._incoming, batch)
            if batch.ends_snapshot:
                (self._table, self._metric), self._incoming = self._incoming, None
        else:
            self._table, self._metric = _write(self._table, self._metric, batch)

    def update(self, facts: SetFacts, ways: np.ndarray, are_new: bool = False) -> np.ndarray:
        """Write the metric of `ways`; return those whose metric is another one now (uint32)."""
        self.n_updates += 1
        hi, lo, octets = facts.next_hops(ways)
        before = facts.metric[ways]
        rows = self._table.find(hi, lo, octets * np.uint8(8))
        waiting = np.zeros(facts.way_limit, bool)
        waiting[self._waiting.get(facts, _NOBODY)] = True
        is_new = waiting[ways] | are_new
        is_waiting = is_new & (rows == 0) & self.is_answered & is_asked_about(hi, lo, octets)
        waiting[ways] = is_waiting
        self._waiting[facts] = np.flatnonzero(waiting)
        unsaid = np.where(is_new, np.where(is_waiting, np.uint32(UNREACHABLE), np.uint32(0)), before)
        metric = np.where(rows != 0, self._metric[rows], unsaid)
        facts.metric[ways] = metric
        return ways[before != metric]

    @property
    def n_waiting(self) -> int:
        """How many next hops the fib is asked about and has never spoken of."""
        return sum(map(len, self._waiting.values()))

    @property
    def is_settled(self) -> bool:
        """Whether what is known is whole: no snapshot is on its way."""
        return self._incoming is None

    def __len__(self) -> int:
        return self._table.n_prefixes

    def _empty(self) -> tuple[PrefixTable, np.ndarray]:
        table = PrefixTable(True, self._seed, 64)
        return table, np.zeros(table.capacity, np.uint32)


def _write(table: PrefixTable, metric: np.ndarray, batch: Batch) -> tuple[PrefixTable, np.ndarray]:
    columns = batch.columns
    rows = table.intern(columns["hi"], columns["lo"], columns["length"] * np.uint8(8))
    if table.capacity > len(metric):
        metric = np.concatenate([metric, np.zeros(table.capacity - len(metric), np.uint32)])
    usable = np.minimum(columns["metric"], UNREACHABLE - 1)
    metric[rows] = np.where(columns["reachable"] != 0, usable, np.uint32(UNREACHABLE))
    return table, metric
