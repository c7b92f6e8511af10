"""The prefix table: gives each distinct prefix of one family a row number.

Owns the prefixes and their hash index. Never knows what a row is used for: other tables have columns of their own
that are indexed by the same row numbers. Row 0 is never given out, so 0 means "none" everywhere.

Prefixes often come in the order in which they came before (a table that is chosen from, and told on; a second peer's),
all of them or some (a share of the table). So the row after the one found last is looked at first, which costs nothing,
and where the last two were near each other a few more; only where none of these is the prefix is it hashed and searched
for. A slot of the index holds the row and, in the bits that rows leave free, a part of the hash, so that a search reads
hardly any row but the one it is for.

A prefix is (hi, lo, length): the address left-aligned in 128 bits, as two 64-bit halves. An IPv4 table is *narrow*:
`lo` is always zero and is not stored.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)
FREE = cython.declare(cython.uchar, 255)  # the length of a row that holds no prefix
BLOCK = cython.declare(cython.Py_ssize_t, 32)  # prefixes whose cache misses overlap
NEAR = cython.declare(cython.uint, 64)  # rows between two prefixes that come in order, at most


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def added(a: cython.ulonglong, b: cython.ulonglong) -> cython.ulonglong:
    """Add modulo 2**64."""
    if cython.compiled:
        return a + b
    else:
        return (a + b) & MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def rotated(word: cython.ulonglong, n_bits: cython.int) -> cython.ulonglong:
    """Rotate to the left."""
    if cython.compiled:
        return word << n_bits | word >> (64 - n_bits)
    else:
        return (word << n_bits | word >> (64 - n_bits)) & MASK64


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def hashed(
    hi: cython.ulonglong, lo: cython.ulonglong, length: cython.uchar, is_wide: cython.bint, seed: cython.ulonglong
) -> cython.ulonglong:
    """Hash one prefix: SipHash-1-3 keyed by the seed, so that peers cannot aim at a slot.

    The words are hi, lo and the length; of a narrow prefix, whose lower half of hi is zero, one holds all.
    """
    v0: cython.ulonglong = seed ^ SIP_0
    v1: cython.ulonglong = seed ^ SIP_1
    v2: cython.ulonglong = seed ^ SIP_2
    v3: cython.ulonglong = seed ^ SIP_3
    n_words: cython.int = 3 if is_wide else 1
    word: cython.ulonglong = hi if is_wide else hi | length
    k: cython.int
    for k in range(n_words + 3):
        if k == 1:
            word = lo
        if k == 2:
            word = length
        if k >= n_words:
            word = 0
        if k == n_words:
            v2 ^= 0xFF
        v3 ^= word
        v0 = added(v0, v1)
        v2 = added(v2, v3)
        v1 = rotated(v1, 13) ^ v0
        v3 = rotated(v3, 16) ^ v2
        v0 = rotated(v0, 32)
        v2 = added(v2, v1)
        v0 = added(v0, v3)
        v1 = rotated(v1, 17) ^ v2
        v3 = rotated(v3, 21) ^ v0
        v2 = rotated(v2, 32)
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3


@cython.cclass
class PrefixTable:
    """Prefixes of one family by row number, with an open-addressing index (linear probing, load at most 5/8)."""

    is_wide: cython.bint
    seed: cython.ulonglong
    n_rows: cython.uint  # live rows
    top: cython.uint  # one more than the highest row ever given out
    free_head: cython.uint  # first row of the free list, linked through `hi` (see `tidy`); 0 ends it
    following: cython.uint  # the row after the one found last, where a prefix is looked for first
    reach: cython.uint  # how many rows from there are looked at before a prefix is searched for
    row_mask: cython.uint  # bits of a slot that hold the row
    _hi: cython.ulonglong[::1]
    _lo: cython.ulonglong[::1]
    _length: cython.uchar[::1]
    _slots: cython.uint[::1]  # 0: nothing
    _hashes: cython.ulonglong[::1]  # of the block of prefixes in work
    touched: cython.ulonglong  # see `_touch`; means nothing
    hi_column: object
    lo_column: object
    length_column: object

    def __init__(self, is_wide: bool, seed: int, capacity: int = 1024):
        self.is_wide = is_wide
        self.seed = seed & MASK64
        self.n_rows = 0
        self.top = 1
        self.free_head = 0
        self.following = 1
        self.reach = 1
        self.hi_column = allocate(0, np.uint64)
        self.lo_column = allocate(0, np.uint64)
        self.length_column = allocate(0, np.uint8)
        self._hashes = memoryview(allocate(BLOCK, np.uint64))
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

    def longest_run(self) -> int:
        """Return the most slots of the index in use side by side: how well the hash spreads what came."""
        longest: cython.Py_ssize_t = 0
        run: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(self._slots.shape[0]):
                run = run + 1 if self._slots[i] != 0 else 0
                longest = max(longest, run)
        return longest

    def columns_of(self, rows: cython.const[cython.uint][::1]):
        """Return (hi, lo, length) of the prefixes at `rows`, in one pass; `lo` is empty for a narrow table."""
        n: cython.Py_ssize_t = rows.shape[0]
        hi_of = np.empty(n, np.uint64)
        lo_of = np.empty(n if self.is_wide else 0, np.uint64)
        length_of = np.empty(n, np.uint8)
        hi: cython.ulonglong[::1] = memoryview(hi_of)
        lo: cython.ulonglong[::1] = memoryview(lo_of)
        length: cython.uchar[::1] = memoryview(length_of)
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                hi[i] = self._hi[rows[i]]
                length[i] = self._length[rows[i]]
                if self.is_wide:
                    lo[i] = self._lo[rows[i]]
        return hi_of, lo_of, length_of

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
        self._make_room(n)
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        with cython.nogil:
            while True:
                first = self._follow(hi, lo, length, rows, first)
                if first == n:
                    break
                end = min(first + BLOCK, n)
                self._fetch_ahead(hi, lo, length, first, end)
                for i in range(first, end):
                    rows[i] = self._search(
                        hi[i],
                        lo[i] if self.is_wide else 0,
                        length[i],
                        self._hashes[i - first],
                        not has_ids or ids[i] != 0,
                    )
                self._go_on_after(rows[end - 2] if end - first > 1 else self.following - 1, rows[end - 1])
                first = end
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
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        with cython.nogil:
            while True:
                first = self._follow(hi, lo, length, rows, first)
                if first == n:
                    break
                end = min(first + BLOCK, n)
                self._fetch_ahead(hi, lo, length, first, end)
                for i in range(first, end):
                    rows[i] = self._search(
                        hi[i], lo[i] if self.is_wide else 0, length[i], self._hashes[i - first], False
                    )
                self._go_on_after(rows[end - 2] if end - first > 1 else self.following - 1, rows[end - 1])
                first = end
        return result

    def release(self, rows: cython.const[cython.uint][::1]):
        """Forget the prefixes at `rows`, whose numbers are given out again later; free rows are passed over."""
        n: cython.Py_ssize_t = rows.shape[0]
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        with cython.nogil:
            while first < n:
                end = min(first + BLOCK, n)
                for i in range(first, end):
                    self._hashes[i - first] = self._hash_of(rows[i] if rows[i] < self.top else 0)
                self._touch(end - first)
                for i in range(first, end):
                    self._remove(rows[i], self._hashes[i - first])
                first = end

    def tidy(self):
        """Have free rows given out again in ascending order, make the index as small as it can be, return the columns.

        A link is how far the next free row lies beyond the next row: zero in a run of free rows, so that their pages
        can be given back.
        """
        row: cython.uint
        with cython.nogil:
            self.free_head = 0
            for row in range(self.top - 1, 0, -1):
                if self._length[row] == FREE:
                    self._hi[row] = (cython.cast(cython.ulonglong, self.free_head) - row - 1) & MASK32
                    if self.is_wide:
                        self._lo[row] = 0
                    self.free_head = row
        self._rebuild_slots(max(self.n_rows, 16))
        return self.hi_column, self.lo_column, self.length_column

    # ---- the index --------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_at(self, row: cython.uint, hi: cython.ulonglong, lo: cython.ulonglong, length: cython.uchar) -> cython.bint:
        return self._hi[row] == hi and self._length[row] == length and (not self.is_wide or self._lo[row] == lo)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _go_on_after(self, before: cython.uint, row: cython.uint) -> cython.void:
        """Look for the next prefix after a row that was searched for, as far as that was from the one found before."""
        self.reach = NEAR if before < row <= before + NEAR else 1
        self.following = row + 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _follow(
        self,
        hi: cython.const[cython.ulonglong][::1],
        lo: cython.const[cython.ulonglong][::1],
        length: cython.const[cython.uchar][::1],
        rows: cython.uint[::1],
        first: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Find the rows of prefixes from `first` on for as long as one is in the next few; return where that ends."""
        row: cython.uint = self.following
        end: cython.uint
        i: cython.Py_ssize_t = first
        while i < rows.shape[0]:
            end = min(row + self.reach, self.top)
            while row < end and not self._is_at(row, hi[i], lo[i] if self.is_wide else 0, length[i]):
                row += 1
            if row >= end:
                break
            rows[i] = row
            row += 1
            i += 1
        self.following = row
        return i

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _fetch_ahead(
        self,
        hi: cython.const[cython.ulonglong][::1],
        lo: cython.const[cython.ulonglong][::1],
        length: cython.const[cython.uchar][::1],
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.void:
        """Hash a block of prefixes and touch what their searches will read."""
        i: cython.Py_ssize_t
        for i in range(first, end):
            self._hashes[i - first] = hashed(hi[i], lo[i] if self.is_wide else 0, length[i], self.is_wide, self.seed)
        self._touch(end - first)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _touch(self, n: cython.Py_ssize_t) -> cython.void:
        """Read what the searches for the first `n` of `_hashes` will read, so that the cache misses overlap."""
        mask: cython.ulonglong = self._slots.shape[0] - 1
        touched: cython.ulonglong = 0
        tag: cython.uint
        entry: cython.uint
        i: cython.Py_ssize_t
        for i in range(n):
            tag = cython.cast(cython.uint, self._hashes[i] >> 32)
            entry = self._slots[self._hashes[i] & mask]
            if entry ^ tag <= self.row_mask:
                touched ^= self._hi[entry & self.row_mask] ^ self._length[entry & self.row_mask]
            else:
                touched ^= entry
        self.touched = touched

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _search(
        self,
        hi: cython.ulonglong,
        lo: cython.ulonglong,
        length: cython.uchar,
        hash: cython.ulonglong,
        is_wanted: cython.bint,
    ) -> cython.uint:
        """Return the row of a prefix; one that is not in the table is given a row if it is wanted, else it has 0."""
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = hash & mask
        tag: cython.uint = cython.cast(cython.uint, hash >> 32) & ~self.row_mask
        entry: cython.uint
        row: cython.uint
        while True:
            entry = self._slots[slot]
            if entry == 0:
                break
            row = entry & self.row_mask
            if entry - row == tag and self._is_at(row, hi, lo, length):
                return row
            slot = (slot + 1) & mask
        if not is_wanted:
            return 0
        row = self.free_head
        if row != 0:
            self.free_head = cython.cast(cython.uint, (self._hi[row] + row + 1) & MASK32)
        else:
            row = self.top
            self.top += 1
        self._hi[row] = hi
        if self.is_wide:
            self._lo[row] = lo
        self._length[row] = length
        self._slots[slot] = tag | row
        self.n_rows += 1
        return row

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hash_of(self, row: cython.uint) -> cython.ulonglong:
        lo: cython.ulonglong = self._lo[row] if self.is_wide else 0
        return hashed(self._hi[row], lo, self._length[row], self.is_wide, self.seed)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _remove(self, row: cython.uint, hash: cython.ulonglong) -> cython.void:
        """Take one row out of the index (backward shift: no tombstones) and put it on the free list."""
        if row == 0 or row >= self.top or self._length[row] == FREE:
            return
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = hash & mask
        while self._slots[slot] & self.row_mask != row:
            slot = (slot + 1) & mask
        hole: cython.ulonglong = slot
        home: cython.ulonglong
        while True:
            slot = (slot + 1) & mask
            if self._slots[slot] == 0:
                break
            home = self._hash_of(self._slots[slot] & self.row_mask) & mask
            # The entry may move into the hole unless its home lies cyclically after the hole.
            if ((slot - home) & mask) >= ((slot - hole) & mask):
                self._slots[hole] = self._slots[slot]
                hole = slot
        self._slots[hole] = 0
        self._hi[row] = (cython.cast(cython.ulonglong, self.free_head) - row - 1) & MASK32
        self.free_head = row
        self._length[row] = FREE
        self.n_rows -= 1

    # ---- room -------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _make_room(self, n: cython.Py_ssize_t):
        """Make room for so many prefixes more, as if all were new."""
        capacity: cython.Py_ssize_t = self._length.shape[0]
        if self.top + n >= capacity:
            self._resize_rows(max(self.top + n + 1, capacity * 3 // 2))
        if (self.n_rows + n) * 8 > self._slots.shape[0] * 5:
            self._rebuild_slots(max(self.n_rows + n, self.n_rows * 3 // 2))
        elif self._length.shape[0] > self.row_mask:
            self._rebuild_slots(self._slots.shape[0] * 5 // 8)

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
        """Make a new index with room for `n_prefixes`, whose slots have room for twice the rows there are."""
        size: cython.Py_ssize_t = 64
        while size * 5 < n_prefixes * 8:
            size *= 2
        self.row_mask = 1
        while self.row_mask < 2 * self._length.shape[0]:
            self.row_mask = self.row_mask * 2 + 1
        self._slots = memoryview(allocate(size, np.uint32))
        mask: cython.ulonglong = size - 1
        first: cython.uint = 1
        end: cython.uint
        row: cython.uint
        slot: cython.ulonglong
        with cython.nogil:
            while first < self.top:
                end = min(first + cython.cast(cython.uint, BLOCK), self.top)
                for row in range(first, end):
                    self._hashes[row - first] = self._hash_of(row)
                self._touch(cython.cast(cython.Py_ssize_t, end - first))
                for row in range(first, end):
                    if self._length[row] == FREE:
                        continue
                    slot = self._hashes[row - first] & mask
                    while self._slots[slot] != 0:
                        slot = (slot + 1) & mask
                    self._slots[slot] = cython.cast(cython.uint, self._hashes[row - first] >> 32) & ~self.row_mask | row
                first = end


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
