"""One BGP session without any I/O: octets and times in, octets and events out.

Owns the session's record, its timers and its NOTIFICATIONs: here, and nowhere else, an error becomes one. Never touches
a socket, a clock or a table: the caller says what time it is, carries the outputs out, and scans UPDATEs itself while
the session is established. The state changes only as `common.bgp.fsm` says.

RFC 4271 §4, §6 and §8, RFC 4724 §4 and RFC 8538 (which ends of a session are graceful), RFC 5492, RFC 6286
(identifiers), RFC 9687 (SendHoldTimer), RFC 9003 (shutdown text).
"""

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from common.bgp import messages
from common.bgp.capabilities import Capabilities, Negotiated, negotiate
from common.bgp.constants import (
    HEADER_OCTETS,
    MAX_MESSAGE_OCTETS,
    CeaseSubcode,
    ErrorCode,
    FiniteStateMachineSubcode,
    MessageType,
    OpenSubcode,
)
from common.bgp.errors import (
    Cease,
    FiniteStateMachineError,
    HoldTimerExpired,
    OpenMessageError,
    ProtocolError,
    SendHoldTimerExpired,
)
from common.bgp.fsm import TABLE, Action, Event, State

NEVER = float("inf")
# RFC 9687 §3.1: the greater of eight minutes and twice the hold time.
SEND_HOLD_TIME_S = 480.0
# The longest pause after errors that were found on this side.
IDLE_HOLD_MAXIMUM_S = 60.0
DAMPING_DOUBLINGS = 3
# Ends of a session after which nothing is to be kept, although graceful restart would allow it (RFC 8538 §5).
HARD_SUBCODES = frozenset(
    {
        CeaseSubcode.ADMINISTRATIVE_SHUTDOWN,
        CeaseSubcode.PEER_DE_CONFIGURED,
        CeaseSubcode.MAXIMUM_NUMBER_OF_PREFIXES_REACHED,
        CeaseSubcode.OUT_OF_RESOURCES,
        CeaseSubcode.HARD_RESET,
    }
)
# RFC 4271 §10 asks for jitter from 0.75 to 1; we stay below 1 so that no KEEPALIVE is later than a third of the time.
KEEPALIVE_JITTER = (0.75, 0.95)
RETRY_JITTER = (0.75, 1.0)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What this side brings to a session, from the configuration."""

    local_asn: int
    router_id: int
    peer_asn: int
    capabilities: Capabilities
    hold_time_s: int = 90
    is_passive: bool = False
    connect_retry_s: float = 5.0
    # How long an OPEN is waited for. RFC 4271 §8.2.2: "a large value", 4 minutes suggested.
    open_hold_time_s: float = 240.0
    # RFC 9687 §3.1; None: the greater of eight minutes and twice the hold time.
    send_hold_time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dial:
    """Begin a TCP connection to the peer."""


@dataclass(frozen=True, slots=True)
class Close:
    """Drop the TCP connection, or the attempt at one, once what was sent before is out."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send these octets."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Up:
    """The session is established."""

    negotiated: Negotiated


@dataclass(frozen=True, slots=True)
class Down:
    """The session, or an attempt at one, has ended; after a graceful end the peer's routes may be kept for a while."""

    reason: str
    was_established: bool
    is_graceful: bool = False


@dataclass(frozen=True, slots=True)
class Refresh:
    """The peer sent a ROUTE-REFRESH (RFC 2918, RFC 7313)."""

    message: messages.RouteRefresh


Output = Dial | Close | Send | Up | Down | Refresh


@dataclass(slots=True)
class SessionRecord:
    """All that a session is, in plain values; times are those of the caller's clock, `NEVER` where a timer is off."""

    state: State = State.IDLE
    is_dialled: bool = False
    retry_count: int = 0
    connect_retry_at: float = NEVER
    idle_hold_at: float = NEVER
    hold_at: float = NEVER
    keepalive_at: float = NEVER
    send_hold_at: float = NEVER
    # While this side does not read, the peer's silence means nothing.
    is_reading_paused: bool = False
    is_stopped: bool = True
    hold_time_s: float = 0.0
    peer_open: messages.Open | None = None
    negotiated: Negotiated | None = None
    connected_at: float | None = None
    established_at: float | None = None
    # When the last session ended.
    ended_at: float | None = None
    # Whether a NOTIFICATION ends this session, and whether it is a Hard Reset (RFC 8538 §3).
    is_notified: bool = False
    is_hard: bool = False
    # What the next NOTIFICATION says, and what ended the last session.
    error: ProtocolError | None = None
    last_error: str = ""
    # Why no connection has come about since.
    call_error: str = ""
    restart_delay_s: float | None = None
    n_established: int = 0
    received: Counter = field(default_factory=Counter)
    sent: Counter = field(default_factory=Counter)


class Session:
    """The state machine of one connection to a neighbor; `outputs` is what the caller has to carry out, in order."""

    def __init__(self, settings: SessionSettings, random: Random, record: SessionRecord | None = None):
        self.settings = settings
        self.random = random
        self.record = record or SessionRecord()
        self.outputs: list[Output] = []

    # ---- what the owner says --------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def is_established(self) -> bool:
        return self.record.state is State.ESTABLISHED

    def start(self, now: float) -> None:
        """Begin: dial, or wait to be called."""
        self.record.is_stopped = False
        self.record.idle_hold_at = NEVER
        self._event(Event.MANUAL_START_PASSIVE if self.settings.is_passive else Event.MANUAL_START, now)

    def stop(self, now: float, subcode: CeaseSubcode, text: str = "", restart_s: float | None = None) -> None:
        """End the session with a Cease; it begins again after `restart_s`, or not at all before `start`."""
        record = self.record
        record.is_stopped = restart_s is None
        record.restart_delay_s = restart_s
        record.error = Cease(subcode, encode_shutdown_text(subcode, text), text)
        self._event(Event.MANUAL_STOP, now)
        if record.state is State.IDLE and restart_s is not None:
            record.idle_hold_at = now + restart_s
        elif restart_s is None:
            record.idle_hold_at = NEVER

    def lapse(self, now: float) -> None:
        """End the session so that the peer keeps our routes if it has agreed to, and do not begin again.

        RFC 4724 §4 knows only a lost connection, RFC 8538 also a NOTIFICATION.
        """
        record = self.record
        restart = record.negotiated.graceful_restart if record.negotiated is not None else None
        if restart is None or restart.has_notification or not self.is_established:
            self.stop(now, CeaseSubcode.ADMINISTRATIVE_RESET)
            return
        record.is_stopped = True
        self.connection_failed(now, "we restart")

    def connected(self, now: float, is_dialled: bool) -> None:
        """A TCP connection is there."""
        self.record.is_dialled = is_dialled
        self.record.connected_at = now
        self.record.call_error = ""
        self.record.is_notified = self.record.is_hard = False
        self._event(Event.TCP_CONNECTED if is_dialled else Event.TCP_ACCEPTED, now)

    def connection_failed(self, now: float, reason: str) -> None:
        """The TCP connection could not be made, or is gone."""
        if self.state < State.OPEN_SENT:
            self.record.call_error = reason  # what ended the last session is still to be known
        else:
            self.record.last_error = reason
        self._event(Event.TCP_FAILS, now)

    def lose_collision(self, now: float) -> None:
        """Another connection to the same peer stays; this one goes (RFC 4271 §6.8)."""
        self.record.error = Cease(CeaseSubcode.CONNECTION_COLLISION_RESOLUTION)
        self._event(Event.COLLISION_DUMP, now)

    def fail(self, error: ProtocolError, now: float) -> None:
        """End the session because of what the peer sent, or because of a fault of our own (a Cease)."""
        self.record.error = error
        self._event(_EVENT_OF_ERROR[error.code], now)

    def pause_reading(self) -> None:
        """This side stops reading for a while: the HoldTimer stands still."""
        self.record.is_reading_paused = True

    def resume_reading(self, now: float) -> None:
        """This side reads again."""
        record = self.record
        record.is_reading_paused = False
        if record.hold_at is not NEVER:
            record.hold_at = max(record.hold_at, now + record.hold_time_s)

    # ---- octets ---------------------------------------------------------------------------------------------------

    def take(self, octets, start: int, end: int, now: float) -> int:
        """Handle the whole message at `start` of a buffer, if there is one; return where the next begins."""
        if self.record.state < State.OPEN_SENT:
            return end
        try:
            header = messages.decode_header(octets, start, end, self.max_message_octets)
        except ProtocolError as error:
            self.fail(error, now)
            return end
        if header is None:
            return start
        kind, length = header
        self.message(kind, bytes(octets[start + HEADER_OCTETS : start + length]), now)
        return start + length

    @property
    def max_message_octets(self) -> int:
        """The longest message the peer may send now; an OPEN or KEEPALIVE is never extended (RFC 8654 §4)."""
        record = self.record
        return record.negotiated.max_message_octets if record.negotiated is not None else MAX_MESSAGE_OCTETS

    def message(self, kind: int, body: bytes, now: float) -> None:
        """Handle one message, given without its header."""
        self.record.received[kind] += 1
        try:
            _HANDLERS[kind](self, body, now)
        except ProtocolError as error:
            self.fail(error, now)

    def scanned(self, n_updates: int, n_keepalives: int, now: float) -> None:
        """Account for messages that the caller has scanned itself while the session is established."""
        if n_updates:
            self.record.received[MessageType.UPDATE] += n_updates
            self._event(Event.UPDATE, now)
        if n_keepalives:
            self.record.received[MessageType.KEEPALIVE] += n_keepalives
            self._event(Event.KEEPALIVE, now)

    def octets_accepted(self, now: float) -> None:
        """The peer's TCP has taken octets: the SendHoldTimer starts again (RFC 9687 §3.1)."""
        if self.record.send_hold_at is not NEVER:
            self.record.send_hold_at = now + self._send_hold_time_s()

    def _on_open(self, body: bytes, now: float) -> None:
        if self.record.state is State.OPEN_SENT:
            self.record.peer_open = validate_open(messages.Open.decode(body), self.settings)
        self._event(Event.OPEN, now)

    def _on_update(self, body: bytes, now: float) -> None:
        self._event(Event.UPDATE, now)

    def _on_notification(self, body: bytes, now: float) -> None:
        notification = messages.Notification.decode(body)
        self.record.last_error = f"received {notification}"
        self.record.is_notified = True
        self.record.is_hard = (notification.code, notification.subcode) == (ErrorCode.CEASE, CeaseSubcode.HARD_RESET)
        is_version = (notification.code, notification.subcode) == (
            ErrorCode.OPEN_MESSAGE_ERROR,
            OpenSubcode.UNSUPPORTED_VERSION_NUMBER,
        )
        self._event(Event.NOTIFICATION_VERSION if is_version else Event.NOTIFICATION, now)

    def _on_keepalive(self, body: bytes, now: float) -> None:
        self._event(Event.KEEPALIVE, now)

    def _on_route_refresh(self, body: bytes, now: float) -> None:
        refresh = messages.RouteRefresh.decode(body)
        self._event(Event.ROUTE_REFRESH, now)
        if self.is_established:
            self.outputs.append(Refresh(refresh))

    # ---- time -----------------------------------------------------------------------------------------------------

    def deadline(self) -> float:
        """Return when `on_time` has to be called next."""
        record = self.record
        hold_at = NEVER if record.is_reading_paused else record.hold_at
        return min(record.connect_retry_at, record.idle_hold_at, hold_at, record.keepalive_at, record.send_hold_at)

    def on_time(self, now: float) -> None:
        """Let every timer that has run out do what it is for."""
        record = self.record
        if now >= record.idle_hold_at:
            record.idle_hold_at = NEVER
            self._restart(now)
        if now >= record.connect_retry_at:
            record.connect_retry_at = NEVER
            self._event(Event.CONNECT_RETRY_TIMER_EXPIRES, now)
        if now >= record.keepalive_at:
            self._event(Event.KEEPALIVE_TIMER_EXPIRES, now)
        if now >= record.hold_at and not record.is_reading_paused:
            record.error = HoldTimerExpired()
            self._event(Event.HOLD_TIMER_EXPIRES, now)
        if now >= record.send_hold_at:
            record.error = SendHoldTimerExpired()
            self._event(Event.SEND_HOLD_TIMER_EXPIRES, now)

    def _send_hold_time_s(self) -> float:
        configured = self.settings.send_hold_time_s
        return configured if configured is not None else max(SEND_HOLD_TIME_S, 2 * self.record.hold_time_s)

    def _keepalive_interval_s(self) -> float:
        return self.record.hold_time_s / 3 * self.random.uniform(*KEEPALIVE_JITTER)

    # ---- the machine ----------------------------------------------------------------------------------------------

    def _event(self, event: Event, now: float) -> None:
        record = self.record
        before = record.state
        transition = TABLE[before, event]
        record.state = transition.state
        for action in transition.actions:
            _ACTIONS[action](self, before, now)
        if record.state is State.IDLE and before is not State.IDLE:
            self._begin_again(before, now)

    def _begin_again(self, before: State, now: float) -> None:
        """Decide when the next attempt begins; errors found on this side make it wait (RFC 4271 §8.1.1)."""
        record = self.record
        error, record.error = record.error, None
        delay, record.restart_delay_s = record.restart_delay_s, None
        if record.is_stopped:
            return
        if delay is None and error is not None and before >= State.OPEN_SENT:
            delay = min(2.0 ** (record.retry_count - 1), IDLE_HOLD_MAXIMUM_S)
        if delay:
            record.idle_hold_at = now + delay
        else:
            self._restart(now)

    def _restart(self, now: float) -> None:
        passive = self.settings.is_passive
        self._event(Event.AUTOMATIC_START_PASSIVE if passive else Event.AUTOMATIC_START_DAMPED, now)

    def _notify(self, error: ProtocolError) -> None:
        record = self.record
        record.last_error = f"sent {error}"
        record.is_notified = True
        record.is_hard = error.code == ErrorCode.CEASE and error.subcode in HARD_SUBCODES
        notification = messages.Notification(error.code, error.subcode, error.data)
        restart = record.negotiated.graceful_restart if record.negotiated is not None else None
        if record.is_hard and restart is not None and restart.has_notification:
            notification = notification.as_hard_reset()
        self._send(MessageType.NOTIFICATION, notification.encode())

    def _send(self, kind: MessageType, octets: bytes) -> None:
        self.record.sent[kind] += 1
        self.outputs.append(Send(octets))

    def _reset_retry_count(self, before: State, now: float) -> None:
        self.record.retry_count = 0

    def _count_retry(self, before: State, now: float) -> None:
        self.record.retry_count += 1

    def _start_connect_retry(self, before: State, now: float) -> None:
        doublings = min(max(self.record.retry_count - 1, 0), DAMPING_DOUBLINGS)
        delay = self.settings.connect_retry_s * 2**doublings * self.random.uniform(*RETRY_JITTER)
        self.record.connect_retry_at = now + delay

    def _stop_connect_retry(self, before: State, now: float) -> None:
        self.record.connect_retry_at = NEVER

    def _dial(self, before: State, now: float) -> None:
        self.outputs.append(Dial())

    def _close(self, before: State, now: float) -> None:
        if before >= State.CONNECT:
            self.outputs.append(Close())

    def _send_open(self, before: State, now: float) -> None:
        settings = self.settings
        self._send(
            MessageType.OPEN,
            messages.Open(
                asn=settings.local_asn,
                hold_time_s=settings.hold_time_s,
                router_id=settings.router_id,
                capabilities=settings.capabilities,
            ).encode(),
        )

    def _send_keepalive(self, before: State, now: float) -> None:
        self._send(MessageType.KEEPALIVE, messages.KEEPALIVE)
        self._start_keepalive(before, now)

    def _send_notification(self, before: State, now: float) -> None:
        if self.record.error is None:
            self.record.error = FiniteStateMachineError(_UNEXPECTED_IN[before])
        self._notify(self.record.error)

    def _send_cease(self, before: State, now: float) -> None:
        if self.record.error is None:
            self.record.error = Cease(CeaseSubcode.UNSPECIFIED)
        self._notify(self.record.error)

    def _start_large_hold(self, before: State, now: float) -> None:
        self.record.hold_time_s = self.settings.open_hold_time_s
        self.record.hold_at = now + self.record.hold_time_s

    def _start_hold(self, before: State, now: float) -> None:
        record = self.record
        record.hold_at = now + record.hold_time_s if record.hold_time_s else NEVER

    def _start_keepalive(self, before: State, now: float) -> None:
        record = self.record
        record.keepalive_at = now + self._keepalive_interval_s() if record.hold_time_s else NEVER

    def _start_send_hold(self, before: State, now: float) -> None:
        self.record.send_hold_at = now + self._send_hold_time_s() if self.record.hold_time_s else NEVER

    def _stop_timers(self, before: State, now: float) -> None:
        record = self.record
        record.connect_retry_at = record.hold_at = record.keepalive_at = record.send_hold_at = NEVER
        record.is_reading_paused = False

    def _negotiate(self, before: State, now: float) -> None:
        record = self.record
        record.negotiated = negotiate(self.settings.capabilities, record.peer_open.capabilities)
        # RFC 4271 §4.2: the smaller of the two.
        record.hold_time_s = float(min(self.settings.hold_time_s, record.peer_open.hold_time_s))

    def _report_up(self, before: State, now: float) -> None:
        record = self.record
        record.established_at = now
        record.n_established += 1
        record.retry_count = 0
        self.outputs.append(Up(record.negotiated))

    def _release(self, before: State, now: float) -> None:
        record = self.record
        was_established = before is State.ESTABLISHED
        is_graceful = was_established and self._ends_gracefully()
        record.established_at = None
        record.ended_at = now if was_established else record.ended_at
        record.negotiated = None
        record.peer_open = None
        reason = record.call_error or record.last_error
        self.outputs.append(Down(reason, was_established, is_graceful))

    def _ends_gracefully(self) -> bool:
        """RFC 4724 §4.2, for a lost connection; RFC 8538 §4, where both sides said so, for NOTIFICATIONs too."""
        record = self.record
        restart = record.negotiated.graceful_restart
        if restart is None:
            return False
        return not record.is_notified or (restart.has_notification and not record.is_hard)


_EVENT_OF_ERROR = {
    ErrorCode.MESSAGE_HEADER_ERROR: Event.HEADER_ERROR,
    ErrorCode.OPEN_MESSAGE_ERROR: Event.OPEN_ERROR,
    ErrorCode.UPDATE_MESSAGE_ERROR: Event.UPDATE_ERROR,
    ErrorCode.ROUTE_REFRESH_MESSAGE_ERROR: Event.UPDATE_ERROR,
    ErrorCode.FINITE_STATE_MACHINE_ERROR: Event.UPDATE_ERROR,
    ErrorCode.CEASE: Event.AUTOMATIC_STOP,
}

# RFC 6608 §4
_UNEXPECTED_IN = {
    State.OPEN_SENT: FiniteStateMachineSubcode.UNEXPECTED_MESSAGE_IN_OPEN_SENT,
    State.OPEN_CONFIRM: FiniteStateMachineSubcode.UNEXPECTED_MESSAGE_IN_OPEN_CONFIRM,
    State.ESTABLISHED: FiniteStateMachineSubcode.UNEXPECTED_MESSAGE_IN_ESTABLISHED,
}

_HANDLERS = {
    MessageType.OPEN: Session._on_open,
    MessageType.UPDATE: Session._on_update,
    MessageType.NOTIFICATION: Session._on_notification,
    MessageType.KEEPALIVE: Session._on_keepalive,
    MessageType.ROUTE_REFRESH: Session._on_route_refresh,
}

_ACTIONS = {
    Action.RESET_RETRY_COUNT: Session._reset_retry_count,
    Action.COUNT_RETRY: Session._count_retry,
    Action.START_CONNECT_RETRY: Session._start_connect_retry,
    Action.DAMP_CONNECT_RETRY: Session._start_connect_retry,
    Action.STOP_CONNECT_RETRY: Session._stop_connect_retry,
    Action.DIAL: Session._dial,
    Action.CLOSE: Session._close,
    Action.SEND_OPEN: Session._send_open,
    Action.SEND_KEEPALIVE: Session._send_keepalive,
    Action.SEND_NOTIFICATION: Session._send_notification,
    Action.SEND_CEASE: Session._send_cease,
    Action.START_LARGE_HOLD: Session._start_large_hold,
    Action.START_HOLD: Session._start_hold,
    Action.START_KEEPALIVE: Session._start_keepalive,
    Action.START_SEND_HOLD: Session._start_send_hold,
    Action.STOP_TIMERS: Session._stop_timers,
    Action.NEGOTIATE: Session._negotiate,
    Action.REPORT_UP: Session._report_up,
    Action.RELEASE: Session._release,
}


def validate_open(received: messages.Open, settings: SessionSettings) -> messages.Open:
    """Return the OPEN if this side can have a session with its sender, or raise an OpenMessageError (RFC 4271 §6.2)."""
    if received.asn != settings.peer_asn:
        raise OpenMessageError(OpenSubcode.BAD_PEER_AS, text=f"AS {received.asn}, configured is {settings.peer_asn}")
    # RFC 6286 §2.2: an internal peer has another identifier than we.
    if received.asn == settings.local_asn and received.router_id == settings.router_id:
        raise OpenMessageError(
            OpenSubcode.BAD_BGP_IDENTIFIER, received.router_id.to_bytes(4, "big"), "the peer has our own identifier"
        )
    if not negotiate(settings.capabilities, received.capabilities).families:
        # RFC 5492 §5: the Data field lists what is missing.
        raise OpenMessageError(
            OpenSubcode.UNSUPPORTED_CAPABILITY, settings.capabilities.encode_families(), "no family in common"
        )
    return received


def collision_loser(first: Session, second: Session) -> Session | None:
    """Return which of two connections to one peer has to go, None while both may stay (RFC 4271 §6.8)."""
    for session, other in ((first, second), (second, first)):
        # A connection that has not been given an OPEN yet may still turn out to be somebody else's.
        if session.is_established and other.state is not State.OPEN_SENT:
            return session if _has_restarted(session.record, other.record) else other
    if not first.state is second.state is State.OPEN_CONFIRM:
        return None
    settings, peer = first.settings, first.record.peer_open
    # RFC 6286 §2.3: equal identifiers of external peers are told apart by AS number.
    is_ours_higher = (settings.router_id, settings.local_asn) > (peer.router_id, peer.asn)
    # The connection begun by the side with the higher identifier stays.
    return first if first.record.is_dialled != is_ours_higher else second


def _has_restarted(established: SessionRecord, other: SessionRecord) -> bool:
    """Tell whether a peer that connects anew has lost the session that we still hold for established.

    RFC 4724 §4.2. A connection begun before the other was established is a collision as any.
    """
    is_graceful = established.negotiated.graceful_restart is not None
    return is_graceful and other.connected_at is not None and other.connected_at > established.established_at


def encode_shutdown_text(subcode: int, text: str) -> bytes:
    """Return the Data field of a Cease that carries a text for the peer's operator (RFC 9003 §2), empty without one."""
    if not text or subcode not in (CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, CeaseSubcode.ADMINISTRATIVE_RESET):
        return b""
    octets = text.encode()[:255].decode(errors="ignore").encode()
    return bytes((len(octets),)) + octets
