"""Policy verdicts: which attribute sets and prefixes are refused, and why.

Owns the rules of a stage as rows of numbers, one row for all sources that are treated alike. Each pair of (rule,
attribute set) of a batch is looked at once, whatever number of routes shares it; each route is looked at only for its
prefix. Never changes a set (dress.py does) and keeps nothing of a batch.

RFC 4271 §5.1.3, §6.3 and §9.1.2 (own AS, first AS, next hop), RFC 1997 (well-known communities), RFC 4456 §8 (loops
between reflectors). Sets are read with every bound checked.
"""

import cython
import numpy as np

from common.arrays import allocate, grown
from common.bgp.constants import AttributeFlag, AttributeType, SegmentType, WellKnownCommunity
from common.bgp.reasons import ExportRefusal, ImportRefusal

NONE = cython.declare(cython.uint, 0xFFFFFFFF)
MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)

# Numbers of the wire, as C numbers.
AS_PATH = cython.declare(cython.uint, int(AttributeType.AS_PATH))
COMMUNITIES = cython.declare(cython.uint, int(AttributeType.COMMUNITIES))
ORIGINATOR_ID = cython.declare(cython.uint, int(AttributeType.ORIGINATOR_ID))
CLUSTER_LIST = cython.declare(cython.uint, int(AttributeType.CLUSTER_LIST))
AS_SEQUENCE = cython.declare(cython.uint, int(SegmentType.AS_SEQUENCE))
EXTENDED_LENGTH = cython.declare(cython.uint, int(AttributeFlag.EXTENDED_LENGTH))
COMMUNITY_NO_EXPORT = cython.declare(cython.uint, int(WellKnownCommunity.NO_EXPORT))
COMMUNITY_NO_ADVERTISE = cython.declare(cython.uint, int(WellKnownCommunity.NO_ADVERTISE))
COMMUNITY_NO_EXPORT_SUBCONFED = cython.declare(cython.uint, int(WellKnownCommunity.NO_EXPORT_SUBCONFED))

# Refusals, as C numbers.
OWN_AS = cython.declare(cython.uint, int(ImportRefusal.OWN_AS))
FIRST_AS = cython.declare(cython.uint, int(ImportRefusal.FIRST_AS))
NEXT_HOP_UNUSABLE = cython.declare(cython.uint, int(ImportRefusal.NEXT_HOP_UNUSABLE))
NEXT_HOP_OWN = cython.declare(cython.uint, int(ImportRefusal.NEXT_HOP_OWN))
MARTIAN = cython.declare(cython.uint, int(ImportRefusal.MARTIAN))
TOO_SPECIFIC = cython.declare(cython.uint, int(ImportRefusal.TOO_SPECIFIC))
ORIGINATOR_OWN = cython.declare(cython.uint, int(ImportRefusal.ORIGINATOR_OWN))
CLUSTER_OWN = cython.declare(cython.uint, int(ImportRefusal.CLUSTER_OWN))
MALFORMED = cython.declare(cython.uint, int(ImportRefusal.MALFORMED))
NO_ADVERTISE = cython.declare(cython.uint, int(ExportRefusal.NO_ADVERTISE))
NO_EXPORT = cython.declare(cython.uint, int(ExportRefusal.NO_EXPORT))
NO_EXPORT_SUBCONFED = cython.declare(cython.uint, int(ExportRefusal.NO_EXPORT_SUBCONFED))

# A row of ImportChecks: what each number is.
VERDICT = cython.declare(cython.uint, 0)  # refusal of everything, or 0
IS_CHECKED = cython.declare(cython.uint, 1)  # 0: the router's own routes, taken as they are
OWN_ASN = cython.declare(cython.uint, 2)
LOCAL_ASN = cython.declare(cython.uint, 3)
ASN_EXPECTED = cython.declare(cython.uint, 4)  # the AS that must lead the path; 0: any
ROUTER_ID = cython.declare(cython.uint, 5)
CLUSTER_ID = cython.declare(cython.uint, 6)
IS_EXTERNAL = cython.declare(cython.uint, 7)  # of ExportChecks: VERDICT and this one
WIDTH = cython.declare(cython.uint, 8)


def pair(rule_of_source: cython.uint[::1], source: cython.uint[::1], set: cython.uint[::1], n_sets: cython.Py_ssize_t):
    """Find the distinct pairs of (rule of the source, attribute set) among the rows of a batch.

    Returns (pair of each row, rule of each pair, set of each pair), all uint32; NONE for rows without a set. Pairs are
    numbered in order of first use.
    """
    n: cython.Py_ssize_t = set.shape[0]
    pair_of_row = np.empty(n, np.uint32)
    rule_of_pair = np.empty(n, np.uint32)
    set_of_pair = np.empty(n, np.uint32)
    rows: cython.uint[::1] = memoryview(pair_of_row)
    rules: cython.uint[::1] = memoryview(rule_of_pair)
    sets: cython.uint[::1] = memoryview(set_of_pair)
    first: cython.uint[::1] = memoryview(np.empty(n_sets, np.uint32))
    following: cython.uint[::1] = memoryview(np.empty(n, np.uint32))
    n_pairs: cython.uint = 0
    found: cython.uint
    rule: cython.uint
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n_sets):
            first[i] = NONE
        for i in range(n):
            if set[i] == NONE:
                rows[i] = NONE
                continue
            rule = rule_of_source[source[i]]
            found = first[set[i]]
            while found != NONE and rules[found] != rule:
                found = following[found]
            if found == NONE:
                found = n_pairs
                n_pairs += 1
                rules[found] = rule
                sets[found] = set[i]
                following[found] = first[set[i]]
                first[set[i]] = found
            rows[i] = found
    return pair_of_row, rule_of_pair[:n_pairs], set_of_pair[:n_pairs]


def settle(pair: cython.uint[::1], set_of_pair: cython.uint[::1], refusal_of_pair: cython.uchar[::1], reason):
    """Give each row of a batch the set and the refusal of its pair.

    `reason` (uint8, written in place) may hold refusals of single rows already: they stand, and take the set away.
    Returns the rows' sets (uint32), NONE where there is none or it was refused.
    """
    n: cython.Py_ssize_t = pair.shape[0]
    set_of_row = np.empty(n, np.uint32)
    sets: cython.uint[::1] = memoryview(set_of_row)
    reasons: cython.uchar[::1] = memoryview(reason)
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(n):
            if pair[i] == NONE or reasons[i] != 0:
                sets[i] = NONE
                continue
            reasons[i] = refusal_of_pair[pair[i]]
            sets[i] = set_of_pair[pair[i]] if reasons[i] == 0 else NONE
    return set_of_row


@cython.cclass
class PrefixChecks:
    """Refuses prefixes that nobody may announce, and those longer than accepted."""

    is_wide: cython.bint
    maximum_length: cython.uint
    n_martians: cython.Py_ssize_t
    _hi: cython.ulonglong[::1]
    _lo: cython.ulonglong[::1]
    _mask_hi: cython.ulonglong[::1]
    _mask_lo: cython.ulonglong[::1]
    _length: cython.uchar[::1]
    _is_suspect: cython.uchar[::1]  # by the first 16 bits of an address: a martian may be there

    def __init__(self, is_wide: bool, martians: list, maximum_length: int):
        """Take the martians as (address left-aligned in 128 bits, length in bits)."""
        ones = (1 << 128) - 1
        masks = [ones ^ (ones >> length) for _, length in martians]
        self.is_wide = is_wide
        self.maximum_length = maximum_length
        self.n_martians = len(martians)
        self._hi = memoryview(np.array([address >> 64 for address, _ in martians], np.uint64))
        self._lo = memoryview(np.array([address & (ones >> 64) for address, _ in martians], np.uint64))
        self._mask_hi = memoryview(np.array([mask >> 64 for mask in masks], np.uint64))
        self._mask_lo = memoryview(np.array([mask & (ones >> 64) for mask in masks], np.uint64))
        self._length = memoryview(np.array([length for _, length in martians], np.uint8))
        is_suspect = allocate(65536, np.uint8)
        for address, length in martians:
            start = address >> 112
            is_suspect[start : start + (1 << max(16 - length, 0))] = 1
        self._is_suspect = memoryview(is_suspect)

    def evaluate(
        self,
        hi: cython.ulonglong[::1],
        lo: cython.ulonglong[::1],
        length: cython.uchar[::1],
        source: cython.uint[::1],
        set: cython.uint[::1],
        is_exempt: cython.uchar[::1],
        reason,
    ):
        """Write the refusal of each row with a set into `reason` (uint8, in place); return how many are refused.

        `is_exempt` (uint8, by source): routes that are taken whatever their prefix is.
        """
        reasons: cython.uchar[::1] = memoryview(reason)
        n_refused: cython.Py_ssize_t = 0
        refusal: cython.uint
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(hi.shape[0]):
                if length[i] <= self.maximum_length and self._is_suspect[hi[i] >> 48] == 0:
                    continue
                if set[i] == NONE or is_exempt[source[i]] != 0:
                    continue
                refusal = self._evaluate(hi[i], lo[i] if self.is_wide else 0, length[i])
                if refusal != 0:
                    reasons[i] = refusal
                    n_refused += 1
        return n_refused

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _evaluate(self, hi: cython.ulonglong, lo: cython.ulonglong, length: cython.uint) -> cython.uint:
        m: cython.Py_ssize_t
        for m in range(self.n_martians):
            if (
                length >= self._length[m]
                and ((hi ^ self._hi[m]) & self._mask_hi[m]) == 0
                and ((lo ^ self._lo[m]) & self._mask_lo[m]) == 0
            ):
                return MARTIAN
        return TOO_SPECIFIC if length > self.maximum_length else 0


@cython.cclass
class ImportChecks:
    """Refuses attribute sets of neighbors that must not be used, by numbered rules."""

    n_rules: cython.Py_ssize_t
    _rules: cython.uint[::1]
    _own_ipv4: cython.uint[::1]
    _own_hi: cython.ulonglong[::1]
    _own_lo: cython.ulonglong[::1]
    _octets: cython.const[cython.uchar][::1]
    # The last next hop looked at and what was said of it: a neighbor's sets share a few.
    _last_length: cython.uint
    _last_hi: cython.ulonglong
    _last_lo: cython.ulonglong
    _last_refusal: cython.uint
    rules_column: object

    def __init__(self, own_addresses):
        """Take the router's own addresses as for `set_own_addresses`."""
        self.n_rules = 0
        self.rules_column = allocate(16 * 8, np.uint32)
        self._rules = memoryview(self.rules_column)
        self.set_own_addresses(own_addresses)

    def set_own_addresses(self, own_addresses) -> None:
        """Take the router's own addresses as packed octets (4 or 16 each), in place of those before."""
        ipv4 = [int.from_bytes(address, "big") for address in own_addresses if len(address) == 4]
        ipv6 = [int.from_bytes(address, "big") for address in own_addresses if len(address) == 16]
        self._own_ipv4 = memoryview(np.array(ipv4, np.uint32))
        self._own_hi = memoryview(np.array([address >> 64 for address in ipv6], np.uint64))
        self._own_lo = memoryview(np.array([address & 0xFFFFFFFFFFFFFFFF for address in ipv6], np.uint64))
        self._last_length = 0
        self._last_hi = 0
        self._last_lo = 0
        self._last_refusal = NEXT_HOP_UNUSABLE

    def add(
        self,
        verdict: int = 0,
        is_checked: bool = True,
        own_asn: int = 0,
        local_asn: int = 0,
        asn_expected: int = 0,
        router_id: int = 0,
        cluster_id: int = 0,
    ) -> int:
        """Add a rule and return its number.

        verdict: a refusal for everything. own_asn, local_asn: must not be in the path. asn_expected: must lead the
        path, 0 for any. router_id, cluster_id: of this router, looked for in ORIGINATOR_ID and CLUSTER_LIST; 0 is
        never found there.
        """
        if (self.n_rules + 1) * WIDTH > self._rules.shape[0]:
            self.rules_column = grown(self.rules_column, self._rules.shape[0] * 2)
            self._rules = memoryview(self.rules_column)
        self.n_rules += 1
        base: cython.Py_ssize_t = (self.n_rules - 1) * WIDTH
        self._rules[base + VERDICT] = verdict
        self._rules[base + IS_CHECKED] = is_checked
        self._rules[base + OWN_ASN] = own_asn
        self._rules[base + LOCAL_ASN] = local_asn
        self._rules[base + ASN_EXPECTED] = asn_expected
        self._rules[base + ROUTER_ID] = router_id
        self._rules[base + CLUSTER_ID] = cluster_id
        return self.n_rules - 1

    def evaluate(
        self,
        rule_of_pair: cython.uint[::1],
        set_of_pair: cython.uint[::1],
        set_offset: cython.uint[::1],
        set_octets: cython.const[cython.uchar][::1],
    ):
        """Return the refusal of each pair (uint8), 0 where the set may be used."""
        n: cython.Py_ssize_t = rule_of_pair.shape[0]
        result = np.empty(n, np.uint8)
        refusals: cython.uchar[::1] = memoryview(result)
        self._octets = set_octets
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                refusals[i] = self._evaluate(
                    rule_of_pair[i] * WIDTH, set_offset[set_of_pair[i]], set_offset[set_of_pair[i] + 1]
                )
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _evaluate(self, base: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.uint:
        """Walk one set from its next hop to its last attribute."""
        flags: cython.uint
        kind: cython.uint
        size: cython.Py_ssize_t
        refusal: cython.uint
        has_path: cython.bint = False
        if self._rules[base + VERDICT] != 0 or self._rules[base + IS_CHECKED] == 0:
            return self._rules[base + VERDICT]
        if at >= end or at + 1 + self._octets[at] > end:
            return MALFORMED
        refusal = self._check_next_hop(at + 1, self._octets[at])
        if refusal != 0:
            return refusal
        at += 1 + self._octets[at]
        while at < end:
            if end - at < 3:
                return MALFORMED
            flags = self._octets[at]
            kind = self._octets[at + 1]
            size = self._octets[at + 2]
            at += 3
            if flags & EXTENDED_LENGTH:
                if at == end:
                    return MALFORMED
                size = (size << 8) | self._octets[at]
                at += 1
            if size > end - at:
                return MALFORMED
            if kind > CLUSTER_LIST:  # ascending types: nothing that is looked at follows
                break
            if kind == AS_PATH:
                has_path = True
                refusal = self._check_path(base, at, at + size)
            elif kind == ORIGINATOR_ID and size == 4:
                if self._rules[base + ROUTER_ID] != 0 and self._number(at) == self._rules[base + ROUTER_ID]:
                    refusal = ORIGINATOR_OWN
            elif kind == CLUSTER_LIST and self._rules[base + CLUSTER_ID] != 0:
                if self._has_number(at, at + size, self._rules[base + CLUSTER_ID]):
                    refusal = CLUSTER_OWN
            if refusal != 0:
                return refusal
            at += size
        return FIRST_AS if self._rules[base + ASN_EXPECTED] != 0 and not has_path else 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_path(self, base: cython.Py_ssize_t, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.uint:
        own: cython.uint = self._rules[base + OWN_ASN]
        local: cython.uint = self._rules[base + LOCAL_ASN]
        expected: cython.uint = self._rules[base + ASN_EXPECTED]
        asn: cython.uint
        segment_end: cython.Py_ssize_t
        # RFC 4271 §6.3: the leftmost AS of a path from an external neighbor must be the neighbor's.
        if expected != 0 and (
            end - at < 6
            or self._octets[at] != AS_SEQUENCE
            or self._octets[at + 1] == 0
            or self._number(at + 2) != expected
        ):
            return FIRST_AS
        while at < end:
            if end - at < 2:
                return MALFORMED
            segment_end = at + 2 + 4 * cython.cast(cython.Py_ssize_t, self._octets[at + 1])
            if segment_end > end:
                return MALFORMED
            at += 2
            while at < segment_end:
                asn = self._number(at)
                # RFC 4271 §9.1.2: a route with our own AS in its path is a loop.
                if asn == own or asn == local:
                    return OWN_AS
                at += 4
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_next_hop(self, at: cython.Py_ssize_t, size: cython.uint) -> cython.uint:
        """Judge a next hop of 4, 16 or 32 octets (RFC 2545: of two addresses the first is the global one)."""
        hi: cython.ulonglong = 0
        lo: cython.ulonglong = 0
        if size == 4:
            lo = self._number(at)
        elif size == 16 or size == 32:
            hi = (cython.cast(cython.ulonglong, self._number(at)) << 32) | self._number(at + 4)
            lo = (cython.cast(cython.ulonglong, self._number(at + 8)) << 32) | self._number(at + 12)
        else:
            return NEXT_HOP_UNUSABLE
        if lo == self._last_lo and hi == self._last_hi and size == self._last_length:
            return self._last_refusal
        self._last_length = size
        self._last_hi = hi
        self._last_lo = lo
        if size == 4:
            self._last_refusal = self._judge_ipv4(cython.cast(cython.uint, lo))
        elif hi == 0 and (lo >> 32) == 0xFFFF:  # IPv4-mapped
            self._last_refusal = self._judge_ipv4(cython.cast(cython.uint, lo & MASK32))
        else:
            self._last_refusal = self._judge_ipv6(hi, lo)
        return self._last_refusal

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge_ipv4(self, address: cython.uint) -> cython.uint:
        i: cython.Py_ssize_t
        first: cython.uint = address >> 24
        if first == 0 or first == 127 or first >= 224:  # this host, loopback, multicast, reserved, broadcast
            return NEXT_HOP_UNUSABLE
        for i in range(self._own_ipv4.shape[0]):
            if self._own_ipv4[i] == address:
                return NEXT_HOP_OWN
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _judge_ipv6(self, hi: cython.ulonglong, lo: cython.ulonglong) -> cython.uint:
        i: cython.Py_ssize_t
        if (hi >> 56) == 0xFF or (hi == 0 and lo <= 1):  # multicast, unspecified, loopback
            return NEXT_HOP_UNUSABLE
        for i in range(self._own_hi.shape[0]):
            if self._own_hi[i] == hi and self._own_lo[i] == lo:
                return NEXT_HOP_OWN
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _has_number(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, number: cython.uint) -> cython.bint:
        while end - at >= 4:
            if self._number(at) == number:
                return True
            at += 4
        return False

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, at: cython.Py_ssize_t) -> cython.uint:
        return (
            (cython.cast(cython.uint, self._octets[at]) << 24)
            | (cython.cast(cython.uint, self._octets[at + 1]) << 16)
            | (cython.cast(cython.uint, self._octets[at + 2]) << 8)
            | self._octets[at + 3]
        )


@cython.cclass
class ExportChecks:
    """Refuses attribute sets that must not be told to a group of neighbors, by numbered rules."""

    n_rules: cython.Py_ssize_t
    _rules: cython.uint[::1]
    _octets: cython.const[cython.uchar][::1]
    rules_column: object

    def __init__(self):
        self.n_rules = 0
        self.rules_column = allocate(16 * 2, np.uint32)
        self._rules = memoryview(self.rules_column)

    def add(self, verdict: int = 0, is_external: bool = False) -> int:
        """Add a rule and return its number; `verdict`: a refusal for everything."""
        if (self.n_rules + 1) * 2 > self._rules.shape[0]:
            self.rules_column = grown(self.rules_column, self._rules.shape[0] * 2)
            self._rules = memoryview(self.rules_column)
        self._rules[self.n_rules * 2] = verdict
        self._rules[self.n_rules * 2 + 1] = is_external
        self.n_rules += 1
        return self.n_rules - 1

    def evaluate(
        self,
        rule_of_pair: cython.uint[::1],
        set_of_pair: cython.uint[::1],
        set_offset: cython.uint[::1],
        set_octets: cython.const[cython.uchar][::1],
    ):
        """Return the refusal of each pair (uint8), 0 where the set may be told."""
        n: cython.Py_ssize_t = rule_of_pair.shape[0]
        result = np.empty(n, np.uint8)
        refusals: cython.uchar[::1] = memoryview(result)
        self._octets = set_octets
        rule: cython.Py_ssize_t
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                rule = rule_of_pair[i]
                if self._rules[rule * 2] != 0:
                    refusals[i] = self._rules[rule * 2]
                else:
                    refusals[i] = self._evaluate(
                        self._rules[rule * 2 + 1], set_offset[set_of_pair[i]], set_offset[set_of_pair[i] + 1]
                    )
        return result

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _evaluate(self, is_external: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.uint:
        """Walk one set as far as its communities."""
        flags: cython.uint
        kind: cython.uint
        size: cython.Py_ssize_t
        if at >= end or at + 1 + self._octets[at] > end:
            return MALFORMED
        at += 1 + self._octets[at]
        while at < end:
            if end - at < 3:
                return MALFORMED
            flags = self._octets[at]
            kind = self._octets[at + 1]
            size = self._octets[at + 2]
            at += 3
            if flags & EXTENDED_LENGTH:
                if at == end:
                    return MALFORMED
                size = (size << 8) | self._octets[at]
                at += 1
            if size > end - at:
                return MALFORMED
            if kind >= COMMUNITIES:
                return self._check_communities(is_external, at, at + size) if kind == COMMUNITIES else 0
            at += size
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _check_communities(
        self, is_external: cython.uint, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.uint:
        """RFC 1997: no-advertise is for every peer, the other two are for peers of other ASes."""
        community: cython.uint
        refusal: cython.uint = 0
        while end - at >= 4:
            community = self._number(at)
            if community == COMMUNITY_NO_ADVERTISE:
                return NO_ADVERTISE
            if is_external != 0 and refusal == 0:
                if community == COMMUNITY_NO_EXPORT:
                    refusal = NO_EXPORT
                elif community == COMMUNITY_NO_EXPORT_SUBCONFED:
                    refusal = NO_EXPORT_SUBCONFED
            at += 4
        return refusal

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _number(self, at: cython.Py_ssize_t) -> cython.uint:
        return (
            (cython.cast(cython.uint, self._octets[at]) << 24)
            | (cython.cast(cython.uint, self._octets[at + 1]) << 16)
            | (cython.cast(cython.uint, self._octets[at + 2]) << 8)
            | self._octets[at + 3]
        )


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
