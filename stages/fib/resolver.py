"""Finds the way to a BGP next hop over the routes of others: connected, static, another daemon's.

Owns the interfaces' states and the kernel's routes that are not ours, as dumps and notifications tell them. Never
touches a socket, never looks at a route of protocol 186, so a next hop is never resolved through BGP.

RFC 4271 §5.1.3 and §9.1.2.1: the route to the NEXT_HOP address with the longest match gives the immediate next hop.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from socket import AF_INET, AF_INET6

import numpy as np

from common.kernels.netlink import RouteScan
from stages.fib.messages import (
    PROTOCOL_BGP,
    TABLE_LOCAL,
    TABLE_MAIN,
    TYPE_UNICAST,
    Gateway,
    Kind,
    LinkState,
    NextHopState,
)

BITS = {AF_INET: 32, AF_INET6: 128}
WHY_NO_UNICAST = {
    2: "an address of this router",
    3: "a broadcast address",
    5: "multicast",
    6: "blackhole",
    7: "unreachable",
    8: "prohibited",
    9: "thrown to another table",
}
LINK_LOCAL = 0xFE80 >> 6  # fe80::/10


@dataclass(frozen=True, slots=True)
class Resolution:
    """The way to a next hop; without a gateway, `reason` says why there is none."""

    gateway: Gateway | None
    metric: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Route:
    """A route of others; `gateway.family` 0: the destination itself is on the interface."""

    kind: int
    metric: int
    gateway: Gateway
    nexthop_id: int


def address_text(family: int, octets: bytes) -> str:
    """Return an address for people."""
    return str(IPv4Address(octets) if family == AF_INET else IPv6Address(octets))


class Resolver:
    """Routes of others by family, length and address."""

    TABLES = (TABLE_MAIN, TABLE_LOCAL)

    def __init__(self):
        self.links: dict[int, LinkState] = {}
        self.objects: dict[int, NextHopState] = {}
        self.n_routes = 0
        self._routes: dict[int, dict[int, dict[int, dict[tuple, _Route]]]] = {AF_INET: {}, AF_INET6: {}}

    def learn_link(self, link: LinkState) -> bool:
        """Note the state of an interface; return True if it can no longer be used and could be before."""
        before = self.links.get(link.index)
        self.links[link.index] = link
        if before is not None and before.is_up and not link.is_up:
            self._forget_interface(link.index)
        return before is not None and before.is_usable and not link.is_usable

    def learn_object(self, kind: int, state: NextHopState) -> None:
        """Note a nexthop object of others."""
        if kind == Kind.DEL_NEXTHOP:
            self.objects.pop(state.identifier, None)
        elif state.protocol != PROTOCOL_BGP:
            self.objects[state.identifier] = state

    def learn_routes(self, scan: RouteScan) -> int:
        """Note the routes of others among those read; return how many there were."""
        if not len(scan):
            return 0
        others = np.flatnonzero(np.isin(scan.table, self.TABLES) & (scan.protocol != PROTOCOL_BGP))
        for i in others.tolist():
            self._learn(
                scan, i, int(scan.family[i]), int(scan.length[i]), int(scan.message[i]), int(scan.gateway_family[i])
            )
        return len(others)

    def _learn(self, scan: RouteScan, i: int, family: int, length: int, message: int, gateway_family: int) -> None:
        bits = BITS[family]
        address = (int(scan.hi[i]) << 64 | int(scan.lo[i])) >> (128 - length)
        via = b""
        if gateway_family:
            value = int(scan.gateway_hi[i]) << 64 | int(scan.gateway_lo[i])
            via = (value >> (128 - BITS[gateway_family])).to_bytes(BITS[gateway_family] // 8, "big")
        gateway = Gateway(gateway_family, via, int(scan.oif[i]))
        route = _Route(int(scan.type[i]), int(scan.metric[i]), gateway, int(scan.nexthop_id[i]))
        # One IPv4 route a metric; IPv6 keeps routes of one metric beside each other on several interfaces.
        table = int(scan.table[i])
        key = (table, route.metric) if bits == 32 else (table, route.metric, gateway.interface, via)
        same = self._routes[family].setdefault(length, {}).setdefault(address, {})
        self.n_routes -= len(same)
        if message == Kind.NEW_ROUTE:
            same[key] = route
        else:
            same.pop(key, None)
        self.n_routes += len(same)
        if not same:
            self._drop(family, length, address)

    def resolve(self, family: int, address: bytes) -> Resolution:
        """Return the way to a next hop: the longest match whose interface can be used, the lowest metric of those."""
        value, bits = int.from_bytes(address, "big"), BITS[family]
        if family == AF_INET6 and value >> 118 == LINK_LOCAL:
            return Resolution(None, reason="link-local next hop without its interface")
        reason = "no route to it"
        for length in sorted(self._routes[family], reverse=True):
            same = self._routes[family][length].get(value >> (bits - length))
            for route in sorted(same.values(), key=lambda route: route.metric) if same else ():
                if route.kind != TYPE_UNICAST:
                    return Resolution(None, route.metric, WHY_NO_UNICAST.get(route.kind, "not a unicast route"))
                gateway = self._gateway(route, family, address)
                if gateway is None:
                    reason = f"the nexthop object {route.nexthop_id} of the route to it is of another form"
                elif self._is_usable(gateway.interface):
                    return Resolution(gateway, route.metric)
                else:
                    reason = f"interface {self.name_of(gateway.interface)} is down"
        return Resolution(None, reason=reason)

    def name_of(self, interface: int) -> str:
        """Return the name of an interface, its number if it is not known."""
        return self.links[interface].name if interface in self.links else str(interface)

    def _gateway(self, route: _Route, family: int, address: bytes) -> Gateway | None:
        gateway = route.gateway
        if route.nexthop_id and not gateway.interface:
            state = self.objects.get(route.nexthop_id)
            if state is None or state.gateway is None:
                return None
            gateway = state.gateway
        return gateway if gateway.family else Gateway(family, address, gateway.interface)

    def _is_usable(self, interface: int) -> bool:
        return interface in self.links and self.links[interface].is_usable

    def _forget_interface(self, interface: int) -> None:
        """Forget IPv4 routes over an interface that went down: the kernel drops them without a message."""
        link = self.links[interface]
        for length, by_address in list(self._routes[AF_INET].items()):
            for address, same in list(by_address.items()):
                for key in [key for key, route in same.items() if route.gateway.interface == link.index]:
                    del same[key]
                    self.n_routes -= 1
                if not same:
                    self._drop(AF_INET, length, address)

    def _drop(self, family: int, length: int, address: int) -> None:
        del self._routes[family][length][address]
        if not self._routes[family][length]:
            del self._routes[family][length]
