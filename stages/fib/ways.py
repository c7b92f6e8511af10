"""The ways: one for each distinct BGP next hop, as nexthop objects of the kernel or as plain gateways.

Owns the columns by way that the kernels read, and the nexthop objects in the kernel. Never knows a prefix: when the
way to a next hop changes, the object changes, and what that means for routes is told to the caller.

A way's number is its row in a prefix table of host prefixes: /32 for IPv4, /128 for IPv6.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from socket import AF_INET, AF_INET6

import numpy as np

from common.arrays import allocate, grown
from common.kernels.netlink import WAY_OCTETS
from common.kernels.prefixes import PrefixTable
from stages.fib import messages
from stages.fib.messages import Gateway
from stages.fib.resolver import Resolution, Resolver, address_text

FIRST_OBJECT = 0x48520000  # nexthop objects of Headrace are numbered from here ("HR")
LAST_OBJECT = 0x4852FFFF
MAX_WATCHED = 1024

Request = Callable[[Callable[[int], bytes]], tuple[int, str]]


@dataclass(slots=True)
class Way:
    """One next hop."""

    number: int
    family: int
    address: bytes
    resolution: Resolution = field(default_factory=lambda: Resolution(None, reason="not resolved yet"))
    installed: Gateway | None = None  # what the kernel's object or routes have
    identifier: int = 0  # of its nexthop object, 0: none
    trouble: str = ""  # why the kernel refused it
    told: str = ""  # the reason why it cannot be used that was logged last
    is_resolved: bool = False  # `resolution` is an answer, if only that there is no way

    @property
    def text(self) -> str:
        return address_text(self.family, self.address)

    @property
    def reason(self) -> str:
        """Why the way cannot be used, "" if it can."""
        return self.trouble or self.resolution.reason

    @property
    def metric(self) -> int | None:
        """Cost of the way; None if there is none."""
        return None if self.resolution.gateway is None else self.resolution.metric


@dataclass(frozen=True, slots=True)
class Consequence:
    """What became of the routes on a way."""

    way: int
    is_lost: bool = False  # they are gone from the kernel
    is_changed: bool = False  # each must be written again
    is_usable: bool = False  # those that waited can go in now


class Ways:
    """All ways, by number."""

    def __init__(self, resolver: Resolver, request: Request, has_objects: bool, seed: int = 0):
        self.resolver = resolver
        self.has_objects = has_objects
        self.by_number: dict[int, Way] = {}
        self.n_requests_refused = 0
        self._request = request
        self._hops = PrefixTable(True, seed, 64)
        self._identifiers: set[int] = set()
        self._last_identifier = FIRST_OBJECT - 1
        self._new: list[int] = []
        self.is_usable = allocate(0, np.uint8)
        self.n_wanted = allocate(0, np.uint32)
        self.n_installed = allocate(0, np.uint32)
        self.type = allocate(0, np.uint8)
        self.flags = allocate(0, np.uint32)
        self.length = {AF_INET: allocate(0, np.uint8), AF_INET6: allocate(0, np.uint8)}
        self.octets = {AF_INET: allocate(0, np.uint8), AF_INET6: allocate(0, np.uint8)}
        self._is_known = allocate(0, np.uint8)
        self._fit()

    # ---- from next hops to ways ---------------------------------------------------------------------------------

    def intern(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Return the way of each next hop (uint32), 0 where `length` is 0: there is none."""
        ways = np.zeros(len(hi), np.uint32)
        with_hop = np.flatnonzero(length)
        ways[with_hop] = self._hops.intern(hi[with_hop], lo[with_hop], length[with_hop])
        self._fit()
        unknown = ways[(self._is_known[ways] == 0) & (ways != 0)]
        for number in np.unique(unknown).tolist():
            self._add(number)
        return ways

    def adopt(self, state: messages.NextHopState) -> int:
        """Take over a nexthop object of an earlier run: it is the way to its own gateway. Return the way, 0: none."""
        self._identifiers.add(state.identifier)
        gateway = state.gateway
        if gateway is None or not gateway.family:
            return 0
        number = int(self.intern(*_columns(gateway.family, gateway.address))[0])
        way = self.by_number[number]
        if way.identifier:
            return 0
        way.identifier, way.installed = state.identifier, gateway
        way.resolution = Resolution(gateway)
        self._refer(way)
        return number

    def take_new(self) -> list[int]:
        """Return the ways that came up since the last call and have not been resolved yet."""
        new, self._new = self._new, []
        return new

    def find(self, family: int, address: bytes) -> Way | None:
        """Return the way to a next hop, if it is known."""
        return self.by_number.get(int(self._hops.find(*_columns(family, address))[0]))

    def _add(self, number: int) -> None:
        row = np.array([number], np.uint32)
        value = int(self._hops.hi(row)[0]) << 64 | int(self._hops.lo(row)[0])
        is_ipv4 = self._hops.length(row)[0] == 32
        family = AF_INET if is_ipv4 else AF_INET6
        address = (value >> 96).to_bytes(4, "big") if is_ipv4 else value.to_bytes(16, "big")
        self.by_number[number] = Way(number, family, address)
        self._is_known[number] = 1
        self._new.append(number)

    # ---- from ways to the kernel --------------------------------------------------------------------------------

    def refresh(self, numbers: list[int]) -> list[Consequence]:
        """Resolve ways again and make the kernel follow; return what it means for their routes."""
        found = []
        for number in numbers:
            way = self.by_number.get(number)
            if way is None:
                continue
            way.resolution = self.resolver.resolve(way.family, way.address)
            way.is_resolved = True
            consequence = self._follow(way)
            if consequence is not None:
                found.append(consequence)
        return found

    def lose_interface(self, link: messages.LinkState) -> list[Consequence]:
        """Note that an interface cannot be used any more: the kernel has dropped what was on it.

        Where only the carrier is lost it drops nexthop objects and all routes on those, but no plain routes.
        """
        found = []
        if link.is_up and not self.has_objects:
            return found
        for way in self.by_number.values():
            if way.installed is not None and way.installed.interface == link.index:
                found.append(self.lose(way.number))
        return found

    def lose(self, number: int) -> Consequence:
        """Note that the object of a way is gone from the kernel, and with it its routes."""
        way = self.by_number[number]
        way.installed = None
        self.is_usable[number] = 0
        self._release_identifier(way)
        return Consequence(number, is_lost=True)

    def remove_unused(self) -> int:
        """Forget ways that no route wants or has, and remove their objects; return how many.

        A few next hops without a way are kept and watched: their routes lost because of it, and come back through it.
        """
        unused = [
            way for way in self.by_number.values() if not self.n_wanted[way.number] and not self.n_installed[way.number]
        ]
        watched = [way for way in unused if way.is_resolved and way.resolution.gateway is None][:MAX_WATCHED]
        unused = [way for way in unused if way not in watched]
        for way in unused:
            if way.identifier:
                self._ask(way, lambda sequence, way=way: messages.remove_nexthop(sequence, way.identifier))
                self._release_identifier(way)
            self.is_usable[way.number] = 0
            self._is_known[way.number] = 0
            del self.by_number[way.number]
        if unused:
            self._hops.release(np.array([way.number for way in unused], np.uint32))
            self._new = [number for number in self._new if number in self.by_number]
        return len(unused)

    def _follow(self, way: Way) -> Consequence | None:
        gateway = way.resolution.gateway
        if gateway is not None and gateway == way.installed and self.is_usable[way.number]:
            return None
        if gateway is None:
            return self._withdraw(way)
        if self.has_objects:
            return self._set_object(way, gateway)
        was_installed, way.installed = way.installed, gateway
        self._refer(way)
        return Consequence(way.number, is_changed=was_installed is not None, is_usable=True)

    def _withdraw(self, way: Way) -> Consequence | None:
        """Nothing leads there any more: remove the object, and the kernel drops all its routes at once."""
        was_usable, was_installed = self.is_usable[way.number], way.installed
        self.is_usable[way.number] = 0
        way.installed = None
        if way.identifier:
            self._ask(way, lambda sequence: messages.remove_nexthop(sequence, way.identifier))
            self._release_identifier(way)
            return Consequence(way.number, is_lost=True)
        return Consequence(way.number, is_changed=True) if was_usable or was_installed else None

    def _set_object(self, way: Way, gateway: Gateway) -> Consequence | None:
        had_routes = way.installed is not None
        identifier = way.identifier or self._take_identifier()
        way.identifier = identifier
        if self._ask(way, lambda sequence: messages.set_nexthop(sequence, identifier, gateway)):
            way.installed = gateway
            was_usable = bool(self.is_usable[way.number])
            self._refer(way)
            return None if was_usable else Consequence(way.number, is_usable=True)
        if not had_routes:
            self._release_identifier(way)
            self.is_usable[way.number] = 0
            return None
        return self._withdraw(way)

    def _ask(self, way: Way, make: Callable[[int], bytes]) -> bool:
        code, text = self._request(make)
        way.trouble = text if code else ""
        self.n_requests_refused += bool(code)
        return not code

    def _refer(self, way: Way) -> None:
        """Write the columns of a way that routes can go."""
        for family, octets in self.octets.items():
            if self.has_objects:
                attributes = messages.way_by_object(way.identifier)
            else:
                attributes = messages.way_by_gateway(family, way.installed)
            start = way.number * WAY_OCTETS
            octets[start : start + len(attributes)] = np.frombuffer(attributes, np.uint8)
            self.length[family][way.number] = len(attributes)
        self.type[way.number] = messages.TYPE_UNICAST
        self.is_usable[way.number] = 1

    def _take_identifier(self) -> int:
        while True:
            self._last_identifier += 1
            if self._last_identifier > LAST_OBJECT:
                self._last_identifier = FIRST_OBJECT
            if self._last_identifier not in self._identifiers:
                self._identifiers.add(self._last_identifier)
                return self._last_identifier

    def _release_identifier(self, way: Way) -> None:
        self._identifiers.discard(way.identifier)
        way.identifier = 0

    def _fit(self) -> None:
        """Give the columns room for all rows of the table of next hops."""
        capacity = self._hops.capacity
        if capacity <= len(self.is_usable):
            return
        for name in ("is_usable", "n_wanted", "n_installed", "type", "flags", "_is_known"):
            setattr(self, name, grown(getattr(self, name), capacity))
        self.length = {family: grown(column, capacity) for family, column in self.length.items()}
        self.octets = {family: grown(column, capacity * WAY_OCTETS) for family, column in self.octets.items()}


def _columns(family: int, address: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one address as columns of a prefix table."""
    value = int.from_bytes(address.ljust(16, b"\0"), "big")
    return (
        np.array([value >> 64], np.uint64),
        np.array([value & (2**64 - 1)], np.uint64),
        np.array([32 if family == AF_INET else 128], np.uint8),
    )
