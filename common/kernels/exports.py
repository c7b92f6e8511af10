"""The export table: what the members of one peer group are to hold, one route a prefix row, and what each was told.

Owns columns indexed by prefix row: attribute set, source and flags, and former sets that some member still holds. Set 0
means that there is no route: a row that was told is a tombstone until every member has been told its end. Never knows a
prefix or an octet of a set; which rows a member has been told is a bitset that the caller keeps, one bit a prefix row.

The table is an Adj-RIB-Out (RFC 4271 §3.2) kept once for many peers. A member that was told a row and has looked at it
since it changed last holds it as it is. For the others there is a chain of *former* sets at the row, each with the
members that hold it, one bit a member:

    row ──▶ now C
     └────▶ former B: members 2, 5 ──▶ former A: member 7       member 7 is told C; nothing, if now were A again

A member is taken out of the chain when it looks at the row, and a former set that nobody holds any more is forgotten.
So a chain is no longer than there are members, and there is none at all where all are in step.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

UNCONFIRMED = cython.declare(cython.uchar, 1)
ONE = cython.declare(cython.ulonglong, 1)
MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


@cython.cclass
class ExportTable:
    """One route a prefix row: `apply` writes it, `select` says what of it a member has to be told."""

    n_live: cython.uint  # rows that have a route
    n_marked: cython.uint  # of these, rows that are unconfirmed
    _set: cython.uint[::1]
    _source: cython.uint[::1]
    _flags: cython.uchar[::1]
    _chain: cython.uint[::1]  # by row: its first former set, 0: none
    set_column: object
    source_column: object
    flags_column: object
    chain_column: object
    # Former sets, numbered from 1; those that are free are chained too.
    _former_set: cython.uint[::1]
    _former_row: cython.uint[::1]
    _former_next: cython.uint[::1]
    _holders: cython.ulonglong[::1]  # n_words each
    _members: cython.ulonglong[::1]  # all there are
    n_words: cython.Py_ssize_t
    n_former: cython.uint  # in use
    _free: cython.uint
    former_columns: object

    def __init__(self, capacity: int = 1024):
        self.n_live = 0
        self.n_marked = 0
        self.set_column = allocate(0, np.uint32)
        self.source_column = allocate(0, np.uint32)
        self.flags_column = allocate(0, np.uint8)
        self.chain_column = allocate(0, np.uint32)
        self.ensure(max(capacity, 16))
        self.n_words = 1
        self.n_former = 0
        self._free = 0
        self._members = memoryview(np.zeros(1, np.uint64))
        self.former_columns = [np.zeros(1, np.uint32) for _ in range(3)] + [np.zeros(1, np.uint64)]
        self._view_former()
        self._make_room(15)

    @property
    def n_routes(self) -> int:
        return self.n_live

    @property
    def n_unconfirmed(self) -> int:
        """Routes that were there when a snapshot began, and have not been told in it."""
        return self.n_marked

    @property
    def sets(self):
        """The attribute set of each prefix row (uint32), 0 where there is no route."""
        return self.set_column

    @property
    def sources(self):
        """The source of each prefix row (uint32)."""
        return self.source_column

    @property
    def columns(self):
        """All columns by prefix row."""
        return self.set_column, self.source_column, self.flags_column, self.chain_column

    @property
    def n_kept(self) -> int:
        """How many former sets are kept, of all rows."""
        return self.n_former

    def ensure(self, capacity: cython.Py_ssize_t):
        """Have room for prefix rows below `capacity`."""
        if capacity > len(self.set_column):
            self.set_column = grown(self.set_column, capacity)
            self.source_column = grown(self.source_column, capacity)
            self.flags_column = grown(self.flags_column, capacity)
            self.chain_column = grown(self.chain_column, capacity)
            self._set = memoryview(self.set_column)
            self._source = memoryview(self.source_column)
            self._flags = memoryview(self.flags_column)
            self._chain = memoryview(self.chain_column)

    # ---- members ----------------------------------------------------------------------------------------------

    def join(self) -> int:
        """Return the number of a new member, which holds nothing yet: the lowest that is free."""
        member: cython.Py_ssize_t = 0
        while member < 64 * self.n_words and (self._members[member >> 6] >> (member & 63)) & 1:
            member += 1
        if member == 64 * self.n_words:
            self._add_word()
        self._members[member >> 6] |= ONE << (member & 63)
        return member

    def leave(self, member: cython.Py_ssize_t, references: cython.uint[::1]):
        """Forget a member and what it holds."""
        at: cython.Py_ssize_t = member >> 6
        bit: cython.ulonglong = ONE << (member & 63)
        entry: cython.Py_ssize_t
        with cython.nogil:
            self._members[at] &= ~bit & MASK64
            for entry in range(1, self._former_set.shape[0]):
                if self._holders[entry * self.n_words + at] & bit:
                    self._release(self._former_row[entry], member, references)

    def holds_as_now(self, rows: cython.uint[::1], member: cython.Py_ssize_t):
        """Tell of each row that a member was told whether it holds it as it is now (bool)."""
        n: cython.Py_ssize_t = rows.shape[0]
        result = np.empty(n, np.uint8)
        holds: cython.uchar[::1] = memoryview(result)
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                holds[i] = self._find(rows[i], member) == 0
        return result.view(bool)

    def changed_and_gone(self):
        """Return the rows that have no route, and had one that some member may hold (uint32)."""
        return np.flatnonzero((self.set_column == 0) & (self.chain_column != 0)).astype(np.uint32)

    # ---- routes -----------------------------------------------------------------------------------------------

    def apply(
        self,
        rows: cython.uint[::1],
        sets: cython.uint[::1],
        sources: cython.uint[::1],
        references: cython.uint[::1],
    ):
        """Write the route of each row (set 0: none) and return the rows that changed (uint32).

        `references` counts the uses of each set and is kept in step. Writing confirms a row.
        """
        n: cython.Py_ssize_t = rows.shape[0]
        result = np.empty(n, np.uint32)
        changed: cython.uint[::1] = memoryview(result)
        n_changed: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        old: cython.uint
        new: cython.uint
        self._make_room(n)
        with cython.nogil:
            for i in range(n):
                row = rows[i]
                new = sets[i]
                old = self._set[row]
                if self._flags[row] & UNCONFIRMED:
                    self._flags[row] &= ~UNCONFIRMED & 0xFF
                    self.n_marked -= 1
                if old == new and (new == 0 or self._source[row] == sources[i]):
                    continue
                if old != 0:
                    self._keep(row, references)
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

    def mark_unconfirmed(self, is_among: cython.const[cython.uchar][::1] = None):
        """Mark every route: what is not written again until `sweep_unconfirmed` is gone then.

        `is_among` tells of each row whether it is meant, where not all are.
        """
        has_limits: cython.bint = is_among is not None
        end: cython.Py_ssize_t = self._set.shape[0]
        if has_limits:
            end = min(end, is_among.shape[0])
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(end):
                if self._set[i] != 0 and (not has_limits or is_among[i]) and not self._flags[i] & UNCONFIRMED:
                    self._flags[i] |= UNCONFIRMED
                    self.n_marked += 1

    def sweep_unconfirmed(self, references: cython.uint[::1], is_among: cython.const[cython.uchar][::1] = None):
        """Take away the routes still marked, of the rows that are meant (see `mark_unconfirmed`); return their rows."""
        has_limits: cython.bint = is_among is not None
        end: cython.Py_ssize_t = self._set.shape[0]
        if has_limits:
            end = min(end, is_among.shape[0])
        n: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(end):
                if self._flags[i] & UNCONFIRMED and (not has_limits or is_among[i]):
                    n += 1
        self._make_room(n)
        self.n_marked -= cython.cast(cython.uint, n)
        result = np.empty(n, np.uint32)
        gone: cython.uint[::1] = memoryview(result)
        n = 0
        with cython.nogil:
            for i in range(end):
                if self._flags[i] & UNCONFIRMED and (not has_limits or is_among[i]):
                    self._flags[i] &= ~UNCONFIRMED & 0xFF
                    self._keep(cython.cast(cython.uint, i), references)
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
        member: cython.Py_ssize_t,
        references: cython.uint[::1],
        is_forced: cython.bint = False,
    ):
        """Return what a member has to be told of `rows`: (rows to announce, rows to withdraw), both uint32.

        `told` is the member's bitset and is brought up to date; `own` is the source that stands for the member itself,
        whose routes it is not told. Nothing is withdrawn that was not announced, and nothing is announced that the
        member holds as it is, unless that `is_forced`.
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
        held: cython.uint
        bit: cython.uchar
        with cython.nogil:
            for i in range(n):
                row = rows[i]
                held = self._set[row]
                if self._chain[row] != 0:
                    held = self._release(row, member, references)
                bit = cython.cast(cython.uchar, 1 << (row & 7))
                if self._set[row] != 0 and self._source[row] != own:
                    if held == self._set[row] and told[row >> 3] & bit and not is_forced:
                        continue
                    told[row >> 3] |= bit
                    announce[n_announce] = row
                    n_announce += 1
                elif told[row >> 3] & bit:
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

    def grouped(self, rows: cython.const[cython.uint][::1], n_sets: cython.Py_ssize_t):
        """Return some rows, each once, in another order (uint32): equal sets, or none, side by side as they came first.

        All sets are below `n_sets`.
        """
        n: cython.Py_ssize_t = rows.shape[0]
        result = np.empty(n, np.uint32)
        grouped: cython.uint[::1] = memoryview(result)
        number: cython.uint[::1] = memoryview(np.zeros(n_sets, np.uint32))  # of each set's group, from 1
        group: cython.uint[::1] = memoryview(np.empty(n, np.uint32))
        place: cython.uint[::1] = memoryview(np.zeros(n + 2, np.uint32))  # where the next row of each group goes
        n_groups: cython.uint = 0
        row_set: cython.uint
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                row_set = self._set[rows[i]]
                if number[row_set] == 0:
                    n_groups += 1
                    number[row_set] = n_groups
                group[i] = number[row_set]
                place[group[i] + 1] += 1
            for i in range(1, n_groups + 1):
                place[i] += place[i - 1]
            for i in range(n):
                grouped[place[group[i]]] = rows[i]
                place[group[i]] += 1
        return result

    # ---- former sets ------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(self, row: cython.uint, references: cython.uint[::1]) -> cython.void:
        """Note who holds the set of a row that is about to change: who is in no chain of it."""
        n_words: cython.Py_ssize_t = self.n_words
        k: cython.Py_ssize_t
        holders: cython.ulonglong
        entry: cython.uint
        same: cython.uint = 0
        made: cython.uint = 0
        for k in range(n_words):
            holders = self._members[k]
            entry = self._chain[row]
            while entry != 0 and entry != made:
                holders &= ~self._holders[entry * n_words + k] & MASK64
                if self._former_set[entry] == self._set[row]:
                    same = entry
                entry = self._former_next[entry]
            if holders == 0:
                continue
            if same == 0:
                made = same = self._take(row, references)
            self._holders[same * n_words + k] |= holders

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take(self, row: cython.uint, references: cython.uint[::1]) -> cython.uint:
        """Put the present set of a row at the end of its chain; nobody holds it yet."""
        entry: cython.uint = self._free
        at: cython.uint = self._chain[row]
        self._free = self._former_next[entry]
        self._former_set[entry] = self._set[row]
        self._former_row[entry] = row
        self._former_next[entry] = 0
        if at == 0:
            self._chain[row] = entry
        else:
            while self._former_next[at] != 0:
                at = self._former_next[at]
            self._former_next[at] = entry
        references[self._set[row]] += 1
        self.n_former += 1
        return entry

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, row: cython.uint, member: cython.Py_ssize_t) -> cython.uint:
        """Return the former set of a row that a member holds, 0: none."""
        entry: cython.uint = self._chain[row]
        while entry != 0 and (self._holders[entry * self.n_words + (member >> 6)] >> (member & 63)) & ONE == 0:
            entry = self._former_next[entry]
        return entry

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _release(self, row: cython.uint, member: cython.Py_ssize_t, references: cython.uint[::1]) -> cython.uint:
        """Take a member out of the chain of a row; return the set it was there for, that of now if for none."""
        entry: cython.uint = self._find(row, member)
        if entry == 0:
            return self._set[row]
        first: cython.Py_ssize_t = entry * self.n_words
        k: cython.Py_ssize_t
        rest: cython.ulonglong = 0
        held: cython.uint = self._former_set[entry]
        self._holders[first + (member >> 6)] &= ~(ONE << (member & 63)) & MASK64
        for k in range(self.n_words):
            rest |= self._holders[first + k]
        if rest == 0:
            self._forget(row, entry, references)
        return held

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _forget(self, row: cython.uint, entry: cython.uint, references: cython.uint[::1]) -> cython.void:
        """Take a former set out of the chain of a row."""
        at: cython.uint = self._chain[row]
        if at == entry:
            self._chain[row] = self._former_next[entry]
        else:
            while self._former_next[at] != entry:
                at = self._former_next[at]
            self._former_next[at] = self._former_next[entry]
        references[self._former_set[entry]] -= 1
        self._former_next[entry] = self._free
        self._free = entry
        self.n_former -= 1

    def _make_room(self, n: cython.Py_ssize_t):
        """Have room for `n` more former sets."""
        size: cython.Py_ssize_t = self._former_set.shape[0]
        entry: cython.Py_ssize_t
        n_missing: cython.Py_ssize_t = n - (size - 1 - self.n_former)
        if n_missing <= 0:
            return
        limit: cython.Py_ssize_t = size + max(n_missing, size)
        self.former_columns = [grown(column, limit) for column in self.former_columns[:3]] + [
            grown(self.former_columns[3], limit * self.n_words)
        ]
        self._view_former()
        for entry in range(size, limit):
            self._former_next[entry] = cython.cast(cython.uint, entry + 1 if entry + 1 < limit else self._free)
        self._free = cython.cast(cython.uint, size)

    def _add_word(self):
        """Have room for 64 more members."""
        n_words: cython.Py_ssize_t = self.n_words
        members = np.zeros(n_words + 1, np.uint64)
        members[:n_words] = np.asarray(self._members)
        holders = np.zeros((len(self.former_columns[0]), n_words + 1), np.uint64)
        holders[:, :n_words] = self.former_columns[3].reshape(-1, n_words)
        self.former_columns[3] = holders.reshape(-1)
        self._members = memoryview(members)
        self.n_words = n_words + 1
        self._view_former()

    def _view_former(self):
        sets, rows, following, holders = self.former_columns
        self._former_set = memoryview(sets)
        self._former_row = memoryview(rows)
        self._former_next = memoryview(following)
        self._holders = memoryview(holders)


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
