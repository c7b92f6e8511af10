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
members = st.integers(0, 4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("apply"), changes),
        st.tuples(st.just("mark"), st.none()),
        st.tuples(st.just("sweep"), st.none()),
        st.tuples(st.just("select"), st.tuples(members, rows, st.booleans())),
        st.tuples(st.just("select"), st.tuples(members, st.just(range(1, N_ROWS)), st.just(False))),
        st.tuples(st.just("join"), st.none()),
        st.tuples(st.just("leave"), members),
    ),
    max_size=24,
)


def column(values) -> np.ndarray:
    return np.array(list(values), np.uint32)


def rows_in(bits: np.ndarray) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist())


@pytest.mark.parametrize("n_others", [0, 63, 200])
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=80, deadline=None)
@given(steps=steps, own=st.integers(0, N_SOURCES - 1))
def test_agrees_with_the_oracle(twin, n_others, steps, own):
    """Whatever is written, swept and told, and whoever comes and goes: each is told exactly what it does not hold."""
    table, plain = TWINS[twin].ExportTable(16), oracle.Table()
    table.ensure(N_ROWS)
    references = np.zeros(N_SETS, np.uint32)
    told: dict[int, np.ndarray] = {}

    def join(_) -> None:
        member = table.join()
        assert member == plain.join()
        told[member] = np.zeros(N_ROWS // 8 + 1, np.uint8)

    def leave(index: int) -> None:
        if index < len(told):
            member = sorted(told)[-1 - index]
            table.leave(member, references)
            plain.leave(member)
            del told[member]

    def select(argument: tuple) -> None:
        index, wanted, is_forced = argument
        if index < len(told):
            member = sorted(told)[-1 - index]
            announce, withdraw = table.select(column(wanted), told[member], own, member, references, is_forced)
            assert (announce.tolist(), withdraw.tolist()) == plain.select(wanted, member, own, is_forced)

    def apply(argument: list) -> None:
        columns = [column(change[i] for change in argument) for i in range(3)]
        assert table.apply(*columns, references).tolist() == plain.apply(argument)

    def mark(_) -> None:
        table.mark_unconfirmed()
        plain.mark()

    def sweep(_) -> None:
        assert table.sweep_unconfirmed(references).tolist() == plain.sweep()

    for _ in range(n_others):
        join(None)
    do = {"join": join, "leave": leave, "select": select, "apply": apply, "mark": mark, "sweep": sweep}
    for step, argument in steps:
        do[step](argument)
        assert table.n_unconfirmed == len(plain.unconfirmed)
    assert references.tolist() == [0, *plain.references(N_SETS)[1:]]
    assert table.n_routes == len(plain.routes)
    assert table.n_kept == sum(map(len, plain.former.values()))
    assert table.changed_and_gone().tolist() == sorted(plain.former.keys() - plain.routes.keys())
    every = column(range(1, N_ROWS))
    for member, bits in told.items():
        assert rows_in(bits) == set(plain.told[member])
        assert table.holds_as_now(every, member).tolist() == [plain.holds_as_now(row, member) for row in every.tolist()]
    ordered = table.ordered(N_SETS)
    assert sorted(ordered.tolist()) == sorted(plain.routes)
    assert np.all(np.diff(table.sets[ordered].astype(int)) >= 0)
    groups = list(dict.fromkeys(int(number) for number in table.sets[every]))
    by_group = sorted(every.tolist(), key=lambda row: groups.index(table.sets[row]))
    assert table.grouped(every, N_SETS + 1).tolist() == by_group
    for member in list(told):
        table.leave(member, references)
    assert table.n_kept == 0
    assert references.tolist() == [sum(number == each for number, _ in plain.routes.values()) for each in range(N_SETS)]


@pytest.mark.parametrize("twin", TWINS)
def test_growing_keeps_routes(twin):
    """Room for more rows leaves what is there as it was."""
    table = TWINS[twin].ExportTable(16)
    table.apply(column([3]), column([2]), column([1]), np.zeros(4, np.uint32))
    table.ensure(5000)
    assert table.sets[3] == 2 and table.sources[3] == 1 and len(table.sets) >= 5000


@pytest.mark.parametrize("twin", TWINS)
def test_no_more_is_kept_than_somebody_holds(twin):
    """However often a route flaps for those who look at once, one former set is kept for the one that does not."""
    table, references = TWINS[twin].ExportTable(16), np.zeros(4, np.uint32)
    slow, quick = table.join(), table.join()
    told = {slow: np.zeros(2, np.uint8), quick: np.zeros(2, np.uint8)}
    for turn in range(100):
        table.apply(column([3]), column([turn % 3 + 1]), column([1]), references)
        for member in told if not turn else [quick]:
            table.select(column([3]), told[member], 0, member, references)
    assert table.n_kept == 1
    assert table.select(column([3]), told[slow], 0, slow, references)[0].tolist() == []
    assert table.n_kept == 0 and references.tolist() == [0, 1, 0, 0]
