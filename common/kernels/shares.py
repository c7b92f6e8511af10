"""Which share a prefix belongs to, where ribs share out the prefixes.

Owns the hash. It is part of what stages agree on, so it has no seed: a speaker, a rib that was started again and a fib
come to the same share. Only the upper bits of a prefix count: neighboring prefixes are often of one origin, so they
stay together, and the attribute set they share is handled in one place.
"""

import cython
import numpy as np

if cython.compiled:
    from cython.cimports.libc.string import memcpy

NONE = cython.declare(cython.uint, 0xFFFFFFFF)
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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy(
    target: cython.uchar[::1],
    at_target: cython.Py_ssize_t,
    octets: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.void:
    if cython.compiled:
        if n > 0:
            memcpy(cython.address(target[at_target]), cython.address(octets[at]), n)
    else:
        target[at_target : at_target + n] = octets[at : at + n]


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


def split(
    count: cython.ulonglong,
    is_wide: cython.bint,
    hi: cython.const[cython.ulonglong][::1],
    lo: cython.const[cython.ulonglong][::1],
    length: cython.const[cython.uchar][::1],
    source: cython.const[cython.uint][::1],
    set: cython.const[cython.uint][::1],
    reason: cython.const[cython.uchar][::1],
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
):
    """Split the columns of a RouteChanges batch by the shares of its prefixes; each row's set is below those there are.

    Returns a tuple of the same columns for each of `count` shares: its rows in their order, and the sets they refer to
    in the order of their first use.
    """
    n: cython.Py_ssize_t = hi.shape[0]
    n_sets: cython.Py_ssize_t = set_offset.shape[0] - 1
    n_shares: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, count)
    share: cython.uchar[::1] = memoryview(np.empty(n, np.uint8))
    # By share: where its rows begin, where its next one goes, how many sets it has and how many octets those.
    begins: cython.longlong[::1] = memoryview(np.zeros(n_shares + 1, np.int64))
    ends: cython.longlong[::1] = memoryview(np.zeros(n_shares, np.int64))
    n_own: cython.longlong[::1] = memoryview(np.zeros(n_shares, np.int64))
    octets_begin: cython.longlong[::1] = memoryview(np.zeros(n_shares + 1, np.int64))
    # By set and share: one more than its number in the share. By share and number: which set that is.
    local: cython.uint[::1] = memoryview(np.zeros(n_sets * n_shares, np.uint32))
    own: cython.uint[::1] = memoryview(np.empty(n_sets * n_shares, np.uint32))
    columns = [
        np.empty(n, np.uint64), np.empty(n if is_wide else 0, np.uint64), np.empty(n, np.uint8),
        np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n, np.uint8),
    ]  # fmt: skip
    hi_of: cython.ulonglong[::1] = memoryview(columns[0])
    lo_of: cython.ulonglong[::1] = memoryview(columns[1])
    length_of: cython.uchar[::1] = memoryview(columns[2])
    source_of: cython.uint[::1] = memoryview(columns[3])
    set_of: cython.uint[::1] = memoryview(columns[4])
    reason_of: cython.uchar[::1] = memoryview(columns[5])
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    at: cython.Py_ssize_t
    row_set: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    size: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            k = cython.cast(cython.Py_ssize_t, share_of(hi[i], is_wide, count))
            share[i] = cython.cast(cython.uchar, k)
            begins[k + 1] += 1
        for k in range(n_shares):
            begins[k + 1] += begins[k]
            ends[k] = begins[k]
        for i in range(n):
            k = share[i]
            at = ends[k]
            ends[k] += 1
            hi_of[at] = hi[i]
            if is_wide:
                lo_of[at] = lo[i]
            length_of[at] = length[i]
            source_of[at] = source[i]
            reason_of[at] = reason[i]
            if set[i] == NONE:
                set_of[at] = NONE
                continue
            row_set = set[i]
            if local[row_set * n_shares + k] == 0:
                own[k * n_sets + n_own[k]] = set[i]
                n_own[k] += 1
                local[row_set * n_shares + k] = cython.cast(cython.uint, n_own[k])
                octets_begin[k + 1] += set_offset[row_set + 1] - set_offset[row_set]
            set_of[at] = local[row_set * n_shares + k] - 1
        for k in range(n_shares):
            octets_begin[k + 1] += octets_begin[k]
    offsets = np.empty(n_shares + int(np.asarray(n_own).sum()), np.uint32)
    octets = np.empty(octets_begin[n_shares], np.uint8)
    offset_of: cython.uint[::1] = memoryview(offsets)
    octets_of: cython.uchar[::1] = memoryview(octets)
    start: cython.Py_ssize_t = 0
    shares = []
    for k in range(n_shares):
        with cython.nogil:
            at = octets_begin[k]
            offset_of[start] = 0
            for i in range(n_own[k]):
                row_set = own[k * n_sets + i]
                begin = set_offset[row_set]
                size = set_offset[row_set + 1] - begin
                copy(octets_of, at, set_octets, begin, size)
                at += size
                offset_of[start + i + 1] = cython.cast(cython.uint, at - octets_begin[k])
        rows = slice(begins[k], begins[k + 1])
        shares.append(
            (*[column[rows] for column in columns], offsets[start : start + n_own[k] + 1],
             octets[octets_begin[k] : octets_begin[k + 1]])
        )  # fmt: skip
        start += n_own[k] + 1
    return shares


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
