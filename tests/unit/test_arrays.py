"""The allocator of columns."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.arrays import PAGE_OCTETS, allocate, distinct, give_back, grown

# Run by itself: in a process that has freed memory before, a column may get pages it had already.
COUNT_FIRST_TOUCHES = """
import resource
import numpy as np
from common.arrays import allocate, populated

def faults(*more):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    columns.append(allocate(1 << 23, np.uint64, *more))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

columns = []
lazy = faults()
with populated():
    print(lazy, faults(), faults(1 << 23))
"""


def test_columns_are_zero_and_grow_with_zeros():
    """What a column holds survives growth, and what is new is zero."""
    column = allocate(3, np.uint32)
    column[:] = 7
    assert grown(column, 5).tolist() == [7, 7, 7, 0, 0]


def test_only_populated_columns_take_their_memory_at_once():
    """Inside `populated` pages are touched when a column is made, except those of a spare one; outside they are not."""
    run = subprocess.run([sys.executable, "-c", COUNT_FIRST_TOUCHES], capture_output=True, text=True, check=True)
    lazy, eager, spare = map(int, run.stdout.split())
    assert eager > lazy + 8 and eager > spare + 8


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
def test_pages_of_zeros_are_given_back_and_nothing_changes(kind):
    """All that holds zeros only is given back, whatever lies between; what the column says is as before."""
    n_items = 64 * PAGE_OCTETS
    column = allocate(n_items, kind)
    column[:] = 1
    column[1000:] = 0
    column[n_items // 2] = 7
    expected = column.copy()
    n_given = give_back(column)
    assert column.nbytes - 16 * PAGE_OCTETS < n_given + 1000 * column.itemsize <= column.nbytes
    assert np.array_equal(column, expected)
    column[-1] = 9
    assert column[-1] == 9 and give_back(allocate(10, kind)) == 0


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64, np.int64])
@pytest.mark.parametrize("values", [[], [7], [3, 3, 3], [0, 5, 2, 5, 0, 127], [127, 126, 126, 0]])
def test_distinct_values(values, kind):
    """Each value of a column comes once, ascending, and the column stays as it is."""
    column = np.array(values, kind)
    found = distinct(column)
    assert found.tolist() == sorted(set(values)) and found.dtype == kind and column.tolist() == values


def test_nothing_hashes_columns():
    """np.unique without axis or index hashes: a sort takes a hundredth of the time, so `distinct` is used."""
    root = Path(__file__).parents[2]
    calls = [
        f"{path.relative_to(root)}: {call[0]}"
        for folder in ("common", "stages")
        for path in (root / folder).rglob("*.py")
        for call in re.finditer(r"np\.unique\([^\n]*", path.read_text())
        if "axis=" not in call[0] and "return_" not in call[0]
    ]
    assert calls == []
