"""Sessions that this side calls for, and connections that collide."""

import socket

import pytest

from common.bgp.capabilities import Capabilities
from common.bgp.constants import CeaseSubcode, Family
from common.bgp.messages import KEEPALIVE, Open
from common.bgp.session import State
from tests.unit.stages.speaker.conftest import Peer, Router

DIALED = """
[[neighbor]]
name = "c"
address = "127.0.0.30"
local_address = "127.0.0.1"
port = {port}
asn = 64603
hold_time_s = 30
connect_retry_s = 5
"""


class Called(Peer):
    """A peer that waits to be called, and may call too."""

    def __init__(self, router: Router, listener: socket.socket):
        self.listener = listener
        self.router = router
        self.messages, self.is_closed, self._rest, self._asn = [], False, b"", 64603
        self._address = "127.0.0.30"
        self.sock = None

        def is_called() -> bool:
            try:
                self.sock = listener.accept()[0]
            except BlockingIOError:
                return False
            return True

        router.run_until(is_called)
        self.sock.setblocking(False)


@pytest.fixture
def listener():
    """A socket at the address of the neighbor that is called."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.30", 0))
        sock.setblocking(False)
        yield sock


@pytest.fixture
def router(listener):
    """A speaker with a neighbor that it calls."""
    made = Router(DIALED.format(port=listener.getsockname()[1]))
    yield made
    made.close()


def answer_calls(router: Router, listener: socket.socket) -> None:
    """Let the first call fail, and the next one, which is due, be answered."""
    router.run_until(lambda: "refused" in router.speaker.neighbors.get("c").peering.session.record.call_error)
    listener.listen()
    router.clock.advance(5.0)


def opened(router_id: int) -> bytes:
    return Open(64603, 30, router_id, Capabilities(asn4=64603)).encode()


def test_calls_and_comes_up(router, listener):
    """A neighbor that is not passive is called from the configured address, and the session comes up."""
    answer_calls(router, listener)
    peer = Called(router, listener)
    assert peer.sock.getpeername()[0] == "127.0.0.1"
    peer.take(1)
    peer.send(opened(9) + KEEPALIVE)
    router.run_until(lambda: router.speaker.neighbors.get("c").is_established)


def test_calls_again_after_a_refusal(router, listener):
    """A call that is refused is made again after the configured pause, with the reason kept for show."""
    router.run_until(lambda: "refused" in router.speaker.neighbors.get("c").peering.session.record.call_error)
    neighbor = router.speaker.neighbors.get("c")
    assert neighbor.peering.session.state is State.ACTIVE
    neighbor.peering.session.record.last_error = "sent Hold Timer Expired"
    assert router.ask("neighbor", name="c")["last_error"].startswith("sent Hold Timer Expired; since then: ")
    listener.listen()
    router.clock.advance(5.0)
    Called(router, listener).take(1)


def connect_in(router) -> Peer:
    peer = Peer.__new__(Peer)
    peer.router, peer.messages, peer.is_closed, peer._rest, peer._asn = router, [], False, b"", 64603
    peer.sock = socket.socket()
    peer.sock.bind(("127.0.0.30", 0))
    peer.sock.setblocking(False)
    peer.sock.connect_ex(("127.0.0.1", router.port))
    return peer


@pytest.mark.parametrize(("peer_id", "is_ours_kept"), [(0x7F000000, True), (0x7F000009, False)])
def test_collision_is_resolved(router, listener, peer_id, is_ours_kept):
    """When both sides call at once, the call of the higher identifier stays, the other is told (RFC 4271 §6.8)."""
    answer_calls(router, listener)
    ours = Called(router, listener)
    ours.take(1)
    theirs = connect_in(router)
    theirs.take(1)
    for peer in (ours, theirs):
        peer.send(opened(peer_id))
    kept, lost = (ours, theirs) if is_ours_kept else (theirs, ours)
    assert lost.take(3)[:2] == bytes((6, CeaseSubcode.CONNECTION_COLLISION_RESOLUTION))
    kept.send(KEEPALIVE)
    neighbor = router.speaker.neighbors.get("c")
    router.run_until(lambda: neighbor.is_established)
    assert neighbor.contender is None
    assert neighbor.peering.session.record.is_dialled is is_ours_kept
    assert neighbor.peering.session.settings.is_passive is False
    ours.close(), theirs.close()
    router.run_until(lambda: not neighbor.is_established)
    router.clock.advance(40.0)
    Called(router, listener).take(1)


def test_peer_that_calls_while_our_call_hangs(router, listener):
    """A session that comes in is had although a call of ours gets no answer; the call is given up."""
    theirs = connect_in(router)
    theirs.take(1)
    theirs.send(opened(9) + KEEPALIVE)
    neighbor = router.speaker.neighbors.get("c")
    router.run_until(lambda: neighbor.is_established)
    assert neighbor.families == (Family.IPV4_UNICAST,)
    assert neighbor.contender is None and neighbor.peering.attempt is None
