"""Several listening ports as one: a stage that serves in the run directory and to other machines.

Owns the ports. A peer's name is that of its port and its own; nothing else is changed.
"""

from collections.abc import Iterable
from typing import Any

from common.bus.wire import ListenPort, Transport


class Doors:
    """The ports of one server."""

    def __init__(self, transport: Transport, endpoints: Iterable[str], on_frames, on_gone, max_unread: int):
        self._ports: list[ListenPort] = []
        try:
            for number, endpoint in enumerate(endpoints):
                self._open(transport, endpoint, bytes([number]), on_frames, on_gone, max_unread)
        except Exception:
            self.close()
            raise

    def _open(self, transport: Transport, endpoint: str, number: bytes, on_frames, on_gone, max_unread: int) -> None:
        self._ports.append(
            transport.listen(
                endpoint,
                lambda peer, frames: on_frames(number + peer, frames),
                lambda peer: on_gone(number + peer),
                max_unread,
            )
        )

    def send(self, peer: bytes, frames: list) -> bool:
        return self._ports[peer[0]].send(peer[1:], frames)

    def grant_of(self, peer: bytes) -> Any:
        return self._ports[peer[0]].grant_of(peer[1:])

    def close(self) -> None:
        for port in self._ports:
            port.close()


def listen(transport: Transport, endpoints: list[str], on_frames, on_gone, max_unread: int) -> ListenPort:
    """Bind at all endpoints; return what stands for them."""
    if len(endpoints) == 1:
        return transport.listen(endpoints[0], on_frames, on_gone, max_unread)
    return Doors(transport, endpoints, on_frames, on_gone, max_unread)
