"""Edits of attribute sets, slow and obvious, written from the RFCs: an oracle. Also builds random sets."""

from common.bgp.reasons import ExportRefusal
from common.bgp.rules import Edits, NextHopRule

AS_TRANS = 23456


class Refused(Exception):
    """The set cannot be written; carries the refusal."""


def attribute(flags: int, kind: int, value: bytes) -> bytes:
    """Encode one attribute, with the Extended Length bit only where it is needed."""
    if len(value) > 255:
        return bytes([flags | 0x10, kind]) + len(value).to_bytes(2, "big") + value
    return bytes([flags & ~0x10, kind, len(value)]) + value


def encode(next_hop: bytes, attributes: dict) -> bytes:
    """Encode a set from {type: (flags, value)}."""
    parts = [attribute(flags, kind, value) for kind, (flags, value) in sorted(attributes.items())]
    return bytes([len(next_hop)]) + next_hop + b"".join(parts)


def decode(octets: bytes) -> tuple[bytes, dict]:
    """Decode a set into its next hop and {type: (flags, value)}."""
    next_hop, rest = octets[1 : 1 + octets[0]], octets[1 + octets[0] :]
    attributes = {}
    while rest:
        flags, kind = rest[0] & ~0x10, rest[1]
        size, value = (int.from_bytes(rest[2:4], "big"), 4) if rest[0] & 0x10 else (rest[2], 3)
        attributes[kind] = (flags, rest[value : value + size])
        rest = rest[value + size :]
    return next_hop, attributes


def segments_of(value: bytes) -> list[tuple[int, list[int]]]:
    """Decode a four-octet AS path."""
    segments = []
    while value:
        end = 2 + 4 * value[1]
        segments.append((value[0], [int.from_bytes(value[i : i + 4], "big") for i in range(2, end, 4)]))
        value = value[end:]
    return segments


def path_of(segments: list, octets_each: int) -> bytes:
    """Encode an AS path with AS numbers of two or four octets; what does not fit into two is AS_TRANS."""
    value = b""
    for kind, asns in segments:
        value += bytes([kind, len(asns)])
        for asn in asns:
            value += (AS_TRANS if octets_each == 2 and asn > 65535 else asn).to_bytes(octets_each, "big")
    return value


def numbers(value: bytes) -> list[int]:
    return [int.from_bytes(value[i : i + 4], "big") for i in range(0, len(value), 4)]


def put(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


def dress(edits: Edits, octets: bytes) -> bytes:
    """Return the set as these edits leave it; raise Refused where it cannot be written."""
    next_hop, attributes = decode(octets)
    next_hop = _next_hop(edits, next_hop)
    for kind in edits.strip:
        attributes.pop(kind, None)
    if edits.med is not None:
        attributes[4] = (0x80, put(edits.med))
    if edits.local_pref is not None:
        attributes[5] = (0x40, put(edits.local_pref))
    elif edits.default_local_pref is not None:
        attributes.setdefault(5, (0x40, put(edits.default_local_pref)))
    _reflect(edits, attributes)
    _communities(edits, attributes)
    _path(edits, attributes)
    if any(len(value) > 65535 for _, value in attributes.values()):
        raise Refused(ExportRefusal.TOO_LARGE)
    return encode(next_hop, attributes)


def _next_hop(edits: Edits, next_hop: bytes) -> bytes:
    if edits.next_hop_rule == NextHopRule.KEEP:
        return next_hop
    if edits.next_hop_rule == NextHopRule.KEEP_GLOBAL and next_hop:
        is_link_local = len(next_hop) >= 16 and next_hop[0] == 0xFE and 0x80 <= next_hop[1] < 0xC0
        if not is_link_local:
            return next_hop[:16]
    if not edits.next_hop:
        raise Refused(ExportRefusal.NO_NEXT_HOP)
    return edits.next_hop


def _reflect(edits: Edits, attributes: dict) -> None:
    if edits.originator_id:
        attributes.setdefault(9, (0x80, put(edits.originator_id)))
    if edits.cluster_id:
        attributes[10] = (0x80, put(edits.cluster_id) + attributes.get(10, (0, b""))[1])


def _communities(edits: Edits, attributes: dict) -> None:
    if 8 in edits.edited:
        flags, value = attributes.pop(8, (0xC0, b""))
        kept = [
            item
            for item in numbers(value)
            if not any(item & mask == want & mask for want, mask in edits.remove_communities)
        ]
        for item in edits.add_communities:
            if item not in kept:
                kept.append(item)
        if kept:
            attributes[8] = (flags, put(*kept))
    if 32 in edits.edited:
        flags, value = attributes.pop(32, (0xC0, b""))
        items = [tuple(numbers(value[i : i + 12])) for i in range(0, len(value), 12)]
        items = [
            item for item in items if not any(_matches(item, pattern) for pattern in edits.remove_large_communities)
        ]
        for item in edits.add_large_communities:
            if item not in items:
                items.append(item)
        if items:
            attributes[32] = (flags, b"".join(put(*item) for item in items))
    if edits.strips_non_transitive:
        for kind, size in ((16, 8), (25, 20)):
            if kind in attributes:
                flags, value = attributes.pop(kind)
                parts = [value[i : i + size] for i in range(0, len(value), size)]
                value = b"".join(part for part in parts if not part[0] & 0x40)
                if value:
                    attributes[kind] = (flags, value)


def _matches(item: tuple, pattern: tuple) -> bool:
    return all(item[i] & pattern[i + 3] == pattern[i] & pattern[i + 3] for i in range(3))


def _path(edits: Edits, attributes: dict) -> None:
    if not edits.prepend_count and not edits.is_two_octet:
        return
    has_path = 2 in attributes
    segments = segments_of(attributes.get(2, (0x40, b""))[1])
    if edits.prepend_count:
        lead = [edits.prepend_asn] * edits.prepend_count
        # RFC 4271 §5.1.2: a sequence that would grow beyond 255 gets a new one before it.
        if segments and segments[0][0] == 2 and len(segments[0][1]) + len(lead) <= 255:
            segments[0] = (2, lead + segments[0][1])
        else:
            segments.insert(0, (2, lead))
        has_path = True
    if has_path:
        attributes[2] = (0x40, path_of(segments, 2 if edits.is_two_octet else 4))
    if not edits.is_two_octet:
        return
    if any(asn > 65535 for _, asns in segments for asn in asns):  # RFC 6793 §4.2.2
        full = path_of([segment for segment in segments if segment[0] not in (3, 4)], 4)
        if full:
            attributes[17] = (0xC0, full)
    if 7 in attributes:
        flags, value = attributes[7]
        asn = numbers(value[:4])[0]
        attributes[7] = (flags, min(asn, AS_TRANS if asn > 65535 else asn).to_bytes(2, "big") + value[4:])
        if asn > 65535:
            attributes[18] = (0xC0 | flags & 0x20, value)


# ---- random input -----------------------------------------------------------------------------------------------


def random_set(rng, next_hop_lengths=(0, 4, 16, 32)) -> bytes:
    """Return a random set in canonical form; few distinct values, so that rules meet what they look for."""

    def asn() -> int:
        return rng.choice([rng.randint(1, 20), 65000, 23456, 70000, rng.randint(65536, 1 << 31)])

    def some(make, most=4) -> bytes:
        return b"".join(make() for _ in range(rng.randint(1, most)))

    def community() -> bytes:
        return put(rng.choice([65000, 65535, 1, 2]) << 16 | rng.choice([0xFF01, 0xFF02, 0xFF03, 100, 1, 2]))

    def large() -> bytes:
        return put(rng.choice([65000, 1]), rng.randint(1, 3), rng.randint(1, 3))

    length = rng.choice(next_hop_lengths)
    next_hop = rng.choice([rng.randbytes(length), b"\xfe\x80" + bytes(30), b"\x0a" + bytes(31)])[:length]
    count = rng.choice([1, 1, 2, 3, 255, 254, 70])
    path = [(rng.choice([2, 2, 2, 1, 3, 4]), [asn() for _ in range(count)])]
    path += [(rng.choice([1, 2]), [asn() for _ in range(rng.randint(1, 3))])] * rng.choice([0, 0, 1])
    attributes = {1: (0x40, b"\x00"), 2: (0x40, path_of(rng.choice([path, path, []]), 4))}
    optional = {
        4: (0x80, put(rng.randint(0, 9))),
        5: (0x40, put(rng.randint(0, 9))),
        6: (0x40, b""),
        7: (rng.choice([0xC0, 0xE0]), put(asn(), rng.randint(1, 9))),
        8: (rng.choice([0xC0, 0xE0]), some(community, rng.choice([4, 70]))),
        9: (0x80, put(rng.randint(1, 9))),
        10: (0x80, some(lambda: put(rng.randint(1, 9)))),
        16: (0xC0, some(lambda: bytes([rng.choice([0, 0x40, 0x43]), 2]) + rng.randbytes(6))),
        25: (0xC0, some(lambda: bytes([rng.choice([0, 0x40])]) + rng.randbytes(19))),
        26: (0x80, b"\x01\x00\x0b" + bytes(8)),
        32: (0xC0, some(large, rng.choice([4, 30]))),
        35: (0xC0, put(64601)),
        200: (0xE0, rng.randbytes(rng.choice([0, 5, 300]))),
    }
    attributes |= {kind: value for kind, value in optional.items() if rng.random() < 0.4}
    return encode(next_hop, attributes)


def random_edits(rng) -> Edits:
    """Return edits that may change anything."""

    def maybe(value, empty):
        return value if rng.random() < 0.4 else empty

    patterns = [(65000 << 16, 0xFFFF0000), (0, 0), (0xFFFFFF01, 0xFFFFFFFF), (100, 0xFFFF)]
    large = [(65000, 0, 0, 0xFFFFFFFF, 0, 0), (1, 2, 3, *(0xFFFFFFFF,) * 3), (0,) * 6]
    return Edits(
        next_hop=maybe(rng.choice([b"\x0a\x00\x00\x01", b"\x20\x01" + bytes(14)]), b""),
        next_hop_rule=rng.choice(list(NextHopRule)),
        strip=maybe(frozenset(rng.sample([4, 5, 9, 10, 17, 18, 26], 3)), frozenset()),
        strips_non_transitive=rng.random() < 0.4,
        prepend_asn=rng.choice([65000, 70000]),
        prepend_count=rng.choice([0, 0, 1, 3]),
        is_two_octet=rng.random() < 0.4,
        med=maybe(7, None),
        local_pref=maybe(120, None),
        default_local_pref=maybe(100, None),
        originator_id=maybe(5, 0),
        cluster_id=maybe(6, 0),
        add_communities=maybe((65000 << 16 | 100, 1 << 16 | 1), ()),
        remove_communities=maybe(tuple(rng.sample(patterns, rng.randint(1, 2))), ()),
        add_large_communities=maybe(((65000, 1, 1), (1, 2, 3)), ()),
        remove_large_communities=maybe(tuple(rng.sample(large, rng.randint(1, 2))), ()),
    )
