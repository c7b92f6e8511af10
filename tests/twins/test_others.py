"""Routes of others: compiled, uncompiled and the oracle agree through any sequence of messages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import others, uncompiled
from tests.oracles import others as oracle

TWINS = {"compiled": others, "uncompiled": uncompiled("others")}
N_ROWS = 4

small = st.integers(0, 2)
routes = st.tuples(st.sampled_from([254, 255]), small, st.integers(1, 9), small, st.sampled_from([0, 0, 7]), small,
                   small, small)  # fmt: skip
message = st.tuples(st.integers(0, N_ROWS), st.sampled_from([24, 24, 25]), st.sampled_from([0, 0, 0x100]), routes)
steps = st.lists(st.lists(message, min_size=1, max_size=6) | st.integers(0, 2), max_size=8)


def apply(kernel, messages: list[tuple]) -> list[int]:
    rows, kinds, flags, found = zip(*messages, strict=True)
    table, metric, kind, oif, nexthop_id, family, hi, lo = (np.array(column) for column in zip(*found, strict=True))
    return kernel.apply(
        np.array(rows, np.uint32), np.array(kinds, np.uint8), np.array(flags, np.uint32),
        *(column.astype(np.uint32) for column in (table, metric, oif, nexthop_id)),
        *(column.astype(np.uint8) for column in (kind, family)), *(column.astype(np.uint64) for column in (hi, lo)),
    ).tolist()  # fmt: skip


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=200, deadline=None)
@given(chosen=steps)
def test_any_sequence_of_messages_is_the_oracles(twin, chosen):
    """Added, replaced, removed and lost with their interface: each row has the same routes, the empty ones are told."""
    kernel, slow = TWINS[twin].OtherRoutes(1), oracle.OtherRoutes()
    for step in chosen:
        before = {row for row, found in slow.rows.items() if found}
        if isinstance(step, int):
            emptied = kernel.forget_interface(step).tolist()
            slow.forget_interface(step)
        else:
            emptied = apply(kernel, step)
            for row, kind, flags, route in step:
                if row:
                    slow.apply(row, kind, flags, route)
        empty_now = {row for row in before if not slow.rows[row]}
        assert empty_now <= set(emptied)
        for row in range(1, N_ROWS + 1):
            assert sorted(kernel.routes(row)) == sorted(slow.rows.get(row, []))
        assert kernel.n == sum(len(found) for found in slow.rows.values())
        rows = np.arange(1, N_ROWS + 1)
        assert kernel.is_empty(rows).tolist() == [not slow.rows.get(row) for row in range(1, N_ROWS + 1)]
