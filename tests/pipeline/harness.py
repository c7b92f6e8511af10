"""The whole pipeline in one process: the real stages over a bus in memory, a clock turned by hand, peers of our own.

    with Pipeline(CONFIG) as pipeline:
        a = pipeline.peer("transit-a")
        a.announce(["192.0.2.0/24"], as_path=[64601])
        pipeline.settle()
        assert "192.0.2.0/24" in pipeline.peer("listener").told

A peer speaks BGP through a socket pair, decodes what it is told with plain code of its own, and keeps count of what a
speaker should not do: withdraw what it never announced, announce again what stands.
"""

import gc
import io
import socket
import struct
import tempfile
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from common.bgp.attributes import encode_set
from common.bgp.capabilities import Capabilities, GracefulRestart
from common.bgp.constants import Family, MessageType
from common.bgp.messages import Notification, Open, RouteRefresh, encode_message
from common.bus.bus import Bus
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.bus.trunk import ROUND_S
from common.config.load import loads
from common.config.schema import Config
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.stage import Context, Skeleton, stage_class
from stages.speaker.gathering import GATHER_S
from stages.speaker.sockets import Connection

STAGES = ("speaker", "policy", "rib", "exporter")
LOCAL_ADDRESS = "10.77.0.1"
MAX_TURNS = 20_000
MAX_CALLS = 30
MP_REACH, MP_UNREACH, NEXT_HOP = 14, 15, 3


class Pipeline:
    """Stages by name, and peers by the name of their neighbor in the configuration."""

    def __init__(self, config: str, stages: tuple[str, ...] = STAGES):
        self._directory = tempfile.TemporaryDirectory()
        self.config = self.read(config)
        self.clock = ManualClock()
        self.hub = MemoryHub()
        self.loops: dict[str, Loop] = {}
        self.skeletons: dict[str, Skeleton] = {}
        self.logs: dict[str, io.StringIO] = {}
        self.peers: dict[str, Peer] = {}
        self._stages = stages
        for label in self.planned():
            self.start(label)
        self.settle()

    def planned(self) -> list[str]:
        """Return the labels of all instances that the configuration has: "NAME" for "0", else "NAME.INSTANCE"."""
        return [label_of(name, instance) for name in self._stages for instance in self.config.instances(name)]

    def labels(self, name: str) -> list[str]:
        """Return the labels of the instances of a stage that run."""
        return [label for label in self.skeletons if label.partition(".")[0] == name]

    def read(self, text: str) -> Config:
        """Return a configuration with a run directory of this pipeline's own."""
        config = loads(text)
        return replace(config, router=replace(config.router, run_dir=Path(self._directory.name)))

    def reload(self, text: str) -> None:
        """Give all stages another configuration, start and end instances, as the supervisor does."""
        former, self.config = self.config, self.read(text)
        has_other_ribs = former.instances("rib") != self.config.instances("rib")
        planned = self.planned()
        for label in [label for label in self.skeletons if label not in planned]:
            self.kill(label)
        for label, skeleton in list(self.skeletons.items()):
            if has_other_ribs and label.startswith("rib"):
                self.kill(label)
            else:
                skeleton.stage.reload(self.config)
        for label in planned:
            if label not in self.skeletons:
                self.start(label)
        for name, peer in self.peers.items():
            peer.config = self.config.neighbors.get(name, peer.config)
        self.settle()

    def __enter__(self) -> "Pipeline":
        return self

    def __exit__(self, *exception) -> None:
        for peer in self.peers.values():
            peer.vanish()
        for name in list(self.skeletons):
            self.kill(name)
        self._directory.cleanup()
        gc.collect()  # stages are cycles with large arrays, of whose octets the collector knows nothing

    # ---- stages -----------------------------------------------------------------------------------------------

    def start(self, label: str) -> None:
        """Start a stage, as "NAME" or "NAME.INSTANCE"."""
        name, _, instance = label.partition(".")
        instance = instance or "0"
        loop = Loop(self.clock)
        stream = self.logs[label] = io.StringIO()
        log = Log(label, stream=stream, clock=self.clock)
        bus = Bus(self._directory.name, name, instance, loop, MemoryTransport(self.hub, loop), log)
        context = Context(self.clock, loop, bus, Metrics(name), log, seed=7)
        skeleton = Skeleton(stage_class(name)(self.config, instance, context), context)
        self.loops[label], self.skeletons[label] = loop, skeleton
        skeleton.start()

    def kill(self, name: str) -> None:
        """End a stage as SIGKILL would: nobody is told, its sockets are closed."""
        skeleton = self.skeletons.pop(name)
        if name.startswith("speaker"):
            for neighbor in skeleton.stage.neighbors:
                for peering in (neighbor.peering, neighbor.contender):
                    if peering is not None and peering.connection is not None:
                        peering.connection.abort()
        skeleton.context.bus.close()
        self.loops.pop(name).close()

    def restart(self, name: str) -> None:
        """Kill a stage, let its readers notice, start it again."""
        self.kill(name)
        self.settle()
        self.start(name)
        self.settle()

    def stage(self, name: str):
        """Return the stage object."""
        return self.skeletons[name].stage

    def ask(self, name: str, question: str, **more) -> dict:
        """Put a question to a stage's control socket."""
        return self.skeletons[name].context.bus.control({}).answer({"ask": question, **more})

    def ask_pages(self, name: str, question: str, **more) -> list[dict]:
        """Put a question whose answer comes in pages; return all routes."""
        rows, after = [], None
        while True:
            answer = self.ask(name, question, after=after, **more)
            rows += answer["routes"]
            after = answer["next"]
            if after is None:
                return rows

    def owner_endpoint(self, label: str) -> str:
        """Return where a stage serves."""
        bus = self.skeletons[label].context.bus
        return bus.endpoint(bus.stage, bus.instance)

    def freeze(self, owner: str) -> list:
        """Let the readers of a stage read nothing more; return what to `thaw`."""
        connectors = list(self.hub.connectors.get(self.owner_endpoint(owner), ()))
        for connector in connectors:
            connector.freeze()
        return connectors

    # ---- time -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Turn all loops and peers until none has anything to do, and let what is gathered for a moment come."""
        for _ in range(MAX_TURNS):
            busy = [loop.turn() for loop in self.loops.values()] + [peer.turn() for peer in self.peers.values()]
            if any(busy):
                continue
            if not self.is_gathering():
                return
            self.clock.advance(max(ROUND_S, GATHER_S))
        raise AssertionError("the pipeline does not come to rest")

    def is_gathering(self) -> bool:
        """Tell whether policy or a speaker waits for more of what has come."""
        relays = [self.stage(label)._relay for label in self.labels("policy")]
        groups = [group for label in self.labels("speaker") for group in self.stage(label).groups]
        return any(trunk.is_waiting for relay in relays for trunk in relay.trunks()) or any(
            group.adj_rib_out.is_gathering for group in groups
        )

    def turn(self, n: int) -> None:
        """Turn all loops and peers n times, whatever is left to do."""
        for _ in range(n):
            for turning in (*self.loops.values(), *self.peers.values()):
                turning.turn()

    def wait(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass, a step at a time."""
        while seconds > 0:
            self.clock.advance(min(step_s, seconds))
            seconds -= step_s
            self.settle()

    # ---- peers ------------------------------------------------------------------------------------------------

    def peer(self, name: str, restart: GracefulRestart | None = None) -> "Peer":
        """Return the peer of a neighbor, its session up; `restart` is what it offers from then on."""
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers[name] = Peer(self, name)
        peer.restart = restart or peer.restart
        for _ in range(MAX_CALLS):
            if not peer.is_up:
                peer.connect()
                self.settle()
            if peer.is_up:
                return peer
            self.wait(5)  # refused: the session pauses after its end
        raise AssertionError(f"no session with {name}")


def label_of(name: str, instance: str) -> str:
    """Return how an instance of a stage is called here."""
    return name if instance == "0" else f"{name}.{instance}"


class NamedSocket(socket.socket):
    """One end of a socket pair that says it is a TCP connection between two addresses."""

    def __init__(self, end: socket.socket, local: str, peer: str):
        super().__init__(fileno=end.detach())
        self.setblocking(False)
        self._names = (local, 179), (peer, 40000)

    def getsockname(self):
        return self._names[0]

    def getpeername(self):
        return self._names[1]


@dataclass(slots=True)
class Told:
    """What a peer was told of one prefix: next hop and attribute values by type, as on the wire."""

    next_hop: bytes
    attributes: dict[int, bytes] = field(default_factory=dict)


class Peer:
    """One neighbor, played."""

    def __init__(self, pipeline: Pipeline, name: str):
        self.pipeline = pipeline
        self.config = pipeline.config.neighbors[name]
        self.name = name
        self.families = tuple(Family.named(label) for label in self.config.families)
        self.router_id = router_id_of(self.config.address)
        self.is_up = False
        self.told: dict[str, Told] = {}
        self.ended: set[Family] = set()
        self.notifications: list[Notification] = []
        self.n_updates = 0
        self.faults: list[str] = []
        # What it offers of graceful restart, and what it was offered.
        self.restart: GracefulRestart | None = None
        self.offered: GracefulRestart | None = None
        self.named: set[str] = set()  # prefixes in UPDATEs it was sent
        self._socket: socket.socket | None = None
        self._received = b""

    # ---- the session ------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Call the speaker and open the session."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        instance = self.config.speaker
        speaker = self.pipeline.stage("speaker" if instance == "0" else f"speaker.{instance}")
        named = NamedSocket(theirs, self.config.local_address or LOCAL_ADDRESS, self.config.address)
        connection = Connection(speaker.context.loop, named)
        self._socket, self._received = ours, b""
        self.told, self.ended, self.is_up = {}, set(), False
        capabilities = Capabilities(
            families=self.families, asn4=self.config.asn, route_refresh=True, graceful_restart=self.restart
        )
        self.send(Open(self.config.asn, 90, self.router_id, capabilities).encode())
        speaker.neighbors.accept(connection)

    def close(self) -> None:
        """End the session with a Cease."""
        self.send(Notification(6, 2).encode())
        self.vanish()

    def vanish(self) -> None:
        """Lose the connection without a word."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self.is_up = False

    def send(self, octets: bytes) -> None:
        """Send octets, whatever they are."""
        while octets:
            octets = octets[self._socket.send(octets) :]

    def turn(self) -> bool:
        """Handle what has arrived; return True if there was anything."""
        if self._socket is None:
            return False
        try:
            octets = self._socket.recv(1 << 20)
        except BlockingIOError:
            return False
        except OSError:
            octets = b""
        if not octets:
            self.vanish()
            return True
        self._received += octets
        while len(self._received) >= 19:
            length, kind = struct.unpack_from(">HB", self._received, 16)
            if len(self._received) < length:
                break
            message, self._received = self._received[19:length], self._received[length:]
            self._on_message(kind, message)
        return True

    # ---- what it tells ----------------------------------------------------------------------------------------

    def announce(self, prefixes: list[str], next_hop: str | None = None, **attributes) -> None:
        """Announce prefixes (of one family) with the attributes that `encode_set` takes."""
        self.announce_set(prefixes, encode_set(**attributes), next_hop)

    def announce_set(self, prefixes: list[str], octets: bytes, next_hop: str | None = None) -> None:
        """Announce prefixes with attributes as they are on the wire, behind a next hop in an attribute set."""
        networks = [ip_network(prefix) for prefix in prefixes]
        attributes = octets[1 + octets[0] :]
        if networks[0].version == 4:
            hop = ip_address(next_hop or self.config.address).packed
            self.send(update(attributes=attributes + attribute(0x40, NEXT_HOP, hop), nlri=nlri_of(networks)))
        else:
            hop = ip_address(next_hop or f"2001:db8:77::{self.config.address.rsplit('.', 1)[1]}").packed
            value = struct.pack(">HBB", 2, 1, 16) + hop + b"\0" + nlri_of(networks)
            self.send(update(attributes=attribute(0x80, MP_REACH, value) + attributes))

    def withdraw(self, prefixes: list[str]) -> None:
        """Withdraw prefixes (of one family)."""
        networks = [ip_network(prefix) for prefix in prefixes]
        if networks[0].version == 4:
            self.send(update(withdrawn=nlri_of(networks)))
        else:
            value = struct.pack(">HB", 2, 1) + nlri_of(networks)
            self.send(update(attributes=attribute(0x80, MP_UNREACH, value)))

    def end_of_rib(self) -> None:
        """Say that all has been announced, in both families."""
        self.send(update())
        self.send(update(attributes=attribute(0x80, MP_UNREACH, struct.pack(">HB", 2, 1))))

    def refresh(self, family: Family) -> None:
        """Ask to be told all again (RFC 2918)."""
        self.send(RouteRefresh(family.afi, family.safi).encode())

    # ---- what it hears ----------------------------------------------------------------------------------------

    def _on_message(self, kind: int, body: bytes) -> None:
        if kind == MessageType.OPEN:
            self.offered = Open.decode(body).capabilities.graceful_restart
            self.send(encode_message(MessageType.KEEPALIVE))
        elif kind == MessageType.KEEPALIVE:
            if self.is_up:
                self.send(encode_message(MessageType.KEEPALIVE))
            self.is_up = True
        elif kind == MessageType.UPDATE:
            self.n_updates += 1
            self._on_update(body)
        elif kind == MessageType.NOTIFICATION:
            self.notifications.append(Notification.decode(body))
            self.is_up = False

    def _on_update(self, body: bytes) -> None:
        n_withdrawn = struct.unpack_from(">H", body)[0]
        n_attributes = struct.unpack_from(">H", body, 2 + n_withdrawn)[0]
        at = 4 + n_withdrawn
        attributes = dict(attributes_in(body[at : at + n_attributes]))
        withdrawn = prefixes_in(body[2 : 2 + n_withdrawn], IPv4Network)
        announced = [
            (prefix, attributes.get(NEXT_HOP)) for prefix in prefixes_in(body[at + n_attributes :], IPv4Network)
        ]
        if MP_UNREACH in attributes:
            withdrawn += prefixes_in(attributes[MP_UNREACH][3:], IPv6Network)
        if MP_REACH in attributes:
            value = attributes[MP_REACH]
            hop = value[4 : 4 + value[3]]
            announced += [(prefix, hop) for prefix in prefixes_in(value[5 + value[3] :], IPv6Network)]
        if not withdrawn and not announced:
            self.ended.add(Family.IPV6_UNICAST if MP_UNREACH in attributes else Family.IPV4_UNICAST)
        self.named.update(withdrawn, (prefix for prefix, _ in announced))
        rest = {code: value for code, value in attributes.items() if code not in (NEXT_HOP, MP_REACH, MP_UNREACH)}
        for prefix in withdrawn:
            if self.told.pop(prefix, None) is None:
                self.faults.append(f"{prefix} withdrawn, which was not announced")
        for prefix, hop in announced:
            told = Told(hop, rest)
            if self.told.get(prefix) == told:
                self.faults.append(f"{prefix} announced again as it was")
            self.told[prefix] = told


def router_id_of(address: str) -> int:
    """Return the router id of the peer at an address: the higher the address, the lower the id."""
    return 0xDFFFFFFF - int(ip_address(address))


# ---- octets -----------------------------------------------------------------------------------------------------


def update(withdrawn: bytes = b"", attributes: bytes = b"", nlri: bytes = b"") -> bytes:
    """Encode an UPDATE."""
    body = struct.pack(">H", len(withdrawn)) + withdrawn + struct.pack(">H", len(attributes)) + attributes + nlri
    return encode_message(MessageType.UPDATE, body)


def attribute(flags: int, code: int, value: bytes) -> bytes:
    """Encode a path attribute."""
    if len(value) > 255:
        return struct.pack(">BBH", flags | 0x10, code, len(value)) + value
    return struct.pack(">BBB", flags, code, len(value)) + value


def nlri_of(networks: list) -> bytes:
    """Encode prefixes."""
    return b"".join(
        bytes([network.prefixlen]) + network.network_address.packed[: (network.prefixlen + 7) // 8]
        for network in networks
    )


def prefixes_in(octets: bytes, kind: type) -> list[str]:
    """Decode prefixes."""
    size = 4 if kind is IPv4Network else 16
    found, at = [], 0
    while at < len(octets):
        n_octets = (octets[at] + 7) // 8
        address = octets[at + 1 : at + 1 + n_octets].ljust(size, b"\0")
        found.append(str(kind((address, octets[at]))))
        at += 1 + n_octets
    return found


def attributes_in(octets: bytes) -> list[tuple[int, bytes]]:
    """Decode type and value of path attributes."""
    found, at = [], 0
    while at < len(octets):
        size = ">H" if octets[at] & 0x10 else ">B"
        length = struct.unpack_from(size, octets, at + 2)[0]
        begin = at + 2 + struct.calcsize(size)
        found.append((octets[at + 1], octets[begin : begin + length]))
        at = begin + length
    return found
