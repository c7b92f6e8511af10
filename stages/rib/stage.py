"""The rib stage: follows what policy lets in, keeps the Loc-RIB of each family, serves what was chosen."""

from functools import partial
from typing import Any

import numpy as np

from common.arrays import distinct, populated
from common.bgp.constants import Family
from common.bus.batch import Batch
from common.bus.channels import NEXTHOPS, WANTED_NEXTHOPS, adj_rib_in, installed, loc_rib
from common.bus.journal import JournalSource, new_epoch
from common.bus.schema import BestChanges
from common.bus.server import Refused, Server, Source
from common.bus.wire import Request
from common.config.expected import expected_routes
from common.config.schema import Config
from common.config.sharing import decode_share, share_of, worker_of
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.shrinking import Shrinking
from common.runtime.stage import Context, Stage
from stages.rib.feed import Feed, Work
from stages.rib.loc_rib import ALL, BEST, INSTALLED, MULTIPATH, VIEWS, LocRib
from stages.rib.lookup import Lookup
from stages.rib.next_hops import NextHops
from stages.rib.speakers import Speaker
from stages.rib.wanted import WantedNextHops

# While nobody follows, removals are kept for a reader that may come back, but no more than about this many.
KEPT_REMOVALS = 65536
# A fib that is back within this time was only restarted: what it has to say of new next hops is waited for.
FIB_AWAY_S = 5.0


class Rib(Stage):
    """Chooses the best path of each prefix."""

    name = "rib"

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self.share = share_of(config.instances("rib"), instance)
        self.next_hops = NextHops(context.seed)
        self.loc_ribs = {family: self._loc_rib(family) for family in Family}
        self._channels = {family: loc_rib(family.label) for family in Family}
        self.epoch = new_epoch()
        self.is_open = False
        self._is_opening = False
        self._n_undecided = len(self.loc_ribs)
        self._fib_absence: Timer | None = None
        self._changed_ways: dict[LocRib, list[np.ndarray]] = {table: [] for table in self.loc_ribs.values()}
        self.work = Work()
        self.speakers: dict[str, Speaker] = {}
        self.server: Server | None = None
        self._sources: dict[tuple[str, str], JournalSource] = {}
        self._add_metrics()

    def start(self) -> None:
        """Serve loc-rib, follow policy for each speaker, and the next hops where there is a fib."""
        bus, loop = self.context.bus, self.context.loop
        self.server = bus.serve()
        self.server.add("loc-rib/*", self._open)
        facts = [table.facts for table in self.loc_ribs.values()]
        wanted = WantedNextHops(facts, f"{self.context.seed:x}", lambda: self.next_hops.n_updates)
        self.server.add(WANTED_NEXTHOPS, lambda request: wanted)
        for speaker in self.config.instances("speaker"):
            self._follow_speaker(speaker)
        if self.config.fib.enabled:
            self.next_hops.is_answered = True
            self._on_fib(False)
            bus.follow("fib", "0", NEXTHOPS, self._on_next_hops)
            bus.watch("fib", "0", self._on_fib)
        Shrinking(loop, self.context.log, self.loc_ribs.values)
        loop.call_later(self.config.graceful_restart.selection_deferral_s, self._on_fill_limit)

    def step(self) -> bool:
        """Do one slice of work on a whole table."""
        return self.work.step()

    def tidy(self) -> None:
        """Forget what all readers have passed."""
        for family, table in self.loc_ribs.items():
            table.collect(self._passed(family, table))

    def reload(self, config: Config) -> None:
        """Follow speakers that are new, give up the routes of those that are no more."""
        instances = config.instances("rib")
        if self.instance not in instances or share_of(instances, self.instance) != self.share:
            # What is held is of the old share; readers keep what they have until the new ones have told theirs.
            self.context.request_stop("the prefixes are shared out anew")
            return
        if config.fib.enabled != self.config.fib.enabled:
            raise ValueError("fib.enabled changes only at the start of the rib")
        wanted = config.instances("speaker")
        self.config = config
        for name in [name for name in self.speakers if name not in wanted]:
            self.speakers.pop(name).close()
        for name in wanted:
            if name in self.speakers:
                self._renew_speaker(self.speakers[name])
            else:
                self._follow_speaker(name)
        self._open_when_complete()

    # ---- serving ----------------------------------------------------------------------------------------------

    def _open(self, request: Request) -> Source:
        view = request.params.get("view", BEST)
        table = next(
            (table for family, table in self.loc_ribs.items() if request.channel == loc_rib(family.label)), None
        )
        if table is None or view not in VIEWS:
            raise Refused(
                f"no {request.channel:.60} with view {view!r:.20}: {', '.join(VIEWS)} of the families configured"
            )
        if not request.is_tap:
            self._check_share(request)
        limits = tuple(min(int(request.params.get(name, 1)), 255) for name in ("external", "internal"))
        key = f"{view}-{limits[0]}-{limits[1]}" if view == MULTIPATH else view
        source = self._sources.get((request.channel, key))
        if source is None:
            source = self._sources[request.channel, key] = self._source(table, view, key, limits)
        return source

    def _check_share(self, request: Request) -> None:
        """A reader that has not read the same configuration would take what is not here for gone."""
        try:
            asked = decode_share(request.params)
        except ValueError as error:
            raise Refused(str(error)) from error
        if asked != self.share:
            raise Refused(f"here are {self.share}, asked for {asked}: one of us has yet to take the new configuration")

    def _source(self, table: LocRib, view: str, key: str, limits: tuple[int, ...]) -> JournalSource:
        gathers = {BEST: table.gather_best, ALL: table.gather_all, INSTALLED: table.gather_installed}
        gather = gathers.get(view)
        if view in (ALL, MULTIPATH):
            table.has_all_readers = True
        if view == INSTALLED:
            self.context.bus.follow("fib", "0", installed(table.family.label), table.installed.handle)
        return JournalSource(
            table.journal,
            BestChanges,
            gather or partial(table.gather_multipath, *limits),
            lambda: table.prefixes.row_limit,
            # Positions of one view mean nothing in the other: `all` journals more from its first reader on.
            epoch=self.epoch if view == BEST else f"{self.epoch}-{key}",
            gate=lambda: table.decided_limit > 0 and (view != INSTALLED or table.installed.is_complete),
            ready_limit=lambda: table.decided_limit,
            sizes=table.sizes_of_best if view in (BEST, INSTALLED) else table.sizes_of_all,
        )

    def _passed(self, family: Family, table: LocRib) -> int:
        """Return the sequence below which removals can be forgotten."""
        lowest = self.server.min_position(self._channels[family]) if self.server else None
        if lowest is not None:
            return lowest
        return max(table.journal.head - KEPT_REMOVALS, 0)

    # ---- inputs -----------------------------------------------------------------------------------------------

    @property
    def feeds(self) -> list[Feed]:
        """What comes from all speakers, for all families."""
        return [feed for speaker in self.speakers.values() for feed in speaker.feeds]

    def _follow_speaker(self, name: str) -> None:
        context = self.context
        feeds = [Feed(name, table, self.work, self._open_when_complete) for table in self.loc_ribs.values()]
        for feed in feeds:
            channel, params = adj_rib_in(feed.loc_rib.family.label), {"speaker": name, **self.share.params}
            feed.follower = context.bus.follow("policy", self._policy_of(feed), channel, feed.handle, params=params)
        speaker = Speaker(name, feeds, context.loop, context.log, self.config.graceful_restart)
        speaker.end_watch = context.bus.watch("speaker", name, speaker.on_link)
        self.speakers[name] = speaker

    def _renew_speaker(self, speaker: Speaker) -> None:
        speaker.limits = self.config.graceful_restart
        for feed in speaker.feeds:
            self.context.bus.move(feed.follower, "policy", self._policy_of(feed))

    def _policy_of(self, feed: Feed) -> str:
        """Return the instance of policy that serves a stream."""
        speaker = self.config.instances("speaker").index(feed.speaker)
        return worker_of(self.config.instances("policy"), feed.loc_rib.family.index, speaker)

    def _open_when_complete(self) -> None:
        """Choose when all is known that the choice depends on: the routes, and what becomes of their next hops."""
        if self._is_opening or not all(feed.is_complete for feed in self.feeds):
            return
        if self.next_hops.n_waiting:
            for table in self.loc_ribs.values():
                table.update_metrics()  # those that no route has any more wait no longer
        if not self.next_hops.n_waiting:
            self._decide_all()

    def _on_fill_limit(self) -> None:
        """Serve what there is: the Selection_Deferral_Timer of RFC 4724 §4.1 has run out."""
        if not self._is_opening:
            missing = sorted({feed.speaker for feed in self.feeds if not feed.has_table})
            awaited = sorted({name for feed in self.feeds for name in feed.awaited})
            event(
                self.context.log,
                "filled-partly",
                "warning",
                missing_speakers=",".join(missing),
                awaited=",".join(awaited),
            )
            self._decide_all()

    def _decide_all(self) -> None:
        """Choose for all prefixes, once each and not for each of their candidates; readers follow row by row."""
        self._is_opening = True
        for table in self.loc_ribs.values():
            self.work.add((table, "first"), table.decide_all, self._on_decided)

    def _on_decided(self) -> None:
        self._n_undecided -= 1
        if self._n_undecided:
            return
        self.is_open = True
        event(
            self.context.log,
            "filled",
            **{family.label.replace("-", "_"): table.decision.n_chosen for family, table in self.loc_ribs.items()},
        )

    def _on_fib(self, is_there: bool) -> None:
        """New next hops wait for what the fib says of them, as long as it is there or only restarted."""
        if self._fib_absence is not None:
            self._fib_absence.cancel()
        if is_there:
            self.next_hops.is_answered = True
        else:
            self._fib_absence = self.context.loop.call_later(FIB_AWAY_S, self._on_no_fib)

    def _on_no_fib(self) -> None:
        self.next_hops.is_answered = False
        event(self.context.log, "fib-lost", "warning", meaning="new next hops count as reachable")
        self._update_ways()

    def _on_next_hops(self, batch: Batch) -> None:
        self.next_hops.handle(batch)
        if self.next_hops.is_settled:
            self._update_ways()

    def _update_ways(self) -> None:
        """Have the choices follow what is known of the next hops."""
        for table in self.loc_ribs.values():
            ways = table.update_metrics()
            if len(ways) and self._is_opening:
                self._changed_ways[table].append(ways)
                self._select_ways(table)
        self._open_when_complete()

    def _select_ways(self, table: LocRib) -> None:
        """Choose again where the way to a next hop is another; what changes meanwhile is looked at after that."""
        key = (table, "ways")
        if key not in self.work and self._changed_ways[table]:
            ways = distinct(np.concatenate(self._changed_ways[table]))
            self._changed_ways[table].clear()
            no_sources = np.empty(0, np.uint32)
            select = partial(table.select_again, no_sources, ways)
            self.work.add(key, select, lambda: self._select_ways(table))

    # ---- what it says of itself -------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "is_open": self.is_open,
            "work": len(self.work),
            "next_hops": len(self.next_hops),
            "speakers": [
                {
                    "speaker": feed.speaker,
                    "family": feed.loc_rib.family.label,
                    "is_complete": feed.is_complete,
                    "is_stale": feed.is_stale,
                    "n_rows": feed.n_rows,
                    "sessions": dict(feed.sessions),
                    "awaited": sorted(feed.awaited),
                }
                for feed in self.feeds
            ],
            "tables": {family.label: _sizes(table) for family, table in self.loc_ribs.items()},
        }

    def owns(self) -> list[str]:
        return [str(self.share)]

    def is_in_step(self) -> bool:
        return self.is_open and not len(self.work)

    def missing(self) -> list[str]:
        stale = [feed for feed in self.feeds if feed.is_stale]
        awaited = [f"speaker.{feed.speaker}:{adj_rib_in(feed.loc_rib.family.label)}" for feed in stale]
        if not self._is_opening and self.next_hops.n_waiting:
            awaited.append(f"fib.0:{NEXTHOPS}")
        return awaited

    def controls(self) -> dict:
        lookup = Lookup(self.loc_ribs)
        return {
            "route": lookup.route,
            "routes": lookup.routes,
            "prefixes": lookup.prefixes,
            "routes-of": lookup.of_prefixes,
            "accepted": lambda question: lookup.accepted(question) | {"is_current": self._is_current()},
            "summary": lambda question: self.status(),
        }

    def _is_current(self) -> bool:
        """Tell whether, as far as is known here, all that policy let in has been taken in."""
        return self.is_in_step() and all(feed.follower.lag == 0 for feed in self.feeds) and not self.missing()

    def _add_metrics(self) -> None:
        metrics = self.context.metrics
        gauges = {
            "n_chosen": metrics.gauge("prefixes_chosen", "Prefixes that have a best path.", ["family"]),
            "n_routes": metrics.gauge("candidates_held", "Candidate routes.", ["family"]),
            "n_sets": metrics.gauge("attribute_sets_held", "Distinct attribute sets.", ["family"]),
            "head": metrics.gauge("journal_changes", "Changes journaled since the start.", ["family"]),
        }

        def refresh() -> None:
            for family, table in self.loc_ribs.items():
                for name, value in _sizes(table).items():
                    if name in gauges:
                        gauges[name].labels(family.label).set(value)

        metrics.before_scrape(refresh)

    def _loc_rib(self, family: Family) -> LocRib:
        neighbors = self.config.neighbors.values()
        expected = [expected_routes(neighbor, family.label) // self.share.count for neighbor in neighbors]
        with populated():
            sizes = max(expected, default=0), sum(expected)
            table = LocRib(family, self.context.seed, self.next_hops, *sizes, share=self.share)
        table.defer()
        return table


def _sizes(table: LocRib) -> dict[str, int]:
    return {
        "n_chosen": table.decision.n_chosen,
        "n_prefixes": table.prefixes.n_prefixes,
        "n_routes": table.routes.n_live,
        "n_tombstones": table.routes.n_tombstones,
        "n_sets": table.attributes.n_sets,
        "n_set_octets": table.attributes.n_octets,
        "n_ways": table.facts.n_ways_known,
        "head": table.journal.head,
    }


STAGE = Rib
