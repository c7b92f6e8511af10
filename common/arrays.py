"""The one allocator of the tables' columns, and what is asked of columns everywhere.

A column is a one-dimensional numpy array. Large ones come straight from the kernel as untouched pages, so room that is
not used costs no memory.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

PAGE_OCTETS = 4096
_MADV_DONTNEED = 4
# Shorter runs of pages are not worth a call.
_MIN_PAGES = 4
FEW = 48
"""Items up to which a list is quicker than numpy, which takes microseconds to begin: alone, a change has a few rows."""

_libc = ctypes.PyDLL(None)  # keeps the interpreter's lock: nothing may come into a page while it is looked at
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


def allocate(n_items: int, dtype, n_spare: int = 0) -> np.ndarray:
    """Return a column of zeros; the last `n_spare` items may never be used, so they are not populated."""
    column = np.zeros(n_items, dtype)
    if _is_populating:
        column[: n_items - n_spare].view(np.uint8)[::PAGE_OCTETS] = 0
    return column


def grown(column: np.ndarray, n_items: int) -> np.ndarray:
    """Return a copy of a column with room for `n_items`; what is beyond the old end is zero."""
    larger = allocate(n_items, column.dtype)
    larger[: len(column)] = column
    return larger


def give_back(column: np.ndarray) -> int:
    """Give the memory of pages back that hold nothing but zeros, and return how many octets that were.

    What stands in the column stays as it is: a page that is not there reads as zeros.
    """
    first = -column.ctypes.data % PAGE_OCTETS
    n_pages = (column.nbytes - first) // PAGE_OCTETS
    if n_pages < _MIN_PAGES:
        return 0
    octets = column.view(np.uint8)[first : first + n_pages * PAGE_OCTETS]
    is_empty = np.bitwise_or.reduce(octets.view(np.uint64).reshape(n_pages, -1), axis=1) == 0
    edges = np.flatnonzero(np.diff(is_empty, prepend=False, append=False)).reshape(-1, 2)
    n_given = 0
    for start, end in edges[edges[:, 1] - edges[:, 0] >= _MIN_PAGES].tolist():
        n_octets = (end - start) * PAGE_OCTETS
        address = ctypes.c_void_p(octets.ctypes.data + start * PAGE_OCTETS)
        if _libc.madvise(address, ctypes.c_size_t(n_octets), _MADV_DONTNEED) == 0:
            n_given += n_octets
    return n_given


def only_value(column: np.ndarray) -> int | None:
    """Return the value that all items of a column have; None for several values, and for an empty column."""
    if not len(column):
        return None
    if len(column) < FEW:
        values = column.tolist()
        return values[0] if values.count(values[0]) == len(values) else None
    return int(column[0]) if (column == column[0]).all() else None


def has_any(column: np.ndarray) -> bool:
    """Tell whether an item is not zero."""
    return any(column.tolist()) if len(column) < FEW else bool(column.any())


def give_back_heap() -> None:
    """Give freed memory of the heap back, where the C library can do so."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def n_within(sizes: np.ndarray, limit: int) -> int:
    """Return how many items, from the first on, are together no larger than `limit`; one if the first alone is."""
    if not len(sizes) or sizes.sum(dtype=np.uint64) <= limit:
        return len(sizes)
    return max(1, int(np.searchsorted(np.cumsum(sizes, dtype=np.uint64), limit, side="right")))


def distinct(values: np.ndarray) -> np.ndarray:
    """Return the different values of a column of integers, ascending.

    As np.unique does, which hashes them since NumPy 2.3: that takes about a hundred times as long.
    """
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]
