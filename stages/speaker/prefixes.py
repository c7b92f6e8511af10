"""The prefixes of one family: a row number for each, the same in the Adj-RIB-In and in every Adj-RIB-Out.

Owns the table and knows who uses its rows. Never knows what for: each user keeps columns of its own that are indexed by
row, and says which rows it needs. A row is given to another prefix only when nobody needs it, whoever lets go last.
"""

from typing import Protocol

import numpy as np

from common.bgp.constants import Family
from common.kernels.prefixes import PrefixTable

# Rows that a user who has left still had, looked at in one turn.
LEFT_ROWS_PER_TURN = 16384


class User(Protocol):
    """A table with columns by prefix row."""

    def needs(self, rows: np.ndarray) -> np.ndarray:
        """Tell of each row whether it must stay that of its prefix."""


class SharedPrefixes(PrefixTable):
    """Prefixes by row, for several users."""

    def __init__(self, family: Family, seed: int, expected: int = 0):
        super().__init__(family.is_wide, seed, max(expected, 1024))
        self._users: list[User] = []
        self._left = np.empty(0, np.uint32)

    def join(self, user: User) -> None:
        """Keep the rows that a user needs, from now on."""
        self._users.append(user)

    def leave(self, user: User) -> None:
        """Ask a user no more; what it had is released bit by bit, by `collect`."""
        self._users = [other for other in self._users if other is not user]
        rows = np.arange(1, self.row_limit, dtype=np.uint32)
        self._left = np.union1d(self._left, rows[user.needs(rows)])

    def release(self, rows: np.ndarray) -> None:
        """Forget the prefixes at those rows that no user needs."""
        for user in self._users:
            if len(rows):
                rows = rows[~user.needs(rows)]
        super().release(rows)

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return self.n_prefixes

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use."""
        return self.row_limit

    def collect(self) -> None:
        """Release some of what users who have left had."""
        rows, self._left = self._left[:LEFT_ROWS_PER_TURN], self._left[LEFT_ROWS_PER_TURN:]
        self.release(rows)

    @property
    def has_garbage(self) -> bool:
        """Whether `collect` has something to do."""
        return len(self._left) > 0


def is_used(column: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Tell of each row whether a column has something there; it may be shorter than the table."""
    return (rows < len(column)) & (column.take(rows, mode="clip") != 0)
