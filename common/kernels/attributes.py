"""The attribute table: gives each distinct attribute set of one family an id.

Owns the octets of the sets, one after the other in an arena, their hash index, and the count of references to each.
Never looks inside a set, and never decides when to forget: its owner calls `sweep` when nothing it has interned is on
its way to a table. Id 0 is never given out, so 0 means "none" (withdrawn) everywhere.

A set is octets: the length of the next hop, the next hop, the path attributes in canonical form. On the bus and from
the scanner sets come as `offsets` (uint32, one more than there are sets) into `octets`; rows refer to them by index,
NONE where there is no set.

Columns indexed by id (`references`, and those that owners keep beside it) have room for `capacity` ids. A column is
replaced when the table grows: ask for it again after each `intern`.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

if cython.compiled:
    from cython.cimports.libc.string import memcmp, memcpy

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
NONE = cython.declare(cython.uint, 0xFFFFFFFF)
SIP_0 = cython.declare(cython.ulonglong, 0x736F6D6570736575)
SIP_1 = cython.declare(cython.ulonglong, 0x646F72616E646F6D)
SIP_2 = cython.declare(cython.ulonglong, 0x6C7967656E657261)
SIP_3 = cython.declare(cython.ulonglong, 0x7465646279746573)
ONE = cython.declare(cython.longlong, 1)
UNIT = cython.declare(cython.Py_ssize_t, 4)  # sets start at multiples of this, so 32 bits reach 16 GiB
BLOCK = cython.declare(cython.Py_ssize_t, 32)  # sets whose index slots are fetched ahead together

TYPICAL_OCTETS = 56  # of a set, to size the arena beforehand; there is room for twice as many
SWEEP_OCTETS = cython.declare(cython.Py_ssize_t, 16777216)  # of new sets, which may be large ones, make a sweep due


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
def load(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.ulonglong:
    """Return eight octets as one little-endian number."""
    word: cython.ulonglong = 0
    if cython.compiled:
        memcpy(cython.address(word), cython.address(octets[at]), 8)
    else:
        word = int.from_bytes(octets[at : at + 8], "little")
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def load_rest(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.ulonglong:
    """Return the last `n` % 8 octets as one little-endian number, with the low octet of `n` on top."""
    word: cython.ulonglong = cython.cast(cython.ulonglong, n & 0xFF) << 56
    i: cython.Py_ssize_t
    for i in range(n & 7):
        word |= cython.cast(cython.ulonglong, octets[at + i]) << (8 * i)
    return word


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_equal(
    a: cython.const[cython.uchar][::1],
    at_a: cython.Py_ssize_t,
    b: cython.const[cython.uchar][::1],
    at_b: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.bint:
    if cython.compiled:
        return n == 0 or memcmp(cython.address(a[at_a]), cython.address(b[at_b]), n) == 0
    else:
        return a[at_a : at_a + n] == b[at_b : at_b + n]


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


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def hashed(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, n: cython.Py_ssize_t, seed: cython.ulonglong
) -> cython.uint:
    """Hash a set: SipHash-1-3 keyed by the seed, so that peers cannot aim at a slot, folded to 32 bits.

    A multiply-and-fold hash is faster but has collisions that hold for every seed: differences in a word's top bit
    survive the multiplication unchanged, and the next word can cancel them.
    """
    v0: cython.ulonglong = seed ^ SIP_0
    v1: cython.ulonglong = seed ^ SIP_1
    v2: cython.ulonglong = seed ^ SIP_2
    v3: cython.ulonglong = seed ^ SIP_3
    n_words: cython.Py_ssize_t = n // 8
    word: cython.ulonglong
    k: cython.Py_ssize_t
    for k in range(n_words + 4):
        word = 0
        if k < n_words:
            word = load(octets, at + 8 * k)
        elif k == n_words:
            word = load_rest(octets, at + 8 * k, n)
        elif k == n_words + 1:
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
    v0 ^= v1 ^ v2 ^ v3
    return cython.cast(cython.uint, (v0 ^ v0 >> 32) & MASK32)


@cython.cclass
class AttributeTable:
    """Attribute sets by id, with an open-addressing index (linear probing, load at most 5/8).

    A slot holds the 32-bit hash of a set above its id, so that a search reads the octets of the set it wants and
    hardly ever those of another, and the index can be built again without reading any.
    """

    seed: cython.ulonglong
    n_live: cython.uint  # sets in the table
    top: cython.uint  # one more than the highest id ever given out
    free_head: cython.uint  # first id of the free list, linked through `_start` (see `tidy`); 0 ends it
    n_new: cython.ulonglong  # sets that have come since the last sweep,
    n_octets_new: cython.Py_ssize_t  # and what they take of the arena
    n_used: cython.Py_ssize_t  # octets of the arena in use, garbage and padding included
    touched: cython.ulonglong  # see `_fetch_ahead`; means nothing
    n_octets_live: cython.Py_ssize_t  # octets of the arena that belong to sets in the table, padding included
    _start: cython.uint[::1]  # where a set begins in the arena, in units of UNIT octets
    _size: cython.uint[::1]  # octets of a set; NONE for an id that is free
    _references: cython.uint[::1]
    _local: cython.uint[::1]  # zeros between calls; used by `extract`
    _slots: cython.ulonglong[::1]
    _tags: cython.uint[::1]  # hashes of the block of sets in work
    _arena: cython.uchar[::1]
    start_column: object
    size_column: object
    references_column: object
    local_column: object
    arena_column: object
    new_ids_column: object

    def __init__(self, seed: int, capacity: int = 1024):
        self.seed = seed & MASK64
        self.n_live = 0
        self.top = 1
        self.free_head = 0
        self.n_new = 0
        self.n_octets_new = 0
        self.n_used = 0
        self.n_octets_live = 0
        self.start_column = allocate(0, np.uint32)
        self.size_column = allocate(0, np.uint32)
        self.references_column = allocate(0, np.uint32)
        self.local_column = allocate(0, np.uint32)
        n_octets: cython.Py_ssize_t = max(capacity, 16) * TYPICAL_OCTETS
        self.arena_column = allocate(2 * n_octets, np.uint8, n_octets)
        self._arena = memoryview(self.arena_column)
        self.new_ids_column = allocate(0, np.uint32)
        self._tags = memoryview(allocate(BLOCK, np.uint32))
        self._resize_ids(max(capacity, 16))
        self._slots = memoryview(allocate(64, np.uint64))
        self._rebuild_slots(max(capacity, 16))

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Ids that columns indexed by set id must have room for."""
        return len(self.references_column)

    @property
    def n_sets(self) -> int:
        return self.n_live

    @property
    def n_octets(self) -> int:
        """Octets of the sets in the table, without garbage; each is rounded up to a multiple of four."""
        return self.n_octets_live

    @property
    def arena_size(self) -> int:
        """Octets the arena has room for; what has never been used of them takes no memory."""
        return len(self.arena_column)

    @property
    def id_limit(self) -> int:
        """One more than the highest id ever given out."""
        return self.top

    @property
    def references(self):
        """Rows that refer to each set (uint32 by id), counted by the tables of rows; `sweep` frees sets at zero."""
        return self.references_column

    @property
    def sizes(self):
        """Octets of each set (uint32 by id), of id 0 none; of an id that nobody has, nothing that means anything."""
        return self.size_column

    @property
    def new_ids(self):
        """Ids (uint32) that the last `intern` or `intern_rows` gave out, in order: sets that were not in the table."""
        return self.new_ids_column

    @property
    def needs_sweep(self) -> bool:
        """Whether enough sets have come since the last sweep to make another worth its time."""
        if self.n_new > self.n_live // 4 + 4096:
            return True
        return self.n_octets_new > self.n_octets_live // 4 + SWEEP_OCTETS

    def octets_of(self, id: cython.uint) -> bytes:
        """Return the octets of one set; IndexError if there is no such id."""
        if id == 0 or id >= self.top or self._size[id] == NONE:
            raise IndexError(f"no attribute set has the id {id}")
        at: cython.Py_ssize_t = self._start[id] * UNIT
        return self.arena_column[at : at + self._size[id]].tobytes()

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

    # ---- batches ----------------------------------------------------------------------------------------------

    def intern(self, offsets: cython.const[cython.uint][::1], octets: cython.const[cython.uchar][::1]):
        """Return the id of each set (uint32), giving new ids to sets not seen before.

        Set i is octets[offsets[i]:offsets[i + 1]]. A new set has no references and lives until the next `sweep`.
        """
        n: cython.Py_ssize_t = offsets.shape[0] - 1
        i: cython.Py_ssize_t
        is_ordered: cython.bint = n >= 0
        for i in range(n):
            if offsets[i] > offsets[i + 1]:
                is_ordered = False
        if not is_ordered or offsets[n] > octets.shape[0]:
            raise ValueError("set offsets must rise and end within the octets")
        result = np.empty(n, np.uint32)
        fresh = np.empty(n, np.uint32)
        ids: cython.uint[::1] = memoryview(result)
        new_ids: cython.uint[::1] = memoryview(fresh)
        self._make_room(n, offsets[n] - offsets[0])
        n_used_before: cython.Py_ssize_t = self.n_used
        n_new: cython.Py_ssize_t = 0
        n_before: cython.uint
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        with cython.nogil:
            while first < n:
                last = min(first + BLOCK, n)
                for i in range(first, last):
                    self._tags[i - first] = hashed(octets, offsets[i], offsets[i + 1] - offsets[i], self.seed)
                self._fetch_ahead(last - first)
                for i in range(first, last):
                    n_before = self.n_live
                    ids[i] = self._find_or_insert(octets, offsets[i], offsets[i + 1], self._tags[i - first])
                    new_ids[n_new] = ids[i]
                    n_new += self.n_live - n_before
                first = last
        self.n_new += n_new
        self.n_octets_new += self.n_used - n_used_before
        self.new_ids_column = fresh[:n_new]
        return result

    def intern_rows(
        self,
        offsets: cython.const[cython.uint][::1],
        octets: cython.const[cython.uchar][::1],
        sets: cython.const[cython.uint][::1],
    ):
        """Intern the sets of a batch and return the id for each of its rows (uint32): 0 where `sets` is NONE."""
        set_ids = self.intern(offsets, octets)
        ids: cython.uint[::1] = memoryview(set_ids)
        result = np.empty(sets.shape[0], np.uint32)
        row_ids: cython.uint[::1] = memoryview(result)
        is_within: cython.bint = True
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(sets.shape[0]):
                if sets[i] == NONE:
                    row_ids[i] = 0
                elif sets[i] < ids.shape[0]:
                    row_ids[i] = ids[sets[i]]
                else:
                    is_within = False
        if not is_within:
            raise IndexError("a row refers to a set that is not in its batch")
        return result

    def extract(self, ids: cython.const[cython.uint][::1]):
        """Return (local, set_offset, set_octets): the distinct sets of a column of ids, in order of first use.

        `local` (uint32) is the index of each row's set among them, NONE where the id is 0. IndexError if an id is
        not in the table.
        """
        n: cython.Py_ssize_t = ids.shape[0]
        result = np.empty(n, np.uint32)
        local: cython.uint[::1] = memoryview(result)
        distinct: cython.uint[::1] = memoryview(np.empty(n, np.uint32))
        n_sets: cython.Py_ssize_t = 0
        n_octets: cython.Py_ssize_t = 0
        n_unknown: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        id: cython.uint
        with cython.nogil:
            for i in range(n):
                id = ids[i]
                if id == 0:
                    local[i] = NONE
                    continue
                if id >= self.top or self._size[id] == NONE:
                    n_unknown += 1
                    continue
                if self._local[id] == 0:
                    distinct[n_sets] = id
                    n_sets += 1
                    self._local[id] = cython.cast(cython.uint, n_sets)
                    n_octets += self._size[id]
                local[i] = self._local[id] - 1
            for i in range(n_sets):
                self._local[distinct[i]] = 0
        if n_unknown > 0:
            raise IndexError(f"{n_unknown} rows refer to attribute sets that are not in the table")
        if n_octets >= NONE:
            raise OverflowError("the sets of one batch must be shorter than 4 GiB together")
        set_offset = np.empty(n_sets + 1, np.uint32)
        set_octets = np.empty(n_octets, np.uint8)
        self._copy_out(distinct, n_sets, memoryview(set_offset), memoryview(set_octets))
        return result, set_offset, set_octets

    def sweep(self) -> int:
        """Forget the sets that nothing refers to, and return how many; their ids are given out again later.

        Never to be called between `intern` and the counting of what it returned.
        """
        n_before: cython.uint = self.n_live
        id: cython.uint
        with cython.nogil:
            for id in range(1, self.top):
                if self._references[id] == 0 and self._size[id] != NONE:
                    self.n_octets_live -= padded(self._size[id])
                    self._size[id] = NONE
                    self._start[id] = cython.cast(cython.uint, (self.free_head - id - ONE) & MASK32)
                    self.free_head = id
                    self.n_live -= 1
        self.n_new = 0
        self.n_octets_new = 0
        if self.n_live != n_before:
            self._rebuild_slots(self.n_live)
            if self.n_octets_live * 2 < self.n_used:
                self._compact()
        return n_before - self.n_live

    def tidy(self):
        """Have free ids given out again in ascending order, and return the columns (the arena is compact by `sweep`).

        A link is how far the next free id lies beyond the next id: zero in a run of free ids, so that their pages
        can be given back.
        """
        id: cython.uint
        with cython.nogil:
            self.free_head = 0
            for id in range(self.top - 1, 0, -1):
                if self._size[id] == NONE:
                    self._start[id] = cython.cast(cython.uint, (self.free_head - id - ONE) & MASK32)
                    self.free_head = id
        return self.start_column, self.size_column, self.references_column, self.local_column

    # ---- the index --------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fetch_ahead(self, n: cython.Py_ssize_t) -> cython.void:
        """Touch what the searches for the first `n` hashes will read, so that the cache misses overlap."""
        mask: cython.Py_ssize_t = self._slots.shape[0] - 1
        touched: cython.ulonglong = 0
        i: cython.Py_ssize_t
        for i in range(n):
            touched |= self._slots[self._tags[i] & mask]
        self.touched = touched

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_or_insert(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        tag: cython.uint,
    ) -> cython.uint:
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = tag & mask
        entry: cython.ulonglong
        id: cython.uint
        while True:
            entry = self._slots[slot]
            if entry == 0:
                break
            if entry >> 32 == tag:
                id = cython.cast(cython.uint, entry & MASK32)
                if self._size[id] == end - at and is_equal(self._arena, self._start[id] * UNIT, octets, at, end - at):
                    return id
            slot = (slot + 1) & mask
        if self.free_head != 0:
            id = self.free_head
            self.free_head = cython.cast(cython.uint, (self._start[id] + id + ONE) & MASK32)
        else:
            id = self.top
            self.top += 1
        copy(self._arena, self.n_used, octets, at, end - at)
        self._start[id] = cython.cast(cython.uint, self.n_used // UNIT)
        self._size[id] = cython.cast(cython.uint, end - at)
        self._references[id] = 0
        self._slots[slot] = cython.cast(cython.ulonglong, tag) << 32 | id
        self.n_used += padded(end - at)
        self.n_octets_live += padded(end - at)
        self.n_live += 1
        return id

    @cython.cfunc
    def _make_room(self, n_sets: cython.Py_ssize_t, n_octets: cython.Py_ssize_t):
        """Make room for so many sets and octets more, as if all were new."""
        capacity: cython.Py_ssize_t = self._references.shape[0]
        if self.top + n_sets > capacity:
            self._resize_ids(max(self.top + n_sets, capacity * 3 // 2))
        n_octets += n_sets * (UNIT - 1)
        capacity = self._arena.shape[0]
        if self.n_used + n_octets > capacity:
            self._resize_arena(max(self.n_used + n_octets, capacity * 3 // 2))
        if (self.n_live + n_sets) * 8 > self._slots.shape[0] * 5:
            self._rebuild_slots(max(self.n_live + n_sets, self.n_live * 3 // 2))

    @cython.cfunc
    def _rebuild_slots(self, n_sets: cython.Py_ssize_t):
        """Make a new index, with room for `n_sets`, from the slots of the old one whose sets are still there."""
        size: cython.Py_ssize_t = 64
        while size * 5 < n_sets * 8:
            size *= 2
        old: cython.ulonglong[::1] = self._slots
        self._slots = memoryview(allocate(size, np.uint64))
        mask: cython.ulonglong = size - 1
        i: cython.Py_ssize_t
        slot: cython.ulonglong
        with cython.nogil:
            for i in range(old.shape[0]):
                if old[i] == 0 or self._size[old[i] & MASK32] == NONE:
                    continue
                slot = (old[i] >> 32) & mask
                while self._slots[slot] != 0:
                    slot = (slot + 1) & mask
                self._slots[slot] = old[i]

    # ---- the arena --------------------------------------------------------------------------------------------

    @cython.cfunc
    def _copy_out(
        self,
        ids: cython.uint[::1],
        n: cython.Py_ssize_t,
        offset: cython.uint[::1],
        octets: cython.uchar[::1],
    ):
        at: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                offset[i] = cython.cast(cython.uint, at)
                copy(octets, at, self._arena, self._start[ids[i]] * UNIT, self._size[ids[i]])
                at += self._size[ids[i]]
            offset[n] = cython.cast(cython.uint, at)

    @cython.cfunc
    def _compact(self):
        """Move the sets into a new arena, in order of id, without the garbage between them."""
        old: cython.uchar[::1] = self._arena
        self.arena_column = allocate(max(self.n_octets_live * 3 // 2, 1536), np.uint8)
        self._arena = memoryview(self.arena_column)
        at: cython.Py_ssize_t = 0
        id: cython.uint
        with cython.nogil:
            for id in range(1, self.top):
                if self._size[id] != NONE:
                    copy(self._arena, at, old, self._start[id] * UNIT, self._size[id])
                    self._start[id] = cython.cast(cython.uint, at // UNIT)
                    at += padded(self._size[id])
        self.n_used = at

    @cython.cfunc
    def _resize_arena(self, n_octets: cython.Py_ssize_t):
        if n_octets > UNIT << 32:
            raise OverflowError("the attribute sets of one table must be shorter than 16 GiB together")
        self.arena_column = grown(self.arena_column, n_octets)
        self._arena = memoryview(self.arena_column)

    @cython.cfunc
    def _resize_ids(self, capacity: cython.Py_ssize_t):
        self.start_column = grown(self.start_column, capacity)
        self._start = memoryview(self.start_column)
        self.size_column = grown(self.size_column, capacity)
        self._size = memoryview(self.size_column)
        self.references_column = grown(self.references_column, capacity)
        self._references = memoryview(self.references_column)
        self.local_column = grown(self.local_column, capacity)
        self._local = memoryview(self.local_column)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def padded(n_octets: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return what a set takes in the arena, so that the next one begins at a multiple of UNIT."""
    return (n_octets + UNIT - 1) // UNIT * UNIT


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
