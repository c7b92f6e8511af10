"""The allocator of columns."""

import resource

import numpy as np

from common.arrays import allocate, grown, populated

N = 1 << 23


def faults(make) -> int:
    """Return how many pages the system gave while `make` ran, counted in first touches."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    column = make()
    made = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert not column.any()
    return made


def test_columns_are_zero_and_grow_with_zeros():
    """What a column holds survives growth, and what is new is zero."""
    column = allocate(3, np.uint32)
    column[:] = 7
    assert grown(column, 5).tolist() == [7, 7, 7, 0, 0]


def test_only_populated_columns_take_their_memory_at_once():
    """Inside `populated` pages are touched when a column is made, except those of a spare one; outside they are not."""
    lazy = faults(lambda: allocate(N, np.uint64))
    with populated():
        eager = faults(lambda: allocate(N, np.uint64))
        spare = faults(lambda: allocate(N, np.uint64, is_spare=True))
    assert eager > lazy + 8 and eager > spare + 8
