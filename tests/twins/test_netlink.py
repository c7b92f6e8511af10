"""The netlink kernel: compiled, uncompiled and the oracle agree, on good messages and on any octets."""

import struct
from socket import AF_INET, AF_INET6

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.kernels import netlink, uncompiled
from stages.fib import messages
from tests.oracles import netlink as oracle

TWINS = {"compiled": netlink, "uncompiled": uncompiled("netlink")}
SLOT = 256

each_twin = pytest.mark.parametrize("twin", TWINS)
families = st.sampled_from([AF_INET, AF_INET6])
numbers = st.integers(0, 2**32 - 1)
routes = st.tuples(st.integers(1, 3), st.integers(0, 2**128 - 1), st.integers(0, 32), st.integers(0, 2))
ways = st.tuples(st.integers(0, 11), numbers, st.binary(max_size=8).map(lambda octets: octets * 4))
attribute = st.builds(
    messages.attribute, st.sampled_from([1, 4, 5, 6, 9, 15, 18, 30, 77, 0x8005]), st.binary(max_size=40)
)
hop = st.builds(
    lambda size, interface, rest: bytes([size, 0, 0, 0]) + interface.to_bytes(4, "little") + rest,
    st.integers(0, 40), numbers, st.builds(messages.attribute, st.sampled_from([5, 18]), st.binary(max_size=18)),
)  # fmt: skip
hops = st.lists(hop, max_size=3).map(lambda found: messages.attribute(9, b"".join(found)))
route_body = st.builds(
    lambda family, length, middle, flags, found: bytes([family, length]) + middle + flags + b"".join(found),
    st.sampled_from([AF_INET, AF_INET6, 7]), st.integers(0, 129), st.binary(min_size=6, max_size=6),
    st.sampled_from([bytes(4), b"\0\2\0\0", b"\4\0\0\0"]), st.lists(attribute | hops, max_size=4),
)  # fmt: skip
message = st.builds(
    messages.message,
    st.sampled_from([2, 3, 16, 24, 24, 24, 25]),
    st.integers(0, 0xFFFF),
    numbers,
    route_body | st.binary(max_size=30),
)
datagrams = st.lists(
    st.one_of(st.lists(message, max_size=3).map(b"".join), st.binary(max_size=SLOT)).map(lambda octets: octets[:SLOT]),
    min_size=1,
    max_size=4,
)


def in_slots(found: list[bytes]):
    laid_out = b"".join(datagram.ljust(SLOT, b"\xff") for datagram in found)
    return np.frombuffer(laid_out, np.uint8), SLOT, np.array([len(datagram) for datagram in found], np.uint32)


def column(values, dtype) -> np.ndarray:
    return np.array(values, dtype)


@each_twin
@settings(max_examples=60, deadline=None)
@given(
    first=numbers,
    family=families,
    table=st.sampled_from([254, 70000]),
    chosen=st.lists(routes, min_size=1, max_size=6),
    known=st.lists(ways, min_size=3, max_size=3),
)
def test_requests_are_the_oracles(twin, first, family, table, chosen, known):
    """Any mixture of actions, ways and sequence numbers is written as the oracle writes it."""
    common = messages.common_attributes(table, 20)
    out = np.zeros(netlink.request_limit(len(chosen), common), np.uint8)
    size = TWINS[twin].write_requests(
        out,
        first,
        family == AF_INET6,
        np.frombuffer(messages.route_header(family, table), np.uint8),
        np.frombuffer(common, np.uint8),
        column([route[0] for route in chosen], np.uint8),
        column([route[1] >> 64 for route in chosen], np.uint64),
        column([route[1] & (2**64 - 1) for route in chosen], np.uint64),
        column([route[2] for route in chosen], np.uint8),
        column([route[3] for route in chosen], np.uint32),
        column([way[0] for way in known], np.uint8),
        column([way[1] for way in known], np.uint32),
        column([len(way[2]) for way in known], np.uint8),
        np.frombuffer(b"".join(way[2].ljust(netlink.WAY_OCTETS, b"\0") for way in known), np.uint8),
    )
    expected = oracle.write_requests(first, family, messages.route_header(family, table), common, chosen, known)
    assert out[:size].tobytes() == expected


@each_twin
@settings(max_examples=200, deadline=None)
@given(found=datagrams)
def test_routes_are_read_as_the_oracle_reads_them(twin, found):
    """Whatever comes, the same routes are found in it, and nothing beyond a slot's octets is looked at."""
    scan = TWINS[twin].RouteScan(2)
    assert scan.scan(*in_slots(found)) == len(scan)
    names = [*scan.U8, *scan.U32, *scan.U64]
    columns = {name: getattr(scan, name).tolist() for name in names}
    assert [{name: columns[name][i] for name in names} for i in range(len(scan))] == oracle.scan_routes(found)


@each_twin
@settings(max_examples=100, deadline=None)
@given(found=datagrams, first=numbers, n=st.integers(1, 4))
def test_replies_are_read_as_the_oracle_reads_them(twin, found, first, n):
    """Whatever comes, the same replies are found in it."""
    errors = np.full(n, -1, np.int32)
    TWINS[twin].scan_replies(*in_slots(found), first, errors)
    expected = oracle.scan_replies(found, first, n)
    assert errors.tolist() == [expected.get(i, -1) for i in range(n)]


@each_twin
@settings(max_examples=100, deadline=None)
@given(
    sets=st.lists(
        st.binary(max_size=40)
        | st.builds(lambda n, rest: bytes([n]) + rest, st.sampled_from([4, 16, 32]), st.binary(max_size=40))
        | st.binary(min_size=4, max_size=4).map(lambda octets: bytes([16, *bytes(10), 255, 255]) + octets)
    )
)
def test_next_hops_are_the_oracles(twin, sets):
    """The next hop of any octets is the oracle's."""
    offsets = np.cumsum([0, *(len(one) for one in sets)]).astype(np.uint32)
    columns = TWINS[twin].next_hops(offsets, np.frombuffer(b"".join(sets), np.uint8))
    assert list(zip(*(found.tolist() for found in columns), strict=True)) == [oracle.next_hop(one) for one in sets]


communities = st.lists(
    st.sampled_from([b"\x40\4", b"\0\4", b"\x43\4", b"\0\2"]).flatmap(
        lambda kind: st.binary(min_size=6, max_size=6).map(lambda rest: kind + rest)
    ),
    max_size=3,
).map(b"".join)
path_attribute = st.builds(
    lambda code, value: bytes([0xC0, code, len(value)]) + value,
    st.sampled_from([1, 2, 8, 16, 16, 32]),
    communities | st.binary(max_size=20),
)


def told(bandwidth: float) -> bytes:
    """Return a set that tells a bandwidth."""
    return b"\0\xc0\x10\x08\x40\4\0\0" + struct.pack(">f", bandwidth)


@each_twin
@example(sets=[told(2.0**n * k) for n in range(-130, 128, 1) for k in (1, 1.25, 1.999999)])
@settings(max_examples=200, deadline=None)
@given(
    sets=st.lists(
        st.lists(path_attribute, max_size=3).map(lambda found: b"\4\xc0\0\2\1" + b"".join(found))
        | st.binary(max_size=30)
    )
)
def test_bandwidths_are_the_oracles(twin, sets):
    """The link bandwidth told by any octets is the oracle's."""
    offsets = np.cumsum([0, *(len(one) for one in sets)]).astype(np.uint32)
    found = TWINS[twin].link_bandwidths(offsets, np.frombuffer(b"".join(sets), np.uint8))
    assert found.tolist() == [oracle.link_bandwidth(one) for one in sets]
