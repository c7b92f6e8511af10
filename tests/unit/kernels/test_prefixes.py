"""The prefix table: what the twins' small batches do not reach."""

import numpy as np
import pytest

from common.kernels.prefixes import PrefixTable

NO_LO = np.empty(0, np.uint64)


def narrow(n: int, first: int = 0):
    """Return (hi, lo, length) of n IPv4 prefixes of 24 bits."""
    return np.arange(first, first + n, dtype=np.uint64) << np.uint64(40), NO_LO, np.full(n, 24, np.uint8)


def test_grows_to_many_prefixes():
    """A table made for few prefixes keeps the rows of a hundred thousand."""
    table = PrefixTable(False, 1, 16)
    columns = narrow(100_000)
    rows = [
        table.intern(columns[0][at : at + 7_000], NO_LO, columns[2][at : at + 7_000]) for at in range(0, 100_000, 7_000)
    ]
    assert np.concatenate(rows).tolist() == list(range(1, 100_001))
    assert table.find(*columns).tolist() == list(range(1, 100_001))
    assert table.capacity >= table.row_limit


@pytest.mark.parametrize("n_at_once", [1, 7, 100])
def test_grows_in_small_steps(n_at_once):
    """However the room for rows and that of the index grow past each other, each prefix keeps its row."""
    table = PrefixTable(False, 1, 16)
    hi, lo, length = narrow(5_000)
    for at in range(0, 5_000, n_at_once):
        table.intern(hi[at : at + n_at_once], lo, length[at : at + n_at_once])
    order = np.random.default_rng(1).permutation(5_000)
    assert table.find(hi[order], lo, length[order]).tolist() == (order + 1).tolist()


@pytest.mark.parametrize("is_wide", [False, True])
def test_prefixes_in_their_former_order_keep_their_rows(is_wide):
    """What comes again in the order in which it came is found, where some are left out, new, gone or doubled, too."""
    rng = np.random.default_rng(2)
    table = PrefixTable(is_wide, 1)
    hi, _, length = narrow(2_000)
    lo = hi >> np.uint64(3) if is_wide else NO_LO
    known = rng.random(2_000) < 0.9
    row_of = {}
    for _ in range(5):
        index = np.sort(np.concatenate((np.flatnonzero(known), rng.integers(0, 2_000, 50))))
        columns = hi[index], lo[index] if is_wide else lo, length[index]
        assert table.find(*columns).tolist() == [row_of.get(n, 0) for n in index.tolist()]
        for n, row in zip(index.tolist(), table.intern(*columns).tolist(), strict=True):
            assert row_of.setdefault(n, row) == row
        gone = rng.choice(list(row_of), 30, replace=False).tolist()
        table.release(np.array([row_of.pop(n) for n in gone], np.uint32))
        assert len(set(row_of.values())) == len(row_of) == table.n_prefixes


def test_the_row_after_the_last_is_not_the_default_route():
    """A row that was never given out looks like 0.0.0.0/0 and is not taken for it."""
    table = PrefixTable(False, 1)
    table.intern(*narrow(3, first=1))
    default = np.zeros(1, np.uint64), NO_LO, np.zeros(1, np.uint8)
    assert table.find(*default).tolist() == [0]
    assert table.intern(*default).tolist() == [4]


def test_withdrawals_of_unknown_prefixes_take_no_rows():
    """A peer that withdraws prefixes nobody has announced does not make the table grow."""
    table = PrefixTable(False, 1)
    rows = table.intern(*narrow(1000), np.zeros(1000, np.uint32))
    assert not rows.any()
    assert (table.n_prefixes, table.row_limit) == (0, 1)


def test_lengths_tell_prefixes_apart():
    """The same address with another length is another prefix, the default route among them."""
    table = PrefixTable(True, 1)
    zeros = np.zeros(129, np.uint64)
    rows = table.intern(zeros, zeros, np.arange(129, dtype=np.uint8))
    assert len(set(rows.tolist())) == 129


def test_reads_read_only_columns():
    """Columns that came from the bus cannot be written and are taken as they are."""
    columns = narrow(3)
    for column in columns:
        column.flags.writeable = False
    assert PrefixTable(False, 1).intern(*columns).tolist() == [1, 2, 3]


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
def test_chosen_prefixes_do_not_meet_in_the_index(seed):
    """Prefixes whose upper half, lower half and length differ so that the differences could cancel are spread."""
    table = PrefixTable(True, seed)
    top = [0, 1 << 63]
    hi, lo, length = np.array(
        [
            (n << 20 ^ flip, n ^ flip ^ (flip >> 32) ^ (bits << 56), bits)
            for n in range(100)
            for flip in top
            for bits in range(72, 129)
        ],
        np.uint64,
    ).T
    table.intern(hi.copy(), lo.copy(), length.astype(np.uint8))
    assert table.longest_run() < 100


def test_columns_of_unequal_length_are_refused():
    """Columns that do not fit together are an error, not a read past the end."""
    hi, lo, length = narrow(3)
    table = PrefixTable(False, 1)
    with pytest.raises(ValueError, match="one length"):
        table.intern(hi, lo, length[:2])
    with pytest.raises(ValueError, match="one length"):
        table.find(hi, lo, length[:2])
    with pytest.raises(ValueError, match="one length"):
        table.intern(hi, lo, length, np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match="one length"):
        PrefixTable(True, 1).intern(hi, lo, length)


def test_free_rows_are_passed_over():
    """Releasing a row twice, or one that was never given out, changes nothing."""
    table = PrefixTable(False, 1)
    table.intern(*narrow(3))
    table.release(np.array([2, 0, 2, 900_000], np.uint32))
    table.release(np.array([2], np.uint32))
    assert table.n_prefixes == 2
    assert table.find(*narrow(3)).tolist() == [1, 0, 3]
    assert table.intern(*narrow(5)).tolist() == [1, 2, 3, 4, 5]
