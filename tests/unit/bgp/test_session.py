"""A session without I/O: octets and times in, outputs out."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bgp.capabilities import Capabilities
from common.bgp.constants import CeaseSubcode, ErrorCode, Family, MessageType, UpdateSubcode
from common.bgp.errors import UpdateMessageError
from common.bgp.fsm import State
from common.bgp.messages import KEEPALIVE, Notification, Open, RouteRefresh, encode_message
from common.bgp.session import (
    NEVER,
    Close,
    Dial,
    Down,
    Refresh,
    Send,
    Session,
    SessionSettings,
    Up,
    collision_loser,
    encode_shutdown_text,
)

US, PEER = 65000, 64601
PEER_OPEN = Open(PEER, 30, 0x0A000002, Capabilities(tuple(Family), asn4=PEER))


def make(is_passive=True, **changes) -> Session:
    capabilities = Capabilities(tuple(Family), asn4=US, route_refresh=True, extended_message=True)
    values = dict(local_asn=US, router_id=0x0A000001, peer_asn=PEER, capabilities=capabilities, is_passive=is_passive)
    return Session(SessionSettings(**values | changes), Random(1))


def taken(session: Session) -> list:
    outputs, session.outputs[:] = list(session.outputs), []
    return outputs


def give(session: Session, octets: bytes, now: float = 0.0) -> list:
    """Hand octets in as a stage does, until nothing more is consumed; return the outputs."""
    start = 0
    while start < len(octets):
        following = session.take(memoryview(octets), start, len(octets), now)
        if following == start:
            break
        start = following
    return taken(session)


def established(now: float = 0.0, **changes) -> Session:
    session = make(**changes)
    session.start(now)
    session.connected(now, is_dialled=False)
    give(session, PEER_OPEN.encode() + KEEPALIVE, now)
    assert session.state is State.ESTABLISHED
    return session


def notification(outputs: list) -> tuple[int, int]:
    """Return code and subcode of the one NOTIFICATION among the outputs."""
    (octets,) = [output.octets for output in outputs if type(output) is Send and output.octets[18] == 3]
    return octets[19], octets[20]


def test_passive_session_comes_up():
    """A session that is called sends OPEN, confirms the peer's, and is up with the first KEEPALIVE."""
    session = make()
    session.start(0.0)
    assert taken(session) == [] and session.state is State.ACTIVE
    session.connected(1.0, is_dialled=False)
    (sent,) = taken(session)
    assert Open.decode(sent.octets[19:]).asn == US
    assert give(session, PEER_OPEN.encode(), 1.0) == [Send(KEEPALIVE)]
    (up,) = give(session, KEEPALIVE, 1.0)
    assert type(up) is Up and up.negotiated.families == tuple(Family) and up.negotiated.as4


def test_active_session_dials():
    """A session that calls asks for a connection at once, and again when that fails, after a pause."""
    session = make(is_passive=False)
    session.start(0.0)
    assert taken(session) == [Dial()]
    session.connection_failed(0.1, "Connection refused")
    assert taken(session)[-1] == Down("Connection refused", False)
    assert 3.0 < session.deadline() < 5.2
    session.on_time(session.deadline())
    assert taken(session) == [Dial()]


def test_pauses_between_attempts_grow_and_end():
    """The pause doubles with each failure, to eight times the first."""
    session = make(is_passive=False, connect_retry_s=4.0)
    session.start(0.0)
    pauses = []
    now = 0.0
    for _ in range(7):
        session.connection_failed(now, "refused")
        pauses.append(session.deadline() - now)
        now = session.deadline()
        session.on_time(now)
    assert pauses[0] <= 4.0 and all(3.0 * 2**i <= pauses[i] <= 4.0 * 2**i for i in range(4))
    assert max(pauses) <= 32.0


def test_hold_time_is_the_smaller():
    """The smaller of both proposals counts, and KEEPALIVEs go within a third of it (RFC 4271 §4.2, §4.4)."""
    session = established()
    assert session.record.hold_time_s == 30
    assert session.record.hold_at == 30.0
    assert 7.5 <= session.record.keepalive_at <= 10.0


def test_hold_timer_ends_the_session():
    """Silence for the hold time ends the session with Hold Timer Expired."""
    session = established()
    session.on_time(30.0)
    outputs = taken(session)
    assert notification(outputs) == (ErrorCode.HOLD_TIMER_EXPIRED, 0)
    assert Close() in outputs and outputs[-1].was_established


def test_keepalive_restarts_the_hold_timer():
    """Any message that may come when established restarts the HoldTimer."""
    session = established()
    give(session, KEEPALIVE, 20.0)
    assert session.record.hold_at == 50.0
    session.scanned(n_updates=3, n_keepalives=0, now=21.0)
    assert session.record.hold_at == 51.0 and session.record.received[MessageType.UPDATE] == 3


def test_hold_timer_stands_still_while_reading_is_paused():
    """A peer whose octets we leave unread is not called silent."""
    session = established()
    session.pause_reading()
    session.on_time(100.0)
    assert session.state is State.ESTABLISHED
    assert session.deadline() < 120.0
    session.resume_reading(100.0)
    assert session.record.hold_at == 130.0
    session.on_time(130.0)
    assert session.state is not State.ESTABLISHED


def test_keepalives_go_on():
    """KEEPALIVEs are sent again and again, each within a third of the hold time of the one before."""
    session = established()
    times = []
    now = 0.0
    while now < 100.0:
        now = session.record.keepalive_at
        session.record.hold_at = NEVER
        session.on_time(now)
        assert taken(session) == [Send(KEEPALIVE)]
        times.append(now)
    assert max(later - sooner for sooner, later in zip([0.0, *times], times, strict=False)) <= 10.0


def test_hold_time_zero_needs_no_keepalives():
    """With a hold time of 0 neither side sends KEEPALIVEs or expects them."""
    session = established(hold_time_s=0)
    assert session.deadline() == NEVER


def test_send_hold_timer():
    """A peer that takes no octets for eight minutes loses its session (RFC 9687)."""
    session = established()
    assert session.record.send_hold_at == 480.0
    session.octets_accepted(100.0)
    session.record.hold_at = NEVER
    session.on_time(579.0)
    taken(session)
    assert session.state is State.ESTABLISHED
    session.on_time(580.0)
    assert notification(taken(session))[0] == ErrorCode.SEND_HOLD_TIMER_EXPIRED


@pytest.mark.parametrize(
    ("opened", "expected"),
    [
        (Open(64999, 90, 1), (2, 2)),
        (Open(PEER, 2, 1), (2, 6)),
        (Open(PEER, 90, 0), (2, 3)),
    ],
)
def test_unacceptable_open(opened, expected):
    """An OPEN with which no session can be had is answered with what is wrong with it (RFC 4271 §6.2)."""
    session = make()
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    taken(session)
    assert notification(give(session, opened.encode())) == expected


def test_no_family_in_common():
    """A peer without a family of ours is told which we miss (RFC 5492 §5)."""
    session = make(capabilities=Capabilities((Family.IPV6_UNICAST,), asn4=US))
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    taken(session)
    outputs = give(session, Open(PEER, 90, 1).encode())
    assert notification(outputs) == (2, 7)
    assert outputs[0].octets[21:] == bytes([1, 4, 0, 2, 0, 1])


def test_internal_peer_with_our_identifier():
    """An internal peer with our own identifier is refused (RFC 6286 §2.2)."""
    session = make(peer_asn=US)
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    taken(session)
    assert notification(give(session, Open(US, 90, 0x0A000001).encode())) == (2, 3)


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        (b"\0" * 19, (1, 1)),
        (b"\xff" * 16 + b"\0\x12\x04", (1, 2)),
        (b"\xff" * 16 + b"\0\x13\x09", (1, 3)),
        (encode_message(MessageType.UPDATE, b"\0\0\0\0"), (5, 1)),
        (KEEPALIVE, (5, 1)),
    ],
)
def test_wrong_message_before_the_open(octets, expected):
    """Headers that are wrong, and messages whose time has not come, end the session (RFC 4271 §6.1, RFC 6608)."""
    session = make()
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    taken(session)
    assert notification(give(session, octets)) == expected


def test_second_open_is_an_error():
    """An OPEN in Established is an FSM error (RFC 6608 §3)."""
    assert notification(give(established(), PEER_OPEN.encode())) == (5, 3)


def test_errors_make_the_next_attempt_wait():
    """After an error found on this side the session stays Idle for a while, longer each time, a minute at most."""
    session = make()
    session.start(0.0)
    waits = []
    now = 0.0
    for _ in range(9):
        session.connected(now, is_dialled=False)
        give(session, b"\0" * 19, now)
        assert session.state is State.IDLE
        waits.append(session.deadline() - now)
        now = session.deadline()
        session.on_time(now)
        assert session.state is State.ACTIVE
    assert waits[:3] == [1.0, 2.0, 4.0] and waits[-1] == 60.0


def test_lost_connection_is_open_to_the_peer_at_once():
    """A session that was lost listens again at once; only our own dialing waits."""
    session = established(is_passive=False)
    session.connection_failed(5.0, "reset")
    assert session.state is State.ACTIVE
    assert session.record.connect_retry_at > 5.0


def test_stopped_session_stays_idle():
    """A session stopped by hand says so to the peer, with the operator's words, and starts only by hand."""
    session = established()
    session.stop(1.0, CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, "maintenance")
    outputs = taken(session)
    sent = next(output.octets for output in outputs if type(output) is Send)
    assert Notification.decode(sent[19:]).shutdown_text == "maintenance"
    assert session.state is State.IDLE and session.deadline() == NEVER
    session.start(2.0)
    assert session.state is State.ACTIVE


def test_stopped_session_can_restart_by_itself():
    """A session that ended for too many prefixes comes back after the configured time."""
    session = established()
    session.stop(1.0, CeaseSubcode.MAXIMUM_NUMBER_OF_PREFIXES_REACHED, restart_s=300.0)
    assert session.state is State.IDLE and session.deadline() == 301.0
    session.on_time(301.0)
    assert session.state is State.ACTIVE


def test_error_of_the_caller_becomes_a_notification():
    """An UPDATE error found by the scan ends the session with its code, subcode and data."""
    session = established()
    session.fail(UpdateMessageError(UpdateSubcode.MALFORMED_ATTRIBUTE_LIST, b"\x01"), 1.0)
    outputs = taken(session)
    assert notification(outputs) == (3, 1)
    assert outputs[0].octets[21:] == b"\x01"


def test_notification_received():
    """A peer's NOTIFICATION ends the session with its words kept, and is not answered."""
    session = established()
    outputs = give(session, Notification(6, 2, b"\x03bye").encode(), 1.0)
    assert not [output for output in outputs if type(output) is Send]
    assert 'Administrative Shutdown "bye"' in session.record.last_error


def test_what_ended_a_session_is_known_while_calls_fail():
    """A call that fails has a reason of its own, which goes with the first connection."""
    session = established()
    give(session, Notification(6, 2, b"\x03bye").encode(), 1.0)
    session.connection_failed(2.0, "Connection refused")
    assert '"bye"' in session.record.last_error and session.record.call_error == "Connection refused"
    session.connected(3.0, is_dialled=True)
    session.connection_failed(4.0, "Connection reset by peer")
    assert (session.record.last_error, session.record.call_error) == ("Connection reset by peer", "")


def test_route_refresh_is_reported():
    """A ROUTE-REFRESH of an established peer is handed on."""
    refresh = RouteRefresh(1, 1)
    assert give(established(), refresh.encode()) == [Refresh(refresh)]


def test_peer_with_two_octet_numbers():
    """A peer that knows no four-octet AS numbers is known by its two-octet one."""
    session = make()
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    give(session, Open(PEER, 90, 7).encode() + KEEPALIVE)
    assert session.is_established and not session.record.negotiated.as4
    assert session.record.negotiated.families == (Family.IPV4_UNICAST,)


@pytest.mark.parametrize(("our_id", "loser_is_dialled"), [(0x0A000001, True), (0x0A000003, False)])
def test_collision(our_id, loser_is_dialled):
    """Of two connections the one begun by the side with the higher identifier stays (RFC 4271 §6.8)."""
    sessions = [make(router_id=our_id), make(router_id=our_id)]
    for session, is_dialled in zip(sessions, (True, False), strict=True):
        session.start(0.0)
        session.connected(0.0, is_dialled)
    give(sessions[0], PEER_OPEN.encode())
    assert collision_loser(*sessions) is None
    give(sessions[1], PEER_OPEN.encode())
    assert collision_loser(*sessions).record.is_dialled is loser_is_dialled
    assert collision_loser(*reversed(sessions)).record.is_dialled is loser_is_dialled


def test_collision_with_an_established_session():
    """An established session stays, whoever begun the other connection."""
    first, second = established(), make()
    second.start(0.0)
    second.connected(0.0, is_dialled=False)
    assert collision_loser(first, second) is None
    give(second, PEER_OPEN.encode())
    assert collision_loser(first, second) is second
    second.lose_collision(0.0)
    assert notification(taken(second)) == (6, 7)


def test_shutdown_text_is_cut_between_characters():
    """A text too long is cut to 255 octets of whole characters (RFC 9003 §2)."""
    data = encode_shutdown_text(CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, "é" * 200)
    assert data[0] == 254 and data[1:].decode() == "é" * 127


@settings(max_examples=200, deadline=None)
@given(octets=st.binary(max_size=120), cut=st.integers(0, 120))
def test_arbitrary_octets_end_in_a_state_of_the_table(octets, cut):
    """Whatever a peer sends, in whatever pieces, the session answers with a state and never raises."""
    session = make()
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    give(session, PEER_OPEN.encode() + octets[:cut])
    give(session, octets[cut:])
    assert session.state in State


def test_open_octet_by_octet():
    """An OPEN that comes in single octets is handled once it is whole."""
    session = make()
    session.start(0.0)
    session.connected(0.0, is_dialled=False)
    taken(session)
    octets = PEER_OPEN.encode()
    for end in range(1, len(octets)):
        assert session.take(memoryview(octets), 0, end, 0.0) == 0
    assert session.take(memoryview(octets), 0, len(octets), 0.0) == len(octets)
    assert session.state is State.OPEN_CONFIRM
