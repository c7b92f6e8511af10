"""The one allocator of the tables' columns, and what is asked of columns everywhere.

A column is a one-dimensional numpy array. Large ones come straight from the kernel as untouched pages, so room that is
not used costs no memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

PAGE_OCTETS = 4096

_is_populating = False


@contextmanager
def populated() -> Iterator[None]:
    """Have the columns allocated inside take their memory from the system at once.

    For tables that are sized by what the configuration says will come: first touching a page is dear, and is better
    paid at the start than while a table loads.
    """
    global _is_populating
    before, _is_populating = _is_populating, True
    try:
        yield
    finally:
        _is_populating = before


def allocate(n_items: int, dtype, is_spare: bool = False) -> np.ndarray:
    """Return a column of zeros; most of a spare one may never be used, so it is not populated."""
    column = np.zeros(n_items, dtype)
    if _is_populating and not is_spare:
        column.view(np.uint8)[::PAGE_OCTETS] = 0
    return column


def grown(column: np.ndarray, n_items: int) -> np.ndarray:
    """Return a copy of a column with room for `n_items`; what is beyond the old end is zero."""
    larger = allocate(n_items, column.dtype)
    larger[: len(column)] = column
    return larger


def n_within(sizes: np.ndarray, limit: int) -> int:
    """Return how many items, from the first on, are together no larger than `limit`; one if the first alone is."""
    if not len(sizes) or sizes.sum(dtype=np.uint64) <= limit:
        return len(sizes)
    return max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.uint64), limit, side="right")))
