"""The prefix table: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import prefixes as compiled
from common.kernels import uncompiled
from tests.oracles import prefixes as oracle

TWINS = {"compiled": compiled, "uncompiled": uncompiled("prefixes")}

# Few enough values that prefixes meet again, and many enough that the table grows and probes.
halves = st.sampled_from([0, 1 << 63, 1 << 40, (1 << 64) - 1, 10 << 56, 77 << 32])
batches = st.lists(
    st.tuples(st.integers(0, 40).map(lambda n: n << 40), halves, st.sampled_from([0, 24, 32]), st.integers(0, 2)),
    max_size=90,
)
seeds = st.sampled_from([0, 1, 0xFEDCBA9876543210])


def columns(batch, is_wide: bool):
    hi = np.array([hi for hi, _, _, _ in batch], np.uint64)
    lo = np.array([lo for _, lo, _, _ in batch] if is_wide else [], np.uint64)
    length = np.array([length for _, _, length, _ in batch], np.uint8)
    ids = np.array([id for _, _, _, id in batch], np.uint32)
    return hi, lo, length, ids


@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "wide"])
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=40, deadline=None)
@given(seed=seeds, steps=st.lists(st.tuples(batches, st.integers(2, 5)), max_size=6))
def test_gives_rows_as_the_oracle(twin, is_wide, seed, steps):
    """Rows are given, found, released and given again as a dictionary would, and the columns hold the prefixes."""
    table, model = TWINS[twin].PrefixTable(is_wide, seed, 1), oracle.PrefixTable()
    for batch, nth in steps:
        hi, lo, length, ids = columns(batch, is_wide)
        prefixes = [(hi, lo if is_wide else 0, length) for hi, lo, length, _ in batch]
        expected = list(model.intern(prefixes, [id != 0 for *_, id in batch]))
        assert table.intern(hi, lo, length, ids).tolist() == expected
        assert table.find(hi, lo, length).tolist() == [model.row_of.get(prefix, 0) for prefix in prefixes]
        live = np.array(list(model.row_of.values()), np.uint32)
        held = zip(table.hi(live).tolist(), table.lo(live).tolist(), table.length(live).tolist(), strict=True)
        assert list(held) == list(model.row_of)
        hi_of, lo_of, length_of = table.columns_of(live)
        assert (hi_of.tolist(), length_of.tolist()) == (table.hi(live).tolist(), table.length(live).tolist())
        assert lo_of.tolist() == (table.lo(live).tolist() if is_wide else [])
        released = live[::nth].copy()
        table.release(released)
        model.release(released.tolist())
        if nth == 3:
            columns_of_all = table.tidy()
            model.tidy()
            assert len(columns_of_all[0]) == len(columns_of_all[2]) == table.capacity
        assert (table.n_prefixes, table.row_limit) == (len(model.row_of), model.row_limit)
        assert table.longest_run() <= len(model.row_of)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("step", [1, 3, 64, 65, 200])
def test_a_part_of_a_table_in_its_order(twin, step):
    """Prefixes that come in the order of their rows are found, whatever number of others is between them."""
    table = TWINS[twin].PrefixTable(False, 1)
    hi = np.arange(1, 1001, dtype=np.uint64) << np.uint64(40)
    nothing, length = np.empty(0, np.uint64), np.full(1000, 24, np.uint8)
    rows = table.intern(hi, nothing, length)
    part, length = hi[::step].copy(), length[::step].copy()
    assert table.intern(part, nothing, length).tolist() == rows[::step].tolist()
    assert table.find(part, nothing, length).tolist() == rows[::step].tolist()
    table.release(rows[:500])
    assert table.find(part, nothing, length).tolist() == np.where(rows > 500, rows, 0)[::step].tolist()


@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "wide"])
@settings(deadline=None)
@given(batch=batches, seed=seeds)
def test_twins_hash_alike(is_wide, batch, seed):
    """Both twins spread prefixes alike over the slots, so both were tested with the same collisions."""
    tables = [kernel.PrefixTable(is_wide, seed, 1) for kernel in TWINS.values()]
    for table in tables:
        table.intern(*columns(batch, is_wide))
    assert tables[0].longest_run() == tables[1].longest_run()
