"""The candidates and the Loc-RIB of one family.

Owns prefixes, attribute sets, candidate routes, what was chosen, and the journal of prefixes whose chosen path
changed. Never touches the bus: batches are handed in, and columns for batches are handed out. RFC 4271 §3.2, §9.1.

The way of a batch:

    sets ──▶ ids ──▶ facts
    prefixes ──▶ prefix rows ──▶ candidates that changed ──▶ select ──▶ prefix rows that changed ──▶ journal
                                                               └──▶ tombstones ──▶ unlinked, prefix released
"""

import numpy as np

from common.arrays import only_value
from common.bgp.constants import Family
from common.bgp.decision import UNREACHABLE
from common.bus.batch import Batch, no_sets
from common.config.sharing import WHOLE, Share
from common.kernels.attributes import AttributeTable
from common.kernels.decide import Decision, SetFacts
from common.kernels.journal import Journal
from common.kernels.prefixes import PrefixTable
from common.kernels.routes import RouteTable
from stages.rib.installed import Installed
from stages.rib.next_hops import NextHops
from stages.rib.sources import Sources

PREFIXES_PER_SET = 5  # sizes the table of attribute sets beforehand
ROWS_PER_SLICE = 65536  # candidates looked at in one slice of work on the whole table: some milliseconds
PREFIXES_PER_SLICE = 16384  # each with all its candidates
COLLECT_ENTRIES = 65536  # journal entries looked at in one call of `collect`
JOURNAL_POWERS = (18, 22)
ALL_ROWS = 1 << 32
BEST, ALL, MULTIPATH, INSTALLED = VIEWS = ("best", "all", "multipath", "installed")

_NO_ROWS = np.empty(0, np.uint32)


class LocRib:
    """Chosen paths by prefix row, and all the candidates they were chosen from."""

    def __init__(
        self,
        family: Family,
        seed: int,
        next_hops: NextHops,
        expected_prefixes: int = 0,
        expected_routes: int = 0,
        share: Share = WHOLE,
    ):
        self.family = family
        self.sources = Sources()
        self.prefixes = PrefixTable(family.is_wide, seed, max(expected_prefixes, 1024))
        # Where prefixes are shared out, a set is in two shares on average.
        n_sets = expected_routes // PREFIXES_PER_SET * min(share.count, 2)
        self.attributes = AttributeTable(seed, max(n_sets, 1024))
        self.routes = RouteTable(max(expected_routes, 1024))
        self.facts = SetFacts(seed, self.attributes.capacity)
        self.decision = Decision(self.facts, self.prefixes.capacity)
        self.journal = Journal(min(max((2 * expected_prefixes).bit_length(), JOURNAL_POWERS[0]), JOURNAL_POWERS[1]))
        self.next_hops = next_hops
        self.installed = Installed(family.is_wide, seed, self.on_installed, share)
        self.is_deferred = False  # nothing is chosen before `decide_all`: the table is being filled
        self.decided_limit = ALL_ROWS  # of the rows below, what is chosen is no longer deferred
        self.has_all_readers = False  # someone reads every usable path: journal each prefix that is touched
        self._room = 0
        self._make_room()

    # ---- what comes in ----------------------------------------------------------------------------------------

    def defer(self) -> None:
        """Choose nothing before `decide_all`: each prefix once, and not for each of its candidates."""
        self.is_deferred = True
        self.decided_limit = 0

    def apply(self, speaker: str, batch: Batch) -> np.ndarray:
        """Write a RouteChanges batch of one speaker; return the numbers of sources that are described anew."""
        columns = batch.columns
        numbers, renewed = self._number(speaker, batch.meta["sources"])
        ids = self._intern_sets(columns["set_offset"], columns["set_octets"], columns["set"])
        prefix_rows = self.prefixes.intern(columns["hi"], columns["lo"], columns["length"], ids)
        self._make_room()
        sources = numbers if len(numbers) == 1 else numbers.take(columns["source"])
        changed = self.routes.apply(prefix_rows, sources, ids, self.attributes.references)
        if len(changed) and not self.is_deferred:
            self._decide(self.routes.prefix.take(changed), changed)
        return renewed

    def describe(self, speaker: str, sources: list[dict]) -> np.ndarray:
        """Take note of sources; return the numbers of those that were known and are described anew."""
        return self._number(speaker, sources)[1]

    def mark_unconfirmed(self, speaker: str) -> None:
        """Mark all routes of a speaker, whose snapshot begins."""
        sources = self.sources.of_speaker(speaker)
        if len(sources):
            self.routes.mark_unconfirmed(sources)

    # ---- work on the whole table, in slices -------------------------------------------------------------------

    def decide_all(self, first: int) -> int:
        """Choose for every prefix, once, what was deferred, among the rows from `first`; see `sweep`.

        No reader has been told of a row before, so nothing is journaled.
        """
        self.is_deferred = False
        end = min(first + PREFIXES_PER_SLICE, self.prefixes.row_limit)
        rows = np.arange(first, end, dtype=np.uint32)
        _, dead = self.decision.select(rows, np.zeros(len(rows), np.uint32), *self._chains())
        if len(dead):
            self._bury(self.routes.unlink(dead), self.journal.head)
        is_more = end < self.prefixes.row_limit
        self.decided_limit = end if is_more else ALL_ROWS
        return end if is_more else 0

    def sweep(self, sources: np.ndarray, first: int, only_unconfirmed: bool = True) -> int:
        """Withdraw what a snapshot did not confirm of these sources (or all of it), among the rows from `first`.

        Returns the row where the next slice begins, 0 when all is done.
        """
        end = min(first + ROWS_PER_SLICE, self.routes.row_limit)
        references = self.attributes.references
        if not len(sources):
            return 0
        if only_unconfirmed:
            withdrawn = self.routes.sweep_unconfirmed(sources, references, first, end)
        else:
            withdrawn = np.concatenate(
                [self.routes.purge(source, references, first, end) for source in sources.tolist()]
            )
        if len(withdrawn):
            self._decide(self.routes.prefix[withdrawn], np.zeros(len(withdrawn), np.uint32))
        return end if end < self.routes.row_limit else 0

    def select_again(self, sources: np.ndarray, ways: np.ndarray, first: int) -> int:
        """Choose again where a candidate has one of `sources` or `ways`, among the rows from `first`; see `sweep`.

        The paths of sources that were described anew are told anew.
        """
        end = min(first + ROWS_PER_SLICE, self.routes.row_limit)
        ids = self.routes.attributes[first:end]
        of_source = _is_among(self.routes.source[first:end], sources, len(self.sources))
        of_way = _is_among(self.facts.ways_of(ids), ways, self.facts.way_limit)
        rows = first + np.flatnonzero((ids != 0) & (of_source | of_way)).astype(np.uint32)
        if len(rows):
            told_anew = np.where(of_source[rows - first], rows, 0).astype(np.uint32)
            self._decide(self.routes.prefix[rows], told_anew)
        return end if end < self.routes.row_limit else 0

    def update_metrics(self) -> np.ndarray:
        """Take the metrics of all ways from `next_hops`; return the ways that changed."""
        return self.next_hops.update(self.facts, np.arange(1, self.facts.way_limit, dtype=np.uint32))

    def collect(self, limit_sequence: int) -> None:
        """Forget prefixes that are gone and whose removal every reader below `limit_sequence` has passed; and sets."""
        rows = self.journal.removable(limit_sequence, self.routes.head, COLLECT_ENTRIES)
        if len(rows):
            self.prefixes.release(rows)
        if self.attributes.needs_sweep:
            if self.attributes.sweep():
                self.facts.forget(self.attributes.references)

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return self.routes.n_live

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use, about."""
        return self.routes.row_limit

    def tidy(self) -> list[np.ndarray]:
        """Put free rows in order and return the columns."""
        if self.attributes.sweep():
            self.facts.forget(self.attributes.references)
        tables = [*self.prefixes.tidy(), *self.routes.tidy(), *self.attributes.tidy()]
        return [*tables, self.decision.best, self.decision.reason, self.journal.last]

    # ---- what goes out ----------------------------------------------------------------------------------------

    def sizes_of_best(self, rows: np.ndarray) -> np.ndarray:
        """Return the octets of the attribute set of each prefix's chosen path, 0 where there is none."""
        return self._sizes(self.decision.best.take(rows))

    def sizes_of_all(self, rows: np.ndarray) -> np.ndarray:
        """Return the octets of the attribute sets of all usable paths of each prefix."""
        n_paths, paths = self.decision.usable(rows, *self._chains())
        before = np.concatenate(([0], np.cumsum(self._sizes(paths), dtype=np.int64)))
        ends = np.cumsum(n_paths, dtype=np.int64)
        return before[ends] - before[ends - n_paths]

    def _sizes(self, paths: np.ndarray) -> np.ndarray:
        return self.attributes.sizes.take(self.routes.attributes.take(paths))

    def gather_best(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        """Return (columns, meta) of a BestChanges batch: the chosen path of each prefix now."""
        paths = self.decision.best.take(rows)
        n_paths = (paths != 0).view(np.uint8)
        chosen = rows
        if not (only_value(n_paths) or n_paths.all()):
            is_there = n_paths != 0
            paths, chosen = paths[is_there], rows[is_there]
            if is_snapshot:
                rows, n_paths = chosen, n_paths[is_there]
        return self._gathered(rows, n_paths, paths, self.decision.reason.take(chosen), BEST)

    def gather_all(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        """Return (columns, meta) of a BestChanges batch: all usable paths of each prefix now, the chosen one first."""
        if is_snapshot:
            rows = rows[self.decision.best[rows] != 0]
        n_paths, paths = self.decision.usable(rows, *self._chains())
        prefix_rows = self.routes.prefix[paths]
        is_best = self.decision.best[prefix_rows] == paths
        reasons = np.where(is_best, self.decision.reason[prefix_rows], 0).astype(np.uint8)
        return self._gathered(rows, n_paths, paths, reasons, ALL)

    def gather_installed(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        """Return (columns, meta) of a BestChanges batch: the chosen path of each prefix now, if the kernel has it.

        What is originated here is nothing the kernel has to have.
        """
        lo = self.prefixes.lo(rows) if self.family.is_wide else np.empty(0, np.uint64)
        paths = self.decision.best[rows]
        is_told = self.sources.is_originated()[self.routes.source[paths]]
        is_told |= self.installed.has((self.prefixes.hi(rows), lo, self.prefixes.length(rows)))
        n_paths = ((paths != 0) & is_told).astype(np.uint8)
        is_there = n_paths != 0
        if is_snapshot:
            rows, n_paths = rows[is_there], n_paths[is_there]
        reasons = self.decision.reason[rows[n_paths != 0]]
        return self._gathered(rows, n_paths, paths[is_there], reasons, INSTALLED)

    def on_installed(self, prefixes: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        """Have readers look again at prefixes that came into the kernel or left it."""
        rows = self.prefixes.find(*prefixes)
        self.journal.append(rows[self.decision.best[rows] != 0])

    def gather_multipath(self, n_external: int, n_internal: int, rows: np.ndarray, is_snapshot: bool):
        """Return (columns, meta) of a BestChanges batch: the chosen path of each prefix now, and those as good."""
        if is_snapshot:
            rows = rows[self.decision.best[rows] != 0]
        n_paths, paths = self.decision.multipath(rows, n_external, n_internal, *self._chains())
        prefix_rows = self.routes.prefix[paths]
        is_best = self.decision.best[prefix_rows] == paths
        reasons = np.where(is_best, self.decision.reason[prefix_rows], 0).astype(np.uint8)
        return self._gathered(rows, n_paths, paths, reasons, MULTIPATH)

    def _gathered(self, rows, n_paths, paths, reasons, view: str) -> tuple[dict[str, np.ndarray], dict]:
        _, numbers, ids = self.routes.columns_of(paths)
        source, sources = self.sources.localize(numbers)
        if len(paths):
            local, set_offset, set_octets = self.attributes.extract(ids)
            sets = {"set_offset": set_offset, "set_octets": set_octets}
        else:
            local, sets = _NO_ROWS, no_sets()
        hi, lo, length = self.prefixes.columns_of(rows)
        columns = {
            "hi": hi,
            "lo": lo,
            "length": length,
            "n_paths": n_paths,
            "path_source": source,
            "path_set": local,
            "path_reason": reasons,
            **sets,
        }
        return columns, {"family": self.family.label, "sources": sources, "view": view}

    def explain(self, prefix_row: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return the candidates of a prefix (route rows), the step each lost in (0: chosen), the deciding step."""
        return self.decision.explain(prefix_row, *self._chains())

    def metric_of(self, row: int) -> int | None:
        """Return the metric to a candidate's next hop, None where there is no way."""
        metric = int(self.facts.metric[self.facts.ways_of(self.routes.attributes[row])])
        return None if metric == UNREACHABLE else metric

    # ---- inside -----------------------------------------------------------------------------------------------

    def _chains(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        routes = self.routes
        return routes.head, routes.next, routes.source, routes.attributes

    def _decide(self, prefix_rows: np.ndarray, changed_rows: np.ndarray) -> None:
        """Choose again for these prefixes, journal what changed, and free the tombstones that were seen."""
        if self.is_deferred:
            return
        changed, dead = self.decision.select(prefix_rows, changed_rows, *self._chains())
        head = self.journal.head
        self.journal.append(prefix_rows if self.has_all_readers else changed)
        if len(dead):
            self._bury(self.routes.unlink(dead), head)

    def _bury(self, emptied: np.ndarray, head: int) -> None:
        """Release prefixes without a route, at once or when the readers have passed an entry at `head` or after."""
        if not len(emptied):
            return
        last = self.journal.last[emptied]
        is_unknown = last == 0  # no reader waits for it: it was never chosen
        if is_unknown.any():
            self.prefixes.release(emptied[is_unknown])
        # Gone from the readers' view before its last candidate went (which was not usable): an entry to wait for.
        n_appended = np.uint32(self.journal.head - head)
        is_old = ~is_unknown & ((last - np.uint32(head & 0xFFFFFFFF)) >= n_appended)
        if is_old.any():
            self.journal.append(emptied[is_old])

    def _intern_sets(self, set_offset: np.ndarray, set_octets: np.ndarray, sets: np.ndarray) -> np.ndarray:
        """Return the id of each row's set, 0 for none, with its facts learned."""
        n_sets = len(set_offset) - 1
        ids = np.zeros(n_sets + 1, np.uint32)
        if n_sets:
            ids[:-1] = self.attributes.intern(set_offset, set_octets)
            new_ways = self.facts.learn(ids[:-1], set_offset, set_octets)
            if len(new_ways):
                self.next_hops.update(self.facts, new_ways, are_new=True)
        return ids.take(sets, mode="clip")  # NONE becomes the last index, where there is no id

    def _number(self, speaker: str, sources: list[dict]) -> tuple[np.ndarray, np.ndarray]:
        n_before = len(self.sources)
        numbers, renewed = self.sources.number(speaker, sources)
        if len(renewed):
            self.decision.set_sources(*self.sources.columns())
            renewed = renewed[renewed < n_before]
        return numbers, renewed

    def _make_room(self) -> None:
        """Give the columns by prefix row the room of the prefix table."""
        capacity = self.prefixes.capacity
        if capacity == self._room:
            return
        self._room = capacity
        self.decision.ensure_prefixes(capacity)
        self.routes.ensure_prefixes(capacity)
        self.journal.ensure_rows(capacity)


def _is_among(column: np.ndarray, numbers: np.ndarray, limit: int) -> np.ndarray:
    """Tell for each item of a column whether it is one of `numbers`, all below `limit`."""
    is_one = np.zeros(limit, bool)
    is_one[numbers] = True
    return is_one[column]
