"""How many routes of one family `expected_routes` of a neighbor stands for; tables are sized by it beforehand."""

from common.config.schema import Config, Neighbor

# Of 1.23 M routes in a full table 0.23 M are IPv6; a little more than either share.
SHARES = {"ipv4-unicast": 0.875, "ipv6-unicast": 0.2}


def expected_routes(neighbor: Neighbor, label: str) -> int:
    """Return how many routes of the family called `label` to expect; all of them where it is the only family."""
    if label not in neighbor.families:
        return 0
    return neighbor.expected_routes if len(neighbor.families) == 1 else int(neighbor.expected_routes * SHARES[label])


def expected_prefixes(config: Config, label: str) -> int:
    """Return how many distinct prefixes of the family called `label` to expect from all neighbors together."""
    return max((expected_routes(neighbor, label) for neighbor in config.neighbors.values()), default=0)
