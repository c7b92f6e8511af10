"""Gives memory back when tables that were full are nearly empty for a while: a neighbor with a full table has gone.

Owns how full each table was. Never moves a row: rows that are free are put in order and zeroed, and pages of zeros are
given back (common/arrays.py), so nobody who holds a row's number notices. What is sized beforehand by the
configuration goes too; it is taken again when it is used.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from common.arrays import give_back, give_back_heap
from common.runtime.log import Log, event
from common.runtime.loop import Loop

LOOK_S = 5.0
# Rows below which there is nothing to gain; and how nearly empty a table must be, at how many looks in a row.
MIN_ROWS = 1 << 16
SPARSE = 4
N_LOOKS = 6


class Shrinkable(Protocol):
    """A table as its owner has it."""

    @property
    def n_used(self) -> int:
        """Rows in use."""

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use."""

    def tidy(self) -> Iterable[np.ndarray]:
        """Put free rows in order and return the columns, zero wherever rows are free."""


class Shrinking:
    """Looks at a stage's tables now and then; one column is gone through at a time."""

    def __init__(self, loop: Loop, log: Log, tables: Callable[[], Iterable[Shrinkable]]):
        self._loop = loop
        self._log = log
        self._tables = tables
        # By id() of a table: rows in use at most since it last gave memory back, rows ever in use at the last look, and
        # at how many looks in a row it was nearly empty.
        self._most: dict[int, int] = {}
        self._ever: dict[int, int] = {}
        self._sparse: dict[int, int] = {}
        self._columns: deque[np.ndarray] = deque()
        self._n_octets = 0
        loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        most, ever, sparse = {}, {}, {}
        for table in self._tables():
            key, n_used = id(table), table.n_used
            ever[key] = table.n_ever
            # Free rows come first: where new ones were needed, all there are were in use, however short it was.
            n_new = ever[key] if ever[key] > self._ever.get(key, 0) else 0
            most[key] = max(self._most.get(key, 0), n_used, n_new)
            is_sparse = MIN_ROWS <= most[key] >= SPARSE * n_used
            sparse[key] = self._sparse.get(key, 0) + 1 if is_sparse else 0
            if sparse[key] >= N_LOOKS:
                self._begin(table)
                most[key], sparse[key] = n_used, 0
        self._most, self._ever, self._sparse = most, ever, sparse
        self._loop.call_later(LOOK_S, self._look)

    def _begin(self, table: Shrinkable) -> None:
        if not self._columns:
            self._loop.call_later(0, self._give_back)
        self._columns += table.tidy()

    def _give_back(self) -> None:
        self._n_octets += give_back(self._columns.popleft())
        if self._columns:
            self._loop.call_later(0, self._give_back)
        else:
            give_back_heap()
            event(self._log, "memory-given-back", n_octets=self._n_octets)
            self._n_octets = 0
