"""A table as a source of batches: what a reader's position in the journal means in rows of the table.

Owns the marks (session events that keep their place among the changes). Never keeps a reader: everything a read needs
is in the position, so one source serves all readers of the same view.

    epoch not ours ─────────▶ BEGIN  preamble  rows 1.. by row number  epilogue  END ─┐
    sequence not held ──────▶ GAP|BEGIN  ...                                          ├─▶ journal from `sequence`
    cursor >= 0 ────────────▶ rows cursor.. (resumed)                                 ┘
"""

import bisect
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from common.arrays import n_within
from common.bus.batch import GAP, SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, UNSENT, Batch, Position, empty_columns
from common.bus.schema import Kind
from common.bus.server import Source

MAX_ROWS: Final = 32768
"""Rows gathered at most for one batch."""
MIN_ROWS: Final = 64
MAX_SET_OCTETS: Final = 8 << 20
"""No batch of more rows refers to more octets of attribute sets. The size of rows is guessed from those before; a peer
that sends small sets and then the largest would otherwise make batches too large for the transport."""
MAX_EMPTY_CHUNKS: Final = 16
"""Chunks of gone rows a snapshot passes over in one read before other work has its turn."""
FIRST_ROW: Final = 1
"""Row 0 of a table is never used; in a journal it holds the place of a mark."""

Content = tuple[Kind, dict[str, np.ndarray], dict[str, Any]]
"""Kind, columns and meta of a batch to be made."""

_MARK_ROW: Final = np.zeros(1, np.uint32)


def new_epoch() -> str:
    """Return an epoch no other owner has had."""
    return secrets.token_hex(6)


class Marks:
    """Session events in their places in one journal; shared by all sources that read it."""

    def __init__(self, journal):
        self._journal = journal
        self._sequences: deque[int] = deque()
        self._contents: deque[Callable[[], Content | None]] = deque()

    def append(self, content: Callable[[], Content | None]) -> None:
        """Put a mark at the end of the journal. `content()` is called for each reader that comes to it (None: skip)."""
        self._sequences.append(self._journal.head)
        self._contents.append(content)
        self._journal.append(_MARK_ROW)
        oldest = max(self._journal.tail, self._journal.horizon)
        while self._sequences and self._sequences[0] < oldest:
            self._sequences.popleft()
            self._contents.popleft()

    def next_at(self, sequence: int) -> tuple[int, Callable[[], Content | None]] | None:
        """Return the first mark at `sequence` or later."""
        sequences = self._sequences
        if not sequences or sequences[-1] < sequence:
            return None
        index = bisect.bisect_left(sequences, sequence)
        return sequences[index], self._contents[index]

    def __len__(self) -> int:
        return len(self._sequences)


class JournalSource(Source):
    """Reads a table through its journal."""

    def __init__(
        self,
        journal,
        kind: Kind,
        gather: Callable[[np.ndarray, bool], tuple[dict[str, np.ndarray], dict[str, Any]]],
        row_limit: Callable[[], int],
        *,
        epoch: str,
        marks: Marks | None = None,
        preamble: Callable[[], list[Content]] | None = None,
        epilogue: Callable[[], list[Content]] | None = None,
        gate: Callable[[], bool] | None = None,
        sizes: Callable[[np.ndarray], np.ndarray] | None = None,
        octets_per_row: int = 48,
        choose: Callable[[np.ndarray], np.ndarray] | None = None,
        share: int = 1,
        ready_limit: Callable[[], int] | None = None,
    ):
        """Serve one table, or one view of it.

        journal: kernels.journal.Journal over the table's rows.
        gather: (rows, is_snapshot) -> (columns, meta) of these rows (uint32) as they are now; in a snapshot rows that
            are gone are left out, else they are told as gone.
        row_limit: one more than the highest row in use.
        epoch: of the table; see `new_epoch`.
        marks: of the same journal.
        preamble, epilogue: batches a snapshot begins and ends with (sessions that are up; those that sent their
            End-of-RIB).
        gate: while it returns False nothing is served.
        sizes: octets of the attribute sets that each of some rows refers to.
        octets_per_row: first guess of what a row costs; corrected by what is gathered.
        choose: returns those of some rows that these readers are for; None: all.
        share: of how many rows they are for one, about.
        ready_limit: one more than the highest row up to which all can be told; a snapshot waits there. None: all rows.
        """
        self._journal = journal
        self._kind = kind
        self._gather = gather
        self._row_limit = row_limit
        self._epoch = epoch
        self._marks = marks
        self._preamble = preamble
        self._epilogue = epilogue
        self._gate = gate
        self._sizes = sizes
        self._octets_per_row = float(octets_per_row)
        self._choose = choose
        self._share = share
        self._ready_limit = ready_limit

    @property
    def head(self) -> int:
        return self._journal.head

    @property
    def epoch(self) -> str:
        return self._epoch

    @property
    def is_shared(self) -> bool:
        return self._share > 1

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        """Return what follows `position`; see the drawing above."""
        journal = self._journal
        epoch, sequence, cursor = position
        is_known = epoch == self._epoch
        # In step, and asked in every turn of the loop: this must cost next to nothing.
        if is_known and cursor < 0 and sequence == journal.head:
            return []
        if self._gate is not None and not self._gate():
            return []
        if not is_known:
            return self._begin(SNAPSHOT_BEGIN, max_octets)
        if not journal.is_held(sequence):
            return self._begin(SNAPSHOT_BEGIN | GAP, max_octets)
        if cursor >= 0:
            return self._continue([], 0, sequence, cursor, max_octets)
        return self._follow(sequence, max_octets)

    def has_more(self, position: Position) -> bool:
        return position.cursor >= 0 or position.sequence != self._journal.head or position.epoch != self._epoch

    # ---- following ----------------------------------------------------------------------------------------------

    def _follow(self, sequence: int, max_octets: int) -> list[Batch]:
        journal = self._journal
        batches: list[Batch] = []
        while sequence < journal.head:
            mark = self._marks.next_at(sequence) if self._marks is not None else None
            if mark is not None and mark[0] == sequence:
                content = mark[1]()
                if content is not None:
                    batches.append(self._batch(content, sequence, Position(self._epoch, sequence + 1, -1), 0))
                sequence += 1
                if len(batches) >= MIN_ROWS:
                    break
                continue
            rows, following = journal.read(sequence, self._n_rows(max_octets) * self._share)
            if mark is not None and following > mark[0]:
                rows = rows[(journal.last[rows] - np.uint32(sequence & 0xFFFFFFFF)) < np.uint32(mark[0] - sequence)]
                following = mark[0]
            if self._choose is not None:
                rows = self._choose(rows)
            n_fitting = self._n_fitting(rows)
            if n_fitting < len(rows):
                # An entry that counts is the last of its row.
                following = sequence + (int(journal.last[rows[n_fitting]]) - sequence & 0xFFFFFFFF)
                rows = rows[:n_fitting]
            if len(rows):
                batches.append(self._gathered(rows, False, sequence, Position(self._epoch, following, -1), 0))
                break
            sequence = following
        if not batches:
            # Nothing but entries that no longer count: tell where the reader is now.
            position = Position(self._epoch, sequence, -1)
            flags = UNSENT if self._choose is not None else 0
            batches.append(self._batch((self._kind, *self._nothing()), sequence, position, flags))
        elif batches[-1].position.sequence < sequence:
            batches[-1].position = Position(self._epoch, sequence, -1)
        return batches

    # ---- snapshots ----------------------------------------------------------------------------------------------

    def _begin(self, flags: int, max_octets: int) -> list[Batch]:
        sequence = self._journal.head
        batches = []
        if self._preamble is not None:
            position = Position(self._epoch, sequence, 0)
            batches = [self._batch(content, sequence, position, SNAPSHOT) for content in self._preamble()]
        return self._continue(batches, flags, sequence, FIRST_ROW, max_octets)

    def _continue(self, batches: list[Batch], flags: int, sequence: int, cursor: int, max_octets: int) -> list[Batch]:
        cursor = max(cursor, FIRST_ROW)
        limit = self._row_limit()
        ready = limit if self._ready_limit is None else min(limit, self._ready_limit())
        if ready <= cursor < limit and not (batches or flags):
            return []
        for _ in range(MAX_EMPTY_CHUNKS):
            n_rows = self._n_rows(max_octets) * self._share
            first, cursor = cursor, min(cursor + n_rows, max(ready, cursor))
            rows = np.arange(first, cursor, dtype=np.uint32)
            if self._choose is not None:
                rows = self._choose(rows)
            n_fitting = self._n_fitting(rows)
            if n_fitting < len(rows):
                cursor = int(rows[n_fitting])
                rows = rows[:n_fitting]
            is_last = cursor >= limit
            position = Position(self._epoch, sequence, -1 if is_last else cursor)
            batch = self._gathered(rows, True, sequence, position, SNAPSHOT)
            if batch.n_rows or cursor >= ready:
                break
        batches.append(batch)
        if is_last and self._epilogue is not None:
            # Resuming here repeats the last rows, never skips the epilogue.
            contents = self._epilogue()
            if contents:
                batch.position = Position(self._epoch, sequence, first)
            for content in contents:
                batches.append(self._batch(content, sequence, batch.position, SNAPSHOT))
            batches[-1].position = position
        batches[0].flags |= flags
        if is_last:
            batches[-1].flags |= SNAPSHOT_END
        return batches

    # ---- batches ------------------------------------------------------------------------------------------------

    def _n_rows(self, max_octets: int) -> int:
        return max(MIN_ROWS, min(MAX_ROWS, int(max_octets / self._octets_per_row)))

    def _n_fitting(self, rows: np.ndarray) -> int:
        """Return how many of these rows are for one batch."""
        if self._sizes is None or len(rows) <= MIN_ROWS:
            return len(rows)
        return max(MIN_ROWS, n_within(self._sizes(rows), MAX_SET_OCTETS))

    def _gathered(self, rows: np.ndarray, is_snapshot: bool, first: int, position: Position, flags: int) -> Batch:
        batch = self._batch((self._kind, *self._gather(rows, is_snapshot)), first, position, flags)
        if batch.n_rows >= MIN_ROWS:
            self._octets_per_row = 0.75 * self._octets_per_row + 0.25 * batch.n_octets / batch.n_rows
        return batch

    def _batch(self, content: Content, first: int, position: Position, flags: int) -> Batch:
        kind, columns, meta = content
        return Batch(kind, columns, meta, "", position, first, self._journal.head, flags)

    def _nothing(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        columns, meta = self._gather(np.empty(0, np.uint32), False)
        return {**empty_columns(self._kind), **columns}, meta
