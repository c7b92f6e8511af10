"""Route messages as rtnetlink(7) and rtnetlink.h have them, one at a time and with struct alone."""

import struct
from socket import AF_INET, AF_INET6

ADDRESS_OCTETS = {AF_INET: 4, AF_INET6: 16}


def write_requests(first_sequence: int, family: int, header: bytes, common: bytes, routes: list[tuple], ways) -> bytes:
    """Return the requests for (action, address as 128-bit number, length, way); ways: (type, flags, attributes)."""
    written = b""
    for i, (action, address, length, way) in enumerate(routes):
        kind, flags = {1: (24, 0x601), 2: (24, 0x501), 3: (25, 0x001)}[action]
        if i == len(routes) - 1:
            flags |= 0x04
        way_type, way_flags, attributes = ways[way]
        scope = 0
        if action == 3:
            scope, way_type, attributes = 255 if family == AF_INET else 0, 0, b""
            way_flags = struct.unpack_from("<I", header, 8)[0]
        table, protocol = header[4:6]
        body = struct.pack("<8BI", header[0], length, header[2], header[3], table, protocol, scope, way_type, way_flags)
        octets = address.to_bytes(16, "big")[: ADDRESS_OCTETS[family]]
        body += struct.pack("<HH", 4 + len(octets), 1) + octets + common + attributes
        sequence = (first_sequence + i) % 2**32
        written += struct.pack("<IHHII", 16 + len(body), kind, flags, sequence, 0) + body
    return written


def attributes(octets: bytes):
    """Give (number, value) of each attribute until one is cut short."""
    while len(octets) >= 4:
        size, kind = struct.unpack_from("<HH", octets)
        if size < 4 or size > len(octets):
            return
        yield kind & 0x3FFF, octets[4:size]
        octets = octets[(size + 3) // 4 * 4 :]


def messages(datagram: bytes):
    """Give (type, flags, port, body) of each message until one is cut short."""
    while len(datagram) >= 16:
        size, kind, flags, _, port = struct.unpack_from("<IHHII", datagram)
        if size < 16 or size > len(datagram):
            return
        yield kind, flags, port, datagram[16:size]
        datagram = datagram[(size + 3) // 4 * 4 :]


def scan_routes(datagrams: list[bytes]) -> list[dict]:
    """Return the routes in datagrams as maps of RouteScan's columns."""
    return [
        route
        for datagram in datagrams
        for kind, header_flags, port, body in messages(datagram)
        if kind in (24, 25) and (route := _route(kind, header_flags, port, body))
    ]


def _route(kind: int, header_flags: int, port: int, body: bytes) -> dict | None:
    if len(body) < 12:
        return None
    family, length, _, _, table, protocol, _, route_type, flags = struct.unpack_from("<8BI", body)
    if family not in ADDRESS_OCTETS or flags & 0x200 or length > 8 * ADDRESS_OCTETS[family]:
        return None
    route = {
        **dict(message=kind, family=family, length=length, table=table, protocol=protocol, type=route_type),
        **dict(flags=flags, header_flags=header_flags, port=port, hi=0, lo=0, metric=0, oif=0, nexthop_id=0, n_hops=0),
        **dict(gateway_family=0, gateway_hi=0, gateway_lo=0),
    }
    for number, value in attributes(body[12:]):
        if number == 1:
            _set_address(route, "", value)
        elif number == 5:
            _set_gateway(route, family, value)
        elif number == 18 and len(value) >= 2:
            _set_gateway(route, struct.unpack_from("<H", value)[0], value[2:])
        elif number == 9:
            _set_hops(route, family, value)
        elif len(value) == 4 and number in (4, 6, 15, 30):
            route[{4: "oif", 6: "metric", 15: "table", 30: "nexthop_id"}[number]] = struct.unpack("<I", value)[0]
    return route


def _set_address(route: dict, name: str, octets: bytes) -> None:
    route[name + "hi"] = int.from_bytes(octets[:8].ljust(8, b"\0"), "big")
    if len(octets) == 16:
        route[name + "lo"] = int.from_bytes(octets[8:], "big")


def _set_gateway(route: dict, family: int, octets: bytes) -> None:
    if len(octets) == ADDRESS_OCTETS.get(family):
        route["gateway_family"] = family
        _set_address(route, "gateway_", octets)


def _set_hops(route: dict, family: int, octets: bytes) -> None:
    while len(octets) >= 8:
        size = struct.unpack_from("<H", octets)[0]
        if size < 8 or size > len(octets):
            return
        if route["n_hops"] == 0:
            route["oif"] = struct.unpack_from("<I", octets, 4)[0]
            for number, value in attributes(octets[8:size]):
                if number == 5:
                    _set_gateway(route, family, value)
                elif number == 18 and len(value) >= 2:
                    _set_gateway(route, struct.unpack_from("<H", value)[0], value[2:])
        route["n_hops"] = min(route["n_hops"] + 1, 255)
        octets = octets[(size + 3) // 4 * 4 :]


def scan_replies(datagrams: list[bytes], first_sequence: int, n: int) -> dict[int, int]:
    """Return errno by request of the replies in datagrams."""
    found = {}
    for datagram in datagrams:
        rest = datagram
        for kind, _, _, body in messages(datagram):
            (sequence,) = struct.unpack_from("<I", rest, 8)
            rest = rest[(16 + len(body) + 3) // 4 * 4 :]
            index = (sequence - first_sequence) % 2**32
            if kind == 2 and len(body) >= 4 and index < n:
                found[index] = -struct.unpack_from("<i", body)[0] & 0x7FFFFFFF
    return found


def next_hop(one_set: bytes) -> tuple[int, int, int]:
    """Return (hi, lo, length in bits) of an attribute set's next hop."""
    length = one_set[0] if one_set else 0
    field = one_set[1 : 1 + length]
    if length not in (4, 16, 32) or len(field) < min(length, 16):
        return 0, 0, 0
    octets = field[:16]
    if length == 32 and octets == bytes(16) and len(field) == 32:
        octets = field[16:]
    if length > 4 and octets[:12] == bytes(10) + b"\xff\xff":
        octets = octets[12:]
    value = int.from_bytes(octets.ljust(16, b"\0"), "big")
    return value >> 64, value & (2**64 - 1), 8 * len(octets)


def link_bandwidth(one_set: bytes) -> int:
    """Return the bandwidth an attribute set tells, in units of 1024 octets a second, 0 for none."""
    rest = one_set[1 + one_set[0] :] if one_set else b""
    found = 0
    while len(rest) >= 3:
        head = 4 if rest[0] & 0x10 else 3
        if len(rest) < head:
            break
        size = int.from_bytes(rest[2:head], "big")
        code, value, rest = rest[1], rest[head : head + size], rest[head + size :]
        if len(value) < size or code > 16:
            break
        if code == 16:
            communities = [value[i : i + 8] for i in range(0, len(value) - 7, 8)]
            told = [struct.unpack(">f", one[4:])[0] for one in communities if one[:2] in (b"\x40\4", b"\0\4")]
            found = _whole_units(told[0]) if told else 0
    return found


def _whole_units(octets_a_second: float) -> int:
    if not 2**-126 <= octets_a_second < float("inf"):
        return 0
    return min(max(int(octets_a_second / 1024), 1), 2**32 - 1)
