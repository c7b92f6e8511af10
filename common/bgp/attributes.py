"""Attribute sets as values: made from values, taken apart into values, and told in words.

Owns the `AttributeSet` record and its octets: one octet next hop length, the next hop, then the path attributes in
canonical form (see common/kernels/scan.py). Never used for each route: kernels pass sets on as octets; this is for what
a router originates, for what it shows, and for tests.

RFC 4271 §4.3, §5; RFC 1997, 4360, 4456, 5701, 6793, 8092, 9234.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from common.bgp.constants import (
    AttributeFlag,
    AttributeType,
    Origin,
    SegmentType,
    WellKnownCommunity,
    format_attribute_type,
)

_WELL_KNOWN = AttributeFlag.TRANSITIVE
_OPTIONAL = AttributeFlag.OPTIONAL
_PASSED_ON = AttributeFlag.OPTIONAL | AttributeFlag.TRANSITIVE
# RFC 4271 §4.3: a segment's count is one octet.
_LONGEST_SEGMENT = 255

Segment = tuple[SegmentType, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeSet:
    """The attributes of some routes; None or empty stands for "not there".

    as_path: segments. aggregator: AS number and address. communities: 32-bit values; large_communities: triples;
    extended communities: 8 and 20 octets each; others: flags, type and value of what Headrace does not know, and the
    Partial bits of what it does in `partial`.
    """

    next_hop: bytes = b""
    origin: int | None = None
    as_path: tuple[Segment, ...] | None = None
    med: int | None = None
    local_pref: int | None = None
    atomic_aggregate: bool = False
    aggregator: tuple[int, int] | None = None
    communities: tuple[int, ...] = ()
    originator_id: int | None = None
    cluster_list: tuple[int, ...] = ()
    extended_communities: tuple[bytes, ...] = ()
    ipv6_extended_communities: tuple[bytes, ...] = ()
    large_communities: tuple[tuple[int, int, int], ...] = ()
    only_to_customer: int | None = None
    others: tuple[tuple[int, int, bytes], ...] = ()
    partial: frozenset[int] = frozenset()

    def encode(self) -> bytes:
        """Return the set's octets, in canonical form."""
        attributes = [*_values(self), *self.others]
        octets = b"".join(
            _encode_attribute(flags | (AttributeFlag.PARTIAL if code in self.partial else 0), code, value)
            for flags, code, value in sorted(attributes, key=lambda attribute: attribute[1])
        )
        return bytes([len(self.next_hop)]) + self.next_hop + octets


def encode_set(*, as_path: Iterable = (), origin: int = Origin.IGP, **values) -> bytes:
    """Return the octets of an attribute set with these values (names as of `AttributeSet`).

    as_path: AS numbers in sequence, a `set` or `frozenset` of numbers among them for an AS_SET.
    """
    return AttributeSet(as_path=make_path(as_path), origin=origin, **values).encode()


def make_path(items: Iterable) -> tuple[Segment, ...]:
    """Return the segments of a path given as AS numbers and sets of them."""
    segments: list[Segment] = []
    for item in items:
        if not isinstance(item, int):
            segments.append((SegmentType.AS_SET, tuple(sorted(item))))
        elif segments and segments[-1][0] is SegmentType.AS_SEQUENCE and len(segments[-1][1]) < _LONGEST_SEGMENT:
            segments[-1] = (SegmentType.AS_SEQUENCE, (*segments[-1][1], item))
        else:
            segments.append((SegmentType.AS_SEQUENCE, (item,)))
    return tuple(segments)


def split_attributes(octets: bytes) -> list[tuple[int, int, bytes]]:
    """Return flags, type and value of each attribute of a set. Raises ValueError if its octets are cut short."""
    attributes = []
    at = 1 + octets[0]
    while at < len(octets):
        width = 2 if octets[at] & AttributeFlag.EXTENDED_LENGTH else 1
        value_at = at + 2 + width
        end = value_at + int.from_bytes(octets[at + 2 : value_at], "big")
        if value_at > len(octets) or end > len(octets):
            raise ValueError("attribute set cut short")
        attributes.append((octets[at] & ~AttributeFlag.EXTENDED_LENGTH, octets[at + 1], bytes(octets[value_at:end])))
        at = end
    return attributes


def decode_set(octets: bytes, as4: bool = True) -> AttributeSet:
    """Return the values of a set as a scan writes it; unless as4, of one encoded for a peer with two-octet numbers."""
    values: dict = {"next_hop": bytes(octets[1 : 1 + octets[0]])}
    others = []
    partial = []
    for flags, code, value in split_attributes(octets):
        if code in _DECODERS:
            name, decode = _DECODERS[code]
            if not as4:
                decode = _DECODERS_AS2.get(code, decode)
            values[name] = decode(value)
            if flags & AttributeFlag.PARTIAL:
                partial.append(code)
        else:
            others.append((flags, code, value))
    return AttributeSet(**values, others=tuple(others), partial=frozenset(partial))


# ---- words ----------------------------------------------------------------------------------------------------------


def describe_set(octets: bytes, as4: bool = True) -> dict:
    """Return what a set says in words and numbers, fit for JSON; only what is there. `as4` as of `decode_set`."""
    attributes = decode_set(octets, as4)
    words = {
        "next_hop": format_next_hop(attributes.next_hop) or None,
        "origin": None if attributes.origin is None else Origin(attributes.origin).name,
        "as_path": None if attributes.as_path is None else format_path(attributes.as_path),
        "med": attributes.med,
        "local_pref": attributes.local_pref,
        "atomic_aggregate": attributes.atomic_aggregate or None,
        "aggregator": attributes.aggregator and f"{attributes.aggregator[0]} {format_id(attributes.aggregator[1])}",
        "communities": [format_community(value) for value in attributes.communities],
        "large_communities": [":".join(map(str, parts)) for parts in attributes.large_communities],
        "extended_communities": [format_extended_community(value) for value in attributes.extended_communities],
        "ipv6_extended_communities": [value.hex() for value in attributes.ipv6_extended_communities],
        "originator_id": None if attributes.originator_id is None else format_id(attributes.originator_id),
        "cluster_list": [format_id(value) for value in attributes.cluster_list],
        "only_to_customer": attributes.only_to_customer,
        "others": [_describe_other(*other) for other in attributes.others],
    }
    return {name: value for name, value in words.items() if value is not None and value != []}


def format_set(octets: bytes) -> str:
    """Return what a set says on one line."""
    return ", ".join(
        f"{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in describe_set(octets).items()
    )


def format_path(path: Iterable[Segment]) -> str:
    """Return a path as text: "64601 64602 {1,2} (65001 65002) [65003]"; confederations in round and square brackets."""
    return " ".join(_PATH_FORMS[kind](numbers) for kind, numbers in path)


def format_next_hop(octets: bytes) -> str:
    """Return a next hop as text: one address, or a global and a link-local one."""
    size = 16 if len(octets) > 4 else 4
    return " ".join(str(ipaddress.ip_address(octets[at : at + size])) for at in range(0, len(octets), size))


def format_id(value: int) -> str:
    """Return a BGP Identifier or cluster id as text."""
    return str(ipaddress.IPv4Address(value))


def format_community(value: int) -> str:
    """Return a community as text: its well-known name, or "65000:1"."""
    if value in _WELL_KNOWN_COMMUNITIES:
        return WellKnownCommunity(value).name.lower().replace("_", "-")
    return f"{value >> 16}:{value & 0xFFFF}"


def format_extended_community(value: bytes) -> str:
    """Return an extended community as text: "rt 65000:1" for route targets and origins, else hexadecimal. RFC 4360"""
    kind, subtype = value[0] & 0xBF, value[1]
    name = {2: "rt", 3: "soo"}.get(subtype)
    if name is None or kind > 2:
        return value.hex()
    if kind == 0:
        return f"{name} {int.from_bytes(value[2:4], 'big')}:{int.from_bytes(value[4:], 'big')}"
    head = int.from_bytes(value[2:6], "big")
    return f"{name} {format_id(head) if kind == 1 else head}:{int.from_bytes(value[6:], 'big')}"


def _describe_other(flags: int, code: int, value: bytes) -> dict:
    return {"type": code, "name": format_attribute_type(code), "flags": int(flags), "value": value.hex()}


_PATH_FORMS = {
    SegmentType.AS_SEQUENCE: lambda numbers: " ".join(map(str, numbers)),
    SegmentType.AS_SET: lambda numbers: "{" + ",".join(map(str, numbers)) + "}",
    SegmentType.AS_CONFED_SEQUENCE: lambda numbers: "(" + " ".join(map(str, numbers)) + ")",
    SegmentType.AS_CONFED_SET: lambda numbers: "[" + ",".join(map(str, numbers)) + "]",
}
_WELL_KNOWN_COMMUNITIES = frozenset(WellKnownCommunity)


# ---- octets ---------------------------------------------------------------------------------------------------------


def _values(attributes: AttributeSet) -> list[tuple[int, int, bytes]]:
    """Return flags, type and value of the attributes Headrace knows."""
    found: list[tuple[int, int, bytes | None]] = [
        (_WELL_KNOWN, AttributeType.ORIGIN, None if attributes.origin is None else bytes([attributes.origin])),
        (_WELL_KNOWN, AttributeType.AS_PATH, None if attributes.as_path is None else _encode_path(attributes.as_path)),
        (_OPTIONAL, AttributeType.MULTI_EXIT_DISC, _u32s(attributes.med)),
        (_WELL_KNOWN, AttributeType.LOCAL_PREF, _u32s(attributes.local_pref)),
        (_WELL_KNOWN, AttributeType.ATOMIC_AGGREGATE, b"" if attributes.atomic_aggregate else None),
        (_PASSED_ON, AttributeType.AGGREGATOR, _u32s(*(attributes.aggregator or (None,)))),
        (_PASSED_ON, AttributeType.COMMUNITIES, _u32s(*attributes.communities) or None),
        (_OPTIONAL, AttributeType.ORIGINATOR_ID, _u32s(attributes.originator_id)),
        (_OPTIONAL, AttributeType.CLUSTER_LIST, _u32s(*attributes.cluster_list) or None),
        (_PASSED_ON, AttributeType.EXTENDED_COMMUNITIES, b"".join(attributes.extended_communities) or None),
        (_PASSED_ON, AttributeType.IPV6_EXTENDED_COMMUNITIES, b"".join(attributes.ipv6_extended_communities) or None),
        (_PASSED_ON, AttributeType.LARGE_COMMUNITY, _u32s(*sum(attributes.large_communities, ())) or None),
        (_PASSED_ON, AttributeType.ONLY_TO_CUSTOMER, _u32s(attributes.only_to_customer)),
    ]
    return [(flags, code, value) for flags, code, value in found if value is not None]


def _u32s(*numbers: int | None) -> bytes | None:
    return None if None in numbers else b"".join(number.to_bytes(4, "big") for number in numbers)


def _encode_path(path: Iterable[Segment]) -> bytes:
    return b"".join(bytes([kind, len(numbers)]) + _u32s(*numbers) for kind, numbers in path)


def _encode_attribute(flags: int, code: int, value: bytes) -> bytes:
    if len(value) > 255:
        return bytes([flags | AttributeFlag.EXTENDED_LENGTH, code]) + len(value).to_bytes(2, "big") + value
    return bytes([flags, code, len(value)]) + value


def _decode_u32(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _decode_u32s(value: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(value[at : at + 4], "big") for at in range(0, len(value), 4))


def _decode_path(value: bytes, width: int = 4) -> tuple[Segment, ...]:
    segments = []
    at = 0
    while at < len(value):
        end = at + 2 + width * value[at + 1]
        numbers = (int.from_bytes(value[i : i + width], "big") for i in range(at + 2, end, width))
        segments.append((SegmentType(value[at]), tuple(numbers)))
        at = end
    return tuple(segments)


def _decode_large_communities(value: bytes) -> tuple[tuple[int, int, int], ...]:
    return tuple(_decode_u32s(value[at : at + 12]) for at in range(0, len(value), 12))


_DECODERS = {
    AttributeType.ORIGIN: ("origin", _decode_u32),
    AttributeType.AS_PATH: ("as_path", _decode_path),
    AttributeType.MULTI_EXIT_DISC: ("med", _decode_u32),
    AttributeType.LOCAL_PREF: ("local_pref", _decode_u32),
    AttributeType.ATOMIC_AGGREGATE: ("atomic_aggregate", lambda value: True),
    AttributeType.AGGREGATOR: ("aggregator", _decode_u32s),
    AttributeType.COMMUNITIES: ("communities", _decode_u32s),
    AttributeType.ORIGINATOR_ID: ("originator_id", _decode_u32),
    AttributeType.CLUSTER_LIST: ("cluster_list", _decode_u32s),
    AttributeType.EXTENDED_COMMUNITIES: (
        "extended_communities",
        lambda value: tuple(value[at : at + 8] for at in range(0, len(value), 8)),
    ),
    AttributeType.IPV6_EXTENDED_COMMUNITIES: (
        "ipv6_extended_communities",
        lambda value: tuple(value[at : at + 20] for at in range(0, len(value), 20)),
    ),
    AttributeType.LARGE_COMMUNITY: ("large_communities", _decode_large_communities),
    AttributeType.ONLY_TO_CUSTOMER: ("only_to_customer", _decode_u32),
}
_DECODERS_AS2 = {
    AttributeType.AS_PATH: lambda value: _decode_path(value, 2),
    AttributeType.AGGREGATOR: lambda value: (int.from_bytes(value[:2], "big"), int.from_bytes(value[2:], "big")),
}
