"""The scan, case by case: framing, RFC 7606 by attribute, RFC 6793, families and path identifiers."""

import numpy as np
import pytest

from common.bgp.attributes import decode_set
from common.bgp.constants import NONE, AttributeType, UpdateSubcode
from common.kernels import scan
from tests.oracles.updates import (
    AS_PATH,
    IPV6_NEXT_HOP,
    IPV6_ROUTE,
    NEXT_HOP,
    ORIGIN,
    ROUTE,
    attribute,
    message,
    path,
    reach,
    unreach,
    update,
)

MANDATORY = ORIGIN + AS_PATH + NEXT_HOP
KEEPALIVE = message(4)
T, O, OT = 0x40, 0x80, 0xC0  # noqa: E741 - the categories, as short as in the RFC
DELIVERED, DISCARDED, WITHDRAWN, RESET = "delivered", "discarded", "withdrawn", "reset"


def scanned(octets: bytes, **options) -> scan.Scanner:
    """Return a scanner that has scanned these octets."""
    scanner = scan.Scanner()
    scanner.scan(octets, 0, len(octets), scan.Options(**options))
    return scanner


def verdict_of(scanner: scan.Scanner) -> str:
    """Return what became of the UPDATE."""
    if scanner.stop == scan.ERROR:
        return RESET
    if scanner.n_withdrawn:
        return WITHDRAWN
    return DISCARDED if scanner.n_discarded else DELIVERED


def first_set(scanner: scan.Scanner, family: int = 0) -> bytes:
    """Return the octets of the first set of a family."""
    routes = scanner.routes(family)
    return routes.set_octets[: routes.set_offset[1]].tobytes()


# ---- RFC 7606 -------------------------------------------------------------------------------------------------------

# attribute, what it is beside the mandatory ones of an UPDATE with one route, from whom, the verdict and its reason
INTERNAL, EXTERNAL = {"external": False}, {"external": True}
OLD = {"as4": False}
CASES = [
    ("ORIGIN of a wrong length", attribute(T, 1, b"\0\0"), {}, WITHDRAWN, 5),
    ("ORIGIN without value", attribute(T, 1), {}, WITHDRAWN, 5),
    ("ORIGIN undefined", attribute(T, 1, b"\3"), {}, WITHDRAWN, 6),
    ("ORIGIN optional", attribute(OT, 1, b"\0"), {}, WITHDRAWN, 4),
    ("AS_PATH with an unknown segment", attribute(T, 2, path((5, [1]))), {}, WITHDRAWN, 11),
    ("AS_PATH segment overruns", attribute(T, 2, path((2, [1, 2]))[:-1]), {}, WITHDRAWN, 11),
    ("AS_PATH one octet left", attribute(T, 2, path((2, [1])) + b"\2"), {}, WITHDRAWN, 11),
    ("AS_PATH segment of no AS", attribute(T, 2, b"\2\0"), {}, WITHDRAWN, 11),
    ("AS_PATH with AS 0", attribute(T, 2, path((2, [1, 0]))), {}, WITHDRAWN, 11),
    ("AS_PATH with AS_SET", attribute(T, 2, path((2, [1]), (1, [2, 3]))), {}, WITHDRAWN, 11),
    ("AS_PATH with AS_SET, accepted", attribute(T, 2, path((1, [2, 3]))), {"accept_as_sets": True}, DELIVERED, 0),
    ("AS_PATH with AS_CONFED_SEQUENCE", attribute(T, 2, path((3, [1]))), {}, WITHDRAWN, 11),
    ("AS_PATH empty", attribute(T, 2), {}, DELIVERED, 0),
    ("AS_PATH not transitive", attribute(0, 2, path((2, [1]))), {}, WITHDRAWN, 4),
    ("NEXT_HOP of a wrong length", attribute(T, 3, bytes(3)), {}, WITHDRAWN, 5),
    ("NEXT_HOP 0.0.0.0", attribute(T, 3, bytes(4)), {}, WITHDRAWN, 8),
    ("NEXT_HOP multicast", attribute(T, 3, bytes([224, 0, 0, 5])), {}, WITHDRAWN, 8),
    ("MULTI_EXIT_DISC", attribute(O, 4, bytes(4)), {}, DELIVERED, 0),
    ("MULTI_EXIT_DISC of a wrong length", attribute(O, 4, bytes(3)), {}, WITHDRAWN, 5),
    ("MULTI_EXIT_DISC transitive", attribute(OT, 4, bytes(4)), {}, WITHDRAWN, 4),
    ("LOCAL_PREF", attribute(T, 5, bytes(4)), INTERNAL, DELIVERED, 0),
    ("LOCAL_PREF of a wrong length", attribute(T, 5, bytes(5)), INTERNAL, WITHDRAWN, 5),
    ("LOCAL_PREF from an external peer", attribute(T, 5, bytes(5)), EXTERNAL, DISCARDED, 1),
    ("ATOMIC_AGGREGATE", attribute(T, 6), {}, DELIVERED, 0),
    ("ATOMIC_AGGREGATE with a value", attribute(T, 6, b"\0"), {}, DISCARDED, 5),
    ("ATOMIC_AGGREGATE optional", attribute(OT, 6), {}, WITHDRAWN, 4),
    ("AGGREGATOR", attribute(OT, 7, bytes([0, 0, 1, 1, 10, 0, 0, 1])), {}, DELIVERED, 0),
    ("AGGREGATOR of an old peer from a new one", attribute(OT, 7, bytes([1, 1, 10, 0, 0, 1])), {}, DISCARDED, 5),
    ("AGGREGATOR of a new peer from an old one", attribute(OT, 7, bytes([0, 0, 1, 1, 10, 0, 0, 1])), OLD, DISCARDED, 5),
    ("AGGREGATOR with AS 0", attribute(OT, 7, bytes([0, 0, 0, 0, 10, 0, 0, 1])), {}, DISCARDED, 9),
    ("AGGREGATOR not transitive", attribute(O, 7, bytes([0, 0, 1, 1, 10, 0, 0, 1])), {}, WITHDRAWN, 4),
    ("COMMUNITIES", attribute(OT, 8, bytes(8)), {}, DELIVERED, 0),
    ("COMMUNITIES of a wrong length", attribute(OT, 8, bytes(6)), {}, WITHDRAWN, 5),
    ("COMMUNITIES empty", attribute(OT, 8), {}, WITHDRAWN, 5),
    ("ORIGINATOR_ID", attribute(O, 9, bytes(4)), INTERNAL, DELIVERED, 0),
    ("ORIGINATOR_ID of a wrong length", attribute(O, 9, bytes(2)), INTERNAL, WITHDRAWN, 5),
    ("ORIGINATOR_ID from an external peer", attribute(O, 9, bytes(2)), EXTERNAL, DISCARDED, 1),
    ("CLUSTER_LIST", attribute(O, 10, bytes(8)), INTERNAL, DELIVERED, 0),
    ("CLUSTER_LIST of a wrong length", attribute(O, 10, bytes(7)), INTERNAL, WITHDRAWN, 5),
    ("CLUSTER_LIST empty", attribute(O, 10), INTERNAL, WITHDRAWN, 5),
    ("CLUSTER_LIST from an external peer", attribute(O, 10, bytes(7)), EXTERNAL, DISCARDED, 1),
    ("MP_REACH_NLRI too short", attribute(O, 14, bytes([0, 2, 1, 0])), {}, RESET, 5),
    ("MP_REACH_NLRI transitive", attribute(OT, 14, bytes([0, 2, 1, 0, 0])), {}, RESET, 4),
    ("MP_REACH_NLRI next hop of 15 octets", reach(next_hop=bytes(15)), {}, RESET, 9),
    ("MP_REACH_NLRI next hop beyond the end", attribute(O, 14, bytes([0, 2, 1, 200, 0, 0])), {}, RESET, 9),
    ("MP_REACH_NLRI unspecified next hop, for policy", reach(next_hop=bytes(16)), {}, DELIVERED, 0),
    ("MP_REACH_NLRI prefix too long", reach(routes=bytes([129]) + bytes(17)), {}, RESET, 9),
    ("MP_REACH_NLRI prefix cut", reach(routes=IPV6_ROUTE[:-1]), {}, RESET, 9),
    ("MP_REACH_NLRI of IPv4 with an IPv6 next hop", reach(ROUTE, IPV6_NEXT_HOP, afi=1), {}, RESET, 9),
    (
        "MP_REACH_NLRI of IPv4 with an IPv6 next hop, negotiated",
        reach(ROUTE, IPV6_NEXT_HOP, afi=1),
        {"extended_next_hop": True},
        DELIVERED,
        0,
    ),
    ("MP_REACH_NLRI of another family", reach(b"\xff\xff", bytes(12), afi=25, safi=65), {}, DELIVERED, 0),
    ("MP_REACH_NLRI twice", reach() + reach(), {}, RESET, 1),
    ("MP_UNREACH_NLRI too short", attribute(O, 15, bytes(2)), {}, RESET, 5),
    ("MP_UNREACH_NLRI transitive", attribute(OT, 15, bytes([0, 2, 1])), {}, RESET, 4),
    ("MP_UNREACH_NLRI prefix too long", unreach(bytes([129]) + bytes(17)), {}, RESET, 9),
    ("MP_UNREACH_NLRI twice", unreach() + unreach(), {}, RESET, 1),
    ("EXTENDED_COMMUNITIES", attribute(OT, 16, bytes(16)), {}, DELIVERED, 0),
    ("EXTENDED_COMMUNITIES of a wrong length", attribute(OT, 16, bytes(12)), {}, WITHDRAWN, 5),
    ("EXTENDED_COMMUNITIES empty", attribute(OT, 16), {}, WITHDRAWN, 5),
    ("AS4_PATH from a new peer", attribute(OT, 17, path((2, [1]))), {}, DISCARDED, 1),
    ("AS4_AGGREGATOR from a new peer", attribute(OT, 18, bytes([0, 0, 0, 1, 10, 0, 0, 1])), {}, DISCARDED, 1),
    ("IPV6_EXTENDED_COMMUNITIES", attribute(OT, 25, bytes(20)), {}, DELIVERED, 0),
    ("IPV6_EXTENDED_COMMUNITIES of a wrong length", attribute(OT, 25, bytes(8)), {}, WITHDRAWN, 5),
    ("LARGE_COMMUNITY", attribute(OT, 32, bytes(12)), {}, DELIVERED, 0),
    ("LARGE_COMMUNITY of a wrong length", attribute(OT, 32, bytes(13)), {}, WITHDRAWN, 5),
    ("LARGE_COMMUNITY empty", attribute(OT, 32), {}, WITHDRAWN, 5),
    ("LARGE_COMMUNITY not transitive", attribute(O, 32, bytes(12)), {}, WITHDRAWN, 4),
    ("ONLY_TO_CUSTOMER", attribute(OT, 35, bytes(4)), {}, DELIVERED, 0),
    ("ONLY_TO_CUSTOMER of a wrong length", attribute(OT, 35, bytes(2)), {}, WITHDRAWN, 5),
    ("unknown, optional transitive", attribute(OT, 99, b"x"), {}, DELIVERED, 0),
    ("unknown, optional non-transitive", attribute(O, 99, b"x"), {}, DELIVERED, 0),
    ("AIGP, which no session has enabled", attribute(O, 26, bytes(3)), {}, DELIVERED, 0),
    ("unknown, well-known", attribute(T, 99, b"x"), {}, RESET, 2),
    ("COMMUNITIES twice", attribute(OT, 8, bytes(4)) + attribute(OT, 8, bytes(3)), {}, DISCARDED, 1),
    ("unknown twice", attribute(OT, 99) + attribute(OT, 99), {}, DISCARDED, 1),
    ("an attribute longer than the rest", bytes([OT, 8, 9, 0]), {}, WITHDRAWN, 5),
    ("an MP_REACH_NLRI longer than the rest", bytes([O, 14, 9, 0]), {}, RESET, 5),
    ("two octets left", bytes([OT, 8]), {}, WITHDRAWN, 1),
    ("three octets left, with Extended Length", bytes([OT | 0x10, 8, 0]), {}, WITHDRAWN, 5),
]


def reason_of(scanner: scan.Scanner) -> int:
    """Return the subcode of the strongest error."""
    reasons = {
        RESET: scanner.error_subcode,
        WITHDRAWN: scanner.withdrawn_reason,
        DISCARDED: scanner.discarded_reason,
        DELIVERED: 0,
    }
    return reasons[verdict_of(scanner)]


@pytest.mark.parametrize(
    ("octets", "options", "verdict", "reason"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_handles_each_error_as_rfc_7606_says(octets, options, verdict, reason):
    """Each attribute in each kind of error leads to the verdict of its RFC, and nothing weaker or stronger."""
    width = 2 if options == OLD else 4
    as_path = attribute(T, 2, path((2, [1, 2]), width=width))
    rest = {1: as_path + NEXT_HOP, 2: ORIGIN + NEXT_HOP, 3: ORIGIN + as_path}
    rest = rest.get(octets[1], ORIGIN + as_path + NEXT_HOP)
    scanner = scanned(update(attributes=rest + octets, nlri=ROUTE), **options)
    assert (verdict_of(scanner), reason_of(scanner)) == (verdict, reason)
    rows = scanner.routes(0).set.tolist()
    if verdict == RESET:
        assert (rows, scanner.consumed, scanner.n_updates) == ([], 0, 0)
    elif verdict == WITHDRAWN:
        assert set(rows) == {NONE}
    else:
        assert NONE not in rows


HIDING = [case for case in CASES if case[3] == WITHDRAWN]


@pytest.mark.parametrize("octets", [case[1] for case in HIDING], ids=[case[0] for case in HIDING])
def test_resets_when_routes_may_be_hidden(octets):
    """An error that would be treat-as-withdraw is a reset when the UPDATE has no reachable route (RFC 7606 §5.2)."""
    assert scanned(update(attributes=octets), external=False).stop == scan.ERROR


@pytest.mark.parametrize("missing", [ORIGIN, AS_PATH, NEXT_HOP], ids=["ORIGIN", "AS_PATH", "NEXT_HOP"])
def test_withdraws_what_lacks_a_mandatory_attribute(missing):
    """A route without ORIGIN, AS_PATH or NEXT_HOP is treated as withdrawn, and the missing one is named (§3.d)."""
    scanner = scanned(update(attributes=MANDATORY.replace(missing, b""), nlri=ROUTE))
    assert scanner.withdrawn_reason == UpdateSubcode.MISSING_WELL_KNOWN_ATTRIBUTE
    assert scanner.withdrawn_attribute == missing[1]
    assert scanner.routes(0).set.tolist() == [NONE]


def test_takes_the_strongest_of_several_errors():
    """Discard, withdraw and reset in one UPDATE are a reset, whatever their order (§3.h)."""
    discard, withdraw, reset = attribute(T, 6, b"x"), attribute(O, 4, b"x"), attribute(T, 99, b"x")
    scanner = scanned(update(attributes=discard + reset + withdraw + MANDATORY, nlri=ROUTE))
    assert (scanner.stop, scanner.error_subcode) == (scan.ERROR, UpdateSubcode.UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE)
    assert verdict_of(scanned(update(attributes=discard + MANDATORY + withdraw, nlri=ROUTE))) == WITHDRAWN


def test_tells_the_erroneous_attribute_in_the_notification():
    """The data of an UPDATE error is the attribute, with its flags, type and length (RFC 4271 §6.3)."""
    wrong = attribute(T, 99, b"what")
    octets = KEEPALIVE + update(attributes=MANDATORY + wrong, nlri=ROUTE)
    scanner = scanned(octets)
    assert octets[scanner.error_offset : scanner.error_offset + scanner.error_length] == wrong
    assert (scanner.message_offset, scanner.consumed) == (len(KEEPALIVE), len(KEEPALIVE))


def test_names_the_update_that_was_treated_as_withdraw():
    """For the log: where the first such UPDATE is, and which attribute was wrong."""
    good, bad = (
        update(attributes=MANDATORY, nlri=ROUTE),
        update(attributes=attribute(T, 1, b"\7") + AS_PATH, nlri=ROUTE),
    )
    scanner = scanned(good + bad + bad)
    assert (scanner.n_withdrawn, scanner.withdrawn_offset, scanner.withdrawn_length) == (2, len(good), len(bad))
    assert (scanner.withdrawn_attribute, scanner.withdrawn_reason) == (1, UpdateSubcode.INVALID_ORIGIN_ATTRIBUTE)


def test_counts_as_sets_apart():
    """What RFC 9774 alone withdraws is counted apart, in AS_PATH and in AS4_PATH."""
    with_set = attribute(T, 2, path((1, [1, 2])))
    assert scanned(update(attributes=ORIGIN + with_set + NEXT_HOP, nlri=ROUTE)).n_as_sets == 1
    old = attribute(T, 2, path((2, [1, 2]), width=2)) + attribute(OT, 17, path((1, [1, 2])))
    assert scanned(update(attributes=ORIGIN + old + NEXT_HOP, nlri=ROUTE), as4=False).n_as_sets == 1


def test_withdraws_the_routes_of_both_families():
    """Treat-as-withdraw reaches NLRI, MP_REACH_NLRI and what was withdrawn anyway."""
    wrong = attribute(T, 1, b"\7")
    octets = update(ROUTE, reach() + unreach() + wrong + AS_PATH + NEXT_HOP, ROUTE + ROUTE)
    scanner = scanned(octets)
    assert scanner.routes(0).set.tolist() == [NONE] * 3
    assert scanner.routes(1).set.tolist() == [NONE] * 2


def test_ignores_next_hop_beside_mp_reach_alone():
    """NEXT_HOP without NLRI of its own is not looked at (RFC 4760 §3)."""
    octets = update(attributes=ORIGIN + AS_PATH + attribute(T, 3, b"junk!") + reach())
    assert verdict_of(scanned(octets)) == DELIVERED


# ---- what goes into a set -------------------------------------------------------------------------------------------


def test_orders_attributes_and_drops_those_that_carry_routes():
    """A set is the next hop and the other attributes by ascending type, in whatever order they came."""
    med, community = attribute(O, 4, bytes([0, 0, 0, 9])), attribute(OT, 8, bytes([0, 1, 0, 2]))
    octets = update(attributes=community + med + NEXT_HOP + unreach() + AS_PATH + ORIGIN, nlri=ROUTE)
    assert first_set(scanned(octets)) == b"\4" + NEXT_HOP[3:] + ORIGIN + AS_PATH + med + community


def test_makes_equal_sets_of_unequal_encodings():
    """Extended Length without need, stray low flag bits and Partial on well-known attributes leave no trace."""
    stray = bytes([T | 0x10 | 0x20 | 0x0F, 1, 0, 1, 0])
    plain = first_set(scanned(update(attributes=MANDATORY, nlri=ROUTE)))
    assert first_set(scanned(update(attributes=stray + AS_PATH + NEXT_HOP, nlri=ROUTE))) == plain


def test_keeps_partial_and_sets_it_on_what_is_unknown():
    """Partial stays on optional transitive attributes, and is set on those passed on unknown (RFC 4271 §5)."""
    octets = update(attributes=MANDATORY + attribute(OT | 0x20, 8, bytes(4)) + attribute(OT, 99, b"x"), nlri=ROUTE)
    attributes = decode_set(first_set(scanned(octets)))
    assert attributes.partial == {AttributeType.COMMUNITIES}
    assert attributes.others == ((OT | 0x20, 99, b"x"),)


def test_drops_unknown_non_transitive_and_discarded_attributes():
    """What is ignored or discarded is not in the set."""
    octets = update(attributes=MANDATORY + attribute(O, 99, b"x") + attribute(T, 5, bytes(4)), nlri=ROUTE)
    assert first_set(scanned(octets)) == first_set(scanned(update(attributes=MANDATORY, nlri=ROUTE)))


def test_removes_repeated_large_communities():
    """A large community that is there twice is kept once (RFC 8092 §5)."""
    values = [(1, 2, 3), (4, 5, 6), (1, 2, 3), (4, 5, 7), (4, 5, 6)]
    octets = b"".join(part.to_bytes(4, "big") for value in values for part in value)
    attributes = decode_set(first_set(scanned(update(attributes=MANDATORY + attribute(OT, 32, octets), nlri=ROUTE))))
    assert attributes.large_communities == ((1, 2, 3), (4, 5, 6), (4, 5, 7))


def test_removes_repeated_large_communities_of_a_full_message():
    """Thousands of large communities are made unique, too, each where it stood first."""
    values = [n * 7919 % 2731 for n in range(5400)]
    octets = b"".join(bytes(4) + value.to_bytes(4, "big") + bytes(4) for value in values)
    octets = update(attributes=MANDATORY + attribute(OT, 32, octets), nlri=ROUTE)
    attributes = decode_set(first_set(scanned(octets, max_message=65535)))
    assert [value for _, value, _ in attributes.large_communities] == list(dict.fromkeys(values))


def test_takes_next_hops_of_32_octets():
    """A global and a link-local next hop stay together (RFC 2545 §3)."""
    next_hop = IPV6_NEXT_HOP + b"\xfe\x80" + bytes(14)
    scanner = scanned(update(attributes=reach(next_hop=next_hop) + ORIGIN + AS_PATH))
    assert first_set(scanner, 1) == b"\x20" + next_hop + ORIGIN + AS_PATH


def merged(as_path, as4_path=None, aggregator: bytes = b"", as4_aggregator: bytes = b""):
    """Return the values of the set of an UPDATE from a two-octet peer."""
    octets = ORIGIN + attribute(T, 2, path(*as_path, width=2)) + NEXT_HOP
    octets += attribute(OT, 7, aggregator) if aggregator else b""
    octets += attribute(OT, 17, path(*as4_path)) if as4_path else b""
    octets += attribute(OT, 18, as4_aggregator) if as4_aggregator else b""
    scanner = scanned(update(attributes=octets, nlri=ROUTE), as4=False, accept_as_sets=True, accept_confederation=True)
    return decode_set(first_set(scanner))


@pytest.mark.parametrize(
    ("as_path", "as4_path", "expected"),
    [
        ([(2, [1, 2])], None, ((2, (1, 2)),)),
        ([(2, [1, 23456, 3])], [(2, [70000, 3])], ((2, (1, 70000, 3)),)),
        ([(2, [23456])], [(2, [70000, 3])], ((2, (23456,)),)),
        ([(2, [1]), (1, [2, 3]), (2, [23456])], [(2, [70000])], ((2, (1,)), (1, (2, 3)), (2, (70000,)))),
        ([(3, [9]), (2, [1, 23456])], [(2, [70000])], ((3, (9,)), (2, (1, 70000)))),
        ([(2, [1, 23456])], [(3, [8]), (2, [70000])], ((2, (1, 70000)),)),
    ],
    ids=["no AS4_PATH", "merged", "AS4_PATH longer", "with a set", "confederation leads", "confederation in AS4_PATH"],
)
def test_merges_as4_path(as_path, as4_path, expected):
    """AS4_PATH replaces the end of AS_PATH; it is ignored where it is longer (RFC 6793 §4.2.3)."""
    assert merged(as_path, as4_path).as_path == expected


def test_believes_as4_aggregator_only_beside_as_trans():
    """AS4_AGGREGATOR counts if AGGREGATOR says AS_TRANS; if it does not, AS4_PATH is not believed either."""
    address, new = bytes([10, 0, 0, 1]), (70000).to_bytes(4, "big") + bytes([10, 0, 0, 2])
    trans = merged([(2, [23456])], [(2, [70000])], (23456).to_bytes(2, "big") + address, new)
    assert (trans.aggregator, trans.as_path) == ((70000, 0x0A000002), ((2, (70000,)),))
    other = merged([(2, [23456])], [(2, [70000])], (5).to_bytes(2, "big") + address, new)
    assert (other.aggregator, other.as_path) == ((5, 0x0A000001), ((2, (23456,)),))
    assert merged([(2, [1])], None, b"", new).aggregator is None


def test_withdraws_a_path_that_does_not_fit_when_widened():
    """A two-octet path of an extended message can be too long with four-octet numbers."""
    long_path = path(*[(2, [64512] * 255)] * 70, width=2)
    octets = update(attributes=ORIGIN + attribute(T, 2, long_path) + NEXT_HOP, nlri=ROUTE)
    scanner = scanned(octets, as4=False, max_message=65535)
    assert (verdict_of(scanner), scanner.withdrawn_attribute) == (WITHDRAWN, AttributeType.AS_PATH)


# ---- routes ---------------------------------------------------------------------------------------------------------


def test_clears_bits_beyond_the_length():
    """Host bits are zero in the columns, whatever the peer sent (RFC 4271 §4.3)."""
    octets = update(
        attributes=MANDATORY + reach(bytes([65]) + b"\xff" * 9), nlri=bytes([9, 255, 255, 0, 31] + [255] * 4)
    )
    scanner = scanned(octets)
    assert scanner.routes(0).hi.tolist() == [0xFF80 << 48, 0, 0xFFFFFFFE << 32]
    assert scanner.routes(1).hi.tolist() == [(1 << 64) - 1]
    assert scanner.routes(1).lo.tolist() == [1 << 63]


def test_puts_withdrawals_before_announcements():
    """A prefix that is withdrawn and announced in one UPDATE ends up announced (RFC 4271 §4.3)."""
    assert scanned(update(ROUTE, MANDATORY, ROUTE)).routes(0).set.tolist() == [NONE, 0]


def test_reads_path_identifiers_where_negotiated():
    """With ADD-PATH, four octets stand before each prefix, for that family only (RFC 7911 §3)."""
    octets = update(attributes=MANDATORY + reach(), nlri=bytes([0, 0, 1, 2]) + ROUTE)
    scanner = scanned(octets, add_path=1)
    assert (scanner.routes(0).path_id.tolist(), scanner.routes(1).path_id.tolist()) == ([258], [0])


@pytest.mark.parametrize("families", [1, 2])
def test_ignores_families_that_were_not_negotiated(families):
    """Routes of a family the session does not have are passed over."""
    scanner = scanned(update(ROUTE, MANDATORY + reach() + unreach(), ROUTE), families=families)
    assert (len(scanner.routes(0).hi) > 0, len(scanner.routes(1).hi) > 0) == (families == 1, families == 2)


@pytest.mark.parametrize(
    ("octets", "families"),
    [(update(), 1), (update(attributes=unreach(b"")), 2), (update(attributes=unreach(b"", afi=1)), 1)],
)
def test_notes_end_of_rib(octets, families):
    """An UPDATE without anything, or with an empty MP_UNREACH_NLRI alone, is End-of-RIB (RFC 4724 §2)."""
    assert scanned(octets).end_of_rib == families
    assert scanned(octets, families=3 - families).end_of_rib == 0


@pytest.mark.parametrize("octets", [update(attributes=unreach(b"") + ORIGIN), update(ROUTE, unreach(b""))])
def test_takes_nothing_else_for_end_of_rib(octets):
    """An empty MP_UNREACH_NLRI beside something else is no End-of-RIB."""
    assert scanned(octets).end_of_rib == 0


# ---- framing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("octets", "subcode", "data"),
    [
        (b"\xff" * 15 + b"\xfe" + KEEPALIVE[16:], 1, b""),
        (message(4, length=18), 2, b"\0\x12"),
        (message(4, b"x"), 2, b"\0\x14"),
        (message(2, bytes(3)), 2, b"\0\x16"),
        (message(2, length=4097), 2, b"\x10\x01"),
        (message(1, bytes(9)), 2, b"\0\x1c"),
        (message(3, b"x"), 2, b"\0\x14"),
        (message(5, bytes(3)), 2, b"\0\x16"),
        (message(6), 3, b"\6"),
        (message(0), 3, b"\0"),
    ],
    ids=[
        "marker",
        "short",
        "KEEPALIVE",
        "UPDATE",
        "too long",
        "OPEN",
        "NOTIFICATION",
        "ROUTE-REFRESH",
        "type 6",
        "type 0",
    ],
)
def test_refuses_bad_headers(octets, subcode, data):
    """A bad header ends the scan with its subcode and data, behind what came before it (RFC 4271 §6.1)."""
    scanner = scanned(KEEPALIVE + octets)
    assert (scanner.stop, scanner.error_code, scanner.error_subcode, scanner.consumed) == (scan.ERROR, 1, subcode, 19)
    stream = KEEPALIVE + octets
    assert stream[scanner.error_offset : scanner.error_offset + scanner.error_length] == data


@pytest.mark.parametrize("kind", [1, 4])
def test_keeps_open_and_keepalive_short(kind):
    """Extended messages are for the other types (RFC 8654 §4)."""
    assert scanned(message(kind, length=4097), max_message=65535).error_subcode == 2
    assert scanned(message(2, length=65535), max_message=65535).stop == scan.NEED_MORE


def test_stops_behind_other_messages():
    """A ROUTE-REFRESH between UPDATEs keeps its place: the scan stops behind it."""
    refresh = message(5, bytes([0, 1, 0, 1]))
    octets = update(attributes=MANDATORY, nlri=ROUTE) + refresh + update(ROUTE)
    scanner = scanned(octets)
    assert (scanner.stop, scanner.n_updates, scanner.message_type) == (scan.MESSAGE, 1, 5)
    assert octets[scanner.message_offset :][: scanner.message_length] == refresh
    scanner.scan(octets, scanner.consumed, len(octets), scan.Options())
    assert (scanner.stop, scanner.routes(0).set.tolist()) == (scan.NEED_MORE, [NONE])


@pytest.mark.parametrize("body", [b"\0\2\0\0\0", b"\xff\xff\0\0\0", b"\0\0\0\1", b"\0\1\0\0\1"])
def test_refuses_fields_longer_than_the_message(body):
    """Withdrawn Routes or attributes longer than the UPDATE are a reset (RFC 7606 §3.a)."""
    scanner = scanned(message(2, body))
    assert (scanner.stop, scanner.error_subcode) == (scan.ERROR, UpdateSubcode.MALFORMED_ATTRIBUTE_LIST)


@pytest.mark.parametrize("field", ["withdrawn", "nlri"])
def test_refuses_routes_that_do_not_fit(field):
    """A prefix too long, or cut, in Withdrawn Routes or NLRI is a reset, and nothing of its UPDATE is delivered."""
    for routes in (bytes([33, 1, 2, 3, 4, 5]), ROUTE + bytes([24, 1])):
        octets = update(routes, MANDATORY, ROUTE) if field == "withdrawn" else update(ROUTE, MANDATORY, routes)
        scanner = scanned(octets)
        assert (scanner.stop, scanner.error_subcode) == (scan.ERROR, UpdateSubcode.INVALID_NETWORK_FIELD)
        assert (scanner.n_routes(0), len(scanner.routes(0).set_octets)) == (0, 0)


def test_delivers_what_came_before_an_error():
    """A reset takes nothing back of earlier UPDATEs."""
    scanner = scanned(update(attributes=MANDATORY, nlri=ROUTE) + update(bytes([99])))
    assert (scanner.stop, scanner.n_updates, scanner.routes(0).set.tolist()) == (scan.ERROR, 1, [0])


def test_takes_a_stream_octet_by_octet():
    """However the octets are cut, the same routes come out, and only whole messages are consumed."""
    stream = update(attributes=MANDATORY, nlri=ROUTE) + KEEPALIVE + update(attributes=MANDATORY + reach())
    scanner, start, found = scan.Scanner(), 0, 0
    for end in range(len(stream) + 1):
        assert scanner.scan(stream, start, end, scan.Options()) == scan.NEED_MORE
        found += scanner.n_routes(0) + scanner.n_routes(1)
        start = scanner.consumed
    assert (start, found) == (len(stream), 2)


def test_says_when_its_scratch_is_full():
    """More octets than the scratch holds are scanned in several calls."""
    one = update(attributes=MANDATORY, nlri=ROUTE * 1000)
    stream, scanner, start, n_routes = one * 100, scan.Scanner(1), 0, 0
    while scanner.scan(stream, start, len(stream), scan.Options()) == scan.FULL:
        n_routes, start = n_routes + scanner.n_routes(0), scanner.consumed
    assert n_routes + scanner.n_routes(0) == 100_000


def test_lets_go_of_the_buffer():
    """After a scan the buffer can be resized: nothing keeps it."""
    buffer = bytearray(KEEPALIVE)
    scanned(buffer)
    buffer.extend(KEEPALIVE)
    assert len(buffer) == 38


def test_refuses_a_range_outside_the_buffer():
    """The range is checked, since nothing behind it is."""
    with pytest.raises(ValueError):
        scan.Scanner().scan(KEEPALIVE, 0, 20, scan.Options())


def test_reads_numpy_buffers():
    """A buffer may be a column of octets."""
    octets = np.frombuffer(update(attributes=MANDATORY, nlri=ROUTE), np.uint8)
    scanner = scan.Scanner()
    scanner.scan(octets, 0, len(octets), scan.Options())
    assert scanner.n_routes(0) == 1
