"""The kernels' benchmark cases run: a kernel whose arguments change takes its cases along."""

import pytest

from bench.bench_kernels import CASES, run


@pytest.mark.parametrize("name", CASES)
def test_the_cases_of_a_kernel_run(name):
    """Each case is called on a very small table and has been given a time."""
    assert all(ns > 0 and n_items > 0 for ns, n_items in run(name, 0.0001, 1, True).values())
