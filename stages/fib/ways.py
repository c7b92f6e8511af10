"""The ways: one for each distinct BGP next hop or set of them, as nexthop objects of the kernel or as plain gateways.

Owns the columns by way that the kernels read, and the nexthop objects in the kernel. Never knows a prefix: when the
way to a next hop changes, the object changes, and what that means for routes is told to the caller.

A way's number is its row in a table of prefixes: a next hop is a host prefix (/32 for IPv4, /128 for IPv6; a
link-local one has its interface's number in the lower half of `hi`, which is zero in all such addresses), a group of
next hops (multipath) is a /64 made of a serial number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from socket import AF_INET, AF_INET6, AF_UNSPEC

import numpy as np

from common.arrays import allocate, distinct, grown
from common.kernels.netlink import WAY_OCTETS
from common.kernels.prefixes import PrefixTable
from stages.fib import messages
from stages.fib.memory import Memory, Remembered
from stages.fib.messages import BLACKHOLE, Gateway, Members
from stages.fib.resolver import Resolution, Resolver, address_text, is_link_local

FIRST_OBJECT = 0x48520000  # nexthop objects of Headrace are numbered from here ("HR")
OBJECTS_PER_INSTANCE = 0x10000
MAX_WATCHED = 1024
GROUP_LENGTH = 64
MASK64 = (1 << 64) - 1
NEEDED, USED = 1, 2  # how well a way is known: the rib asks about it; routes are to go it

Request = Callable[[Callable[[int], bytes]], tuple[int, str]]


@dataclass(slots=True)
class Way:
    """One next hop, or a group of them."""

    number: int
    family: int  # AF_UNSPEC: a group
    address: bytes
    interface: int = 0  # of a link-local next hop
    members: Members = ()  # of a group: (way, weight)
    resolution: Resolution = field(default_factory=lambda: Resolution(None, reason="not resolved yet"))
    installed: Gateway | Members | None = None  # what the kernel's object or routes have
    identifier: int = 0  # of its nexthop object, 0: none
    trouble: str = ""  # why the kernel refused it
    told: str = ""  # the reason why it cannot be used that was logged last
    is_resolved: bool = False  # `resolution` is an answer, if only that there is no way
    is_needed: bool = False  # the rib asks about it, whether routes go it or not

    @property
    def is_group(self) -> bool:
        return self.family == AF_UNSPEC

    @property
    def text(self) -> str:
        return "several" if self.is_group else address_text(self.family, self.address)

    @property
    def reason(self) -> str:
        """Why the way cannot be used, "" if it can."""
        return self.trouble or self.resolution.reason

    @property
    def metric(self) -> int | None:
        """Cost of the way; None if there is none."""
        return None if self.resolution.gateway is None else self.resolution.metric

    @property
    def is_blackhole(self) -> bool:
        return self.installed == BLACKHOLE

    def interfaces(self) -> set[int]:
        """Return the interfaces of what is installed."""
        return {self.installed.interface} if isinstance(self.installed, Gateway) else set()


@dataclass(frozen=True, slots=True)
class Consequence:
    """What became of the routes on a way."""

    way: int
    is_lost: bool = False  # they are gone from the kernel
    is_changed: bool = False  # each must be written again
    is_usable: bool = False  # those that waited can go in now


class Ways:
    """All ways, by number."""

    def __init__(
        self,
        resolver: Resolver,
        request: Request,
        has_objects: bool,
        seed: int = 0,
        protocol: int = messages.PROTOCOL,
        memory: Memory | None = None,
        preferred_sources: dict[int, bytes] | None = None,
        first_object: int = FIRST_OBJECT,
    ):
        self.resolver = resolver
        self.has_objects = has_objects
        self.by_number: dict[int, Way] = {}
        self.n_requests_refused = 0
        self._request = request
        self._protocol = protocol
        self._memory = memory or Memory()
        self._preferred_sources = preferred_sources or {}
        self._hops = PrefixTable(True, seed, 64)
        self._serials: dict[Members, int] = {}
        self._members_of_serial: dict[int, Members] = {}
        self._last_serial = 0
        self._groups_of: dict[int, set[int]] = {}
        self._identifiers: set[int] = set()
        self._orphans: set[int] = set()
        self.object_range = range(first_object, first_object + OBJECTS_PER_INSTANCE)
        self._last_identifier = first_object - 1
        self._new: list[int] = []
        self.is_usable = allocate(0, np.uint8)
        self.n_wanted = allocate(0, np.uint32)
        self.n_installed = allocate(0, np.uint32)
        self.type = allocate(0, np.uint8)
        self.flags = allocate(0, np.uint32)
        self.identifier = allocate(0, np.uint32)
        self.oif = allocate(0, np.uint32)
        self.gateway_hi = allocate(0, np.uint64)
        self.gateway_lo = allocate(0, np.uint64)
        self.n_hops = allocate(0, np.uint8)  # of RTA_MULTIPATH
        self.length = {AF_INET: allocate(0, np.uint8), AF_INET6: allocate(0, np.uint8)}
        self.octets = {AF_INET: allocate(0, np.uint8), AF_INET6: allocate(0, np.uint8)}
        self._known = allocate(0, np.uint8)
        self._fit()

    # ---- from next hops to ways ---------------------------------------------------------------------------------

    def intern(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Return the way of each next hop (uint32), 0 where `length` is 0: there is none."""
        return self._intern(hi, lo, length, USED)

    def intern_group(self, members: Members) -> int:
        """Return the way that is a group of ways: (way, weight) ascending, at least two."""
        serial = self._serials.get(members)
        if serial is None:
            serial = self._serials[members] = self._last_serial = self._last_serial + 1
            self._members_of_serial[serial] = members
        columns = (np.array([serial], np.uint64), np.zeros(1, np.uint64), np.array([GROUP_LENGTH], np.uint8))
        return int(self._intern(*columns, USED)[0])

    def need(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> None:
        """Know of the next hops the rib asks about, these and no others."""
        numbers = set(self._intern(hi, lo, length, NEEDED).tolist())
        for way in self.by_number.values():
            way.is_needed = way.number in numbers

    def adopt(self, state: messages.NextHopState) -> int:
        """Take over a nexthop object of an earlier run, members before their groups; return its way, 0: none.

        What is remembered of it says of which next hop it is the way; else it is that to its own gateway.
        """
        self._identifiers.add(state.identifier)
        number = self._adopted_group(state) if state.members else self._adopted_hop(state)
        way = self.by_number.get(number)
        if way is None or way.identifier:
            self._orphans.add(state.identifier)
            return 0
        way.identifier = state.identifier
        way.installed = state.members or state.gateway
        way.resolution = Resolution(state.gateway)
        self._refer(way)
        return number

    def adopt_plain(self, number: int, interface: int) -> None:
        """Take over a plain route of an earlier run that names a next hop as its gateway, on this interface."""
        way = self.by_number[number]
        if way.installed is None:
            way.installed = Gateway(way.family, way.address, interface)
            way.resolution = Resolution(way.installed)
            self._refer(way)

    def _adopted_hop(self, state: messages.NextHopState) -> int:
        hop, gateway = self._memory.by_identifier.get(state.identifier), state.gateway
        if hop is None and gateway is not None and gateway.family:
            interface = gateway.interface if is_link_local(gateway.family, gateway.address) else 0
            hop = Remembered(gateway.family, gateway.address, interface)
        if hop is None or gateway is None:
            return 0
        return int(self.intern(*_columns(hop.family, hop.address, hop.interface))[0])

    def _adopted_group(self, state: messages.NextHopState) -> int:
        way_of = {way.identifier: way.number for way in self.by_number.values() if way.identifier}
        members = tuple(sorted((way_of.get(member, 0), weight) for member, weight in state.members))
        return self.intern_group(members) if all(way for way, _ in members) else 0

    def take_new(self) -> list[int]:
        """Return the ways that came up since the last call and have not been resolved yet."""
        new, self._new = self._new, []
        return new

    def find(self, family: int, address: bytes) -> Way | None:
        """Return the way to a next hop, if it is known."""
        return self.by_number.get(int(self._hops.find(*_columns(family, address))[0]))

    def _intern(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, how: int) -> np.ndarray:
        ways = np.zeros(len(hi), np.uint32)
        with_hop = np.flatnonzero(length)
        ways[with_hop] = self._hops.intern(hi[with_hop], lo[with_hop], length[with_hop])
        self._fit()
        unknown = ways[(self._known[ways] < how) & (ways != 0)]
        for number in distinct(unknown).tolist():
            self._add(number, how)
        return ways

    def _add(self, number: int, how: int) -> None:
        if number not in self.by_number:
            self.by_number[number] = way = self._way(number)
            if way.is_group:
                for member, _ in way.members:
                    self._groups_of.setdefault(member, set()).add(number)
            else:
                self.resolver.watch(way.family, way.address)
        self._known[number] = how
        self._new.append(number)

    def _way(self, number: int) -> Way:
        row = np.array([number], np.uint32)
        hi, lo, length = int(self._hops.hi(row)[0]), int(self._hops.lo(row)[0]), int(self._hops.length(row)[0])
        if length == GROUP_LENGTH:
            return Way(number, AF_UNSPEC, b"", members=self._members_of_serial[hi])
        if length == 32:
            return Way(number, AF_INET, (hi >> 32).to_bytes(4, "big"))
        interface = hi & 0xFFFFFFFF if hi >> 54 == 0x3FA else 0
        return Way(number, AF_INET6, ((hi - interface) << 64 | lo).to_bytes(16, "big"), interface)

    # ---- from ways to the kernel --------------------------------------------------------------------------------

    def refresh(self, numbers: list[int]) -> list[Consequence]:
        """Resolve ways again and make the kernel follow; return what it means for their routes."""
        ways = [self.by_number[number] for number in numbers if number in self.by_number]
        found = []
        for way in ways:
            if not way.is_group:
                way.resolution = self.resolver.resolve(way.family, way.address, way.interface)
                way.is_resolved = True
                if self._known[way.number] == USED:
                    found += self._follow(way)
        return self._with_groups(found, [way for way in ways if way.is_group])

    def lose_interface(self, link: messages.LinkState) -> list[Consequence]:
        """Note that an interface cannot be used any more: the kernel has dropped what was on it.

        Where only the carrier is lost it drops nexthop objects and all routes on those, but no plain routes.
        """
        if link.is_up and not self.has_objects:
            return []
        found = [self._lost(way) for way in self.by_number.values() if link.index in way.interfaces()]
        return self._with_groups(found, [])

    def lose(self, identifier: int) -> list[Consequence]:
        """Note that an object of ours is gone from the kernel, and with it its routes."""
        found = [self._lost(way) for way in self.by_number.values() if way.identifier == identifier]
        return self._with_groups(found, [])

    def check(self, state: messages.NextHopState) -> list[Consequence] | None:
        """Look at an object of ours that another program wrote; make it right again if it is not.

        Return None if it was right. An object of our range that is no way of ours is left to `remove_unused`.
        """
        way = next((way for way in self.by_number.values() if way.identifier == state.identifier), None)
        if way is None:
            self._identifiers.add(state.identifier)
            self._orphans.add(state.identifier)
            return None
        if way.installed == (state.members or state.gateway):
            return None
        way.installed = state.members or state.gateway
        return self._with_groups([] if way.is_group else self._follow(way), [way] if way.is_group else [])

    def restore(self, numbers: list[int]) -> list[Consequence]:
        """Write the objects of ways again, whose routes the kernel refuses: they may be gone without our knowledge."""
        found = []
        for number in numbers:
            way = self.by_number.get(number)
            if way is not None and way.identifier and way.installed is not None and not way.is_group:
                way.installed = None
                found += self._set_object(way, way.resolution.gateway) if way.resolution.gateway else []
        return self._with_groups(found, [self.by_number[number] for number in numbers if number in self.by_number])

    def remove_unused(self) -> int:
        """Forget ways that no route wants or has, and remove their objects; return how many.

        A few next hops without a way are kept and watched: their routes lost because of it, and come back through it.
        """
        idle = [
            way
            for way in self.by_number.values()
            if not (self.n_wanted[way.number] or self.n_installed[way.number] or self._groups_of.get(way.number))
        ]
        watched = [way for way in idle if way.is_resolved and way.resolution.gateway is None and not way.is_needed]
        kept = {way.number for way in watched[:MAX_WATCHED]}
        forgotten = []
        for way in idle:
            if way.number in kept:
                continue
            if way.identifier:
                self._remove_object(way)
            if way.is_needed:
                self._known[way.number], self.is_usable[way.number], way.installed = NEEDED, 0, None
            else:
                self._forget(way)
                forgotten.append(way.number)
        for identifier in self._orphans:
            self._request(lambda sequence, one=identifier: messages.remove_nexthop(sequence, one))
        self._identifiers -= self._orphans
        self._orphans.clear()
        if forgotten:
            self._hops.release(np.array(forgotten, np.uint32))
            self._new = [number for number in self._new if number in self.by_number]
        self._memory.keep_only(self._identifiers)
        return len(forgotten)

    def n_blackhole(self) -> int:
        """Return how many routes lead nowhere, on purpose."""
        return sum(int(self.n_installed[way.number]) for way in self.by_number.values() if way.is_blackhole)

    def _forget(self, way: Way) -> None:
        self.is_usable[way.number] = 0
        self._known[way.number] = 0
        del self.by_number[way.number]
        if way.is_group:
            del self._members_of_serial[self._serials.pop(way.members)]
            for member, _ in way.members:
                groups = self._groups_of.get(member, set())
                groups.discard(way.number)
                if not groups:
                    self._groups_of.pop(member, None)

    def _with_groups(self, found: list[Consequence], groups: list[Way]) -> list[Consequence]:
        """Let the groups follow that have members among those with consequences, and `groups`."""
        touched = {number for one in found for number in self._groups_of.get(one.way, ())}
        touched |= {way.number for way in groups if way.is_group}
        for number in sorted(touched):
            found = found + self._follow_group(self.by_number[number])
        return found

    def _follow(self, way: Way) -> list[Consequence]:
        gateway = way.resolution.gateway
        if gateway is not None and gateway == way.installed and self.is_usable[way.number]:
            return []
        if gateway is None:
            return self._withdraw(way)
        if self.has_objects:
            return self._set_object(way, gateway)
        was_installed, way.installed = way.installed, gateway
        self._refer(way)
        return [Consequence(way.number, is_changed=was_installed is not None, is_usable=True)]

    def _follow_group(self, way: Way) -> list[Consequence]:
        members = [(self.by_number[number], weight) for number, weight in way.members if number in self.by_number]
        usable = [(one, weight) for one, weight in members if self.is_usable[one.number] and not one.is_blackhole]
        if not usable:
            way.resolution = Resolution(None, reason="none of its next hops can be used")
            return self._withdraw(way)
        way.resolution = Resolution(usable[0][0].resolution.gateway, max(one.metric or 0 for one, _ in usable))
        way.is_resolved = True
        if self.has_objects:
            entries = tuple(sorted((one.identifier, weight) for one, weight in usable))
            if entries == way.installed and self.is_usable[way.number]:
                return []
            return self._write_object(
                way, entries, lambda sequence: messages.set_group(sequence, way.identifier, entries, self._protocol)
            )
        was_installed = way.installed
        way.installed = tuple((one.number, weight) for one, weight in usable)
        self._refer(way)
        return [Consequence(way.number, is_changed=was_installed is not None, is_usable=True)]

    def _withdraw(self, way: Way) -> list[Consequence]:
        """Nothing leads there any more: remove the object, and the kernel drops all its routes at once."""
        was_usable, was_installed = self.is_usable[way.number], way.installed
        self.is_usable[way.number] = 0
        way.installed = None
        if way.identifier:
            self._remove_object(way)
            return [Consequence(way.number, is_lost=True)]
        return [Consequence(way.number, is_changed=True)] if was_usable or was_installed is not None else []

    def _lost(self, way: Way) -> Consequence:
        way.installed = None
        self.is_usable[way.number] = 0
        self._release_identifier(way)
        return Consequence(way.number, is_lost=True)

    def _set_object(self, way: Way, gateway: Gateway) -> list[Consequence]:
        if gateway.is_blackhole != way.is_blackhole and way.identifier:
            # Routes have the type of the object from the time they were made: new object, new routes.
            lost = self._withdraw(way)
            return lost + self._set_object(way, gateway)
        return self._write_object(
            way,
            gateway,
            lambda sequence: messages.set_nexthop(sequence, way.identifier, gateway, self._protocol, way.family),
        )

    def _write_object(self, way: Way, content: Gateway | Members, make: Callable[[int], bytes]) -> list[Consequence]:
        had_routes = way.installed is not None
        if not way.identifier:
            way.identifier = self._take_identifier()
            if not way.is_group:
                self._memory.note(way.identifier, Remembered(way.family, way.address, way.interface))
        if self._ask(way, make):
            way.installed = content
            was_usable = bool(self.is_usable[way.number])
            self._refer(way)
            return [] if was_usable and had_routes else [Consequence(way.number, is_usable=True)]
        if not had_routes:
            self._release_identifier(way)
            self.is_usable[way.number] = 0
            return []
        return self._withdraw(way)

    def _remove_object(self, way: Way) -> None:
        # Refused where it is gone already: a group goes with the last of its members.
        self._request(lambda sequence: messages.remove_nexthop(sequence, way.identifier))
        self._release_identifier(way)

    def _ask(self, way: Way, make: Callable[[int], bytes]) -> bool:
        code, text = self._request(make)
        way.trouble = text if code else ""
        self.n_requests_refused += bool(code)
        return not code

    def _refer(self, way: Way) -> None:
        """Write the columns of a way that routes can go."""
        for family, octets in self.octets.items():
            attributes = self._attributes(way, family)
            start = way.number * WAY_OCTETS
            octets[start : start + len(attributes)] = np.frombuffer(attributes, np.uint8)
            self.length[family][way.number] = len(attributes)
        gateways = [] if self.has_objects else self._plain(way)[: messages.MAX_PLAIN_PATHS]
        self.n_hops[way.number] = len(gateways) if len(gateways) > 1 else 0
        plain = gateways[0][0] if gateways else way.installed
        is_gateway = isinstance(plain, Gateway)
        value = int.from_bytes(plain.address.ljust(16, b"\0"), "big") if is_gateway else 0
        self.gateway_hi[way.number], self.gateway_lo[way.number] = value >> 64, value & MASK64
        self.oif[way.number] = plain.interface if is_gateway else 0
        self.identifier[way.number] = way.identifier
        is_blackhole = way.is_blackhole and not self.has_objects
        self.type[way.number] = messages.TYPE_BLACKHOLE if is_blackhole else messages.TYPE_UNICAST
        self.is_usable[way.number] = 1

    def _attributes(self, way: Way, family: int) -> bytes:
        if self.has_objects:
            found = messages.way_by_object(way.identifier)
        else:
            members = self._plain(way)
            if len(members) > 1:
                found = messages.way_by_gateways(family, members)
            else:
                found = messages.way_by_gateway(family, members[0][0])
        return messages.preferred_source(self._preferred_sources.get(family, b"")) + found

    def _plain(self, way: Way) -> list[tuple[Gateway, int]]:
        """Return the gateways and weights of a way without objects."""
        if way.is_group:
            return [(self.by_number[number].installed, weight) for number, weight in way.installed]
        return [(way.installed, 1)]

    def _take_identifier(self) -> int:
        while True:
            self._last_identifier += 1
            if self._last_identifier not in self.object_range:
                self._last_identifier = self.object_range.start
            if self._last_identifier not in self._identifiers and self._last_identifier not in self.resolver.objects:
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
        names = ("is_usable", "n_wanted", "n_installed", "type", "flags", "_known")
        for name in (*names, "identifier", "oif", "gateway_hi", "gateway_lo", "n_hops"):
            setattr(self, name, grown(getattr(self, name), capacity))
        self.length = {family: grown(column, capacity) for family, column in self.length.items()}
        self.octets = {family: grown(column, capacity * WAY_OCTETS) for family, column in self.octets.items()}


def _columns(family: int, address: bytes, interface: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return one next hop as columns of a prefix table."""
    value = int.from_bytes(address.ljust(16, b"\0"), "big")
    return (
        np.array([value >> 64 | interface], np.uint64),
        np.array([value & MASK64], np.uint64),
        np.array([32 if family == AF_INET else 128], np.uint8),
    )
