"""The route table: what the twins' small batches do not reach."""

import numpy as np
import pytest

from common.kernels.routes import RouteTable


def u32(*values) -> np.ndarray:
    return np.array(values, np.uint32)


@pytest.fixture
def references() -> np.ndarray:
    return np.zeros(16, np.uint32)


def test_grows_with_what_comes(references):
    """Prefix rows, sources and route rows beyond what the table was made for find room."""
    table = RouteTable(1)
    prefix_rows = np.arange(1, 50_001, dtype=np.uint32)
    for source in (3, 900):
        table.apply(prefix_rows, u32(source), np.full(50_000, 5, np.uint32), references)
    assert table.n_live == 100_000
    assert references[5] == 100_000
    assert table.n_by_source[[3, 900]].tolist() == [50_000, 50_000]
    assert len(table.rows_of(50_000)) == 2
    assert table.capacity >= table.row_limit


def test_rows_are_used_again(references):
    """Routes that come and go and are unlinked do not make the table grow."""
    table = RouteTable(16)
    for prefix in range(1, 5_000):
        rows = table.apply(u32(prefix), u32(0), u32(1), references)
        table.apply(u32(prefix), u32(0), u32(0), references)
        assert table.unlink(rows).tolist() == [prefix]
    assert table.row_limit == 2
    assert table.capacity == 16
    assert not references.any()


def test_a_tombstone_comes_to_life_in_its_row(references):
    """A route announced again before it was unlinked has its old row."""
    table = RouteTable()
    first = table.apply(u32(7), u32(2), u32(1), references)
    table.apply(u32(7), u32(2), u32(0), references)
    assert table.n_tombstones == 1
    assert table.apply(u32(7), u32(2), u32(3), references).tolist() == first.tolist()
    assert table.unlink(first).tolist() == []
    assert (table.n_live, table.n_tombstones) == (1, 0)


def test_announced_again_is_only_confirmed(references):
    """The same set again changes nothing but that the route outlives the sweep."""
    table = RouteTable()
    table.apply(u32(1, 2), u32(4), u32(9, 9), references)
    table.mark_unconfirmed(u32(4))
    assert table.apply(u32(2), u32(4), u32(9), references).tolist() == []
    gone = table.sweep_unconfirmed(u32(4), references)
    assert table.prefix[gone].tolist() == [1]
    assert references[9] == 1


def test_purge_takes_one_source_or_several(references):
    """One number and a column of them purge alike."""
    table = RouteTable()
    table.apply(u32(1, 1, 1), u32(1, 2, 3), u32(5, 6, 7), references)
    assert table.source[table.purge(2, references)].tolist() == [2]
    assert table.source[table.purge(u32(1, 3), references)].tolist() == [1, 3]
    assert table.n_live == 0
    assert not references.any()


def test_purge_of_an_unknown_source_is_nothing(references):
    """A source that never announced anything, however high its number, has nothing to withdraw."""
    table = RouteTable()
    table.apply(u32(1), u32(1), u32(5), references)
    assert table.purge(5_000, references).tolist() == []
    assert table.n_live == 1


def test_columns_that_do_not_fit_are_refused(references):
    """Columns of unequal length, and sets beyond the references, are errors that change nothing."""
    table = RouteTable()
    with pytest.raises(ValueError, match="one length"):
        table.apply(u32(1, 2), u32(1, 1), u32(1), references)
    with pytest.raises(ValueError, match="one length"):
        table.apply(u32(1, 2, 3), u32(1, 1), u32(1, 1, 1), references)
    with pytest.raises(IndexError):
        table.apply(u32(1, 2), u32(1), u32(1, 16), references)
    assert (table.n_live, references.any()) == (0, False)


def test_no_routes_are_a_batch_too(references):
    """A batch without routes, with or without a source, changes nothing."""
    table = RouteTable()
    for sources in (u32(), u32(1)):
        assert table.apply(u32(), sources, u32(), references).tolist() == []
    assert table.unlink(u32()).tolist() == []
