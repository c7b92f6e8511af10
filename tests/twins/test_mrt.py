"""The MRT scanner: compiled, uncompiled and the oracle agree."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import mrt, uncompiled
from tests.oracles import mrt as oracle
from tests.oracles import updates

TWINS = {"compiled": mrt, "uncompiled": uncompiled("mrt")}
PEERS = [(bytes([192, 0, 2, n]), 64500 + n) for n in range(1, 4)]
ATTRIBUTES = updates.ORIGIN + updates.AS_PATH
V4_ATTRIBUTES = ATTRIBUTES + updates.NEXT_HOP
SHORT_REACH = updates.attribute(0x80, 14, bytes([16]) + updates.IPV6_NEXT_HOP)


def record(kind: int, subtype: int, body: bytes, when: int = 1000, micros: int | None = None) -> bytes:
    if micros is not None:
        body = struct.pack(">I", micros) + body
    return struct.pack(">IHHI", when, kind, subtype, len(body)) + body


def peer_index() -> bytes:
    entries = b"".join(b"\2" + bytes(4) + address + struct.pack(">I", asn) for address, asn in PEERS)
    return record(13, 1, bytes(4) + b"\0\3abc" + struct.pack(">H", len(PEERS)) + entries)


def entry(peer: int, attributes: bytes, path_id: int | None = None) -> bytes:
    ids = b"" if path_id is None else struct.pack(">I", path_id)
    return struct.pack(">HI", peer, 0) + ids + struct.pack(">H", len(attributes)) + attributes


def table(subtype: int, prefix: bytes, entries: list[bytes]) -> bytes:
    return record(13, subtype, bytes(4) + prefix + struct.pack(">H", len(entries)) + b"".join(entries))


def recorded(subtype: int, message: bytes, peer: int = 0, when: int = 1000, micros: int | None = None) -> bytes:
    width = ">I" if subtype in (4, 5, 7, 9, 11) else ">H"
    address, asn = PEERS[peer]
    asns = struct.pack(width, asn) + struct.pack(width, 65000)
    body = asns + struct.pack(">HH", 0, 1) + address + bytes([192, 0, 2, 200]) + message
    return record(16 if micros is None else 17, subtype, body, when, micros)


UPDATE = updates.update(b"", V4_ATTRIBUTES, updates.ROUTE)
ID_UPDATE = updates.update(b"", V4_ATTRIBUTES, bytes(3) + b"\7" + updates.ROUTE)
KEEPALIVE = updates.message(4)
LENGTHS = struct.pack(">HH", 64501, len(V4_ATTRIBUTES))
PIECES = [
    peer_index(),
    table(2, updates.ROUTE, [entry(0, V4_ATTRIBUTES), entry(2, V4_ATTRIBUTES)]),
    table(4, updates.IPV6_ROUTE, [entry(1, ATTRIBUTES + SHORT_REACH), entry(0, ATTRIBUTES + updates.reach())]),
    table(4, updates.IPV6_ROUTE, [entry(1, ATTRIBUTES)]),
    table(8, updates.ROUTE, [entry(0, V4_ATTRIBUTES, 7), entry(0, V4_ATTRIBUTES, 8)]),
    table(10, updates.IPV6_ROUTE, [entry(1, ATTRIBUTES + SHORT_REACH, 9)]),
    table(3, updates.ROUTE, [entry(0, V4_ATTRIBUTES)]),
    record(12, 1, bytes(4) + bytes([198, 51, 100, 0, 24, 1]) + bytes(4) + PEERS[0][0] + LENGTHS + V4_ATTRIBUTES),
    *(recorded(subtype, UPDATE, peer) for subtype, peer in ((1, 0), (4, 1), (6, 2))),
    *(recorded(subtype, ID_UPDATE, peer) for subtype, peer in ((9, 0), (11, 1))),
    recorded(4, KEEPALIVE),
    recorded(5, struct.pack(">HH", 3, 6)),
    recorded(0, struct.pack(">HH", 3, 6)),
    recorded(4, UPDATE, micros=250_000),
    record(11, 0, b"ospf"),
    record(16, 2, b"an entry of old"),
]  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=12).map(lambda pieces: b"".join([peer_index(), *pieces]))


def scan_all(kernel, octets: bytes, **options):
    """Return the scanner and what it wrote to each stream, scan after scan."""
    scanner, written, at = kernel.MrtScanner(**options), [b""] * 4, 0
    while True:
        why = scanner.scan(octets, at, len(octets))
        at = scanner.consumed
        for stream in range(4):
            written[stream] += bytes(scanner.octets(stream))
        if why == mrt.FULL and scanner.needed > scanner.capacity_octets:
            scanner.ensure(scanner.needed)
        elif why != mrt.FULL:
            return scanner, written, why, at


def facts(scanner) -> tuple:
    names = ("n_records", "n_entries", "n_messages", "n_others", "n_states", "n_ignored", "n_malformed")
    return (*(getattr(scanner, name) for name in names), scanner.kinds, scanner.peers)


@settings(max_examples=60, deadline=None)
@given(octets=streams, only=st.integers(-1, 2))
def test_twins_agree_with_the_oracle(octets, only):
    """Any mix of records is read alike by both twins, with the counts of the plain reader."""
    (one, written, why, at), (other, *same) = (scan_all(kernel, octets, only=only) for kernel in TWINS.values())
    assert (written, why, at) == tuple(same) and facts(one) == facts(other)
    assert (why, at) == (mrt.NEED_MORE, len(octets))
    plain = oracle.count(octets)
    assert (one.n_records, one.n_states) == (plain.records, plain.states)
    assert one.n_entries == plain.entries[1, 1] + plain.entries[2, 1]
    assert one.kinds == dict(plain.kinds)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), octets=streams)
def test_damaged_records_are_survived(data, octets):
    """Whatever octets are changed or cut, both twins stop or go on alike, and never read beyond the record."""
    damaged = bytearray(octets[: data.draw(st.integers(0, len(octets)))])
    for at, value in data.draw(st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6)):
        if at < len(damaged):
            damaged[at] = value
    one, other = (scan_all(kernel, bytes(damaged)) for kernel in TWINS.values())
    assert one[1:] == other[1:] and facts(one[0]) == facts(other[0])


@pytest.mark.parametrize("twin", TWINS)
def test_an_entry_becomes_an_update(twin):
    """An entry of an IPv6 table becomes an UPDATE whose MP_REACH_NLRI is whole and holds the prefix."""
    octets = peer_index() + PIECES[2]
    _, written, _, _ = scan_all(TWINS[twin], octets, only=1)
    assert written[mrt.AS4] == updates.update(b"", ATTRIBUTES + _long(updates.reach()))


def _long(attribute: bytes) -> bytes:
    return bytes([attribute[0] | 0x10, attribute[1], 0]) + attribute[2:]


@pytest.mark.parametrize("twin", TWINS)
def test_stops_at_a_time(twin):
    """A scan that is to go up to a time stops before the first later record, and says when that is."""
    octets = recorded(4, UPDATE, when=10, micros=5) + recorded(4, UPDATE, when=10, micros=7)
    scanner = TWINS[twin].MrtScanner()
    assert scanner.scan(octets, 0, len(octets), 10_000_006) == mrt.UNTIL
    assert (scanner.n_records, scanner.next_at, scanner.consumed) == (1, 10_000_007, len(octets) // 2)


@pytest.mark.parametrize("twin", TWINS)
def test_a_senseless_frame_ends_it(twin):
    """A record of an unknown type, or longer than any can be, is where the scan ends."""
    for octets in (record(20, 1, b""), struct.pack(">IHHI", 1, 16, 4, 1 << 25), b"this is no MRT file"):
        scanner, _, why, at = scan_all(TWINS[twin], UPDATE_RECORD + octets)
        assert (why, at, scanner.n_records) == (mrt.BAD, len(UPDATE_RECORD), 1)


UPDATE_RECORD = recorded(4, UPDATE)

sets = st.lists(
    st.tuples(
        st.sampled_from([b"", bytes([192, 0, 2, 1]), updates.IPV6_NEXT_HOP]),
        st.lists(st.tuples(st.sampled_from([1, 2]), st.lists(st.integers(1, 1 << 31), max_size=70)), max_size=3),
        st.booleans(),
    ),
    max_size=6,
)


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=60, deadline=None)
@given(sets=sets, how=st.sampled_from(["keep", "replace", "prepend"]), hop=st.sampled_from([b"\1\2\3\4", bytes(16)]))
def test_rewrites_sets_as_the_oracle(twin, sets, how, hop):
    """Next hop and first AS number are rewritten as the plain code does it, whatever the path."""
    encoded = []
    for next_hop, segments, has_med in sets:
        octets = bytes([len(next_hop)]) + next_hop + updates.ORIGIN
        octets += updates.attribute(0x40, 2, updates.path(*segments))
        encoded.append(octets + (updates.attribute(0x80, 4, bytes(4)) if has_med else b""))
    offset = np.cumsum([0, *map(len, encoded)]).astype(np.uint32)
    new_offset, new_octets = TWINS[twin].rewrite_sets(
        offset, np.frombuffer(b"".join(encoded), np.uint8), hop, 70000, {"keep": 0, "replace": 1, "prepend": 2}[how]
    )
    ends = zip(new_offset[:-1].tolist(), new_offset[1:].tolist(), strict=True)
    assert [bytes(new_octets[a:b]) for a, b in ends] == [oracle.rewritten(each, hop, 70000, how) for each in encoded]
