"""The prefix table: gives each distinct prefix of one family a row number.

Owns the prefixes and their hash index. Never knows what a row is used for: other tables have columns of their own
that are indexed by the same row numbers. Row 0 is never given out, so 0 means "none" everywhere.

A prefix is (hi, lo, length): the address left-aligned in 128 bits, as two 64-bit halves. An IPv4 table is *narrow*:
`lo` is always zero and is not stored.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
MIX_1 = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
MIX_2 = cython.declare(cython.ulonglong, 0xD6E8FEB86659FD93)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def mix(
    hi: cython.ulonglong, lo: cython.ulonglong, length: cython.ulonglong, seed: cython.ulonglong
) -> cython.ulonglong:
    """Hash one prefix: multiply and fold, keyed by the seed so that peers cannot aim at a slot."""
    h: cython.ulonglong = hi ^ seed
    h = (h * MIX_1) & MASK64
    h ^= h >> 32
    h = ((h ^ lo ^ (length << 56)) * MIX_2) & MASK64
    h ^= h >> 32
    h = (h * MIX_2) & MASK64
    return h ^ (h >> 29)


@cython.cclass
class PrefixTable:
    """Prefixes of one family by row number, with an open-addressing index (linear probing, load at most 5/8)."""

    is_wide: cython.bint
    seed: cython.ulonglong
    n_rows: cython.uint  # live rows
    top: cython.uint  # one more than the highest row ever given out
    free_head: cython.uint  # first row of the free list, linked through `hi`; 0 ends it
    _hi: cython.ulonglong[::1]
    _lo: cython.ulonglong[::1]
    _length: cython.uchar[::1]
    _slots: cython.uint[::1]
    hi_column: object
    lo_column: object
    length_column: object

    def __init__(self, is_wide: bool, seed: int, capacity: int = 1024):
        self.is_wide = is_wide
        self.seed = seed & MASK64
        self.n_rows = 0
        self.top = 1
        self.free_head = 0
        self.hi_column = allocate(0, np.uint64)
        self.lo_column = allocate(0, np.uint64)
        self.length_column = allocate(0, np.uint8)
        self._resize_rows(max(capacity, 16))
        self._rebuild_slots(max(capacity, 16))

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Rows that columns indexed by prefix row must have room for."""
        return len(self.hi_column)

    @property
    def n_prefixes(self) -> int:
        return self.n_rows

    @property
    def row_limit(self) -> int:
        """One more than the highest row in use: the range to scan for a snapshot."""
        return self.top

    def hi(self, rows):
        """Upper halves of the prefixes at `rows` (uint64)."""
        return self.hi_column[rows]

    def lo(self, rows):
        """Lower halves (uint64); zeros for a narrow table."""
        return self.lo_column[rows] if self.is_wide else np.zeros(len(rows), np.uint64)

    def length(self, rows):
        """Prefix lengths in bits (uint8)."""
        return self.length_column[rows]

    # ---- batches ----------------------------------------------------------------------------------------------

    def intern(
        self,
        hi: cython.const[cython.ulonglong][::1],
        lo: cython.const[cython.ulonglong][::1],
        length: cython.const[cython.uchar][::1],
        ids: cython.const[cython.uint][::1] = None,
    ):
        """Return the row of each prefix (uint32), giving new rows to prefixes not seen before.

        Where `ids` is given and 0 (a withdrawal), a prefix not seen before gets row 0 instead: nothing would ever
        release it.
        """
        n: cython.Py_ssize_t = hi.shape[0]
        has_ids: cython.bint = ids is not None
        if length.shape[0] != n or (self.is_wide and lo.shape[0] != n) or (has_ids and ids.shape[0] != n):
            raise ValueError("the columns of the prefixes must be of one length")
        result = np.empty(n, np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        if self.top + n >= self.hi_column.shape[0]:
            self._resize_rows(max(self.top + n + 1, self.hi_column.shape[0] * 3 // 2))
        if (self.n_rows + n) * 8 > self._slots.shape[0] * 5:
            self._rebuild_slots(max(self.n_rows + n, self.n_rows * 3 // 2))
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                rows[i] = self._find_or_insert(
                    hi[i], lo[i] if self.is_wide else 0, length[i], not has_ids or ids[i] != 0
                )
        return result

    def find(
        self,
        hi: cython.const[cython.ulonglong][::1],
        lo: cython.const[cython.ulonglong][::1],
        length: cython.const[cython.uchar][::1],
    ):
        """Return the row of each prefix (uint32), 0 where it is not in the table."""
        n: cython.Py_ssize_t = hi.shape[0]
        if length.shape[0] != n or (self.is_wide and lo.shape[0] != n):
            raise ValueError("the columns of the prefixes must be of one length")
        result = np.empty(n, np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                rows[i] = self._find_or_insert(hi[i], lo[i] if self.is_wide else 0, length[i], False)
        return result

    def release(self, rows: cython.const[cython.uint][::1]):
        """Forget the prefixes at `rows`, each live and named once; the row numbers are given out again later."""
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(rows.shape[0]):
                self._remove(rows[i])

    # ---- the index --------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_or_insert(
        self, hi: cython.ulonglong, lo: cython.ulonglong, length: cython.uchar, insert: cython.bint
    ) -> cython.uint:
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = mix(hi, lo, length, self.seed) & mask
        row: cython.uint
        while True:
            row = self._slots[slot]
            if row == 0:
                break
            if self._hi[row] == hi and self._length[row] == length and (not self.is_wide or self._lo[row] == lo):
                return row
            slot = (slot + 1) & mask
        if not insert:
            return 0
        if self.free_head != 0:
            row = self.free_head
            self.free_head = cython.cast(cython.uint, self._hi[row])
        else:
            row = self.top
            self.top += 1
        self._hi[row] = hi
        if self.is_wide:
            self._lo[row] = lo
        self._length[row] = length
        self._slots[slot] = row
        self.n_rows += 1
        return row

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _home(self, row: cython.uint) -> cython.ulonglong:
        lo: cython.ulonglong = self._lo[row] if self.is_wide else 0
        return mix(self._hi[row], lo, self._length[row], self.seed) & (self._slots.shape[0] - 1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _remove(self, row: cython.uint) -> cython.void:
        """Take one row out of the index (backward shift: no tombstones) and put it on the free list."""
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = self._home(row)
        while self._slots[slot] != row:
            slot = (slot + 1) & mask
        hole: cython.ulonglong = slot
        home: cython.ulonglong
        while True:
            slot = (slot + 1) & mask
            if self._slots[slot] == 0:
                break
            home = self._home(self._slots[slot])
            # The entry may move into the hole unless its home lies cyclically after the hole.
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                self._slots[hole] = self._slots[slot]
                hole = slot
        self._slots[hole] = 0
        self._hi[row] = self.free_head
        self.free_head = row
        self._length[row] = 255
        self.n_rows -= 1

    @cython.cfunc
    def _resize_rows(self, capacity: cython.Py_ssize_t):
        self.hi_column = grown(self.hi_column, capacity)
        self._hi = memoryview(self.hi_column)
        self.length_column = grown(self.length_column, capacity)
        self._length = memoryview(self.length_column)
        if self.is_wide:
            self.lo_column = grown(self.lo_column, capacity)
        self._lo = memoryview(self.lo_column)

    @cython.cfunc
    def _rebuild_slots(self, n_prefixes: cython.Py_ssize_t):
        size: cython.Py_ssize_t = 64
        while size * 5 < n_prefixes * 8:
            size *= 2
        self._slots = memoryview(allocate(size, np.uint32))
        mask: cython.ulonglong = size - 1
        row: cython.uint
        slot: cython.ulonglong
        with cython.nogil:
            for row in range(1, self.top):
                if self._length[row] == 255:
                    continue
                slot = self._home(row)
                while self._slots[slot] != 0:
                    slot = (slot + 1) & mask
                self._slots[slot] = row


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
