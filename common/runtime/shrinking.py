"""Gives memory back when tables that were full are nearly empty for a while: a neighbor with a full table has gone.

Owns how full each table was. Never moves a row: rows that are free are put in order and zeroed, and pages of zeros are
given back (common/arrays.py), so nobody who holds a row's number notices. What is sized beforehand by the
configuration goes too; it is taken again when it is used.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from common.arrays import give_back
from common.runtime.log import Log, event
from common.runtime.loop import Loop

LOOK_S = 30.0
# Rows below which there is nothing to gain; and how nearly empty a table must be, at two looks in a row.
MIN_ROWS = 1 << 16
SPARSE = 4


class Shrinkable(Protocol):
    """A table as its owner has it."""

    @property
    def n_used(self) -> int:
        """Rows in use."""

    def tidy(self) -> Iterable[np.ndarray]:
        """Put free rows in order and return the columns, zero wherever rows are free."""


class Shrinking:
    """Looks at a stage's tables now and then; one column is gone through at a time."""

    def __init__(self, loop: Loop, log: Log, tables: Callable[[], Iterable[Shrinkable]]):
        self._loop = loop
        self._log = log
        self._tables = tables
        self._most: dict[int, int] = {}  # rows in use at most since a table last gave memory back, by its id()
        self._sparse: set[int] = set()
        self._columns: deque[np.ndarray] = deque()
        self._n_octets = 0
        loop.call_later(LOOK_S, self._look)

    def _look(self) -> None:
        tables = {id(table): table for table in self._tables()}
        self._most = {key: max(self._most.get(key, 0), table.n_used) for key, table in tables.items()}
        sparse = {key for key, table in tables.items() if MIN_ROWS <= self._most[key] >= SPARSE * table.n_used}
        for key in sparse & self._sparse:
            self._columns += tables[key].tidy()
            self._most[key] = tables[key].n_used
        self._sparse = sparse
        if self._columns:
            self._loop.call_later(0, self._give_back)
        self._loop.call_later(LOOK_S, self._look)

    def _give_back(self) -> None:
        self._n_octets += give_back(self._columns.popleft())
        if self._columns:
            self._loop.call_later(0, self._give_back)
        else:
            event(self._log, "memory-given-back", n_octets=self._n_octets)
            self._n_octets = 0
