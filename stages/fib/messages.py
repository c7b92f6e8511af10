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

PROTOCOL_BGP = 186  # RTPROT_BGP
TABLE_MAIN = 254
TABLE_LOCAL = 255
TYPE_UNICAST = 1  # RTN_UNICAST
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


LINK_NAME = 3  # IFLA_IFNAME
ERROR_TEXT = 1  # NLMSGERR_ATTR_MSG
CAPPED = 0x100  # NLM_F_CAPPED: the request is not echoed
HAS_TEXT = 0x200  # NLM_F_ACK_TLVS


@dataclass(frozen=True, slots=True)
class Gateway:
    """Where packets go: an address on an interface. `family` 0: the object is of another form (group, blackhole)."""

    family: int
    address: bytes
    interface: int


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


def route_header(family: int, table: int) -> bytes:
    """Return the struct rtmsg that route requests of one family begin with."""
    return struct.pack("=BBBBBBBBI", family, 0, 0, 0, table if table < 256 else 0, PROTOCOL_BGP, 0, 0, 0)


def common_attributes(table: int, metric: int) -> bytes:
    """Return the attributes that every route request has after its destination."""
    beyond = number(RouteAttribute.TABLE, table) if table > 255 else b""
    return beyond + number(RouteAttribute.PRIORITY, metric)


def way_by_object(identifier: int) -> bytes:
    """Return the attributes of a route that refers to a nexthop object."""
    return number(RouteAttribute.NH_ID, identifier)


def way_by_gateway(route_family: int, gateway: Gateway) -> bytes:
    """Return the attributes of a route that names its gateway and interface itself (RFC 8950: by RTA_VIA)."""
    if gateway.family == route_family:
        via = attribute(RouteAttribute.GATEWAY, gateway.address)
    else:
        via = attribute(RouteAttribute.VIA, struct.pack("=H", gateway.family) + gateway.address)
    return via + number(RouteAttribute.OIF, gateway.interface)


def set_nexthop(sequence: int, identifier: int, gateway: Gateway) -> bytes:
    """Return the request that makes nexthop object `identifier`, or changes it at once for all routes on it."""
    body = struct.pack("=BBBBI", gateway.family, 0, PROTOCOL_BGP, 0, 0)
    body += number(NextHopAttribute.ID, identifier)
    body += attribute(NextHopAttribute.GATEWAY, gateway.address)
    body += number(NextHopAttribute.OIF, gateway.interface)
    flags = Request.REQUEST | Request.ACKNOWLEDGE | Request.CREATE | Request.REPLACE
    return message(Kind.NEW_NEXTHOP, flags, sequence, body)


def remove_nexthop(sequence: int, identifier: int) -> bytes:
    """Return the request that removes a nexthop object, and with it, at once, all routes on it."""
    body = bytes(8) + number(NextHopAttribute.ID, identifier)
    return message(Kind.DEL_NEXTHOP, Request.REQUEST | Request.ACKNOWLEDGE, sequence, body)


def dump_routes(sequence: int, family: int, table: int, protocol: int = 0) -> bytes:
    """Return the request for all routes of a table, and of one protocol unless that is 0 (the kernel filters)."""
    body = struct.pack("=BBBBBBBBI", family, 0, 0, 0, 0, protocol, 0, 0, 0) + number(RouteAttribute.TABLE, table)
    return message(Kind.GET_ROUTE, Request.REQUEST | Request.DUMP, sequence, body)


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


def decode_link(kind: int, body: bytes) -> LinkState:
    """Decode an interface; it is usable if it is up and has a carrier, as the kernel asks of nexthop objects."""
    _, _, _, index, flags, _ = struct.unpack_from("=BBHiII", body)
    name = attributes_of(body[16:]).get(LINK_NAME, b"").rstrip(b"\0").decode(errors="replace")
    is_up = kind == Kind.NEW_LINK and bool(flags & Link.UP)
    return LinkState(index, name, is_up, is_up and bool(flags & (Link.RUNNING | Link.LOWER_UP)))


@dataclass(frozen=True, slots=True)
class NextHopState:
    """One nexthop object as the kernel tells of it."""

    identifier: int
    protocol: int
    gateway: Gateway | None


def decode_nexthop(body: bytes) -> NextHopState:
    """Decode a nexthop object; groups, blackholes and objects without a gateway have none here."""
    family, _, protocol, _, _ = struct.unpack_from("=BBBBI", body)
    found = attributes_of(body[8:])
    gateway = None
    if family in (AF_INET, AF_INET6) and NextHopAttribute.OIF in found and NextHopAttribute.BLACKHOLE not in found:
        address = found.get(NextHopAttribute.GATEWAY, b"")
        gateway = Gateway(family if address else AF_UNSPEC, address, U32.unpack(found[NextHopAttribute.OIF])[0])
    return NextHopState(U32.unpack(found[NextHopAttribute.ID])[0], protocol, gateway)


def decode_error(flags: int, body: bytes) -> tuple[int, str]:
    """Return (errno, the kernel's own words if any) of an NLMSG_ERROR; errno 0 is an acknowledgement."""
    (code,) = struct.unpack_from("=i", body)
    if not flags & HAS_TEXT:
        return -code, ""
    echoed = MESSAGE.size if flags & CAPPED else (U32.unpack_from(body, 4)[0] + 3) & ~3
    text = attributes_of(body[4 + echoed :]).get(ERROR_TEXT, b"")
    return -code, text.rstrip(b"\0").decode(errors="replace")
