"""TCP as the speaker uses it."""

import errno
import socket
import time
from unittest.mock import Mock

import pytest

from common.runtime.clock import ManualClock
from common.runtime.loop import Loop
from stages.speaker import sockets
from stages.speaker.sockets import Attempt, Connection, ConnectionLost, Listener


@pytest.fixture
def loop():
    made = Loop(ManualClock())
    yield made
    made.close()


def until(loop: Loop, condition) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        loop.turn()


@pytest.fixture
def ends(loop):
    """A connection of the speaker's, and the plain socket at its other end."""
    accepted = []
    listener = Listener(loop, "127.0.0.1", 0, lambda local, peer: True, accepted.append)
    far = socket.create_connection(("127.0.0.1", listener.port))
    until(loop, lambda: accepted)
    listener.close()
    yield accepted[0], far
    accepted[0].abort()
    far.close()


def test_large_output_waits_for_the_peer(loop, ends):
    """What the kernel does not take at once is sent when there is room, whole and in order."""
    connection, far = ends
    octets = bytes(range(256)) * 4096
    n_chunks = 40
    for _ in range(n_chunks):
        connection.queue(octets)
    connection.on_writable = connection.flush
    connection.flush()
    assert connection.n_queued > 0
    far.setblocking(False)
    received = bytearray()

    def is_all_here() -> bool:
        try:
            received.extend(far.recv(1 << 22))
        except BlockingIOError:
            pass
        return len(received) == n_chunks * len(octets)

    until(loop, is_all_here)
    assert received == octets * n_chunks
    assert (connection.n_queued, connection.n_sent) == (0, n_chunks * len(octets))


def test_farewell_arrives_although_octets_were_unread(loop, ends):
    """A connection closed with input unread still gets its last octets to the peer."""
    connection, far = ends
    far.sendall(b"x" * 100000)
    connection.queue(b"farewell")
    connection.close()
    loop.turn()
    assert far.recv(100) == b"farewell"
    assert far.recv(100) == b""
    far.close()
    until(loop, lambda: connection._fd < 0)


def test_closing_does_not_wait_for_ever(loop, ends):
    """A peer that neither reads nor closes is left after a short while."""
    connection, _far = ends
    connection.close()
    assert not connection.is_open
    loop.clock.advance(sockets.LINGER_S + 0.1)
    until(loop, lambda: connection._fd < 0)


def test_peer_that_closes(loop, ends):
    """The end of the peer's octets is told as such."""
    connection, far = ends
    far.close()
    with pytest.raises(ConnectionLost, match="closed by the peer"):
        until(loop, lambda: connection.receive_into(memoryview(bytearray(10))))


def test_refused_attempt_tells_why(loop):
    """An attempt that fails tells its reason once, in a later turn."""
    ended = []
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        Attempt(loop, None, "127.0.0.1", unused.getsockname()[1], lambda *end: ended.append(end))
        assert not ended
        until(loop, lambda: ended)
    assert ended == [(None, "Connection refused")]


def test_impossible_local_address_tells_why(loop):
    """An address that is not this host's fails like any other attempt."""
    ended = []
    Attempt(loop, "192.0.2.1", "127.0.0.1", 1, lambda *end: ended.append(end))
    until(loop, lambda: ended)
    assert ended == [(None, "Cannot assign requested address")]


def test_attempt_leaves_the_last_descriptors_alone(loop, monkeypatch):
    """Without a descriptor to spare it fails like any other, also where there is none at all."""
    ended = []
    monkeypatch.setattr(sockets, "is_reserved", lambda descriptor: True)
    Attempt(loop, None, "127.0.0.1", 1, lambda *end: ended.append(end))
    until(loop, lambda: ended)
    monkeypatch.setattr(sockets.socket, "socket", Mock(side_effect=OSError(errno.EMFILE, "")))
    Attempt(loop, None, "127.0.0.1", 1, lambda *end: ended.append(end))
    Attempt(loop, None, "127.0.0.1", 1, lambda *end: ended.append(end)).close()
    until(loop, lambda: len(ended) == 2)
    assert ended == [(None, "Too many open files")] * 2


def test_attempt_given_up_is_silent(loop):
    """Nobody is called about an attempt that was given up."""
    ended = []
    Attempt(loop, None, "127.0.0.1", 1, lambda *end: ended.append(end)).close()
    for _ in range(5):
        loop.turn()
    assert ended == []


def test_strangers_are_reset(loop):
    """A connection that is not admitted is reset."""
    listener = Listener(loop, "127.0.0.1", 0, lambda local, peer: False, lambda connection: None)
    far = socket.create_connection(("127.0.0.1", listener.port))
    far.setblocking(False)

    def is_reset() -> bool:
        try:
            return far.recv(1) == b""
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    until(loop, is_reset)
    listener.close()
    far.close()


def test_options(loop, ends):
    """Connections send small messages at once, marked as network control."""
    connection, _far = ends
    assert connection._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert connection._sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == sockets.TRAFFIC_CLASS
    assert (connection.local, connection.peer) == ("127.0.0.1", "127.0.0.1")
    assert isinstance(connection, Connection)


def test_ipv6_listener_takes_no_ipv4(loop):
    """The two families are listened to apart, so both can have all addresses."""
    first = Listener(loop, "::1", 0, lambda local, peer: True, lambda connection: None)
    second = Listener(loop, "127.0.0.1", first.port, lambda local, peer: True, lambda connection: None)
    assert first.port == second.port
    first.close()
    second.close()


def test_speakers_that_listen_at_one_address_pass_connections_on(loop):
    """Two listen at one port; a connection that its listener does not admit goes to `pass_on`, else it is reset."""
    passed, taken = [], []

    def pass_on(sock, local, peer):
        passed.append(sock.dup())
        return peer == "127.0.0.3"

    first = Listener(loop, "127.0.0.1", 0, lambda local, peer: False, taken.append, pass_on)
    second = Listener(loop, "127.0.0.1", first.port, lambda local, peer: False, taken.append, pass_on)
    for source in ("127.0.0.3", "127.0.0.4"):
        with socket.socket() as sock:
            sock.bind((source, 0))
            sock.connect(("127.0.0.1", first.port))
            n_before = len(passed)
            while len(passed) == n_before:
                loop.turn()
    assert not taken and len(passed) == 2
    for each in (*passed, first, second):
        each.close()


def test_the_last_descriptors_are_left_alone(loop, monkeypatch):
    """A connection that would take one of the last descriptors is refused, told of, and others are accepted later."""
    accepted, shortages = [], []
    monkeypatch.setattr(sockets, "is_reserved", lambda descriptor: not shortages)
    listener = Listener(
        loop, "127.0.0.1", 0, lambda local, peer: True, accepted.append, on_shortage=lambda: shortages.append(1)
    )
    with socket.create_connection(("127.0.0.1", listener.port)) as refused:
        until(loop, lambda: shortages)
        with pytest.raises(ConnectionResetError):
            refused.recv(1)
    with socket.create_connection(("127.0.0.1", listener.port)):
        loop.clock.advance(sockets.ACCEPT_PAUSE_S)
        until(loop, lambda: accepted)
    accepted[0].abort()
    listener.close()
