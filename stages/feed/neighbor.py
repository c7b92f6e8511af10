"""One neighbor the feed plays: its connection, what it announces and what it has been told.

Owns one TCP connection and its ledgers. A plain record of state; `stages/feed/stage.py` calls it when the socket or the
clock has something for it. Speaks BGP-4 as far as a well-behaved neighbor must (RFC 4271): it never decides anything.
"""

import errno
import socket
from dataclasses import dataclass, field

import numpy as np

from common.bgp.constants import Family, MessageType
from common.bgp.messages import KEEPALIVE
from common.kernels.ledger import Ledger
from common.kernels.prefixes import PrefixTable
from common.kernels.scan import Options
from stages.feed import wire

SEND_OCTETS = 1 << 18
RECEIVE_OCTETS = 1 << 18


@dataclass(slots=True)
class Plan:
    """How a neighbor is played."""

    name: str
    address: str
    asn: int
    router_id: str
    families: tuple[Family, ...] = (Family.IPV4_UNICAST, Family.IPV6_UNICAST)
    hold_time_s: int = 90
    n_expected: int = 0  # prefixes it should come to hold; 0: it does not wait for any


@dataclass(slots=True)
class Told:
    """What the other side has told of one family."""

    prefixes: PrefixTable
    ledger: Ledger
    end_of_rib: bool = False


@dataclass(slots=True)
class Neighbor:
    """The state of one neighbor that is played."""

    plan: Plan
    target: tuple[str, int]
    connection: socket.socket | None = None
    is_established: bool = False
    outgoing: list[memoryview] = field(default_factory=list)
    n_octets_sent: int = 0
    n_octets_received: int = 0
    n_updates: int = 0
    n_keepalives: int = 0
    established_at: float = 0.0
    first_update_at: float = 0.0
    last_update_at: float = 0.0
    complete_at: float = 0.0
    heard_at: float = 0.0
    longest_silence_s: float = 0.0
    next_keepalive_at: float = float("inf")
    told: dict[Family, Told] = field(default_factory=dict)
    n_invalid: int = 0  # UPDATEs to be treated as withdraw
    probes: object = None  # a Probes that wants to know of announcements
    options: Options = field(default_factory=Options)
    failure: str = ""
    buffer: bytearray = field(default_factory=lambda: bytearray(RECEIVE_OCTETS + 65536))
    n_buffered: int = 0

    def connect(self, now: float) -> socket.socket:
        """Dial the target from the neighbor's own address; raises OSError naming both when that can't be done."""
        family = socket.AF_INET6 if ":" in self.plan.address else socket.AF_INET
        self.connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.connection.bind((self.plan.address, 0))
            self.connection.settimeout(5)
            self.connection.connect(self.target)
        except OSError as error:
            host, port = self.target
            way = f"{self.plan.name}: {self.plan.address} to {host} port {port}"
            raise OSError(error.errno, f"{way}: {error.strerror or error}") from None
        self.connection.setblocking(False)
        self.heard_at = now
        for family in self.plan.families:
            self.told[family] = Told(PrefixTable(family.is_wide, 1, 1024), Ledger())
        self.send(wire.open_message(self.plan))
        return self.connection

    def send(self, octets) -> None:
        """Queue octets and write what the socket takes now."""
        self.outgoing.append(memoryview(octets).cast("B"))
        self.flush()

    def flush(self) -> None:
        """Write queued octets until the socket is full."""
        while self.outgoing and not self.failure:
            head = self.outgoing[0]
            try:
                n_sent = self.connection.send(head[:SEND_OCTETS])
            except BlockingIOError:
                return
            except OSError as error:
                self.fail(f"sending failed: {error.strerror}")
                return
            self.n_octets_sent += n_sent
            if n_sent == len(head):
                self.outgoing.pop(0)
            else:
                self.outgoing[0] = head[n_sent:]
                if n_sent < SEND_OCTETS:
                    return

    def receive(self, scanner, now: float) -> None:
        """Read what has come and enter it."""
        view = memoryview(self.buffer)
        try:
            n = self.connection.recv_into(view[self.n_buffered : self.n_buffered + RECEIVE_OCTETS])
        except BlockingIOError:
            return
        except OSError as error:
            self.fail("connection reset" if error.errno == errno.ECONNRESET else f"receiving failed: {error.strerror}")
            return
        if n == 0:
            self.fail("connection closed by the other side")
            return
        self.longest_silence_s = max(self.longest_silence_s, now - self.heard_at)
        self.heard_at = now
        self.n_octets_received += n
        self.n_buffered += n
        consumed = wire.take_messages(self, scanner, self.n_buffered, now)
        if consumed:
            self.buffer[: self.n_buffered - consumed] = view[consumed : self.n_buffered]
            self.n_buffered -= consumed

    def on_message(self, kind: int, body: bytes, now: float) -> None:
        """Handle a message other than an UPDATE or a KEEPALIVE."""
        if kind == MessageType.OPEN:
            self.plan.hold_time_s = min(self.plan.hold_time_s, wire.hold_time_of(body))
            self.send(KEEPALIVE)
            self.next_keepalive_at = now + self.plan.hold_time_s / 3
        elif kind == MessageType.NOTIFICATION:
            self.fail(f"NOTIFICATION {wire.describe_notification(body)}")

    def on_keepalive(self, now: float) -> None:
        self.n_keepalives += 1
        if not self.is_established:
            self.is_established = True
            self.established_at = now

    def on_routes(self, family: Family, routes, now: float) -> None:
        """Enter one scan's announcements and withdrawals of one family."""
        told = self.told[family]
        rows = told.prefixes.intern(routes.hi, routes.lo, routes.length)
        told.ledger.ensure(told.prefixes.capacity)
        told.ledger.apply(rows, routes.set, routes.set_offset, routes.set_octets)
        if self.probes is not None:
            self.probes.on_routes(family, routes, now)
        self.first_update_at = self.first_update_at or now
        self.last_update_at = now
        if not self.complete_at and self.plan.n_expected and self.n_held >= self.plan.n_expected:
            self.complete_at = now

    def counts(self) -> dict[str, int]:
        """Sum of the ledgers' counts over the families."""
        names = ("held", "announced", "withdrawn", "repeated", "spurious_withdrawals")
        return {name: sum(told.ledger.counts[name] for told in self.told.values()) for name in names}

    @property
    def n_held(self) -> int:
        return sum(told.ledger.counts["held"] for told in self.told.values())

    def fail(self, reason: str) -> None:
        self.failure = self.failure or reason
        self.is_established = False
        self.next_keepalive_at = float("inf")

    def holds_exactly(self, tables) -> tuple[int, int]:
        """Compare what is held with the prefixes of `tables`: (missing, too many)."""
        missing = extra = 0
        for family, told in self.told.items():
            expected = np.zeros(told.prefixes.capacity, bool)
            for table in tables:
                if table.family == family:
                    rows = told.prefixes.find(table.hi, table.lo, table.length)
                    missing += int((rows == 0).sum())
                    expected[rows] = True
            held = np.zeros(told.prefixes.capacity, bool)
            digests = told.ledger.digests[: told.prefixes.capacity]
            held[: len(digests)] = digests != 0
            expected[0] = False
            missing += int((expected & ~held).sum())
            extra += int((held & ~expected).sum())
        return missing, extra
