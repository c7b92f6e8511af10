"""The ledger of a listening neighbor: what it has been told, by prefix row, checked while it arrives.

Owns one state per prefix row. Never decodes: rows come from the prefix table, sets from the scanner. Counts what a
speaker should not do: withdraw what it never announced, or announce again what stands already with equal attributes
(RFC 4271 §9.2: an UPDATE is for what has changed).

A state is two digests in one number: the lower half of the whole set, the upper of its core, which is what a router
passes on unchanged, in whatever order it writes it: all but next hop, MULTI_EXIT_DISC, LOCAL_PREF, ORIGINATOR_ID,
CLUSTER_LIST and the AS number that it prepends itself (RFC 4271 §5.1; RFC 4456 §8). Flags do not count.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
PRIME = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
NONE = cython.declare(cython.uint, 0xFFFFFFFF)
LOW32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)

_AS_PATH = cython.declare(cython.uint, 2)
_AS_SEQUENCE = cython.declare(cython.uint, 2)
_EXTENDED_LENGTH = cython.declare(cython.uint, 0x10)
# What is not of the core: NEXT_HOP, MULTI_EXIT_DISC, LOCAL_PREF, ORIGINATOR_ID, CLUSTER_LIST.
NOT_CORE = (3, 4, 5, 9, 10)
# Lists whose order means nothing, with the octets of an item: communities of four kinds.
UNORDERED = {8: 4, 16: 8, 25: 20, 32: 12}


def _rule_column():
    """Return by attribute type: 0 octets in order, 255 not of the core, else the octets of an item of a set."""
    column = np.zeros(256, np.uint8)
    column[list(NOT_CORE)] = 255
    for code, n_octets in UNORDERED.items():
        column[code] = n_octets
    return column


_rules = cython.declare(cython.uchar[::1], memoryview(_rule_column()))


@cython.final
@cython.cclass
class Ledger:
    """States of what is announced, by prefix row; 0 means the prefix is not held."""

    n_held: cython.longlong
    n_announced: cython.longlong
    n_withdrawn: cython.longlong
    n_repeated: cython.longlong  # announcements of what stood already with the same attributes
    n_spurious: cython.longlong  # withdrawals of what was not held
    state_column: object
    _state: cython.ulonglong[::1]

    def __init__(self, capacity: int = 1024):
        self.n_held = 0
        self.n_announced = 0
        self.n_withdrawn = 0
        self.n_repeated = 0
        self.n_spurious = 0
        self.state_column = allocate(capacity, np.uint64)
        self._state = memoryview(self.state_column)

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
    def held(self) -> int:
        """How many prefixes are held."""
        return self.n_held

    @property
    def states(self):
        """The states by prefix row (uint64), 0 where nothing is held."""
        return self.state_column

    @property
    def cores(self):
        """The digests of the cores by prefix row (uint32), 0 where nothing is held."""
        return (self.state_column >> np.uint64(32)).astype(np.uint32)

    def ensure(self, capacity: int) -> None:
        """Make room for prefix rows below `capacity`."""
        if capacity > len(self.state_column):
            self.state_column = grown(self.state_column, capacity)
            self._state = memoryview(self.state_column)

    def clear(self) -> None:
        """Forget all that is held, as at the end of a session; the counts stay."""
        self.state_column[:] = 0
        self.n_held = 0

    def apply(
        self,
        rows: cython.const[cython.uint][::1],
        sets: cython.const[cython.uint][::1],
        set_states: cython.const[cython.ulonglong][::1],
    ) -> None:
        """Enter one scan's rows in order: `sets[i]` is the set announced for prefix row `rows[i]`, NONE a withdrawal.

        set_states: of each set, see `digest_sets`.
        """
        i: cython.Py_ssize_t
        row: cython.uint
        state: cython.ulonglong
        if sets.shape[0] != rows.shape[0]:
            raise ValueError("rows and sets must be of one length")
        with cython.nogil:
            for i in range(rows.shape[0]):
                row = rows[i]
                if sets[i] == NONE:
                    self.n_withdrawn += 1
                    if self._state[row] == 0:
                        self.n_spurious += 1
                    else:
                        self.n_held -= 1
                        self._state[row] = 0
                    continue
                state = set_states[sets[i]]
                self.n_announced += 1
                if self._state[row] == state:
                    self.n_repeated += 1
                elif self._state[row] == 0:
                    self.n_held += 1
                self._state[row] = state


def digest_sets(
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
    n_own: cython.Py_ssize_t = 0,
):
    """Return (states, first AS numbers) of sets: uint64, never 0, and uint32, 0 for an empty path.

    n_own: how many AS numbers the speaker has put before each path; they do not count in the core.
    """
    n: cython.Py_ssize_t = set_offset.shape[0] - 1
    state_column = np.empty(n, np.uint64)
    first_column = np.zeros(n, np.uint32)
    states: cython.ulonglong[::1] = memoryview(state_column)
    first: cython.uint[::1] = memoryview(first_column)
    whole: cython.ulonglong
    core: cython.ulonglong
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            whole = digest_of(set_octets, set_offset[i], set_offset[i + 1], BASIS)
            core = core_of(set_octets, set_offset[i], set_offset[i + 1], n_own)
            states[i] = (folded(core) << 32) | folded(whole)
            first[i] = first_of(set_octets, set_offset[i], set_offset[i + 1])
    return state_column, first_column


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def step(h: cython.ulonglong, value: cython.ulonglong) -> cython.ulonglong:
    """Take one number into a digest."""
    h = ((h ^ value) * PRIME) & MASK64
    return h ^ (h >> 29)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def folded(h: cython.ulonglong) -> cython.ulonglong:
    """Return a digest in 32 bits, never 0."""
    return ((h ^ (h >> 32)) & LOW32) | 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digest_of(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, h: cython.ulonglong
) -> cython.ulonglong:
    """Take octets into a digest, four at a time."""
    h = step(h, cython.cast(cython.ulonglong, end - at))
    while at + 4 <= end:
        h = step(h, word_at(octets, at))
        at += 4
    while at < end:
        h = step(h, octets[at])
        at += 1
    return h


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def word_at(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return (
        cython.cast(cython.uint, octets[at]) << 24
        | cython.cast(cython.uint, octets[at + 1]) << 16
        | cython.cast(cython.uint, octets[at + 2]) << 8
        | cython.cast(cython.uint, octets[at + 3])
    )


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def core_of(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, n_own: cython.Py_ssize_t
) -> cython.ulonglong:
    """Digest what a router passes on unchanged."""
    h: cython.ulonglong = BASIS
    code: cython.uint
    size: cython.Py_ssize_t
    at += 1 + octets[at]
    while at + 3 <= end:
        code = octets[at + 1]
        if octets[at] & _EXTENDED_LENGTH and at + 4 <= end:
            size = (cython.cast(cython.Py_ssize_t, octets[at + 2]) << 8) + octets[at + 3]
            at += 4
        else:
            size = octets[at + 2]
            at += 3
        size = min(size, end - at)
        if code == _AS_PATH:
            h = digest_of_path(octets, at, at + size, n_own, step(h, code))
        elif _rules[code] == 0:
            h = digest_of(octets, at, at + size, step(h, code))
        elif _rules[code] != 255:
            h = step(step(h, code), digest_of_items(octets, at, at + size, _rules[code]))
        at += size
    return h


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digest_of_path(
    octets: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    n_own: cython.Py_ssize_t,
    h: cython.ulonglong,
) -> cython.ulonglong:
    """Take AS numbers with the kind of their segments into a digest: where a sequence is split does not count."""
    kind: cython.ulonglong
    _: cython.Py_ssize_t
    n: cython.Py_ssize_t
    while at + 2 <= end:
        kind = octets[at]
        n = octets[at + 1]
        at += 2
        for _ in range(n):
            if at + 4 > end:
                break
            if n_own > 0:
                n_own -= 1
            else:
                h = step(h, kind << 32 | word_at(octets, at))
            at += 4
    return h


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def digest_of_items(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.ulonglong:
    """Digest a set of items, each counted once, in any order."""
    total: cython.ulonglong = 0
    item: cython.Py_ssize_t = at
    before: cython.Py_ssize_t
    while item + size <= end:
        before = at
        while before < item and not is_equal(octets, before, item, size):
            before += size
        if before == item:
            total = (total + digest_of(octets, item, item + size, BASIS)) & MASK64
        item += size
    return total


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def is_equal(
    octets: cython.const[cython.uchar][::1], one: cython.Py_ssize_t, other: cython.Py_ssize_t, n: cython.Py_ssize_t
) -> cython.bint:
    i: cython.Py_ssize_t
    for i in range(n):
        if octets[one + i] != octets[other + i]:
            return False
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def first_of(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.uint:
    """Return the first AS number of a path that begins with a sequence, 0 of any other."""
    size: cython.Py_ssize_t
    code: cython.uint
    at += 1 + octets[at]
    while at + 3 <= end:
        code = octets[at + 1]
        if octets[at] & _EXTENDED_LENGTH and at + 4 <= end:
            size = (cython.cast(cython.Py_ssize_t, octets[at + 2]) << 8) + octets[at + 3]
            at += 4
        else:
            size = octets[at + 2]
            at += 3
        if code == _AS_PATH:
            if size >= 6 and at + 6 <= end and octets[at] == _AS_SEQUENCE:
                return word_at(octets, at + 2)
            return 0
        at += size
    return 0


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
