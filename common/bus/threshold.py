"""The listening socket of a tcp endpoint: how many who have not shown who they are may be connected at a time.

Owns the socket's address and the filter that shuts it. Never reads or writes: ZeroMQ accepts from it, and says who has
come and gone. While it is shut the kernel drops whatever would begin a connection, so those who call call again, as TCP
does; connections that stand are not touched. What was accepted before the filter was there is beside the limit.

Sources: socket(7) (SO_ATTACH_FILTER), and the kernel's Documentation/networking/filter.rst.
"""

import contextlib
import ctypes
import errno
import socket
import struct
from typing import Final

MAX_STRANGERS: Final = 256
"""Connections at a time of those of whom nothing is known yet."""
SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
BPF_RETURN: Final = 0x06
BACKLOG: Final = 64


class Threshold:
    """A tcp endpoint that listens."""

    def __init__(self, endpoint: str):
        """Bind and listen; raise OSError with the endpoint where that cannot be."""
        self.is_shut = False
        self._connections: set[int] = set()
        self._socket = _listening(endpoint)

    def descriptor(self) -> int:
        """Return a descriptor of the socket, which the caller closes."""
        return self._socket.dup().detach()

    def on_accepted(self, descriptor: int, n_known: int) -> bool:
        """Note a new connection, where so many peers are known; return True if there is no room for another."""
        self._connections.add(descriptor)
        if self.is_shut or len(self._connections) - n_known < MAX_STRANGERS:
            return False
        self._shut()
        return True

    def on_closed(self, descriptor: int, n_known: int) -> None:
        """Note that a connection has ended."""
        self._connections.discard(descriptor)
        if self.is_shut and len(self._connections) - n_known < MAX_STRANGERS // 2:
            self._open()

    def close(self) -> None:
        self._socket.close()

    def _shut(self) -> None:
        program = ctypes.create_string_buffer(struct.pack("=HBBI", BPF_RETURN, 0, 0, 0))  # keeps 0 octets: drops
        described = struct.pack("@HP", 1, ctypes.addressof(program))
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)
            self.is_shut = True

    def _open(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
        self.is_shut = False


def _listening(endpoint: str) -> socket.socket:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    try:
        if host == "*":
            is_dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if is_dual else socket.AF_INET
            return socket.create_server(("", int(port)), family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
        flags = socket.AI_PASSIVE | socket.AI_NUMERICHOST
        family, _, _, _, address = socket.getaddrinfo(host.encode(), int(port), type=socket.SOCK_STREAM, flags=flags)[0]
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, error.strerror, endpoint) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror.partition(" (while")[0], endpoint) from None
