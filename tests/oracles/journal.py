"""The journal, slow and obvious: an oracle that keeps every entry."""


class Journal:
    """A list of all entries ever written, (sequence, row), of which the latest of each row counts."""

    def __init__(self, capacity: int, first: int):
        self.capacity = capacity
        self.first = first
        self.head = first
        self.horizon = first
        self.entries = []
        self.removed = set()  # sequences of the entries whose rows have been removed

    @property
    def tail(self) -> int:
        return max(self.first, self.head - self.capacity)

    def append(self, rows) -> None:
        for row in rows:
            if self.head % 2**32 == 0:  # this sequence is passed over
                self.head += 1
            self.entries.append((self.head, row))
            self.head += 1

    def latest(self) -> list:
        """Return the entries that count, in order."""
        last = {row: sequence for sequence, row in self.entries}
        return [(sequence, row) for sequence, row in self.entries if row != 0 and last[row] == sequence]

    def read(self, sequence: int) -> list[int]:
        """Return all rows that a reader at `sequence` has to be told."""
        return [row for at, row in self.latest() if at >= sequence]

    def removable(self, limit_sequence: int, gone) -> set[int]:
        """Return the rows that are gone and whose latest entry is below the limit, or below the tail."""
        limit = max(min(limit_sequence, self.head), self.tail)
        entries = [
            (sequence, row)
            for sequence, row in self.latest()
            if sequence < limit and row in gone and sequence not in self.removed
        ]
        self.removed |= {sequence for sequence, _ in entries}
        self.horizon = max([self.horizon] + [sequence + 1 for sequence, _ in entries])
        return {row for _, row in entries}
