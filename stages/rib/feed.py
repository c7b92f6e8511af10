"""One speaker's routes of one family on their way into the Loc-RIB: snapshot marks, and the work they leave to do.

Owns the follower and what is known of the speaker: whether it has ever sent its whole table, and since when it is
away. Never decides when the rib may serve: it only tells whether this speaker's part is complete.
"""

from collections.abc import Callable

import numpy as np

from common.bus.batch import START, Batch
from common.bus.schema import SessionChanges, SessionEvent
from stages.rib.loc_rib import LocRib

Slice = Callable[[int], int]
"""Work on the whole table: does the part that begins at a row, returns where the next begins, 0 at the end."""


class Work:
    """Slices of work on whole tables, done one at a time between batches."""

    def __init__(self):
        self._jobs: dict[object, tuple[Slice, int, Callable[[], None] | None]] = {}

    def add(self, key: object, do: Slice, then: Callable[[], None] | None = None) -> None:
        """Do a piece of work from the first row on; an unfinished one of the same key begins anew, as this."""
        self._jobs.pop(key, None)
        self._jobs[key] = (do, 1, then)

    def drop(self, key: object) -> None:
        """Forget a piece of work."""
        self._jobs.pop(key, None)

    def step(self) -> bool:
        """Do one slice; return True if more is left."""
        if not self._jobs:
            return False
        key, (do, row, then) = next(iter(self._jobs.items()))
        row = do(row)
        if row:
            self._jobs[key] = (do, row, then)
        else:
            del self._jobs[key]
            if then is not None:
                then()
        return bool(self._jobs)

    def __len__(self) -> int:
        return len(self._jobs)


class Feed:
    """What comes from one speaker for one family."""

    def __init__(self, speaker: str, loc_rib: LocRib, work: Work, on_complete: Callable[[], None]):
        self.speaker = speaker
        self.loc_rib = loc_rib
        self.is_complete = False  # has sent its whole table, once at least
        self.is_given_up = False
        self.away_since: float | None = None
        self.follower = None
        self.sessions: dict[tuple[str, int], str] = {}
        self.n_rows = 0
        self._work = work
        self._key = (speaker, loc_rib.family)
        self._on_complete = on_complete

    def handle(self, batch: Batch) -> None:
        """Take in one batch of the speaker's Adj-RIB-In, after import policy."""
        if batch.begins_snapshot:
            # Routes not in the snapshot are swept at its end, and not before, whatever an earlier one left to do.
            self._work.drop(self._key)
            self.is_given_up = False
            self.sessions.clear()
            self.loc_rib.mark_unconfirmed(self.speaker)
        if batch.kind is SessionChanges:
            self._on_sessions(batch)
        else:
            self._select_again(self.loc_rib.apply(self.speaker, batch))
            self.n_rows += batch.n_rows
        if batch.ends_snapshot:
            self._work.add(self._key, lambda row: self.loc_rib.sweep(self.speaker, row), self._complete)

    def give_up(self) -> None:
        """Withdraw all routes of a speaker that is away for good; what it sends when it comes back is a snapshot."""
        self.is_given_up = True
        self.sessions.clear()
        self.follower.position = START
        self._work.add(self._key, lambda row: self.loc_rib.sweep(self.speaker, row, only_unconfirmed=False))

    def _complete(self) -> None:
        self.is_complete = True
        self._on_complete()

    def _on_sessions(self, batch: Batch) -> None:
        sources = batch.meta["sources"]
        self._select_again(self.loc_rib.describe(self.speaker, sources))
        for index, code in zip(batch.columns["source"].tolist(), batch.columns["event"].tolist(), strict=True):
            key = (sources[index]["name"], sources[index]["path_id"])
            self.sessions[key] = SessionEvent(code).name.lower()

    def _select_again(self, renewed: np.ndarray) -> None:
        """A peer is described anew (another router id, say): what its paths were compared by has changed."""
        if len(renewed):
            no_ways = np.empty(0, np.uint32)
            loc_rib = self.loc_rib
            self._work.add((*self._key, renewed.tobytes()), lambda row: loc_rib.select_again(renewed, no_ways, row))
