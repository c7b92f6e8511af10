"""The few netlink messages that are not routes: nexthop objects, links, dumps; and the headers of route requests.

Owns their octets, written as iproute2 writes them. Never touches a socket. Routes, of which there are many, are
written and read by `common/kernels/netlink.py`.

Sources: rtnetlink(7), include/uapi/linux/{netlink,rtnetlink,nexthop,if_link}.h.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from socket import AF_INET, AF_INET6, AF_UNSPEC

PROTOCOL = 186  # RTPROT_BGP, as other BGP daemons have it; `fib.protocol` gives another
TABLE_MAIN = 254
TABLE_LOCAL = 255
TYPE_UNICAST = 1  # RTN_UNICAST
TYPE_BLACKHOLE = 6  # RTN_BLACKHOLE
NLM_F_REPLACE = 0x100
MAX_PLAIN_PATHS = 8  # of a route without nexthop object, so that they fit the room of a way
MESSAGE = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
ATTRIBUTE = struct.Struct("=HH")
U32 = struct.Struct("=I")


class Kind(IntEnum):
    """Message types (rtnetlink.h)."""

    ERROR = 2
    DONE = 3
    NEW_LINK = 16
    DEL_LINK = 17
    GET_LINK = 18
    NEW_ROUTE = 24
    DEL_ROUTE = 25
    GET_ROUTE = 26
    NEW_NEXTHOP = 104
    DEL_NEXTHOP = 105
    GET_NEXTHOP = 106


class Request(IntFlag):
    """Flags of a request (netlink.h)."""

    REQUEST = 0x1
    ACKNOWLEDGE = 0x4
    DUMP = 0x300
    REPLACE = 0x100
    CREATE = 0x400


class Link(IntFlag):
    """Flags of an interface (if.h) that say whether it can carry packets."""

    UP = 0x1
    RUNNING = 0x40
    LOWER_UP = 0x10000


class RouteAttribute(IntEnum):
    """Attributes of a route (rtnetlink.h)."""

    DST = 1
    OIF = 4
    GATEWAY = 5
    PRIORITY = 6
    PREFSRC = 7
    MULTIPATH = 9
    TABLE = 15
    VIA = 18
    NH_ID = 30


class NextHopAttribute(IntEnum):
    """Attributes of a nexthop object (nexthop.h)."""

    ID = 1
    GROUP = 2
    BLACKHOLE = 4
    OIF = 5
    GATEWAY = 6


SET_FLAGS = Request.REQUEST | Request.ACKNOWLEDGE | Request.CREATE | Request.REPLACE
GROUP_ENTRY = struct.Struct("=IBBH")  # struct nexthop_grp: object, weight - 1 (low octet, high octet), nothing
LINK_NAME = 3  # IFLA_IFNAME
ERROR_TEXT = 1  # NLMSGERR_ATTR_MSG
CAPPED = 0x100  # NLM_F_CAPPED: the request is not echoed
HAS_TEXT = 0x200  # NLM_F_ACK_TLVS


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where packets go: an address on an interface, or nowhere. `family` 0: the destination itself, there."""

    family: int
    address: bytes
    interface: int
    is_blackhole: bool = False


BLACKHOLE = Gateway(AF_UNSPEC, b"", 0, True)
Members = tuple[tuple[int, int], ...]
"""Of a group: (identifier of the member's object, weight from 1 to 255), ascending."""


def attribute(kind: int, value: bytes) -> bytes:
    """Return one attribute, padded to four octets."""
    return ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """Return one attribute that is a 32-bit number."""
    return attribute(kind, U32.pack(value))


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Return one message."""
    return MESSAGE.pack(MESSAGE.size + len(body), kind, flags, sequence, 0) + body


def attributes_of(octets: bytes) -> dict[int, bytes]:
    """Return the attributes in `octets` by number, the last of each."""
    found = {}
    at = 0
    while at + 4 <= len(octets):
        length, kind = ATTRIBUTE.unpack_from(octets, at)
        if length < 4 or at + length > len(octets):
            break
        found[kind & 0x3FFF] = octets[at + 4 : at + length]
        at += (length + 3) & ~3
    return found


def messages_of(octets: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Give (type, flags, sequence, body) of each message in a datagram."""
    at = 0
    while at + MESSAGE.size <= len(octets):
        length, kind, flags, sequence, _ = MESSAGE.unpack_from(octets, at)
        if length < MESSAGE.size or at + length > len(octets):
            break
        yield kind, flags, sequence, octets[at + MESSAGE.size : at + length]
        at += (length + 3) & ~3


def route_header(family: int, table: int, protocol: int = PROTOCOL) -> bytes:
    """Return the struct rtmsg that route requests of one family begin with."""
    return struct.pack("=BBBBBBBBI", family, 0, 0, 0, table if table < 256 else 0, protocol, 0, 0, 0)


def common_attributes(table: int, metric: int) -> bytes:
    """Return the attributes that every route request has after its destination."""
    beyond = number(RouteAttribute.TABLE, table) if table > 255 else b""
    return beyond + number(RouteAttribute.PRIORITY, metric)


def way_by_object(identifier: int) -> bytes:
    """Return the attributes of a route that refers to a nexthop object."""
    return number(RouteAttribute.NH_ID, identifier)


def way_by_gateway(route_family: int, gateway: Gateway) -> bytes:
    """Return the attributes of a route that names its gateway and interface itself (RFC 8950: by RTA_VIA)."""
    if gateway.is_blackhole:
        return b""
    return _via(route_family, gateway) + number(RouteAttribute.OIF, gateway.interface)


def way_by_gateways(route_family: int, members: list[tuple[Gateway, int]]) -> bytes:
    """Return the attributes of a route that names several gateways and their weights (RTA_MULTIPATH)."""
    hops = b""
    for gateway, weight in members[:MAX_PLAIN_PATHS]:
        via = _via(route_family, gateway)
        hops += struct.pack("=HBBi", 8 + len(via), 0, weight - 1, gateway.interface) + via
    return attribute(RouteAttribute.MULTIPATH, hops)


def _via(route_family: int, gateway: Gateway) -> bytes:
    if gateway.family == route_family:
        return attribute(RouteAttribute.GATEWAY, gateway.address)
    return attribute(RouteAttribute.VIA, struct.pack("=H", gateway.family) + gateway.address)


def preferred_source(address: bytes) -> bytes:
    """Return the attribute of a route that names the source address of packets this machine itself sends on it."""
    return attribute(RouteAttribute.PREFSRC, address) if address else b""


def set_nexthop(
    sequence: int, identifier: int, gateway: Gateway, protocol: int = PROTOCOL, family: int = AF_INET
) -> bytes:
    """Return the request that makes nexthop object `identifier`, or changes it at once for all routes on it.

    family: of an object that leads nowhere (blackhole).
    """
    body = struct.pack("=BBBBI", family if gateway.is_blackhole else gateway.family, 0, protocol, 0, 0)
    body += number(NextHopAttribute.ID, identifier)
    if gateway.is_blackhole:
        body += attribute(NextHopAttribute.BLACKHOLE, b"")
    else:
        body += attribute(NextHopAttribute.GATEWAY, gateway.address)
        body += number(NextHopAttribute.OIF, gateway.interface)
    return message(Kind.NEW_NEXTHOP, SET_FLAGS, sequence, body)


def set_group(sequence: int, identifier: int, members: Members, protocol: int = PROTOCOL) -> bytes:
    """Return the request that makes a group of nexthop objects, or changes it at once for all routes on it."""
    body = struct.pack("=BBBBI", AF_UNSPEC, 0, protocol, 0, 0) + number(NextHopAttribute.ID, identifier)
    entries = b"".join(GROUP_ENTRY.pack(member, weight - 1, 0, 0) for member, weight in members)
    body += attribute(NextHopAttribute.GROUP, entries)
    return message(Kind.NEW_NEXTHOP, SET_FLAGS, sequence, body)


def remove_nexthop(sequence: int, identifier: int) -> bytes:
    """Return the request that removes a nexthop object, and with it, at once, all routes on it."""
    body = bytes(8) + number(NextHopAttribute.ID, identifier)
    return message(Kind.DEL_NEXTHOP, Request.REQUEST | Request.ACKNOWLEDGE, sequence, body)


def dump_routes(sequence: int, family: int, table: int) -> bytes:
    """Return the request for all routes of a table."""
    body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, 0, 0, 0, 0) + number(RouteAttribute.TABLE, table)
    return message(Kind.GET_ROUTE, Request.REQUEST | Request.DUMP, sequence, body)


def ask_route(sequence: int, family: int, address: bytes) -> bytes:
    """Return the request for the route that packets to an address take."""
    body = struct.pack("=BBBBBBBBI", family, 8 * len(address), 0, 0, 0, 0, 0, 0, 0)
    return message(Kind.GET_ROUTE, Request.REQUEST, sequence, body + attribute(RouteAttribute.DST, address))


def decode_route_type(body: bytes) -> int:
    """Return the type of a route (RTN_UNICAST, RTN_LOCAL and so on)."""
    return body[7]


def dump_nexthops(sequence: int) -> bytes:
    """Return the request for all nexthop objects."""
    return message(Kind.GET_NEXTHOP, Request.REQUEST | Request.DUMP, sequence, bytes(8))


def dump_links(sequence: int) -> bytes:
    """Return the request for all interfaces."""
    return message(Kind.GET_LINK, Request.REQUEST | Request.DUMP, sequence, bytes(16))


@dataclass(frozen=True, slots=True)
class LinkState:
    """One interface as the kernel tells of it."""

    index: int
    name: str
    is_up: bool
    is_usable: bool
    is_there: bool = True


def decode_link(kind: int, body: bytes) -> LinkState:
    """Decode an interface; it is usable if it is up and has a carrier, as the kernel asks of nexthop objects."""
    _, _, _, index, flags, _ = struct.unpack_from("=BBHiII", body)
    name = attributes_of(body[16:]).get(LINK_NAME, b"").rstrip(b"\0").decode(errors="replace")
    is_up = kind == Kind.NEW_LINK and bool(flags & Link.UP)
    is_usable = is_up and bool(flags & (Link.RUNNING | Link.LOWER_UP))
    return LinkState(index, name, is_up, is_usable, kind == Kind.NEW_LINK)


@dataclass(frozen=True, slots=True)
class NextHopState:
    """One nexthop object as the kernel tells of it."""

    identifier: int
    protocol: int
    gateway: Gateway | None
    members: Members = ()


def decode_nexthop(body: bytes) -> NextHopState:
    """Decode a nexthop object; a group has members and no gateway."""
    family, _, protocol, _, _ = struct.unpack_from("=BBBBI", body)
    found = attributes_of(body[8:])
    gateway = None
    if NextHopAttribute.BLACKHOLE in found:
        gateway = BLACKHOLE
    elif family in (AF_INET, AF_INET6) and NextHopAttribute.OIF in found:
        address = found.get(NextHopAttribute.GATEWAY, b"")
        gateway = Gateway(family if address else AF_UNSPEC, address, U32.unpack(found[NextHopAttribute.OIF])[0])
    entries = found.get(NextHopAttribute.GROUP, b"")
    entries = GROUP_ENTRY.iter_unpack(entries[: len(entries) // GROUP_ENTRY.size * GROUP_ENTRY.size])
    members = tuple(sorted((member, weight + 1) for member, weight, _, _ in entries))
    return NextHopState(U32.unpack(found[NextHopAttribute.ID])[0], protocol, gateway, members)


def decode_error(flags: int, body: bytes) -> tuple[int, str]:
    """Return (errno, the kernel's own words if any) of an NLMSG_ERROR; errno 0 is an acknowledgement."""
    (code,) = struct.unpack_from("=i", body)
    if not flags & HAS_TEXT:
        return -code, ""
    echoed = MESSAGE.size if flags & CAPPED else (U32.unpack_from(body, 4)[0] + 3) & ~3
    text = attributes_of(body[4 + echoed :]).get(ERROR_TEXT, b"")
    return -code, text.rstrip(b"\0").decode(errors="replace")
