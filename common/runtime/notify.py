"""Tells the service manager how the process is: ready, alive, stopping (sd_notify).

Owns one datagram socket, where the environment names one. Never waits: a word that cannot be said now is said again
with the next beat. Without a service manager it does nothing.

Until the process is ready, each beat asks for more time instead, so the manager's start limit (TimeoutStartSec) is one
on silence, not on how long a table takes; from then on each beat feeds the watchdog (WatchdogSec).

Sources: sd_notify(3), systemd.service(5).
"""

import os
import socket
from collections.abc import MutableMapping

MORE_TIME_S = 30
"""How long the manager is to wait after each beat of a process that is not ready."""


class Notifier:
    """The line to the service manager."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ):
        """Take the manager's socket from the environment, so that nothing this process starts speaks for it."""
        path = environment.pop("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._is_ready = False
        self._text = ""
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager."""
        return self._socket is not None

    def beat(self, is_in_step: bool, text: str) -> None:
        """Say that the loop turns; the first time the stage is in step, that it is ready; and `text`, if it is new."""
        words = ["WATCHDOG=1"]
        is_first = is_in_step and not self._is_ready
        if is_first:
            words.append("READY=1")
        elif not self._is_ready:
            words.append(f"EXTEND_TIMEOUT_USEC={MORE_TIME_S * 1_000_000}")
        is_new = text != self._text
        if is_new:
            words.append(f"STATUS={text}")
        if self._say(words):
            self._is_ready |= is_first
            self._text = text

    def stopping(self) -> None:
        """Say that the process ends in order."""
        self._say(["STOPPING=1"])

    def _say(self, words: list[str]) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto("\n".join(words).encode(), self._address)
        except OSError:
            return False
        return True
