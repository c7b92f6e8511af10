"""Attribute sets as values and words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bgp.attributes import (
    AttributeSet,
    decode_set,
    describe_set,
    encode_set,
    format_community,
    format_extended_community,
    format_path,
    format_set,
    make_path,
)
from common.bgp.constants import SegmentType

u32 = st.integers(0, 0xFFFFFFFF)
segments = st.tuples(st.sampled_from(SegmentType), st.lists(u32, min_size=1, max_size=255).map(tuple))
sets = st.builds(
    AttributeSet,
    next_hop=st.sampled_from([b"", bytes([10, 0, 0, 1]), bytes(15) + b"\1", bytes(31) + b"\1"]),
    origin=st.none() | st.integers(0, 2),
    as_path=st.none() | st.lists(segments, max_size=3).map(tuple),
    med=st.none() | u32,
    local_pref=st.none() | u32,
    atomic_aggregate=st.booleans(),
    aggregator=st.none() | st.tuples(u32, u32),
    communities=st.lists(u32, max_size=70).map(tuple),
    originator_id=st.none() | u32,
    cluster_list=st.lists(u32, max_size=3).map(tuple),
    extended_communities=st.lists(st.binary(min_size=8, max_size=8), max_size=3).map(tuple),
    ipv6_extended_communities=st.lists(st.binary(min_size=20, max_size=20), max_size=2).map(tuple),
    large_communities=st.lists(st.tuples(u32, u32, u32), max_size=30).map(tuple),
    only_to_customer=st.none() | u32,
    others=st.sampled_from([(), ((0xE0, 99, b"x"),), ((0xE0, 99, bytes(300)),)]),
)


@given(sets)
def test_sets_come_back(attributes):
    """What is encoded is decoded to the same, and can be described."""
    octets = attributes.encode()
    assert decode_set(octets) == attributes
    assert isinstance(format_set(octets), str)


@given(sets)
def test_sets_are_canonical(attributes):
    """Types ascend, and the Extended Length bit stands only where it is needed."""
    octets = attributes.encode()
    at, codes = 1 + octets[0], []
    while at < len(octets):
        is_long = octets[at] & 0x10
        size = int.from_bytes(octets[at + 2 : at + 4], "big") if is_long else octets[at + 2]
        assert bool(is_long) == (size > 255)
        codes.append(octets[at + 1])
        at += (4 if is_long else 3) + size
    assert codes == sorted(set(codes))


def test_describes_only_what_is_there():
    """An empty set has nothing to say; an empty path is something."""
    assert describe_set(b"\0") == {}
    assert describe_set(encode_set()) == {"origin": "IGP", "as_path": ""}


def test_describes_in_words():
    """Addresses, paths and communities as people write them."""
    octets = encode_set(
        next_hop=bytes([192, 0, 2, 1]),
        as_path=[64601, 64602, {5, 4}],
        communities=(0xFFFFFF01, 65000 << 16 | 100),
        aggregator=(64601, 0x0A000001),
    )
    assert describe_set(octets) == {
        "next_hop": "192.0.2.1",
        "origin": "IGP",
        "as_path": "64601 64602 {4,5}",
        "communities": ["no-export", "65000:100"],
        "aggregator": "64601 10.0.0.1",
    }


def test_describes_sets_of_two_octet_peers():
    """A set as it is sent to an old peer is read with two-octet numbers."""
    assert describe_set(bytes([0, 0x40, 2, 4, 2, 1, 0xFD, 0xE8]), as4=False) == {"as_path": "65000"}


def test_splits_long_paths():
    """A segment holds at most 255 numbers."""
    assert [len(numbers) for _, numbers in make_path(range(1, 601))] == [255, 255, 90]


def test_formats_confederations():
    """Round brackets for a sequence, square ones for a set."""
    path = [(SegmentType.AS_CONFED_SEQUENCE, (1, 2)), (SegmentType.AS_CONFED_SET, (3, 4))]
    assert format_path(path) == "(1 2) [3,4]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("0002fde800000064", "rt 65000:100"),
        ("01020a0000010064", "rt 10.0.0.1:100"),
        ("0203000111700001", "soo 70000:1"),
        ("4004fde847f42400", "4004fde847f42400"),
        ("0602fde800000064", "0602fde800000064"),
    ],
)
def test_formats_extended_communities(value, text):
    """Route targets and origins in words, the rest in hexadecimal (RFC 4360)."""
    assert format_extended_community(bytes.fromhex(value)) == text


def test_formats_communities():
    """Well-known ones by name."""
    assert format_community(0xFFFF029A) == "blackhole"
    assert format_community(0x00010002) == "1:2"


@pytest.mark.parametrize("octets", [b"\0\x40", b"\0\x40\1", b"\0\x40\1\2\0", b"\0\x50\1\0"])
def test_refuses_sets_cut_short(octets):
    """A set whose last attribute is cut raises ValueError."""
    with pytest.raises(ValueError):
        decode_set(octets)
