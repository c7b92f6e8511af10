"""The one allocator of the tables' columns.

A column is a one-dimensional numpy array. Large ones come straight from the kernel as untouched pages, so room that is
not used costs no memory.
"""

import numpy as np


def allocate(n_items: int, dtype) -> np.ndarray:
    """Return a column of zeros."""
    return np.zeros(n_items, dtype)


def grown(column: np.ndarray, n_items: int) -> np.ndarray:
    """Return a copy of a column with room for `n_items`; what is beyond the old end is zero."""
    larger = np.zeros(n_items, column.dtype)
    larger[: len(column)] = column
    return larger
