"""Finds the way to a BGP next hop over the routes of others: connected, static, another daemon's.

Owns the interfaces' states and the main table's routes that are not ours, as dumps and notifications tell them. Never
touches a socket, never looks at a route of our own protocol, so a next hop is never resolved through BGP, unless the
configuration wants that (`own`).

RFC 4271 §5.1.3 and §9.1.2.1: the route to the NEXT_HOP address with the longest match gives the immediate next hop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from socket import AF_INET, AF_INET6

import numpy as np

from common.arrays import distinct
from common.kernels.netlink import RouteScan
from common.kernels.others import OtherRoutes
from common.kernels.prefixes import PrefixTable
from stages.fib.messages import (
    BLACKHOLE,
    PROTOCOL,
    TABLE_LOCAL,
    TABLE_MAIN,
    TYPE_BLACKHOLE,
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
    4: "an anycast address of this router",
    5: "multicast",
    7: "unreachable",
    8: "prohibited",
    9: "thrown to another table",
}
NOT_ELSEWHERE = (2, 3, 4, 5)  # RTN_LOCAL, _BROADCAST, _ANYCAST, _MULTICAST: of the table of this router's addresses
LINK_LOCAL = 0xFE80 >> 6  # fe80::/10
MASK64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Resolution:
    """The way to a next hop; without a gateway, `reason` says why there is none."""

    gateway: Gateway | None
    metric: int = 0
    reason: str = ""


def address_text(family: int, octets: bytes) -> str:
    """Return an address for people."""
    return str(IPv4Address(octets) if family == AF_INET else IPv6Address(octets))


def is_link_local(family: int, address: bytes) -> bool:
    """Tell whether an address is of fe80::/10: it means something on one interface only."""
    return family == AF_INET6 and int.from_bytes(address[:2], "big") >> 6 == LINK_LOCAL


class _Book:
    """The routes of others of one family."""

    def __init__(self, family: int, seed: int):
        self.family = family
        self.is_wide = family == AF_INET6
        self.prefixes = PrefixTable(self.is_wide, seed, 64)
        self.routes = OtherRoutes()
        # Every prefix that covers a next hop: a change of any other moves nobody.
        self.watched = PrefixTable(self.is_wide, seed, 64)
        self.lengths = np.arange(BITS[family], -1, -1).astype(np.uint8)
        masks = [((1 << 128) - 1) >> (128 - n) << (128 - n) for n in self.lengths.tolist()]
        self._mask_hi = np.array([mask >> 64 for mask in masks], np.uint64)
        self._mask_lo = np.array([mask & MASK64 for mask in masks], np.uint64)

    def learn(self, scan: RouteScan, chosen: np.ndarray) -> bool:
        """Take in these messages of a scan; return True if a next hop may go another way now."""
        lo = scan.lo[chosen] if self.is_wide else np.empty(0, np.uint64)
        hi, length, message = scan.hi[chosen], scan.length[chosen], scan.message[chosen]
        is_there = (message == Kind.NEW_ROUTE).astype(np.uint32)
        rows = self.prefixes.intern(hi, lo, length, is_there)
        self.routes.ensure_prefixes(self.prefixes.capacity)
        emptied = self.routes.apply(
            rows, message, scan.header_flags[chosen], scan.table[chosen], scan.metric[chosen], scan.oif[chosen],
            scan.nexthop_id[chosen], scan.type[chosen], scan.gateway_family[chosen], scan.gateway_hi[chosen],
            scan.gateway_lo[chosen],
        )  # fmt: skip
        self._release(emptied)
        return self.is_watched(scan, chosen)

    def is_watched(self, scan: RouteScan, chosen: np.ndarray) -> bool:
        """Tell whether any of these routes of a scan could be that to a next hop."""
        lo = scan.lo[chosen] if self.is_wide else np.empty(0, np.uint64)
        return bool(self.watched.find(scan.hi[chosen], lo, scan.length[chosen]).any())

    def forget_interface(self, index: int) -> None:
        self._release(self.routes.forget_interface(index))

    def _release(self, emptied: np.ndarray) -> None:
        rows = distinct(emptied)
        rows = rows[self.routes.is_empty(rows)]
        if len(rows):
            self.prefixes.release(rows)

    def watch(self, address: bytes) -> None:
        """Care about the routes to an address from now on."""
        self.watched.intern(*self._covering(address))

    def matches(self, address: bytes) -> list[tuple[int, tuple]]:
        """Return (length, route) of each route to an address, the longest match first, of those the lowest metric."""
        rows = self.prefixes.find(*self._covering(address))
        found = []
        for at in np.flatnonzero(rows).tolist():
            length = int(self.lengths[at])
            found += [(length, route) for route in sorted(self.routes.routes(int(rows[at])), key=lambda one: one[1])]
        return found

    def _covering(self, address: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all prefixes an address is in, as columns, the longest first."""
        value = int.from_bytes(address.ljust(16, b"\0"), "big")
        lo = self._mask_lo & np.uint64(value & MASK64) if self.is_wide else np.empty(0, np.uint64)
        return self._mask_hi & np.uint64(value >> 64), lo, self.lengths


class Resolver:
    """What is known of links, of others' routes and of others' nexthop objects."""

    def __init__(
        self,
        protocol: int = PROTOCOL,
        seed: int = 0,
        route_type: Callable[[int, bytes], int] = lambda family, address: TYPE_UNICAST,
    ):
        """Resolve over routes that are not of `protocol`; `route_type` asks the kernel what leads to an address."""
        self.links: dict[int, LinkState] = {}
        self.objects: dict[int, NextHopState] = {}
        self.own: Callable[[int, bytes], tuple[int, Gateway] | None] | None = None
        """Gives (length, way) of our own route to an address, where next hops may be resolved through BGP."""
        self._protocol = protocol
        self._seed = seed
        self._route_type = route_type
        self._books = {family: _Book(family, seed) for family in (AF_INET, AF_INET6)}

    @property
    def n_routes(self) -> int:
        """Routes of others that are known."""
        return sum(book.routes.n for book in self._books.values())

    def forget_routes(self) -> None:
        """Forget all routes of others, which are about to be read again."""
        for family, book in self._books.items():
            watched = book.watched
            self._books[family] = _Book(family, self._seed)
            self._books[family].watched = watched

    def learn_link(self, link: LinkState) -> bool:
        """Note the state of an interface; return True if it can no longer be used and could be before."""
        before = self.links.get(link.index)
        self.links[link.index] = link
        if before is not None and before.is_up and not link.is_up:
            # The kernel drops IPv4 routes over an interface that goes down without a message for each.
            self._books[AF_INET].forget_interface(link.index)
        return before is not None and before.is_usable and not link.is_usable

    def learn_object(self, kind: int, state: NextHopState) -> None:
        """Note a nexthop object of others."""
        if kind == Kind.DEL_NEXTHOP:
            self.objects.pop(state.identifier, None)
        else:
            self.objects[state.identifier] = state

    def learn_routes(self, scan: RouteScan) -> bool:
        """Note the routes of others among those read; return True if a next hop may go another way now."""
        others = np.flatnonzero(scan.protocol != self._protocol)
        is_news = False
        for family, book in self._books.items():
            chosen = others[scan.family[others] == family]
            if len(chosen):
                tables = scan.table[chosen]
                is_news |= book.learn(scan, chosen[tables == TABLE_MAIN])
                is_news |= book.is_watched(scan, chosen[tables == TABLE_LOCAL])
        return is_news

    def watch(self, family: int, address: bytes) -> None:
        """Care about the routes to a next hop."""
        self._books[family].watch(address)

    def resolve(self, family: int, address: bytes, interface: int = 0) -> Resolution:
        """Return the way to a next hop: the longest match whose interface can be used, the lowest metric of those.

        interface: that of a link-local next hop, which is on it or nowhere.
        """
        if is_link_local(family, address):
            return self._on_interface(family, address, interface)
        kind = self._route_type(family, address)
        if kind in NOT_ELSEWHERE:
            return Resolution(None, 0, WHY_NO_UNICAST[kind])
        reason = "no route to it"
        own = self.own(family, address) if self.own is not None else None
        for length, (_, metric, kind, oif, nexthop_id, gateway_family, hi, lo) in self._books[family].matches(address):
            if own is not None and own[0] > length:
                return Resolution(own[1], 0)
            if kind == TYPE_BLACKHOLE:
                return Resolution(BLACKHOLE, metric)
            if kind != TYPE_UNICAST:
                return Resolution(None, metric, WHY_NO_UNICAST.get(kind, "not a unicast route"))
            via = b""
            if gateway_family:
                value = hi << 64 | lo
                via = (value >> (128 - BITS[gateway_family])).to_bytes(BITS[gateway_family] // 8, "big")
            gateway = self._gateway(Gateway(gateway_family, via, oif), nexthop_id, family, address)
            if gateway is None:
                reason = f"the nexthop object {nexthop_id} of the route to it is of another form"
            elif gateway.is_blackhole or self._is_usable(gateway.interface):
                return Resolution(gateway, metric)
            else:
                reason = f"interface {self.name_of(gateway.interface)} is down"
        return Resolution(own[1], 0) if own is not None else Resolution(None, reason=reason)

    def name_of(self, interface: int) -> str:
        """Return the name of an interface, its number if it is not known."""
        return self.links[interface].name if interface in self.links else str(interface)

    def index_of(self, name: str) -> int:
        """Return the number of an interface, 0 if there is none of that name."""
        return next((index for index, link in self.links.items() if link.name == name and link.is_there), 0)

    def _on_interface(self, family: int, address: bytes, interface: int) -> Resolution:
        if not interface:
            return Resolution(None, reason="link-local next hop without its interface")
        if not self._is_usable(interface):
            return Resolution(None, reason=f"interface {self.name_of(interface)} is down")
        return Resolution(Gateway(family, address, interface))

    def _gateway(self, gateway: Gateway, nexthop_id: int, family: int, address: bytes) -> Gateway | None:
        if nexthop_id and not gateway.interface:
            state = self.objects.get(nexthop_id)
            if state is not None and state.members:  # of a group of others, the first member
                state = self.objects.get(state.members[0][0])
            if state is None or state.gateway is None:
                return None
            gateway = state.gateway
        return gateway if gateway.family or gateway.is_blackhole else Gateway(family, address, gateway.interface)

    def _is_usable(self, interface: int) -> bool:
        return interface in self.links and self.links[interface].is_usable
