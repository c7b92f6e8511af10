"""A trunk: what several readers of shares are told by a relay, followed upstream once and split for them here.

Owns one upstream subscription, and the rounds its readers have yet to read. A round is what has come, transformed and
split, until it was worth a batch for each share: many rows, or the little there is when not much comes. So a table
travels to several readers in about as many batches as to one, and each attribute set is evaluated once. Never keeps
routes: a round goes when the slowest reader has read it, and only then is upstream given its octets back.

    upstream ──▶ held ──(many rows, or few, or time)──▶ round, round, round
                                                          ▲            ▲
                                                        reader A     readers B, C, D

Readers come to a trunk when they are in step, and leave it when they are to begin anew or hold the others up; before
and after it they have subscriptions of their own.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from common.bus.batch import Batch, Position
from common.bus.follower import CREDIT, Follower
from common.bus.parts import by_share
from common.bus.schema import RouteChanges
from common.config.sharing import Share
from common.runtime.loop import Loop, Timer

ROUND_ROWS: Final = 65536
"""Rows that are worth a round."""
FEW_ROWS: Final = 1024
"""A batch of fewer waits for no others."""
ROUND_S: Final = 0.04
"""While larger ones come, how long the first of a round waits for others at most."""
SLOW_OCTETS: Final = CREDIT // 2
"""Who makes the trunk keep more than this, while others have read all, goes on alone."""


class Reader(Protocol):
    """What a trunk knows of a reader."""

    share: Share
    transform: Callable[[Batch], list[Batch]]

    def leave_trunk(self) -> None:
        """Go on with a subscription of its own."""


@dataclass(slots=True)
class Round:
    """A batch for each share, or one for all, with the position after it."""

    parts: list[Batch]
    position: Position
    first: int
    head: int
    flags: int
    n_octets: int

    def part(self, index: int) -> Batch:
        """Return what is for a share."""
        return self.parts[index] if len(self.parts) > 1 else self.parts[0]


class Trunk:
    """One stream for the readers of `n_shares` shares."""

    def __init__(self, loop: Loop, n_shares: int, follow: Callable[..., Follower], position: Position):
        """Follow upstream from a position: follow(handle, position=, credit=, on_refused=, is_credit_manual=)."""
        self._loop = loop
        self._n_shares = n_shares
        self._readers: dict[Reader, int] = {}  # and the round each reads next
        self._rounds: deque[Round] = deque()
        self._first = 0  # the number of the oldest round
        self._held: list[tuple[Batch, Batch]] = []  # as it came, and what it became
        self._n_held_rows = 0
        self._timer: Timer | None = None
        self._follower = follow(
            self._on_batch, position=position, credit=CREDIT, on_refused=self._on_refused, is_credit_manual=True
        )

    @property
    def n_readers(self) -> int:
        return len(self._readers)

    @property
    def is_waiting(self) -> bool:
        """Whether something is held until more has come or time is up."""
        return self._timer is not None

    @property
    def n_octets(self) -> int:
        """Octets from upstream that are here."""
        return sum(each.n_octets for each in self._rounds) + sum(came.n_octets for came, _ in self._held)

    def is_for(self, position: Position) -> bool:
        """Tell whether a reader at this position may join: what it has yet to be told has yet to come here."""
        own = self._follower.position
        return own.epoch == position.epoch and own.cursor < 0 and own.sequence <= position.sequence

    def join(self, reader: Reader) -> None:
        """Have a reader told what comes from now on; it has been told what came until now."""
        self._end_round()
        self._readers[reader] = self._first + len(self._rounds)
        self._forget()

    def leave(self, reader: Reader) -> None:
        """Forget a reader; the last one ends the subscription."""
        del self._readers[reader]
        if self._readers:
            self._forget()
            return
        self._follower.close()
        if self._timer is not None:
            self._timer.cancel()

    def next_round(self, reader: Reader) -> Round | None:
        """Return what a reader has not read, a round at a time."""
        at = self._readers[reader] - self._first
        if at == len(self._rounds):
            return None
        self._readers[reader] += 1
        found = self._rounds[at]
        if at == 0:
            self._forget()
        return found

    def has_more(self, reader: Reader) -> bool:
        return self._readers[reader] < self._first + len(self._rounds)

    # ---- from upstream ------------------------------------------------------------------------------------------

    def _on_batch(self, batch: Batch) -> None:
        made = next(iter(self._readers)).transform(batch)
        if len(made) != 1:
            raise ValueError("a batch that is shared out becomes one batch")
        if batch.flags or batch.kind is not RouteChanges:
            # Marks keep their place, and the beginning and the end of a snapshot their rows.
            self._end_round()
            parts = by_share(made, self._n_shares) if made[0].kind is RouteChanges else made
            self._add_round([batch], parts)
            return
        self._held.append((batch, made[0]))
        self._n_held_rows += batch.n_rows
        is_alone = self._timer is None and batch.n_rows < FEW_ROWS
        if is_alone or self._n_held_rows >= ROUND_ROWS:
            self._end_round()
        elif self._timer is None:
            self._timer = self._loop.call_later(ROUND_S, self._end_round)

    def _end_round(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._held:
            came = [batch for batch, _ in self._held]
            made = [batch for _, batch in self._held]
            self._held.clear()
            self._n_held_rows = 0
            self._add_round(came, by_share(made, self._n_shares))

    def _add_round(self, came: list[Batch], parts: list[Batch]) -> None:
        last = came[-1]
        n_octets = sum(batch.n_octets for batch in came)
        self._rounds.append(Round(parts, last.position, came[0].first, last.head, last.flags, n_octets))
        self._part_from_slow()

    def _part_from_slow(self) -> None:
        if len(self._rounds) < 2 or self.n_octets < SLOW_OCTETS:
            return
        latest = self._first + len(self._rounds) - 1
        if max(self._readers.values()) >= latest:
            for reader in [reader for reader, at in self._readers.items() if at == self._first]:
                reader.leave_trunk()

    def _forget(self) -> None:
        """Drop the rounds that all have read, and let upstream send as much."""
        oldest = min(self._readers.values())
        n_octets = 0
        while self._first < oldest:
            n_octets += self._rounds.popleft().n_octets
            self._first += 1
        self._follower.grant(n_octets)

    def _on_refused(self, reason: str) -> None:
        for reader in list(self._readers):
            reader.leave_trunk()
