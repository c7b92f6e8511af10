"""The transport between processes: ZeroMQ over ipc sockets, between machines over tcp with CurveZMQ.

Only this module and question.py import zmq.

Owns the process's ZeroMQ context and every ZeroMQ socket. One ROUTER a stage, one DEALER for each (stage, endpoint).
Never queues without bound: what is sent is bounded by readers' credit and by the number of messages that may wait for
one peer, what a stranger sends by the ROUTER's receive limit and message size. Octets it cannot make sense of are
handed on as frames; whoever decodes them counts and drops them.

ZeroMQ does not tell a ROUTER which peer has gone, only that one has. On such an event each peer is sent an empty
message; to one that is gone it cannot be sent (ROUTER_MANDATORY).

ZeroMQ ends the process when it has no descriptor for one that connects. So an endpoint is closed to newcomers while
only the last descriptors are left, and opened again when there are more.

A tcp endpoint beyond loopback is opened only with keys. Who connects there is asked for its key before anything it
sends is looked at (ZAP, RFC 27 of ZeroMQ); a key that is not accepted, like anything that is no handshake, is counted,
logged with a limit, and cut off. No more than a few hundred are connected at a time (threshold.py), each for a few
seconds, so nobody can use up this process's descriptors.
"""

import contextlib
import errno
import os
import socket as plain_socket
import stat
from pathlib import Path

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from common.bus.keyring import Grant, Keyring
from common.bus.threshold import Threshold
from common.bus.wire import MAX_REQUEST_OCTETS, Unread
from common.config.bus import bound, is_loopback
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer
from common.runtime.processes import has_descriptors, is_reserved

COPY_BELOW_OCTETS = 1 << 17
"""Smaller frames are copied by ZeroMQ: a copy costs less than the bookkeeping of a shared one."""
MAX_FRAMES = 64
MESSAGES_PER_DRAIN = 32
OCTETS_PER_DRAIN = 1 << 19
DRAIN_S = 0.008
"""No further message is handled in a turn after this long: questions that are slow to answer must not add up."""
MAX_BATCH_OCTETS = 1 << 30
ROUTER_QUEUE = 4096
PROBE_AFTER_S = (0.0, 0.05, 1.0)
SHORTAGE_S = 1.0
"""How long an endpoint is closed before it is looked whether there are descriptors again."""
MAX_PATH_OCTETS = 107
FIRST_CALL_MS, LAST_CALL_MS, LAST_CALL_TCP_MS = 10, 100, 500
"""How long after a call that failed the next one comes: twice as long each time, up to this.

All others wait for a stage that has been restarted, and on the same machine a call costs next to nothing."""

# Over tcp. A connection that is silent although it is asked is taken for cut.
HEARTBEAT_MS = 2000
SILENCE_MS = 6000
HANDSHAKE_MS = 5000
CONNECT_MS = 3000
CALL_AGAIN_S = 1.0
"""How long after a failure ZeroMQ is given to say that it goes on trying: where a key was refused, or who answered
spoke another language, it gives up for good, though the next who listens there may be the right one."""
NOBODY = Grant("", "")
ZAP_ENDPOINT = "inproc://zeromq.zap.01"
HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

# The plain methods and numbers: pyzmq's own wrap each result in an enumeration, which costs more than the call.
_get = zmq.backend.Socket.get
_send = zmq.backend.Socket.send
_recv = zmq.backend.Socket.recv
_EVENTS = int(zmq.EVENTS)
_POLLIN = int(zmq.POLLIN)
_POLLOUT = int(zmq.POLLOUT)
_NOBLOCK = int(zmq.NOBLOCK)
_NOBLOCK_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

_OCTETS = (bytes, bytearray)

_contexts: dict[int, zmq.Context] = {}


def context() -> zmq.Context:
    """Return this process's context; one inherited by fork is left alone."""
    found = _contexts.get(os.getpid())
    if found is None:
        found = _contexts[os.getpid()] = zmq.Context(io_threads=1)
        found.set(zmq.MAX_SOCKETS, 4096)
    return found


class EndpointBusy(OSError):
    """Somebody else serves at this endpoint."""


class ZmqTransport:
    """The transport of one stage."""

    def __init__(self, loop: Loop, keyring: Keyring | None = None, log: Log | None = None):
        self._loop = loop
        self._keyring = keyring or Keyring()
        self._log = log or Log()
        self._gate: _Gate | None = None
        self._listening: list[ZmqListenPort] = []

    def listen(self, endpoint: str, on_frames, on_gone, max_unread: int) -> "ZmqListenPort":
        """Bind; raise OSError for a tcp endpoint that others can reach and that there is no key for."""
        if is_to_be_secured(endpoint, self._keyring.has_own) and self._gate is None:
            self._gate = _Gate(self._loop, self._keyring, self._log)
        port = ZmqListenPort(
            self._loop, endpoint, on_frames, on_gone, max_unread, self._keyring, self._log, self._on_shortage
        )
        self._listening.append(port)
        return port

    def _on_shortage(self) -> None:
        """Only the last descriptors are left: let nobody in at any endpoint."""
        if not all(port.is_shut for port in self._listening):
            event(self._log, "descriptors-short", "error", effect="nobody is let in for a while")
            for port in self._listening:
                port.shut()

    def connect(self, endpoint: str, on_frames, on_up, on_down) -> "ZmqConnectPort":
        """Connect; raise OSError for a tcp endpoint that others can reach and that there are no keys for."""
        return ZmqConnectPort(self._loop, endpoint, on_frames, on_up, on_down, self._keyring, self._log)

    def renew(self, keyring: Keyring) -> None:
        """Go by what another configuration says of keys; who is connected by one that is no longer good is let go."""
        self._keyring = keyring
        if self._gate is not None:
            self._gate.keyring = keyring
        for port in self._listening:
            port.renew(keyring)

    def close(self) -> None:
        """Close what is its own; the context belongs to the process and ends with it."""
        if self._gate is not None:
            self._gate.close()


def is_to_be_secured(endpoint: str, has_keys: bool) -> bool:
    """Tell whether an endpoint is one for keys; raise OSError where it must be and there are none."""
    if not endpoint.startswith("tcp://"):
        return False
    if not has_keys and not is_loopback(endpoint):
        raise OSError(errno.EACCES, "can be reached from other machines, and is not opened without keys", endpoint)
    return has_keys


class _Gate:
    """Answers ZeroMQ's question whether a key is accepted (ZAP)."""

    def __init__(self, loop: Loop, keyring: Keyring, log: Log):
        self.keyring = keyring
        self._log = log
        self._socket = context().socket(zmq.REP)
        self._socket.set(zmq.LINGER, 0)
        self._socket.bind(ZAP_ENDPOINT)
        self._queue = _SocketQueue(loop, self._socket, self._on_question)

    def close(self) -> None:
        self._queue.close()
        self._socket.unbind(ZAP_ENDPOINT)  # at once; closing alone gives the name back some time later
        self._socket.close()

    def _on_question(self, frames: list) -> None:
        """version, request, domain, address, identity, mechanism, key -> version, request, code, text, user, {}"""
        version, request, _, address, _, mechanism, *credentials = (frame.bytes for frame in frames)
        grant = None
        if mechanism == b"CURVE" and len(credentials) == 1 and len(credentials[0]) == 32:
            grant = self.keyring.accepted.get(z85.encode(credentials[0]))
        if grant is None:
            event(self._log, "stranger-refused", "warning", address=address.decode(errors="replace"))
            answer = [b"400", b"this key is not accepted", b"", b""]
        else:
            answer = [b"200", b"", grant.public.encode(), b""]
        self._queue.is_suspect = True
        send(self._socket, [version, request, *answer])


class _SocketQueue:
    """One ZeroMQ socket as a queue of the loop.

    Its descriptor tells of new messages only once ZeroMQ has been seen to have none; sending may take that telling in.
    """

    def __init__(self, loop: Loop, socket: zmq.Socket, on_message):
        self._loop = loop
        self._socket = socket
        self._on_message = on_message
        self._fd = socket.get(zmq.FD)
        self._is_closed = False
        self.is_suspect = True
        loop.add_queue(self)

    def fileno(self) -> int:
        return self._fd

    def has_input(self) -> bool:
        self.is_suspect = not self._is_closed and bool(_get(self._socket, _EVENTS) & _POLLIN)
        return self.is_suspect

    def drain(self) -> bool:
        socket = self._socket
        monotonic = self._loop.clock.monotonic
        until = monotonic() + DRAIN_S
        n_octets = 0
        for _ in range(MESSAGES_PER_DRAIN):
            try:
                frames = receive(socket)
            except zmq.Again:
                self.is_suspect = False
                return False
            for frame in frames:
                n_octets += len(frame)
            self._on_message(frames)
            if not self.has_input():
                return False
            if n_octets >= OCTETS_PER_DRAIN or monotonic() >= until:
                break
        return True

    def close(self) -> None:
        self._is_closed = True
        self._loop.remove_queue(self)


def receive(socket: zmq.Socket) -> list:
    """Return the frames of a message that is there. More than MAX_FRAMES are cut off."""
    frames = [_recv(socket, _NOBLOCK, False)]
    while frames[-1].more:
        frame = _recv(socket, _NOBLOCK, False)
        if len(frames) > MAX_FRAMES:
            frames[-1] = frame
        else:
            frames.append(frame)
    return frames


def send(socket: zmq.Socket, frames: list) -> None:
    """Send one message; frames are octets or contiguous arrays. Large ones are sent from where they lie."""
    last = len(frames) - 1
    for index, frame in enumerate(frames):
        flags = _NOBLOCK if index == last else _NOBLOCK_MORE
        n_octets = len(frame) if type(frame) in _OCTETS else frame.nbytes
        if n_octets < COPY_BELOW_OCTETS:
            _send(socket, frame, flags)
        else:
            _send(socket, frame, flags, False, False)


class ZmqListenPort:
    """A ROUTER."""

    def __init__(
        self, loop: Loop, endpoint: str, on_frames, on_gone, max_unread: int, keyring: Keyring, log: Log, on_shortage
    ):
        """`on_shortage()` is called when somebody is in who was given one of the last descriptors."""
        self._loop = loop
        self._endpoint = endpoint
        self._log = log
        self._grants = keyring.accepted
        self._on_frames = on_frames
        self._on_gone = on_gone
        self._peers: dict[bytes, Grant | None] = {}
        self._probes: list = []
        self._socket = context().socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDHWM, max_unread)
        self._socket.set(zmq.RCVHWM, ROUTER_QUEUE)
        self._socket.set(zmq.MAXMSGSIZE, MAX_REQUEST_OCTETS)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._is_secured = is_to_be_secured(endpoint, keyring.has_own)
        self._threshold: Threshold | None = None
        if self._is_secured:
            self._socket.set(zmq.CURVE_SERVER, 1)
            self._socket.set(zmq.CURVE_SECRETKEY, keyring.secret)
            self._socket.set(zmq.ZAP_DOMAIN, b"headrace")
        self._on_shortage = on_shortage
        self._opening: Timer | None = None  # while it is closed to newcomers
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | HANDSHAKE_FAILED)
        try:
            if endpoint.startswith("tcp://"):
                prepare_tcp(self._socket)
                self._threshold = Threshold(bound(endpoint))
            self._bind()
        except Exception:
            self._close_sockets()
            raise
        self._queues = [
            _SocketQueue(loop, self._socket, self._on_message),
            _SocketQueue(loop, self._monitor, self._on_event),
        ]

    def _bind(self) -> None:
        if self._threshold is not None:
            bind_tcp(self._socket, self._endpoint, self._threshold)
        else:
            bind_ipc(self._socket, self._endpoint)

    def _close_sockets(self) -> None:
        self._socket.disable_monitor()
        self._socket.close()
        if self._threshold is not None:
            self._threshold.close()

    def send(self, peer: bytes, frames: list) -> bool:
        self._queues[0].is_suspect = True
        try:
            send(self._socket, [peer, *frames])
        except zmq.Again:
            raise Unread from None
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            self._peers.pop(peer, None)
            return False
        return True

    def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        for probe in self._probes:
            probe.cancel()
        for queue in self._queues:
            queue.close()
        self._close_sockets()
        if self._endpoint.startswith("ipc://"):
            # ZeroMQ does so too, but later than a process that ends lives: commands would wait for an answer.
            with contextlib.suppress(OSError):
                Path(self._endpoint.removeprefix("ipc://")).unlink()

    def grant_of(self, peer: bytes) -> Grant | None:
        """Return what a peer may do, None for one that may do everything: it was let in by the run directory."""
        return self._peers.get(peer, NOBODY if self._is_secured else None)

    def renew(self, keyring: Keyring) -> None:
        """Let go who is connected by a key that is not accepted any more, or not as what it was."""
        self._grants = keyring.accepted
        for peer, grant in list(self._peers.items()) if self._is_secured else ():
            if self._grants.get(grant.public.encode()) != grant:
                del self._peers[peer]  # what it may do is looked up with its next message
                self._on_gone(peer)
                if grant is not NOBODY:
                    event(self._log, "key-withdrawn", "warning", key=grant, endpoint=self._endpoint)

    def _granted(self, frame: zmq.Frame) -> Grant:
        """Return what the key this came with may do; the gate has named it."""
        try:
            return self._grants.get(frame.get("User-Id").encode(), NOBODY)
        except zmq.ZMQError:  # no gate was asked
            return NOBODY

    def _on_message(self, frames: list) -> None:
        peer = frames[0].bytes
        if peer not in self._peers:
            self._peers[peer] = self._granted(frames[-1]) if self._is_secured else None
        self._on_frames(peer, frames[1:])

    def _on_event(self, frames: list) -> None:
        told = parse_monitor_message([frame.bytes for frame in frames])
        what, descriptor = told["event"], told["value"]
        if what & HANDSHAKE_FAILED:
            event(self._log, "handshake-failed", "warning", endpoint=self._endpoint)
        elif what == zmq.EVENT_ACCEPTED:
            if self._threshold is not None and self._threshold.on_accepted(descriptor, len(self._peers)):
                event(self._log, "strangers-held-off", "warning", endpoint=self._endpoint)
            if is_reserved(descriptor):
                self._on_shortage()
        else:
            if self._threshold is not None:
                self._threshold.on_closed(descriptor, len(self._peers))
            self._probe_soon()

    def _probe_soon(self) -> None:
        """Find out who has gone. The ROUTER may not have noticed yet, so it is asked again a little later."""
        self._probes = [probe for probe in self._probes if probe.is_pending]
        if len(self._probes) < len(PROBE_AFTER_S):
            self._probes += [self._loop.call_later(seconds, self._probe) for seconds in PROBE_AFTER_S]

    @property
    def is_shut(self) -> bool:
        """Whether nobody is let in now."""
        return self._opening is not None

    def shut(self) -> None:
        """Let nobody in for a while. ZeroMQ ends with that the connections that stand; their ends come back later."""
        if not self.is_shut:
            self._socket.unbind(self._socket.get(zmq.LAST_ENDPOINT))
            self._opening = self._loop.call_later(SHORTAGE_S, self._open_again)

    def _open_again(self) -> None:
        self._opening = None
        try:
            if has_descriptors():
                self._bind()
                return
        except OSError as error:
            event(self._log, "bind-failed", "error", endpoint=self._endpoint, problem=error)
        self._opening = self._loop.call_later(SHORTAGE_S, self._open_again)

    def _probe(self) -> None:
        for peer in list(self._peers):
            with contextlib.suppress(Unread):  # it is there
                if not self.send(peer, [b""]):
                    self._on_gone(peer)


class ZmqConnectPort:
    """A DEALER that belongs to one endpoint and reconnects by itself."""

    def __init__(self, loop: Loop, endpoint: str, on_frames, on_up, on_down, keyring: Keyring, log: Log):
        self._loop = loop
        self._endpoint = endpoint
        self._log = log
        self._on_up = on_up
        self._on_down = on_down
        self._socket = context().socket(zmq.DEALER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.MAXMSGSIZE, MAX_BATCH_OCTETS)
        # Requests go out over a connection that stands or not at all; everything is asked anew when one stands.
        self._socket.set(zmq.IMMEDIATE, 1)
        self._socket.set(zmq.RECONNECT_IVL, FIRST_CALL_MS)
        self._socket.set(zmq.RECONNECT_IVL_MAX, LAST_CALL_TCP_MS if endpoint.startswith("tcp://") else LAST_CALL_MS)
        server = keyring.servers.get(endpoint)
        if endpoint.startswith("tcp://"):
            prepare_tcp(self._socket)
        if is_to_be_secured(endpoint, keyring.has_own and server is not None):
            self._socket.set(zmq.CURVE_SERVERKEY, server)
            self._socket.set(zmq.CURVE_PUBLICKEY, keyring.public)
            self._socket.set(zmq.CURVE_SECRETKEY, keyring.secret)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | HANDSHAKE_FAILED
        )
        self._calling: Timer | None = None
        self._queues = [
            _SocketQueue(loop, self._monitor, self._on_event),
            _SocketQueue(loop, self._socket, on_frames),
        ]
        self._socket.connect(endpoint)

    def send(self, frames: list) -> bool:
        self._queues[1].is_suspect = True
        try:
            send(self._socket, frames)
        except zmq.Again:
            # ZeroMQ looks only now and then, when it sends, whether a new connection stands; asked, it looks at once.
            if not _get(self._socket, _EVENTS) & _POLLOUT:
                return False
            try:
                send(self._socket, frames)
            except zmq.Again:
                return False
        return True

    def close(self) -> None:
        self._expect_no_call()
        for queue in self._queues:
            queue.close()
        self._socket.disable_monitor()
        self._socket.close()

    def _on_event(self, frames: list) -> None:
        what = parse_monitor_message([frame.bytes for frame in frames])["event"]
        self._expect_no_call()
        if what == zmq.EVENT_CONNECT_RETRIED:
            return
        if what == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._on_up()
            return
        self._calling = self._loop.call_later(CALL_AGAIN_S, self._call_again)
        if what & HANDSHAKE_FAILED:
            event(self._log, "link-refused", "warning", endpoint=self._endpoint)
        else:
            self._on_down()

    def _expect_no_call(self) -> None:
        if self._calling is not None:
            self._calling.cancel()
            self._calling = None

    def _call_again(self) -> None:
        """Connect anew: ZeroMQ does not, nor does it say so."""
        with contextlib.suppress(zmq.ZMQError):  # there may be nothing left to be taken back
            self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)


# ---- tcp and keys -------------------------------------------------------------------------------------------------


def prepare_tcp(socket: zmq.Socket) -> None:
    """Have a connection that was cut noticed on both ends, and one that says nothing ended."""
    socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.set(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    socket.set(zmq.HEARTBEAT_TTL, SILENCE_MS)
    socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
    socket.set(zmq.IPV6, 1)


# ---- binding ------------------------------------------------------------------------------------------------------


def bind_tcp(socket: zmq.Socket, endpoint: str, threshold: Threshold) -> None:
    """Have ZeroMQ accept from the listening socket of a tcp endpoint; raise OSError where that cannot be."""
    socket.set(zmq.USE_FD, threshold.descriptor())
    _bind(socket, bound(endpoint), endpoint)


def bind_ipc(socket: zmq.Socket, endpoint: str) -> None:
    """Bind an ipc endpoint for those to whom its directory is open (`share`).

    A socket file that is left over from a process that is gone gives way; one that answers does not (EndpointBusy).
    """
    path = Path(endpoint.removeprefix("ipc://"))
    if len(os.fsencode(path)) > MAX_PATH_OCTETS:
        raise OSError(errno.ENAMETOOLONG, f"a socket path has at most {MAX_PATH_OCTETS} octets", str(path))
    make_directory(path.parent)
    if path.exists():
        if answers(path):
            raise EndpointBusy(errno.EADDRINUSE, "another process serves here", str(path))
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink(missing_ok=True)
    former = os.umask(0o177)
    try:
        _bind(socket, endpoint, str(path))
    finally:
        os.umask(former)
    share(path)


def _bind(socket: zmq.Socket, endpoint: str, name: str) -> None:
    """Bind; raise OSError with the name of the place where that cannot be done."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise OSError(error.errno, os.strerror(error.errno), name) from None


def share(path: Path) -> None:
    """Let those connect to whom its directory is open: its owner, and its group if that may search it."""
    directory = path.parent.stat()
    made = path.stat()
    owner = directory.st_uid if os.geteuid() == 0 else made.st_uid
    if (owner, directory.st_gid) != (made.st_uid, made.st_gid):
        with contextlib.suppress(PermissionError):
            os.chown(path, owner, directory.st_gid)
    path.chmod(0o660 if directory.st_mode & stat.S_IXGRP else 0o600)


def make_directory(path: Path) -> None:
    """Make the directory of the sockets, for this user alone; one that exists is left as it is."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)


def answers(path: Path) -> bool:
    """Tell whether a process listens on a socket file."""
    with plain_socket.socket(plain_socket.AF_UNIX) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
