"""The route table: which attribute set each source has announced for each prefix.

Owns one row for each (prefix row, source), linked in a chain from the prefix, and counts the references to attribute
sets. Never knows prefixes, sets or sources themselves, only their numbers: rows of a PrefixTable, ids of an
AttributeTable, and numbers its owner gives to sources (small ones: columns are indexed by them).

A route that is withdrawn keeps its row with attribute set 0, a tombstone, until its owner unlinks it, so that a
journal can refer to it. Row 0 is never used.

Columns (`prefix`, `source`, `attributes`, `next`, `flags` by row, `head` by prefix row, `n_by_source` by source) are
replaced when the table grows: ask for them again after each call that may add rows.

The way of a batch, and of what is gone, where the journal holds route rows (an Adj-RIB-In):

    ids = attributes.intern_rows(set_offset, set_octets, sets)
    rows = prefixes.intern(hi, lo, length, ids)
    journal.append(routes.apply(rows, sources, ids, attributes.references))
    ...
    prefixes.release(routes.unlink(journal.removable(lowest_position, routes.attributes)))

Where it holds prefix rows (a Loc-RIB), routes are unlinked when the prefix has been decided, and a prefix is released
once its chain is empty (`head` is 0) and no reader waits for its entry (the journal's `last` is 0), whichever comes
later.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK32 = cython.declare(cython.longlong, 0xFFFFFFFF)
ONE = cython.declare(cython.longlong, 1)
UNCONFIRMED = cython.declare(cython.uchar, 1)
FREE = cython.declare(cython.uchar, 128)
BLOCK = cython.declare(cython.Py_ssize_t, 32)  # routes whose cache misses overlap


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def highest_of(column: cython.const[cython.uint][::1]) -> cython.uint:
    highest: cython.uint = 0
    i: cython.Py_ssize_t
    for i in range(column.shape[0]):
        highest = max(highest, column[i])
    return highest


@cython.cclass
class RouteTable:
    """Routes by row, seventeen octets each, in a chain for each prefix."""

    n_routes: cython.uint  # rows with an attribute set
    n_rows: cython.uint  # rows in chains: live ones and tombstones
    top: cython.uint  # one more than the highest row ever given out
    free_head: cython.uint  # first row of the free list, linked through `next` (see `tidy`); 0 ends it
    _prefix: cython.uint[::1]
    _source: cython.uint[::1]
    _attributes: cython.uint[::1]
    _next: cython.uint[::1]
    _flags: cython.uchar[::1]
    _head: cython.uint[::1]
    _n_by_source: cython.uint[::1]
    _found: cython.uint[::1]  # rows of the block of routes in work
    touched: cython.uint  # see `_find_block`; means nothing
    prefix_column: object
    source_column: object
    attributes_column: object
    next_column: object
    flags_column: object
    head_column: object
    n_by_source_column: object

    def __init__(self, capacity: int = 1024):
        self.n_routes = 0
        self.n_rows = 0
        self.top = 1
        self.free_head = 0
        self.prefix_column = allocate(0, np.uint32)
        self.source_column = allocate(0, np.uint32)
        self.attributes_column = allocate(0, np.uint32)
        self.next_column = allocate(0, np.uint32)
        self.flags_column = allocate(0, np.uint8)
        self.head_column = allocate(1024, np.uint32)
        self.n_by_source_column = allocate(64, np.uint32)
        self._found = memoryview(allocate(BLOCK, np.uint32))
        self._head = memoryview(self.head_column)
        self._n_by_source = memoryview(self.n_by_source_column)
        self._resize_rows(max(capacity, 16))

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Rows that columns indexed by route row must have room for."""
        return len(self.attributes_column)

    @property
    def row_limit(self) -> int:
        """One more than the highest row ever given out: the range to scan for a snapshot."""
        return self.top

    @property
    def n_live(self) -> int:
        """Routes that are not withdrawn."""
        return self.n_routes

    @property
    def n_tombstones(self) -> int:
        """Withdrawn routes that have not been unlinked."""
        return self.n_rows - self.n_routes

    @property
    def prefix(self):
        """The prefix row of each route (uint32 by row); 0 for a row that is free."""
        return self.prefix_column

    @property
    def source(self):
        """The source of each route (uint32 by row)."""
        return self.source_column

    @property
    def attributes(self):
        """The attribute set of each route (uint32 by row); 0 for a row that is withdrawn or free."""
        return self.attributes_column

    @property
    def next(self):
        """The next row in the chain of the same prefix (uint32 by row); 0 ends it."""
        return self.next_column

    @property
    def flags(self):
        """Flags of each route (uint8 by row): bit 0 unconfirmed, bit 7 free."""
        return self.flags_column

    @property
    def head(self):
        """The first row of each prefix's chain (uint32 by prefix row); 0: no route."""
        return self.head_column

    @property
    def n_by_source(self):
        """Live routes of each source (uint32 by source)."""
        return self.n_by_source_column

    def columns_of(self, rows: cython.const[cython.uint][::1]):
        """Return (prefix row, source, attributes) of the routes at `rows` (uint32 each), in one pass."""
        n: cython.Py_ssize_t = rows.shape[0]
        prefix_of = np.empty(n, np.uint32)
        source_of = np.empty(n, np.uint32)
        attributes_of = np.empty(n, np.uint32)
        prefix: cython.uint[::1] = memoryview(prefix_of)
        source: cython.uint[::1] = memoryview(source_of)
        attributes: cython.uint[::1] = memoryview(attributes_of)
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                prefix[i] = self._prefix[rows[i]]
                source[i] = self._source[rows[i]]
                attributes[i] = self._attributes[rows[i]]
        return prefix_of, source_of, attributes_of

    def rows_of(self, prefix_row: cython.uint):
        """Return the rows (uint32) of one prefix, tombstones among them."""
        rows = []
        row: cython.uint = self._head[prefix_row] if prefix_row < self._head.shape[0] else 0
        while row != 0:
            rows.append(row)
            row = self._next[row]
        return np.array(rows, np.uint32)

    def ensure_prefixes(self, capacity: cython.Py_ssize_t):
        """Make room for prefix rows below `capacity` (`apply` does so by itself; pass PrefixTable.capacity)."""
        if capacity > self._head.shape[0]:
            self.head_column = grown(self.head_column, max(capacity, self._head.shape[0] * 3 // 2))
            self._head = memoryview(self.head_column)

    def ensure_sources(self, capacity: cython.Py_ssize_t):
        """Make room for sources below `capacity` (`apply` does so by itself)."""
        if capacity > self._n_by_source.shape[0]:
            self.n_by_source_column = grown(self.n_by_source_column, max(capacity, self._n_by_source.shape[0] * 2))
            self._n_by_source = memoryview(self.n_by_source_column)

    # ---- batches ----------------------------------------------------------------------------------------------

    def apply(
        self,
        prefix_rows: cython.const[cython.uint][::1],
        sources: cython.const[cython.uint][::1],
        ids: cython.const[cython.uint][::1],
        references: cython.uint[::1],
    ):
        """Announce and withdraw routes in order, and return the rows (uint32) that changed, as often as they did.

        `ids` are attribute sets, 0 to withdraw. `sources` has a source for each row, or a single one for all.
        `references` (by set id) is counted up and down. A route announced again with the set it has is only confirmed;
        a withdrawal of what is not there is nothing; prefix row 0 (not in the table) is passed over.
        """
        n: cython.Py_ssize_t = prefix_rows.shape[0]
        step: cython.Py_ssize_t = 0 if sources.shape[0] == 1 else 1
        if ids.shape[0] != n or (step == 1 and sources.shape[0] != n):
            raise ValueError("prefix rows, sources and set ids must be of one length")
        self._make_room(n, highest_of(prefix_rows), highest_of(sources))
        if highest_of(ids) >= references.shape[0]:
            raise IndexError("a route refers to an attribute set beyond the references")
        result = np.empty(n, np.uint32)
        changed: cython.uint[::1] = memoryview(result)
        n_changed: cython.Py_ssize_t = 0
        row: cython.uint
        old: cython.uint
        i: cython.Py_ssize_t
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        with cython.nogil:
            while first < n:
                end = min(first + BLOCK, n)
                self._find_block(prefix_rows, sources, step, first, end)
                for i in range(first, end):
                    row = self._found[i - first]
                    if row == 0:  # unless an earlier row of this block has brought it
                        row = self._find(prefix_rows[i], sources[i * step])
                    if row == 0:
                        if ids[i] == 0 or prefix_rows[i] == 0:
                            continue
                        row = self._insert(prefix_rows[i], sources[i * step])
                    old = self._attributes[row]
                    self._flags[row] &= ~UNCONFIRMED
                    if old == ids[i]:
                        continue
                    self._attributes[row] = ids[i]
                    self._count(row, old, ids[i])
                    if old != 0:
                        references[old] -= 1
                    if ids[i] != 0:
                        references[ids[i]] += 1
                    changed[n_changed] = row
                    n_changed += 1
                first = end
        return result[:n_changed]

    def purge(self, sources, references: cython.uint[::1], first: cython.uint = 1, end: cython.uint = 0xFFFFFFFF):
        """Withdraw the routes of these sources (one, or a column of them); return their rows (uint32), ascending.

        Only rows from `first` up to, but not including, `end` are looked at, so that a long table can be done in parts.
        """
        chosen = self._chosen(memoryview(np.atleast_1d(np.asarray(sources, np.uint32))))
        return self._withdraw_where(memoryview(chosen), 0, references, first, end)

    def mark_unconfirmed(self, sources: cython.const[cython.uint][::1]):
        """Mark the routes of these sources: those that are not announced again go at `sweep_unconfirmed`."""
        chosen: cython.uchar[::1] = memoryview(self._chosen(sources))
        row: cython.uint
        with cython.nogil:
            for row in range(1, self.top):
                if self._attributes[row] != 0 and chosen[self._source[row]]:
                    self._flags[row] |= UNCONFIRMED

    def sweep_unconfirmed(
        self,
        sources: cython.const[cython.uint][::1],
        references: cython.uint[::1],
        first: cython.uint = 1,
        end: cython.uint = 0xFFFFFFFF,
    ):
        """Withdraw the routes of these sources that are still unconfirmed; return their rows (uint32), ascending.

        `first` and `end` are as in `purge`.
        """
        return self._withdraw_where(memoryview(self._chosen(sources)), UNCONFIRMED, references, first, end)

    def unlink(self, rows: cython.const[cython.uint][::1]):
        """Free the tombstones among `rows`, and return the prefix rows (uint32) whose chain is empty now, each once.

        Rows that are live (again) or free already are passed over, so the rows of `apply` can be given as they are.
        """
        result = np.empty(rows.shape[0], np.uint32)
        emptied: cython.uint[::1] = memoryview(result)
        n: cython.Py_ssize_t = 0
        row: cython.uint
        prefix: cython.uint
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(rows.shape[0]):
                row = rows[i]
                if row == 0 or row >= self.top or self._attributes[row] != 0 or self._flags[row] & FREE:
                    continue
                prefix = self._prefix[row]
                self._unchain(row, prefix)
                if self._head[prefix] == 0:
                    emptied[n] = prefix
                    n += 1
        return result[:n]

    def tidy(self):
        """Have free rows given out again in ascending order, and return the columns.

        A link is how far the next free row lies beyond the next row: zero in a run of free rows, so that their pages
        can be given back.
        """
        row: cython.uint
        with cython.nogil:
            self.free_head = 0
            for row in range(self.top - 1, 0, -1):
                if self._flags[row] & FREE:
                    self._next[row] = cython.cast(cython.uint, (self.free_head - row - ONE) & MASK32)
                    self._source[row] = 0
                    self.free_head = row
        columns = (self.prefix_column, self.source_column, self.attributes_column, self.next_column, self.flags_column)
        return *columns, self.head_column

    # ---- chains -----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_block(
        self,
        prefix_rows: cython.const[cython.uint][::1],
        sources: cython.const[cython.uint][::1],
        step: cython.Py_ssize_t,
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.void:
        """Find the rows of a block of routes into `_found`, all chains in step so that their cache misses overlap."""
        n_moved: cython.uint = 1
        touched: cython.uint = 0
        row: cython.uint
        i: cython.Py_ssize_t
        for i in range(first, end):
            self._found[i - first] = self._head[prefix_rows[i]]
        while n_moved != 0:
            n_moved = 0
            for i in range(first, end):
                row = self._found[i - first]
                if self._source[row] != sources[i * step]:
                    self._found[i - first] = self._next[row]  # row 0 is followed by itself
                    n_moved += row != 0
        for i in range(first, end):
            row = self._found[i - first]
            touched ^= self._attributes[row] ^ self._flags[row]
        self.touched = touched

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(self, prefix: cython.uint, source: cython.uint) -> cython.uint:
        row: cython.uint = self._head[prefix]
        while row != 0 and self._source[row] != source:
            row = self._next[row]
        return row

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _insert(self, prefix: cython.uint, source: cython.uint) -> cython.uint:
        row: cython.uint = self.free_head
        if row != 0:
            self.free_head = cython.cast(cython.uint, (self._next[row] + row + ONE) & MASK32)
        else:
            row = self.top
            self.top += 1
        self._prefix[row] = prefix
        self._source[row] = source
        self._attributes[row] = 0
        self._flags[row] = 0
        self._next[row] = self._head[prefix]
        self._head[prefix] = row
        self.n_rows += 1
        return row

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _count(self, row: cython.uint, old: cython.uint, new: cython.uint) -> cython.void:
        """Count a route that appears or goes (a change of its set is neither)."""
        if old == 0:
            self.n_routes += 1
            self._n_by_source[self._source[row]] += 1
        elif new == 0:
            self.n_routes -= 1
            self._n_by_source[self._source[row]] -= 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unchain(self, row: cython.uint, prefix: cython.uint) -> cython.void:
        before: cython.uint = self._head[prefix]
        if before == row:
            self._head[prefix] = self._next[row]
        else:
            while self._next[before] != row:
                before = self._next[before]
            self._next[before] = self._next[row]
        self._next[row] = cython.cast(cython.uint, (self.free_head - row - ONE) & MASK32)
        self.free_head = row
        self._flags[row] = FREE
        self._prefix[row] = 0
        self.n_rows -= 1

    # ---- whole sources ----------------------------------------------------------------------------------------

    @cython.cfunc
    def _chosen(self, sources: cython.const[cython.uint][::1]):
        """Return a column by source (uint8) that is 1 for these sources."""
        self.ensure_sources(cython.cast(cython.Py_ssize_t, highest_of(sources)) + 1)
        column = allocate(self._n_by_source.shape[0], np.uint8)
        chosen: cython.uchar[::1] = memoryview(column)
        i: cython.Py_ssize_t
        for i in range(sources.shape[0]):
            chosen[sources[i]] = 1
        return column

    @cython.cfunc
    def _withdraw_where(
        self,
        chosen: cython.uchar[::1],
        flags: cython.uchar,
        references: cython.uint[::1],
        first: cython.uint,
        end: cython.uint,
    ):
        """Withdraw the live routes of chosen sources that have all of `flags`."""
        end = min(end, self.top)
        first = max(first, 1)
        result = np.empty(min(max(end, first) - first, self.n_routes), np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        n: cython.Py_ssize_t = 0
        row: cython.uint
        old: cython.uint
        with cython.nogil:
            for row in range(first, end):
                old = self._attributes[row]
                if old == 0 or not chosen[self._source[row]] or self._flags[row] & flags != flags:
                    continue
                self._attributes[row] = 0
                self._flags[row] &= ~UNCONFIRMED
                self._count(row, old, 0)
                references[old] -= 1
                rows[n] = row
                n += 1
        return result[:n]

    # ---- room -------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _make_room(self, n: cython.Py_ssize_t, highest_prefix: cython.Py_ssize_t, highest_source: cython.Py_ssize_t):
        n_free: cython.Py_ssize_t = self.top - 1 - self.n_rows
        capacity: cython.Py_ssize_t = self._attributes.shape[0]
        if self.top + n - n_free > capacity:
            self._resize_rows(max(self.top + n - n_free, capacity * 3 // 2))
        self.ensure_prefixes(highest_prefix + 1)
        self.ensure_sources(highest_source + 1)

    @cython.cfunc
    def _resize_rows(self, capacity: cython.Py_ssize_t):
        self.prefix_column = grown(self.prefix_column, capacity)
        self._prefix = memoryview(self.prefix_column)
        self.source_column = grown(self.source_column, capacity)
        self._source = memoryview(self.source_column)
        self.attributes_column = grown(self.attributes_column, capacity)
        self._attributes = memoryview(self.attributes_column)
        self.next_column = grown(self.next_column, capacity)
        self._next = memoryview(self.next_column)
        self.flags_column = grown(self.flags_column, capacity)
        self._flags = memoryview(self.flags_column)


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
