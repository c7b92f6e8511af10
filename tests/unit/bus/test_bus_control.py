"""Questions and pages: no answer, and no number of questions, holds a stage up."""

import pytest

from common.bus.control import PAGE_OCTETS, PAGE_ROUTES, n_on_page


@pytest.mark.parametrize(
    ("wanted", "sizes", "n_routes"),
    [
        (None, [50] * 1000, PAGE_ROUTES),
        (0, [50] * 1000, PAGE_ROUTES),
        (10**9, [50] * 1000, PAGE_ROUTES),
        (-1, [50] * 1000, 1),
        (7, [50] * 1000, 7),
        (7, [50] * 3, 3),
        (None, [], 0),
        (None, [65535] * 10, 1),
        (None, [PAGE_OCTETS // 4] * 10, 4),
        (None, [0] * 1000, PAGE_ROUTES),
    ],
)
def test_a_page_is_small(wanted, sizes, n_routes):
    """A page has a bounded number of routes and octets, however many are asked for, but always one if there is one."""
    assert n_on_page(wanted, iter(sizes)) == n_routes


def test_a_page_looks_at_no_more_than_it_takes():
    """The sizes of routes beyond the page are not asked for."""
    sizes = iter([50] * 1000)
    n_on_page(None, sizes)
    assert len(list(sizes)) == 1000 - PAGE_ROUTES - 1
