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
        st.tuples(st.just("read"), st.integers(0, 12)),
        st.tuples(st.just("settle"), st.none()),
    ),
    max_size=16,
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
    last, position = np.zeros(N_ROWS, np.uint32), 1

    def changed(found: list, expected: list) -> None:
        """Both say that these rows changed: they get their entries."""
        assert found == expected
        last[expected] = 0
        for sequence, row in enumerate(expected, plain.head - len(expected)):
            last[row] = sequence

    for step, argument in steps:
        journaled = references, last, plain.head, position
        if step == "apply":
            columns = [column(change[i] for change in argument) for i in range(3)]
            changed(table.apply(*columns, *journaled).tolist(), plain.apply(argument, position))
        elif step == "mark":
            table.mark_unconfirmed()
            plain.mark()
        elif step == "sweep":
            changed(table.sweep_unconfirmed(*journaled).tolist(), plain.sweep(position))
        elif step == "read":
            position = min(position + argument, plain.head)
        elif step == "settle":
            table.settle(column(plain.settle(position)), references)
        else:
            announce, withdraw = table.select(column(argument), told, own, plain.head, position)
            assert (announce.tolist(), withdraw.tolist()) == plain.select(argument, plain_told, own, position)
    assert references.tolist() == [0, *plain.references(N_SETS)[1:]]
    assert table.n_routes == len(plain.routes)
    assert set(np.flatnonzero(np.unpackbits(told, bitorder="little")).tolist()) == plain_told
    ordered = table.ordered(N_SETS)
    assert sorted(ordered.tolist()) == sorted(plain.routes)
    assert np.all(np.diff(table.sets[ordered].astype(int)) >= 0)
    table.settle_all(references)
    assert references.tolist() == [sum(number == each for number, _ in plain.routes.values()) for each in range(N_SETS)]


@pytest.mark.parametrize("twin", TWINS)
def test_growing_keeps_routes(twin):
    """Room for more rows leaves what is there as it was."""
    table = TWINS[twin].ExportTable(16)
    references = np.zeros(4, np.uint32)
    table.apply(column([3]), column([2]), column([1]), references, np.zeros(16, np.uint32), 1, 1)
    table.ensure(5000)
    assert table.sets[3] == 2 and table.sources[3] == 1 and len(table.sets) >= 5000


@pytest.mark.parametrize("twin", TWINS)
def test_sequences_may_pass_32_bits(twin):
    """A change and its way back are recognised also where the low bits of the sequence begin again."""
    table, references = TWINS[twin].ExportTable(16), np.zeros(4, np.uint32)
    last, told, start = np.zeros(16, np.uint32), np.zeros(2, np.uint8), (1 << 32) - 2
    for offset, number in enumerate((1, 2, 1)):
        table.apply(column([3]), column([number]), column([1]), references, last, start + offset, start)
        last[3] = (start + offset) & 0xFFFFFFFF
        if number == 1 and offset == 0:
            assert table.select(column([3]), told, 0, start + 1, start)[0].tolist() == [3]
            table.settle(column([3]), references)
    assert table.select(column([3]), told, 0, start + 4, start + 1)[0].tolist() == []
