"""A reader's side of the bus: asks for a channel from a position, handles what comes, gives credit back.

Owns the position, and the link to an owner that the followers of one stage share. Never acknowledges a batch before
`handle` has returned. After a reconnection, or after garbage, it asks again with its position, under a new number, so
nothing of an earlier answer can be taken for the new one.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol

from common.bus.batch import START, Batch, Position, decode
from common.bus.schema import SchemaError
from common.bus.wire import (
    ConnectPort,
    Request,
    Transport,
    decode_refusal,
    encode_credit,
    encode_read,
    encode_stop,
)
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer

CREDIT: Final = 4 << 20
"""Octets an owner may have on the way to one follower."""
GRANT_PART: Final = 16
"""Credit given by hand is told when it is this part of the window, so that small batches do not each cost a message."""
LAG_IN_STEP: Final = 8192
"""Changes of which nobody says that a reader who has yet to get them is behind."""
FIRST_RETRY_S: Final = 0.25
LAST_RETRY_S: Final = 10.0
ACCEPTED_S: Final = 1.0
"""Who was refused, has asked again and has heard nothing for so long is served: there may be nothing new to be told."""


class Recorder(Protocol):
    """Notes what is being handled (common/runtime/recorder.py)."""

    def parts(self, batch: Batch, before: Position) -> list[Batch]:
        """Return what is to be handled in the place of a batch that follows the position `before`."""

    def note(self, batch: Batch) -> None:
        """Note that a batch is being handled."""

    def done(self) -> None:
        """Note that nothing is being handled."""


class Link:
    """One connection to an owner, shared by the followers of a stage."""

    def __init__(
        self,
        transport: Transport,
        endpoint: str,
        reader: str,
        loop: Loop,
        log: Log,
        recorder: Recorder | None = None,
    ):
        self.endpoint = endpoint
        self.recorder = recorder
        self.reader = reader
        self.is_connected = False
        self.loop = loop
        self.log = log
        self._transport = transport
        self._watchers: list[Callable[[bool], None]] = []
        self._followers: dict[int, Follower] = {}  # by the number of their present request
        self._next_subscription = 1
        self._restart: Timer | None = None
        self.port: ConnectPort = transport.connect(endpoint, self.on_frames, self.on_up, self.on_down)

    @property
    def followers(self) -> list["Follower"]:
        return list(self._followers.values())

    @property
    def is_used(self) -> bool:
        """Whether anybody follows or watches."""
        return bool(self._followers or self._watchers)

    def watch(self, on_change: Callable[[bool], None]) -> None:
        """Have `on_change(is_connected)` called when the owner can be reached, and when it no longer can."""
        self._watchers.append(on_change)
        if self.is_connected:
            self.loop.call_later(0, lambda: on_change(self.is_connected))

    def unwatch(self, on_change: Callable[[bool], None]) -> None:
        """Undo `watch`."""
        self._watchers.remove(on_change)

    def add(self, follower: "Follower") -> int:
        """Give a follower's next request its number."""
        subscription = self._next_subscription
        self._next_subscription += 1
        self._followers[subscription] = follower
        return subscription

    def drop(self, subscription: int) -> None:
        """Forget a request."""
        self._followers.pop(subscription, None)

    def move(self, endpoint: str) -> None:
        """Go on with the owner at another place; each follower from its position."""
        port = self._transport.connect(endpoint, self.on_frames, self.on_up, self.on_down)
        self.port.close()
        self.on_down()
        self.endpoint, self.port = endpoint, port

    def close(self) -> None:
        """Let the connection go."""
        if self._restart is not None:
            self._restart.cancel()
        self.port.close()

    # ---- what the transport calls -------------------------------------------------------------------------------

    def on_up(self) -> None:
        """Ask for everything, from where each follower is."""
        self.is_connected = True
        event(self.log, "link-up", endpoint=self.endpoint)
        for follower in self.followers:
            follower.ask()
        for on_change in list(self._watchers):
            on_change(True)

    def on_down(self) -> None:
        if not self.is_connected:
            return
        event(self.log, "link-down", "warning", endpoint=self.endpoint)
        self.is_connected = False
        for on_change in list(self._watchers):
            on_change(False)

    def on_frames(self, frames: list) -> None:
        """Hand a batch to its follower; what cannot be read is counted, logged and dropped."""
        try:
            if len(frames) == 1:
                if not memoryview(frames[0]).nbytes:
                    return  # the owner asks whether we are still there
                subscription, batch, refusal = None, None, None
                try:
                    subscription, batch = decode(frames)
                except SchemaError:
                    refusal = decode_refusal(frames)
                    subscription = refusal.subscription
            else:
                subscription, batch = decode(frames)
                refusal = None
        except SchemaError as error:
            self._on_garbage(error)
            return
        follower = self._followers.get(subscription)
        if follower is None:
            return  # an answer to a request of before
        if refusal is not None:
            follower.on_refusal(refusal.reason)
        elif batch.channel != follower.channel:
            self._on_garbage(SchemaError(f"channel {batch.channel:.80}, asked for {follower.channel}"))
        else:
            follower.on_batch(batch)

    def _on_garbage(self, error: SchemaError) -> None:
        """Count it, and soon ask again from the last good position: what was dropped may have been a batch."""
        event(self.log, "bus-garbage", "warning", endpoint=self.endpoint, problem=error)
        if self._restart is None or not self._restart.is_pending:
            self._restart = self.loop.call_later(1.0, self._ask_again)

    def _ask_again(self) -> None:
        for follower in self.followers:
            follower.stop_asking()
            follower.ask()


class Follower:
    """Follows one channel."""

    def __init__(
        self,
        link: Link,
        channel: str,
        handle: Callable[[Batch], None],
        params: dict[str, Any] | None = None,
        position: Position = START,
        credit: int = CREDIT,
        on_refused: Callable[[str], None] | None = None,
        is_credit_manual: bool = False,
        owed: int = 0,
    ):
        """Begin to follow; batches come from the loop, never from here.

        handle: called with each batch, in order; what it raises ends the process.
        credit: octets the owner may have on the way.
        on_refused: called with the reason when the owner refuses; the follower goes on asking, ever more slowly,
            unless it is closed.
        is_credit_manual: nothing is given back by itself; the caller gives credit back with `grant`.
        owed: octets of the credit that are in use already (`is_credit_manual`).
        """
        self.channel = channel
        self.params = params or {}
        self.position = position
        self.credit = credit
        self.head = 0
        self.refused: str | None = None
        self.n_batches = 0
        self.n_octets = 0
        self.on_refused = on_refused
        self._handle = handle
        self._is_credit_manual = is_credit_manual
        self._owed = owed
        self._ungranted = 0  # no longer owed, and the owner has not been told yet
        self._link = link
        self._retry: Timer | None = None
        self._acceptance: Timer | None = None
        self._retry_s = FIRST_RETRY_S
        self._is_closed = False
        self._subscription = link.add(self)
        if link.is_connected:
            self._send_read()

    @property
    def is_connected(self) -> bool:
        """Whether the owner can be reached and has not refused."""
        return self._link.is_connected and self.refused is None

    @property
    def owner(self) -> str:
        """Whom it follows: stage and instance."""
        return self._link.endpoint.rsplit("/", 1)[-1].removesuffix(".bus")

    @property
    def lag(self) -> int:
        """Changes the owner had, at the last batch, that are not handled yet."""
        return max(0, self.head - self.position.sequence)

    @property
    def is_in_snapshot(self) -> bool:
        return self.position.cursor >= 0

    @property
    def is_in_step(self) -> bool:
        """Whether it has had the whole table, and of the changes since then all but the latest."""
        position = self.position
        return self.is_connected and bool(position.epoch) and position.cursor < 0 and self.lag <= LAG_IN_STEP

    def status(self) -> dict[str, Any]:
        """Return a description, for status."""
        return {
            "endpoint": self._link.endpoint,
            "channel": self.channel,
            "connected": self.is_connected,
            "in_step": self.is_in_step,
            "refused": self.refused or "",
            "epoch": self.position.epoch,
            "sequence": self.position.sequence,
            "cursor": self.position.cursor,
            "lag": self.lag,
            "batches": self.n_batches,
            "octets": self.n_octets,
        }

    def grant(self, octets: int) -> None:
        """Give credit back by hand (`is_credit_manual`); the owner is told when it has become worth a message."""
        self._owed = max(0, self._owed - octets)
        self._ungranted += octets
        if self._ungranted * GRANT_PART >= self.credit:
            self._link.port.send(encode_credit(self._subscription, self._ungranted))
            self._ungranted = 0

    def restart(self, position: Position, owed: int = 0) -> None:
        """Ask again, from another position; `owed` octets of the credit are still in use (`is_credit_manual`)."""
        self.stop_asking()
        self.position = position
        self._owed = owed
        self.ask()

    def move(self, link: Link) -> None:
        """Ask another owner of the same for what follows the position."""
        if link is self._link or self._is_closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        self.stop_asking()
        self._link.drop(self._subscription)
        self._link, self.refused, self._retry_s = link, None, FIRST_RETRY_S
        self._subscription = link.add(self)
        if link.is_connected:
            self._send_read()

    def close(self) -> None:
        """Stop following."""
        self._is_closed = True
        self.stop_asking()
        self._link.drop(self._subscription)
        for timer in (self._retry, self._acceptance):
            if timer is not None:
                timer.cancel()

    # ---- what the link calls ------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for the channel from the present position, under a new number."""
        if self._is_closed:
            return
        if self._retry is not None:
            self._retry.cancel()
        self._link.drop(self._subscription)
        self._subscription = self._link.add(self)
        self._send_read()
        if self._acceptance is not None:
            self._acceptance.cancel()
        if self.refused is not None:
            self._acceptance = self._link.loop.call_later(ACCEPTED_S, self._on_accepted)

    def _on_accepted(self) -> None:
        if self._link.is_connected:
            self.refused = None
            self._retry_s = FIRST_RETRY_S

    def stop_asking(self) -> None:
        """Tell the owner to send nothing more."""
        self._link.port.send(encode_stop(self._subscription))

    def on_batch(self, batch: Batch) -> None:
        """Handle a batch, then note the position, then give credit back."""
        subscription = self._subscription
        self.refused = None
        self._retry_s = FIRST_RETRY_S
        size = batch.n_octets
        self.head = batch.head
        self._owed += size
        if self._link.recorder is None:
            self._handle(batch)
        else:
            self._handle_recorded(batch, self._link.recorder)
        self.n_batches += 1
        self.n_octets += size
        if self._subscription != subscription or self._is_closed:
            return  # `handle` has restarted or closed this follower
        self.position = batch.position
        if self._is_credit_manual:
            return
        # A quarter of the window at once: small batches do not each cost a message back.
        if self._owed * 4 >= self.credit:
            self._link.port.send(encode_credit(subscription, self._owed))
            self._owed = 0

    def _handle_recorded(self, batch: Batch, recorder: Recorder) -> None:
        subscription = self._subscription
        for part in recorder.parts(batch, self.position):
            recorder.note(part)
            self._handle(part)
            recorder.done()
            if self._subscription != subscription or self._is_closed:
                return

    def on_refusal(self, reason: str) -> None:
        """Note it, tell, and try again later."""
        self.refused = reason
        if self._acceptance is not None:
            self._acceptance.cancel()
        event(
            self._link.log,
            "follower-refused",
            "warning",
            endpoint=self._link.endpoint,
            channel=self.channel,
            reason=reason,
        )
        if self.on_refused is not None:
            self.on_refused(reason)
        if not self._is_closed:
            self._retry = self._link.loop.call_later(self._retry_s, self.ask)
            self._retry_s = min(self._retry_s * 2, LAST_RETRY_S)

    def _send_read(self) -> None:
        if not self._is_credit_manual:
            self._owed = 0
        credit = max(0, self.credit - self._owed)
        self._ungranted = 0
        request = Request(self.channel, self.params, self._link.reader, self.position, credit)
        self._link.port.send(encode_read(self._subscription, request))
