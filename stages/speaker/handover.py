"""Connections for neighbors of another speaker: all speakers listen at the same addresses, and the kernel deals out.

Owns one Unix datagram socket in the run directory, over which the speakers pass descriptors of connections that they
have accepted for each other. Never reads from such a connection.
"""

import array
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from common.runtime.loop import Loop

MAX_PASSED_PER_TURN = 16


class Handover:
    """This speaker's end; `on_socket(sock)` gets what others pass to it."""

    def __init__(self, loop: Loop, run_dir: Path, instance: str, on_socket: Callable[[socket.socket], None]):
        """Raises OSError where the run directory cannot be used."""
        self._loop = loop
        self._run_dir = Path(run_dir)
        self._path = self._path_of(instance)
        self._on_socket = on_socket
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._path.unlink(missing_ok=True)
        former = os.umask(0o177)
        try:
            self._sock.bind(str(self._path))
        except OSError:
            self._sock.close()
            raise
        finally:
            os.umask(former)
        loop.add_reader(self._sock.fileno(), self._on_readable)

    def pass_on(self, sock: socket.socket, instance: str) -> bool:
        """Give a connection to another speaker; False if that cannot take it now."""
        try:
            # Not socket.send_fds, which has no address for a datagram before Python 3.12.
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [sock.fileno()]))
            self._sock.sendmsg([b"\0"], [rights], 0, str(self._path_of(instance)))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Take no more."""
        self._loop.remove(self._sock.fileno())
        self._sock.close()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _path_of(self, instance: str) -> Path:
        return self._run_dir / f"speaker.{instance}.accept"

    def _on_readable(self) -> None:
        for _ in range(MAX_PASSED_PER_TURN):
            try:
                _, descriptors, _, _ = socket.recv_fds(self._sock, 1, 4)
            except OSError:
                return
            for descriptor in descriptors:
                self._on_socket(socket.socket(fileno=descriptor))
