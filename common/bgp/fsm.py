"""The BGP finite state machine as a table: what each event does in each state, and nothing else may change a state.

Owns the states, the events (numbered as in RFC 4271 §8.1) and `TABLE`, which has a row for every (state, event).
Never performs an action, never reads a clock, never raises: `common.bgp.session` carries the actions out.

RFC 4271 §8.2.2 (the machine), RFC 9687 (SendHoldTimer), RFC 6608 (subcodes of the FSM error). Left out, because they
are optional and unused: DelayOpen (events 12 and 20), tracking of a connection before it is complete (14 and 15).

Departures, each marked where it stands in the table:

- A passive session in Active does not dial: its ConnectRetryTimer never runs.
- After a session is lost through no error found here, the next one begins in Active, not Idle: it is damped (RFC 4271
  §8.1.1 leaves the way to the implementation) by delaying only our own dialing, while we go on listening.
- A NOTIFICATION is never answered with a NOTIFICATION, not even in OpenSent (RFC 4271 §8.2.2 asks for one there, §6.4
  forbids it).
- A KEEPALIVE may also be followed at once by UPDATEs; a ROUTE-REFRESH (RFC 2918) counts as an UPDATE does.
"""

from enum import Enum, IntEnum
from typing import NamedTuple


class State(IntEnum):
    """States of a session (RFC 4271 §8.2.2)."""

    __hash__ = int.__hash__  # of each message the table below is asked; IntEnum's own is a call of Python

    IDLE = 1
    CONNECT = 2
    ACTIVE = 3
    OPEN_SENT = 4
    OPEN_CONFIRM = 5
    ESTABLISHED = 6

    @property
    def label(self) -> str:
        """The state's name as the RFC writes it."""
        return self.name.title().replace("_", "")


class Event(IntEnum):
    """Events with their numbers of RFC 4271 §8.1; 29 is from RFC 9687, 30 stands for a ROUTE-REFRESH."""

    __hash__ = int.__hash__

    MANUAL_START = 1
    MANUAL_STOP = 2
    AUTOMATIC_START = 3
    MANUAL_START_PASSIVE = 4
    AUTOMATIC_START_PASSIVE = 5
    AUTOMATIC_START_DAMPED = 6
    AUTOMATIC_STOP = 8
    CONNECT_RETRY_TIMER_EXPIRES = 9
    HOLD_TIMER_EXPIRES = 10
    KEEPALIVE_TIMER_EXPIRES = 11
    TCP_CONNECTED = 16
    TCP_ACCEPTED = 17
    TCP_FAILS = 18
    OPEN = 19
    HEADER_ERROR = 21
    OPEN_ERROR = 22
    COLLISION_DUMP = 23
    NOTIFICATION_VERSION = 24
    NOTIFICATION = 25
    KEEPALIVE = 26
    UPDATE = 27
    UPDATE_ERROR = 28
    SEND_HOLD_TIMER_EXPIRES = 29
    ROUTE_REFRESH = 30


class Action(Enum):
    """What a transition does, in the order the table gives."""

    RESET_RETRY_COUNT = "set ConnectRetryCounter to zero"
    COUNT_RETRY = "increment ConnectRetryCounter"
    START_CONNECT_RETRY = "restart the ConnectRetryTimer"
    DAMP_CONNECT_RETRY = "restart the ConnectRetryTimer, later with every failure"
    STOP_CONNECT_RETRY = "stop the ConnectRetryTimer"
    DIAL = "begin a TCP connection"
    CLOSE = "drop the TCP connection, or the attempt at one"
    SEND_OPEN = "send an OPEN"
    SEND_KEEPALIVE = "send a KEEPALIVE and restart the KeepaliveTimer"
    SEND_NOTIFICATION = "send the NOTIFICATION that says what was wrong"
    SEND_CEASE = "send a NOTIFICATION with code Cease"
    START_LARGE_HOLD = "start the HoldTimer with a large value"
    START_HOLD = "start the HoldTimer with the negotiated value"
    START_KEEPALIVE = "start the KeepaliveTimer"
    START_SEND_HOLD = "start the SendHoldTimer"
    STOP_TIMERS = "stop all timers"
    NEGOTIATE = "take over what both OPENs have in common"
    REPORT_UP = "report the session established"
    RELEASE = "release all that belonged to the session and report its end"


class Transition(NamedTuple):
    """One row of the table."""

    actions: tuple[Action, ...]
    state: State


def _row(*actions: Action, to: State) -> Transition:
    return Transition(actions, to)


_A = Action
_S = State
_E = Event

# What every way back to Idle ends with.
_QUIT = (_A.STOP_TIMERS, _A.CLOSE, _A.RELEASE)
_FAIL = _row(*_QUIT, _A.COUNT_RETRY, to=_S.IDLE)
_FAIL_WITH_NOTIFICATION = _row(_A.SEND_NOTIFICATION, *_QUIT, _A.COUNT_RETRY, to=_S.IDLE)
_CEASE = _row(_A.SEND_CEASE, *_QUIT, _A.COUNT_RETRY, to=_S.IDLE)
_CEASE_BY_HAND = _row(_A.SEND_CEASE, *_QUIT, _A.RESET_RETRY_COUNT, to=_S.IDLE)
_STOP = _row(*_QUIT, _A.RESET_RETRY_COUNT, to=_S.IDLE)
_OPENING = _row(_A.STOP_CONNECT_RETRY, _A.SEND_OPEN, _A.START_LARGE_HOLD, to=_S.OPEN_SENT)

_STARTS = (_E.MANUAL_START, _E.AUTOMATIC_START, _E.MANUAL_START_PASSIVE, _E.AUTOMATIC_START_PASSIVE)
_ALL_STARTS = (*_STARTS, _E.AUTOMATIC_START_DAMPED)


def _ignoring_starts(state: State) -> dict[Event, Transition]:
    return {event: _row(to=state) for event in _ALL_STARTS}


# For each state: its own rows, and the row for every event not named.
_STATES: dict[State, tuple[dict[Event, Transition], Transition]] = {
    _S.IDLE: (
        {
            _E.MANUAL_START: _row(_A.RESET_RETRY_COUNT, _A.START_CONNECT_RETRY, _A.DIAL, to=_S.CONNECT),
            _E.AUTOMATIC_START: _row(_A.RESET_RETRY_COUNT, _A.START_CONNECT_RETRY, _A.DIAL, to=_S.CONNECT),
            # Departure: no ConnectRetryTimer, a passive session only listens.
            _E.MANUAL_START_PASSIVE: _row(_A.RESET_RETRY_COUNT, to=_S.ACTIVE),
            _E.AUTOMATIC_START_PASSIVE: _row(to=_S.ACTIVE),
            # Departure: listen while damped.
            _E.AUTOMATIC_START_DAMPED: _row(_A.DAMP_CONNECT_RETRY, to=_S.ACTIVE),
        },
        _row(to=_S.IDLE),
    ),
    _S.CONNECT: (
        _ignoring_starts(_S.CONNECT)
        | {
            _E.MANUAL_STOP: _STOP,
            _E.CONNECT_RETRY_TIMER_EXPIRES: _row(_A.CLOSE, _A.START_CONNECT_RETRY, _A.DIAL, to=_S.CONNECT),
            _E.TCP_CONNECTED: _OPENING,
            _E.TCP_ACCEPTED: _OPENING,
        },
        _FAIL,
    ),
    _S.ACTIVE: (
        _ignoring_starts(_S.ACTIVE)
        | {
            _E.MANUAL_STOP: _STOP,
            _E.CONNECT_RETRY_TIMER_EXPIRES: _row(_A.START_CONNECT_RETRY, _A.DIAL, to=_S.CONNECT),
            _E.TCP_CONNECTED: _OPENING,
            _E.TCP_ACCEPTED: _OPENING,
        },
        _FAIL,
    ),
    _S.OPEN_SENT: (
        _ignoring_starts(_S.OPEN_SENT)
        | {
            _E.MANUAL_STOP: _CEASE_BY_HAND,
            _E.AUTOMATIC_STOP: _CEASE,
            _E.COLLISION_DUMP: _CEASE,
            # RFC 4271 goes to Active with the ConnectRetryTimer running; by way of Idle and the damped start that
            # follows, so do we.
            _E.TCP_FAILS: _FAIL,
            _E.NOTIFICATION_VERSION: _FAIL,
            _E.NOTIFICATION: _FAIL,  # departure: not answered
            _E.OPEN: _row(
                _A.STOP_CONNECT_RETRY,
                _A.NEGOTIATE,
                _A.SEND_KEEPALIVE,
                _A.START_KEEPALIVE,
                _A.START_HOLD,
                to=_S.OPEN_CONFIRM,
            ),
        },
        _FAIL_WITH_NOTIFICATION,
    ),
    _S.OPEN_CONFIRM: (
        _ignoring_starts(_S.OPEN_CONFIRM)
        | {
            _E.MANUAL_STOP: _CEASE_BY_HAND,
            _E.AUTOMATIC_STOP: _CEASE,
            _E.COLLISION_DUMP: _CEASE,
            _E.KEEPALIVE_TIMER_EXPIRES: _row(_A.SEND_KEEPALIVE, to=_S.OPEN_CONFIRM),
            _E.TCP_FAILS: _FAIL,
            _E.NOTIFICATION_VERSION: _FAIL,
            _E.NOTIFICATION: _FAIL,
            _E.KEEPALIVE: _row(
                _A.START_HOLD,
                _A.START_SEND_HOLD,
                _A.REPORT_UP,
                to=_S.ESTABLISHED,
            ),
        },
        _FAIL_WITH_NOTIFICATION,
    ),
    _S.ESTABLISHED: (
        _ignoring_starts(_S.ESTABLISHED)
        | {
            _E.MANUAL_STOP: _CEASE_BY_HAND,
            _E.AUTOMATIC_STOP: _CEASE,
            _E.COLLISION_DUMP: _CEASE,
            _E.KEEPALIVE_TIMER_EXPIRES: _row(_A.SEND_KEEPALIVE, to=_S.ESTABLISHED),
            _E.TCP_FAILS: _FAIL,
            _E.NOTIFICATION_VERSION: _FAIL,
            _E.NOTIFICATION: _FAIL,
            _E.KEEPALIVE: _row(_A.START_HOLD, to=_S.ESTABLISHED),
            _E.UPDATE: _row(_A.START_HOLD, to=_S.ESTABLISHED),
            _E.ROUTE_REFRESH: _row(_A.START_HOLD, to=_S.ESTABLISHED),
        },
        # With RFC 9687 §3.2 also the SendHoldTimer: the NOTIFICATION may not get through, the connection goes anyway.
        _FAIL_WITH_NOTIFICATION,
    ),
}

TABLE: dict[tuple[State, Event], Transition] = {
    (state, event): rows.get(event, default) for state, (rows, default) in _STATES.items() for event in Event
}
