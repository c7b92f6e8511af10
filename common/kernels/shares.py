"""Which share a prefix belongs to, where ribs share out the prefixes.

Owns the hash. It is part of what stages agree on, so it has no seed: a speaker, a rib that was started again and a fib
come to the same share. Only the upper bits of a prefix count: neighboring prefixes are often of one origin, so they
stay together, and the attribute set they share is handled in one place.
"""

import cython
import numpy as np

FACTOR_0 = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
FACTOR_1 = cython.declare(cython.ulonglong, 0xD6E8FEB86659FD93)
MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
BITS_NARROW = cython.declare(cython.int, 20)
BITS_WIDE = cython.declare(cython.int, 40)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def mixed(word: cython.ulonglong, factor: cython.ulonglong) -> cython.ulonglong:
    """Spread what tells words apart over all bits."""
    if cython.compiled:
        word = word * factor
    else:
        word = word * factor & MASK64
    return word ^ word >> 32


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def share_of(hi: cython.ulonglong, is_wide: cython.bint, count: cython.ulonglong) -> cython.ulonglong:
    """Return the share, below `count`, of a prefix, by the upper half of its 128 bits."""
    word: cython.ulonglong = hi >> (64 - (BITS_WIDE if is_wide else BITS_NARROW))
    return (mixed(mixed(word, FACTOR_0), FACTOR_1) >> 32) * count >> 32


def is_in_share(
    index: cython.ulonglong, count: cython.ulonglong, hi: cython.const[cython.ulonglong][::1], is_wide: cython.bint
):
    """Tell of each prefix, by the upper half of its 128 bits, whether it is in share `index` of `count` (bool)."""
    n: cython.Py_ssize_t = hi.shape[0]
    result = np.empty(n, np.uint8)
    is_in: cython.uchar[::1] = memoryview(result)
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            is_in[i] = share_of(hi[i], is_wide, count) == index
    return result.view(bool)


def rows_in_share(
    index: cython.ulonglong,
    count: cython.ulonglong,
    rows: cython.const[cython.uint][::1],
    prefix_rows: cython.const[cython.uint][::1],
    hi: cython.const[cython.ulonglong][::1],
    is_wide: cython.bint,
):
    """Return those of `rows` (uint32) whose prefix, `hi` of the row at `prefix_rows`, is in a share."""
    n: cython.Py_ssize_t = rows.shape[0]
    result = np.empty(n, np.uint32)
    chosen: cython.uint[::1] = memoryview(result)
    n_chosen: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            chosen[n_chosen] = rows[i]
            n_chosen += share_of(hi[prefix_rows[rows[i]]], is_wide, count) == index
    return result[:n_chosen]


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
