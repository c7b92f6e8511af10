"""Unit tests of stages/fib/messages.py, against what iproute2 sends and what the kernel answers."""

import ipaddress
import struct
from pathlib import Path
from socket import AF_INET, AF_INET6

import pytest

from stages.fib import messages

BGP = 186  # "proto bgp" of the vectors
VECTORS = Path(__file__).parents[3] / "vectors" / "netlink_iproute2.txt"
CAPTURED = [
    (bytes.fromhex(octets), command.split())
    for octets, command in (line.split(" ", 1) for line in VECTORS.read_text().splitlines() if line[0] != "#")
]


@pytest.mark.parametrize(
    ("octets", "words"), [pair for pair in CAPTURED if "via" in pair[1] and pair[1][1] == "nexthop"]
)
def test_nexthop_requests_are_those_of_iproute2(octets, words):
    """A nexthop object is made as iproute2 makes it, but for NLM_F_EXCL: ours is set whatever was there."""
    address = ipaddress.ip_address(words[words.index("via") + 1]).packed
    gateway = messages.Gateway(AF_INET6 if len(address) == 16 else AF_INET, address, 2)
    _, _, flags, sequence, _ = messages.MESSAGE.unpack_from(octets)
    mine = messages.set_nexthop(sequence, int(words[words.index("id") + 1]), gateway, BGP)
    as_replaced = octets[:6] + struct.pack("=H", flags & ~0x200 | 0x100) + octets[8:]
    assert mine.hex() == as_replaced.hex()


def captured(*words: str) -> bytes:
    """Return what iproute2 sent for the command that has these words."""
    return next(octets for octets, command in CAPTURED if all(word in " ".join(command) for word in words))


def sequence_of(octets: bytes) -> int:
    return messages.MESSAGE.unpack_from(octets)[3]


def with_flags(octets: bytes, flags: int) -> bytes:
    """Return a message as it is with other flags: ours sets an object whatever was there."""
    return octets[:6] + struct.pack("=H", flags) + octets[8:]


@pytest.mark.parametrize(("family", "word"), [(AF_INET, "ip nexthop add id 79"), (AF_INET6, "ip -6 nexthop add id 80")])
def test_blackhole_objects_are_those_of_iproute2(family, word):
    """An object that leads nowhere has the family of its routes and nothing else."""
    octets = captured(word, "blackhole")
    mine = messages.set_nexthop(sequence_of(octets), int(word[-2:]), messages.BLACKHOLE, BGP, family)
    assert mine.hex() == with_flags(octets, messages.SET_FLAGS).hex()


def test_groups_are_those_of_iproute2():
    """Members and weights are written as iproute2 writes them, and read as they were written."""
    plain, weighted = captured("id 90 group 77/78"), captured("id 90 group 77,75/78,25")
    for octets, members in ((plain, ((77, 1), (78, 1))), (weighted, ((77, 75), (78, 25)))):
        mine = messages.set_group(sequence_of(octets), 90, members, BGP)
        assert mine.hex() == with_flags(octets, messages.SET_FLAGS).hex()
        assert messages.decode_nexthop(mine[16:]) == messages.NextHopState(90, BGP, None, members)


@pytest.mark.parametrize(
    ("words", "family", "hops"),
    [
        (("ip route add 198.51.100.0/24", "weight 3"), AF_INET, [("192.0.2.10", 1), ("192.0.2.11", 3)]),
        (("ip -6 route add", "weight 3"), AF_INET6, [("2001:db8::10", 1), ("2001:db8::11", 3)]),
        (("via inet6 2001:db8::10 dev d0 weight 1",), AF_INET, [("192.0.2.10", 1), ("2001:db8::10", 1)]),
    ],
)
def test_several_gateways_are_written_as_by_iproute2(words, family, hops):
    """RTA_MULTIPATH with weights, in both families and over both."""
    octets = captured(*words)
    addresses = [(ipaddress.ip_address(text), weight) for text, weight in hops]
    members = [
        (messages.Gateway(AF_INET6 if address.version == 6 else AF_INET, address.packed, 100), weight)
        for address, weight in addresses
    ]
    mine = messages.way_by_gateways(family, members)
    n_padding = 2 if "inet6" in words[0] else 0  # iproute2 leaves in the padding what was there
    assert octets[-len(mine) : len(octets) - n_padding].hex() == mine[: len(mine) - n_padding].hex()


def test_a_preferred_source_is_written_as_by_iproute2():
    """RTA_PREFSRC before the way."""
    octets = captured("src 192.0.2.1")
    mine = messages.preferred_source(bytes([192, 0, 2, 1])) + messages.way_by_object(77)
    assert octets.hex().endswith(mine.hex())


def test_nexthop_removal_is_that_of_iproute2():
    """The request that removes an object is octet for octet iproute2's."""
    octets = next(octets for octets, words in CAPTURED if words[:3] == ["ip", "nexthop", "del"])
    assert messages.remove_nexthop(messages.MESSAGE.unpack_from(octets)[3], 77).hex() == octets.hex()


def test_a_nexthop_object_is_read_as_it_was_written():
    """The body of a request decodes to the same identifier, protocol and gateway."""
    gateway = messages.Gateway(AF_INET, bytes([192, 0, 2, 10]), 2)
    body = messages.set_nexthop(1, 500, gateway)[16:]
    assert messages.decode_nexthop(body) == messages.NextHopState(500, messages.PROTOCOL, gateway)


@pytest.mark.parametrize(
    ("flags", "is_up", "is_usable"),
    [(0x11043, True, True), (0x1003, True, False), (0x11042, False, False), (0x43, True, True), (0, False, False)],
)
def test_a_link_is_usable_if_it_is_up_and_has_a_carrier(flags, is_up, is_usable):
    """IFF_UP and one of IFF_RUNNING and IFF_LOWER_UP, as the kernel asks of nexthop objects."""
    body = struct.pack("=BBHiII", 0, 0, 1, 7, flags, 0) + messages.attribute(3, b"eth0\0")
    assert messages.decode_link(messages.Kind.NEW_LINK, body) == messages.LinkState(7, "eth0", is_up, is_usable)
    assert not messages.decode_link(messages.Kind.DEL_LINK, body).is_usable


def test_an_error_carries_the_words_of_the_kernel():
    """NLMSGERR_ATTR_MSG is found behind the echoed header."""
    body = struct.pack("=i", -22) + bytes(16) + messages.attribute(1, b"Invalid nexthop id\0")
    assert messages.decode_error(messages.CAPPED | messages.HAS_TEXT, body) == (22, "Invalid nexthop id")


def test_messages_cut_at_any_length_end_the_walk():
    """A datagram cut anywhere gives the messages before the cut and nothing else."""
    whole = messages.message(1, 0, 1, b"abcd") + messages.message(2, 0, 2, b"efgh")
    for length in range(len(whole)):
        assert len(list(messages.messages_of(whole[:length]))) == (1 if length >= 20 else 0)
