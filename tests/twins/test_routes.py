"""The route table: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import routes as compiled
from common.kernels import uncompiled
from tests.oracles import routes as oracle

TWINS = {"compiled": compiled, "uncompiled": uncompiled("routes")}
N_PREFIXES, N_SOURCES, N_SETS = 12, 5, 4

sources = st.lists(st.integers(0, N_SOURCES - 1), max_size=3)
routes = st.tuples(st.integers(0, N_PREFIXES), st.integers(0, N_SOURCES - 1), st.integers(0, N_SETS - 1))
steps = st.one_of(
    st.tuples(st.just("apply"), st.lists(routes, max_size=80)),
    st.tuples(st.just("apply_of_one"), st.lists(routes, min_size=1, max_size=80)),
    st.tuples(st.just("purge"), sources),
    st.tuples(st.just("mark_unconfirmed"), sources),
    st.tuples(st.just("sweep_unconfirmed"), sources),
    st.tuples(st.just("unlink"), st.integers(1, 3)),
    st.tuples(st.just("tidy"), st.none()),
)


def u32(values) -> np.ndarray:
    return np.array(list(values), np.uint32)


class Both:
    """The kernel's table and the oracle's, taken through the same steps."""

    def __init__(self, kernel):
        self.table = kernel.RouteTable(1)
        self.model = oracle.RouteTable()
        self.references = np.zeros(N_SETS, np.uint32)

    def routes_at(self, rows) -> list:
        return list(zip(self.table.prefix[rows].tolist(), self.table.source[rows].tolist(), strict=True))

    def apply(self, batch) -> None:
        columns = [u32(column) for column in zip(*batch, strict=True)] if batch else [u32([])] * 3
        changed = self.table.apply(*columns, self.references)
        assert self.routes_at(changed) == self.model.apply(batch)

    def apply_of_one(self, batch) -> None:
        source = batch[0][1]
        prefix_rows, _, ids = (u32(column) for column in zip(*batch, strict=True))
        changed = self.table.apply(prefix_rows, u32([source]), ids, self.references)
        assert self.routes_at(changed) == self.model.apply([(prefix, source, id) for prefix, _, id in batch])

    def purge(self, of) -> None:
        """Purge in two parts."""
        middle = self.table.row_limit // 2
        parts = [(0, middle), (middle, 0xFFFFFFFF)]
        rows = [self.table.purge(u32(of), self.references, first, end) for first, end in parts]
        self.check_withdrawn(np.concatenate(rows), self.model.purge(of))

    def tidy(self, _) -> None:
        """What is checked afterwards is as if nothing had been done."""
        assert len(self.table.tidy()) == 6

    def mark_unconfirmed(self, of) -> None:
        self.table.mark_unconfirmed(u32(of))
        self.model.mark_unconfirmed(of)

    def sweep_unconfirmed(self, of) -> None:
        self.check_withdrawn(self.table.sweep_unconfirmed(u32(of), self.references), self.model.sweep_unconfirmed(of))

    def check_withdrawn(self, rows, expected) -> None:
        assert rows.tolist() == sorted(set(rows.tolist()))
        assert set(self.routes_at(rows)) == expected

    def unlink(self, nth) -> None:
        rows = np.arange(0, self.table.row_limit + 2, nth, dtype=np.uint32)
        named = self.routes_at(rows[rows < self.table.row_limit])
        emptied = self.table.unlink(rows).tolist()
        assert set(emptied) == self.model.unlink(named)
        assert len(emptied) == len(set(emptied))

    def check(self) -> None:
        """Compare everything that can be seen of the two tables."""
        table, model = self.table, self.model
        held = {}
        for prefix in range(N_PREFIXES + 2):
            rows = table.rows_of(prefix)
            assert set(table.prefix[rows].tolist()) <= {prefix}
            held |= dict(zip(self.routes_at(rows), table.attributes[rows].tolist(), strict=True))
            columns = (table.prefix, table.source, table.attributes)
            assert [of.tolist() for of in table.columns_of(rows)] == [column[rows].tolist() for column in columns]
        assert {route: id for route, id in held.items() if id != 0} == model.live
        assert {route for route, id in held.items() if id == 0} == model.tombstones
        assert (table.n_live, table.n_tombstones) == (len(model.live), len(model.tombstones))
        assert self.references.tolist() == [model.references()[id] for id in range(N_SETS)]
        assert table.n_by_source[:N_SOURCES].tolist() == [model.n_by_source()[source] for source in range(N_SOURCES)]
        unconfirmed = np.flatnonzero(table.flags[: table.row_limit] & 1)
        assert set(self.routes_at(unconfirmed)) == model.unconfirmed
        assert np.count_nonzero(table.attributes) == table.n_live


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=80, deadline=None)
@given(script=st.lists(steps, max_size=12))
def test_keeps_routes_as_the_oracle(twin, script):
    """Routes, tombstones, confirmations, chains and counts are the oracle's after every step."""
    both = Both(TWINS[twin])
    for name, argument in script:
        getattr(both, name)(argument)
        both.check()
