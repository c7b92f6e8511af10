"""Serves which prefixes the kernel has a route of ours for, as InstalledChanges: for neighbors that are told no sooner.

Owns a bounded log of what came and went. A reader that is further behind than the log reaches gets a snapshot of the
plan. Everything sent is absolute, so what changes during a snapshot is simply sent once more behind it.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from common.bus.batch import GAP, SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, Position
from common.bus.channels import installed
from common.bus.schema import InstalledChanges
from common.bus.server import Source
from stages.fib.plan import Plan

LOG_ROWS = 1 << 20
SNAPSHOT_ROWS = 32768
BATCH_ROWS = 65536


@dataclass(slots=True)
class _Entry:
    sequence: int  # of its first row
    hi: np.ndarray
    lo: np.ndarray
    length: np.ndarray
    installed: np.ndarray


class InstalledSource(Source):
    """What readers of one family are told; nothing is kept before there is one."""

    def __init__(self, plan: Plan, label: str, epoch: str):
        self._plan = plan
        self._label = label
        self._epoch = epoch
        self._log: deque[_Entry] = deque()
        self._head = 1
        plan.on_flip = self._note

    @property
    def head(self) -> int:
        return self._head

    @property
    def epoch(self) -> str:
        return self._epoch

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        if position.epoch != self._epoch:
            return [self._snapshot(Position(self._epoch, self._head, 1), SNAPSHOT_BEGIN)]
        tail = self._log[0].sequence if self._log else self._head
        if position.sequence < tail:
            return [self._snapshot(Position(self._epoch, self._head, 1), SNAPSHOT_BEGIN | GAP)]
        if position.cursor >= 0:
            return [self._snapshot(position, 0)]
        return [self._follow(position.sequence)] if position.sequence < self._head else []

    def _note(self, rows: np.ndarray, is_there: np.ndarray) -> None:
        """Note that routes came into the kernel or left it."""
        if not len(rows):
            return
        self._log.append(_Entry(self._head, *self._prefixes(rows), is_there.astype(np.uint8)))
        self._head += len(rows)
        while self._head - self._log[0].sequence > LOG_ROWS and len(self._log) > 1:
            self._log.popleft()

    def _follow(self, sequence: int) -> Batch:
        entries, n = [], 0
        for entry in self._log:
            if entry.sequence + len(entry.hi) > sequence and n < BATCH_ROWS:
                entries.append(entry)
                n += len(entry.hi)
        after = entries[-1].sequence + len(entries[-1].hi)
        columns = {
            name: np.concatenate([getattr(entry, name) for entry in entries])
            for name in ("hi", "lo", "length", "installed")
        }
        return self._batch(columns, Position(self._epoch, after, -1), entries[0].sequence, 0)

    def _snapshot(self, position: Position, flags: int) -> Batch:
        end = min(position.cursor + SNAPSHOT_ROWS, self._plan.prefixes.row_limit)
        rows = np.arange(position.cursor, end, dtype=np.uint32)
        rows = rows[self._plan.installed[rows] != 0]
        hi, lo, length = self._prefixes(rows)
        columns = {"hi": hi, "lo": lo, "length": length, "installed": np.ones(len(rows), np.uint8)}
        is_end = end >= self._plan.prefixes.row_limit
        after = Position(self._epoch, position.sequence, -1 if is_end else end)
        return self._batch(columns, after, position.sequence, flags | SNAPSHOT | (SNAPSHOT_END if is_end else 0))

    def _prefixes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        prefixes = self._plan.prefixes
        lo = prefixes.lo(rows) if self._plan.is_wide else np.empty(0, np.uint64)
        return prefixes.hi(rows).copy(), lo, prefixes.length(rows).copy()

    def _batch(self, columns: dict, after: Position, first: int, flags: int) -> Batch:
        meta = {"family": self._label}
        return Batch(InstalledChanges, columns, meta, installed(self._label), after, first, self._head, flags)
