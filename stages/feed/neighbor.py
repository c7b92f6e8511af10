"""One neighbor the feed plays: its connection, what it sends and what it has been told.

Owns one TCP connection and its ledgers. A plain record of state; `stages/feed/load.py` calls it when the socket or the
clock has something for it. Speaks BGP-4 as far as a well-behaved neighbor must (RFC 4271): it never decides anything.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from common.bgp.constants import Family, MessageType
from common.bgp.errors import ProtocolError
from common.bgp.messages import Notification, RouteRefresh
from common.kernels.ledger import Ledger, digest_sets
from common.kernels.scan import Options
from stages.feed import wire
from stages.feed.judge import Judge

SEND_OCTETS = 1 << 18
RECEIVE_OCTETS = 1 << 18
SENDS_IN_A_TURN = 4
CEASE = Notification(6, 2).encode()


@dataclass(slots=True)
class Plan:
    """How a neighbor is played.

    n_expected: prefixes it should come to hold; 0: it does not wait for any, None: to be found out by the judge.
    hears: names of the senders whose routes it must come to hold; None: all others.
    """

    name: str
    address: str
    asn: int
    router_id: str
    families: tuple[Family, ...] = (Family.IPV4_UNICAST, Family.IPV6_UNICAST)
    hold_time_s: int = 90
    n_expected: int | None = 0
    hears: tuple[str, ...] | None = None
    target: tuple[str, int] | None = None  # None: that of the load
    receive_buffer_octets: int = 0  # of the kernel; 0: as the system has it
    next_hop: str = ""  # of its routes; empty: its address, see `source.next_hops`
    next_hop_6: str = ""
    restart_time_s: int = 0  # offered with graceful restart (RFC 4724); 0: that is not offered


@dataclass(slots=True)
class Neighbor:
    """The state of one neighbor that is played."""

    plan: Plan
    target: tuple[str, int]
    judge: Judge
    connection: socket.socket | None = None
    is_connecting: bool = False
    is_established: bool = False
    is_paused: bool = False  # reads nothing
    outgoing: deque[memoryview] = field(default_factory=deque)
    source: Iterator[np.ndarray] | None = None  # gives more octets to send when `outgoing` is empty
    opened: object = None  # the other side's OPEN
    hold_time_s: int = 90
    n_octets_sent: int = 0
    n_octets_received: int = 0
    n_updates: int = 0
    n_keepalives: int = 0
    n_sessions: int = 0
    established_at: float = 0.0
    sent_at: float = 0.0  # when the last octet of a table went to the kernel
    first_update_at: float = 0.0
    last_update_at: float = 0.0
    complete_at: float = 0.0
    heard_at: float = 0.0
    longest_silence_s: float = 0.0
    next_keepalive_at: float = float("inf")
    ledgers: dict[Family, Ledger] = field(default_factory=dict)
    end_of_rib_at: dict[Family, float] = field(default_factory=dict)
    n_invalid: int = 0  # UPDATEs to be treated as withdraw
    n_discarded: int = 0  # attributes to be discarded
    n_wrong_first_as: int = 0  # announcements whose path does not begin with the external speaker's AS
    probes: object = None  # a Probes that wants to know of announcements
    options: Options = field(default_factory=Options)
    failure: str = ""
    refreshes: set[Family] = field(default_factory=set)  # that the other side wants to be told again (RFC 2918)
    unmet: str = ""  # what the other side's OPEN lacks; to call again would not help
    broken: str = ""  # why nothing can be sent any more
    notification: Notification | None = None
    rest: bytes = b""  # the beginning of a message whose end has not come

    # ---- the connection ---------------------------------------------------------------------------------------

    def connect(self, now: float) -> socket.socket:
        """Begin to dial the target from the neighbor's own address; raises OSError naming both when that can't be."""
        family = socket.AF_INET6 if ":" in self.plan.address else socket.AF_INET
        self.connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.plan.receive_buffer_octets:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.plan.receive_buffer_octets)
        try:
            self.connection.bind((self.plan.address, 0))
            reason = self.connection.connect_ex(self.target)
        except OSError as error:
            raise self._cannot_connect(error.errno or 0, error.strerror or str(error)) from None
        if reason not in (0, errno.EINPROGRESS):
            raise self._cannot_connect(reason, os.strerror(reason))
        self._begin(now)
        return self.connection

    def _cannot_connect(self, number: int, reason: str) -> OSError:
        host, port = self.target
        if number == errno.EADDRNOTAVAIL:
            reason = f"{self.plan.address} is no address of this machine: add it (ip address add), or play another"
        return OSError(number, f"{self.plan.name}: {self.plan.address} to {host} port {port}: {reason}")

    def _begin(self, now: float) -> None:
        self.is_connecting, self.is_established, self.is_paused = True, False, False
        self.failure, self.broken, self.notification, self.opened, self.rest = "", "", None, None, b""
        self.outgoing.clear()
        self.source = None
        self.heard_at = now
        self.hold_time_s = self.plan.hold_time_s
        self.next_keepalive_at = float("inf")
        self.end_of_rib_at = {}
        for family in self.plan.families:
            if family in self.ledgers:
                self.ledgers[family].clear()
            else:
                self.ledgers[family] = Ledger(self.judge.prefixes[family].capacity)

    def on_connected(self) -> None:
        """Say OPEN, or note why there is no connection."""
        self.is_connecting = False
        reason = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reason:
            host, port = self.target
            self.fail(f"{self.plan.address} to {host} port {port}: {os.strerror(reason)}")
            return
        self.send(wire.open_message(self.plan))

    def close(self, is_orderly: bool = True) -> None:
        """End the session, with a Cease or without a word."""
        if self.connection is None:
            return
        if is_orderly and self.is_established:
            try:
                self.connection.send(CEASE)
            except OSError:
                pass  # it has gone already, or takes nothing more
        self.connection.close()
        self.connection = None
        self.is_established = False
        self.next_keepalive_at = float("inf")

    def fail(self, reason: str) -> None:
        """Note why the session has ended; the first reason counts."""
        self.failure = self.failure or reason
        self.is_established = False
        self.next_keepalive_at = float("inf")

    # ---- sending ----------------------------------------------------------------------------------------------

    def send(self, octets) -> None:
        """Queue octets and write what the socket takes now."""
        self.outgoing.append(memoryview(octets).cast("B"))
        self.flush()

    @property
    def wants_to_send(self) -> bool:
        return bool(self.outgoing) or self.source is not None

    @property
    def n_waiting(self) -> int:
        """Octets that are queued."""
        return sum(map(len, self.outgoing))

    def flush(self, now: float = 0.0) -> None:
        """Write what is queued, then what the source gives, until the socket is full or others have their turn."""
        for _ in range(SENDS_IN_A_TURN):
            if self.failure or not self._refill(now):
                return
            head = self.outgoing[0]
            try:
                n_sent = self.connection.send(head[:SEND_OCTETS])
            except BlockingIOError:
                return
            except OSError as error:
                # It may have said why before it closed: that is still to be read, and tells more.
                self.broken = f"sending failed: {error.strerror}"
                self.outgoing.clear()
                self.source = None
                return
            self.n_octets_sent += n_sent
            if n_sent == len(head):
                self.outgoing.popleft()
            else:
                self.outgoing[0] = head[n_sent:]
                if n_sent < SEND_OCTETS:
                    return

    def _refill(self, now: float) -> bool:
        while not self.outgoing and self.source is not None:
            block = next(self.source, None)
            if block is None:
                self.source = None
                self.sent_at = now
            elif len(block):
                self.outgoing.append(memoryview(block))
        return bool(self.outgoing)

    # ---- receiving --------------------------------------------------------------------------------------------

    def receive(self, scanner, buffer: bytearray, now: float) -> None:
        """Read what has come and enter it; `buffer` is scratch that all neighbors share."""
        n_rest = len(self.rest)
        buffer[:n_rest] = self.rest
        try:
            n = self.connection.recv_into(memoryview(buffer)[n_rest : n_rest + RECEIVE_OCTETS])
        except BlockingIOError:
            return
        except OSError as error:
            reset = "connection reset" if error.errno == errno.ECONNRESET else f"receiving failed: {error.strerror}"
            self.fail(self.broken or reset)
            return
        if n == 0:
            self.fail(self.broken or "connection closed by the other side")
            return
        self.longest_silence_s = max(self.longest_silence_s, now - self.heard_at)
        self.heard_at = now
        self.n_octets_received += n
        consumed = wire.take_messages(self, scanner, buffer, n_rest + n, now)
        self.rest = bytes(memoryview(buffer)[consumed : n_rest + n])

    def on_message(self, kind: int, body: bytes, now: float) -> None:
        """Handle a message other than an UPDATE or a KEEPALIVE."""
        if kind == MessageType.OPEN and self.opened is not None:
            self.fail("sent an OPEN again")
        elif kind == MessageType.OPEN:
            try:
                self.opened = wire.decode_open(body)
            except ProtocolError as error:
                self.fail(f"its OPEN is malformed: {error}")
                return
            lacking = [each.label for each in self.plan.families if each not in self.opened.capabilities.families]
            if lacking:
                # RFC 4760 §8: what the other side does not offer must not be sent, so not all could be told.
                self.unmet = f"{self.target[0]} does not offer {' and '.join(lacking)} to {self.plan.address}"
                self.fail(self.unmet)
                return
            self.hold_time_s = min(self.plan.hold_time_s, self.opened.hold_time_s)
            self.options = Options(
                as4=self.opened.capabilities.asn4 is not None, external=self.is_external, accept_as_sets=True
            )
            self.send(wire.KEEPALIVE)
            self.next_keepalive_at = self.keepalive_after(now)
        elif kind == MessageType.ROUTE_REFRESH:
            self.refreshes |= {RouteRefresh.decode(body).family} & set(self.plan.families)
        elif kind == MessageType.NOTIFICATION:
            self.notification = Notification.decode(body)
            self.fail(f"NOTIFICATION {wire.describe_notification(body)}")

    @property
    def waits_for(self) -> str:
        """What has to come before the session is up, for a person."""
        host, port = self.target
        if self.connection is None or self.is_connecting:
            return f"{host} port {port} does not answer"
        return f"connected to {host}, but no {'OPEN' if self.opened is None else 'KEEPALIVE'} has come"

    def keepalive_after(self, now: float) -> float:
        """Return when the next KEEPALIVE is due; never with a Hold Time of 0 (RFC 4271 §4.4)."""
        return now + self.hold_time_s / 3 if self.hold_time_s else float("inf")

    @property
    def is_external(self) -> bool:
        """Whether the speaker is in another AS."""
        return self.opened is None or self.opened.asn != self.plan.asn

    def on_keepalive(self, now: float) -> None:
        self.n_keepalives += 1
        if not self.is_established and self.opened is not None:
            self.is_established = True
            self.n_sessions += 1
            self.established_at = now

    def on_end_of_rib(self, family: Family, now: float) -> None:
        self.end_of_rib_at.setdefault(family, now)

    def on_routes(self, family: Family, routes, now: float) -> None:
        """Enter one scan's announcements and withdrawals of one family."""
        prefixes, ledger = self.judge.prefixes[family], self.ledgers[family]
        rows = prefixes.intern(routes.hi, routes.lo, routes.length)
        ledger.ensure(prefixes.capacity)
        states, first = digest_sets(routes.set_offset, routes.set_octets, 1 if self.is_external else 0)
        ledger.apply(rows, routes.set, states)
        if self.is_external and self.opened is not None:
            self.n_wrong_first_as += int(np.count_nonzero(first != self.opened.asn))
        if self.probes is not None:
            self.probes.on_routes(family, routes, now)
        self.first_update_at = self.first_update_at or now
        self.last_update_at = now
        if not self.complete_at and self.plan.n_expected and self.n_held >= self.plan.n_expected:
            self.complete_at = now

    # ---- what has come ----------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Sum of the ledgers' counts over the families."""
        names = ("held", "announced", "withdrawn", "repeated", "spurious_withdrawals")
        return {name: sum(ledger.counts[name] for ledger in self.ledgers.values()) for name in names}

    @property
    def n_held(self) -> int:
        return sum(ledger.held for ledger in self.ledgers.values())

    def report(self, since: Callable[[float], float | None]) -> dict:
        """Return all that was measured; `since` turns a time into seconds since the beginning."""
        return {
            "is_established": self.is_established,
            "failure": self.failure,
            "sessions": self.n_sessions,
            "octets_sent": self.n_octets_sent,
            "octets_received": self.n_octets_received,
            "updates_received": self.n_updates,
            "invalid_updates": self.n_invalid,
            "discarded_attributes": self.n_discarded,
            "wrong_first_as": self.n_wrong_first_as,
            "expected": self.plan.n_expected,
            "sent_s": since(self.sent_at),
            "first_update_s": since(self.first_update_at),
            "last_update_s": since(self.last_update_at),
            "complete_s": since(self.complete_at),
            "longest_silence_s": round(self.longest_silence_s, 3),
            "end_of_rib": {str(family): since(self.end_of_rib_at.get(family, 0.0)) for family in self.ledgers},
            **self.counts(),
        }
