"""The plan of one family: which route the kernel should have for each prefix, which it has, and what to do next.

Owns the columns by prefix row and the queue of rows where the two differ. A row is queued at most once, so the queue
is bounded by the table, however fast changes come and however slow the kernel is. Never speaks to the kernel.
"""

from collections import deque
from dataclasses import dataclass
from socket import AF_INET6

import numpy as np

from common.arrays import allocate, grown
from common.bus.batch import Batch
from common.bus.schema import BestChanges
from common.kernels import netlink
from common.kernels import plan as steps
from common.kernels.prefixes import PrefixTable
from stages.fib.kernel import UNANSWERED
from stages.fib.ways import Consequence, Ways

EIO = 5  # what a row without an answer is in trouble with


@dataclass(slots=True)
class Work:
    """Rows taken from the queue, with what is to be done about each."""

    rows: np.ndarray
    actions: np.ndarray
    targets: np.ndarray


@dataclass(slots=True)
class Counts:
    """What was done since the start; refused counts attempts."""

    installed: int = 0
    replaced: int = 0
    removed: int = 0
    refused: int = 0


class Plan:
    """The plan of one family (an address family of the kernel)."""

    def __init__(self, family: int, ways: Ways, seed: int = 0, capacity: int = 1024):
        self.family = family
        self.ways = ways
        self.prefixes = PrefixTable(family == AF_INET6, seed, capacity)
        self.wanted = allocate(0, np.uint32)
        self.installed = allocate(0, np.uint32)
        self.flags = allocate(0, np.uint8)
        self.trouble = allocate(0, np.uint8)
        self.counts = Counts()
        self.n_installed = 0
        self.n_queued = 0
        self.is_confirmed = False  # a whole snapshot has been seen, so what is installed is what is wanted
        self._queue: deque[np.ndarray] = deque()
        self._fit()

    # ---- what is wanted -----------------------------------------------------------------------------------------

    def handle(self, batch: Batch) -> None:
        """Take in the routes of a batch of BestChanges, and the marks of a snapshot on any batch."""
        if batch.begins_snapshot:
            self.mark_unconfirmed()
        if batch.kind is BestChanges and batch.n_rows:
            self._want_paths(batch.columns)
        if batch.ends_snapshot:
            self.remove_unconfirmed()
            self.is_confirmed = True

    def _want_paths(self, columns: dict[str, np.ndarray]) -> None:
        n_paths = columns["n_paths"]
        ways = np.zeros(len(n_paths), np.uint32)
        has_path = np.flatnonzero(n_paths)
        if len(has_path):
            first = (np.cumsum(n_paths, dtype=np.int64) - n_paths)[has_path]
            hops = netlink.next_hops(columns["set_offset"], columns["set_octets"])
            ways[has_path] = self.ways.intern(*hops)[columns["path_set"][first]]
        self._want(self.prefixes.intern(columns["hi"], columns["lo"], columns["length"], ways), ways)

    def _want(self, rows: np.ndarray, ways: np.ndarray) -> None:
        self._fit()
        self._push(steps.want(rows, ways, self.wanted, self.installed, self.flags, self.ways.n_wanted))

    def mark_unconfirmed(self) -> None:
        """Note that all there is must be named again before the snapshot ends, or go."""
        limit = self.prefixes.row_limit
        there = (self.wanted[:limit] != 0) | (self.installed[:limit] != 0)
        self.flags[:limit][there] |= steps.UNCONFIRMED

    def remove_unconfirmed(self) -> None:
        """Let go of what the snapshot did not name."""
        rows = np.flatnonzero(self.flags[: self.prefixes.row_limit] & steps.UNCONFIRMED).astype(np.uint32)
        self._want(rows, np.zeros(len(rows), np.uint32))

    def adopt(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, ways: np.ndarray) -> None:
        """Take over routes of an earlier run (way ELSEWHERE: ours, but leading somewhere not known)."""
        rows = self.prefixes.intern(hi, lo, length)
        self._fit()
        self.installed[rows] = ways
        self.flags[rows] |= steps.UNCONFIRMED
        known = ways[ways != steps.ELSEWHERE]
        self.ways.n_installed[:] += np.bincount(known, minlength=len(self.ways.n_installed)).astype(np.uint32)
        self.n_installed += len(rows)

    def apply(self, consequence: Consequence) -> None:
        """Do what a change of a way means for its routes."""
        limit = self.prefixes.row_limit
        if consequence.is_lost or consequence.is_changed:
            rows = np.flatnonzero(self.installed[:limit] == consequence.way).astype(np.uint32)
            self.installed[rows] = 0 if consequence.is_lost else steps.ELSEWHERE
            self.ways.n_installed[consequence.way] -= len(rows)
            self.n_installed -= len(rows) if consequence.is_lost else 0
            self._enqueue(rows)
        if consequence.is_usable or consequence.is_lost:
            self._enqueue(np.flatnonzero(self.wanted[:limit] == consequence.way).astype(np.uint32))

    def note_deleted(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> int:
        """Note that others deleted routes of ours: they are to be installed again. Return how many were ours."""
        rows = self.prefixes.find(hi, lo, length)
        rows = np.unique(rows[self.installed[rows] != 0])
        before = self.installed[rows]
        known = before[before != steps.ELSEWHERE]
        self.ways.n_installed[:] -= np.bincount(known, minlength=len(self.ways.n_installed)).astype(np.uint32)
        self.installed[rows] = 0
        self.n_installed -= len(rows)
        self._enqueue(rows)
        return len(rows)

    def note_room(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> None:
        """Note that others deleted routes of their own: what they kept out can be tried again."""
        rows = self.prefixes.find(hi, lo, length)
        self._enqueue(rows[self.trouble[rows] != 0])

    def retry(self) -> int:
        """Queue again what the kernel has refused; return how many rows that is."""
        rows = np.flatnonzero(self.trouble[: self.prefixes.row_limit]).astype(np.uint32)
        self._enqueue(rows)
        return len(rows)

    # ---- what is to be done -------------------------------------------------------------------------------------

    def take(self, limit: int) -> Work | None:
        """Take at most `limit` rows from the queue; None if nothing is to be done for them."""
        queue = self._pop(limit)
        rows, actions, targets, idle = steps.take(
            queue, self.wanted, self.installed, self.flags, self.trouble, self.ways.is_usable
        )
        if len(idle):
            self.prefixes.release(idle)
        return Work(rows, actions, targets) if len(rows) else None

    def settle(self, work: Work, errors: np.ndarray) -> np.ndarray:
        """Account the kernel's answers; return the indices of what it refused."""
        unanswered = errors == UNANSWERED
        if unanswered.any():
            self._settle_unanswered(work, errors, unanswered)
        done = np.bincount(work.actions[errors == 0], minlength=4)
        refused, idle = steps.settle(
            work.rows, work.actions, work.targets, errors, self.wanted, self.installed, self.trouble,
            self.ways.n_installed,
        )  # fmt: skip
        n_removed = int(np.count_nonzero(work.actions == netlink.REMOVE))
        n_removed -= int(np.count_nonzero(work.actions[refused] == netlink.REMOVE))
        self.n_installed += int(done[netlink.INSTALL]) - n_removed
        self.counts.installed += int(done[netlink.INSTALL])
        self.counts.replaced += int(done[netlink.REPLACE])
        self.counts.removed += n_removed
        self.counts.refused += len(refused)
        if len(idle):
            self.prefixes.release(idle)
        return refused

    def _settle_unanswered(self, work: Work, errors: np.ndarray, unanswered: np.ndarray) -> None:
        """Where an answer was lost the kernel may have the route or not: count it as there, and try again."""
        rows = work.rows[unanswered]
        before = self.installed[rows]
        known = before[(before != 0) & (before != steps.ELSEWHERE)]
        self.ways.n_installed[:] -= np.bincount(known, minlength=len(self.ways.n_installed)).astype(np.uint32)
        self.n_installed += int(np.count_nonzero(before == 0))
        self.installed[rows] = steps.ELSEWHERE
        errors[unanswered] = EIO

    # ---- what others read ---------------------------------------------------------------------------------------

    @property
    def n_wanted(self) -> int:
        """Prefixes for which a route is wanted (counted when asked)."""
        return int(np.count_nonzero(self.wanted[: self.prefixes.row_limit]))

    def troubles(self) -> dict[int, int]:
        """Return how many routes each errno keeps out of the kernel."""
        trouble = self.trouble[: self.prefixes.row_limit]
        codes, counts = np.unique(trouble[np.flatnonzero(trouble)], return_counts=True)
        return dict(zip(codes.tolist(), counts.tolist(), strict=True))

    # ---- the queue ----------------------------------------------------------------------------------------------

    def _enqueue(self, rows: np.ndarray) -> None:
        self._push(steps.enqueue(rows, self.flags))

    def _push(self, rows: np.ndarray) -> None:
        if len(rows):
            self._queue.append(rows)
            self.n_queued += len(rows)

    def _pop(self, limit: int) -> np.ndarray:
        parts = []
        n = 0
        while self._queue and n < limit:
            part = self._queue.popleft()
            if len(part) > limit - n:
                self._queue.appendleft(part[limit - n :])
                part = part[: limit - n]
            parts.append(part)
            n += len(part)
        self.n_queued -= n
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def _fit(self) -> None:
        """Give the columns room for all rows of the prefix table."""
        capacity = self.prefixes.capacity
        if capacity > len(self.wanted):
            for name in ("wanted", "installed", "flags", "trouble"):
                setattr(self, name, grown(getattr(self, name), capacity))
