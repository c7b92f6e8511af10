"""The HTTP server in a thread of its own.

Owns the port, the thread and the connections; at the end it gives all of them back before `close` returns.
"""

import threading
from typing import Any

import waitress
from waitress import wasyncore

HTTP_THREADS = 4
MAX_CONNECTIONS = 100
# Connections left when there are too many: the oldest with no request in work go, so that nobody keeps others out.
LEFT_CONNECTIONS = 75
IDLE_S = 30
LOOK_EVERY_S = 0.2  # whether it is to end
CLOSE_TIME_S = 3.0


class HttpServer:
    """Serves a WSGI application until closed."""

    def __init__(self, application, address: str):
        """Open the port; raises OSError with the address if it is taken. address: "host:port" or "[host]:port"."""
        host, port = split_address(address)
        self._sockets: dict[int, Any] = {}
        self._is_ending = threading.Event()
        try:
            self._server = waitress.create_server(
                application,
                map=self._sockets,
                host=host,
                port=port,
                threads=HTTP_THREADS,
                connection_limit=MAX_CONNECTIONS,
                channel_timeout=IDLE_S,
                ident=None,
            )
        except OSError as error:
            raise OSError(error.errno, error.strerror, address) from None
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving and give the port back."""
        self._is_ending.set()
        self._thread.join(CLOSE_TIME_S)

    def _run(self) -> None:
        try:
            while not self._is_ending.is_set():
                if len(self._sockets) >= MAX_CONNECTIONS - 1:
                    self._make_room()
                wasyncore.loop(timeout=LOOK_EVERY_S, use_poll=True, map=self._sockets, count=1)
        finally:
            self._server.task_dispatcher.shutdown()
            wasyncore.close_all(self._sockets)

    def _make_room(self) -> None:
        idle = [channel for channel in self._server.active_channels.values() if not channel.requests]
        idle.sort(key=lambda channel: channel.creation_time)
        for channel in idle[: max(0, len(self._sockets) - LEFT_CONNECTIONS)]:
            channel.handle_close()


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[host]:port"."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
