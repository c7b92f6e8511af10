"""Headrace in this process as the speaker under test: real TCP on loopback addresses, all stages in one thread."""

import socket
import threading

from stages.speaker.sockets import Connection
from tests.pipeline.harness import NamedSocket, Pipeline

ASN = 65000
HEAD = """
[router]
asn = {asn}
router_id = "10.77.0.{number}"
run_dir = "/run/headrace"
listen = []
"""
NEIGHBOR = """
[[neighbor]]
name = "{name}"
address = "{address}"
asn = {asn}
passive = true
import = {{ default = "accept" }}
export = {{ default = "accept" }}
"""


class InProcessRouter:
    """The pipeline behind a listening socket; a context manager. `neighbors`: (name, address, AS number)."""

    def __init__(self, neighbors: list[tuple[str, str, int]], number: int = 1, port: int = 0):
        self.address = f"127.0.0.{number}"
        self.config = HEAD.format(asn=ASN, number=number) + "".join(
            NEIGHBOR.format(name=n, address=a, asn=asn) for n, a, asn in neighbors
        )
        self.listener = socket.create_server((self.address, port))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.joined: list[tuple[socket.socket, str]] = []  # connections there are already, and with whom
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def join(self, other: "InProcessRouter") -> None:
        """Connect with another router, of which this one has a neighbor's address, before both are started."""
        ours, theirs = socket.socketpair()
        self.joined.append((ours, other.address))
        other.joined.append((theirs, self.address))

    def __enter__(self) -> "InProcessRouter":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        self._thread.join(30)
        self.listener.close()
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            with Pipeline(self.config) as pipeline:
                for connection, address in self.joined:
                    self._begin(pipeline, connection, address)
                while not self._is_over.wait(0.0005):
                    self._accept(pipeline)
                    pipeline.settle()
        except BaseException as failure:
            self._failure = failure

    def _accept(self, pipeline: Pipeline) -> None:
        try:
            connection, (address, _) = self.listener.accept()
        except BlockingIOError:
            return
        pipeline.clock.advance(3)  # a session that has just ended may come back
        self._begin(pipeline, connection, address)

    def _begin(self, pipeline: Pipeline, connection: socket.socket, address: str) -> None:
        speaker = pipeline.stage("speaker")
        speaker.neighbors.accept(Connection(speaker.context.loop, NamedSocket(connection, self.address, address)))
