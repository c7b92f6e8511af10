"""Sizes taken from `expected_routes`."""

import pytest

from common.config.expected import expected_routes
from common.config.load import loads

FILE = """
[router]
asn = 65000
router_id = "10.77.0.1"
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64601
expected_routes = 1000
families = {families}
"""


@pytest.mark.parametrize(
    ("families", "expected"),
    [
        ('["ipv4-unicast", "ipv6-unicast"]', (875, 200)),
        ('["ipv4-unicast"]', (1000, 0)),
        ('["ipv6-unicast"]', (0, 1000)),
    ],
)
def test_routes_are_shared_out_over_the_families_of_a_neighbor(families, expected):
    """Each family gets its usual share; the only family gets all, and one that is not spoken none."""
    neighbor = loads(FILE.format(families=families)).neighbors["a"]
    assert (expected_routes(neighbor, "ipv4-unicast"), expected_routes(neighbor, "ipv6-unicast")) == expected
