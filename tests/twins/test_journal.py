"""The journal: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import journal as compiled
from common.kernels import uncompiled
from tests.oracles import journal as oracle

TWINS = {"compiled": compiled, "uncompiled": uncompiled("journal")}
N_ROWS = 12

# A change is (row, whether it is there after the change); row 0 only keeps a place.
changes = st.lists(st.tuples(st.integers(0, N_ROWS - 1), st.booleans()), max_size=30)
steps = st.one_of(
    st.tuples(st.just("append"), changes),
    st.tuples(st.just("read"), st.integers(0, 40)),
    st.tuples(st.just("remove"), st.tuples(st.integers(0, 40), st.integers(1, 9))),
)


class Both:
    """The kernel's journal, with a ring of 16 entries, and the oracle, taken through the same steps."""

    def __init__(self, kernel, first: int):
        self.journal = kernel.Journal(4, first)
        self.model = oracle.Journal(16, first)
        self.first = first
        self.alive = np.zeros(N_ROWS, np.uint32)

    def append(self, batch) -> None:
        rows = [row for row, _ in batch]
        for row, is_alive in batch:
            self.alive[row] = is_alive
        self.journal.append(np.array(rows, np.uint32))
        self.model.append(rows)

    def read(self, behind: int) -> None:
        """Read from a position, three rows at a time: each row comes once, in the order of the latest changes."""
        sequence = max(self.journal.head - behind, self.first)
        if not self.journal.is_held(sequence):
            with pytest.raises(ValueError, match="position"):
                self.journal.read(sequence, 3)
            return
        expected, told = self.model.read(sequence), []
        while sequence < self.journal.head:
            rows, following = self.journal.read(sequence, 3)
            assert len(rows) <= 3 and following > sequence
            told += rows.tolist()
            sequence = following
        assert (told, sequence) == (expected, self.journal.head)

    def remove(self, argument) -> None:
        """Ask, a few entries at a time, for all rows that readers at a position and beyond do not need."""
        behind, n_entries = argument
        limit = max(self.journal.head - behind, self.first)
        rows = self.journal.removable(limit, self.alive, n_entries).tolist()
        while not self.journal.is_swept(limit):
            rows += self.journal.removable(limit, self.alive, n_entries).tolist()
        gone = set(np.flatnonzero(self.alive == 0).tolist())
        assert len(rows) == len(set(rows))
        assert set(rows) == self.model.removable(limit, gone)
        assert not self.journal.last[rows].any()

    def check(self) -> None:
        """Compare the marks; no position is held from which something that was removed is missing."""
        journal, model = self.journal, self.model
        assert (journal.head, journal.tail) == (model.head, model.tail)
        assert model.horizon <= journal.horizon <= journal.head
        for sequence in range(max(journal.head - 20, 0), journal.head + 2):
            assert journal.is_held(sequence) == (max(journal.tail, journal.horizon) <= sequence <= journal.head)


@pytest.mark.parametrize("first", [1, 2**32 - 20], ids=["young", "old"])
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=100, deadline=None)
@given(script=st.lists(steps, max_size=20))
def test_tells_changes_and_frees_rows_as_the_oracle(twin, first, script):
    """A reader at a held position is told every row changed since, and rows that are gone are given back once."""
    both = Both(TWINS[twin], first)
    for name, argument in script:
        getattr(both, name)(argument)
        both.check()
