"""The bus as a stage sees it: serve, follow, relay, control.

Owns the stage's server, its links to owners (one for each endpoint), its relays and its control socket.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.bus.batch import START, Batch, Position
from common.bus.control import MAX_UNREAD_ANSWERS, Control, Handler
from common.bus.doors import listen
from common.bus.follower import CREDIT, Follower, Link, Recorder
from common.bus.keyring import Keyring
from common.bus.places import Places
from common.bus.relay import Relay, Transform, Upstream
from common.bus.server import MAX_UNREAD_BATCHES, Server
from common.bus.wire import Request, Transport
from common.config.schema import STAGES, Config
from common.runtime.log import Log
from common.runtime.loop import Loop


class Bus:
    """The bus of one stage."""

    def __init__(
        self,
        run_dir: str | Path,
        stage: str,
        instance: str,
        loop: Loop,
        transport: Transport,
        log: Log,
        recorder: Recorder | None = None,
        places: Places | None = None,
    ):
        self.run_dir = run_dir
        self.places = places or Places(run_dir)
        self._recorder = recorder
        self.stage = stage
        self.instance = instance
        self._loop = loop
        self._transport = transport
        self._log = log
        self._server: Server | None = None
        self._control: Control | None = None
        self._links: dict[str, Link] = {}

    def endpoint(self, stage: str, instance: str = "0") -> str:
        """Return where another stage serves."""
        return self.places.bus(stage, instance)

    def serve(self) -> Server:
        """Return this stage's server, bound at its endpoint at the first call; add channels to it."""
        if self._server is None:
            server = self._server = Server(self._log)
            served = self.places.served_bus(self.stage, self.instance)
            server.port = listen(self._transport, served, server.on_frames, server.on_gone, MAX_UNREAD_BATCHES)
        return self._server

    def follow(
        self,
        stage: str,
        instance: str,
        channel: str,
        handle: Callable[[Batch], None],
        *,
        params: dict[str, Any] | None = None,
        position: Position = START,
        credit: int = CREDIT,
        on_refused: Callable[[str], None] | None = None,
        is_credit_manual: bool = False,
    ) -> Follower:
        """Follow a channel of another stage; see Follower."""
        return self._follow(
            self.endpoint(stage, instance),
            channel,
            handle,
            params=params,
            position=position,
            credit=credit,
            on_refused=on_refused,
            is_credit_manual=is_credit_manual,
        )

    def move(self, follower: Follower, stage: str, instance: str) -> None:
        """Have a follower go on, from its position, with another instance that serves the same."""
        follower.move(self._link(self.endpoint(stage, instance)))

    def renew(self, places: Places, former: Keyring, keyring: Keyring) -> None:
        """Call others where another configuration says they are, by the keys it knows.

        What this stage serves stays where it is.
        """
        moved = {self.places.bus(*each): places.bus(*each) for each in {*self.places.declared, *places.declared}}
        self.places = places
        self._transport.renew(keyring)
        for link in self._links.values():
            at, to = link.endpoint, moved.get(link.endpoint, link.endpoint)
            if at != to or former.servers.get(at) != keyring.servers.get(to):
                link.move(to)
        self._links = {link.endpoint: link for link in self._links.values()}

    def prune(self, config: Config) -> None:
        """Let go the connections that nobody uses to stages that are not configured."""
        known = {self.endpoint(stage, instance) for stage in STAGES for instance in config.instances(stage)}
        for at in [at for at, link in self._links.items() if at not in known and not link.is_used]:
            self._links.pop(at).close()

    def watch(self, stage: str, instance: str, on_change: Callable[[bool], None]) -> Callable[[], None]:
        """Have `on_change(is_connected)` called when another stage comes and goes; return what ends that."""
        link = self._link(self.endpoint(stage, instance))
        link.watch(on_change)
        return lambda: link.unwatch(on_change)

    def relay(
        self,
        channel_pattern: str,
        upstream: Callable[[Request], Upstream],
        version: str | Callable[[Request], str],
        transformation: Callable[[Request], Transform],
        joins_shares: bool = False,
    ) -> Relay:
        """Serve channels by transforming another stage's; `upstream` gives (self.endpoint(...), channel, params)."""
        return Relay(
            self.serve(), channel_pattern, upstream, version, transformation, self._follow, self._loop, joins_shares
        )

    def control(self, handlers: dict[str, Handler]) -> Control:
        """Answer these questions, beside those of earlier calls."""
        if self._control is None:
            control = self._control = Control(self._log)
            served = self.places.served_control(self.stage, self.instance)
            control.port = listen(self._transport, served, control.on_frames, control.on_gone, MAX_UNREAD_ANSWERS)
        self._control.handlers.update(handlers)
        return self._control

    def pump(self) -> bool:
        """Send what readers can take; return True if there is more to send at once."""
        return self._server is not None and self._server.pump()

    def followers(self) -> list[Follower]:
        """Return all followers, for status."""
        return [follower for link in self._links.values() for follower in link.followers]

    def status(self) -> dict[str, Any]:
        """Return readers and followers, for status."""
        return {
            "readers": self._server.readers() if self._server is not None else [],
            "followers": [follower.status() for follower in self.followers()],
        }

    def close(self) -> None:
        """Close every socket."""
        if self._server is not None:
            self._server.close()  # before the links: its relays still have something to say upstream
        for link in self._links.values():
            link.close()
        self._links.clear()
        if self._control is not None:
            self._control.close()
        self._transport.close()

    def _follow(self, at: str, channel: str, handle: Callable[[Batch], None], **more) -> Follower:
        return Follower(self._link(at), channel, handle, **more)

    def _link(self, at: str) -> Link:
        link = self._links.get(at)
        if link is None:
            reader = f"{self.stage}.{self.instance}"
            link = self._links[at] = Link(self._transport, at, reader, self._loop, self._log, self._recorder)
        return link
