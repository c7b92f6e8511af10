"""The Adj-RIB-In of one family: the routes of all this speaker's neighbors as received, before any policy.

Owns attribute sets, routes and the journal from which the bus is served; shares the prefixes. Never touches a socket,
never decides about a route. RFC 4271 §3.2.
"""

import numpy as np

from common.bgp.constants import Family
from common.config.sharing import Share
from common.kernels import shares
from common.kernels.attributes import AttributeTable
from common.kernels.journal import Journal
from common.kernels.routes import RouteTable
from stages.speaker.prefixes import SharedPrefixes, is_used
from stages.speaker.sources import Sources

# Journal entries looked at for rows to forget in one turn.
COLLECT_ENTRIES = 65536
# Rows forgotten after which it is worth looking for sets that nobody refers to.
SWEEP_ROWS = 4096
# Sets are typically shared by this many prefixes; sizes the attribute table beforehand.
PREFIXES_PER_SET = 5


class AdjRibIn:
    """Routes of one family by row, in the order of their changes."""

    def __init__(self, family: Family, seed: int, sources: Sources, prefixes: SharedPrefixes, expected_routes: int = 0):
        self.family = family
        self.sources = sources
        self.prefixes = prefixes
        self.attributes = AttributeTable(seed, max(expected_routes // PREFIXES_PER_SET, 1024))
        self.routes = RouteTable(max(expected_routes, 1024))
        self.routes.ensure_prefixes(self.prefixes.capacity)
        self.journal = Journal()
        self.journal.ensure_rows(self.routes.capacity)
        self._n_forgotten = 0
        prefixes.join(self)

    def needs(self, rows: np.ndarray) -> np.ndarray:
        """Tell of each prefix row whether there is a route, or one that readers have not been told is gone."""
        return is_used(self.routes.head, rows)

    def apply(
        self,
        source: int,
        hi: np.ndarray,
        lo: np.ndarray,
        length: np.ndarray,
        path_id: np.ndarray | None,
        set_index: np.ndarray,
        set_offset: np.ndarray,
        set_octets: np.ndarray,
    ) -> int:
        """Write what one neighbor announced and withdrew (set NONE), in order; return how many routes changed."""
        ids = self.attributes.intern_rows(set_offset, set_octets, set_index)
        rows = self.prefixes.intern(hi, lo, length, ids)
        numbers = np.array([source], np.uint32) if path_id is None else self.sources.with_path_ids(source, path_id)
        changed = self.routes.apply(rows, numbers, ids, self.attributes.references)
        self.journal.append(changed)
        return len(changed)

    def purge(self, name: str) -> int:
        """Withdraw all routes of a neighbor; return how many that were."""
        n_withdrawn = 0
        for source in self.sources.numbers(name).tolist():
            changed = self.routes.purge(np.array([source], np.uint32), self.attributes.references)
            self.journal.append(changed)
            n_withdrawn += len(changed)
        return n_withdrawn

    def mark_stale(self, name: str) -> None:
        """Mark all routes of a neighbor; one that is announced again is stale no more."""
        self.routes.mark_unconfirmed(self.sources.numbers(name))

    def sweep_stale(self, name: str) -> int:
        """Withdraw the routes of a neighbor that are still stale; return how many that were."""
        changed = self.routes.sweep_unconfirmed(self.sources.numbers(name), self.attributes.references)
        self.journal.append(changed)
        return len(changed)

    def collect(self, limit_sequence: int) -> None:
        """Forget what is gone and every reader below `limit_sequence` has been told so."""
        rows = self.journal.removable(limit_sequence, self.routes.attributes, COLLECT_ENTRIES)
        if len(rows):
            self.prefixes.release(self.routes.unlink(rows))
            self._n_forgotten += len(rows)
        # Also when nothing new comes, as after the loss of a session, sets that nobody refers to are to go.
        if self.attributes.needs_sweep or (self._n_forgotten > SWEEP_ROWS and not self.has_garbage):
            self._n_forgotten = 0
            self.attributes.sweep()

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return self.routes.n_live

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use, about."""
        return self.routes.row_limit

    def tidy(self) -> list[np.ndarray]:
        """Put free rows in order and return the columns, without those of the prefixes."""
        return [*self.routes.tidy(), *self.attributes.tidy(), self.journal.last]

    @property
    def has_garbage(self) -> bool:
        """Whether `collect` has not looked at everything yet."""
        return not self.journal.is_swept(self.journal.head)

    def n_routes_of(self, name: str) -> int:
        """Return how many routes a neighbor has announced."""
        counts = self.routes.n_by_source
        return sum(int(counts[number]) for number in self.sources.numbers(name).tolist() if number < len(counts))

    def n_octets_of(self, name: str) -> int:
        """Return the octets of all attribute sets of a neighbor's routes, each set counted once."""
        is_source = np.zeros(len(self.sources), bool)
        is_source[self.sources.numbers(name)] = True
        is_held = np.zeros(self.attributes.capacity, bool)
        limit = self.routes.row_limit
        is_held[self.routes.attributes[:limit][is_source[self.routes.source[:limit]]]] = True
        is_held[0] = False
        return int(self.attributes.sizes[is_held].sum())

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """Return the octets of each route's attribute set, 0 for one that is gone."""
        return self.attributes.sizes.take(self.routes.attributes.take(rows))

    def rows_of_share(self, share: Share, rows: np.ndarray) -> np.ndarray:
        """Return those of some rows whose prefix is of one share, where ribs share them out."""
        hi = self.prefixes.hi(slice(None))
        return shares.rows_in_share(*share, rows, self.routes.prefix, hi, self.family.is_wide)

    def gather(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        """Return (columns, meta) of a RouteChanges batch: the state of these routes now; none that are gone in a
        snapshot.
        """
        if is_snapshot:
            is_there = self.routes.attributes.take(rows) != 0
            rows = rows if is_there.all() else rows[is_there]
        prefix_rows, numbers, ids = self.routes.columns_of(rows)
        local, set_offset, set_octets = self.attributes.extract(ids)
        source, sources = self.sources.localize(numbers)
        hi, lo, length = self.prefixes.columns_of(prefix_rows)
        columns = {
            "hi": hi,
            "lo": lo,
            "length": length,
            "source": source,
            "set": local,
            "reason": np.zeros(len(rows), np.uint8),
            "set_offset": set_offset,
            "set_octets": set_octets,
        }
        return columns, {"family": self.family.label, "sources": sources}
