"""Lets what several ribs bring for one Adj-RIB-Out come together, so that an attribute set they share is told once.

Owns the moment a table waits. Only large batches are waited for: a single change is told at once. What waits is not
held up by a share that brings nothing, nor for longer than a moment.
"""

from common.bus.batch import Batch
from common.config.sharing import Share
from common.runtime.loop import Loop, Timer
from stages.speaker.adj_rib_out import AdjRibOut

FEW_ROWS = 1024
"""A batch with fewer changes is told at once, if nothing waits."""
MANY_ROWS = 131072
"""So many changes do not wait for more."""
GATHER_S = 0.04


class Gathering:
    """What one table waits for."""

    def __init__(self, loop: Loop, table: AdjRibOut):
        self._loop = loop
        self._table = table
        self._timer: Timer | None = None
        self._since = 0
        self._missing: set[int] = set()

    def handle(self, batch: Batch, share: Share) -> None:
        """Write a batch of one share into the table; wait for those of the others, or end the wait."""
        journal = self._table.journal
        before = journal.head
        self._table.handle(batch, share)
        if share.count == 1 or not self._table.is_complete:
            return
        if self._timer is None and journal.head - before >= FEW_ROWS:
            self._since, self._missing = before, set(range(share.count))
            self._table.is_gathering = True
            self._timer = self._loop.call_later(GATHER_S, self.end)
        if self._timer is not None:
            self._missing.discard(share.index)
            if not self._missing or journal.head - self._since >= MANY_ROWS:
                self.end()

    def end(self) -> None:
        """Have members told what has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._table.is_gathering = False
            self._table.group_changes()
