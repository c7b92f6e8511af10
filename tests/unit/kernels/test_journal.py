"""The journal: what the twins' small rings do not reach."""

import numpy as np
import pytest

from common.kernels.journal import Journal


def u32(*values) -> np.ndarray:
    return np.array(values, np.uint32)


def test_a_slow_reader_gets_each_row_once():
    """However often a row changed, a reader gets it once, at the place of its latest change."""
    journal = Journal()
    for _ in range(100):
        journal.append(u32(1, 2, 3))
    journal.append(u32(2))
    rows, following = journal.read(1, 10)
    assert (rows.tolist(), following) == ([1, 3, 2], journal.head)


def test_reads_no_more_than_asked():
    """A limit ends a read, and the next goes on from there."""
    journal = Journal()
    journal.append(np.arange(1, 101, dtype=np.uint32))
    assert journal.read(1, 0)[0].tolist() == []
    first, following = journal.read(1, 60)
    second, last = journal.read(following, 60)
    assert (len(first), len(second), last) == (60, 40, 101)


def test_one_append_may_be_longer_than_the_ring():
    """Of more rows than the ring holds the last are there, and positions before them are not held."""
    journal = Journal(4)
    journal.append(np.arange(1, 101, dtype=np.uint32))
    assert not journal.is_held(84)
    assert journal.read(85, 100)[0].tolist() == list(range(85, 101))


def test_a_tap_that_nobody_waited_for_falls_below_the_horizon():
    """Once a removed row is freed, positions before its removal are not held any more, later ones are."""
    journal = Journal()
    alive = u32(0, 1, 0, 1)
    journal.append(u32(1, 2, 3))
    assert journal.removable(4, alive).tolist() == [2]
    assert [journal.is_held(sequence) for sequence in (1, 2, 3, 4)] == [False, False, True, True]


def test_a_row_waits_for_its_slowest_reader():
    """A row that is gone is not removable before every reader has passed its latest entry."""
    journal = Journal()
    alive = u32(1, 0)
    journal.append(u32(1, 1))
    assert journal.removable(2, alive).tolist() == []
    assert journal.last[1] == 2
    assert journal.removable(3, alive).tolist() == [1]
    assert journal.last[1] == 0
    assert journal.removable(3, alive).tolist() == []


def test_rows_are_removable_after_the_ring_came_round():
    """Rows whose entries were overwritten before anybody asked for them are found none the less."""
    journal = Journal(4)
    journal.append(u32(30, 31))
    journal.append(np.arange(1, 21, dtype=np.uint32))
    alive = np.ones(40, np.uint32)
    alive[[30, 20]] = 0
    assert journal.removable(1, alive).tolist() == [30]
    assert journal.removable(journal.head, alive).tolist() == [20]
    assert journal.is_swept(journal.head)


def test_work_is_done_in_parts():
    """`removable` looks at as many entries as it is told to, and says when it has seen all."""
    journal = Journal()
    journal.append(np.arange(1, 11, dtype=np.uint32))
    found = []
    while not journal.is_swept(journal.head):
        rows = journal.removable(journal.head, np.zeros(11, np.uint32), 3)
        assert len(rows) <= 3
        found += rows.tolist()
    assert found == list(range(1, 11))


def test_row_0_keeps_a_place_only():
    """An entry of row 0 takes a sequence, is given to no reader and is never removable."""
    journal = Journal()
    journal.append(u32(5, 0, 6))
    assert journal.head == 4
    assert journal.read(1, 10)[0].tolist() == [5, 6]
    assert journal.removable(4, np.zeros(8, np.uint32)).tolist() == [5, 6]


def test_room_for_rows_grows():
    """Rows beyond what was asked for find room; what is known of others stays."""
    journal = Journal()
    journal.append(u32(1))
    journal.ensure_rows(5_000)
    journal.append(u32(1_000_000))
    assert journal.last[[1, 1_000_000]].tolist() == [1, 2]
    assert len(journal.last) > 1_000_000


def test_positions_beyond_the_head_are_not_held():
    """A position of another journal, further on than this one, is refused."""
    journal = Journal()
    assert journal.is_held(1)
    assert not journal.is_held(2)
    with pytest.raises(ValueError, match="position"):
        journal.read(2, 10)


@pytest.mark.parametrize("capacity_power", [3, 31])
def test_capacity_has_limits(capacity_power):
    """A ring too small to be useful or too large for 32-bit sequences is refused."""
    with pytest.raises(ValueError, match="entries"):
        Journal(capacity_power)
