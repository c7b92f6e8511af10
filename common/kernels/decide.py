"""The decision process: chooses the best path of each prefix, and says which step decided.

Owns what the process needs to know of an attribute set (`SetFacts`: one record of sixteen octets a set, and the *ways*
they share) and of a source, and what was chosen for each prefix row (`Decision`). Never owns the candidates: it is
given the columns of the route table. RFC 4271 §9.1.1 and §9.1.2, RFC 4456 §9 (route reflection), RFC 5065 §5.3
(confederation segments do not count).

The process is one of elimination, in which each step removes paths from those the step before has left. That it is not
a comparison of two paths at a time matters for MULTI_EXIT_DISC, which is compared among the paths from one neighboring
AS only: pair by pair, the result would hang on the order of arrival.
"""

import cython
import numpy as np

from common.arrays import allocate, grown
from common.bgp import decision
from common.bgp.decision import Step

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
MIX_1 = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
MIX_2 = cython.declare(cython.ulonglong, 0xD6E8FEB86659FD93)
HIGHEST = cython.declare(cython.uint, 0xFFFFFFFF)
UNUSABLE = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)  # as a rank
MAX_PATH_LENGTH = cython.declare(cython.uint, 0x3FFF)  # more do not fit into an UPDATE
BLOCK = cython.declare(cython.Py_ssize_t, 32)  # prefixes whose cache misses overlap

DEFAULT_LOCAL_PREF = cython.declare(cython.uint, decision.DEFAULT_LOCAL_PREF)
UNREACHABLE_METRIC = cython.declare(cython.uint, decision.UNREACHABLE)

STEP_NONE = cython.declare(cython.int, int(Step.NONE))
STEP_ONLY = cython.declare(cython.int, int(Step.ONLY))
STEP_ORIGINATED = cython.declare(cython.int, int(Step.ORIGINATED))
STEP_LOCAL_PREF = cython.declare(cython.int, int(Step.LOCAL_PREF))
STEP_AS_PATH = cython.declare(cython.int, int(Step.AS_PATH))
STEP_ORIGIN = cython.declare(cython.int, int(Step.ORIGIN))
STEP_MED = cython.declare(cython.int, int(Step.MED))
STEP_EXTERNAL = cython.declare(cython.int, int(Step.EXTERNAL))
STEP_METRIC = cython.declare(cython.int, int(Step.METRIC))
STEP_ROUTER_ID = cython.declare(cython.int, int(Step.ROUTER_ID))
STEP_CLUSTER_LIST = cython.declare(cython.int, int(Step.CLUSTER_LIST))
STEP_ADDRESS = cython.declare(cython.int, int(Step.ADDRESS))
STEP_PATH_ID = cython.declare(cython.int, int(Step.PATH_ID))
STEP_UNREACHABLE = cython.declare(cython.int, int(Step.UNREACHABLE))

# The fields of a set's record.
FIELDS = cython.declare(cython.Py_ssize_t, 4)
LOCAL_PREF = cython.declare(cython.Py_ssize_t, 0)
PATH = cython.declare(cython.Py_ssize_t, 1)  # AS path length (14 bits), ORIGIN in the lowest 2
MED = cython.declare(cython.Py_ssize_t, 2)
WAY = cython.declare(cython.Py_ssize_t, 3)  # 0: nothing is known of this set

IS_EXTERNAL = cython.declare(cython.uchar, 1)
IS_ORIGINATED = cython.declare(cython.uchar, 2)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_u32(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    """Read four octets in network order; the caller has checked that they are there."""
    return (
        (cython.cast(cython.uint, octets[at]) << 24)
        | (cython.cast(cython.uint, octets[at + 1]) << 16)
        | (cython.cast(cython.uint, octets[at + 2]) << 8)
        | cython.cast(cython.uint, octets[at + 3])
    )


@cython.cclass
class SetFacts:
    """What the decision process knows of each attribute set, by set id.

    What few sets differ in is kept once, as a *way*: next hop, neighboring AS, ORIGINATOR_ID and length of the
    CLUSTER_LIST. A way also carries the metric to its next hop, so a change of the metric is a change of few rows.
    """

    seed: cython.ulonglong
    n_ways: cython.uint
    top: cython.uint  # one more than the highest way ever given out
    free_head: cython.uint  # first way of the free list, linked through `neighbor_as`; 0 ends it
    record_column: object
    _record: cython.uint[::1]
    _slots: cython.uint[::1]
    next_hop_hi_column: object
    next_hop_lo_column: object
    next_hop_length_column: object
    neighbor_as_column: object
    originator_column: object
    reflection_column: object
    metric_column: object
    _next_hop_hi: cython.ulonglong[::1]
    _next_hop_lo: cython.ulonglong[::1]
    _next_hop_length: cython.uchar[::1]  # octets: 0 (originated here), 4 or 16; 255 marks a free way
    _neighbor_as: cython.uint[::1]  # 0: our own AS (RFC 4271 §9.1.2.2 c)
    _originator: cython.uint[::1]
    _reflection: cython.uint[::1]  # length of the CLUSTER_LIST, times two, plus one where ORIGINATOR_ID is there
    _metric: cython.uint[::1]
    # What `_read_set` found.
    found_local_pref: cython.uint
    found_path: cython.uint
    found_med: cython.uint
    found_next_hop_hi: cython.ulonglong
    found_next_hop_lo: cython.ulonglong
    found_next_hop_length: cython.uchar
    found_neighbor_as: cython.uint
    found_originator: cython.uint
    found_reflection: cython.uint

    def __init__(self, seed: int, capacity: int = 1024):
        self.seed = seed & MASK64
        self.n_ways = 0
        self.top = 1
        self.free_head = 0
        self.record_column = allocate(max(capacity, 16) * FIELDS, np.uint32)
        self._record = memoryview(self.record_column)
        self.next_hop_hi_column = allocate(0, np.uint64)
        self.next_hop_lo_column = allocate(0, np.uint64)
        self.next_hop_length_column = allocate(0, np.uint8)
        self.neighbor_as_column = allocate(0, np.uint32)
        self.originator_column = allocate(0, np.uint32)
        self.reflection_column = allocate(0, np.uint32)
        self.metric_column = allocate(0, np.uint32)
        self._resize_ways(64)
        self._rebuild_slots(64)

    # ---- what others read -------------------------------------------------------------------------------------

    @property
    def records(self):
        """LOCAL_PREF, AS path length * 4 + ORIGIN, MED and way of each set (uint32, a line by set id)."""
        return self.record_column.reshape(-1, FIELDS)

    @property
    def metric(self):
        """The metric to each way's next hop (uint32 by way), UNREACHABLE where there is none; its owner writes it."""
        return self.metric_column

    @property
    def neighbor_as(self):
        """The neighboring AS of each way (uint32), 0 for our own."""
        return self.neighbor_as_column

    @property
    def n_ways_known(self) -> int:
        return self.n_ways

    @property
    def way_limit(self) -> int:
        """One more than the highest way in use."""
        return self.top

    @property
    def n_octets(self) -> int:
        """Octets of the columns: records and ways."""
        return self.record_column.nbytes + len(self.metric_column) * 33 + self._slots.shape[0] * 4

    def ways_of(self, ids):
        """The way of each set (uint32), 0 where nothing is known."""
        return self.records[ids, WAY]

    def next_hops(self, ways):
        """Next hops of `ways`: upper and lower half, left-aligned (uint64), and octets (uint8)."""
        return (
            self.next_hop_hi_column[ways],
            self.next_hop_lo_column[ways],
            self.next_hop_length_column[ways],
        )

    # ---- batches ----------------------------------------------------------------------------------------------

    def learn(
        self,
        ids: cython.uint[::1],
        set_offset: cython.const[cython.uint][::1],
        set_octets: cython.const[cython.uchar][::1],
    ):
        """Read the sets whose id is not known yet; return the ways that are new (uint32), their metric still 0.

        Set i is set_octets[set_offset[i]:set_offset[i + 1]]: octets of next hop, next hop, path attributes.
        """
        n: cython.Py_ssize_t = ids.shape[0]
        highest: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(n):
            highest = max(highest, ids[i])
        if (highest + 1) * FIELDS > self._record.shape[0]:
            self._resize_records(max(highest + 1, self._record.shape[0] // FIELDS * 3 // 2))
        if self.top + n >= self._metric.shape[0]:
            self._resize_ways(max(self.top + n + 1, self._metric.shape[0] * 3 // 2))
        if (self.n_ways + n) * 2 > self._slots.shape[0]:
            self._rebuild_slots(self.n_ways + n)
        new = np.empty(n, np.uint32)
        new_ways: cython.uint[::1] = memoryview(new)
        n_new: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        ways_before: cython.uint
        with cython.nogil:
            for i in range(n):
                at = ids[i] * FIELDS
                if self._record[at + WAY] != 0:
                    continue
                self._read_set(set_octets, set_offset[i], set_offset[i + 1])
                ways_before = self.n_ways
                self._record[at + LOCAL_PREF] = self.found_local_pref
                self._record[at + PATH] = self.found_path
                self._record[at + MED] = self.found_med
                self._record[at + WAY] = self._find_or_insert_way()
                if self.n_ways != ways_before:
                    new_ways[n_new] = self._record[at + WAY]
                    n_new += 1
        return new[:n_new]

    def forget(self, references: cython.uint[::1]):
        """Forget the sets that nobody refers to, and the ways that no known set has."""
        n: cython.Py_ssize_t = min(references.shape[0], self._record.shape[0] // FIELDS)
        used: cython.uchar[::1] = memoryview(np.zeros(self.top, np.uint8))
        i: cython.Py_ssize_t
        way: cython.uint
        with cython.nogil:
            for i in range(n):
                if references[i] == 0:
                    self._record[i * FIELDS + WAY] = 0
            for i in range(self._record.shape[0] // FIELDS):
                used[self._record[i * FIELDS + WAY]] = 1
            for way in range(1, self.top):
                if used[way] == 0 and self._next_hop_length[way] != 255:
                    self._next_hop_length[way] = 255
                    self._neighbor_as[way] = self.free_head
                    self.free_head = way
                    self.n_ways -= 1
        self._rebuild_slots(self.n_ways)

    # ---- reading one set --------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_set(
        self, octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        """Read what matters of one set; octets that are not as they should be end the reading."""
        flags: cython.uchar
        code: cython.uchar
        length: cython.Py_ssize_t
        med: cython.uint = 0  # RFC 4271 §9.1.2.2 c: without the attribute, the lowest value
        origin: cython.uint = 0
        self.found_local_pref = DEFAULT_LOCAL_PREF
        self.found_path = 0
        self.found_neighbor_as = 0
        self.found_originator = 0
        self.found_reflection = 0
        at = self._read_next_hop(octets, at, end)
        while at + 3 <= end:
            flags = octets[at]
            code = octets[at + 1]
            if flags & 0x10:
                if at + 4 > end:
                    break
                length = (cython.cast(cython.Py_ssize_t, octets[at + 2]) << 8) | octets[at + 3]
                at += 4
            else:
                length = octets[at + 2]
                at += 3
            if at + length > end or code > 10:
                break
            if code == 1 and length == 1:
                origin = octets[at] & 3
            elif code == 2:
                self._read_as_path(octets, at, at + length)
            elif code == 4 and length == 4:
                med = read_u32(octets, at)
            elif code == 5 and length == 4:
                self.found_local_pref = read_u32(octets, at)
            elif code == 9 and length == 4:
                self.found_originator = read_u32(octets, at)
                self.found_reflection |= 1
            elif code == 10:
                self.found_reflection |= cython.cast(cython.uint, (length >> 2) << 1)
            at += length
        self.found_path |= origin
        self.found_med = med

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_next_hop(
        self, octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Read the next hop (of a global and a link-local one, the global) and return the place behind it."""
        i: cython.Py_ssize_t
        length: cython.Py_ssize_t
        self.found_next_hop_hi = 0
        self.found_next_hop_lo = 0
        self.found_next_hop_length = 0
        if at >= end:
            return end
        length = octets[at]
        at += 1
        if at + length > end:
            return end
        self.found_next_hop_length = cython.cast(cython.uchar, min(length, 16))
        for i in range(min(length, 8)):
            self.found_next_hop_hi |= cython.cast(cython.ulonglong, octets[at + i]) << (56 - 8 * i)
        for i in range(8, min(length, 16)):
            self.found_next_hop_lo |= cython.cast(cython.ulonglong, octets[at + i]) << (120 - 8 * i)
        return at + length

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _read_as_path(
        self, octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        """Count the AS numbers (an AS_SET is one, confederation segments none) and find the neighboring AS."""
        n: cython.uint = 0
        kind: cython.uchar
        n_segment: cython.Py_ssize_t
        is_first: cython.bint = True
        while at + 2 <= end:
            kind = octets[at]
            n_segment = octets[at + 1]
            at += 2
            if at + 4 * n_segment > end:
                break
            if kind == 2:  # AS_SEQUENCE
                if is_first and n_segment > 0:
                    self.found_neighbor_as = read_u32(octets, at)
                    is_first = False
                n += cython.cast(cython.uint, n_segment)
            elif kind == 1:  # AS_SET; a path that begins with one counts as from our own AS (§9.1.2.2 c)
                n += 1
                is_first = False
            at += 4 * n_segment
        self.found_path = min(n, MAX_PATH_LENGTH) << 2

    # ---- the index of ways ------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _home(
        self,
        hi: cython.ulonglong,
        lo: cython.ulonglong,
        neighbor_as: cython.ulonglong,
        originator: cython.ulonglong,
        reflection: cython.ulonglong,
    ) -> cython.ulonglong:
        h: cython.ulonglong = ((hi ^ self.seed) * MIX_1) & MASK64
        h ^= h >> 32
        h = ((h ^ lo) * MIX_2) & MASK64
        h ^= h >> 32
        h = ((h ^ neighbor_as ^ (originator << 32)) * MIX_1) & MASK64
        h ^= h >> 32
        h = ((h ^ reflection) * MIX_2) & MASK64
        return (h ^ (h >> 29)) & (self._slots.shape[0] - 1)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find_or_insert_way(self) -> cython.uint:
        """Return the way of the set just read."""
        mask: cython.ulonglong = self._slots.shape[0] - 1
        slot: cython.ulonglong = self._home(
            self.found_next_hop_hi,
            self.found_next_hop_lo,
            self.found_neighbor_as,
            self.found_originator,
            self.found_reflection,
        )
        way: cython.uint
        while True:
            way = self._slots[slot]
            if way == 0:
                break
            if (
                self._next_hop_hi[way] == self.found_next_hop_hi
                and self._next_hop_lo[way] == self.found_next_hop_lo
                and self._next_hop_length[way] == self.found_next_hop_length
                and self._neighbor_as[way] == self.found_neighbor_as
                and self._originator[way] == self.found_originator
                and self._reflection[way] == self.found_reflection
            ):
                return way
            slot = (slot + 1) & mask
        if self.free_head != 0:
            way = self.free_head
            self.free_head = self._neighbor_as[way]
        else:
            way = self.top
            self.top += 1
        self._next_hop_hi[way] = self.found_next_hop_hi
        self._next_hop_lo[way] = self.found_next_hop_lo
        self._next_hop_length[way] = self.found_next_hop_length
        self._neighbor_as[way] = self.found_neighbor_as
        self._originator[way] = self.found_originator
        self._reflection[way] = self.found_reflection
        self._metric[way] = 0
        self._slots[slot] = way
        self.n_ways += 1
        return way

    @cython.cfunc
    def _rebuild_slots(self, n_ways: cython.Py_ssize_t):
        size: cython.Py_ssize_t = 128
        while size < n_ways * 2:
            size *= 2
        self._slots = memoryview(allocate(size, np.uint32))
        way: cython.uint
        slot: cython.ulonglong
        with cython.nogil:
            for way in range(1, self.top):
                if self._next_hop_length[way] == 255:
                    continue
                slot = self._home(
                    self._next_hop_hi[way],
                    self._next_hop_lo[way],
                    self._neighbor_as[way],
                    self._originator[way],
                    self._reflection[way],
                )
                while self._slots[slot] != 0:
                    slot = (slot + 1) & (size - 1)
                self._slots[slot] = way

    @cython.cfunc
    def _resize_records(self, n_sets: cython.Py_ssize_t):
        self.record_column = grown(self.record_column, n_sets * FIELDS)
        self._record = memoryview(self.record_column)

    @cython.cfunc
    def _resize_ways(self, capacity: cython.Py_ssize_t):
        self.next_hop_hi_column = grown(self.next_hop_hi_column, capacity)
        self._next_hop_hi = memoryview(self.next_hop_hi_column)
        self.next_hop_lo_column = grown(self.next_hop_lo_column, capacity)
        self._next_hop_lo = memoryview(self.next_hop_lo_column)
        self.next_hop_length_column = grown(self.next_hop_length_column, capacity)
        self._next_hop_length = memoryview(self.next_hop_length_column)
        self.neighbor_as_column = grown(self.neighbor_as_column, capacity)
        self._neighbor_as = memoryview(self.neighbor_as_column)
        self.originator_column = grown(self.originator_column, capacity)
        self._originator = memoryview(self.originator_column)
        self.reflection_column = grown(self.reflection_column, capacity)
        self._reflection = memoryview(self.reflection_column)
        self.metric_column = grown(self.metric_column, capacity)
        self._metric = memoryview(self.metric_column)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _step_between(rank: cython.ulonglong, lowest: cython.ulonglong) -> cython.int:
    """Return the first step in which two ranks differ (see `Decision._rank_of`)."""
    difference: cython.ulonglong = rank ^ lowest
    if difference == 0:
        return STEP_NONE
    if difference >> 48:
        return STEP_ORIGINATED
    if difference >> 16:
        return STEP_LOCAL_PREF
    return STEP_AS_PATH if difference >> 2 else STEP_ORIGIN


@cython.cclass
class Decision:
    """What is chosen for each prefix row: the route row (`best`, 0 for none) and the step that left it (`reason`)."""

    facts: SetFacts
    n_best: cython.longlong
    best_column: object
    reason_column: object
    _best: cython.uint[::1]
    _reason: cython.uchar[::1]
    # By source.
    _kind: cython.uchar[::1]
    _router_id: cython.uint[::1]
    _address_rank: cython.uint[::1]
    _path_id: cython.uint[::1]
    # The candidates of the prefix in hand, and which of them are left.
    _candidate: cython.uint[::1]
    _lost: cython.uchar[::1]
    _left: cython.uint[::1]
    _key: cython.uint[::1]
    _rank: cython.ulonglong[::1]
    _decided: cython.uchar  # the step that left one path
    _equal: cython.uint[::1]  # the candidates that no step up to METRIC has parted from the chosen one
    _n_equal: cython.Py_ssize_t
    _front: cython.uint[::1]  # see `_fetch_ahead`
    touched: cython.uint  # means nothing

    def __init__(self, facts, capacity: int = 1024):
        self.facts = facts
        self.n_best = 0
        self.touched = 0
        self._decided = STEP_NONE
        self._n_equal = 0
        self._front = memoryview(allocate(BLOCK, np.uint32))
        self.best_column = allocate(0, np.uint32)
        self.reason_column = allocate(0, np.uint8)
        self.ensure_prefixes(max(capacity, 16))
        none = np.empty(0, np.uint32)
        self.set_sources(np.empty(0, np.uint8), none, none, none)

    @property
    def best(self):
        """The chosen route row of each prefix row (uint32), 0 for none."""
        return self.best_column

    @property
    def reason(self):
        """The step that left the chosen path (uint8 by prefix row)."""
        return self.reason_column

    @property
    def n_chosen(self) -> int:
        """Prefixes that have a best path."""
        return self.n_best

    def ensure_prefixes(self, capacity: cython.Py_ssize_t):
        """Make room for prefix rows below `capacity`."""
        if capacity > len(self.best_column):
            self.best_column = grown(self.best_column, capacity)
            self._best = memoryview(self.best_column)
            self.reason_column = grown(self.reason_column, capacity)
            self._reason = memoryview(self.reason_column)

    def set_sources(
        self,
        kind: cython.uchar[::1],
        router_id: cython.uint[::1],
        address_rank: cython.uint[::1],
        path_id: cython.uint[::1],
    ):
        """Describe all sources, by number: kind (1 external, 2 originated here), router id, rank of the peer's address
        among all (equal for equal addresses), path identifier."""
        self._kind = kind
        self._router_id = router_id
        self._address_rank = address_rank
        self._path_id = path_id
        n: cython.Py_ssize_t = kind.shape[0]  # a chain has one row a source
        n = max(n, 1)
        self._candidate = memoryview(allocate(n, np.uint32))
        self._lost = memoryview(allocate(n, np.uint8))
        self._left = memoryview(allocate(n, np.uint32))
        self._equal = memoryview(allocate(n, np.uint32))
        self._key = memoryview(allocate(n, np.uint32))
        self._rank = memoryview(allocate(n, np.uint64))

    # ---- batches ----------------------------------------------------------------------------------------------

    def select(
        self,
        prefix_rows: cython.uint[::1],
        changed_rows: cython.uint[::1],
        head: cython.uint[::1],
        next_row: cython.uint[::1],
        source: cython.uint[::1],
        attributes: cython.uint[::1],
    ):
        """Choose anew for each of `prefix_rows`; return (changed, dead).

        `changed` (uint32) are the prefix rows whose chosen path is another one now; `dead` (uint32) the tombstones
        seen on the way, twice where a prefix row is named twice. changed_rows[i] is the route row of prefix_rows[i]
        whose attributes changed, or 0: where it stays the best, the path changed none the less. The other four are
        the columns of the route table.
        """
        n: cython.Py_ssize_t = prefix_rows.shape[0]
        changed = np.empty(n, np.uint32)
        changed_view: cython.uint[::1] = memoryview(changed)
        n_changed: cython.Py_ssize_t = 0
        n_dead: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t = 0
        fetched: cython.Py_ssize_t = 0
        k: cython.Py_ssize_t
        row: cython.uint
        prefix: cython.uint
        winner: cython.uint
        before: cython.uint
        room: cython.Py_ssize_t = n + self._candidate.shape[0]
        dead = np.empty(room, np.uint32)
        dead_view: cython.uint[::1] = memoryview(dead)
        while i < n:
            if n_dead + self._candidate.shape[0] > room:
                room = room * 2
                dead = grown(dead, room)
                dead_view = memoryview(dead)
            with cython.nogil:
                while i < n and n_dead + self._candidate.shape[0] <= room:
                    if i >= fetched:
                        fetched = min(i + BLOCK, n)
                        self._fetch_ahead(prefix_rows, i, fetched, head, next_row, source, attributes)
                    prefix = prefix_rows[i]
                    k = 0
                    row = head[prefix]
                    while row != 0:
                        if attributes[row] != 0:
                            self._candidate[k] = row
                            k += 1
                        else:
                            dead_view[n_dead] = row
                            n_dead += 1
                        row = next_row[row]
                    k = self._choose(k, source, attributes)
                    winner = 0 if k < 0 else self._candidate[k]
                    before = self._best[prefix]
                    if winner != before:
                        self._best[prefix] = winner
                        if before == 0:
                            self.n_best += 1
                        elif winner == 0:
                            self.n_best -= 1
                        changed_view[n_changed] = prefix
                        n_changed += 1
                    elif winner != 0 and winner == changed_rows[i]:
                        changed_view[n_changed] = prefix
                        n_changed += 1
                    self._reason[prefix] = self._decided
                    i += 1
        return changed[:n_changed], dead[:n_dead]

    def explain(
        self,
        prefix_row: cython.uint,
        head: cython.uint[::1],
        next_row: cython.uint[::1],
        source: cython.uint[::1],
        attributes: cython.uint[::1],
    ):
        """Return the candidates of one prefix (route rows), the step each lost in (0: chosen), the deciding step."""
        k: cython.Py_ssize_t = 0
        row: cython.uint = head[prefix_row]
        while row != 0:
            if attributes[row] != 0:
                self._candidate[k] = row
                k += 1
            row = next_row[row]
        self._choose(k, source, attributes)
        return np.array(self._candidate[:k], np.uint32), np.array(self._lost[:k], np.uint8), self._decided

    def usable(
        self,
        prefix_rows: cython.uint[::1],
        head: cython.uint[::1],
        next_row: cython.uint[::1],
        source: cython.uint[::1],
        attributes: cython.uint[::1],
    ):
        """List all usable paths of each prefix, the best first: (counts uint8, at most 255 each; route rows)."""
        n: cython.Py_ssize_t = prefix_rows.shape[0]
        counts = np.zeros(n, np.uint8)
        counts_view: cython.uchar[::1] = memoryview(counts)
        room: cython.Py_ssize_t = n + 256
        rows = np.empty(room, np.uint32)
        rows_view: cython.uint[::1] = memoryview(rows)
        n_rows: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        best: cython.uint
        for i in range(n):
            if n_rows + 256 > room:
                room = room * 2
                rows = grown(rows, room)
                rows_view = memoryview(rows)
            with cython.nogil:
                best = self._best[prefix_rows[i]]
                if best != 0:
                    rows_view[n_rows] = best
                    n_rows += 1
                    counts_view[i] = 1
                    row = head[prefix_rows[i]]
                    while row != 0 and counts_view[i] < 255:
                        if row != best and attributes[row] != 0 and self._is_usable(attributes[row]):
                            rows_view[n_rows] = row
                            n_rows += 1
                            counts_view[i] += 1
                        row = next_row[row]
        return counts, rows[:n_rows]

    def multipath(
        self,
        prefix_rows: cython.uint[::1],
        n_external: cython.Py_ssize_t,
        n_internal: cython.Py_ssize_t,
        head: cython.uint[::1],
        next_row: cython.uint[::1],
        source: cython.uint[::1],
        attributes: cython.uint[::1],
    ):
        """List the paths of each prefix that are as good as the chosen one: (counts uint8; route rows, it first).

        As good is what no step up to the metric of the next hop parts from it; what follows in RFC 4271 §9.1.2.2 only
        makes the choice definite. At most `n_external` (255) where the chosen one is external, else `n_internal`.
        """
        n: cython.Py_ssize_t = prefix_rows.shape[0]
        counts = np.zeros(n, np.uint8)
        counts_view: cython.uchar[::1] = memoryview(counts)
        room: cython.Py_ssize_t = n + 256
        rows = np.empty(room, np.uint32)
        rows_view: cython.uint[::1] = memoryview(rows)
        n_rows: cython.Py_ssize_t = 0
        limit: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        row: cython.uint
        best: cython.uint
        for i in range(n):
            if n_rows + 256 > room:
                room = room * 2
                rows = grown(rows, room)
                rows_view = memoryview(rows)
            with cython.nogil:
                best = self._best[prefix_rows[i]]
                if best != 0:
                    rows_view[n_rows] = best
                    n_rows += 1
                    counts_view[i] = 1
                    limit = n_external if self._kind[source[best]] & IS_EXTERNAL else n_internal
                    k = 0
                    if limit > 1:
                        row = head[prefix_rows[i]]
                        while row != 0:
                            if attributes[row] != 0:
                                self._candidate[k] = row
                                k += 1
                            row = next_row[row]
                    if k > 1:
                        self._choose(k, source, attributes)
                        for j in range(self._n_equal):
                            row = self._candidate[self._equal[j]]
                            if row != best and counts_view[i] < limit:
                                rows_view[n_rows] = row
                                n_rows += 1
                                counts_view[i] += 1
        return counts, rows[:n_rows]

    # ---- the process ------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_usable(self, set_id: cython.uint) -> cython.bint:
        way: cython.uint = self.facts._record[set_id * FIELDS + WAY]
        return self.facts._metric[way] != UNREACHABLE_METRIC

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fetch_ahead(
        self,
        prefix_rows: cython.uint[::1],
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        head: cython.uint[::1],
        next_row: cython.uint[::1],
        source: cython.uint[::1],
        attributes: cython.uint[::1],
    ) -> cython.void:
        """Touch what choosing for a block of prefixes will read, chains in step so that the cache misses overlap."""
        n_moved: cython.uint = 1
        touched: cython.uint = 0
        row: cython.uint
        i: cython.Py_ssize_t
        for i in range(first, end):
            touched ^= self._best[prefix_rows[i]] ^ self._reason[prefix_rows[i]]
            self._front[i - first] = head[prefix_rows[i]]
        while n_moved != 0:
            n_moved = 0
            for i in range(end - first):
                touched ^= self.facts._record[attributes[self._front[i]] * FIELDS] ^ source[self._front[i]]
            for i in range(end - first):
                row = next_row[self._front[i]] if self._front[i] != 0 else 0
                self._front[i] = row
                n_moved |= row
        self.touched = touched

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _choose(
        self, n: cython.Py_ssize_t, source: cython.uint[::1], attributes: cython.uint[::1]
    ) -> cython.Py_ssize_t:
        """Choose among the first n of `_candidate`; return the index of the best, -1 for none.

        Writes the step in which each lost into `_lost`, and the step that left one into `_decided`.
        """
        n_left: cython.Py_ssize_t = 0
        n_before: cython.Py_ssize_t
        i: cython.Py_ssize_t
        set_id: cython.uint
        rank: cython.ulonglong
        lowest: cython.ulonglong = UNUSABLE
        second: cython.ulonglong = UNUSABLE
        step: cython.int
        for i in range(n):
            set_id = attributes[self._candidate[i]]
            # RFC 4271 §9.1.2: "If the NEXT_HOP attribute of a BGP route depicts an address that is not resolvable ...
            # the BGP route MUST be excluded from the Phase 2 decision function."
            rank = self._rank_of(source[self._candidate[i]], set_id) if self._is_usable(set_id) else UNUSABLE
            self._rank[i] = rank
            if rank < lowest:
                second = lowest
                lowest = rank
                n_left = 0
            elif rank > lowest and rank < second:
                second = rank
            if rank == lowest and rank != UNUSABLE:
                self._left[n_left] = cython.cast(cython.uint, i)
                n_left += 1
        for i in range(n):
            self._lost[i] = cython.cast(
                cython.uchar, STEP_UNREACHABLE if self._rank[i] == UNUSABLE else _step_between(self._rank[i], lowest)
            )
        self._n_equal = 0
        if n_left == 0:
            self._decided = STEP_NONE
            return -1
        self._decided = cython.cast(cython.uchar, STEP_ONLY if second == UNUSABLE else _step_between(second, lowest))
        step = STEP_MED
        while n_left > 1 and step <= STEP_PATH_ID:
            n_before = n_left
            if step == STEP_ROUTER_ID:
                self._n_equal = n_left
                for i in range(n_left):
                    self._equal[i] = self._left[i]
            if step == STEP_MED:
                n_left = self._keep_lowest_med(n_left, attributes)
            else:
                n_left = self._keep_lowest(step, n_left, source, attributes)
            if n_left != n_before:
                self._decided = cython.cast(cython.uchar, step)
            step += 1
        # Two left would be two rows of one source, which the route table does not have; keep to the first.
        return self._left[0]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _rank_of(self, source: cython.uint, set_id: cython.uint) -> cython.ulonglong:
        """What the steps before MULTI_EXIT_DISC compare, the earlier in the higher bits: the lowest is the best."""
        at: cython.Py_ssize_t = set_id * FIELDS
        # §9.1.1 leaves the preference of what we originate to us: above all that is learned.
        learned: cython.ulonglong = 0 if self._kind[source] & IS_ORIGINATED else 1
        # §9.1.2 b): "highest degree of preference of any route to the same set of destinations".
        dislike: cython.ulonglong = HIGHEST - self.facts._record[at + LOCAL_PREF]
        # §9.1.2.2 a): "not tied for having the smallest number of AS numbers present in their AS_PATH attributes";
        # b): "not tied for having the lowest Origin number in their Origin attribute".
        return (learned << 48) | (dislike << 16) | self.facts._record[at + PATH]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_lowest(
        self, step: cython.int, n_left: cython.Py_ssize_t, source: cython.uint[::1], attributes: cython.uint[::1]
    ) -> cython.Py_ssize_t:
        """Remove those whose key of this step is not the lowest; return how many are left."""
        lowest: cython.uint = HIGHEST
        key: cython.uint
        kept: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        for i in range(n_left):
            row = self._candidate[self._left[i]]
            key = self._key_of(step, source[row], attributes[row])
            self._key[i] = key
            if key < lowest:
                lowest = key
        for i in range(n_left):
            if self._key[i] == lowest:
                self._left[kept] = self._left[i]
                kept += 1
            else:
                self._lost[self._left[i]] = cython.cast(cython.uchar, step)
        return kept

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _key_of(self, step: cython.int, source: cython.uint, set_id: cython.uint) -> cython.uint:
        """What a step after MULTI_EXIT_DISC compares, so that the lowest is the best."""
        way: cython.uint = self.facts._record[set_id * FIELDS + WAY]
        reflection: cython.uint = self.facts._reflection[way]
        # d): "If at least one of the candidate routes was received via EBGP, remove ... all routes ... via IBGP."
        if step == STEP_EXTERNAL:
            return 0 if self._kind[source] & IS_EXTERNAL else 1
        # e): "Remove from consideration any routes with less-preferred interior cost."
        if step == STEP_METRIC:
            return self.facts._metric[way]
        # f): "other than the route that was advertised by the BGP speaker with the lowest BGP Identifier value";
        # RFC 4456 §9: where the route carries ORIGINATOR_ID, it is used in place of that.
        if step == STEP_ROUTER_ID:
            return self.facts._originator[way] if reflection & 1 else self._router_id[source]
        # RFC 4456 §9, between f) and g): "a BGP Speaker SHOULD prefer a route with the shorter CLUSTER_LIST length".
        if step == STEP_CLUSTER_LIST:
            return reflection >> 1
        # g): "Prefer the route received from the lowest peer address."
        if step == STEP_ADDRESS:
            return self._address_rank[source]
        # Two paths of one peer (RFC 7911), equal in all else.
        return self._path_id[source]

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep_lowest_med(self, n_left: cython.Py_ssize_t, attributes: cython.uint[::1]) -> cython.Py_ssize_t:
        """Remove those that have a higher MED than another from the same neighboring AS; return how many are left.

        §9.1.2.2 c): "for m = all routes still under consideration, for n = all routes still under consideration,
        if (neighborAS(m) == neighborAS(n)) and (MED(n) < MED(m)): remove route m from consideration".
        """
        kept: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t
        other: cython.Py_ssize_t
        neighbor_as: cython.uint
        med: cython.uint
        is_beaten: cython.bint
        all_equal: cython.bint = True
        for i in range(n_left):
            self._key[i] = attributes[self._candidate[self._left[i]]]
            if self.facts._record[self._key[i] * FIELDS + MED] != self.facts._record[self._key[0] * FIELDS + MED]:
                all_equal = False
        if all_equal:
            return n_left
        for i in range(n_left):
            at = self._key[i] * FIELDS
            med = self.facts._record[at + MED]
            neighbor_as = self.facts._neighbor_as[self.facts._record[at + WAY]]
            is_beaten = False
            for j in range(n_left):
                other = self._key[j] * FIELDS
                if (
                    self.facts._record[other + MED] < med
                    and self.facts._neighbor_as[self.facts._record[other + WAY]] == neighbor_as
                ):
                    is_beaten = True
                    break
            if is_beaten:
                self._lost[self._left[i]] = cython.cast(cython.uchar, STEP_MED)
            else:
                self._left[kept] = self._left[i]
                kept += 1
        return kept


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
