"""Unit tests of common/kernels/netlink.py: its octets are iproute2's; what comes back is read."""

import ipaddress
import struct
from pathlib import Path
from socket import AF_INET, AF_INET6

import numpy as np
import pytest

from common.kernels import netlink
from stages.fib import messages

VECTORS = Path(__file__).parents[2] / "vectors" / "netlink_iproute2.txt"
CAPTURED = [
    (bytes.fromhex(octets), command)
    for octets, command in (line.split(" ", 1) for line in VECTORS.read_text().splitlines() if line[0] != "#")
]
ACTIONS = {"add": netlink.INSTALL, "replace": netlink.REPLACE, "del": netlink.REMOVE}
D0 = 2  # index of the interface in the capture


def gateway_of(address: str) -> messages.Gateway:
    """Return a gateway on the interface of the capture."""
    packed = ipaddress.ip_address(address).packed
    return messages.Gateway(AF_INET6 if len(packed) == 16 else AF_INET, packed, D0)


def halves(network) -> tuple[int, int]:
    """Return an address left-aligned in 128 bits, as two halves."""
    value = int(network.network_address) << (128 - network.max_prefixlen)
    return value >> 64, value & (2**64 - 1)


def request(command: str, sequence: int) -> bytes:
    """Return what Headrace sends where iproute2's `command` was given."""
    words = command.split()
    values = dict(zip(words, words[1:], strict=False))
    if "inet6" in words:
        values["via"] = values["inet6"]
    network = ipaddress.ip_network(next(word for word in words if "/" in word))
    family = AF_INET6 if network.version == 6 else AF_INET
    table, metric = int(values.get("table", 254)), int(values["metric"])
    if "nhid" in values:
        way = messages.way_by_object(int(values["nhid"]))
    else:
        way = messages.way_by_gateway(family, gateway_of(values["via"])) if "via" in values else b""
    if "src" in values:
        way = messages.preferred_source(ipaddress.ip_address(values["src"]).packed) + way
    kind = messages.TYPE_BLACKHOLE if "blackhole" in words else messages.TYPE_UNICAST
    action = next(ACTIONS[word] for word in words if word in ACTIONS)
    hi, lo = halves(network)
    return write([(action, hi, lo, network.prefixlen, 0)], [way], family, table, metric, sequence, kind=kind)


def write(
    routes, ways, family=AF_INET, table=254, metric=20, first_sequence=1, kernel=netlink, kind=messages.TYPE_UNICAST
) -> bytes:
    """Write requests for rows of (action, hi, lo, length, way), each way given by its attributes."""
    actions, hi, lo, length, way = (list(column) for column in zip(*routes, strict=True))
    common = messages.common_attributes(table, metric)
    out = np.zeros(netlink.request_limit(len(routes), common), np.uint8)
    size = kernel.write_requests(
        out,
        first_sequence,
        family == AF_INET6,
        np.frombuffer(messages.route_header(family, table, 186), np.uint8),
        np.frombuffer(common, np.uint8),
        np.array(actions, np.uint8),
        np.array(hi, np.uint64),
        np.array(lo, np.uint64),
        np.array(length, np.uint8),
        np.array(way, np.uint32),
        np.full(len(ways), kind, np.uint8),
        np.zeros(len(ways), np.uint32),
        np.array([len(octets) for octets in ways], np.uint8),
        np.frombuffer(b"".join(octets.ljust(netlink.WAY_OCTETS, b"\0") for octets in ways), np.uint8),
    )
    return out[:size].tobytes()


@pytest.mark.parametrize(
    ("octets", "command"), [pair for pair in CAPTURED if "nexthop" not in pair[1]], ids=lambda value: str(value)[:60]
)
def test_route_requests_are_octet_for_octet_those_of_iproute2(octets, command):
    """A request for one route is what iproute2 sends for the same route."""
    assert request(command, messages.MESSAGE.unpack_from(octets)[3]).hex() == octets.hex()


def test_only_the_last_request_of_a_batch_asks_for_an_acknowledgement():
    """Requests are numbered in a row and only the last carries NLM_F_ACK."""
    routes = [(netlink.INSTALL, (10 << 56) + (i << 40), 0, 24, 0) for i in range(3)]
    found = list(messages.messages_of(write(routes, [b""], first_sequence=0xFFFFFFFF)))
    assert [sequence for _, _, sequence, _ in found] == [0xFFFFFFFF, 0, 1]
    assert [bool(flags & messages.Request.ACKNOWLEDGE) for _, flags, _, _ in found] == [False, False, True]


def in_slots(datagrams: list[bytes], slot_octets: int = 512):
    """Lay datagrams out in slots, as a socket reads them."""
    octets = np.zeros(slot_octets * len(datagrams), np.uint8)
    for slot, datagram in enumerate(datagrams):
        octets[slot * slot_octets : slot * slot_octets + len(datagram)] = np.frombuffer(datagram, np.uint8)
    return octets, slot_octets, np.array([len(datagram) for datagram in datagrams], np.uint32)


def reply(sequence: int, error: int) -> bytes:
    """Return an NLMSG_ERROR as the kernel sends it with NETLINK_CAP_ACK."""
    return messages.message(messages.Kind.ERROR, messages.CAPPED, sequence, struct.pack("=i", -error) + bytes(16))


def test_replies_are_accounted_to_their_requests():
    """An error goes to the request of its number; the acknowledgement of the last says that it is done."""
    errors = np.array([0, 0, -1], np.int32)
    datagrams = [reply(0, 17), reply(1, 0), reply(77, 5)]
    assert netlink.scan_replies(*in_slots(datagrams), 0xFFFFFFFF, errors) == 2
    assert errors.tolist() == [0, 17, 0]


def test_replies_cut_at_any_length_are_passed_over():
    """A reply that is cut short is not read, wherever the cut is."""
    whole = reply(1, 17)
    for length in range(len(whole)):
        errors = np.array([-1], np.int32)
        assert netlink.scan_replies(*in_slots([whole[:length]]), 1, errors) == 0
        assert errors[0] == -1


def test_a_route_message_is_read_into_columns():
    """A request written for an IPv6 route is read back with each of its fields."""
    gateway = gateway_of("2001:db8::10")
    written = write(
        [(netlink.INSTALL, 0x20010DB800010000, 0, 48, 0)], [messages.way_by_gateway(AF_INET6, gateway)], AF_INET6, 1000
    )
    scan = netlink.RouteScan(1)
    assert scan.scan(*in_slots([written, written])) == 2
    assert scan.hi.tolist() == [0x20010DB800010000] * 2
    assert scan.gateway_hi.tolist() == [0x20010DB800000000] * 2 and scan.gateway_lo.tolist() == [0x10] * 2
    fields = ("message", "family", "length", "table", "protocol", "type", "metric", "oif", "gateway_family")
    assert [int(getattr(scan, name)[0]) for name in fields] == [24, AF_INET6, 48, 1000, 186, 1, 20, D0, AF_INET6]


def test_a_multipath_route_gives_its_first_hop_and_their_number():
    """RTA_MULTIPATH is read as the number of hops and the gateway and interface of the first."""
    hops = b"".join(
        struct.pack("=HBBI", 16, 0, 0, interface) + messages.attribute(5, bytes([192, 0, 2, interface]))
        for interface in (7, 8)
    )
    body = messages.route_header(AF_INET, 254) + messages.attribute(9, hops)
    scan = netlink.RouteScan()
    scan.scan(*in_slots([messages.message(24, 0, 0, body)]))
    assert (int(scan.n_hops[0]), int(scan.oif[0]), int(scan.gateway_hi[0]) >> 32) == (2, 7, 0xC0000207)


def test_a_cached_route_is_not_a_route():
    """What the kernel marks RTM_F_CLONED is passed over."""
    body = struct.pack("=BBBBBBBBI", AF_INET6, 128, 0, 0, 254, 2, 0, 1, 0x200)
    assert netlink.RouteScan().scan(*in_slots([messages.message(24, 0, 0, body)])) == 0


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("00", (0, 0, 0)),
        ("04c0000201", (0xC000020100000000, 0, 32)),
        ("1020010db8000000000000000000000010", (0x20010DB800000000, 0x10, 128)),
        ("2020010db8000000000000000000000010fe800000000000000000000000000001", (0x20010DB800000000, 0x10, 128)),
        ("1000000000000000000000ffffc0000201", (0xC000020100000000, 0, 32)),
        ("10c0", (0, 0, 0)),
        ("05c000020100", (0, 0, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_next_hops_of_sets(octets, expected):
    """Each form a next hop may have is read, and what has no known form is no next hop."""
    one = bytes.fromhex(octets)
    offsets = np.array([0, len(one), len(one) + 5], np.uint32)
    columns = netlink.next_hops(offsets, np.frombuffer(one + bytes.fromhex("0408080808"), np.uint8))
    assert tuple(int(column[0]) for column in columns) == expected
    assert int(columns[0][1]) == 0x0808080800000000
