"""The export table: what the members of one peer group are to hold, one route a prefix row, and what each was told.

Owns columns indexed by prefix row: attribute set, source and flags, and for changes that not every member has passed,
base and first. Set 0 means that there is no route: a row that was told is a tombstone until every member has been told
its end. Never knows a prefix or an octet of a set; what one member has been told is a bitset that the caller keeps, one
bit a prefix row.

The table is an Adj-RIB-Out (RFC 4271 §3.2) kept once for many peers. What each of them holds is not kept, but often
follows: a row's *base* is the set that stood before the oldest change that some member has not passed, *first* the
sequence of that change in the caller's journal (its low 32 bits; 0: all members have passed all changes).

    base          A ──first──▶ B ──────▶ A   now
    member   ▲ here: holds A, is told nothing

A member that has not come to `first` holds the base, so a route that changed and changed back is not told again. While
nobody has been told a change (flag TOLD), the next one takes its place as `first`.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

UNCONFIRMED = cython.declare(cython.uchar, 1)
TOLD = cython.declare(cython.uchar, 2)  # to some member, since `first`
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)


@cython.cclass
class ExportTable:
    """One route a prefix row: `apply` writes it, `select` says what of it a member has to be told."""

    n_live: cython.uint  # rows that have a route
    _set: cython.uint[::1]
    _source: cython.uint[::1]
    _flags: cython.uchar[::1]
    _base: cython.uint[::1]
    _first: cython.uint[::1]
    set_column: object
    source_column: object
    flags_column: object
    base_column: object
    first_column: object

    def __init__(self, capacity: int = 1024):
        self.n_live = 0
        self.set_column = allocate(0, np.uint32)
        self.source_column = allocate(0, np.uint32)
        self.flags_column = allocate(0, np.uint8)
        self.base_column = allocate(0, np.uint32)
        self.first_column = allocate(0, np.uint32)
        self.ensure(max(capacity, 16))

    @property
    def n_routes(self) -> int:
        return self.n_live

    @property
    def sets(self):
        """The attribute set of each prefix row (uint32), 0 where there is no route."""
        return self.set_column

    @property
    def sources(self):
        """The source of each prefix row (uint32)."""
        return self.source_column

    def ensure(self, capacity: cython.Py_ssize_t):
        """Have room for prefix rows below `capacity`."""
        if capacity > len(self.set_column):
            self.set_column = grown(self.set_column, capacity)
            self.source_column = grown(self.source_column, capacity)
            self.flags_column = grown(self.flags_column, capacity)
            self.base_column = grown(self.base_column, capacity)
            self.first_column = grown(self.first_column, capacity)
        self._set = memoryview(self.set_column)
        self._source = memoryview(self.source_column)
        self._flags = memoryview(self.flags_column)
        self._base = memoryview(self.base_column)
        self._first = memoryview(self.first_column)

    def apply(
        self,
        rows: cython.uint[::1],
        sets: cython.uint[::1],
        sources: cython.uint[::1],
        references: cython.uint[::1],
        last: cython.const[cython.uint][::1],
        head: cython.ulonglong,
        passed: cython.ulonglong,
    ):
        """Write the route of each row (set 0: none) and return the rows that changed (uint32).

        `references` counts the uses of each set and is kept in step. Writing confirms a row. The rows returned are to
        be appended to the journal whose next sequence is `head` and whose latest entries by row are `last`; every
        member has passed its entries below `passed`.
        """
        n: cython.Py_ssize_t = rows.shape[0]
        result = np.empty(n, np.uint32)
        changed: cython.uint[::1] = memoryview(result)
        n_changed: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        old: cython.uint
        new: cython.uint
        with cython.nogil:
            for i in range(n):
                row = rows[i]
                new = sets[i]
                old = self._set[row]
                self._flags[row] &= ~UNCONFIRMED & 0xFF
                if old == new and (new == 0 or self._source[row] == sources[i]):
                    continue
                self._note(row, head + n_changed, references, last, head, passed)
                if old != 0:
                    references[old] -= 1
                    self.n_live -= 1
                if new != 0:
                    references[new] += 1
                    self.n_live += 1
                    self._source[row] = sources[i]
                self._set[row] = new
                changed[n_changed] = row
                n_changed += 1
        return result[:n_changed]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note(
        self,
        row: cython.uint,
        sequence: cython.ulonglong,
        references: cython.uint[::1],
        last: cython.const[cython.uint][::1],
        head: cython.ulonglong,
        passed: cython.ulonglong,
    ) -> cython.void:
        """Keep base and first of a row that is about to change, at `sequence` of the journal."""
        if self._first[row] != 0:
            # Also of this very call, whose entries are not written yet.
            is_new: cython.bint = (self._first[row] - head) & MASK32 < sequence - head
            if is_new or (last[row] != 0 and (head - last[row]) & MASK32 <= head - passed):
                if self._flags[row] & TOLD == 0:
                    self._set_first(row, sequence)
                return
        if self._base[row] != 0:
            references[self._base[row]] -= 1
        self._base[row] = self._set[row]
        self._set_first(row, sequence)
        self._flags[row] &= ~TOLD & 0xFF
        if self._base[row] != 0:
            references[self._base[row]] += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _set_first(self, row: cython.uint, sequence: cython.ulonglong) -> cython.void:
        # The journal leaves out the sequence whose low bits are 0.
        low: cython.uint = cython.cast(cython.uint, sequence & MASK32)
        self._first[row] = low if low != 0 else 1

    def settle(self, rows: cython.uint[::1], references: cython.uint[::1]):
        """Forget base and first of rows whose every change all members have passed."""
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(rows.shape[0]):
                self._forget(rows[i], references)

    def settle_all(self, references: cython.uint[::1]):
        """Forget base and first of every row."""
        row: cython.uint
        with cython.nogil:
            for row in range(self._first.shape[0]):
                self._forget(row, references)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _forget(self, row: cython.uint, references: cython.uint[::1]) -> cython.void:
        if self._base[row] != 0:
            references[self._base[row]] -= 1
        self._base[row] = 0
        self._first[row] = 0

    def mark_unconfirmed(self):
        """Mark every route: what is not written again until `sweep_unconfirmed` is gone then."""
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(self._set.shape[0]):
                if self._set[i] != 0:
                    self._flags[i] |= UNCONFIRMED

    def sweep_unconfirmed(
        self,
        references: cython.uint[::1],
        last: cython.const[cython.uint][::1],
        head: cython.ulonglong,
        passed: cython.ulonglong,
    ):
        """Take away the routes still marked and return their rows (uint32); the arguments are those of `apply`."""
        n: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(self._set.shape[0]):
                if self._flags[i] & UNCONFIRMED:
                    n += 1
        result = np.empty(n, np.uint32)
        gone: cython.uint[::1] = memoryview(result)
        n = 0
        with cython.nogil:
            for i in range(self._set.shape[0]):
                if self._flags[i] & UNCONFIRMED:
                    self._flags[i] &= ~UNCONFIRMED & 0xFF
                    self._note(cython.cast(cython.uint, i), head + n, references, last, head, passed)
                    references[self._set[i]] -= 1
                    self._set[i] = 0
                    self.n_live -= 1
                    gone[n] = cython.cast(cython.uint, i)
                    n += 1
        return result

    def select(
        self,
        rows: cython.uint[::1],
        told: cython.uchar[::1],
        own: cython.uint,
        head: cython.ulonglong = 0,
        position: cython.ulonglong = 0,
    ):
        """Return what a member has to be told of `rows`: (rows to announce, rows to withdraw), both uint32.

        `told` is the member's bitset and is brought up to date; `own` is the source that stands for the member itself,
        whose routes it is not told. Nothing is withdrawn that was not announced, and nothing is announced that the
        member, at `position` of the journal that ends at `head`, holds as it is. With position 0 nothing is known of
        what it holds, and all there is is announced.
        """
        n: cython.Py_ssize_t = rows.shape[0]
        announced = np.empty(n, np.uint32)
        withdrawn = np.empty(n, np.uint32)
        announce: cython.uint[::1] = memoryview(announced)
        withdraw: cython.uint[::1] = memoryview(withdrawn)
        n_announce: cython.Py_ssize_t = 0
        n_withdraw: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        bit: cython.uchar
        with cython.nogil:
            for i in range(n):
                row = rows[i]
                bit = cython.cast(cython.uchar, 1 << (row & 7))
                if self._set[row] != 0 and self._source[row] != own:
                    if (
                        position != 0
                        and told[row >> 3] & bit
                        and self._base[row] == self._set[row]
                        and self._first[row] != 0
                        and (head - self._first[row]) & MASK32 <= head - position
                    ):
                        continue
                    self._flags[row] |= TOLD
                    told[row >> 3] |= bit
                    announce[n_announce] = row
                    n_announce += 1
                elif told[row >> 3] & bit:
                    self._flags[row] |= TOLD
                    told[row >> 3] &= ~bit & 0xFF
                    withdraw[n_withdraw] = row
                    n_withdraw += 1
        return announced[:n_announce], withdrawn[:n_withdraw]

    def ordered(self, n_sets: cython.Py_ssize_t):
        """Return every row that has a route, equal sets side by side (uint32); all sets are below `n_sets`."""
        place: cython.uint[::1] = memoryview(allocate(n_sets + 1, np.uint32))
        result = np.empty(self.n_live, np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        i: cython.Py_ssize_t
        row_set: cython.uint
        with cython.nogil:
            for i in range(self._set.shape[0]):
                if self._set[i] != 0:
                    place[self._set[i] + 1] += 1
            for i in range(1, place.shape[0]):
                place[i] += place[i - 1]
            for i in range(self._set.shape[0]):
                row_set = self._set[i]
                if row_set != 0:
                    rows[place[row_set]] = cython.cast(cython.uint, i)
                    place[row_set] += 1
        return result


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
