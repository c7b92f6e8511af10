"""What the fib says of next hops: reachable or not, and at what metric.

Owns that table. Never guesses: a next hop of which nothing was said is reachable at metric 0, as it is for everyone
where no fib runs.
"""

import numpy as np

from common.bgp.decision import UNREACHABLE
from common.bus.batch import Batch
from common.kernels.decide import SetFacts
from common.kernels.prefixes import PrefixTable


class NextHops:
    """Next hops by row of a prefix table (a next hop is a prefix of full length)."""

    def __init__(self, seed: int):
        self._seed = seed
        self._incoming: tuple[PrefixTable, np.ndarray] | None = None
        self.n_updates = 0  # how often somebody has asked: it grows with every next hop that is new
        self._table, self._metric = self._empty()

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

    def update(self, facts: SetFacts, ways: np.ndarray) -> np.ndarray:
        """Write the metric of `ways`; return those whose metric is another one now (uint32)."""
        self.n_updates += 1
        hi, lo, octets = facts.next_hops(ways)
        metric = self._metric[self._table.find(hi, lo, octets * np.uint8(8))]
        is_changed = facts.metric[ways] != metric
        facts.metric[ways] = metric
        return ways[is_changed]

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
