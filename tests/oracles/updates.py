"""Random BGP messages, from well-formed to hostile, for tests of whatever reads them (Hypothesis strategies)."""

from hypothesis import strategies as st

MARKER = b"\xff" * 16


def message(kind: int, body: bytes = b"", length: int | None = None) -> bytes:
    """Return a message, with another length in its header if one is given."""
    return MARKER + (19 + len(body) if length is None else length).to_bytes(2, "big") + bytes([kind]) + body


def update(withdrawn: bytes = b"", attributes: bytes = b"", nlri: bytes = b"") -> bytes:
    """Return an UPDATE of these three fields."""
    lengths = len(withdrawn).to_bytes(2, "big"), len(attributes).to_bytes(2, "big")
    return message(2, lengths[0] + withdrawn + lengths[1] + attributes + nlri)


def attribute(flags: int, code: int, value: bytes = b"") -> bytes:
    """Return an attribute; with the Extended Length bit its length has two octets."""
    flags |= 0x10 if len(value) > 255 else 0
    return bytes([flags, code]) + len(value).to_bytes(2 if flags & 0x10 else 1, "big") + value


def path(*segments, width: int = 4) -> bytes:
    """Return an AS path of (type, numbers) segments."""
    return b"".join(
        bytes([kind, len(asns)]) + b"".join(asn.to_bytes(width, "big") for asn in asns) for kind, asns in segments
    )


ORIGIN = attribute(0x40, 1, b"\0")
AS_PATH = attribute(0x40, 2, path((2, [64601, 64602])))
NEXT_HOP = attribute(0x40, 3, bytes([192, 0, 2, 1]))
ROUTE = bytes([24, 198, 51, 100])
IPV6_NEXT_HOP = bytes.fromhex("20010db8000000000000000000000001")
IPV6_ROUTE = bytes.fromhex("3020010db80001")


def reach(routes: bytes = IPV6_ROUTE, next_hop: bytes = IPV6_NEXT_HOP, afi: int = 2, safi: int = 1) -> bytes:
    """Return an MP_REACH_NLRI."""
    value = afi.to_bytes(2, "big") + bytes([safi, len(next_hop)]) + next_hop + b"\0" + routes
    return attribute(0x80, 14, value)


def unreach(routes: bytes = IPV6_ROUTE, afi: int = 2, safi: int = 1) -> bytes:
    """Return an MP_UNREACH_NLRI."""
    return attribute(0x80, 15, afi.to_bytes(2, "big") + bytes([safi]) + routes)


# ---- strategies -------------------------------------------------------------------------------------------------

asns = st.sampled_from([1, 23456, 64512, 65535, 300]) | st.integers(0, 65535)
wide_asns = asns | st.sampled_from([0, 70000, 4200000000])


def paths(width: int, numbers=None):
    """AS paths: mostly sequences, some sets and confederation segments, some nonsense."""
    kinds = st.sampled_from([2, 2, 2, 2, 1, 3, 4]) | st.integers(0, 6)
    few = st.lists(numbers or (asns if width == 2 else wide_asns), max_size=4)
    many = st.integers(100, 255).map(lambda n: [64512] * n)
    whole = st.lists(st.tuples(kinds, few | few | few | many), max_size=4).map(
        lambda segments: path(*segments, width=width)
    )
    plain = st.lists(st.integers(1, 65535), min_size=1, max_size=5).map(lambda asns: path((2, asns), width=width))
    return plain | whole | st.binary(max_size=12)


def prefix_lists(longest: int, has_path_id: bool):
    """Routes of a field: mostly well-formed, with stray host bits; sometimes too long or cut."""

    def one(length: int, octets: bytes, path_id: bytes) -> bytes:
        n = (length + 7) // 8
        return (path_id if has_path_id else b"") + bytes([length]) + octets[:n].ljust(n, b"\x55")

    length = st.integers(0, longest)
    good = st.lists(st.builds(one, length, st.binary(max_size=16), st.binary(min_size=4, max_size=4)), max_size=5)
    odd = st.lists(st.builds(one, st.integers(0, 255), st.binary(max_size=16), st.binary(max_size=4)), max_size=2)
    return good.map(b"".join) | good.map(b"".join) | odd.map(b"".join) | st.binary(max_size=9)


next_hops = st.sampled_from(
    [bytes([10, 0, 0, 1]), bytes(4), bytes([224, 0, 0, 1]), b"", IPV6_NEXT_HOP, bytes(16), b"\xff" + bytes(15)]
    + [IPV6_NEXT_HOP + b"\xfe\x80" + bytes(14), bytes(3), bytes(24)]
)
_CATEGORY = {1: 0x40, 2: 0x40, 3: 0x40, 4: 0x80, 5: 0x40, 6: 0x40, 9: 0x80, 10: 0x80, 14: 0x80, 15: 0x80}
_UNIT = {4: 4, 5: 4, 6: 0, 8: 4, 9: 4, 10: 4, 16: 8, 18: 8, 25: 20, 32: 12, 35: 4}


@st.composite
def values(draw, code: int, settings) -> bytes:
    """A value for an attribute of this type, mostly of a length it may have."""
    if code == 1:
        return draw(st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"", b"\0\0"]))
    if code in (2, 17):
        return draw(paths(4 if settings.as4 or code == 17 else 2))
    if code == 3:
        return draw(next_hops)
    if code == 7:
        asn = draw(st.sampled_from([b"\x5b\xa0", b"\xfd\xe8", b"\0\0"]))
        return (b"\0\0" if draw(st.booleans()) == settings.as4 else b"") + asn + bytes([10, 0, 0, 1])
    if code in (14, 15):
        family = draw(st.sampled_from([0, 1, 1, 1]))
        has_path_id = bool(settings.add_path >> family & 1)
        routes = draw(prefix_lists((32, 128)[family], has_path_id))
        head = bytes([0, family + 1, draw(st.sampled_from([1, 1, 1, 1, 2, 128]))])
        if code == 14:
            next_hop = draw(next_hops)
            head += bytes([len(next_hop)]) + next_hop + b"\0"
        return draw(st.sampled_from([head + routes, head + routes, head + routes, head[:2]]))
    unit = _UNIT.get(code, 3)
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=25))
    return b"".join(draw(st.lists(st.sampled_from([b"\0" * unit, b"\1" * unit, b"ab" * (unit // 2)]), max_size=4)))


def sound_paths(width: int):
    """Well-formed AS paths with sets, confederation segments and full sequences among them."""
    number = st.integers(1, 65535) if width == 2 else st.integers(1, 4294967295)
    few = st.lists(number, min_size=1, max_size=4)
    segment = st.tuples(st.sampled_from([2, 2, 2, 2, 1, 3, 4]), few) | st.just((2, [64512] * 254))
    return st.lists(segment, min_size=1, max_size=4).map(lambda segments: path(*segments, width=width))


@st.composite
def two_octet_updates(draw) -> bytes:
    """Well-formed UPDATEs of a peer with two-octet AS numbers, with AS4_PATH and AS4_AGGREGATOR. RFC 6793"""
    parts = [ORIGIN, attribute(0x40, 2, draw(sound_paths(2))), NEXT_HOP]
    if draw(st.booleans()):
        parts.append(attribute(0xC0, 7, draw(st.sampled_from([b"\x5b\xa0", b"\xfd\xe8"])) + bytes([10, 0, 0, 1])))
    if draw(st.booleans()):
        parts.append(attribute(0xC0, 17, draw(sound_paths(4))))
    if draw(st.booleans()):
        parts.append(attribute(0xC0, 18, draw(st.sampled_from([b"\0\1\1\1", bytes(4)])) + bytes([10, 0, 0, 1])))
    return update(attributes=b"".join(draw(st.permutations(parts))), nlri=ROUTE)


@st.composite
def attributes(draw, settings) -> bytes:
    """One attribute, mostly with the flags its type has."""
    code = draw(st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18, 25, 32, 35, 99, 40]))
    flags = _CATEGORY.get(code, 0xC0)
    if draw(st.integers(0, 7)) == 0:
        flags = draw(st.integers(0, 255))
    else:
        flags |= draw(st.sampled_from([0, 0, 0, 0x10, 0x20]))
    return attribute(flags, code, draw(values(code, settings)))


@st.composite
def updates(draw, settings) -> bytes:
    """An UPDATE: the mandatory attributes nearly always, others in any order, sometimes cut or with wrong lengths."""
    parts = draw(st.lists(attributes(settings), max_size=4))
    if draw(st.integers(0, 6)):
        width = 4 if settings.as4 else 2
        good_path = draw(st.lists(st.integers(1, 65535), max_size=6))
        kept = [ORIGIN, attribute(0x40, 2, path((2, good_path), width=width) if good_path else b""), NEXT_HOP]
        if draw(st.booleans()):
            kept.append(reach(draw(prefix_lists(128, bool(settings.add_path & 2)))))
        # In front they count, behind they are repetitions.
        parts = kept + parts if draw(st.integers(0, 3)) else parts + kept
    octets = b"".join(parts)
    if draw(st.integers(0, 12)) == 0:
        octets = octets[: draw(st.integers(0, len(octets)))]
    routes = prefix_lists(32, bool(settings.add_path & 1))
    body = update(draw(routes) if draw(st.integers(0, 3)) == 0 else b"", octets, draw(routes))[19:]
    if draw(st.integers(0, 15)) == 0:
        at = draw(st.integers(0, len(body) - 1))
        body = body[:at] + draw(st.binary(max_size=2)) + body[at + 1 :]
    return message(2, body)


@st.composite
def streams(draw, settings) -> bytes:
    """A few messages: UPDATEs, KEEPALIVEs, now and then something else, the last perhaps not whole."""
    other = st.sampled_from([message(4), message(5, bytes([0, 1, 0, 1])), message(1, bytes(10)), message(3, b"\6\2")])
    wrong = st.builds(message, st.integers(0, 7), st.binary(max_size=6), st.integers(0, 40))
    rarely = st.integers(0, 9).flatmap(lambda n: wrong if n == 0 else other if n < 3 else updates(settings))
    octets = b"".join(draw(st.lists(rarely, min_size=1, max_size=5)))
    return octets[: draw(st.integers(0, len(octets)))] if draw(st.integers(0, 5)) == 0 else octets
