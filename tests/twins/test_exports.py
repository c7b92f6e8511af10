"""The export table: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import exports, uncompiled
from tests.oracles import exports as oracle

TWINS = {"compiled": exports, "uncompiled": uncompiled("exports")}
N_ROWS, N_SETS, N_SOURCES = 24, 5, 4

changes = st.lists(
    st.tuples(st.integers(1, N_ROWS - 1), st.integers(0, N_SETS - 1), st.integers(0, N_SOURCES - 1)), max_size=30
)
rows = st.lists(st.integers(1, N_ROWS - 1), unique=True, max_size=N_ROWS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), changes),
        st.tuples(st.just("mark"), st.none()),
        st.tuples(st.just("sweep"), st.none()),
        st.tuples(st.just("select"), rows),
    ),
    max_size=12,
)


def column(values) -> np.ndarray:
    return np.array(list(values), np.uint32)


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=150, deadline=None)
@given(steps=steps, own=st.integers(0, N_SOURCES - 1))
def test_agrees_with_the_oracle(twin, steps, own):
    """Whatever is written, marked, swept and told, table, references and bitset are those of the oracle."""
    table, plain = TWINS[twin].ExportTable(16), oracle.Table()
    table.ensure(N_ROWS)
    references, told, plain_told = np.zeros(N_SETS, np.uint32), np.zeros(N_ROWS // 8 + 1, np.uint8), set()
    for step, argument in steps:
        if step == "apply":
            columns = [column(change[i] for change in argument) for i in range(3)]
            assert table.apply(*columns, references).tolist() == plain.apply(argument)
        elif step == "mark":
            table.mark_unconfirmed()
            plain.mark()
        elif step == "sweep":
            assert table.sweep_unconfirmed(references).tolist() == plain.sweep()
        else:
            announce, withdraw = table.select(column(argument), told, own)
            assert (announce.tolist(), withdraw.tolist()) == plain.select(argument, plain_told, own)
    assert references.tolist() == plain.references(N_SETS)
    assert table.n_routes == len(plain.routes)
    assert set(np.flatnonzero(np.unpackbits(told, bitorder="little")).tolist()) == plain_told
    ordered = table.ordered(N_SETS)
    assert sorted(ordered.tolist()) == sorted(plain.routes)
    assert np.all(np.diff(table.sets[ordered].astype(int)) >= 0)


@pytest.mark.parametrize("twin", TWINS)
def test_growing_keeps_routes(twin):
    """Room for more rows leaves what is there as it was."""
    table = TWINS[twin].ExportTable(16)
    references = np.zeros(4, np.uint32)
    table.apply(column([3]), column([2]), column([1]), references)
    table.ensure(5000)
    assert table.sets[3] == 2 and table.sources[3] == 1 and len(table.sets) >= 5000
