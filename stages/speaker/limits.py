"""How much a neighbor may have us hold: its routes, and the octets of its attribute sets.

Owns the warnings and the end of a session that goes beyond (RFC 4486 §4). Never counts a route: the tables do.

The octets are counted from above: what has come since the last count is added to what was held then, and only a sum
that is near the limit, and far more than was held, has them counted anew. So a batch costs one addition.
"""

from common.bgp.constants import CeaseSubcode, Family
from common.bgp.fsm import State
from common.config import Neighbor as NeighborConfig
from common.runtime.log import Log, event
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.neighbors import Neighbor, Neighbors

# Where nothing is configured: octets for each prefix that may come, prefixes where no number is given, and the least.
# A full table comes to about fifteen octets a prefix, a route server's, with many communities, to two hundred.
OCTETS_PER_PREFIX = 256
MANY_PREFIXES = 2_000_000
LEAST_OCTETS = 64 << 20
# Octets that may come between two counts, at least, so that counting stays rare whatever a peer does; as much may be
# held beyond the limit before it is noticed.
COUNT_OCTETS = 4 << 20


def maximum_attribute_octets(config: NeighborConfig) -> int | None:
    """Return how many octets of attribute sets may be held from a neighbor; None: no limit."""
    if config.maximum_attribute_octets is not None:
        return config.maximum_attribute_octets or None
    n_prefixes = config.maximum_prefixes or max(2 * config.expected_routes, MANY_PREFIXES)
    return max(OCTETS_PER_PREFIX * n_prefixes, LEAST_OCTETS)


def _limits(config: NeighborConfig) -> tuple:
    return config.maximum_prefixes, maximum_attribute_octets(config), config.maximum_prefixes_restart_s


class Limits:
    """The limits of all neighbors of a speaker."""

    def __init__(self, log: Log, tables: dict[Family, AdjRibIn], neighbors: Neighbors):
        self._log = log
        self._tables = tables
        self._neighbors = neighbors

    def n_routes(self, neighbor: Neighbor) -> int:
        """Return how many routes of a neighbor are held, of all families."""
        return sum(table.n_routes_of(neighbor.name) for table in self._tables.values())

    def count_octets(self, neighbor: Neighbor) -> int:
        """Return how many octets the attribute sets of a neighbor's routes have, each set counted once."""
        n_octets = sum(table.n_octets_of(neighbor.name) for table in self._tables.values())
        neighbor.n_attribute_octets = n_octets
        neighbor.count_octets_at = n_octets + max(n_octets, COUNT_OCTETS)
        return n_octets

    def check(self, neighbor: Neighbor) -> None:
        """Warn of what comes near a limit, and end the session that is beyond one."""
        if self._is_beyond_prefixes(neighbor):
            self._end(neighbor, CeaseSubcode.MAXIMUM_NUMBER_OF_PREFIXES_REACHED)
        elif self._is_beyond_octets(neighbor):
            self._end(neighbor, CeaseSubcode.OUT_OF_RESOURCES)

    def relent(self, neighbor: Neighbor, former: NeighborConfig) -> None:
        """Let a session that went beyond a limit come up at once when its limits are not those any more."""
        is_waiting = bool(neighbor.held_back_by) and neighbor.peering.session.state is State.IDLE
        if is_waiting and _limits(neighbor.config) != _limits(former):
            self._neighbors.start(neighbor)

    def _is_beyond_prefixes(self, neighbor: Neighbor) -> bool:
        limit = neighbor.config.maximum_prefixes
        if limit is None:
            return False
        n_routes = self.n_routes(neighbor)
        return self._is_beyond(neighbor, "maximum-prefixes", limit, n_routes=n_routes)

    def _is_beyond_octets(self, neighbor: Neighbor) -> bool:
        limit = maximum_attribute_octets(neighbor.config)
        if limit is None or neighbor.n_attribute_octets < neighbor.count_octets_at:
            return False
        if neighbor.n_attribute_octets * 100 < limit * neighbor.config.maximum_prefixes_warning_percent:
            return False
        n_octets = self.count_octets(neighbor)
        neighbor.count_octets_at = min(neighbor.count_octets_at, max(limit, n_octets + COUNT_OCTETS))
        return self._is_beyond(neighbor, "maximum-attribute-octets", limit, n_octets=n_octets)

    def _is_beyond(self, neighbor: Neighbor, name: str, limit: int, **counted: int) -> bool:
        """Tell whether what was counted is beyond a limit, and log that, or once that it is near."""
        (n_counted,) = counted.values()
        is_beyond = n_counted > limit
        if is_beyond:
            neighbor.held_back_by = f"{name.replace('-', '_')}: {n_counted}, limit {limit}"
        is_near = n_counted * 100 >= limit * neighbor.config.maximum_prefixes_warning_percent
        if is_beyond or (is_near and name not in neighbor.warned_of):
            neighbor.warned_of.add(name)
            what, level = ("exceeded", "error") if is_beyond else ("near", "warning")
            event(self._log, f"{name}-{what}", level, neighbor=neighbor.name, **counted, limit=limit)
        return is_beyond

    def _end(self, neighbor: Neighbor, subcode: CeaseSubcode) -> None:
        restart_s = neighbor.config.maximum_prefixes_restart_s
        self._neighbors.stop(neighbor, subcode, restart_s=float(restart_s) or None)
