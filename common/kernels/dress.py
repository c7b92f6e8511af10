"""Rewrites attribute sets: what import policy changes, and what a group of neighbors is told.

Owns edits as numbered rules, and the order in which attributes are written: ascending type codes, attributes that no
rule touches octet for octet. A set is rewritten once for each pair of (rule, set) of a batch. Never judges a set
(evaluate.py does), except where it cannot be written.

RFC 4271 §5.1 (AS_PATH, NEXT_HOP, MULTI_EXIT_DISC, LOCAL_PREF), RFC 1997 and RFC 8092 (communities), RFC 4360 §6
(extended ones), RFC 4456 §8 (reflection), RFC 6793 §4.2.2 (peers without four-octet AS numbers), RFC 2545 §3.
"""

import cython
import numpy as np

from common.arrays import allocate, grown
from common.bgp.constants import AS_TRANS as AS_TRANS_NUMBER
from common.bgp.constants import AttributeFlag, AttributeType, SegmentType
from common.bgp.reasons import ExportRefusal
from common.bgp.rules import NextHopRule

NONE = cython.declare(cython.uint, 0xFFFFFFFF)
ONE = cython.declare(cython.ulonglong, 1)
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)

# Numbers of the wire, as C numbers.
AS_PATH = cython.declare(cython.uint, int(AttributeType.AS_PATH))
MULTI_EXIT_DISC = cython.declare(cython.uint, int(AttributeType.MULTI_EXIT_DISC))
LOCAL_PREF = cython.declare(cython.uint, int(AttributeType.LOCAL_PREF))
AGGREGATOR = cython.declare(cython.uint, int(AttributeType.AGGREGATOR))
COMMUNITIES = cython.declare(cython.uint, int(AttributeType.COMMUNITIES))
ORIGINATOR_ID = cython.declare(cython.uint, int(AttributeType.ORIGINATOR_ID))
CLUSTER_LIST = cython.declare(cython.uint, int(AttributeType.CLUSTER_LIST))
EXTENDED_COMMUNITIES = cython.declare(cython.uint, int(AttributeType.EXTENDED_COMMUNITIES))
AS4_PATH = cython.declare(cython.uint, int(AttributeType.AS4_PATH))
AS4_AGGREGATOR = cython.declare(cython.uint, int(AttributeType.AS4_AGGREGATOR))
IPV6_EXTENDED_COMMUNITIES = cython.declare(cython.uint, int(AttributeType.IPV6_EXTENDED_COMMUNITIES))
LARGE_COMMUNITY = cython.declare(cython.uint, int(AttributeType.LARGE_COMMUNITY))
AS_SEQUENCE = cython.declare(cython.uint, int(SegmentType.AS_SEQUENCE))
AS_CONFED_SEQUENCE = cython.declare(cython.uint, int(SegmentType.AS_CONFED_SEQUENCE))
AS_CONFED_SET = cython.declare(cython.uint, int(SegmentType.AS_CONFED_SET))
AS_TRANS = cython.declare(cython.uint, AS_TRANS_NUMBER)
EXTENDED_LENGTH = cython.declare(cython.uint, int(AttributeFlag.EXTENDED_LENGTH))
PARTIAL = cython.declare(cython.uint, int(AttributeFlag.PARTIAL))
WELL_KNOWN_FLAGS = cython.declare(cython.uint, int(AttributeFlag.TRANSITIVE))
OPTIONAL_FLAGS = cython.declare(cython.uint, int(AttributeFlag.OPTIONAL))
TRANSITIVE_FLAGS = cython.declare(cython.uint, int(AttributeFlag.OPTIONAL | AttributeFlag.TRANSITIVE))
COMMUNITY_NON_TRANSITIVE = cython.declare(cython.uint, 0x40)  # RFC 4360 §2, in the high octet of the type

KEEP = cython.declare(cython.uint, int(NextHopRule.KEEP))
KEEP_GLOBAL = cython.declare(cython.uint, int(NextHopRule.KEEP_GLOBAL))
NO_NEXT_HOP = cython.declare(cython.uint, int(ExportRefusal.NO_NEXT_HOP))
TOO_LARGE = cython.declare(cython.uint, int(ExportRefusal.TOO_LARGE))
MALFORMED = cython.declare(cython.uint, int(ExportRefusal.MALFORMED))

# The numbers of a rule. Masks have a bit for each attribute type below 64; lists are (first, end) in the pool.
STRIP = cython.declare(cython.uint, 0)  # mask: left out
ADD = cython.declare(cython.uint, 1)  # mask: made where the set has none
EDIT = cython.declare(cython.uint, 2)  # mask: written anew where the set has one
NEXT_HOP_RULE = cython.declare(cython.uint, 3)
NEXT_HOP = cython.declare(cython.uint, 4)  # first octet of the own next hop
NEXT_HOP_SIZE = cython.declare(cython.uint, 5)
PREPEND_ASN = cython.declare(cython.uint, 6)
PREPEND_COUNT = cython.declare(cython.uint, 7)
IS_TWO_OCTET = cython.declare(cython.uint, 8)
MED = cython.declare(cython.uint, 9)
PREFERENCE = cython.declare(cython.uint, 10)
ORIGINATOR = cython.declare(cython.uint, 11)
CLUSTER = cython.declare(cython.uint, 12)
ADDED = cython.declare(cython.uint, 13)  # communities to add, then patterns to remove; then the same of large ones
REMOVED = cython.declare(cython.uint, 15)
ADDED_LARGE = cython.declare(cython.uint, 17)
REMOVED_LARGE = cython.declare(cython.uint, 19)
GROWTH = cython.declare(cython.uint, 21)  # by how many octets a set may grow, beside the AS4_PATH
WIDTH = cython.declare(cython.uint, 22)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy(
    source: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    target: cython.uchar[::1],
    to: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.void:
    """Copy octets; views as arguments, as the compiler cannot know that octets written are not those of `self`."""
    i: cython.Py_ssize_t
    for i in range(n):
        target[to + i] = source[at + i]


@cython.cclass
class Dresser:
    """Attribute sets rewritten by numbered rules."""

    n_rules: cython.Py_ssize_t
    _rules: cython.ulonglong[::1]
    _pool: cython.uint[::1]
    _next_hops: cython.const[cython.uchar][::1]
    _in: cython.const[cython.uchar][::1]
    _out: cython.uchar[::1]
    _at: cython.Py_ssize_t  # where the next octet is written
    _base: cython.Py_ssize_t  # of the rule in work
    _wanted: cython.ulonglong  # mask: attributes still to be made
    _refusal: cython.uint
    # Where the set in work has them, for the attributes of RFC 6793 that repeat them.
    _path: cython.Py_ssize_t
    _path_end: cython.Py_ssize_t
    _aggregator: cython.Py_ssize_t
    _aggregator_flags: cython.uint
    rules_column: object
    pool_column: object
    next_hop_octets: bytes

    def __init__(self):
        self.n_rules = 0
        self.rules_column = allocate(16 * 22, np.uint64)
        self._rules = memoryview(self.rules_column)
        self.pool_column = allocate(0, np.uint32)
        self._pool = memoryview(self.pool_column)
        self.next_hop_octets = b""
        self._next_hops = self.next_hop_octets

    def add(self, edits) -> int:
        """Add a rule, given as common.bgp.rules.Edits, and return its number."""
        if (self.n_rules + 1) * WIDTH > self._rules.shape[0]:
            self.rules_column = grown(self.rules_column, self._rules.shape[0] * 2)
            self._rules = memoryview(self.rules_column)
        base: cython.Py_ssize_t = self.n_rules * WIDTH
        self.n_rules += 1
        preference = edits.default_local_pref if edits.local_pref is None else edits.local_pref
        self._rules[base + STRIP] = sum(1 << kind for kind in edits.strip)
        self._rules[base + ADD] = sum(1 << kind for kind in edits.added)
        self._rules[base + EDIT] = sum(1 << kind for kind in edits.edited)
        self._rules[base + NEXT_HOP_RULE] = edits.next_hop_rule
        self._rules[base + NEXT_HOP] = len(self.next_hop_octets)
        self._rules[base + NEXT_HOP_SIZE] = len(edits.next_hop)
        self._rules[base + PREPEND_ASN] = edits.prepend_asn
        self._rules[base + PREPEND_COUNT] = edits.prepend_count
        self._rules[base + IS_TWO_OCTET] = edits.is_two_octet
        self._rules[base + MED] = edits.med or 0
        self._rules[base + PREFERENCE] = preference or 0
        self._rules[base + ORIGINATOR] = edits.originator_id
        self._rules[base + CLUSTER] = edits.cluster_id
        self._pool_list(base + ADDED, edits.add_communities)
        self._pool_list(base + REMOVED, [number for pattern in edits.remove_communities for number in pattern])
        self._pool_list(base + ADDED_LARGE, [number for item in edits.add_large_communities for number in item])
        self._pool_list(base + REMOVED_LARGE, [number for item in edits.remove_large_communities for number in item])
        self._rules[base + GROWTH] = (
            64  # a next hop of 16 octets; MED, LOCAL_PREF, ORIGINATOR_ID, CLUSTER_LIST; lengths of one octet more
            + (8 + 4 * edits.prepend_count)
            + (4 + 4 * len(edits.add_communities))
            + (4 + 12 * len(edits.add_large_communities))
            + (24 + 4 * edits.prepend_count if edits.is_two_octet else 0)
        )
        self.next_hop_octets = self.next_hop_octets + edits.next_hop
        self._next_hops = self.next_hop_octets
        return self.n_rules - 1

    @cython.cfunc
    def _pool_list(self, at: cython.Py_ssize_t, numbers):
        n: cython.Py_ssize_t = self._pool.shape[0]
        self._rules[at] = n
        self._rules[at + 1] = n + len(numbers)
        self.pool_column = grown(self.pool_column, n + len(numbers))
        self.pool_column[n:] = numbers
        self._pool = memoryview(self.pool_column)

    # ---- batches ----------------------------------------------------------------------------------------------

    def dress(
        self,
        rule_of_pair: cython.uint[::1],
        set_of_pair: cython.uint[::1],
        refusal_of_pair: cython.uchar[::1],
        set_offset: cython.uint[::1],
        set_octets: cython.const[cython.uchar][::1],
    ):
        """Rewrite the set of each pair that is not refused; write a refusal where one cannot be written.

        Returns (new set of each pair, uint32, NONE where refused; set_offset, uint32; set_octets, uint8).
        """
        n: cython.Py_ssize_t = rule_of_pair.shape[0]
        new_set_of_pair = np.empty(n, np.uint32)
        sets: cython.uint[::1] = memoryview(new_set_of_pair)
        offset_column = np.empty(n + 1, np.uint32)
        offsets: cython.uint[::1] = memoryview(offset_column)
        octets = np.empty(self._room(rule_of_pair, set_of_pair, set_offset), np.uint8)
        self._in = set_octets
        self._out = memoryview(octets)
        self._at = 0
        n_sets: cython.Py_ssize_t = 0
        start: cython.Py_ssize_t
        i: cython.Py_ssize_t
        offsets[0] = 0
        with cython.nogil:
            for i in range(n):
                sets[i] = NONE
                if refusal_of_pair[i] != 0:
                    continue
                start = self._at
                self._base = rule_of_pair[i] * WIDTH
                self._dress(set_offset[set_of_pair[i]], set_offset[set_of_pair[i] + 1])
                if self._refusal != 0:
                    refusal_of_pair[i] = self._refusal
                    self._at = start
                    continue
                sets[i] = cython.cast(cython.uint, n_sets)
                n_sets += 1
                offsets[n_sets] = cython.cast(cython.uint, self._at)
        return new_set_of_pair, offset_column[: n_sets + 1], octets[: self._at]

    @cython.cfunc
    def _room(
        self, rule_of_pair: cython.uint[::1], set_of_pair: cython.uint[::1], set_offset: cython.uint[::1]
    ) -> cython.Py_ssize_t:
        """Return how many octets the rewritten sets take at most."""
        room: cython.Py_ssize_t = 0
        size: cython.Py_ssize_t
        base: cython.Py_ssize_t
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(rule_of_pair.shape[0]):
                base = rule_of_pair[i] * WIDTH
                size = set_offset[set_of_pair[i] + 1] - set_offset[set_of_pair[i]]
                room += size + cython.cast(cython.Py_ssize_t, self._rules[base + GROWTH])
                if self._rules[base + IS_TWO_OCTET] != 0:
                    room += size
        return room

    # ---- one set ----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _dress(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Write one set anew; `_refusal` tells whether it worked."""
        touched: cython.ulonglong = self._rules[self._base + STRIP] | self._rules[self._base + EDIT]
        kept: cython.Py_ssize_t  # from here on the input is to be copied, up to the attribute in hand
        start: cython.Py_ssize_t
        flags: cython.uint
        kind: cython.uint
        size: cython.Py_ssize_t
        bit: cython.ulonglong
        self._wanted = self._rules[self._base + ADD]
        self._refusal = 0
        self._path = 0
        self._path_end = 0
        if at >= end or at + 1 + self._in[at] > end:
            self._refusal = MALFORMED
            return
        self._write_next_hop(at + 1, self._in[at])
        at += 1 + self._in[at]
        kept = at
        while at < end:
            start = at
            if end - at < 3:
                self._refusal = MALFORMED
                return
            flags = self._in[at]
            kind = self._in[at + 1]
            size = self._in[at + 2]
            at += 3
            if flags & EXTENDED_LENGTH:
                if at == end:
                    self._refusal = MALFORMED
                    return
                size = (size << 8) | self._in[at]
                at += 1
            if size > end - at:
                self._refusal = MALFORMED
                return
            bit = (ONE << kind) if kind < 64 else 0
            if self._wanted != 0 and (bit == 0 or self._wanted & (bit - 1)):
                self._copy(kept, start)
                kept = start
                self._add_below(bit)
            if touched & bit:
                self._copy(kept, start)
                kept = at + size
            if self._rules[self._base + STRIP] & bit == 0:  # else one that is wanted is made in its place
                self._wanted &= ~bit
                if touched & bit:
                    self._edit(kind, flags, at, at + size)
            at += size
        self._copy(kept, end)
        if self._wanted != 0:
            self._add_below(0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add_below(self, bit: cython.ulonglong) -> cython.void:
        """Make the wanted attributes whose types come before the type of `bit` (0: all), in ascending order."""
        kind: cython.uint
        for kind in range(64):
            if bit != 0 and (ONE << kind) >= bit:
                return
            if self._wanted & (ONE << kind):
                self._wanted &= ~(ONE << kind)
                self._add(kind)
                if self._wanted == 0:
                    return

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _add(self, kind: cython.uint) -> cython.void:
        """Make one attribute that the set does not have."""
        if kind == LOCAL_PREF or kind == MULTI_EXIT_DISC or kind == ORIGINATOR_ID or kind == CLUSTER_LIST:
            self._write_number(kind)
        elif kind == AS4_PATH:
            self._write_path(AS4_PATH, TRANSITIVE_FLAGS)
        elif kind == AS4_AGGREGATOR:
            # RFC 6793 §4.2.2
            self._copy_attribute(AS4_AGGREGATOR, self._aggregator_flags, self._aggregator, self._aggregator + 8)
        else:
            # RFC 4271 §5 would have the Partial bit set on communities that the originator did not attach. No
            # speaker in use does that, and peers would see otherwise equal sets as different: neither do we.
            self._edit(kind, TRANSITIVE_FLAGS, 0, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _edit(
        self, kind: cython.uint, flags: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        """Write one attribute anew, from the value it has in the set."""
        if kind == AS_PATH:
            self._path = at
            self._path_end = end
            self._write_path(AS_PATH, WELL_KNOWN_FLAGS)
        elif kind == LOCAL_PREF or kind == MULTI_EXIT_DISC:
            self._write_number(kind)
        elif kind == AGGREGATOR:
            self._write_two_octet_aggregator(flags, at, end)
        elif kind == COMMUNITIES:
            self._write_communities(flags, at, end)
        elif kind == CLUSTER_LIST:
            self._write_cluster_list(at, end)
        elif kind == EXTENDED_COMMUNITIES:
            self._write_transitive(kind, flags, at, end, 8)
        elif kind == IPV6_EXTENDED_COMMUNITIES:
            self._write_transitive(kind, flags, at, end, 20)
        elif kind == LARGE_COMMUNITY:
            self._write_large_communities(flags, at, end)

    # ---- single attributes ------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_next_hop(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        rule: cython.ulonglong = self._rules[self._base + NEXT_HOP_RULE]
        own: cython.Py_ssize_t = self._rules[self._base + NEXT_HOP]
        own_size: cython.Py_ssize_t = self._rules[self._base + NEXT_HOP_SIZE]
        i: cython.Py_ssize_t
        if rule == KEEP_GLOBAL and size >= 16:
            # RFC 2545 §3: a link-local address is for the peers on that link only.
            size = 0 if self._in[at] == 0xFE and self._in[at + 1] & 0xC0 == 0x80 else 16
        if rule == KEEP or (rule == KEEP_GLOBAL and size > 0):
            self._out[self._at] = size
            self._at += 1
            self._copy(at, at + size)
            return
        if own_size == 0:
            self._refusal = NO_NEXT_HOP
        self._out[self._at] = own_size
        self._at += 1
        for i in range(own_size):
            self._out[self._at + i] = self._next_hops[own + i]
        self._at += own_size

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_number(self, kind: cython.uint) -> cython.void:
        """Write an attribute of four octets that a rule sets."""
        field: cython.uint = MED
        if kind == LOCAL_PREF:
            field = PREFERENCE
        elif kind == ORIGINATOR_ID:
            field = ORIGINATOR
        elif kind == CLUSTER_LIST:
            field = CLUSTER
        self._open(kind, WELL_KNOWN_FLAGS if kind == LOCAL_PREF else OPTIONAL_FLAGS, 4)
        self._put32(cython.cast(cython.uint, self._rules[self._base + field] & MASK32))

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_path(self, kind: cython.uint, flags: cython.uint) -> cython.void:
        """Write AS_PATH or AS4_PATH: the set's path with the rule's AS put before it (RFC 4271 §5.1.2)."""
        is_narrow: cython.bint = kind == AS_PATH and self._rules[self._base + IS_TWO_OCTET] != 0
        asn: cython.uint = cython.cast(cython.uint, self._rules[self._base + PREPEND_ASN] & MASK32)
        count: cython.uint = cython.cast(cython.uint, self._rules[self._base + PREPEND_COUNT] & MASK32)
        at: cython.Py_ssize_t = self._path
        end: cython.Py_ssize_t = self._path_end
        has_wide: cython.bint = False
        n: cython.uint
        segment: cython.uint
        _i: cython.uint
        number: cython.uint
        header: cython.Py_ssize_t = self._at
        room: cython.Py_ssize_t = end - at + 2 + 4 * cython.cast(cython.Py_ssize_t, count)
        self._open(kind, flags, room)
        if count > 0 and not (end - at >= 2 and self._in[at] == AS_SEQUENCE and self._in[at + 1] + count <= 255):
            # No sequence to lead, or it is full: a segment of its own.
            self._out[self._at] = AS_SEQUENCE
            self._out[self._at + 1] = count
            self._at += 2
            for _i in range(count):
                has_wide |= self._put_asn(asn, is_narrow)
            count = 0
        while at < end:
            if end - at < 2 or at + 2 + 4 * cython.cast(cython.Py_ssize_t, self._in[at + 1]) > end:
                self._refusal = MALFORMED
                return
            segment = self._in[at]
            n = self._in[at + 1]
            at += 2
            # RFC 6793 §4.2.2: no confederation segments in AS4_PATH.
            if kind == AS4_PATH and (segment == AS_CONFED_SEQUENCE or segment == AS_CONFED_SET):
                at += 4 * cython.cast(cython.Py_ssize_t, n)
                continue
            self._out[self._at] = segment
            self._out[self._at + 1] = n + count
            self._at += 2
            for _i in range(count):
                has_wide |= self._put_asn(asn, is_narrow)
            count = 0
            if is_narrow:
                for _i in range(n):
                    number = self._number(at)
                    has_wide |= self._put_asn(number, True)
                    at += 4
            else:
                self._copy(at, at + 4 * cython.cast(cython.Py_ssize_t, n))
                at += 4 * cython.cast(cython.Py_ssize_t, n)
        self._close(header, room)
        if has_wide:
            self._wanted |= ONE << AS4_PATH

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_asn(self, asn: cython.uint, is_narrow: cython.bint) -> cython.bint:
        """Write an AS number; tell whether it did not fit into the two octets it was given."""
        if not is_narrow:
            self._put32(asn)
            return False
        if asn > 0xFFFF:
            self._put16(AS_TRANS)
            return True
        self._put16(asn)
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_two_octet_aggregator(
        self, flags: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        asn: cython.uint
        if end - at != 8:
            self._refusal = MALFORMED
            return
        asn = self._number(at)
        self._open(AGGREGATOR, flags & ~EXTENDED_LENGTH, 6)
        if self._put_asn(asn, True):
            self._wanted |= ONE << AS4_AGGREGATOR
            self._aggregator = at
            self._aggregator_flags = TRANSITIVE_FLAGS | (flags & PARTIAL)
        self._copy(at + 4, at + 8)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_communities(self, flags: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """Write the communities that no pattern removes, then those to be added that are not among them."""
        header: cython.Py_ssize_t = self._at
        first: cython.Py_ssize_t = self._rules[self._base + ADDED]
        last: cython.Py_ssize_t = self._rules[self._base + ADDED + 1]
        room: cython.Py_ssize_t = end - at + 4 * (last - first)
        values: cython.Py_ssize_t
        number: cython.uint
        if (end - at) & 3:
            self._refusal = MALFORMED
            return
        self._open(COMMUNITIES, flags, room)
        values = self._at
        while at < end:
            number = self._number(at)
            if not self._is_removed(number):
                self._put32(number)
            at += 4
        for at in range(first, last):
            number = self._pool[at]
            if not self._is_written(values, number):
                self._put32(number)
        self._close(header, room)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_removed(self, number: cython.uint) -> cython.bint:
        at: cython.Py_ssize_t = self._rules[self._base + REMOVED]
        end: cython.Py_ssize_t = self._rules[self._base + REMOVED + 1]
        while at < end:
            if (number ^ self._pool[at]) & self._pool[at + 1] == 0:
                return True
            at += 2
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_written(self, at: cython.Py_ssize_t, number: cython.uint) -> cython.bint:
        while at < self._at:
            if self._number_written(at) == number:
                return True
            at += 4
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_large_communities(
        self, flags: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        """As `_write_communities`, of twelve octets each."""
        header: cython.Py_ssize_t = self._at
        first: cython.Py_ssize_t = self._rules[self._base + ADDED_LARGE]
        last: cython.Py_ssize_t = self._rules[self._base + ADDED_LARGE + 1]
        room: cython.Py_ssize_t = end - at + 4 * (last - first)
        values: cython.Py_ssize_t
        if (end - at) % 12:
            self._refusal = MALFORMED
            return
        self._open(LARGE_COMMUNITY, flags, room)
        values = self._at
        while at < end:
            if not self._is_removed_large(at):
                self._copy(at, at + 12)
            at += 12
        while first < last:
            if not self._is_written_large(values, first):
                self._put32(self._pool[first])
                self._put32(self._pool[first + 1])
                self._put32(self._pool[first + 2])
            first += 3
        self._close(header, room)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_removed_large(self, value: cython.Py_ssize_t) -> cython.bint:
        at: cython.Py_ssize_t = self._rules[self._base + REMOVED_LARGE]
        end: cython.Py_ssize_t = self._rules[self._base + REMOVED_LARGE + 1]
        while at < end:
            if (
                (self._number(value) ^ self._pool[at]) & self._pool[at + 3] == 0
                and (self._number(value + 4) ^ self._pool[at + 1]) & self._pool[at + 4] == 0
                and (self._number(value + 8) ^ self._pool[at + 2]) & self._pool[at + 5] == 0
            ):
                return True
            at += 6
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_written_large(self, at: cython.Py_ssize_t, item: cython.Py_ssize_t) -> cython.bint:
        while at < self._at:
            if (
                self._number_written(at) == self._pool[item]
                and self._number_written(at + 4) == self._pool[item + 1]
                and self._number_written(at + 8) == self._pool[item + 2]
            ):
                return True
            at += 12
        return False

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_transitive(
        self,
        kind: cython.uint,
        flags: cython.uint,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.void:
        """Write the extended communities that may leave the AS (RFC 4360 §6, RFC 5701 §2)."""
        header: cython.Py_ssize_t = self._at
        room: cython.Py_ssize_t = end - at
        if room % size:
            self._refusal = MALFORMED
            return
        self._open(kind, flags, room)
        while at < end:
            if self._in[at] & COMMUNITY_NON_TRANSITIVE == 0:
                self._copy(at, at + size)
            at += size
        self._close(header, room)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _write_cluster_list(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        """RFC 4456 §8: a reflector puts its CLUSTER_ID before the list."""
        self._open(CLUSTER_LIST, OPTIONAL_FLAGS, end - at + 4)
        self._put32(cython.cast(cython.uint, self._rules[self._base + CLUSTER] & MASK32))
        self._copy(at, end)

    # ---- octets -----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _open(self, kind: cython.uint, flags: cython.uint, size: cython.Py_ssize_t) -> cython.void:
        """Write an attribute's header for a value of `size` octets (for fewer, `_close` it)."""
        if size > 65535:
            self._refusal = TOO_LARGE
        self._out[self._at + 1] = kind
        if size > 255:
            self._out[self._at] = flags | EXTENDED_LENGTH
            self._out[self._at + 2] = (size >> 8) & 0xFF
            self._out[self._at + 3] = size & 0xFF
            self._at += 4
        else:
            self._out[self._at] = flags & ~EXTENDED_LENGTH
            self._out[self._at + 2] = size
            self._at += 3

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _close(self, header: cython.Py_ssize_t, opened: cython.Py_ssize_t) -> cython.void:
        """Correct the length of an attribute opened for `opened` octets; take it back if it has none."""
        start: cython.Py_ssize_t = header + (4 if opened > 255 else 3)
        size: cython.Py_ssize_t = self._at - start
        i: cython.Py_ssize_t
        if size == 0 and self._out[header + 1] != AS_PATH:
            self._at = header
        elif size == opened:
            return
        elif opened <= 255:
            self._out[header + 2] = size
        elif size > 255:
            self._out[header + 2] = (size >> 8) & 0xFF
            self._out[header + 3] = size & 0xFF
        else:
            self._out[header] = self._out[header] & ~EXTENDED_LENGTH
            self._out[header + 2] = size
            for i in range(size):
                self._out[header + 3 + i] = self._out[header + 4 + i]
            self._at -= 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy_attribute(
        self, kind: cython.uint, flags: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        self._open(kind, flags, end - at)
        self._copy(at, end)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _copy(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
        copy(self._in, at, self._out, self._at, end - at)
        self._at += end - at

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put32(self, number: cython.uint) -> cython.void:
        self._out[self._at] = number >> 24
        self._out[self._at + 1] = (number >> 16) & 0xFF
        self._out[self._at + 2] = (number >> 8) & 0xFF
        self._out[self._at + 3] = number & 0xFF
        self._at += 4

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _put16(self, number: cython.uint) -> cython.void:
        self._out[self._at] = number >> 8
        self._out[self._at + 1] = number & 0xFF
        self._at += 2

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, at: cython.Py_ssize_t) -> cython.uint:
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
    def _number_written(self, at: cython.Py_ssize_t) -> cython.uint:
        return (
            (cython.cast(cython.uint, self._out[at]) << 24)
            | (cython.cast(cython.uint, self._out[at + 1]) << 16)
            | (cython.cast(cython.uint, self._out[at + 2]) << 8)
            | self._out[at + 3]
        )


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
