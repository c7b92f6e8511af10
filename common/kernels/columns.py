"""Finds the columns of a small batch in the one frame they travel in, and proves what kernels may then trust.

Owns the numbers of each kind's declaration. Never says what is wrong: a frame that is not plainly good is looked at
again, slowly, by who can name the place (common/bus/batch.py).
"""

import cython

NONE = cython.declare(cython.uint, 0xFFFFFFFF)

# What a column has one item for.
ROW, PATH, SET, OCTET, NOTHING = range(5)
_ROW = cython.declare(cython.int, ROW)
_PATH = cython.declare(cython.int, PATH)
_SET = cython.declare(cython.int, SET)
_NOTHING = cython.declare(cython.int, NOTHING)

# What its items must be below.
ANY, LONGEST, SOURCES, SETS, TWO = range(5)
_ANY = cython.declare(cython.int, ANY)
_LONGEST = cython.declare(cython.int, LONGEST)
_SOURCES = cython.declare(cython.int, SOURCES)
_SETS = cython.declare(cython.int, SETS)

_NARROW = cython.declare(cython.int, 32)  # the longest prefix length of IPv4


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def item(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.int) -> cython.ulonglong:
    """Return one little-endian number."""
    value: cython.ulonglong = 0
    i: cython.int
    for i in range(size):
        value |= cython.cast(cython.ulonglong, octets[at + i]) << (8 * i)
    return value


@cython.cclass
class Layout:
    """The columns of one kind."""

    n_columns: cython.Py_ssize_t
    paths_column: cython.Py_ssize_t  # -1: the kind has none
    offset_column: cython.Py_ssize_t
    octets_column: cython.Py_ssize_t
    _size: cython.uchar[::1]
    _per: cython.uchar[::1]
    _limit: cython.uchar[::1]
    _may_be_none: cython.uchar[::1]

    def __init__(self, columns: list, paths_column: int, offset_column: int, octets_column: int):
        """Take (octets of an item, per, limit, whether NONE is allowed) of each column, and where three of them are.

        They are the numbers of paths of each row, the offsets of the attribute sets and their octets; -1 for each that
        the kind has not.
        """
        self.n_columns = len(columns)
        self.paths_column = paths_column
        self.offset_column = offset_column
        self.octets_column = octets_column
        size, per, limit, may_be_none = (bytearray(numbers) for numbers in zip(*columns, strict=True))
        self._size = memoryview(size)
        self._per = memoryview(per)
        self._limit = memoryview(limit)
        self._may_be_none = memoryview(may_be_none)

    def split(
        self,
        octets: cython.const[cython.uchar][::1],
        counts: list,
        longest: cython.int,
        n_sources: cython.Py_ssize_t,
    ):
        """Return where each column begins in `octets` (a list), None for a frame that is not plainly good.

        counts: items of each column, as the header tells them. longest: the family's longest prefix length.
        Columns begin at multiples of eight octets.
        """
        starts: list = []
        at: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t
        i: cython.Py_ssize_t
        n_octets: cython.Py_ssize_t = len(octets)
        if len(counts) != self.n_columns:
            return None
        for i in range(self.n_columns):
            if type(counts[i]) is not int or not 0 <= counts[i] <= n_octets:
                return None
            count = counts[i]
            starts.append(at)
            at += (count * self._size[i] + 7) & ~7
            if at > n_octets:
                return None
        if at != n_octets:
            return None
        n_paths: cython.Py_ssize_t = 0
        n_sets: cython.Py_ssize_t = 0
        if self.paths_column >= 0:
            at = starts[self.paths_column]
            count = counts[self.paths_column]
            for i in range(at, at + count):
                n_paths += octets[i]
        if self.offset_column >= 0:
            n_sets = counts[self.offset_column] - 1
            if n_sets < 0 or not self._has_sets(
                octets,
                starts[self.offset_column],
                n_sets,
                starts[self.octets_column],
                counts[self.octets_column],
            ):
                return None
        n_rows: cython.Py_ssize_t = counts[0]
        limit: cython.Py_ssize_t
        for i in range(self.n_columns):
            count = counts[i]
            at = starts[i]
            if not self._is_count(self._per[i], count, n_rows, n_paths, longest):
                return None
            if self._limit[i] == _ANY:
                continue
            limit = 2
            if self._limit[i] == _LONGEST:
                limit = longest + 1
            elif self._limit[i] == _SOURCES:
                limit = n_sources
            elif self._limit[i] == _SETS:
                limit = n_sets
            if not self._is_below(octets, at, count, self._size[i], limit, self._may_be_none[i]):
                return None
        return starts

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_count(
        self,
        per: cython.int,
        count: cython.Py_ssize_t,
        n_rows: cython.Py_ssize_t,
        n_paths: cython.Py_ssize_t,
        longest: cython.int,
    ) -> cython.bint:
        if per == _ROW:
            return count == n_rows
        if per == _PATH:
            return count == n_paths
        if per == _NOTHING:  # lower halves, which a narrow family does not have
            return count == (0 if longest == _NARROW else n_rows)
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_below(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        size: cython.int,
        limit: cython.Py_ssize_t,
        may_be_none: cython.bint,
    ) -> cython.bint:
        value: cython.ulonglong
        i: cython.Py_ssize_t
        for i in range(count):
            value = item(octets, at + i * size, size)
            if value >= cython.cast(cython.ulonglong, limit) and not (may_be_none and value == NONE):
                return False
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _has_sets(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        n_sets: cython.Py_ssize_t,
        base: cython.Py_ssize_t,
        n_octets: cython.Py_ssize_t,
    ) -> cython.bint:
        """Tell whether sets follow each other from 0 to the end of the octets, each with a possible next hop."""
        begin: cython.Py_ssize_t = item(octets, at, 4)
        end: cython.Py_ssize_t
        next_hop: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if begin != 0:
            return False
        for i in range(n_sets):
            end = item(octets, at + 4 * i + 4, 4)
            if end <= begin or end > n_octets:
                return False
            next_hop = octets[base + begin]
            if next_hop != 0 and next_hop != 4 and next_hop != 16 and next_hop != 32:
                return False
            if end - begin <= next_hop:
                return False
            begin = end
        return begin == n_octets


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
