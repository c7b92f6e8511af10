"""A relay: hands each reader's request on to the owner upstream, and each batch back, transformed.

Owns one upstream subscription for each downstream one. Never keeps routes: positions pass through, with the version of
what it evaluates with as part of the epoch, so a reader that comes back to a relay of another version gets a snapshot.
Credit passes through too: upstream is given back what downstream has given back, in proportion, so a slow reader stops
its owner's sending and nothing piles up here.

Readers of shares of one table are joined while they are in step: what comes for all of them is followed and transformed
once (trunk.py). Whoever begins, or falls behind, has an upstream subscription of its own, so nobody waits for it.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from common.bus.batch import GAP, SNAPSHOT_BEGIN, SNAPSHOT_END, START, UNSENT, Batch, Position, empty_columns
from common.bus.follower import Follower
from common.bus.parts import part_flags, part_position
from common.bus.server import Refused, Server, Source
from common.bus.trunk import Round, Trunk
from common.bus.wire import Request
from common.config.sharing import WHOLE, Share, decode_share
from common.runtime.loop import Loop

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
        loop: Loop,
        joins_shares: bool = False,
    ):
        """Add the pattern to `server`.

        upstream: for a request, where it goes; may raise Refused.
        version: of all that `transform` depends on, or what returns it for a request; without "~".
        transformation: returns for a request, once for each version, what its batches are transformed by: a function
            that returns what a batch becomes: new batches with kind, columns and meta; channel, positions and flags
            are filled in here. It may return [] (nothing of it is left) or the batch itself (passed on as it is).
        joins_shares: readers of shares of one owner's RouteChanges are joined; `transform` makes one batch of each,
            and what it makes depends on nothing else in a request.
        """
        self._server = server
        self._upstream = upstream
        self._version_of = version if callable(version) else lambda request: version
        self._transformation = transformation
        self._follow = follow
        self._loop = loop
        self._joins_shares = joins_shares
        self._sources: list[RelaySource] = []
        self._trunks: dict[tuple, Trunk] = {}
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

    def trunks(self) -> list[Trunk]:
        """Return what readers of shares are joined by."""
        return [trunk for trunk in self._trunks.values() if trunk.n_readers]

    def requests(self) -> list[Request]:
        """Return the requests that are being served."""
        return [source.request for source in self._sources]

    def _open(self, request: Request) -> "RelaySource":
        upstream = self._upstream(request)
        source = RelaySource(self, request, upstream, self._transformation(request))
        self._sources.append(source)
        return source

    def _trunk_of(self, source: "RelaySource", position: Position) -> Trunk | None:
        """Return the trunk for the shares that a reader has one of, made if there is none; None if it is elsewhere."""
        endpoint, channel, params = source.upstream
        params = {name: value for name, value in params.items() if name not in source.share.params}
        key = (endpoint, channel, repr(sorted(params.items())), source.share.count, source.version)
        position = position._replace(epoch=source.share.whole_epoch_of(position.epoch))
        self._trunks = {each: trunk for each, trunk in self._trunks.items() if trunk.n_readers}
        trunk = self._trunks.get(key)
        if trunk is None:
            follow = partial(self._follow, endpoint, channel, params=params)
            trunk = self._trunks[key] = Trunk(self._loop, source.share.count, follow, position)
        return trunk if trunk.is_for(position) else None

    def _share_of(self, request: Request) -> Share:
        """Return the share a request is for, if its readers may be joined."""
        if not self._joins_shares or request.is_tap:
            return WHOLE
        try:
            return decode_share(request.params)
        except ValueError:
            return WHOLE  # the owner says what is wrong with it


class RelaySource(Source):
    """The way of one reader through a relay."""

    def __init__(self, relay: Relay, request: Request, upstream: Upstream, transform: Transform):
        self._relay = relay
        self.request = request
        self.upstream = upstream
        self.share = relay._share_of(request)
        self.transform = transform
        self.version = relay.version_of(request)
        self._pending: deque[Batch] = deque()  # bounded by the credit given upstream
        self._n_in = 0  # octets come from upstream,
        self._n_out = 0  # what they became,
        self._n_returned_out = 0  # how much of that the reader has given back,
        self._n_returned_in = 0  # and what of it was passed on
        self._head = request.position.sequence
        self._trunk: Trunk | None = None
        self._read_to = START  # in the trunk
        self._follower: Follower | None = self._follow(self._upstream_position(request.position))

    def _follow(self, position: Position, owed: int = 0) -> Follower:
        endpoint, channel, params = self.upstream
        return self._relay._follow(
            endpoint,
            channel,
            self._on_batch,
            params=params,
            position=position,
            credit=max(1, self.request.credit),
            on_refused=self._on_refused,
            is_credit_manual=True,
            owed=owed,
        )

    @property
    def head(self) -> int:
        return self._head

    @property
    def epoch(self) -> str:
        position = self._read_to if self._follower is None else self._follower.position
        return f"{position.epoch}~{self.version}"

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        """Return the next batch that has come; one at a time, so other readers have their turn."""
        if self._pending:
            return [self._pending.popleft()]
        found = self._trunk.next_round(self) if self._trunk is not None else None
        return [] if found is None else [self._of_round(found)]

    def has_more(self, position: Position) -> bool:
        return bool(self._pending) or (self._trunk is not None and self._trunk.has_more(self))

    def grant(self, octets: int) -> None:
        """Pass on upstream the share of what has come that the reader has now taken."""
        self._n_returned_out = min(self._n_returned_out + octets, self._n_out)
        self._return_credit()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()
        if self._trunk is not None:
            self._trunk.leave(self)
        self._pending.clear()
        self._relay._sources.remove(self)

    def restart(self) -> None:
        """Begin a snapshot; what has not been read yet is of another version."""
        n_unread = sum(batch.n_octets for batch in self._pending)
        self._pending.clear()
        self._begin(START, n_unread)

    def leave_trunk(self) -> None:
        """Go on with a subscription of its own, from what the reader has been told."""
        self._begin(self._read_to)

    def _begin(self, position: Position, n_unread: int = 0) -> None:
        """Follow upstream from a position; what the reader has not given back is still in use."""
        in_flight = self._n_out - self._n_returned_out - n_unread
        self._start_accounts()
        self._n_in = self._n_out = in_flight
        if self._follower is not None:
            self._follower.restart(position, owed=in_flight)
            return
        self._trunk.leave(self)
        self._trunk = None
        self._follower = self._follow(position, in_flight)

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
        if self.share.count > 1 and batch.position.cursor < 0 and batch.position.sequence == batch.head:
            self._join(batch.position)

    def _join(self, position: Position) -> None:
        """Share the way from upstream with others that are in step as well.

        All that comes from one owner comes in order, so what the trunk has yet to get is no older than what came here.
        """
        self._trunk = self._relay._trunk_of(self, position)
        if self._trunk is None:
            return
        self._trunk.join(self)
        self._read_to = position
        self._follower.close()
        self._follower = None

    def _of_round(self, found: Round) -> Batch:
        """Return the batch that a round of the trunk is for this reader."""
        part = found.part(self.share.index)
        epoch, sequence, cursor = found.position
        self._read_to = Position(self.share.epoch_of(epoch), sequence, cursor)
        self._head = found.head
        is_nothing = not (part.n_rows or found.flags)
        batch = Batch(
            part.kind,
            part.columns,
            part.meta,
            self.request.channel,
            self._read_to._replace(epoch=f"{self._read_to.epoch}~{self.version}"),
            found.first,
            found.head,
            found.flags | (UNSENT if is_nothing else 0),
        )
        if not is_nothing:
            self._n_in += batch.n_octets
            self._n_out += batch.n_octets
        return batch

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
            if self._follower is not None:
                self._follower.grant(due)
        if self._n_returned_out == self._n_out:
            self._start_accounts()

    def _on_refused(self, reason: str) -> None:
        self._relay._server.refuse(self, f"upstream: {reason}")


def _checked(version: str) -> str:
    if "~" in version or not version:
        raise ValueError('a version is not empty and has no "~"')
    return version
