"""The table of the state machine."""

import pytest

from common.bgp.fsm import TABLE, Action, Event, State

BACK_TO_IDLE = [(state, event) for (state, event), row in TABLE.items() if row.state is State.IDLE is not state]


def test_has_a_row_for_every_state_and_event():
    """Nothing that happens finds the machine without an answer."""
    assert set(TABLE) == {(state, event) for state in State for event in Event}


@pytest.mark.parametrize(("state", "event"), BACK_TO_IDLE)
def test_every_way_back_to_idle_cleans_up(state, event):
    """A session that ends stops its timers, drops its connection and releases what it held (RFC 4271 §8.2.2)."""
    actions = TABLE[state, event].actions
    assert {Action.STOP_TIMERS, Action.CLOSE, Action.RELEASE} <= set(actions)


@pytest.mark.parametrize("state", [State.OPEN_SENT, State.OPEN_CONFIRM, State.ESTABLISHED])
def test_notification_is_not_answered(state):
    """A NOTIFICATION is never sent in answer to one (RFC 4271 §6.4)."""
    for event in (Event.NOTIFICATION, Event.NOTIFICATION_VERSION, Event.TCP_FAILS):
        assert not {Action.SEND_NOTIFICATION, Action.SEND_CEASE} & set(TABLE[state, event].actions)


@pytest.mark.parametrize("state", [State.OPEN_SENT, State.OPEN_CONFIRM, State.ESTABLISHED])
def test_farewell_goes_before_the_connection(state):
    """What tells the peer why comes before the connection is dropped."""
    for event in (Event.MANUAL_STOP, Event.AUTOMATIC_STOP, Event.HOLD_TIMER_EXPIRES, Event.COLLISION_DUMP):
        actions = TABLE[state, event].actions
        sending = next(action for action in actions if action in (Action.SEND_CEASE, Action.SEND_NOTIFICATION))
        assert actions.index(sending) < actions.index(Action.CLOSE)


def test_only_open_confirm_reports_up():
    """A session is up exactly when a KEEPALIVE answers our OPEN's acceptance."""
    reporting = [key for key, row in TABLE.items() if Action.REPORT_UP in row.actions]
    assert reporting == [(State.OPEN_CONFIRM, Event.KEEPALIVE)]


def test_starts_are_ignored_once_started():
    """Starting what has started changes nothing."""
    for state in list(State)[1:]:
        for event in (Event.MANUAL_START, Event.AUTOMATIC_START, Event.AUTOMATIC_START_DAMPED):
            assert TABLE[state, event] == ((), state)
