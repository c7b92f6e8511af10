"""One speaker's routes of one family on their way into the Loc-RIB: snapshot marks, and the work they leave to do.

Owns the follower and what is known of the speaker and its sessions. Never decides when the rib may serve: it only tells
whether this speaker's part is complete.

What an earlier speaker told is kept until the present one has told it again (RFC 4724 §4.1):

    snapshot begins     all routes are unconfirmed
    snapshot ends       unconfirmed ones go, but those of neighbors that are GRACEFUL and have not told all theirs yet
    END_OF_RIB, DOWN    unconfirmed ones of this neighbor go
    time limit          the rest goes
"""

from collections.abc import Callable

import numpy as np

from common.bus.batch import SNAPSHOT, START, Batch
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

    def __contains__(self, key: object) -> bool:
        return key in self._jobs

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
        self.has_table = False  # the speaker has sent its whole table, once at least
        self.is_given_up = False
        # The speaker has gone, and the next one has not told its table: all that is here is what was.
        self.is_stale = False
        self._is_renewed = False  # the next one has begun to
        self.follower = None
        self.sessions: dict[str, str] = {}
        # Neighbors whose routes stay when the speaker dies, for graceful restart was agreed with them.
        self.graceful: set[str] = set()
        # Neighbors whose End-of-RIB is awaited, and those of whom there may be routes not confirmed until then.
        self.awaited: set[str] = set()
        self.unconfirmed: set[str] = set()
        self.n_rows = 0
        self._work = work
        self._key = (speaker, loc_rib.family)
        self._sweeps: set[tuple] = set()
        self._on_complete = on_complete
        self.on_snapshot: Callable[[], None] = lambda: None

    @property
    def is_complete(self) -> bool:
        """Whether all is there that the speaker has to tell, as far as somebody promised to tell it."""
        return self.has_table and not self.awaited

    def handle(self, batch: Batch) -> None:
        """Take in one batch of the speaker's Adj-RIB-In, after import policy."""
        if batch.begins_snapshot:
            self._begin_snapshot()
        if batch.kind is SessionChanges:
            self._on_sessions(batch)
        else:
            self._select_again(self.loc_rib.apply(self.speaker, batch))
            self.n_rows += batch.n_rows
        if batch.ends_snapshot:
            self._end_snapshot()

    def mark_stale(self) -> None:
        """Note at once that the speaker has gone; its routes stay for now."""
        self.is_stale, self._is_renewed = True, False
        self.sessions = dict.fromkeys(self.sessions, "stale")

    def ask_again(self) -> None:
        """Note that the speaker can be reached again: what it has to tell is the whole table, be it the same one."""
        if self.is_stale and not self._is_renewed:
            self.follower.restart(START)

    def lose(self) -> None:
        """Withdraw the routes of those neighbors with whom no graceful restart was agreed: their sessions are gone."""
        names = {name for name in self.sessions if name not in self.graceful}
        for name in names:
            del self.sessions[name]
        self._sweep("lost", self._numbers(names), only_unconfirmed=False)

    def give_up(self) -> None:
        """Withdraw all routes of a speaker that is away for good; what it sends when it comes back is a snapshot."""
        self.is_given_up = True
        self._forget_sessions()
        self._sweep("", self.loc_rib.sources.of_speaker(self.speaker), only_unconfirmed=False)

    def release(self) -> None:
        """Wait for nobody any longer: withdraw what was kept of an earlier speaker."""
        names, self.unconfirmed = self.unconfirmed, set()
        self.awaited.clear()
        self._sweep("released", self._numbers(names))
        self._on_complete()

    # ---- snapshots ------------------------------------------------------------------------------------------------

    def _begin_snapshot(self) -> None:
        # Routes not in the snapshot are swept at its end, and not before, whatever an earlier one left to do.
        for key in self._sweeps:
            self._work.drop(key)
        self._sweeps.clear()
        self.is_given_up = False
        self._is_renewed = True
        self._forget_sessions()
        self.loc_rib.mark_unconfirmed(self.speaker)
        self.on_snapshot()

    def _end_snapshot(self) -> None:
        sources = self.loc_rib.sources
        self._sweep("", sources.of_speaker(self.speaker, but=self.unconfirmed), then=self._complete)

    def _forget_sessions(self) -> None:
        for known in (self.sessions, self.graceful, self.awaited, self.unconfirmed):
            known.clear()

    def _complete(self) -> None:
        self.has_table = True
        self.is_stale &= not self._is_renewed
        self._on_complete()

    def _numbers(self, names: set[str]) -> np.ndarray:
        return self.loc_rib.sources.of_neighbors(self.speaker, names)

    def _sweep(
        self,
        what: str,
        sources: np.ndarray,
        only_unconfirmed: bool = True,
        then: Callable[[], None] | None = None,
    ) -> None:
        key = (*self._key, "sweep", what)
        if len(sources):
            self._sweeps.add(key)
            self._work.add(key, lambda row: self.loc_rib.sweep(sources, row, only_unconfirmed), then)
        elif then is not None:
            then()

    # ---- sessions -------------------------------------------------------------------------------------------------

    def _on_sessions(self, batch: Batch) -> None:
        sources = batch.meta["sources"]
        self._select_again(self.loc_rib.describe(self.speaker, sources))
        is_snapshot = bool(batch.flags & SNAPSHOT)
        for index, code in zip(batch.columns["source"].tolist(), batch.columns["event"].tolist(), strict=True):
            self._on_session(sources[index]["name"], SessionEvent(code), is_snapshot)

    def _on_session(self, name: str, happened: SessionEvent, is_snapshot: bool) -> None:
        if happened is SessionEvent.GRACEFUL:
            self.graceful.add(name)
            if is_snapshot:
                self.unconfirmed.add(name)  # unless its End-of-RIB has come, as the end of the snapshot says
            return
        if happened is SessionEvent.AWAITED:
            self.awaited.add(name)
            self.sessions.setdefault(name, "awaited")
            if is_snapshot:
                self.unconfirmed.add(name)
            return
        self.sessions[name] = happened.name.lower()
        was_awaited = name in self.awaited
        self.awaited.discard(name)
        if happened is SessionEvent.UP:
            return  # what was kept of an earlier speaker stays until its End-of-RIB
        if happened is SessionEvent.DOWN:
            self.graceful.discard(name)
        if name in self.unconfirmed:
            self.unconfirmed.discard(name)
            if not is_snapshot:
                self._sweep(name, self._numbers({name}))
        if was_awaited:
            self._on_complete()

    def _select_again(self, renewed: np.ndarray) -> None:
        """A peer is described anew (another router id, say): what its paths were compared by has changed."""
        if len(renewed):
            no_ways = np.empty(0, np.uint32)
            loc_rib = self.loc_rib
            self._work.add((*self._key, renewed.tobytes()), lambda row: loc_rib.select_again(renewed, no_ways, row))
