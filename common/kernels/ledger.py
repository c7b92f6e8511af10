"""The ledger of a listening neighbor: what it has been told, by prefix row, checked while it arrives.

Owns one digest per prefix row. Never decodes: rows come from the prefix table, sets from the scanner. Counts what a
speaker should not do: withdraw what it never announced, or announce again what stands already with equal attributes
(RFC 4271 §9.2: an UPDATE is for what has changed).
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
FNV_PRIME = cython.declare(cython.ulonglong, 0x100000001B3)
FNV_BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
NONE = cython.declare(cython.uint, 0xFFFFFFFF)
LOW32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)


@cython.cclass
class Ledger:
    """Digests of the attribute sets announced, by prefix row; 0 means the prefix is not held."""

    n_held: cython.longlong
    n_announced: cython.longlong
    n_withdrawn: cython.longlong
    n_repeated: cython.longlong  # announcements of what stood already with the same attributes
    n_spurious: cython.longlong  # withdrawals of what was not held
    digest_column: object
    _digest: cython.uint[::1]

    def __init__(self, capacity: int = 1024):
        self.n_held = 0
        self.n_announced = 0
        self.n_withdrawn = 0
        self.n_repeated = 0
        self.n_spurious = 0
        self.digest_column = allocate(capacity, np.uint32)
        self._digest = memoryview(self.digest_column)

    @property
    def counts(self) -> dict[str, int]:
        """What has been told so far."""
        return {
            "held": self.n_held,
            "announced": self.n_announced,
            "withdrawn": self.n_withdrawn,
            "repeated": self.n_repeated,
            "spurious_withdrawals": self.n_spurious,
        }

    @property
    def digests(self):
        """The digests by prefix row (uint32), 0 where nothing is held."""
        return self.digest_column

    def ensure(self, capacity: int) -> None:
        """Make room for prefix rows below `capacity`."""
        if capacity > len(self.digest_column):
            self.digest_column = grown(self.digest_column, capacity)
            self._digest = memoryview(self.digest_column)

    def apply(
        self,
        rows: cython.uint[::1],
        sets: cython.uint[::1],
        set_offset: cython.uint[::1],
        set_octets: cython.uchar[::1],
    ) -> None:
        """Enter one scan's rows in order: `sets[i]` is the set announced for prefix row `rows[i]`, NONE a withdrawal."""
        i: cython.Py_ssize_t
        known_set: cython.uint = NONE
        digest: cython.uint = 0
        with cython.nogil:
            for i in range(rows.shape[0]):
                if sets[i] == NONE:
                    self.n_withdrawn += 1
                    if self._digest[rows[i]] == 0:
                        self.n_spurious += 1
                    else:
                        self.n_held -= 1
                        self._digest[rows[i]] = 0
                    continue
                if sets[i] != known_set:
                    known_set = sets[i]
                    digest = digest_of(set_octets, set_offset[known_set], set_offset[known_set + 1])
                self.n_announced += 1
                if self._digest[rows[i]] == digest:
                    self.n_repeated += 1
                elif self._digest[rows[i]] == 0:
                    self.n_held += 1
                self._digest[rows[i]] = digest


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digest_of(octets: cython.uchar[::1], start: cython.uint, end: cython.uint) -> cython.uint:
    """Digest one set (FNV-1a folded to 32 bits, never 0)."""
    h: cython.ulonglong = FNV_BASIS
    i: cython.uint
    for i in range(start, end):
        h = ((h ^ octets[i]) * FNV_PRIME) & MASK64
    return cython.cast(cython.uint, (h ^ (h >> 32)) & LOW32) | 1


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
