"""The shares of prefixes: compiled, uncompiled and the words of the rule agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kernels import shares as compiled
from common.kernels import uncompiled

TWINS = {"compiled": compiled, "uncompiled": uncompiled("shares")}
MASK64 = (1 << 64) - 1


def share_of(hi: int, is_wide: bool, count: int) -> int:
    """Return the share of a prefix, slowly."""
    word = hi >> (64 - (40 if is_wide else 20))
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        word = word * factor & MASK64
        word ^= word >> 32
    return (word >> 32) * count >> 32


@pytest.mark.parametrize("kernel", TWINS.values(), ids=TWINS)
@given(
    hi=st.lists(st.integers(0, MASK64), min_size=1, max_size=30),
    is_wide=st.booleans(),
    count=st.integers(1, 64),
    data=st.data(),
)
def test_shares(kernel, hi, is_wide, count, data):
    """Each prefix is in the share that the rule names, and a row in that of its prefix."""
    index = data.draw(st.integers(0, count - 1))
    column = np.array(hi, np.uint64)
    expected = [share_of(each, is_wide, count) == index for each in hi]
    assert kernel.is_in_share(index, count, column, is_wide).tolist() == expected
    prefix_rows = np.array(data.draw(st.lists(st.integers(0, len(hi) - 1), min_size=1, max_size=50)), np.uint32)
    rows = np.arange(len(prefix_rows), dtype=np.uint32)
    chosen = kernel.rows_in_share(index, count, rows, prefix_rows, column, is_wide)
    assert chosen.tolist() == [row for row in rows.tolist() if expected[prefix_rows[row]]]
