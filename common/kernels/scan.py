"""Scans the octets a peer sent: whole messages, each UPDATE checked, split and rewritten into columns in one pass.

Owns the column scratch that a scan fills and the next scan overwrites. Never keeps a route, never looks at what a
prefix or an attribute means for routing, and trusts no length it has not checked. What it writes for each family:

    routes   hi, lo, length, path_id | set: index of the attribute set in this scan, NONE = withdrawn
    sets     set_offset, set_octets: 1 octet next hop length, the next hop, the attributes in canonical form

Canonical form: ascending type code, each attribute once, without NEXT_HOP, MP_REACH_NLRI and MP_UNREACH_NLRI; AS_PATH
and AGGREGATOR with four-octet AS numbers, AS4_PATH and AS4_AGGREGATOR merged into them; Extended Length only where the
length needs it; Partial only on optional transitive attributes; the low bits of the flags zero.

The three ways to handle an error (RFC 7606 §2) are here numbers: DISCARD < WITHDRAW < RESET; the strongest of a message
is what happens to it (§3.h). After a RESET nothing of that message is delivered, everything before it is.

RFC 4271 §4, §6.1, §6.3; RFC 4760 §3, §4, §7; RFC 6793 §4.2.3, §6; RFC 7606; RFC 7607; RFC 7911 §3; RFC 8092 §5;
RFC 8654; RFC 8950 §4; RFC 9774 §3. Attributes that no session can enable yet (AIGP, BGPsec_PATH, BGP-LS) are unknown
here.
"""

from typing import NamedTuple

import cython
import numpy as np

from common.arrays import allocate
from common.bgp.constants import (
    AS_TRANS,
    HEADER_OCTETS,
    MAX_EXTENDED_MESSAGE_OCTETS,
    MAX_MESSAGE_OCTETS,
    NONE,
    SHORTEST_MESSAGE_OCTETS,
    AttributeFlag,
    AttributeType,
    ErrorCode,
    MessageHeaderSubcode,
    MessageType,
    Origin,
    SegmentType,
    UpdateSubcode,
)

# Why a scan ended.
NEED_MORE = 0  # what is left is not a whole message
MESSAGE = 1  # a message other than UPDATE and KEEPALIVE; `consumed` is behind it
ERROR = 2  # a NOTIFICATION is due; `consumed` is before the message that is wrong
FULL = 3  # the scratch is full: take the columns and scan again

_MESSAGE = cython.declare(cython.uint, MESSAGE)
_ERROR = cython.declare(cython.uint, ERROR)
_NEED_MORE = cython.declare(cython.uint, NEED_MORE)
_FULL = cython.declare(cython.uint, FULL)
_NONE = cython.declare(cython.uint, NONE)
MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
HIGH32 = cython.declare(cython.ulonglong, 0xFFFFFFFF00000000)

# How an error is handled. RFC 7606 §2
DISCARD = cython.declare(cython.uint, 1)
WITHDRAW = cython.declare(cython.uint, 2)
RESET = cython.declare(cython.uint, 3)

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_OCTETS)
_MAX_PLAIN = cython.declare(cython.Py_ssize_t, MAX_MESSAGE_OCTETS)
_AS_TRANS = cython.declare(cython.uint, AS_TRANS)
_OPEN_SHORTEST = cython.declare(cython.Py_ssize_t, SHORTEST_MESSAGE_OCTETS[MessageType.OPEN])
_UPDATE_SHORTEST = cython.declare(cython.Py_ssize_t, SHORTEST_MESSAGE_OCTETS[MessageType.UPDATE])
_NOTIFICATION_SHORTEST = cython.declare(cython.Py_ssize_t, SHORTEST_MESSAGE_OCTETS[MessageType.NOTIFICATION])
_ROUTE_REFRESH_SHORTEST = cython.declare(cython.Py_ssize_t, SHORTEST_MESSAGE_OCTETS[MessageType.ROUTE_REFRESH])
_LARGEST_ATTRIBUTE = cython.declare(cython.Py_ssize_t, 65535)
_MOST_LARGE_COMMUNITIES = cython.declare(cython.Py_ssize_t, 65535 // 12 + 1)

_OPEN = cython.declare(cython.uint, int(MessageType.OPEN))
_UPDATE = cython.declare(cython.uint, int(MessageType.UPDATE))
_NOTIFICATION = cython.declare(cython.uint, int(MessageType.NOTIFICATION))
_KEEPALIVE = cython.declare(cython.uint, int(MessageType.KEEPALIVE))
_ROUTE_REFRESH = cython.declare(cython.uint, int(MessageType.ROUTE_REFRESH))

_OPTIONAL = cython.declare(cython.uint, int(AttributeFlag.OPTIONAL))
_TRANSITIVE = cython.declare(cython.uint, int(AttributeFlag.TRANSITIVE))
_PARTIAL = cython.declare(cython.uint, int(AttributeFlag.PARTIAL))
_EXTENDED = cython.declare(cython.uint, int(AttributeFlag.EXTENDED_LENGTH))
_CATEGORY = cython.declare(cython.uint, int(AttributeFlag.OPTIONAL | AttributeFlag.TRANSITIVE))
_UNKNOWN = cython.declare(cython.uint, 0xFF)

_ORIGIN = cython.declare(cython.uint, int(AttributeType.ORIGIN))
_AS_PATH = cython.declare(cython.uint, int(AttributeType.AS_PATH))
_NEXT_HOP = cython.declare(cython.uint, int(AttributeType.NEXT_HOP))
_AGGREGATOR = cython.declare(cython.uint, int(AttributeType.AGGREGATOR))
_MP_REACH = cython.declare(cython.uint, int(AttributeType.MP_REACH_NLRI))
_MP_UNREACH = cython.declare(cython.uint, int(AttributeType.MP_UNREACH_NLRI))
_AS4_PATH = cython.declare(cython.uint, int(AttributeType.AS4_PATH))
_AS4_AGGREGATOR = cython.declare(cython.uint, int(AttributeType.AS4_AGGREGATOR))
_LARGE_COMMUNITY = cython.declare(cython.uint, int(AttributeType.LARGE_COMMUNITY))

_AS_SET = cython.declare(cython.uint, int(SegmentType.AS_SET))
_AS_SEQUENCE = cython.declare(cython.uint, int(SegmentType.AS_SEQUENCE))
_AS_CONFED_SEQUENCE = cython.declare(cython.uint, int(SegmentType.AS_CONFED_SEQUENCE))
_AS_CONFED_SET = cython.declare(cython.uint, int(SegmentType.AS_CONFED_SET))
_LAST_ORIGIN = cython.declare(cython.uint, int(max(Origin)))

_HEADER_ERROR = cython.declare(cython.uint, int(ErrorCode.MESSAGE_HEADER_ERROR))
_UPDATE_ERROR = cython.declare(cython.uint, int(ErrorCode.UPDATE_MESSAGE_ERROR))
_NOT_SYNCHRONIZED = cython.declare(cython.uint, int(MessageHeaderSubcode.CONNECTION_NOT_SYNCHRONIZED))
_BAD_LENGTH = cython.declare(cython.uint, int(MessageHeaderSubcode.BAD_MESSAGE_LENGTH))
_BAD_TYPE = cython.declare(cython.uint, int(MessageHeaderSubcode.BAD_MESSAGE_TYPE))
_MALFORMED_LIST = cython.declare(cython.uint, int(UpdateSubcode.MALFORMED_ATTRIBUTE_LIST))
_UNRECOGNIZED = cython.declare(cython.uint, int(UpdateSubcode.UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE))
_MISSING = cython.declare(cython.uint, int(UpdateSubcode.MISSING_WELL_KNOWN_ATTRIBUTE))
_FLAGS_ERROR = cython.declare(cython.uint, int(UpdateSubcode.ATTRIBUTE_FLAGS_ERROR))
_LENGTH_ERROR = cython.declare(cython.uint, int(UpdateSubcode.ATTRIBUTE_LENGTH_ERROR))
_BAD_ORIGIN = cython.declare(cython.uint, int(UpdateSubcode.INVALID_ORIGIN_ATTRIBUTE))
_BAD_NEXT_HOP = cython.declare(cython.uint, int(UpdateSubcode.INVALID_NEXT_HOP_ATTRIBUTE))
_OPTIONAL_ERROR = cython.declare(cython.uint, int(UpdateSubcode.OPTIONAL_ATTRIBUTE_ERROR))
_BAD_NETWORK = cython.declare(cython.uint, int(UpdateSubcode.INVALID_NETWORK_FIELD))
_BAD_PATH = cython.declare(cython.uint, int(UpdateSubcode.MALFORMED_AS_PATH))

# What is wrong with an AS path.
_PATH_GOOD = cython.declare(cython.uint, 0)
_PATH_MALFORMED = cython.declare(cython.uint, 1)
_PATH_HAS_SET = cython.declare(cython.uint, 2)

_T = int(AttributeFlag.TRANSITIVE)
_O = int(AttributeFlag.OPTIONAL)
_ANY = 65535
# The attributes Headrace knows, and RFC 7606 §7 as data:
# category, shortest, longest and unit of the value in octets, what a wrong length leads to, only from internal peers.
RULES = {
    AttributeType.ORIGIN: (_T, 1, 1, 1, WITHDRAW, False),  # §7.1
    AttributeType.AS_PATH: (_T, 0, _ANY, 1, WITHDRAW, False),  # §7.2
    AttributeType.NEXT_HOP: (_T, 0, _ANY, 1, WITHDRAW, False),  # §7.3, judged when all attributes are seen
    AttributeType.MULTI_EXIT_DISC: (_O, 4, 4, 1, WITHDRAW, False),  # §7.4
    AttributeType.LOCAL_PREF: (_T, 4, 4, 1, WITHDRAW, True),  # §7.5
    AttributeType.ATOMIC_AGGREGATE: (_T, 0, 0, 1, DISCARD, False),  # §7.6
    AttributeType.AGGREGATOR: (_O | _T, 6, 8, 2, DISCARD, False),  # §7.7
    AttributeType.COMMUNITIES: (_O | _T, 4, _ANY, 4, WITHDRAW, False),  # §7.8
    AttributeType.ORIGINATOR_ID: (_O, 4, 4, 1, WITHDRAW, True),  # §7.9
    AttributeType.CLUSTER_LIST: (_O, 4, _ANY, 4, WITHDRAW, True),  # §7.10
    AttributeType.MP_REACH_NLRI: (_O, 5, _ANY, 1, RESET, False),  # §7.11, §5.3
    AttributeType.MP_UNREACH_NLRI: (_O, 3, _ANY, 1, RESET, False),  # §7.12, §5.3
    AttributeType.EXTENDED_COMMUNITIES: (_O | _T, 8, _ANY, 8, WITHDRAW, False),  # §7.14
    AttributeType.AS4_PATH: (_O | _T, 6, _ANY, 2, DISCARD, False),  # RFC 6793 §6
    AttributeType.AS4_AGGREGATOR: (_O | _T, 8, 8, 1, DISCARD, False),  # RFC 6793 §6
    AttributeType.IPV6_EXTENDED_COMMUNITIES: (_O | _T, 20, _ANY, 20, WITHDRAW, False),  # §7.15
    AttributeType.LARGE_COMMUNITY: (_O | _T, 12, _ANY, 12, WITHDRAW, False),  # RFC 8092 §6
    AttributeType.ONLY_TO_CUSTOMER: (_O | _T, 4, 4, 1, WITHDRAW, False),  # RFC 9234 §5
}


class ScannedRoutes(NamedTuple):
    """What a scan found of one family, in the order it was sent: views that the next scan overwrites."""

    hi: np.ndarray  # uint64
    lo: np.ndarray  # uint64; empty for IPv4
    length: np.ndarray  # uint8, bits
    path_id: np.ndarray  # uint32; zeros without ADD-PATH
    set: np.ndarray  # uint32, index of the attribute set, NONE = withdrawn
    set_offset: np.ndarray  # uint32, one more than there are sets
    set_octets: np.ndarray  # uint8


@cython.cclass
class Options:
    """How one session's octets are to be read: what it negotiated, and what is configured.

    `families` and `add_path` are sums of `Family.bit`; the routes of families not named are ignored.
    """

    as4: cython.bint
    external: cython.bint
    families: cython.uint
    add_path: cython.uint
    max_message: cython.uint
    accept_as_sets: cython.bint
    accept_confederation: cython.bint
    extended_next_hop: cython.bint

    def __init__(
        self,
        *,
        as4: bool = True,
        external: bool = True,
        families: int = 3,
        add_path: int = 0,
        max_message: int = MAX_MESSAGE_OCTETS,
        accept_as_sets: bool = False,
        accept_confederation: bool = False,
        extended_next_hop: bool = False,
    ):
        self.as4 = as4
        self.external = external
        self.families = families
        self.add_path = add_path
        self.max_message = max_message
        self.accept_as_sets = accept_as_sets
        self.accept_confederation = accept_confederation
        self.extended_next_hop = extended_next_hop


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy_octets(
    source: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    target: cython.uchar[::1],
    to: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(n):
        target[to + i] = source[at + i]


@cython.final
@cython.cclass
class Scanner:
    """Scratch columns and the scan that fills them; one serves all sessions of a process, one after the other.

    The columns of both families share their arrays: the first half is the narrow family's, the second the wide one's.
    """

    # ---- results of the last scan -------------------------------------------------------------------------------
    consumed = cython.declare(cython.Py_ssize_t, visibility="readonly")  # where the next scan starts
    stop = cython.declare(cython.uint, visibility="readonly")  # NEED_MORE, MESSAGE, ERROR or FULL
    n_updates = cython.declare(cython.uint, visibility="readonly")
    n_keepalives = cython.declare(cython.uint, visibility="readonly")
    end_of_rib = cython.declare(cython.uint, visibility="readonly")  # sum of Family.bit
    # stop == MESSAGE: that message; stop == ERROR: the message that is wrong
    message_type = cython.declare(cython.uint, visibility="readonly")
    message_offset = cython.declare(cython.Py_ssize_t, visibility="readonly")
    message_length = cython.declare(cython.Py_ssize_t, visibility="readonly")
    # stop == ERROR: what the NOTIFICATION says; its data is a slice of the scanned octets
    error_code = cython.declare(cython.uint, visibility="readonly")
    error_subcode = cython.declare(cython.uint, visibility="readonly")
    error_offset = cython.declare(cython.Py_ssize_t, visibility="readonly")
    error_length = cython.declare(cython.Py_ssize_t, visibility="readonly")
    # UPDATEs treated as withdraw, and the first of them: the message, the attribute's type (0: none), UpdateSubcode
    n_withdrawn = cython.declare(cython.uint, visibility="readonly")
    n_as_sets = cython.declare(cython.uint, visibility="readonly")  # those of them due to RFC 9774
    withdrawn_offset = cython.declare(cython.Py_ssize_t, visibility="readonly")
    withdrawn_length = cython.declare(cython.Py_ssize_t, visibility="readonly")
    withdrawn_attribute = cython.declare(cython.uint, visibility="readonly")
    withdrawn_reason = cython.declare(cython.uint, visibility="readonly")
    # attributes discarded, and the first of them
    n_discarded = cython.declare(cython.uint, visibility="readonly")
    discarded_offset = cython.declare(cython.Py_ssize_t, visibility="readonly")
    discarded_length = cython.declare(cython.Py_ssize_t, visibility="readonly")
    discarded_attribute = cython.declare(cython.uint, visibility="readonly")
    discarded_reason = cython.declare(cython.uint, visibility="readonly")

    # ---- the columns --------------------------------------------------------------------------------------------
    capacity: cython.Py_ssize_t  # octets one scan may take in; also the most routes of a family it can find
    set_capacity: cython.Py_ssize_t
    set_octets_capacity: cython.Py_ssize_t
    hi_column: object
    lo_column: object
    length_column: object
    path_id_column: object
    set_column: object
    set_offset_column: object
    set_octets_column: object
    _hi: cython.ulonglong[::1]
    _lo: cython.ulonglong[::1]
    _length: cython.uchar[::1]
    _path_id: cython.uint[::1]
    _set: cython.uint[::1]
    _set_offset: cython.uint[::1]
    _set_octets: cython.uchar[::1]
    _n_routes: cython.uint[::1]  # by family
    _n_sets: cython.uint[::1]
    _n_set_octets: cython.uint[::1]

    # ---- the rules, by attribute type ---------------------------------------------------------------------------
    _category: cython.uchar[::1]
    _shortest: cython.uint[::1]
    _longest: cython.uint[::1]
    _unit: cython.uint[::1]
    _consequence: cython.uchar[::1]
    _is_internal: cython.uchar[::1]

    # ---- the session and the message being scanned --------------------------------------------------------------
    _in: cython.const[cython.uchar][::1]
    as4: cython.bint
    external: cython.bint
    families: cython.uint
    add_path: cython.uint
    accept_as_sets: cython.bint
    accept_confederation: cython.bint
    extended_next_hop: cython.bint
    start: cython.Py_ssize_t
    end: cython.Py_ssize_t
    verdict: cython.uint  # the strongest consequence so far
    fault_attribute: cython.uint  # of the first WITHDRAW or RESET
    fault_reason: cython.uint
    fault_offset: cython.Py_ssize_t
    fault_length: cython.Py_ssize_t
    is_as_set: cython.bint
    # Attributes seen: by type, whether in this message (stamp) and where it is
    stamp: cython.ulonglong
    _stamps: cython.ulonglong[::1]
    _flags: cython.uchar[::1]
    _at: cython.Py_ssize_t[::1]
    _value: cython.Py_ssize_t[::1]
    _size: cython.Py_ssize_t[::1]
    # Types that go into the set, ascending
    n_kept: cython.Py_ssize_t
    _kept: cython.uchar[::1]
    n_seen: cython.uint
    reach_family: cython.int  # -1: none, or one that is not ours
    reach_at: cython.Py_ssize_t
    reach_end: cython.Py_ssize_t
    unreach_family: cython.int
    unreach_at: cython.Py_ssize_t
    unreach_end: cython.Py_ssize_t
    # AS_PATH with four-octet numbers when the peer sent two-octet ones
    _path: cython.uchar[::1]
    path_size: cython.Py_ssize_t
    path_segment: cython.Py_ssize_t  # where the last segment written to _path starts, -1: none
    use_as4_aggregator: cython.bint
    # Large communities: their numbers, sorted (two halves, for merging), and which are repeated
    _order: cython.uint[::1]
    _is_repeated: cython.uchar[::1]

    def __init__(self, capacity_octets: int = 1 << 18):
        # A whole message must fit, however large.
        self.capacity = max(capacity_octets, 2 * MAX_EXTENDED_MESSAGE_OCTETS)
        self.set_capacity = self.capacity // 23 + 3
        # Two-octet AS numbers double at most; a next hop and its length are no longer than they were in the message.
        self.set_octets_capacity = 2 * self.capacity + 64
        self._allocate_columns()
        self._allocate_rules()
        self._in = memoryview(b"")
        self._n_routes = memoryview(allocate(2, np.uint32))
        self._n_sets = memoryview(allocate(2, np.uint32))
        self._n_set_octets = memoryview(allocate(2, np.uint32))
        self._stamps = memoryview(allocate(256, np.uint64))
        self._at = memoryview(allocate(256, np.intp))
        self._flags = memoryview(allocate(256, np.uint8))
        self._value = memoryview(allocate(256, np.intp))
        self._size = memoryview(allocate(256, np.intp))
        self._kept = memoryview(allocate(256, np.uint8))
        self._path = memoryview(allocate(2 * MAX_EXTENDED_MESSAGE_OCTETS + 64, np.uint8))
        self._order = memoryview(allocate(2 * _MOST_LARGE_COMMUNITIES, np.uint32))
        self._is_repeated = memoryview(allocate(_MOST_LARGE_COMMUNITIES, np.uint8))
        self.stamp = 0
        self._begin(0)

    # ---- what others read -----------------------------------------------------------------------------------------

    def routes(self, family: cython.Py_ssize_t):
        """Return the `ScannedRoutes` of a family (its index); they are views, good until the next scan."""
        base: cython.Py_ssize_t = family * self.capacity
        sets: cython.Py_ssize_t = family * self.set_capacity
        octets: cython.Py_ssize_t = family * self.set_octets_capacity
        n: cython.Py_ssize_t = self._n_routes[family]
        return ScannedRoutes(
            self.hi_column[base : base + n],
            self.lo_column[:n] if family == 1 else self.lo_column[:0],
            self.length_column[base : base + n],
            self.path_id_column[base : base + n],
            self.set_column[base : base + n],
            self.set_offset_column[sets : sets + self._n_sets[family] + 1],
            self.set_octets_column[octets : octets + self._n_set_octets[family]],
        )

    def n_routes(self, family: cython.Py_ssize_t) -> int:
        """Return how many announcements and withdrawals of a family (its index) the last scan found."""
        return self._n_routes[family]

    # ---- the scan -------------------------------------------------------------------------------------------------

    def scan(
        self,
        buffer: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        options: Options,
    ):
        """Take in the whole messages of buffer[start:end]; return why it stopped.

        All results are attributes of the scanner, offsets are into `buffer`. UPDATEs and KEEPALIVEs are consumed
        until something else is met: see NEED_MORE, MESSAGE, ERROR, FULL.
        """
        if not cython.compiled:
            buffer = memoryview(buffer)
        if not 0 <= start <= end <= buffer.shape[0]:
            raise ValueError("scan range outside the buffer")
        self._in = buffer
        self.as4 = options.as4
        self.external = options.external
        self.families = options.families
        self.add_path = options.add_path
        self.accept_as_sets = options.accept_as_sets
        self.accept_confederation = options.accept_confederation
        self.extended_next_hop = options.extended_next_hop
        max_message: cython.Py_ssize_t = options.max_message
        limit: cython.Py_ssize_t = min(end, start + self.capacity)
        self._begin(start)
        with cython.nogil:
            while self._scan_message(limit, max_message):
                pass
        if self.stop == _NEED_MORE and limit < end:
            self.stop = _FULL
        # Let go of the buffer, so that its owner can resize it.
        self._in = memoryview(b"")
        return self.stop

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _begin(self, start: cython.Py_ssize_t) -> cython.void:
        self.consumed = start
        self.stop = _NEED_MORE
        self.n_updates = 0
        self.n_keepalives = 0
        self.end_of_rib = 0
        self.message_type = 0
        self.message_offset = start
        self.message_length = 0
        self.error_code = 0
        self.error_subcode = 0
        self.error_offset = start
        self.error_length = 0
        self.n_withdrawn = 0
        self.n_as_sets = 0
        self.withdrawn_offset = start
        self.withdrawn_length = 0
        self.withdrawn_attribute = 0
        self.withdrawn_reason = 0
        self.n_discarded = 0
        self.discarded_offset = start
        self.discarded_length = 0
        self.discarded_attribute = 0
        self.discarded_reason = 0
        family: cython.Py_ssize_t
        for family in range(2):
            self._n_routes[family] = 0
            self._n_sets[family] = 0
            self._n_set_octets[family] = 0
            self._set_offset[family * self.set_capacity] = 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_message(self, limit: cython.Py_ssize_t, max_message: cython.Py_ssize_t) -> cython.bint:
        """Take in one message at `consumed`; tell whether to go on."""
        at: cython.Py_ssize_t = self.consumed
        if limit - at < _HEADER:
            return False
        length: cython.Py_ssize_t = self._u16(at + 16)
        kind: cython.uint = self._in[at + 18]
        if not self._check_header(at, length, kind, max_message):
            return False
        if limit - at < length:
            return False
        if kind == _KEEPALIVE:
            self.n_keepalives += 1
        elif kind == _UPDATE:
            if not self._scan_update(at, length):
                return False
            self.n_updates += 1
        else:
            self._stop_at(_MESSAGE, at, length, kind)
        self.consumed = at + length
        return self.stop == _NEED_MORE

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_header(
        self,
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
        kind: cython.uint,
        max_message: cython.Py_ssize_t,
    ) -> cython.bint:
        """RFC 4271 §6.1; as soon as a header is there, without waiting for the rest."""
        i: cython.Py_ssize_t
        for i in range(16):
            if self._in[at + i] != 0xFF:
                return self._fail_header(at, length, kind, _NOT_SYNCHRONIZED, at, 0)
        shortest: cython.Py_ssize_t = _HEADER
        longest: cython.Py_ssize_t = max_message
        if kind == _UPDATE:
            shortest = _UPDATE_SHORTEST
        elif kind == _KEEPALIVE:
            longest = _HEADER
        elif kind == _OPEN:
            shortest = _OPEN_SHORTEST
            # RFC 8654 §4: OPEN and KEEPALIVE stay within 4,096 octets.
            longest = _MAX_PLAIN
        elif kind == _NOTIFICATION:
            shortest = _NOTIFICATION_SHORTEST
        elif kind == _ROUTE_REFRESH:
            shortest = _ROUTE_REFRESH_SHORTEST
        if length < shortest or length > longest:
            return self._fail_header(at, length, kind, _BAD_LENGTH, at + 16, 2)
        if kind < _OPEN or kind > _ROUTE_REFRESH:
            return self._fail_header(at, length, kind, _BAD_TYPE, at + 18, 1)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail_header(
        self,
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
        kind: cython.uint,
        subcode: cython.uint,
        data_at: cython.Py_ssize_t,
        data_length: cython.Py_ssize_t,
    ) -> cython.bint:
        self._stop_at(_ERROR, at, length, kind)
        self.error_code = _HEADER_ERROR
        self.error_subcode = subcode
        self.error_offset = data_at
        self.error_length = data_length
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _stop_at(
        self, stop: cython.uint, at: cython.Py_ssize_t, length: cython.Py_ssize_t, kind: cython.uint
    ) -> cython.void:
        self.stop = stop
        self.message_type = kind
        self.message_offset = at
        self.message_length = length

    # ---- one UPDATE -----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_update(self, at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.bint:
        """Take in the UPDATE at `at`, whole in the buffer; False if the session must be reset."""
        self.start = at
        self.end = at + length
        self._forget_message()
        withdrawn_at: cython.Py_ssize_t = at + _HEADER + 2
        withdrawn_end: cython.Py_ssize_t = withdrawn_at + self._u16(at + _HEADER)
        # RFC 7606 §3.a: fields longer than the message are a reset.
        if withdrawn_end + 2 > self.end:
            return self._fail_update(_MALFORMED_LIST, at, 0)
        attributes_at: cython.Py_ssize_t = withdrawn_end + 2
        attributes_end: cython.Py_ssize_t = attributes_at + self._u16(withdrawn_end)
        if attributes_end > self.end:
            return self._fail_update(_MALFORMED_LIST, at, 0)
        if length == _UPDATE_SHORTEST:
            # RFC 4724 §2: an empty UPDATE is the End-of-RIB of IPv4 unicast.
            self.end_of_rib |= self.families & 1
            return True
        self._walk_attributes(attributes_at, attributes_end)
        has_nlri: cython.bint = attributes_end < self.end
        if self.verdict != RESET:
            self._judge(has_nlri)
        routes_0: cython.uint = self._n_routes[0]
        routes_1: cython.uint = self._n_routes[1]
        octets_0: cython.uint = self._n_set_octets[0]
        octets_1: cython.uint = self._n_set_octets[1]
        sets_0: cython.uint = self._n_sets[0]
        sets_1: cython.uint = self._n_sets[1]
        if self.verdict != RESET:
            self._take_routes(withdrawn_at, withdrawn_end, attributes_end)
        if self.verdict == RESET:
            self._n_routes[0] = routes_0
            self._n_routes[1] = routes_1
            self._n_set_octets[0] = octets_0
            self._n_set_octets[1] = octets_1
            self._n_sets[0] = sets_0
            self._n_sets[1] = sets_1
            return self._fail_update(self.fault_reason, self.fault_offset, self.fault_length)
        if self.verdict == WITHDRAW:
            self._count_withdrawn()
        self._note_end_of_rib(withdrawn_at == withdrawn_end and not has_nlri)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _forget_message(self) -> cython.void:
        self.verdict = 0
        self.fault_attribute = 0
        self.fault_reason = 0
        self.fault_offset = self.start
        self.fault_length = 0
        self.is_as_set = False
        self.n_kept = 0
        self.n_seen = 0
        self.reach_family = -1
        self.reach_at = 0
        self.reach_end = 0
        self.unreach_family = -1
        self.unreach_at = 0
        self.unreach_end = 0
        self.path_size = 0
        self.use_as4_aggregator = False
        self.stamp += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fail_update(
        self, subcode: cython.uint, data_at: cython.Py_ssize_t, data_length: cython.Py_ssize_t
    ) -> cython.bint:
        self._stop_at(_ERROR, self.start, self.end - self.start, _UPDATE)
        self.error_code = _UPDATE_ERROR
        self.error_subcode = subcode
        self.error_offset = data_at
        self.error_length = data_length
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_withdrawn(self) -> cython.void:
        if self.n_withdrawn == 0:
            self.withdrawn_offset = self.start
            self.withdrawn_length = self.end - self.start
            self.withdrawn_attribute = self.fault_attribute
            self.withdrawn_reason = self.fault_reason
        self.n_withdrawn += 1
        if self.is_as_set:
            self.n_as_sets += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _note_end_of_rib(self, is_bare: cython.bint) -> cython.void:
        """RFC 4724 §2: an UPDATE with nothing but an MP_UNREACH_NLRI without routes."""
        if is_bare and self.n_seen == 1 and self.unreach_family >= 0 and self.unreach_at == self.unreach_end:
            self.end_of_rib |= 1 << self.unreach_family

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fault(
        self,
        consequence: cython.uint,
        attribute: cython.uint,
        reason: cython.uint,
        at: cython.Py_ssize_t,
        length: cython.Py_ssize_t,
    ) -> cython.void:
        """Note an error and what it leads to; the first of the strongest kind is the one that is told."""
        if consequence == DISCARD:
            if self.n_discarded == 0:
                self.discarded_offset = self.start
                self.discarded_length = self.end - self.start
                self.discarded_attribute = attribute
                self.discarded_reason = reason
            self.n_discarded += 1
        if consequence > self.verdict:
            self.verdict = consequence
            self.fault_attribute = attribute
            self.fault_reason = reason
            self.fault_offset = at
            self.fault_length = length

    # ---- attributes -------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _walk_attributes(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Find each attribute, check it and note what is to be kept."""
        header: cython.Py_ssize_t
        size: cython.Py_ssize_t
        code: cython.uint
        flags: cython.uint
        while at < end:
            # RFC 7606 §4: too little left for an attribute is treat-as-withdraw.
            if end - at < 3:
                self._fault(WITHDRAW, 0, _MALFORMED_LIST, at, end - at)
                return
            flags = self._in[at]
            code = self._in[at + 1]
            header = 4 if flags & _EXTENDED else 3
            size = 0
            if end - at >= header:
                size = self._u16(at + 2) if flags & _EXTENDED else self._in[at + 2]
            # RFC 7606 §4: so is an attribute longer than what is left; but a cut MP_REACH_NLRI or MP_UNREACH_NLRI
            # hides routes, and §3.j leaves the reset only.
            if end - at < header or size > end - at - header:
                if code == _MP_REACH or code == _MP_UNREACH:
                    self._fault(RESET, code, _LENGTH_ERROR, at, end - at)
                else:
                    self._fault(WITHDRAW, code, _LENGTH_ERROR, at, end - at)
                return
            self._take_attribute(code, flags, at, at + header, size)
            at += header + size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_attribute(
        self,
        code: cython.uint,
        flags: cython.uint,
        at: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.void:
        whole: cython.Py_ssize_t = value - at + size
        self.n_seen += 1
        if self._stamps[code] == self.stamp:
            # RFC 7606 §3.g: only the first counts; twice MP_REACH_NLRI or MP_UNREACH_NLRI is a reset.
            if code == _MP_REACH or code == _MP_UNREACH:
                self._fault(RESET, code, _MALFORMED_LIST, at, 0)
            else:
                self._fault(DISCARD, code, _MALFORMED_LIST, at, whole)
            return
        self._stamps[code] = self.stamp
        self._at[code] = at
        self._value[code] = value
        self._size[code] = size
        self._flags[code] = flags & _CATEGORY
        if self._category[code] == _UNKNOWN:
            self._take_unknown(code, flags, at, whole)
            return
        if (flags ^ self._category[code]) & _CATEGORY:
            # RFC 7606 §3.c; §5.3 for the two that carry routes.
            self._spoil(RESET if code == _MP_REACH or code == _MP_UNREACH else WITHDRAW, code, _FLAGS_ERROR, at, whole)
            return
        if self.external and self._is_internal[code]:
            # RFC 7606 §7.5, §7.9, §7.10
            self._spoil(DISCARD, code, _MALFORMED_LIST, at, whole)
            return
        if (
            size < self._shortest[code]
            or size > self._longest[code]
            or (self._unit[code] != 1 and size % self._unit[code] != 0)
        ):
            self._spoil(self._consequence[code], code, _LENGTH_ERROR, at, whole)
            return
        if self._check_value(code, at, value, size, whole):
            if flags & _OPTIONAL and flags & _TRANSITIVE:
                self._flags[code] = flags & (_CATEGORY | _PARTIAL)
            self._keep(code)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _spoil(
        self,
        consequence: cython.uint,
        code: cython.uint,
        reason: cython.uint,
        at: cython.Py_ssize_t,
        whole: cython.Py_ssize_t,
    ) -> cython.void:
        """Note an error in an attribute whose value is not to be used: size -1 stands for that."""
        self._size[code] = -1
        self._fault(consequence, code, reason, at, whole)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_unknown(
        self, code: cython.uint, flags: cython.uint, at: cython.Py_ssize_t, whole: cython.Py_ssize_t
    ) -> cython.void:
        """RFC 4271 §5, §6.3: pass on what is optional transitive, ignore what is optional, refuse what is not."""
        if not flags & _OPTIONAL:
            self._fault(RESET, code, _UNRECOGNIZED, at, whole)
        elif flags & _TRANSITIVE:
            self._flags[code] = _OPTIONAL | _TRANSITIVE | _PARTIAL
            self._keep(code)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _keep(self, code: cython.uint) -> cython.void:
        """Put a type into the ascending list of those that go into the set (nearly always at its end)."""
        i: cython.Py_ssize_t = self.n_kept
        while i > 0 and self._kept[i - 1] > code:
            self._kept[i] = self._kept[i - 1]
            i -= 1
        self._kept[i] = cython.cast(cython.uchar, code)
        self.n_kept += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _has(self, code: cython.uint) -> cython.bint:
        """Tell whether the message has a usable attribute of this type."""
        return self._stamps[code] == self.stamp and self._size[code] >= 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_value(
        self,
        code: cython.uint,
        at: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        whole: cython.Py_ssize_t,
    ) -> cython.bint:
        """Check what only some attributes need checked; tell whether the attribute goes into the set as it is."""
        if code == _ORIGIN:
            if self._in[value] > _LAST_ORIGIN:
                self._spoil(WITHDRAW, code, _BAD_ORIGIN, at, whole)
        elif code == _AS_PATH:
            self._check_as_path(at, value, size, whole)
        elif code == _AGGREGATOR:
            return self._check_aggregator(at, value, size, whole)
        elif code == _AS4_PATH or code == _AS4_AGGREGATOR:
            self._check_as4(code, at, value, size, whole)
            return False
        elif code == _MP_REACH:
            self._check_reach(at, value, size, whole)
            return False
        elif code == _MP_UNREACH:
            self.unreach_family = self._family(value)
            self.unreach_at = value + 3
            self.unreach_end = value + size
            return False
        elif code == _NEXT_HOP:
            return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_as_path(
        self, at: cython.Py_ssize_t, value: cython.Py_ssize_t, size: cython.Py_ssize_t, whole: cython.Py_ssize_t
    ) -> cython.void:
        found: cython.uint = self._judge_path(value, value + size, 4 if self.as4 else 2, self.accept_confederation)
        if found == _PATH_MALFORMED:
            # RFC 7606 §7.2
            self._spoil(WITHDRAW, _AS_PATH, _BAD_PATH, at, whole)
        elif found == _PATH_HAS_SET and not self.accept_as_sets:
            self._refuse_as_set(_AS_PATH, at, whole)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _refuse_as_set(self, code: cython.uint, at: cython.Py_ssize_t, whole: cython.Py_ssize_t) -> cython.void:
        """RFC 9774 §3; counted apart where nothing else is wrong with the UPDATE before."""
        if self.verdict < WITHDRAW:
            self.is_as_set = True
        self._spoil(WITHDRAW, code, _BAD_PATH, at, whole)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge_path(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, width: cython.Py_ssize_t, allow_confed: cython.bint
    ) -> cython.uint:
        """Check the segments of a path: RFC 7606 §7.2, RFC 7607 §2 (AS 0), RFC 5065 §5 (confederation segments)."""
        verdict: cython.uint = _PATH_GOOD
        kind: cython.uint
        segment_end: cython.Py_ssize_t
        while at < end:
            if end - at < 2:
                return _PATH_MALFORMED
            kind = self._in[at]
            segment_end = at + 2 + self._in[at + 1] * width
            if segment_end > end or segment_end == at + 2 or kind < _AS_SET or kind > _AS_CONFED_SET:
                return _PATH_MALFORMED
            if kind >= _AS_CONFED_SEQUENCE and not allow_confed:
                return _PATH_MALFORMED
            if kind == _AS_SET or kind == _AS_CONFED_SET:
                verdict = _PATH_HAS_SET
            at += 2
            while at < segment_end:
                if self._u16(at) == 0 and (width == 2 or self._u16(at + 2) == 0):
                    return _PATH_MALFORMED
                at += width
        return verdict

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_aggregator(
        self, at: cython.Py_ssize_t, value: cython.Py_ssize_t, size: cython.Py_ssize_t, whole: cython.Py_ssize_t
    ) -> cython.bint:
        """RFC 7606 §7.7 (length by the width of AS numbers), RFC 7607 §2 (AS 0)."""
        if size != (8 if self.as4 else 6):
            self._spoil(DISCARD, _AGGREGATOR, _LENGTH_ERROR, at, whole)
            return False
        if self._u16(value) == 0 and (not self.as4 or self._u16(value + 2) == 0):
            self._spoil(DISCARD, _AGGREGATOR, _OPTIONAL_ERROR, at, whole)
            return False
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_as4(
        self,
        code: cython.uint,
        at: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        whole: cython.Py_ssize_t,
    ) -> cython.void:
        """RFC 6793 §4.1 (discard from peers with four-octet numbers), §6 (discard what is malformed)."""
        found: cython.uint
        if self.as4:
            self._spoil(DISCARD, code, _MALFORMED_LIST, at, whole)
        elif code == _AS4_AGGREGATOR:
            if self._u16(value) == 0 and self._u16(value + 2) == 0:
                self._spoil(DISCARD, code, _OPTIONAL_ERROR, at, whole)
        else:
            # Confederation segments in it are dropped one by one when the paths are merged.
            found = self._judge_path(value, value + size, 4, True)
            if found == _PATH_MALFORMED:
                self._spoil(DISCARD, code, _BAD_PATH, at, whole)
            elif found == _PATH_HAS_SET and not self.accept_as_sets:
                self._refuse_as_set(code, at, whole)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_reach(
        self, at: cython.Py_ssize_t, value: cython.Py_ssize_t, size: cython.Py_ssize_t, whole: cython.Py_ssize_t
    ) -> cython.void:
        """RFC 7606 §7.11: a next hop of the wrong length hides where the routes begin, and that is a reset."""
        next_hop_size: cython.Py_ssize_t = self._in[value + 3]
        family: cython.int = self._family(value)
        if 5 + next_hop_size > size:
            self._fault(RESET, _MP_REACH, _OPTIONAL_ERROR, at, whole)
            return
        self.reach_at = value + 5 + next_hop_size
        self.reach_end = value + size
        if family < 0:
            return
        # RFC 2545 §3 for IPv6; RFC 8950 §4 for IPv4 with an IPv6 next hop, where that was negotiated.
        is_wide: cython.bint = next_hop_size == 16 or next_hop_size == 32
        if not (is_wide if family == 1 else (next_hop_size == 4 or (is_wide and self.extended_next_hop))):
            self._fault(RESET, _MP_REACH, _OPTIONAL_ERROR, at, whole)
            return
        # Whether it can be used is for policy to say, as with IPv6 no RFC makes it an error.
        self.reach_family = family

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _family(self, at: cython.Py_ssize_t) -> cython.int:
        """Return the index of the family of an AFI and SAFI, -1 if the session does not have it."""
        family: cython.int = self._u16(at) - 1
        if self._in[at + 2] != 1 or family < 0 or family > 1 or not (self.families >> family) & 1:
            return -1
        return family

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_host(self, at: cython.Py_ssize_t) -> cython.bint:
        """Tell whether an IPv4 address can be a host's: not 0.0.0.0/8, not multicast, not reserved. RFC 4271 §6.3"""
        return 0 < self._in[at] < 224

    # ---- the verdict on an UPDATE -----------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge(self, has_nlri: cython.bint) -> cython.void:
        """Check what can be seen only when all attributes are known."""
        has_reach: cython.bint = self.reach_at < self.reach_end
        if self._has(_NEXT_HOP) and (has_nlri or not has_reach):
            # RFC 7606 §7.3; RFC 4760 §3: beside MP_REACH_NLRI alone it is ignored.
            if self._size[_NEXT_HOP] != 4:
                self._fault_at(WITHDRAW, _NEXT_HOP, _LENGTH_ERROR)
            elif not self._is_host(self._value[_NEXT_HOP]):
                self._fault_at(WITHDRAW, _NEXT_HOP, _BAD_NEXT_HOP)
        if has_nlri or has_reach:
            # RFC 7606 §3.d
            self._require(_ORIGIN)
            self._require(_AS_PATH)
            if has_nlri:
                self._require(_NEXT_HOP)
            if not self.as4 and self.verdict < WITHDRAW:
                self._settle_as4()
        elif self.verdict == WITHDRAW:
            # RFC 7606 §5.2: attributes in error and no routes found: the routes may be what was not understood.
            self.verdict = RESET

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _fault_at(self, consequence: cython.uint, code: cython.uint, reason: cython.uint) -> cython.void:
        """Note an error of an attribute that was found earlier."""
        self._fault(consequence, code, reason, self._at[code], self._value[code] - self._at[code] + self._size[code])

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _require(self, code: cython.uint) -> cython.void:
        if self._stamps[code] != self.stamp:
            self._fault(WITHDRAW, code, _MISSING, self.start, 0)

    # ---- four-octet AS numbers from two -----------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _settle_as4(self) -> cython.void:
        """Write the AS path of a two-octet peer with four-octet numbers. RFC 6793 §4.2.3"""
        use_path: cython.bint = self._has(_AS4_PATH)
        if self._has(_AGGREGATOR):
            if self._u16(self._value[_AGGREGATOR]) != _AS_TRANS:
                use_path = False
            else:
                self.use_as4_aggregator = self._has(_AS4_AGGREGATOR)
        at: cython.Py_ssize_t = self._value[_AS_PATH]
        end: cython.Py_ssize_t = at + self._size[_AS_PATH]
        at4: cython.Py_ssize_t = self._value[_AS4_PATH]
        end4: cython.Py_ssize_t = at4 + self._size[_AS4_PATH]
        n_leading: cython.Py_ssize_t = self._count_path(at, end, 2)
        if use_path:
            if n_leading < self._count_path(at4, end4, 4):
                use_path = False
            else:
                n_leading -= self._count_path(at4, end4, 4)
        self.path_segment = -1
        self._take_leading(at, end, n_leading)
        if use_path:
            self._append_as4(at4, end4)
        if self.path_size > _LARGEST_ATTRIBUTE:
            self._fault_at(WITHDRAW, _AS_PATH, _LENGTH_ERROR)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _count_path(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, width: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Count the AS numbers of a checked path: a set is one, confederation segments are none. RFC 5065 §5.3"""
        n: cython.Py_ssize_t = 0
        while at < end:
            if self._in[at] == _AS_SEQUENCE:
                n += self._in[at + 1]
            elif self._in[at] == _AS_SET:
                n += 1
            at += 2 + self._in[at + 1] * width
        return n

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_leading(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, n_leading: cython.Py_ssize_t) -> cython.void:
        """Write the segments of AS_PATH that hold its first `n_leading` numbers; a confederation's go along."""
        kind: cython.uint
        n: cython.Py_ssize_t
        while at < end:
            kind = self._in[at]
            n = self._in[at + 1]
            if kind == _AS_SEQUENCE or kind == _AS_SET:
                if n_leading == 0:
                    return
                if kind == _AS_SET:
                    n_leading -= 1
                    self._write_segment(kind, at + 2, n, 2)
                else:
                    self._write_segment(kind, at + 2, min(n, n_leading), 2)
                    n_leading -= min(n, n_leading)
            else:
                self._write_segment(kind, at + 2, n, 2)
            at += 2 + n * 2

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _append_as4(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Write the segments of AS4_PATH, without a confederation's. RFC 6793 §6"""
        while at < end:
            if self._in[at] == _AS_SEQUENCE or self._in[at] == _AS_SET:
                self._write_segment(self._in[at], at + 2, self._in[at + 1], 4)
            at += 2 + self._in[at + 1] * 4

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_segment(
        self, kind: cython.uint, at: cython.Py_ssize_t, n: cython.Py_ssize_t, width: cython.Py_ssize_t
    ) -> cython.void:
        """Write one segment; two sequences in a row become one where it can hold them."""
        to: cython.Py_ssize_t = self.path_size
        last: cython.Py_ssize_t = self.path_segment
        if kind == _AS_SEQUENCE and last >= 0 and self._path[last] == _AS_SEQUENCE and self._path[last + 1] + n <= 255:
            self._path[last + 1] = cython.cast(cython.uchar, self._path[last + 1] + n)
        else:
            self.path_segment = to
            self._path[to] = cython.cast(cython.uchar, kind)
            self._path[to + 1] = cython.cast(cython.uchar, n)
            to += 2
        while n > 0:
            self._path[to] = 0 if width == 2 else self._in[at]
            self._path[to + 1] = 0 if width == 2 else self._in[at + 1]
            self._path[to + 2] = self._in[at + width - 2]
            self._path[to + 3] = self._in[at + width - 1]
            at += width
            to += 4
            n -= 1
        self.path_size = to

    # ---- the attribute set ------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_set(
        self, family: cython.Py_ssize_t, next_hop: cython.Py_ssize_t, next_hop_size: cython.Py_ssize_t
    ) -> cython.uint:
        """Write the message's attributes as one set of a family; return its index."""
        base: cython.Py_ssize_t = family * self.set_octets_capacity
        to: cython.Py_ssize_t = base + self._n_set_octets[family]
        number: cython.uint = self._n_sets[family]
        self._set_octets[to] = cython.cast(cython.uchar, next_hop_size)
        copy_octets(self._in, next_hop, self._set_octets, to + 1, next_hop_size)
        to += 1 + next_hop_size
        i: cython.Py_ssize_t
        code: cython.uint
        for i in range(self.n_kept):
            code = self._kept[i]
            if code == _LARGE_COMMUNITY:
                to = self._write_large_communities(to)
            elif self.as4 or (code != _AS_PATH and code != _AGGREGATOR):
                to = self._write_header(to, code, self._size[code])
                copy_octets(self._in, self._value[code], self._set_octets, to, self._size[code])
                to += self._size[code]
            elif code == _AS_PATH:
                to = self._write_header(to, code, self.path_size)
                copy_octets(self._path, 0, self._set_octets, to, self.path_size)
                to += self.path_size
            else:
                to = self._write_aggregator(to)
        self._n_set_octets[family] = cython.cast(cython.uint, to - base)
        self._n_sets[family] = number + 1
        self._set_offset[family * self.set_capacity + number + 1] = cython.cast(cython.uint, to - base)
        return number

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_header(self, to: cython.Py_ssize_t, code: cython.uint, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
        self._set_octets[to + 1] = cython.cast(cython.uchar, code)
        if size > 255:
            self._set_octets[to] = cython.cast(cython.uchar, self._flags[code] | _EXTENDED)
            self._set_octets[to + 2] = cython.cast(cython.uchar, size >> 8)
            self._set_octets[to + 3] = cython.cast(cython.uchar, size & 0xFF)
            return to + 4
        self._set_octets[to] = self._flags[code]
        self._set_octets[to + 2] = cython.cast(cython.uchar, size)
        return to + 3

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_aggregator(self, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write AGGREGATOR of a two-octet peer with a four-octet number. RFC 6793 §4.2.3"""
        to = self._write_header(to, _AGGREGATOR, 8)
        if self.use_as4_aggregator:
            copy_octets(self._in, self._value[_AS4_AGGREGATOR], self._set_octets, to, 8)
        else:
            self._set_octets[to] = 0
            self._set_octets[to + 1] = 0
            copy_octets(self._in, self._value[_AGGREGATOR], self._set_octets, to + 2, 6)
        return to + 8

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_large_communities(self, to: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Write LARGE_COMMUNITY, each value once. RFC 8092 §5"""
        at: cython.Py_ssize_t = self._value[_LARGE_COMMUNITY]
        n: cython.Py_ssize_t = self._size[_LARGE_COMMUNITY] // 12
        n_repeated: cython.Py_ssize_t = self._mark_repeated(at, n)
        to = self._write_header(to, _LARGE_COMMUNITY, (n - n_repeated) * 12)
        if n_repeated == 0:
            copy_octets(self._in, at, self._set_octets, to, n * 12)
            return to + n * 12
        i: cython.Py_ssize_t
        for i in range(n):
            if not self._is_repeated[i]:
                copy_octets(self._in, at + 12 * i, self._set_octets, to, 12)
                to += 12
        return to

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _mark_repeated(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Mark each of `n` large communities that stands before, too; return how many.

        By a merge sort of their numbers: a peer cannot make it slow, and it needs no hash that would need a seed.
        """
        source: cython.Py_ssize_t = 0
        target: cython.Py_ssize_t = _MOST_LARGE_COMMUNITIES
        width: cython.Py_ssize_t = 1
        n_repeated: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        for i in range(n):
            self._order[i] = cython.cast(cython.uint, i)
            self._is_repeated[i] = False
        while width < n:
            i = 0
            while i < n:
                self._merge(at, source + i, target + i, min(width, n - i), min(2 * width, n - i))
                i += 2 * width
            source, target = target, source
            width *= 2
        for i in range(source + 1, source + n):
            # The sort is stable: of equal ones the first to stand in the attribute is the first here.
            if not self._is_after(at, self._order[i], self._order[i - 1]):
                self._is_repeated[self._order[i]] = True
                n_repeated += 1
        return n_repeated

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _merge(
        self,
        at: cython.Py_ssize_t,
        source: cython.Py_ssize_t,
        target: cython.Py_ssize_t,
        middle: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.void:
        """Merge two sorted runs of `_order`, [0, middle) and [middle, end) from `source` on."""
        left: cython.Py_ssize_t = 0
        right: cython.Py_ssize_t = middle
        i: cython.Py_ssize_t
        for i in range(end):
            if right == end or (
                left < middle and not self._is_after(at, self._order[source + left], self._order[source + right])
            ):
                self._order[target + i] = self._order[source + left]
                left += 1
            else:
                self._order[target + i] = self._order[source + right]
                right += 1

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_after(self, at: cython.Py_ssize_t, one: cython.Py_ssize_t, other: cython.Py_ssize_t) -> cython.bint:
        """Tell whether one large community (its number in the attribute) is greater than another."""
        first: cython.ulonglong = self._u64(at + 12 * one)
        second: cython.ulonglong = self._u64(at + 12 * other)
        if first != second:
            return first > second
        return self._u32(at + 12 * one + 8) > self._u32(at + 12 * other + 8)

    # ---- routes -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _take_routes(
        self, withdrawn_at: cython.Py_ssize_t, withdrawn_end: cython.Py_ssize_t, nlri_at: cython.Py_ssize_t
    ) -> cython.void:
        """Write the message's routes: those withdrawn, then those announced (RFC 4271 §4.3: announced wins)."""
        has_narrow: cython.bint = self.families & 1
        number: cython.uint
        if withdrawn_at < withdrawn_end and has_narrow:
            self._write_routes(0, withdrawn_at, withdrawn_end, _NONE, 0, _BAD_NETWORK)
        if self.unreach_family >= 0 and self.unreach_at < self.unreach_end:
            self._write_routes(
                self.unreach_family, self.unreach_at, self.unreach_end, _NONE, _MP_UNREACH, _OPTIONAL_ERROR
            )
        if self.reach_family >= 0 and self.reach_at < self.reach_end:
            number = _NONE
            if self.verdict < WITHDRAW:
                # AFI, SAFI and length stand before the next hop.
                number = self._write_set(
                    self.reach_family, self._value[_MP_REACH] + 4, self._in[self._value[_MP_REACH] + 3]
                )
            self._write_routes(self.reach_family, self.reach_at, self.reach_end, number, _MP_REACH, _OPTIONAL_ERROR)
        if nlri_at < self.end and has_narrow:
            number = _NONE
            if self.verdict < WITHDRAW:
                number = self._write_set(0, self._value[_NEXT_HOP], 4)
            self._write_routes(0, nlri_at, self.end, number, 0, _BAD_NETWORK)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_routes(
        self,
        family: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        number: cython.uint,
        code: cython.uint,
        reason: cython.uint,
    ) -> cython.void:
        """Write the prefixes of one field; RFC 7606 §5.3: one that does not fit is a reset."""
        has_path_id: cython.bint = (self.add_path >> family) & 1
        is_good: cython.bint
        if family == 0:
            is_good = self._write_narrow(at, end, number, has_path_id)
        else:
            is_good = self._write_wide(at, end, number, has_path_id)
        if not is_good:
            if code == 0:
                self._fault(RESET, code, reason, at, 0)
            else:
                self._fault_at(RESET, code, reason)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_narrow(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, number: cython.uint, has_path_id: cython.bint
    ) -> cython.bint:
        row: cython.Py_ssize_t = self._n_routes[0]
        path_id: cython.uint = 0
        length: cython.uint
        n: cython.Py_ssize_t
        value: cython.ulonglong
        while at < end:
            if has_path_id:
                if end - at < 5:
                    return False
                path_id = self._u32(at)
                at += 4
            length = self._in[at]
            n = (length + 7) >> 3
            if length > 32 or n > end - at - 1:
                return False
            if end - at > 4:
                value = self._u32(at + 1)
            else:
                value = self._u_short(at + 1, n) >> 32
            self._hi[row] = (value & (HIGH32 >> length) & MASK32) << 32
            self._length[row] = cython.cast(cython.uchar, length)
            self._path_id[row] = path_id
            self._set[row] = number
            row += 1
            at += 1 + n
        self._n_routes[0] = cython.cast(cython.uint, row)
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_wide(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, number: cython.uint, has_path_id: cython.bint
    ) -> cython.bint:
        row: cython.Py_ssize_t = self._n_routes[1]
        base: cython.Py_ssize_t = self.capacity
        path_id: cython.uint = 0
        length: cython.uint
        n: cython.Py_ssize_t
        hi: cython.ulonglong
        lo: cython.ulonglong
        while at < end:
            if has_path_id:
                if end - at < 5:
                    return False
                path_id = self._u32(at)
                at += 4
            length = self._in[at]
            n = (length + 7) >> 3
            if length > 128 or n > end - at - 1:
                return False
            hi = self._u64(at + 1) if end - at > 8 else self._u_short(at + 1, min(n, 8))
            lo = 0
            if length < 64:
                hi &= MASK64 ^ (MASK64 >> length)
            elif length > 64:
                lo = self._u64(at + 9) if end - at > 16 else self._u_short(at + 9, n - 8)
                if length < 128:
                    lo &= MASK64 ^ (MASK64 >> (length - 64))
            self._hi[base + row] = hi
            self._lo[row] = lo
            self._length[base + row] = cython.cast(cython.uchar, length)
            self._path_id[base + row] = path_id
            self._set[base + row] = number
            row += 1
            at += 1 + n
        self._n_routes[1] = cython.cast(cython.uint, row)
        return True

    # ---- octets -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _u16(self, at: cython.Py_ssize_t) -> cython.uint:
        return (cython.cast(cython.uint, self._in[at]) << 8) | self._in[at + 1]

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _u32(self, at: cython.Py_ssize_t) -> cython.uint:
        return (
            (cython.cast(cython.uint, self._in[at]) << 24)
            | (cython.cast(cython.uint, self._in[at + 1]) << 16)
            | (cython.cast(cython.uint, self._in[at + 2]) << 8)
            | self._in[at + 3]
        )

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _u64(self, at: cython.Py_ssize_t) -> cython.ulonglong:
        return (cython.cast(cython.ulonglong, self._u32(at)) << 32) | self._u32(at + 4)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _u_short(self, at: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.ulonglong:
        """Read up to eight octets, left-aligned: the last prefix of a field, behind which nothing may be read."""
        value: cython.ulonglong = 0
        i: cython.Py_ssize_t
        for i in range(n):
            value |= cython.cast(cython.ulonglong, self._in[at + i]) << (56 - 8 * i)
        return value

    # ---- allocation -------------------------------------------------------------------------------------------------

    @cython.cfunc
    def _allocate_columns(self):
        self.hi_column = allocate(2 * self.capacity, np.uint64)
        self.lo_column = allocate(self.capacity, np.uint64)
        self.length_column = allocate(2 * self.capacity, np.uint8)
        self.path_id_column = allocate(2 * self.capacity, np.uint32)
        self.set_column = allocate(2 * self.capacity, np.uint32)
        self.set_offset_column = allocate(2 * self.set_capacity, np.uint32)
        self.set_octets_column = allocate(2 * self.set_octets_capacity, np.uint8)
        self._hi = memoryview(self.hi_column)
        self._lo = memoryview(self.lo_column)
        self._length = memoryview(self.length_column)
        self._path_id = memoryview(self.path_id_column)
        self._set = memoryview(self.set_column)
        self._set_offset = memoryview(self.set_offset_column)
        self._set_octets = memoryview(self.set_octets_column)

    @cython.cfunc
    def _allocate_rules(self):
        self._category = memoryview(np.full(256, 0xFF, np.uint8))
        self._shortest = memoryview(allocate(256, np.uint32))
        self._longest = memoryview(allocate(256, np.uint32))
        self._unit = memoryview(np.ones(256, np.uint32))
        self._consequence = memoryview(allocate(256, np.uint8))
        self._is_internal = memoryview(allocate(256, np.uint8))
        for code, (category, shortest, longest, unit, consequence, is_internal) in RULES.items():
            self._category[code] = category
            self._shortest[code] = shortest
            self._longest[code] = longest
            self._unit[code] = unit
            self._consequence[code] = consequence
            self._is_internal[code] = is_internal


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
