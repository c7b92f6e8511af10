"""A relay: hands each reader's request on to the owner upstream, and each batch back, transformed.

Owns one upstream subscription for each downstream one. Never keeps routes: positions pass through, with the version of
what it evaluates with as part of the epoch, so a reader that comes back to a relay of another version gets a snapshot.
Credit passes through too: upstream is given back what downstream has given back, in proportion, so a slow reader stops
its owner's sending and nothing piles up here.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from common.bus.batch import GAP, SNAPSHOT_BEGIN, SNAPSHOT_END, START, Batch, Position, empty_columns
from common.bus.follower import Follower
from common.bus.parts import part_flags, part_position
from common.bus.server import Refused, Server, Source
from common.bus.wire import Request

Upstream = tuple[str, str, dict[str, Any]]
"""Where a request goes: endpoint, channel, params."""

Transform = Callable[[Batch], list[Batch]]

FollowUpstream = Callable[..., Follower]
"""follow(endpoint, channel, handle, params=, position=, credit=, on_refused=, is_credit_manual=) -> Follower"""


class Relay:
    """Serves channels by transforming those of another stage."""

    def __init__(
        self,
        server: Server,
        channel_pattern: str,
        upstream: Callable[[Request], Upstream],
        version: str | Callable[[Request], str],
        transformation: Callable[[Request], Transform],
        follow: FollowUpstream,
    ):
        """Add the pattern to `server`.

        upstream: for a request, where it goes; may raise Refused.
        version: of all that `transform` depends on, or what returns it for a request; without "~".
        transformation: returns for a request, once for each version, what its batches are transformed by: a function
            that returns what a batch becomes: new batches with kind, columns and meta; channel, positions and flags
            are filled in here. It may return [] (nothing of it is left) or the batch itself (passed on as it is).
        """
        self._server = server
        self._upstream = upstream
        self._version_of = version if callable(version) else lambda request: version
        self._transformation = transformation
        self._follow = follow
        self._sources: list[RelaySource] = []
        server.add(channel_pattern, self._open)

    def version_of(self, request: Request) -> str:
        """Return the version that a request is evaluated with now."""
        return _checked(self._version_of(request))

    def set_version(self, version: str) -> None:
        """Evaluate all anew: readers of another version get a snapshot."""
        version = _checked(version)
        self._version_of = lambda request: version
        self.update()

    def update(self) -> None:
        """Give readers for whose requests the version is another one now a snapshot."""
        for source in list(self._sources):
            try:
                version = self.version_of(source.request)
            except Refused as refused:
                self._server.refuse(source, str(refused))
                continue
            source.transform = self._transformation(source.request)
            if version != source.version:
                source.version = version
                source.restart()

    def requests(self) -> list[Request]:
        """Return the requests that are being served."""
        return [source.request for source in self._sources]

    def _open(self, request: Request) -> "RelaySource":
        upstream = self._upstream(request)
        source = RelaySource(self, request, upstream, self._transformation(request))
        self._sources.append(source)
        return source


class RelaySource(Source):
    """The way of one reader through a relay."""

    def __init__(self, relay: Relay, request: Request, upstream: Upstream, transform: Transform):
        self._relay = relay
        self.request = request
        self.transform = transform
        self.version = relay.version_of(request)
        self._pending: deque[Batch] = deque()  # bounded by the credit given upstream
        self._n_in = 0  # octets come from upstream,
        self._n_out = 0  # what they became,
        self._n_returned_out = 0  # how much of that the reader has given back,
        self._n_returned_in = 0  # and what of it was passed on
        self._head = request.position.sequence
        endpoint, channel, params = upstream
        self._follower = relay._follow(
            endpoint,
            channel,
            self._on_batch,
            params=params,
            position=self._upstream_position(request.position),
            credit=max(1, request.credit),
            on_refused=self._on_refused,
            is_credit_manual=True,
        )

    @property
    def head(self) -> int:
        return self._head

    @property
    def epoch(self) -> str:
        return f"{self._follower.position.epoch}~{self.version}"

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        """Return the next batch that has come; one at a time, so other readers have their turn."""
        return [self._pending.popleft()] if self._pending else []

    def has_more(self, position: Position) -> bool:
        return bool(self._pending)

    def grant(self, octets: int) -> None:
        """Pass on upstream the share of what has come that the reader has now taken."""
        self._n_returned_out = min(self._n_returned_out + octets, self._n_out)
        self._return_credit()

    def close(self) -> None:
        self._follower.close()
        self._pending.clear()
        self._relay._sources.remove(self)

    def restart(self) -> None:
        """Begin a snapshot; what has not been read yet is of another version."""
        in_flight = self._n_out - self._n_returned_out - sum(batch.n_octets for batch in self._pending)
        self._pending.clear()
        self._start_accounts()
        self._n_in = self._n_out = in_flight
        self._follower.restart(START, owed=in_flight)

    def _start_accounts(self) -> None:
        self._n_in = self._n_out = self._n_returned_in = self._n_returned_out = 0

    def _upstream_position(self, position: Position) -> Position:
        epoch, _, version = position.epoch.rpartition("~")
        return position._replace(epoch=epoch) if version == self.version and epoch else START

    def _on_batch(self, batch: Batch) -> None:
        self._head = batch.head
        made = self.transform(batch)
        n_out_before = self._n_out
        if len(made) == 1:
            self._pass_on(batch, made[0], batch.position, batch.flags)
        elif made:
            before = part_position(batch, self._follower.position)
            last = len(made) - 1
            for index, each in enumerate(made):
                position = batch.position if index == last else before
                self._pass_on(batch, each, position, part_flags(batch, index == 0, index == last))
        elif batch.flags & (SNAPSHOT_BEGIN | SNAPSHOT_END | GAP):
            emptied = Batch(batch.kind, empty_columns(batch.kind), batch.meta)
            self._pass_on(batch, emptied, batch.position, batch.flags)
        n_octets = batch.n_octets
        # What it became smaller by waits nowhere, and is given back at once: a reader gives back what it was sent in
        # portions of its window, which batches that shrink to next to nothing would never come to.
        n_waiting = min(n_octets, self._n_out - n_out_before)
        self._n_in += n_waiting
        self._follower.grant(n_octets - n_waiting)

    def _pass_on(self, batch: Batch, made: Batch, position: Position, flags: int) -> None:
        """Have the reader told one of the batches that one from upstream has become."""
        epoch, sequence, cursor = position
        passed = Batch(
            made.kind,
            made.columns,
            made.meta,
            self.request.channel,
            Position(f"{epoch}~{self.version}", sequence, cursor),
            batch.first,
            batch.head,
            flags,
            joined=made.joined,
        )
        self._n_out += passed.n_octets
        self._pending.append(passed)

    def _return_credit(self) -> None:
        if not self._n_out:
            return
        due = self._n_in * self._n_returned_out // self._n_out - self._n_returned_in
        if due > 0:
            self._n_returned_in += due
            self._follower.grant(due)
        if self._n_returned_out == self._n_out:
            self._start_accounts()

    def _on_refused(self, reason: str) -> None:
        self._relay._server.refuse(self, f"upstream: {reason}")


def _checked(version: str) -> str:
    if "~" in version or not version:
        raise ValueError('a version is not empty and has no "~"')
    return version
