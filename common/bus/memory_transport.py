"""A transport inside one process, for tests: what is sent is delivered in order, when the receiver's loop turns.

Owns the mailboxes. Octets are copied when they are sent, as a process border would. Tests can end a connection (`drop`)
and make a receiver deaf (`freeze`).
"""

from collections import deque
from collections.abc import Callable

from common.bus.wire import Unread
from common.runtime.loop import Loop

MESSAGES_PER_DRAIN = 32


class MemoryHub:
    """The place where the transports of all stages of one test meet."""

    def __init__(self):
        self.listeners: dict[str, MemoryListenPort] = {}
        self.connectors: dict[str, list[MemoryConnectPort]] = {}
        self.n_sent = 0
        self._n_peers = 0

    def drop(self, endpoint: str) -> None:
        """End all connections of an endpoint; what was on its way is lost; the ends connect again at once."""
        for connector in self.connectors.get(endpoint, ()):
            connector.disconnect()
            connector.connect()

    def new_peer(self) -> bytes:
        self._n_peers += 1
        return b"peer-%d" % self._n_peers


class _Mailbox:
    """A queue of the loop."""

    is_suspect = True

    def __init__(self, loop: Loop):
        self.is_frozen = False
        self._items: deque[tuple[Callable, tuple]] = deque()
        self._loop = loop
        loop.add_queue(self)

    def __len__(self) -> int:
        return len(self._items)

    def fileno(self) -> int:
        return -1

    def has_input(self) -> bool:
        return bool(self._items) and not self.is_frozen

    def drain(self) -> bool:
        for _ in range(MESSAGES_PER_DRAIN):
            if not self.has_input():
                return False
            callback, arguments = self._items.popleft()
            callback(*arguments)
        return self.has_input()

    def put(self, callback: Callable, *arguments) -> None:
        self._items.append((callback, arguments))

    def clear(self) -> None:
        self._items.clear()

    def close(self) -> None:
        self._items.clear()
        self._loop.remove_queue(self)


class MemoryTransport:
    """The transport of one stage."""

    def __init__(self, hub: MemoryHub, loop: Loop):
        self._hub = hub
        self._loop = loop

    def listen(self, endpoint: str, on_frames, on_gone, max_unread: int) -> "MemoryListenPort":
        return MemoryListenPort(self._hub, self._loop, endpoint, on_frames, on_gone, max_unread)

    def connect(self, endpoint: str, on_frames, on_up, on_down) -> "MemoryConnectPort":
        return MemoryConnectPort(self._hub, self._loop, endpoint, on_frames, on_up, on_down)

    def renew(self, keyring) -> None:
        """There are no keys within one process."""

    def close(self) -> None:
        """Nothing of its own is open."""


class MemoryListenPort:
    """The owner's end."""

    def __init__(self, hub: MemoryHub, loop: Loop, endpoint: str, on_frames, on_gone, max_unread: int):
        if endpoint in hub.listeners:
            raise OSError(f"{endpoint} is taken")
        self.mailbox = _Mailbox(loop)
        self.peers: dict[bytes, MemoryConnectPort] = {}
        self.endpoint = endpoint
        self.max_unread = max_unread
        self.on_frames = on_frames
        self.on_gone = on_gone
        self._hub = hub
        hub.listeners[endpoint] = self
        for connector in hub.connectors.get(endpoint, ()):
            connector.connect()

    def send(self, peer: bytes, frames: list) -> bool:
        connector = self.peers.get(peer)
        if connector is None:
            return False
        if len(connector.mailbox) >= self.max_unread:
            raise Unread
        self._hub.n_sent += 1
        connector.mailbox.put(connector.on_frames, [bytes(memoryview(frame)) for frame in frames])
        return True

    def grant_of(self, peer: bytes) -> None:
        """All of one process may do everything."""

    def close(self) -> None:
        self._hub.listeners.pop(self.endpoint, None)
        for connector in list(self.peers.values()):
            connector.disconnect()
        self.mailbox.close()


class MemoryConnectPort:
    """A reader's end."""

    def __init__(self, hub: MemoryHub, loop: Loop, endpoint: str, on_frames, on_up, on_down):
        self.mailbox = _Mailbox(loop)
        self.endpoint = endpoint
        self.peer = b""
        self.on_frames = on_frames
        self.on_up = on_up
        self.on_down = on_down
        self._hub = hub
        hub.connectors.setdefault(endpoint, []).append(self)
        self.connect()

    def send(self, frames: list) -> bool:
        listener = self._listener()
        if listener is None:
            return False
        self._hub.n_sent += 1
        listener.mailbox.put(listener.on_frames, self.peer, [bytes(memoryview(frame)) for frame in frames])
        return True

    def freeze(self) -> None:
        """Deliver nothing more to this end until `thaw`."""
        self.mailbox.is_frozen = True

    def thaw(self) -> None:
        self.mailbox.is_frozen = False

    def connect(self) -> None:
        listener = self._hub.listeners.get(self.endpoint)
        if listener is None or self.peer:
            return
        self.peer = self._hub.new_peer()
        listener.peers[self.peer] = self
        self.mailbox.put(self.on_up)

    def disconnect(self) -> None:
        """Lose the connection, and what was on its way to this end."""
        if not self.peer:
            return
        listener = self._listener()
        if listener is not None:
            listener.mailbox.put(listener.on_gone, self.peer)
        for port in self._hub.listeners.values():
            port.peers.pop(self.peer, None)
        self.peer = b""
        self.mailbox.clear()
        self.mailbox.put(self.on_down)

    def close(self) -> None:
        self.disconnect()
        self._hub.connectors[self.endpoint].remove(self)
        self.mailbox.close()

    def _listener(self) -> "MemoryListenPort | None":
        listener = self._hub.listeners.get(self.endpoint)
        return listener if listener is not None and self.peer in listener.peers else None
