"""A fib stage on a memory bus, with a small rib to follow and a kernel made of dictionaries."""

import contextlib
import io
import ipaddress
import os
import struct
from errno import EEXIST, EINVAL, ESRCH
from socket import AF_INET, AF_INET6

import numpy as np

from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, Position
from common.bus.bus import Bus
from common.bus.channels import WANTED_NEXTHOPS
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.bus.schema import BestChanges, NextHopChanges
from common.bus.server import Source
from common.config.load import loads
from common.kernels import netlink
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.stage import Context, Skeleton
from stages.fib import messages
from stages.fib.memory import Memory
from stages.fib.messages import Gateway, Kind, LinkState, NextHopState
from stages.fib.netlink_socket import Overrun
from stages.fib.sender import Sent
from stages.fib.stage import FibStage

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
[fib]
enabled = true
"""
D0 = 2
OTHER_PORT = 4711


def halves(text: str) -> tuple[int, int, int]:
    """Return a prefix as (hi, lo, length)."""
    network = ipaddress.ip_network(text)
    value = int(network.network_address) << (128 - network.max_prefixlen)
    return value >> 64, value & (2**64 - 1), network.prefixlen


Hops = str | tuple[str, ...] | None
"""Of one prefix: a next hop or several, "" for none, None where it is gone. "fe80::1%d0": told in a session on d0;
"192.0.2.1@125000": with that bandwidth, in octets a second."""
SOURCE = {"name": "a", "asn": 64601, "local_asn": 65000, "router_id": 1, "address": b"\x0a\0\0\1"}


def best_changes(family: str, routes: dict[str, Hops]) -> tuple[dict[str, np.ndarray], list[dict]]:
    """Return BestChanges columns and sources for prefix -> next hops."""
    rows = [
        (*halves(prefix), () if hop is None else (hop,) if isinstance(hop, str) else hop)
        for prefix, hop in routes.items()
    ]
    hops = sorted({hop for *_, several in rows for hop in several})
    interfaces = sorted({hop.partition("%")[2] for hop in hops} | {""})
    sets = [_set(hop.partition("%")[0]) for hop in hops]
    paths = [hop for *_, several in rows for hop in several]
    columns = {
        "hi": np.array([row[0] for row in rows], np.uint64),
        "lo": np.array([row[1] for row in rows] if family == "ipv6-unicast" else [], np.uint64),
        "length": np.array([row[2] for row in rows], np.uint8),
        "n_paths": np.array([len(row[3]) for row in rows], np.uint8),
        "path_source": np.array([interfaces.index(hop.partition("%")[2]) for hop in paths], np.uint32),
        "path_set": np.array([hops.index(hop) for hop in paths], np.uint32),
        "path_reason": np.zeros(len(paths), np.uint8),
        "set_offset": np.cumsum([0, *(len(one) for one in sets)]).astype(np.uint32),
        "set_octets": np.frombuffer(b"".join(sets), np.uint8),
    }
    return columns, [SOURCE | {"interface": name} for name in interfaces]


def _set(hop: str) -> bytes:
    hop, _, bandwidth = hop.partition("@")
    address = ipaddress.ip_address(hop).packed if hop else b""
    told = b"\x40\4\xfd\xe8" + struct.pack(">f", float(bandwidth)) if bandwidth else b""
    communities = bytes([0xC0, 16, len(told)]) + told if told else b""
    return bytes([len(address)]) + address + bytes([0x40, 1, 1, 0]) + communities


class RibDouble(Source):
    """A Loc-RIB of one family; every read gives one batch."""

    def __init__(self, family: str, epoch: str = "one", batch_routes: int = 1 << 15):
        self.family = family
        self.routes: dict[str, Hops] = {}
        self.changes: list[dict[str, Hops]] = []
        self.name = epoch
        self.is_open = True
        self.batch_routes = batch_routes

    @property
    def head(self) -> int:
        return len(self.changes)

    @property
    def epoch(self) -> str:
        return self.name

    def change(self, routes: dict[str, Hops]) -> None:
        """Change routes: prefix -> next hop or None."""
        self.changes.append(routes)
        for prefix, hop in routes.items():
            self.routes.pop(prefix, None)
            if hop is not None:
                self.routes[prefix] = hop

    def restart(self, epoch: str) -> None:
        """Begin a new epoch with the routes there are."""
        self.name = epoch

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        if not self.is_open:
            return []
        if position.epoch != self.name or position.cursor >= 0:
            return [self._snapshot(position)]
        if position.sequence >= self.head:
            return []
        routes = self.changes[position.sequence]
        return [self._batch(routes, Position(self.name, position.sequence + 1, -1), 0)]

    def _snapshot(self, position: Position) -> Batch:
        is_begin = position.epoch != self.name
        start = 0 if is_begin else position.cursor
        end = start + self.batch_routes
        is_end = end >= len(self.routes)
        flags = SNAPSHOT | (SNAPSHOT_BEGIN if is_begin else 0) | (SNAPSHOT_END if is_end else 0)
        routes = dict(list(self.routes.items())[start:end])
        sequence = self.head if is_begin else position.sequence
        return self._batch(routes, Position(self.name, sequence, -1 if is_end else end), flags)

    def _batch(self, routes, after: Position, flags: int) -> Batch:
        columns, sources = best_changes(self.family, routes)
        meta = {"family": self.family, "view": "best", "sources": sources}
        return Batch(BestChanges, columns, meta, f"loc-rib/{self.family}", after, after.sequence, self.head, flags)


class WantedDouble(Source):
    """The next hops a rib asks about."""

    epoch = "wanted"

    def __init__(self):
        self.hops: tuple[str, ...] = ()
        self.version = 1

    @property
    def head(self) -> int:
        return self.version

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        after = Position(self.epoch, self.version, -1)
        if position == after:
            return []
        rows = [halves(hop) for hop in self.hops]
        columns = {
            "hi": np.array([row[0] for row in rows], np.uint64),
            "lo": np.array([row[1] for row in rows], np.uint64),
            "length": np.array([row[2] // 8 for row in rows], np.uint8),
            "reachable": np.zeros(len(rows), np.uint8),
            "metric": np.zeros(len(rows), np.uint32),
        }
        flags = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END
        return [Batch(NextHopChanges, columns, {}, WANTED_NEXTHOPS, after, self.version, self.version, flags)]


class _Notifications:
    """Datagrams that wait to be read; those about links and objects go to a socket of their own, if there is one."""

    slot_octets = 4096

    def __init__(self, events: "_Notifications | None" = None):
        self._events = events
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK)
        self._waiting: list[bytes] = []
        self._slots: list[bytes] = []
        self._is_late = self._has_lost = False
        self.octets = np.zeros(0, np.uint8)

    def fileno(self) -> int:
        return self._reader

    def put(self, datagram: bytes) -> None:
        if self._events is not None and datagram[4] not in (Kind.NEW_ROUTE, Kind.DEL_ROUTE):
            self._events.put(datagram)
            return
        self._waiting.append(datagram)
        if not self._is_late:
            os.write(self._writer, b"x")

    def come_late(self, is_late: bool) -> None:
        """Keep what is told on its way, or let it arrive."""
        self._is_late = is_late
        if self._waiting and not is_late:
            os.write(self._writer, b"x")

    def lose(self) -> None:
        """Lose what is on its way, as where there is too little room for it."""
        self._waiting.clear()
        self._has_lost = True
        os.write(self._writer, b"x")

    def receive(self) -> np.ndarray:
        if self._has_lost:
            self._has_lost = False
            raise Overrun
        if self._is_late:
            return np.zeros(0, np.uint32)
        with contextlib.suppress(BlockingIOError):
            os.read(self._reader, 4096)
        self._slots, self._waiting = self._waiting, []
        laid_out = b"".join(datagram.ljust(self.slot_octets, b"\0") for datagram in self._slots)
        self.octets = np.frombuffer(laid_out, np.uint8)
        return np.array([len(datagram) for datagram in self._slots], np.uint32)

    def datagram(self, slot: int) -> bytes:
        return self._slots[slot]

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


class FakeKernel:
    """A kernel's table in dictionaries, as slow and as obvious as can be. Connected: 192.0.2.0/24, 2001:db8::/64."""

    world = "test"
    n_dumps = 0
    bells = ()

    def __init__(self, table: int, metric: int, protocol: int = 186, namespace: str = ""):
        self.table, self.metric = table, metric
        self.listen()
        self.objects: dict[int, Gateway] = {}
        self.groups: dict[int, messages.Members] = {}
        self.ours: dict[tuple[int, int, int], int] = {}
        """(hi, lo, length) -> way's nexthop object or interface"""
        self.behind: dict[tuple[int, int, int], list[int]] = {}
        """What others put behind the first of ours, in our name"""
        self.foreign: set[tuple[int, int, int]] = set()
        self.has_objects = True
        self.calls: list[int] = []
        self.fail_with: int | None = None
        self.lose_answers = False
        self.holds_back = False
        """Keeps its answers until asked to wait for them."""
        self._answered: list[Sent] = []

    def listen(self) -> None:
        """Begin to note what is told."""
        self.events = _Notifications()
        self.notifications = _Notifications(self.events)

    def close(self) -> None:
        for socket in self.listening:
            socket.close()

    @property
    def listening(self) -> tuple[_Notifications, ...]:
        return self.events, self.notifications

    def compat_mode(self, wanted: int | None = None) -> int:
        return 0

    def discard_notifications(self) -> None:
        self.notifications.receive()

    def links(self) -> list[LinkState]:
        return [LinkState(1, "lo", True, True), LinkState(D0, "d0", True, True)]

    def nexthops(self) -> list[NextHopState] | None:
        if not self.has_objects:
            return None
        return [NextHopState(identifier, 186, gateway) for identifier, gateway in self.objects.items()]

    def routes(self, family: int, table: int):
        scan = netlink.RouteScan()
        if table != self.table:
            return
        for datagram in [connected(family)] + [
            dumped(family, key, identifier)
            for key, first in self.ours.items()
            for identifier in (first, *self.behind.get(key, ()))
            if (family == AF_INET6) == bool(key[0] >> 60 == 2)
        ]:
            scan.scan(np.frombuffer(datagram, np.uint8), len(datagram), np.array([len(datagram)], np.uint32))
            yield scan
            scan.clear()

    def may_change(self) -> bool:
        return True

    def route_type(self, family: int, address: bytes) -> int:
        return messages.TYPE_UNICAST

    def request(self, make) -> tuple[int, str]:
        ((kind, _, _, body),) = messages.messages_of(make(1))
        state = messages.decode_nexthop(body)
        if self.fail_with:
            return self.fail_with, "told to fail"
        if state.members:
            self.groups[state.identifier] = state.members
        elif kind == Kind.NEW_NEXTHOP:
            self.objects[state.identifier] = state.gateway
        else:
            self.objects.pop(state.identifier, None)
            self.groups.pop(state.identifier, None)
            self.ours = {key: way for key, way in self.ours.items() if way != state.identifier}
        return 0, ""

    def begin(self, token, *batch) -> None:
        errors = self.change(*batch)
        self._answered.append(Sent(token, errors, 0, 0, errors))

    def has_room(self, family: int) -> bool:
        return True

    @property
    def n_on_the_way(self) -> int:
        return len(self._answered)

    def answered(self) -> list[Sent]:
        if self.holds_back:
            return []
        found, self._answered = self._answered, []
        return found

    def wait(self) -> None:
        self.holds_back = False

    def change(self, family: int, actions, hi, lo, length, targets, ways) -> np.ndarray:
        self.calls.append(len(actions))
        errors = np.zeros(len(actions), np.int32)
        lows = lo if len(lo) else np.zeros(len(hi), np.uint64)
        for i, key in enumerate(zip(hi.tolist(), lows.tolist(), length.tolist(), strict=True)):
            errors[i] = self._change_one(int(actions[i]), key, family, int(targets[i]), ways)
        if self.lose_answers:
            errors[:] = -1
        return errors

    def _change_one(self, action: int, key, family: int, way: int, ways) -> int:
        if self.fail_with:
            return self.fail_with
        if action == netlink.REMOVE:
            return 0 if self._remove_first(key) else ESRCH
        if action == netlink.INSTALL and (key in self.foreign or key in self.ours):
            return EEXIST
        start = way * netlink.WAY_OCTETS
        found = messages.attributes_of(ways.octets[family][start : start + int(ways.length[family][way])].tobytes())
        identifier = struct.unpack("=I", found.get(30) or found[4])[0]
        if 30 in found and identifier not in self.objects and identifier not in self.groups:
            return EINVAL
        if key in self.foreign:  # theirs comes first, so it is what is replaced
            self.foreign.discard(key)
            if key in self.ours:
                self.behind.setdefault(key, []).insert(0, self.ours[key])
        self.ours[key] = identifier
        return 0

    def _remove_first(self, key) -> bool:
        was_there = self.ours.pop(key, None) is not None
        if self.behind.get(key):
            self.ours[key] = self.behind[key].pop(0)
        return was_there

    # ---- what another program does, of IPv4, and what is told of it ---------------------------------------------

    def others_write(self, key, identifier: int, protocol: int, is_replaced: bool) -> None:
        """Write a route in the place of ours, or behind it; in our name, or in their own (where it comes first)."""
        is_replaced &= key in self.ours or key in self.foreign
        if is_replaced:
            if key in self.foreign:
                self.foreign.discard(key)
            else:
                self._remove_first(key)
        if protocol == 4:
            self.foreign.add(key)
        elif is_replaced and key in self.ours:
            self.behind.setdefault(key, []).insert(0, self.ours[key])
            self.ours[key] = identifier
        elif key in self.ours:
            self.behind.setdefault(key, []).append(identifier)
        else:
            self.ours[key] = identifier
        flags = messages.NLM_F_REPLACE if is_replaced else 0
        self.notifications.put(dumped(AF_INET, key, identifier, protocol=protocol, flags=flags))

    def others_delete(self, key, protocol: int) -> None:
        """Delete the first route of a protocol, if there is one."""
        if protocol == 4 and key in self.foreign:
            self.foreign.discard(key)
        elif protocol == 4 or not self._remove_first(key):
            return
        self.notifications.put(dumped(AF_INET, key, 0, Kind.DEL_ROUTE, protocol=protocol))


def connected(family: int, message: int = Kind.NEW_ROUTE) -> bytes:
    """Return the message about the connected route of d0."""
    prefix = ipaddress.ip_network("192.0.2.0/24" if family == AF_INET else "2001:db8::/64")
    body = struct.pack("=BBBBBBBBI", family, prefix.prefixlen, 0, 0, 254, 2, 253, 1, 0)
    body += messages.attribute(1, prefix.network_address.packed) + messages.number(4, D0)
    return messages.message(message, 0, 0, body)


def dumped(
    family: int, key: tuple[int, int, int], identifier: int, message=Kind.NEW_ROUTE, protocol=186, flags: int = 0
) -> bytes:
    """Return the message about a route on a nexthop object."""
    hi, lo, length = key
    address = (hi << 64 | lo).to_bytes(16, "big")[: 4 if family == AF_INET else 16]
    body = struct.pack("=BBBBBBBBI", family, length, 0, 0, 254, protocol, 0, 1, 0)
    body += messages.attribute(1, address) + messages.number(6, 20) + messages.number(30, identifier)
    return messages.MESSAGE.pack(16 + len(body), message, flags, 0, OTHER_PORT) + body


def link(is_up: bool) -> bytes:
    """Return the message about d0."""
    flags = 0x11043 if is_up else 0x1002
    body = struct.pack("=BBHiII", 0, 0, 1, D0, flags, 0) + messages.attribute(3, b"d0\0")
    return messages.message(Kind.NEW_LINK, 0, 0, body)


class World:
    """A rib and a fib, turned until all is quiet."""

    def __init__(self, kernel=FakeKernel, config: str = CONFIG, instance: str = "0"):
        self.clock = ManualClock()
        self.hub = MemoryHub()
        self.make_kernel = kernel
        self.memory = Memory()
        self.config = config
        self.instance = instance
        self.loops: dict[str, Loop] = {}
        rib, _, _ = self._bus("rib")
        self.ribs = {family: RibDouble(family) for family in ("ipv4-unicast", "ipv6-unicast")}
        for family, source in self.ribs.items():
            rib.serve().add(f"loc-rib/{family}", lambda request, source=source: source)
        self.wanted = WantedDouble()
        rib.serve().add(WANTED_NEXTHOPS, lambda request: self.wanted)
        self.loops["rib"].add_turn(rib.pump)
        self.fib: FibStage | None = None
        self.start()

    def _bus(self, stage: str) -> tuple[Bus, Loop, Log]:
        loop = self.loops[stage] = Loop(self.clock)
        log = Log(stage, stream=io.StringIO(), clock=self.clock)
        return Bus("/run", stage, "0", loop, MemoryTransport(self.hub, loop), log), loop, log

    def start(self) -> None:
        """Start the fib."""
        bus, loop, self.log = self._bus("fib")
        self.context = Context(self.clock, loop, bus, Metrics("fib"), self.log, 7)
        self.fib = FibStage(loads(self.config), self.instance, self.context)
        self.fib.KERNEL = self.make_kernel
        self.fib.GATHER_S = 0.0
        self.fib.MEMORY = lambda path, world: self.memory
        self.skeleton = Skeleton(self.fib, self.context)
        self.skeleton.start()

    def kill(self) -> None:
        """End the fib as its process would, without a farewell."""
        self.fib.kernel.close()
        self.context.bus.close()
        self.loops.pop("fib").close()

    def turn(self, n_quiet: int = 3) -> None:
        """Turn all loops until nothing more happens."""
        quiet = 0
        while quiet < n_quiet:
            is_busy = any([loop.turn(0) for loop in self.loops.values()])
            quiet = 0 if is_busy or self._is_waiting() else quiet + 1

    def _is_waiting(self) -> bool:
        """Whether the kernel has yet to answer."""
        kernel = self.fib.kernel
        return kernel is not None and kernel.n_on_the_way > 0 and not getattr(kernel, "holds_back", False)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.turn()

    def want_next_hops(self, *hops: str) -> None:
        """Have the rib ask about these next hops and no others."""
        self.wanted.hops = hops
        self.wanted.version += 1
        self.turn()

    def change(self, routes: dict[str, Hops]) -> None:
        """Change routes in the rib of their family and wait until all is quiet."""
        for family, rib in self.ribs.items():
            mine = {prefix: hop for prefix, hop in routes.items() if (":" in prefix) == (family == "ipv6-unicast")}
            if mine:
                rib.change(mine)
        self.turn()
