"""The journal: the row numbers of one table in the order in which the rows changed.

Owns the ring of row numbers and, for each row, the sequence of its latest entry. Never knows what is in a row: the
owner of the table gathers that when a batch is sent. Only a row's latest entry counts, so a reader gets each row once,
however often it changed.

Sequences start at 1 unless the owner says otherwise. A reader at sequence s has received every entry below s. Three
marks rise:

    tail ........ horizon .................... head
    oldest entry  oldest position from which   the next
    in the ring   nothing has been forgotten   entry

A row that is gone stays in its table until all readers have passed its latest entry: `removable` tells which rows have
come to that, and raises the horizon. A reader that nobody waited for (a tap) may then be below the horizon and needs a
snapshot.

Row 0 is no row: its entries only keep a place, and no reader gets them. `last` is 0 for a row that has no entry a
reader could still wait for: it was never appended, or `removable` has returned it.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)


@cython.cclass
class Journal:
    """A ring of 2**capacity_power row numbers, and the sequence of each row's latest entry."""

    mask: cython.ulonglong
    first_sequence: cython.ulonglong
    next_sequence: cython.ulonglong
    floor: cython.ulonglong  # the horizon
    swept: cython.ulonglong  # entries below have been looked at by `removable`
    _ring: cython.uint[::1]
    _last: cython.uint[::1]  # low 32 bits of the sequence of each row's latest entry; 0: none
    last_column: object

    def __init__(self, capacity_power: int = 22, first: int = 1):
        if not 4 <= capacity_power <= 30:
            raise ValueError("a journal holds from 2**4 to 2**30 entries")
        self.mask = (1 << capacity_power) - 1
        self.first_sequence = first
        self.next_sequence = first
        self.floor = first
        self.swept = first
        self._ring = memoryview(allocate(1 << capacity_power, np.uint32, 1 << capacity_power))
        self.last_column = allocate(1024, np.uint32)
        self._last = memoryview(self.last_column)

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The sequence that the next entry will get."""
        return self.next_sequence

    @property
    def tail(self) -> int:
        """The sequence of the oldest entry still in the ring."""
        return self._oldest()

    @property
    def horizon(self) -> int:
        """The lowest position from which no row that was removed is missing."""
        return self.floor

    @property
    def capacity(self) -> int:
        """Entries in the ring."""
        return self.mask + 1

    @property
    def last(self):
        """Low 32 bits of the sequence of each row's latest entry (uint32 by row); 0 if none is waited for."""
        return self.last_column

    def is_held(self, sequence: cython.ulonglong) -> bool:
        """Tell whether a reader at `sequence` can go on from there; if not, it needs a snapshot."""
        return self._is_held(sequence)

    def ensure_rows(self, capacity: cython.Py_ssize_t):
        """Make room for rows below `capacity` (`append` does so by itself, a little at a time)."""
        if capacity > self._last.shape[0]:
            self.last_column = grown(self.last_column, max(capacity, self._last.shape[0] * 3 // 2))
            self._last = memoryview(self.last_column)

    # ---- batches ----------------------------------------------------------------------------------------------

    def append(self, rows: cython.const[cython.uint][::1]):
        """Write an entry for each row, in order. A row may come more than once."""
        n: cython.Py_ssize_t = rows.shape[0]
        highest: cython.uint = 0
        sequence: cython.ulonglong = self.next_sequence
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                highest = max(highest, rows[i])
        self.ensure_rows(cython.cast(cython.Py_ssize_t, highest) + 1)
        with cython.nogil:
            for i in range(n):
                if sequence & MASK32 == 0:  # `last` could not tell this sequence from none: leave it to row 0
                    self._ring[sequence & self.mask] = 0
                    sequence += 1
                self._ring[sequence & self.mask] = rows[i]
                self._last[rows[i]] = cython.cast(cython.uint, sequence & MASK32)
                sequence += 1
            self._last[0] = 0
        self.next_sequence = sequence

    def read(self, sequence: cython.ulonglong, limit: cython.Py_ssize_t):
        """Return (rows, next_sequence): at most `limit` rows whose latest entry is at `sequence` or after.

        Rows (uint32) come in the order of their latest entries, each once. `next_sequence` is where to read on; at
        the head the reader is in step. ValueError if the position is not held.
        """
        if not self._is_held(sequence):
            raise ValueError(f"the journal does not hold the position {sequence}")
        room: cython.Py_ssize_t = min(max(limit, 0), cython.cast(cython.Py_ssize_t, self.next_sequence - sequence))
        result = np.empty(room + 1, np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        n: cython.Py_ssize_t = 0
        row: cython.uint
        with cython.nogil:
            while sequence < self.next_sequence and n < room:
                row = self._ring[sequence & self.mask]
                rows[n] = row
                n += row != 0 and self._last[row] == sequence & MASK32
                sequence += 1
        return result[:n], sequence

    def removable(
        self,
        limit_sequence: cython.ulonglong,
        alive: cython.const[cython.uint][::1],
        n_entries: cython.Py_ssize_t = 262144,
    ):
        """Return the rows (uint32) that are gone and whose removal every reader has passed, each once.

        `limit_sequence` is the lowest position of the readers that must not miss anything. `alive` is a column by
        row in which 0 means gone. Goes on where the last call ended and looks at `n_entries` entries at most;
        `is_swept` tells whether there are more. The rows returned have no entry any more (`last` is 0).
        """
        stop: cython.ulonglong = min(limit_sequence, self.next_sequence)
        if self.swept < self._oldest():
            return self._removable_by_row(stop, alive)
        if stop <= self.swept:
            return np.empty(0, np.uint32)
        stop = min(stop, self.swept + max(n_entries, 1))
        result = np.empty(cython.cast(cython.Py_ssize_t, stop - self.swept), np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        n: cython.Py_ssize_t = 0
        sequence: cython.ulonglong
        row: cython.uint
        with cython.nogil:
            for sequence in range(self.swept, stop):
                row = self._ring[sequence & self.mask]
                if row == 0 or row >= alive.shape[0] or alive[row] != 0:
                    continue
                if self._last[row] == sequence & MASK32:
                    self._last[row] = 0
                    self.floor = sequence + 1
                    rows[n] = row
                    n += 1
        self.swept = stop
        return result[:n]

    def is_swept(self, limit_sequence: cython.ulonglong) -> bool:
        """Tell whether `removable` has looked at every entry below `limit_sequence`."""
        return self.swept >= min(limit_sequence, self.next_sequence)

    # ---- inside -----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _oldest(self) -> cython.ulonglong:
        n: cython.ulonglong = self.next_sequence - self.first_sequence
        return self.next_sequence - min(n, self.mask + 1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_held(self, sequence: cython.ulonglong) -> cython.bint:
        return self._oldest() <= sequence and self.floor <= sequence and sequence <= self.next_sequence

    @cython.cfunc
    def _removable_by_row(self, stop: cython.ulonglong, alive: cython.const[cython.uint][::1]):
        """Do the work of `removable` when the ring has come round over entries it had not looked at: ask each row."""
        result = np.empty(min(self._last.shape[0], alive.shape[0]), np.uint32)
        rows: cython.uint[::1] = memoryview(result)
        n: cython.Py_ssize_t = 0
        age: cython.ulonglong
        row: cython.uint
        stop = max(stop, self._oldest())  # readers below the tail are lost to a snapshot anyway
        with cython.nogil:
            for row in range(1, rows.shape[0]):
                if alive[row] != 0 or self._last[row] == 0:
                    continue
                age = (self.next_sequence - self._last[row]) & MASK32
                if self.next_sequence - age < stop:
                    self._last[row] = 0
                    rows[n] = row
                    n += 1
        self.floor = max(self.floor, stop)
        self.swept = stop
        return result[:n]


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
