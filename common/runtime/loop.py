"""The loop of a stage: waits for descriptors and timers, and calls what belongs to them.

Owns one epoll descriptor, the timers, and the time spent in each phase. Never knows ZeroMQ: a queue whose descriptor
only says "look again" (as ZeroMQ's do) is added with `add_queue` and answers for itself whether it holds more.

One turn:  wait ─▶ descriptors ─▶ queues ─▶ timers ─▶ the callers of `add_turn`, in order (step, pump, tidy)

Nothing may take longer than about ten milliseconds in one turn: what has more to do says so, and the next turn does
not wait. Keepalives depend on it.
"""

import heapq
import itertools
import select
from collections.abc import Callable
from typing import Protocol

from common.runtime.clock import Clock, SystemClock

MIN_TIMERS = 256
"""Timers, due or cancelled, that are kept before the cancelled ones are looked for."""
_READABLE = select.EPOLLIN | select.EPOLLERR | select.EPOLLHUP
_WRITABLE = select.EPOLLOUT | select.EPOLLERR | select.EPOLLHUP
DESCRIPTORS_S = 0.01
"""No further descriptor is called in a turn after this long; the next turn goes on behind the last one."""
NEVER = float("inf")
PHASES = ("wait", "descriptors", "queues", "timers", "turns")


class Queue(Protocol):
    """A source of input that must be asked, because its descriptor is only a hint."""

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the queue wants to be looked at, or -1."""

    def drain(self) -> bool:
        """Handle a bounded amount of what has arrived, if anything has; return True if more is there."""

    def has_input(self) -> bool:
        """Tell whether something is there."""

    is_suspect: bool
    """Something may be there though the descriptor does not say so: `has_input` must be asked before a wait."""


class Timer:
    """A call that will be made at a time; `cancel` takes it back."""

    __slots__ = ("at", "callback")

    def __init__(self, at: float, callback: Callable[[], None]):
        self.at = at
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Take the call back; harmless when it was made already."""
        self.callback = None

    @property
    def is_pending(self) -> bool:
        return self.callback is not None


class Loop:
    """Waits on descriptors, queues and timers."""

    def __init__(self, clock: Clock | None = None):
        self.clock = clock or SystemClock()
        self.phase_s = dict.fromkeys(PHASES, 0.0)
        self.n_turns = 0
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._queues: list[Queue] = []
        self._queue_of: dict[int, Queue] = {}
        self._signalled: set[Queue] = set()
        self._turns: list[Callable[[], bool | None]] = []
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._compact_above = MIN_TIMERS
        self._last_fd = -1
        self._is_busy = True
        self._is_stopped = False

    # ---- descriptors --------------------------------------------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        """Call `callback()` in each turn in which `fd` is readable (level-triggered), or in error or hung up."""
        self._readers[fd] = callback
        self._watch(fd)

    def add_writer(self, fd: int, callback: Callable[[], None]) -> None:
        """Call `callback()` in each turn in which `fd` is writable (level-triggered), or in error or hung up."""
        self._writers[fd] = callback
        self._watch(fd)

    def remove_reader(self, fd: int) -> None:
        """Stop reading `fd` for now; harmless if it is not read."""
        if self._readers.pop(fd, None) is not None:
            self._watch(fd)

    def remove_writer(self, fd: int) -> None:
        """Stop waiting for room in `fd`; harmless if nobody waits."""
        if self._writers.pop(fd, None) is not None:
            self._watch(fd)

    def remove(self, fd: int) -> None:
        """Forget a descriptor, before it is closed; harmless if it is not known."""
        if (self._readers.pop(fd, None) is not None) | (self._writers.pop(fd, None) is not None):
            self._watch(fd)

    def _watch(self, fd: int) -> None:
        mask = (select.EPOLLIN if fd in self._readers else 0) | (select.EPOLLOUT if fd in self._writers else 0)
        try:
            if mask:
                try:
                    self._epoll.modify(fd, mask)
                except FileNotFoundError:
                    self._epoll.register(fd, mask)
            else:
                self._epoll.unregister(fd)
        except (FileNotFoundError, OSError):
            if mask:
                raise

    # ---- queues, timers, turns ----------------------------------------------------------------------------------

    def add_queue(self, queue: Queue) -> None:
        """Drain `queue` in each turn in which it has input."""
        self._queues.append(queue)
        fd = queue.fileno()
        if fd >= 0:
            self._queue_of[fd] = queue
            self._epoll.register(fd, select.EPOLLIN)

    def remove_queue(self, queue: Queue) -> None:
        """Forget a queue, before its descriptor is closed."""
        self._queues.remove(queue)
        self._signalled.discard(queue)
        if self._queue_of.pop(queue.fileno(), None) is not None:
            self._epoll.unregister(queue.fileno())

    def call_at(self, at: float, callback: Callable[[], None]) -> Timer:
        """Call `callback()` once the clock's monotonic time is at least `at` (seconds)."""
        timer = Timer(at, callback)
        heapq.heappush(self._timers, (at, next(self._order), timer))
        if len(self._timers) > self._compact_above:
            self._compact_timers()
        return timer

    def _compact_timers(self) -> None:
        """Take out cancelled timers: a hold timer is set anew for every message and would pile up until it was due."""
        self._timers[:] = [entry for entry in self._timers if entry[2].callback is not None]
        heapq.heapify(self._timers)
        self._compact_above = max(MIN_TIMERS, 2 * len(self._timers))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """Call `callback()` once `seconds` from now."""
        return self.call_at(self.clock.monotonic() + seconds, callback)

    def add_turn(self, callback: Callable[[], bool | None]) -> None:
        """Call `callback()` at the end of every turn; while it returns True the loop does not wait."""
        self._turns.append(callback)

    def next_timer_at(self) -> float | None:
        """Return when the next timer is due, or None (for tests that turn the clock)."""
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return timers[0][0] if timers else None

    # ---- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until `stop`, which may have been called already."""
        while not self._is_stopped:
            self.turn()
        self._is_stopped = False

    def stop(self) -> None:
        """End `run` after this turn."""
        self._is_stopped = True

    def turn(self, max_wait_s: float = 60.0) -> bool:
        """Make one turn; wait at most `max_wait_s` for something to do. Return True if anything was done or is left."""
        monotonic = self.clock.monotonic
        phase_s = self.phase_s
        before = monotonic()
        events = self._epoll.poll(self._wait_s(before, max_wait_s))
        now = monotonic()
        phase_s["wait"] += now - before
        did_something = is_busy = False
        if events:
            did_something = self._call_descriptors(events)
            before, now = now, monotonic()
            phase_s["descriptors"] += now - before
        signalled = self._signalled
        for queue in self._queues[:]:
            if queue in signalled or (queue.is_suspect and queue.has_input()):
                did_something = True
                if queue.drain():
                    is_busy = True
        signalled.clear()
        before, now = now, monotonic()
        phase_s["queues"] += now - before
        if self._timers and self._timers[0][0] <= now:
            did_something |= self._call_timers(now)
            before, now = now, monotonic()
            phase_s["timers"] += now - before
        for callback in self._turns:
            if callback():
                is_busy = True
        # What was sent may have taken in a queue's hint: look again before the next wait.
        if not is_busy:
            for queue in self._queues:
                if queue.is_suspect and queue.has_input():
                    is_busy = True
                    break
        phase_s["turns"] += monotonic() - now
        self.n_turns += 1
        self._is_busy = is_busy
        return did_something or is_busy

    def close(self) -> None:
        """Give back the epoll descriptor."""
        self._epoll.close()

    def _wait_s(self, now: float, max_wait_s: float) -> float:
        if self._is_busy or self.clock.is_manual:
            return 0
        next_at = self.next_timer_at()
        return max_wait_s if next_at is None else max(0.0, min(max_wait_s, next_at - now))

    def _call_descriptors(self, events: list[tuple[int, int]]) -> bool:
        did_something = False
        if self._last_fd >= 0:
            events.sort(key=lambda each: (each[0] <= self._last_fd, each[0]))
            self._last_fd = -1
        until = self.clock.monotonic() + DESCRIPTORS_S if len(events) > 1 else NEVER
        for index, (fd, mask) in enumerate(events):
            queue = self._queue_of.get(fd)
            if queue is not None:
                self._signalled.add(queue)
                continue
            if mask & _READABLE:
                callback = self._readers.get(fd)
                if callback is not None:
                    callback()
                    did_something = True
            if mask & _WRITABLE:
                callback = self._writers.get(fd)
                if callback is not None:
                    callback()
                    did_something = True
            if until != NEVER and self.clock.monotonic() >= until:
                self._last_fd = fd
                rest = (self._queue_of.get(later) for later, _ in events[index + 1 :])
                self._signalled.update(queue for queue in rest if queue is not None)
                break
        return did_something

    def _call_timers(self, now: float) -> bool:
        timers = self._timers
        due = []
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if timer.callback is not None:
                due.append(timer)
        for timer in due:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()
        return bool(due)
