"""A speaker on its loop with real sockets, a bus in memory, and peers and an exporter played by hand."""

import io
import socket
import tempfile
import time

import numpy as np
import pytest

from common.bgp.attributes import encode_set
from common.bgp.capabilities import Capabilities
from common.bgp.constants import Family
from common.bgp.messages import KEEPALIVE, Open
from common.bus.batch import Batch
from common.bus.bus import Bus
from common.bus.journal import JournalSource
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.bus.schema import NONE, ExportChanges, RouteChanges, SessionChanges
from common.config import loads
from common.kernels import pack
from common.kernels.journal import Journal
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.stage import Context
from stages.speaker.stage import Speaker

DEADLINE_S = 60.0
V4 = Family.IPV4_UNICAST

CONFIG = """
[router]
asn = 65000
router_id = "127.0.0.1"
run_dir = "{run_dir}"
listen = ["127.0.0.1"]
port = {port}
originate = ["192.0.2.0/24"]

[[neighbor]]
name = "a"
address = "127.0.0.10"
asn = 64601
passive = true
hold_time_s = 30
maximum_prefixes = 1000
maximum_prefixes_restart_s = 60
import = {{ default = "accept" }}
export = {{ learned_routes = true }}

[[neighbor]]
name = "b"
address = "127.0.0.20"
asn = 64602
passive = true
hold_time_s = 30
import = {{ default = "accept" }}
export = {{ learned_routes = true }}
"""


def prefix(text: str) -> tuple[int, int]:
    """Return an IPv4 prefix as (hi, length)."""
    address, _, length = text.partition("/")
    return int.from_bytes(socket.inet_aton(address), "big") << 32, int(length)


def attribute_set(as_path, next_hop: str = "10.0.0.1", **values) -> bytes:
    return encode_set(as_path=as_path, next_hop=socket.inet_aton(next_hop), **values)


def columns(routes: dict[str, bytes | None]) -> dict[str, np.ndarray]:
    """Return the columns of IPv4 prefixes with their attribute sets, None: gone."""
    sets = [octets for octets in dict.fromkeys(routes.values()) if octets is not None]
    pairs = [prefix(text) for text in routes]
    return {
        "hi": np.array([hi for hi, _ in pairs], np.uint64),
        "lo": np.empty(0, np.uint64),
        "length": np.array([length for _, length in pairs], np.uint8),
        "set": np.array([NONE if octets is None else sets.index(octets) for octets in routes.values()], np.uint32),
        "set_offset": np.cumsum([0, *map(len, sets)], dtype=np.uint32),
        "set_octets": np.frombuffer(b"".join(sets), np.uint8).copy(),
    }


def update(routes: dict[str, bytes | None]) -> bytes:
    """Return UPDATEs that announce the prefixes with a set, and withdraw those without."""
    octets = b""
    out = np.zeros(1 << 20, np.uint8)
    no_ids = np.empty(0, np.uint32)
    gone = {text: None for text, value in routes.items() if value is None}
    told = {text: value for text, value in routes.items() if value is not None}
    if gone:
        c = columns(gone)
        n_octets = pack.pack_withdrawals(c["hi"], c["lo"], c["length"], no_ids, False, 4096, False, out)[1]
        octets += out[:n_octets].tobytes()
    if told:
        c = columns(told)
        sets = (c["set"], c["set_offset"], c["set_octets"])
        n_octets = pack.pack_announcements(c["hi"], c["lo"], c["length"], no_ids, *sets, False, 4096, False, out)[1]
        octets += out[:n_octets].tobytes()
    return octets


class Peer:
    """A peer played by hand: octets out, whole messages in."""

    def __init__(self, router: "Router", address: str, asn: int):
        self.router = router
        self.messages: list[tuple[int, bytes]] = []
        self.is_closed = False
        self._rest = b""
        self._asn = asn
        self._address = address
        self.sock = socket.socket()
        self.sock.bind((address, 0))
        self.sock.setblocking(False)
        # Time is turned by hand: what is sent must not wait for an acknowledgement.
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect_ex(("127.0.0.1", router.port))

    def send(self, octets: bytes) -> None:
        while octets:
            try:
                octets = octets[self.sock.send(octets) :]
            except BlockingIOError:
                pass
            self.router.turn()

    def read(self) -> None:
        """Take what has arrived."""
        try:
            while octets := self.sock.recv(1 << 20):
                self._rest += octets
            self.is_closed = True
        except BlockingIOError:
            pass
        except OSError:
            self.is_closed = True
        while len(self._rest) >= 19 and len(self._rest) >= (length := int.from_bytes(self._rest[16:18], "big")):
            self.messages.append((self._rest[18], self._rest[19:length]))
            self._rest = self._rest[length:]

    def take(self, kind: int) -> bytes:
        """Wait for the next message of a type and return its body."""

        def found():
            self.read()
            return any(each == kind for each, _ in self.messages)

        self.router.run_until(found)
        index = next(i for i, (each, _) in enumerate(self.messages) if each == kind)
        return self.messages.pop(index)[1]

    def opening(self, **changes) -> bytes:
        """Return its OPEN."""
        capabilities = Capabilities((V4,), asn4=self._asn, route_refresh=True)
        values = dict(asn=self._asn, hold_time_s=30, router_id=int.from_bytes(socket.inet_aton(self._address), "big"))
        return Open(**{"capabilities": capabilities} | values | changes).encode()

    def open(self, **changes) -> "Peer":
        """Bring the session up."""
        self.router.run_until(lambda: self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0)
        self.send(self.opening(**changes))
        self.take(1)
        self.send(KEEPALIVE)
        self.take(4)
        return self

    def close(self) -> None:
        self.sock.close()


class Exporter:
    """The exporter's end of the bus: what it puts is told to every group."""

    def __init__(self, bus: Bus):
        self._rows: dict[str, int] = {}
        self._routes: list[tuple[str, bytes | None, str]] = [("", None, "")]
        self.journal = Journal(12)
        self.epoch = "x1"
        self.requests: list = []
        bus.serve().add("adj-rib-out/*", self._open)

    def put(self, text: str, octets: bytes | None, source: str = "") -> None:
        """Have every group told that a prefix has these attributes, or is gone."""
        row = self._rows.setdefault(text, len(self._routes))
        self._routes[row:] = [(text, octets, source)]
        self.journal.append(np.array([row], np.uint32))

    def _open(self, request):
        self.requests.append(request)
        is_ours = request.channel.endswith("ipv4-unicast")
        return JournalSource(
            self.journal if is_ours else Journal(4),
            ExportChanges,
            self._gather,
            lambda: len(self._routes) if is_ours else 1,
            epoch=self.epoch,
        )

    def _gather(self, rows, is_snapshot: bool):
        chosen = [self._routes[row] for row in rows.tolist()]
        chosen = [route for route in chosen if route[1] is not None or not is_snapshot]
        names = sorted({source for _, _, source in chosen})
        found = columns({text: octets for text, octets, _ in chosen})
        found["source"] = np.array([names.index(source) for _, _, source in chosen], np.uint32)
        return found, {"family": "ipv4-unicast", "sources": [{"name": name} for name in names]}


class Reader:
    """What policy would see of the Adj-RIB-In: the latest state of each route, and the session events in order."""

    def __init__(self, bus: Bus):
        self.routes: dict[tuple[str, str], bytes] = {}
        self.events: list[tuple[str, int]] = []
        self.follower = bus.follow("speaker", "0", "adj-rib-in/ipv4-unicast", self.handle)

    def handle(self, batch: Batch) -> None:
        names = [source["name"] for source in batch.meta["sources"]]
        c = batch.columns
        if batch.kind is SessionChanges:
            self.events += [(names[i], int(event)) for i, event in zip(c["source"], c["event"], strict=True)]
            return
        assert batch.kind is RouteChanges
        offset, octets = c["set_offset"], c["set_octets"].tobytes()
        for hi, length, source, number in zip(c["hi"], c["length"], c["source"], c["set"], strict=True):
            text = f"{socket.inet_ntoa((int(hi) >> 32).to_bytes(4, 'big'))}/{length}"
            key = (names[source], text)
            if number == NONE:
                self.routes.pop(key, None)
            else:
                self.routes[key] = octets[offset[number] : offset[number + 1]]

    def prefixes(self, name: str) -> set[str]:
        return {text for owner, text in self.routes if owner == name}


class Router:
    """The speaker under test with what surrounds it, turned by hand."""

    def __init__(self, extra: str = ""):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.hub = MemoryHub()
        self.config = loads(CONFIG.format(port=self.port, run_dir=self._directory.name) + extra)
        self.log_lines = io.StringIO()
        self.log = Log("speaker.0", stream=self.log_lines, clock=self.clock)
        self.bus = self.make_bus("speaker")
        self.context = Context(self.clock, self.loop, self.bus, Metrics("speaker"), self.log, seed=7)
        self.speaker = Speaker(self.config, "0", self.context)
        self.exporter_bus, self.reader_bus = self.make_bus("exporter"), self.make_bus("policy")
        self.exporter = Exporter(self.exporter_bus)
        self.control = self.bus.control(self.speaker.controls())
        self.speaker.start()
        self.reader = Reader(self.reader_bus)
        self.loop.add_turn(self.speaker.step)
        for bus in (self.bus, self.exporter_bus, self.reader_bus):
            self.loop.add_turn(bus.pump)
        self.loop.add_turn(self.speaker.tidy)
        self._peers: list[Peer] = []

    def make_bus(self, stage: str) -> Bus:
        return Bus("/run", stage, "0", self.loop, MemoryTransport(self.hub, self.loop), self.log)

    def peer(self, name: str) -> Peer:
        """Return a peer that connects from the address of a neighbor."""
        neighbor = self.config.neighbors[name]
        peer = Peer(self, neighbor.address, neighbor.asn)
        self._peers.append(peer)
        return peer

    def turn(self) -> None:
        self.loop.turn()

    def run_until(self, condition) -> None:
        """Turn the loop until a condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"still not: {self.log_lines.getvalue()[-3000:]}"
            self.loop.turn()

    def run_until_quiet(self) -> None:
        """Turn until a few turns in a row had nothing to do."""
        n_quiet = 0
        while n_quiet < 5:
            n_quiet = 0 if self.loop.turn() else n_quiet + 1

    def ask(self, question: str, **arguments) -> dict:
        return self.control.answer({"ask": question, **arguments})

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.speaker.drain()
        self.loop.close()
        self._directory.cleanup()


@pytest.fixture
def router():
    """A running speaker."""
    made = Router()
    yield made
    made.close()
