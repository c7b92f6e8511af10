"""TCP for the speaker: listening, dialing, reading and writing; beside handover.py all of it that touches sockets.

Owns descriptors, their options and the octets that wait to be sent. Never looks inside an octet, never knows a session.
All sockets are non-blocking; reading and writing are bounded by the caller.
"""

import errno
import fcntl
import ipaddress
import itertools
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from common.runtime.loop import Loop, Timer
from common.runtime.processes import is_reserved

# Where the kernel lets us (CAP_NET_ADMIN); elsewhere its own tuning does better than the most that could be asked for.
SOCKET_BUFFER_OCTETS = 4 << 20
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
# How long a connection that is ended may take to get its last octets out.
LINGER_S = 2.0
LISTEN_BACKLOG = 64
# Network control (class selector 6), as routing protocols are marked by custom.
TRAFFIC_CLASS = 0xC0
# Buffers handed to the kernel in one call, and connections taken in one turn.
MAX_BUFFERS = 64
MAX_ACCEPTED_PER_TURN = 16
ACCEPT_PAUSE_S = 1.0
IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN)
SIOCGIFADDR = 0x8915

_REFUSE_BIN = memoryview(bytearray(1 << 16))


class ConnectionLost(Exception):
    """The peer closed, or the network gave the connection up; the text says which."""


class Connection:
    """One TCP connection of a peer, with the octets that wait to be sent."""

    __slots__ = (
        *("n_queued", "n_received", "n_sent", "on_writable", "peer", "local"),
        *("_loop", "_queue", "_sock", "_fd", "_is_closing", "_timer"),
    )

    def __init__(self, loop: Loop, sock: socket.socket):
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._queue: deque[memoryview] = deque()
        self._is_closing = False
        self._timer: Timer | None = None
        self.n_queued = 0
        self.n_received = 0
        self.n_sent = 0
        self.on_writable: Callable[[], None] | None = None
        self.local, self.peer = _name(sock.getsockname), _name(sock.getpeername)

    @property
    def is_open(self) -> bool:
        return self._fd >= 0 and not self._is_closing

    def start_reading(self, callback: Callable[[], None]) -> None:
        """Call `callback()` in every turn in which there is something to read."""
        self._loop.add_reader(self._fd, callback)

    def stop_reading(self) -> None:
        """Leave what arrives to the kernel, so that TCP slows the peer down."""
        self._loop.remove_reader(self._fd)

    def receive_into(self, buffer: memoryview) -> int:
        """Read what is there, at most `len(buffer)` octets; 0 if nothing is. Raises ConnectionLost."""
        try:
            n_octets = self._sock.recv_into(buffer)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise ConnectionLost(_words(error)) from error
        if n_octets == 0:
            raise ConnectionLost("connection closed by the peer")
        self.n_received += n_octets
        return n_octets

    def queue(self, octets) -> None:
        """Have `octets` sent, which must not change any more; `flush` begins at once."""
        view = memoryview(octets).cast("B")
        if len(view):
            self._queue.append(view)
            self.n_queued += len(view)

    def flush(self) -> int:
        """Hand to the kernel what it takes and return how many octets that was. Raises ConnectionLost.

        While some remain, `on_writable` is called when there is room again.
        """
        n_before = self.n_sent
        try:
            while self._queue:
                buffers = list(itertools.islice(self._queue, MAX_BUFFERS))
                n_octets = self._sock.sendmsg(buffers)
                self._drop(n_octets)
                if n_octets < sum(map(len, buffers)):
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            raise ConnectionLost(_words(error)) from error
        if self._queue:
            self._loop.add_writer(self._fd, self._writable)
        else:
            self._loop.remove_writer(self._fd)
        return self.n_sent - n_before

    def close(self) -> None:
        """End the connection in order: what waits is still sent, what comes is read away, both for a short while.

        Closing at once would answer octets not yet read with a reset, and a reset may overtake the NOTIFICATION.
        """
        if self._is_closing or self._fd < 0:
            return
        self._is_closing = True
        self.on_writable = self._send_rest
        self._loop.remove(self._fd)
        self._loop.add_reader(self._fd, self._read_away)
        self._timer = self._loop.call_later(LINGER_S, self.abort)
        self._send_rest()

    def abort(self) -> None:
        """End the connection now."""
        if self._fd < 0:
            return
        self._loop.remove(self._fd)
        self._fd = -1
        self._sock.close()
        self._queue.clear()
        self.n_queued = 0
        self.on_writable = None
        if self._timer is not None:
            self._timer.cancel()

    def _send_rest(self) -> None:
        try:
            self.flush()
            if not self._queue:
                self._sock.shutdown(socket.SHUT_WR)
        except (ConnectionLost, OSError):
            self.abort()

    def _read_away(self) -> None:
        try:
            while self.receive_into(_REFUSE_BIN):
                pass
        except ConnectionLost:
            self.abort()

    def _writable(self) -> None:
        if self.on_writable is not None:
            self.on_writable()

    def _drop(self, n_octets: int) -> None:
        self.n_sent += n_octets
        self.n_queued -= n_octets
        while n_octets:
            first = self._queue[0]
            if len(first) > n_octets:
                self._queue[0] = first[n_octets:]
                return
            n_octets -= len(first)
            self._queue.popleft()


class Attempt:
    """A connection that is being made: `on_end(connection, reason)` is called once, with one of the two."""

    def __init__(
        self,
        loop: Loop,
        local_address: str | None,
        address: str,
        port: int,
        on_end: Callable[[Connection | None, str], None],
    ):
        self._loop = loop
        self._on_end = on_end
        self._sock: socket.socket | None = None
        self._fd = -1
        try:
            self._sock = socket.socket(_socket_family(address), socket.SOCK_STREAM)
            self._fd = self._sock.fileno()
            if is_reserved(self._fd):
                raise OSError(errno.EMFILE, "")
            _set_options(self._sock)
            if local_address is not None:
                self._sock.bind(_place(local_address, 0))
            code = self._sock.connect_ex(_place(address, port))
        except OSError as error:
            code = error.errno or errno.EINVAL
        # Also a failure at once is told in a later turn, so that nobody is called back while still calling.
        self._code = 0 if code in IN_PROGRESS else code
        self._timer = None
        if self._code:
            self._timer = loop.call_later(0.0, self._finish)
        else:
            loop.add_writer(self._fd, self._finish)

    def close(self) -> None:
        """Give the attempt up; `on_end` is not called any more."""
        sock = self._detach()
        if sock is not None:
            sock.close()

    def _detach(self) -> socket.socket | None:
        self._loop.remove(self._fd)
        if self._timer is not None:
            self._timer.cancel()
        sock, self._sock = self._sock, None
        return sock

    def _finish(self) -> None:
        sock = self._detach()
        code = self._code or sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            if sock is not None:
                sock.close()
            self._on_end(None, os.strerror(code))
        else:
            self._on_end(Connection(self._loop, sock), "")


class Listener:
    """One listening socket; `on_connection(connection)` gets those whose ends `admits(local, peer)` allows."""

    def __init__(
        self,
        loop: Loop,
        address: str,
        port: int,
        admits: Callable[[str, str], bool],
        on_connection: Callable[[Connection], None],
        pass_on: Callable[[socket.socket, str, str], bool] | None = None,
        on_shortage: Callable[[], None] = lambda: None,
    ):
        """With `pass_on` others may listen at the same address; it takes connections that are not for us, if it can.

        `on_shortage` is called when connections have to wait because descriptors run out.
        """
        self._loop = loop
        self._admits = admits
        self._on_shortage = on_shortage
        self._pass_on = pass_on
        self._on_connection = on_connection
        self._sock = socket.socket(_socket_family(address), socket.SOCK_STREAM)
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if pass_on is not None:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if self._sock.family == socket.AF_INET6:
                self._sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # Accepted sockets inherit the buffers, which have to be set before the handshake to count.
            _set_options(self._sock)
            self._sock.bind(_place(address, port))
            self._sock.listen(LISTEN_BACKLOG)
        except OSError:
            self._sock.close()
            raise
        self.address, self.port = self._sock.getsockname()[:2]
        self._pause: Timer | None = None
        self._resume()

    def close(self) -> None:
        """Listen no longer."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove(self._sock.fileno())
        self._sock.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(MAX_ACCEPTED_PER_TURN):
            try:
                sock, _peer = self._sock.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._wait()
                return
            if is_reserved(sock.fileno()):
                refuse(sock)
                self._wait()
                return
            if not admit(self._loop, sock, self._admits, self._on_connection, self._pass_on):
                refuse(sock)

    def _wait(self) -> None:
        """Accept nothing for a while: asking again at once would only keep the processor busy."""
        self._loop.remove(self._sock.fileno())
        self._pause = self._loop.call_later(ACCEPT_PAUSE_S, self._resume)
        self._on_shortage()


def admit(
    loop: Loop,
    sock: socket.socket,
    admits: Callable[[str, str], bool],
    on_connection: Callable[[Connection], None],
    pass_on: Callable[[socket.socket, str, str], bool] | None = None,
) -> bool:
    """Take a connection that has come in, or pass it on; return False if it is for nobody."""
    local, peer = _name(sock.getsockname), _name(sock.getpeername)
    if peer and admits(local, peer):
        _set_options(sock)
        on_connection(Connection(loop, sock))
        return True
    if peer and pass_on is not None and pass_on(sock, local, peer):
        sock.close()
        return True
    return False


def ipv6_beside(local_address: str) -> str | None:
    """Return a global IPv6 address of the interface that has `local_address`, None if there is none."""
    name = interface_of(local_address)
    return next((address for address, owner in _ipv6_addresses() if owner == name), None) if name else None


def ipv4_beside(local_address: str) -> str | None:
    """Return an IPv4 address of the interface that has the IPv6 address `local_address`, None if there is none."""
    name = interface_of(local_address)
    return _ipv4_of(name) if name else None


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has an address of ours; that of a link-local one may stand in it."""
    if "%" in address:
        return address.partition("%")[2]
    if ":" in address:
        wanted = ipaddress.IPv6Address(address.partition("%")[0])
        return next((name for text, name in _ipv6_addresses() if ipaddress.IPv6Address(text) == wanted), None)
    return next((name for _, name in socket.if_nameindex() if _ipv4_of(name) == address), None)


def _ipv4_of(interface: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            answer = fcntl.ioctl(sock.fileno(), SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])


def _ipv6_addresses() -> list[tuple[str, str]]:
    """Global addresses of this host with the names of their interfaces, from /proc/net/if_inet6."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as lines:
            fields = [line.split() for line in lines]
    except OSError:
        return []
    scope_global = 0
    return [
        (str(ipaddress.IPv6Address(bytes.fromhex(line[0]))), line[5])
        for line in fields
        if len(line) == 6 and int(line[3], 16) == scope_global
    ]


def _socket_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _place(address: str, port: int) -> tuple:
    """Return an address and a port as the socket module takes them: of a zone it wants the interface's number."""
    host, _, zone = address.partition("%")
    if not zone:
        return host, port
    try:
        return host, port, 0, socket.if_nametoindex(zone)
    except OSError:
        raise OSError(errno.ENODEV, f"no interface {zone}") from None


def _name(ask: Callable[[], tuple]) -> str:
    """Return the address of one end, a link-local one with its zone; empty if the connection is gone already."""
    try:
        host, _port, *more = ask()
        zone = more[1] if more else 0
        return f"{host}%{socket.if_indextoname(zone)}" if zone else host
    except OSError:
        return ""


def _set_options(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):
        try:
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_OCTETS)
        except PermissionError:
            pass
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, TRAFFIC_CLASS)
    else:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TRAFFIC_CLASS)


def refuse(sock: socket.socket) -> None:
    """Close with a reset: nothing is owed to a stranger, and no state is kept for it."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        pass
    sock.close()


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
