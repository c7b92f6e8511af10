"""The neighbors and their connections: carries out what the sessions ask for, and resolves collisions.

Owns one record for each configured neighbor, with its sessions (two while connections collide), their connections and
one timer. Never scans an UPDATE (intake.py does) and never looks at a route.

RFC 4271 §6.8 (collisions) and §8.2.1 (connections only from configured peers).
"""

import ipaddress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Protocol

from common.bgp.capabilities import Capabilities, GracefulRestart
from common.bgp.constants import CeaseSubcode
from common.bgp.fsm import State
from common.bgp.session import (
    NEVER,
    Close,
    Dial,
    Down,
    Output,
    Refresh,
    Send,
    Session,
    SessionSettings,
    Up,
    collision_loser,
)
from common.config import Neighbor as NeighborConfig
from common.kernels.scan import Options
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer
from stages.speaker.sockets import Attempt, Connection, ConnectionLost


@dataclass(slots=True, eq=False)
class Peering:
    """One session with its connection."""

    session: Session
    connection: Connection | None = None
    attempt: Attempt | None = None
    # Octets received that are not a whole message yet.
    leftover: bytes = b""
    # How its UPDATEs are read, once it is established.
    options: Options | None = None
    n_octets_received: int = 0
    n_octets_sent: int = 0


@dataclass(slots=True, eq=False)
class Neighbor:
    """One configured neighbor; `peering` is its session, `contender` a second connection that came in beside it."""

    config: NeighborConfig
    settings: SessionSettings
    is_external: bool
    peering: Peering
    contender: Peering | None = None
    timer: Timer | None = None
    # The number of its routes' source while the session is established.
    source: int = 0
    # What it has agreed on for restarts, in its present or last session.
    restart: GracefulRestart | None = None
    has_been_up: bool = False
    # Limits of which there was a warning in this session.
    warned_of: set[str] = field(default_factory=set)
    # Who has stopped it, and why, until it is started again.
    stopped_by: str = ""
    # The limit its last session went beyond, until it is up again.
    held_back_by: str = ""
    # Octets of its attribute sets, counted from above, and at how many they are counted anew (limits.py).
    n_attribute_octets: int = 0
    count_octets_at: int = 0
    families: tuple = ()
    # Those of them in which it sends path identifiers (RFC 7911).
    path_id_families: tuple = ()
    # Members of Adj-RIB-Outs, by family: (group, member).
    members: dict = field(default_factory=dict)
    n_treated_as_withdraw: int = 0
    n_attributes_discarded: int = 0

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def is_established(self) -> bool:
        return self.peering.session.is_established

    def peerings(self) -> list[Peering]:
        """Return its sessions: one, or two while a collision is not resolved."""
        return [self.peering] if self.contender is None else [self.peering, self.contender]


class Observer(Protocol):
    """What the stage does when something happens to a session."""

    def on_up(self, neighbor: Neighbor) -> None:
        """The neighbor's session is established."""

    def capabilities_for(self, neighbor: Neighbor) -> Capabilities:
        """Return what is offered to the neighbor on a connection that begins now."""

    def on_down(self, neighbor: Neighbor, reason: str, is_graceful: bool) -> None:
        """The neighbor's session, which was established, has ended."""

    def on_refresh(self, neighbor: Neighbor, refresh: Refresh) -> None:
        """The neighbor asks to be told a table again."""

    def on_readable(self, neighbor: Neighbor, peering: Peering) -> None:
        """Octets wait to be read."""


class Neighbors:
    """All neighbors of this speaker by name."""

    def __init__(self, loop: Loop, log: Log, random: Random, observer: Observer):
        self._loop = loop
        self._log = log
        self._random = random
        self._observer = observer
        self._by_name: dict[str, Neighbor] = {}
        self._is_reading_paused = False

    def __iter__(self):
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Neighbor | None:
        """Return the neighbor called `name`, or None."""
        return self._by_name.get(name)

    @property
    def _now(self) -> float:
        return self._loop.clock.monotonic()

    # ---- coming and going -------------------------------------------------------------------------------------------

    def add(self, config: NeighborConfig, settings: SessionSettings) -> Neighbor:
        """Begin to have sessions with a neighbor."""
        is_external = config.asn != settings.local_asn
        neighbor = Neighbor(config, settings, is_external, Peering(Session(settings, self._random)))
        self._by_name[config.name] = neighbor
        neighbor.peering.session.start(self._now)
        self.settle(neighbor, neighbor.peering)
        return neighbor

    def remove(self, name: str, subcode: CeaseSubcode = CeaseSubcode.PEER_DE_CONFIGURED) -> None:
        """End a neighbor's sessions with a Cease and forget it."""
        neighbor = self._by_name.pop(name)
        self.stop(neighbor, subcode)
        if neighbor.timer is not None:
            neighbor.timer.cancel()

    def stop(self, neighbor: Neighbor, subcode: CeaseSubcode, text: str = "", restart_s: float | None = None) -> None:
        """End a neighbor's sessions with a Cease; without `restart_s` until it is started again."""
        for peering in neighbor.peerings():
            peering.session.stop(self._now, subcode, text, restart_s)
            self.settle(neighbor, peering)

    def lapse(self, neighbor: Neighbor) -> None:
        """End a neighbor's sessions for a restart of ours, so that it keeps our routes if it has agreed to."""
        for peering in neighbor.peerings():
            peering.session.lapse(self._now)
            self.settle(neighbor, peering)

    def start(self, neighbor: Neighbor) -> None:
        """Let a stopped neighbor have sessions again."""
        neighbor.stopped_by = neighbor.held_back_by = ""
        neighbor.peering.session.start(self._now)
        self.settle(neighbor, neighbor.peering)

    # ---- connections ------------------------------------------------------------------------------------------------

    def admits(self, local: str, peer: str) -> bool:
        """Tell whether a connection from `peer` to our address `local` is expected."""
        return self._find(local, peer) is not None

    def accept(self, connection: Connection) -> None:
        """Give a connection that came in to its neighbor's session, or to a second one while the first is busy."""
        neighbor = self._find(connection.local, connection.peer)
        if neighbor is None:
            connection.abort()
            return
        if neighbor.contender is not None:
            self.connection_lost(neighbor, _silent(neighbor), "a newer connection has taken its place")
        peering = neighbor.peering
        if peering.session.state is not State.ACTIVE:
            # It may be about to collide with one of our own making; both go on until the OPENs tell (RFC 4271 §6.8).
            peering = neighbor.contender = Peering(Session(neighbor.settings, self._random))
            peering.session.settings = replace(neighbor.settings, is_passive=True)
            peering.session.start(self._now)
            peering.session.record.is_stopped = True  # what becomes of it: it wins, or it is forgotten
        self._connected(neighbor, peering, connection, is_dialled=False)

    def _find(self, local: str, peer: str) -> Neighbor | None:
        for neighbor in self._by_name.values():
            if not is_from(neighbor.config, local, peer):
                continue
            is_free = neighbor.contender is None or _silent(neighbor) is not None
            return neighbor if is_free and neighbor.peering.session.state is not State.IDLE else None
        return None

    def _dial(self, neighbor: Neighbor, peering: Peering) -> None:
        config = neighbor.config

        def on_end(connection: Connection | None, reason: str) -> None:
            peering.attempt = None
            if connection is not None:
                self._connected(neighbor, peering, connection, is_dialled=True)
            else:
                peering.session.connection_failed(self._now, reason)
                self.settle(neighbor, peering)

        peering.attempt = Attempt(self._loop, config.local_address, config.address, config.port, on_end)

    def _connected(self, neighbor: Neighbor, peering: Peering, connection: Connection, is_dialled: bool) -> None:
        peering.connection = connection
        peering.leftover = b""
        connection.on_writable = lambda: self.flush(neighbor, peering)
        self._start_reading(neighbor, peering)
        session = peering.session
        session.settings = replace(session.settings, capabilities=self._observer.capabilities_for(neighbor))
        session.connected(self._now, is_dialled)
        self.settle(neighbor, peering)

    def _start_reading(self, neighbor: Neighbor, peering: Peering) -> None:
        if not (self._is_reading_paused and peering.session.is_established):
            peering.connection.start_reading(lambda: self._observer.on_readable(neighbor, peering))

    def pause_reading(self) -> None:
        """Read nothing of established sessions until `resume_reading`; their KEEPALIVEs go on."""
        self._is_reading_paused = True
        for neighbor in self._by_name.values():
            if neighbor.is_established:
                neighbor.peering.connection.stop_reading()
                neighbor.peering.session.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._is_reading_paused = False
        for neighbor in self._by_name.values():
            if neighbor.is_established:
                neighbor.peering.session.resume_reading(self._now)
                self._start_reading(neighbor, neighbor.peering)
                self._arm(neighbor)

    def flush(self, neighbor: Neighbor, peering: Peering) -> None:
        """Send what waits, as far as the connection takes it."""
        connection = peering.connection
        if connection is None:
            return
        try:
            if connection.flush():
                peering.session.octets_accepted(self._now)
        except ConnectionLost as lost:
            self.connection_lost(neighbor, peering, str(lost))

    def connection_lost(self, neighbor: Neighbor, peering: Peering, reason: str) -> None:
        """Tell a session that its connection is gone."""
        if peering.connection is not None:
            peering.connection.abort()
        peering.session.connection_failed(self._now, reason)
        self.settle(neighbor, peering)

    # ---- outputs ----------------------------------------------------------------------------------------------------

    def settle(self, neighbor: Neighbor, peering: Peering) -> None:
        """Carry out what a session has asked for, resolve a collision, and set the neighbor's timer."""
        outputs = peering.session.outputs
        is_to_flush = False
        while outputs:
            output = outputs.pop(0)
            is_to_flush |= type(output) is Send
            self._carry_out(neighbor, peering, output)
        if is_to_flush:
            self.flush(neighbor, peering)
        if neighbor.contender is not None:
            self._resolve(neighbor)
        self._arm(neighbor)

    def _carry_out(self, neighbor: Neighbor, peering: Peering, output: Output) -> None:
        if type(output) is Send:
            if peering.connection is not None:
                peering.connection.queue(output.octets)
        elif type(output) is Dial:
            self._dial(neighbor, peering)
        elif type(output) is Close:
            self._close(peering)
        elif type(output) is Up:
            self._up(neighbor, peering)
        elif type(output) is Down:
            self._down(neighbor, peering, output)
        elif type(output) is Refresh:
            self._observer.on_refresh(neighbor, output)

    def _close(self, peering: Peering) -> None:
        if peering.attempt is not None:
            peering.attempt.close()
            peering.attempt = None
        if peering.connection is not None:
            peering.n_octets_received += peering.connection.n_received
            peering.n_octets_sent += peering.connection.n_sent
            peering.connection.close()
            peering.connection = None
        peering.leftover = b""

    def _up(self, neighbor: Neighbor, peering: Peering) -> None:
        if peering is not neighbor.peering:
            self._drop(neighbor, neighbor.peering)
        self._observer.on_up(neighbor)
        if self._is_reading_paused:
            peering.connection.stop_reading()
            peering.session.pause_reading()

    def _down(self, neighbor: Neighbor, peering: Peering, output: Down) -> None:
        peering.options = None
        if output.was_established:
            event(self._log, "session-down", neighbor=neighbor.name, reason=output.reason)
            self._observer.on_down(neighbor, output.reason, output.is_graceful)
        else:
            event(self._log, "session-attempt-failed", "debug", neighbor=neighbor.name, reason=output.reason)
        if peering is neighbor.contender:
            neighbor.contender = None

    # ---- collisions -------------------------------------------------------------------------------------------------

    def _resolve(self, neighbor: Neighbor) -> None:
        loser = collision_loser(neighbor.peering.session, neighbor.contender.session)
        if loser is not None:
            event(self._log, "session-collision", neighbor=neighbor.name, dropped_dialled=loser.record.is_dialled)
            is_first = loser is neighbor.peering.session
            self._drop(neighbor, neighbor.peering if is_first else neighbor.contender)

    def _drop(self, neighbor: Neighbor, peering: Peering) -> None:
        """End one of two connections; the other is the neighbor's session from now on."""
        session = peering.session
        session.record.is_stopped = True
        session.record.idle_hold_at = NEVER
        survivor = neighbor.contender if peering is neighbor.peering else neighbor.peering
        neighbor.peering, neighbor.contender = survivor, None
        survivor.session.settings = replace(neighbor.settings, capabilities=survivor.session.settings.capabilities)
        survivor.session.record.is_stopped = False
        if session.is_established and session.record.negotiated.graceful_restart is not None:
            # RFC 4724 §4.2: the peer has begun anew; nobody is left to take a NOTIFICATION.
            session.connection_failed(self._now, "the peer has connected anew")
        else:
            session.lose_collision(self._now)
        while session.outputs:
            self._carry_out(neighbor, peering, session.outputs.pop(0))

    # ---- time -------------------------------------------------------------------------------------------------------

    def _arm(self, neighbor: Neighbor) -> None:
        """Have `_on_timer` called no later than the first deadline; a call too early only sets the timer again."""
        if self._by_name.get(neighbor.name) is not neighbor:
            return
        deadline = min(peering.session.deadline() for peering in neighbor.peerings())
        timer = neighbor.timer
        if timer is not None and timer.is_pending:
            if timer.at <= deadline:
                return
            timer.cancel()
        neighbor.timer = None
        if deadline != NEVER:
            neighbor.timer = self._loop.call_at(deadline, lambda: self._on_timer(neighbor))

    def _on_timer(self, neighbor: Neighbor) -> None:
        neighbor.timer = None
        for peering in neighbor.peerings():
            peering.session.on_time(self._now)
            self.settle(neighbor, peering)
        self._arm(neighbor)


def _silent(neighbor: Neighbor) -> Peering | None:
    """Return the connection that may give way to a newer one: the oldest that no OPEN has come on, ours last.

    A peer that has lost its connections without a word is not to be kept out until their time is up.
    """
    waiting = [each for each in neighbor.peerings() if each.session.state is State.OPEN_SENT]
    return min(
        waiting, key=lambda each: (each.session.record.is_dialled, each.session.record.connected_at), default=None
    )


def is_from(config: NeighborConfig, local: str, peer: str) -> bool:
    """Tell whether a connection between these addresses is one with a neighbor."""
    if _canonical(config.address) != _canonical(peer):
        return False
    return config.local_address is None or _canonical(config.local_address) == _canonical(local)


@lru_cache(4096)
def _canonical(address: str) -> str:
    """Return an address in one spelling; an IPv4 address that came mapped into IPv6 is the IPv4 address."""
    parsed = ipaddress.ip_address(address)
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)
