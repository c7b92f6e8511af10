"""Prefixes that several tables share: a row stays that of its prefix for as long as any of them needs it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bgp.constants import Family
from stages.speaker import prefixes
from stages.speaker.prefixes import SharedPrefixes, is_used

V4 = Family.IPV4_UNICAST
NO_LO = np.empty(0, np.uint64)


class Table:
    """A user of rows, by hand."""

    def __init__(self, shared: SharedPrefixes):
        self.shared = shared
        self.row_of: dict[int, int] = {}
        shared.join(self)

    def needs(self, rows: np.ndarray) -> np.ndarray:
        return np.isin(rows, list(self.row_of.values()))

    def take(self, number: int) -> None:
        hi = np.array([number << 40], np.uint64)
        self.row_of[number] = int(self.shared.intern(hi, NO_LO, np.array([24], np.uint8))[0])

    def let_go(self, number: int) -> None:
        row = self.row_of.pop(number, 0)
        self.shared.release(np.array([row], np.uint32))

    def check(self) -> None:
        rows = np.array(list(self.row_of.values()), np.uint32)
        assert (self.shared.hi(rows) >> np.uint64(40)).tolist() == list(self.row_of)


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["take", "take", "let_go"]), st.integers(0, 9)), max_size=60
    ),
    n_leaving=st.integers(0, 3),
)
def test_rows_stay_until_the_last_user_lets_go(steps, n_leaving):
    """Whoever takes and lets go in whatever order, each finds its prefixes at its rows, and no row is lost."""
    shared = SharedPrefixes(V4, 7)
    tables = [Table(shared) for _ in range(3)]
    for index, step, number in steps:
        getattr(tables[index], step)(number)
        for table in tables:
            table.check()
    for table in tables[:n_leaving]:
        shared.leave(table)
    shared.collect()
    assert not shared.has_garbage
    needed = set().union(*(table.row_of for table in tables[n_leaving:]))
    assert shared.n_prefixes == len(needed)
    for table in tables[n_leaving:]:
        table.check()


def test_what_a_user_had_is_released_bit_by_bit(monkeypatch):
    """A long table that is dropped does not hold the loop up; what is taken again meanwhile stays."""
    monkeypatch.setattr(prefixes, "LEFT_ROWS_PER_TURN", 4)
    shared = SharedPrefixes(V4, 7)
    first, second = Table(shared), Table(shared)
    for number in range(10):
        first.take(number)
    shared.leave(first)
    second.take(7)
    n_turns = 0
    while shared.has_garbage:
        shared.collect()
        n_turns += 1
    assert (n_turns, shared.n_prefixes) == (3, 1)
    second.check()


def test_a_column_may_be_shorter_than_the_table():
    """Rows that a user's columns have no room for are none it uses."""
    column = np.array([0, 5, 0], np.uint32)
    assert is_used(column, np.array([1, 2, 3, 900], np.uint32)).tolist() == [True, False, False, False]
