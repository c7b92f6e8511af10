"""Serves the next hops of all candidates, chosen or not, so that the fib can resolve them before they are needed.

Owns the version of that list. Never knows whether a next hop can be reached: the fib says so (next_hops.py). Next hops
are few, so a reader that is behind gets all of them in one snapshot.
"""

from collections.abc import Callable, Iterable

import numpy as np

from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, Position
from common.bus.channels import WANTED_NEXTHOPS
from common.bus.schema import NextHopChanges
from common.bus.server import Source
from common.kernels.decide import SetFacts
from stages.rib.next_hops import is_asked_about


class WantedNextHops(Source):
    """What any reader is told; `version` grows whenever there may be a next hop more."""

    def __init__(self, facts: Iterable[SetFacts], epoch: str, version: Callable[[], int]):
        self._facts = list(facts)
        self._epoch = epoch
        self._version = version

    @property
    def head(self) -> int:
        return self._version()

    @property
    def epoch(self) -> str:
        return self._epoch

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        after = Position(self._epoch, self._version(), -1)
        if position == after:
            return []
        flags = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END
        return [Batch(NextHopChanges, self._columns(), {}, WANTED_NEXTHOPS, after, after.sequence, self.head, flags)]

    def _columns(self) -> dict[str, np.ndarray]:
        """Return the distinct next hops as columns of NextHopChanges; of none is anything said but that it is there."""
        parts = [facts.next_hops(np.arange(1, facts.way_limit, dtype=np.uint32)) for facts in self._facts]
        hi, lo, length = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        chosen = np.flatnonzero(is_asked_about(hi, lo, length))
        hops = sorted(set(zip(hi[chosen].tolist(), lo[chosen].tolist(), length[chosen].tolist(), strict=True)))
        n = len(hops)
        return {
            "hi": np.array([hop[0] for hop in hops], np.uint64),
            "lo": np.array([hop[1] for hop in hops], np.uint64),
            "length": np.array([hop[2] for hop in hops], np.uint8),
            "reachable": np.zeros(n, np.uint8),
            "metric": np.zeros(n, np.uint32),
        }
