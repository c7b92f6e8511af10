"""The shares of prefixes: compiled, uncompiled and the words of the rule agree."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.kernels import shares as compiled
from common.kernels import uncompiled

TWINS = {"compiled": compiled, "uncompiled": uncompiled("shares")}
MASK64 = (1 << 64) - 1
NONE = 0xFFFFFFFF


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


rows_of_batches = st.lists(
    st.tuples(st.integers(0, MASK64), st.integers(0, MASK64), st.integers(0, 128), st.integers(0, 3),
              st.integers(0, 5), st.integers(0, 9)),
    max_size=40,
)  # fmt: skip


@pytest.mark.parametrize("kernel", TWINS.values(), ids=TWINS)
@given(rows=rows_of_batches, sets=st.lists(st.binary(max_size=9), max_size=5), is_wide=st.booleans(), data=st.data())
def test_split(kernel, rows, sets, is_wide, data):
    """Each share has its rows in their order, each with the set it had, and no set that none of them has."""
    count = data.draw(st.integers(1, 9))
    rows = [(*row[:4], row[4] if row[4] < len(sets) else NONE, row[5]) for row in rows]
    hi, lo, length, source, set_index, reason = map(list, zip(*rows, strict=True)) if rows else [[]] * 6
    columns = [
        np.array(hi, np.uint64), np.array(lo if is_wide else [], np.uint64), np.array(length, np.uint8),
        np.array(source, np.uint32), np.array(set_index, np.uint32), np.array(reason, np.uint8),
        np.array([0, *np.cumsum([len(each) for each in sets], dtype=int)], np.uint32),
        np.frombuffer(b"".join(sets), np.uint8),
    ]  # fmt: skip
    shares = kernel.split(count, is_wide, *columns)
    assert len(shares) == count
    for index, share in enumerate(shares):
        *found, offset, octets = [column.tolist() for column in share]
        own = [bytes(octets[begin:end]) for begin, end in zip(offset, offset[1:], strict=False)]
        expected = [row for row in rows if share_of(row[0], is_wide, count) == index]
        used = list(dict.fromkeys(row[4] for row in expected if row[4] != NONE))
        assert own == [sets[each] for each in used] and offset[0] == 0 and offset[-1] == len(octets)
        found[1] = found[1] if is_wide else [row[1] for row in expected]
        found[4] = [used[each] if each != NONE else NONE for each in found[4]]
        assert list(zip(*found, strict=True)) == expected
