"""The speakers the rib follows: whether each can be reached, and how long its routes are kept when it cannot.

Owns the timers of a speaker's absence and return. Never touches a route: its feeds do. RFC 4724 §4.1.

    link lost ──at once──▶ all routes are stale, and the rib is not in step
    link lost ──a moment──▶ routes of sessions without graceful restart go ──restart time──▶ all routes go
    snapshot begun ──selection deferral──▶ what nobody has told again goes
"""

from collections.abc import Callable

from common.bus.batch import START
from common.config.schema import GracefulRestart
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer
from stages.rib.feed import Feed

# A link that is back at once was no loss; and when all of Headrace stops, the kernel's routes are to stay.
LOSS_S = 5.0


class Speaker:
    """One speaker, seen from the rib."""

    def __init__(self, name: str, feeds: list[Feed], loop: Loop, log: Log, limits: GracefulRestart):
        self.name = name
        self.feeds = feeds
        self.limits = limits
        self.end_watch: Callable[[], None] = lambda: None
        self._loop = loop
        self._log = log
        self._absence: Timer | None = None
        self._deferral: Timer | None = None
        for feed in feeds:
            feed.on_snapshot = self._start_deferral

    def on_link(self, is_connected: bool) -> None:
        """The speaker can be reached, or no longer."""
        self._cancel()
        if is_connected:
            self._start_deferral()
            for feed in self.feeds:
                feed.ask_again()
        else:
            for feed in self.feeds:
                feed.mark_stale()
            self._absence = self._loop.call_later(LOSS_S, self._on_loss)

    def close(self) -> None:
        """Follow it no longer, and keep none of its routes."""
        self._cancel()
        self.end_watch()
        for feed in self.feeds:
            feed.follower.close()
            feed.give_up()

    def _cancel(self) -> None:
        for timer in (self._absence, self._deferral):
            if timer is not None:
                timer.cancel()

    def _start_deferral(self) -> None:
        """What was promised to an earlier speaker is kept no longer than this."""
        if self._deferral is not None:
            self._deferral.cancel()
        self._deferral = self._loop.call_later(self.limits.selection_deferral_s, self._end_deferral)

    def _on_loss(self) -> None:
        event(self._log, "speaker-lost", "warning", speaker=self.name)
        for feed in self.feeds:
            feed.lose()
            # What it tells next has to be everything, even if it is the same process after all.
            feed.follower.restart(START)
        self._absence = self._loop.call_later(max(self.limits.restart_time_s - LOSS_S, 0), self._give_up)

    def _give_up(self) -> None:
        event(self._log, "speaker-given-up", "warning", speaker=self.name)
        for feed in self.feeds:
            feed.give_up()

    def _end_deferral(self) -> None:
        names = sorted({name for feed in self.feeds for name in feed.unconfirmed | feed.awaited})
        if names:
            event(self._log, "end-of-rib-overdue", "warning", speaker=self.name, neighbors=",".join(names))
        for feed in self.feeds:
            feed.release()
