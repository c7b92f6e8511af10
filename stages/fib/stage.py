"""The fib stage on the bus: follows the rib, feeds the kernel, serves next hops.

Owns when things happen: reading before changing, batches by turns of the families, credit, retries.
"""

import errno
import os
from socket import AF_INET, AF_INET6
from typing import Any, ClassVar

import numpy as np

from common.bgp.constants import Family
from common.bus.batch import Batch
from common.bus.channels import NEXTHOPS, loc_rib
from common.bus.control import ControlError
from common.bus.follower import Follower
from common.config.schema import Config
from common.kernels import plan as steps
from common.kernels.netlink import RouteScan
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.stage import Context, Stage
from stages.fib import messages, report
from stages.fib.kernel import BATCH_ROUTES, Kernel
from stages.fib.messages import PROTOCOL_BGP, TABLE_LOCAL, TABLE_MAIN, Kind
from stages.fib.netlink_socket import Overrun
from stages.fib.nexthop_source import NextHopSource, NextHopTable
from stages.fib.plan import Plan, Work
from stages.fib.resolver import Resolver
from stages.fib.ways import FIRST_OBJECT, LAST_OBJECT, Consequence, Ways

ADDRESS_FAMILIES = {Family.IPV4_UNICAST: AF_INET, Family.IPV6_UNICAST: AF_INET6}
QUEUE_LIMIT = 65536  # rows; while more wait for the kernel, the rib gets no credit back
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
SWEEP_S = 10.0
IPV6_SHARE = 0.25  # of the routes a neighbor is expected to have, how many are IPv6


class FibStage(Stage):
    """The kernel's table."""

    name = "fib"
    KERNEL: ClassVar[Any] = Kernel  # tests put another one here

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self.kernel: Kernel | None = None
        self.plans: dict[Family, Plan] = {}
        self.followers: dict[Family, Follower] = {}
        self._owed = dict.fromkeys(Family, 0)
        self._turn = 0
        self._is_stale = False  # something about links or routes of others has changed
        self._refresh_from = float("-inf")
        self._refresh_timer: Timer | None = None
        self._retry_s = FIRST_RETRY_S
        self._known_troubles: set[tuple[Family, int]] = set()
        self._was_busy = False
        self._is_settled = False  # the kernel has had all of the last snapshot
        self._scan = RouteScan()

    # ---- start and stop -----------------------------------------------------------------------------------------

    def start(self) -> None:
        fib = self.config.fib
        if not fib.enabled:
            event(self.context.log, "fib-disabled")
            return
        self.kernel = self.KERNEL(fib.table, fib.metric)
        self.resolver = Resolver()
        nexthops = self.kernel.nexthops() if fib.nexthop_objects else None
        self.ways = Ways(self.resolver, self.kernel.request, nexthops is not None, self.context.seed)
        self.plans = {family: Plan(number, self.ways, self.context.seed) for family, number in ADDRESS_FAMILIES.items()}
        self.next_hops = NextHopTable(self.ways, f"{self.context.seed:x}")
        adopted = self._adopt_objects(nexthops or [])
        self._read_links()
        self._read_routes(adopted)
        self._refresh_ways()
        loop = self.context.loop
        loop.add_reader(self.kernel.notifications.fileno(), self._on_notification)
        loop.call_later(FIRST_RETRY_S, self._on_retry)
        loop.call_later(SWEEP_S, self._on_sweep)
        for family in Family:
            self._follow(family)
        self.context.bus.serve().add(NEXTHOPS, lambda request: NextHopSource(self.next_hops, lambda: True))
        report.add_metrics(self, self.context.metrics)
        event(
            self.context.log,
            "fib-ready",
            table=fib.table,
            metric=fib.metric,
            nexthop_objects=self.ways.has_objects,
            adopted=sum(plan.n_installed for plan in self.plans.values()),
        )

    def _make_plan(self, family: Family) -> Plan:
        neighbors = [each for each in self.config.neighbors.values() if family.label in each.families]
        expected = max((each.expected_routes for each in neighbors), default=0)
        share = IPV6_SHARE if family.is_wide else 1
        return Plan(ADDRESS_FAMILIES[family], self.ways, self.context.seed, int(expected * share))

    def _follow(self, family: Family) -> None:
        self.followers[family] = self.context.bus.follow(
            "rib",
            "0",
            loc_rib(family.label),
            lambda batch: self._handle(family, batch),
            params={"view": "best"},
            is_credit_manual=True,
        )

    def reload(self, config: Config) -> None:
        if config.fib != self.config.fib:
            raise ValueError("a change of [fib] takes a restart of the fib")
        self.config = config

    def drain(self) -> None:
        if self.kernel is None:
            return
        self.context.loop.remove(self.kernel.notifications.fileno())
        if self.config.fib.on_exit == "remove":
            self._remove_all()
        self.kernel.close()

    def _remove_all(self) -> None:
        for plan in self.plans.values():
            plan.mark_unconfirmed()
            plan.remove_unconfirmed()
            while plan.n_queued:
                self._change(plan, Family.IPV4_UNICAST if plan.family == AF_INET else Family.IPV6_UNICAST)
        self.ways.remove_unused()

    # ---- the kernel as it is found ------------------------------------------------------------------------------

    def _adopt_objects(self, states: list[messages.NextHopState]) -> dict[int, int]:
        """Take over our nexthop objects; return way by identifier."""
        adopted = {}
        for state in states:
            if state.protocol == PROTOCOL_BGP and FIRST_OBJECT <= state.identifier <= LAST_OBJECT:
                adopted[state.identifier] = self.ways.adopt(state)
            else:
                self.resolver.learn_object(Kind.NEW_NEXTHOP, state)
        return adopted

    def _read_links(self) -> None:
        for link in self.kernel.links():
            self.resolver.learn_link(link)

    def _read_routes(self, adopted: dict[int, int]) -> None:
        """Dump once: the routes of others for resolution, our own to take over."""
        table = self.config.fib.table
        for family, number in ADDRESS_FAMILIES.items():
            self.resolver.learn_routes(self.kernel.routes(number, TABLE_LOCAL))
            scan = self.kernel.routes(number, TABLE_MAIN)
            self.resolver.learn_routes(scan)
            if table != TABLE_MAIN:
                scan = self.kernel.routes(number, table, PROTOCOL_BGP)
            self._adopt_routes(self.plans[family], scan, adopted)

    def _adopt_routes(self, plan: Plan, scan: RouteScan, adopted: dict[int, int]) -> None:
        ours = self._ours(scan) & (scan.table == self.config.fib.table)
        way_of_object = np.full(LAST_OBJECT - FIRST_OBJECT + 2, steps.ELSEWHERE, np.uint32)
        for identifier, way in adopted.items():
            if way:
                way_of_object[identifier - FIRST_OBJECT] = way
        identifier = scan.nexthop_id[ours].astype(np.int64) - FIRST_OBJECT
        is_in_range = (identifier >= 0) & (identifier <= LAST_OBJECT - FIRST_OBJECT)
        ways = way_of_object[np.where(is_in_range, identifier, -1)]
        lo = scan.lo[ours] if plan.family == AF_INET6 else np.empty(0, np.uint64)
        plan.adopt(scan.hi[ours], lo, scan.length[ours], ways)

    def _ours(self, scan: RouteScan) -> np.ndarray:
        return (scan.protocol == PROTOCOL_BGP) & (scan.metric == self.config.fib.metric)

    # ---- what others do in the kernel ---------------------------------------------------------------------------

    def _on_notification(self) -> None:
        kernel = self.kernel
        try:
            lengths = kernel.notifications.receive()
        except Overrun:
            event(self.context.log, "notifications-lost", "warning")
            self._read_links()
            for number in ADDRESS_FAMILIES.values():
                for table in self.resolver.TABLES:
                    self.resolver.learn_routes(kernel.routes(number, table))
            self._is_stale = True
            return
        scan = self._scan
        scan.clear()
        if scan.scan(kernel.notifications.octets, kernel.notifications.slot_octets, lengths):
            self._is_stale |= self.resolver.learn_routes(scan) > 0
            self._note_deletions(scan)
        if scan.n_others:
            for slot in range(len(lengths)):
                for kind, _, _, body in messages.messages_of(kernel.notifications.datagram(slot)):
                    self._on_message(kind, body)

    def _on_message(self, kind: int, body: bytes) -> None:
        if kind in (Kind.NEW_LINK, Kind.DEL_LINK):
            link = messages.decode_link(kind, body)
            before = self.resolver.links.get(link.index)
            is_lost = self.resolver.learn_link(link)
            self._is_stale |= before is None or before.is_usable != link.is_usable
            if is_lost:
                event(self.context.log, "interface-down", "warning", interface=link.name, carrier_only=link.is_up)
                self._apply(self.ways.lose_interface(link))
        elif kind in (Kind.NEW_NEXTHOP, Kind.DEL_NEXTHOP):
            state = messages.decode_nexthop(body)
            self.resolver.learn_object(kind, state)
            self._is_stale = True
            if kind == Kind.DEL_NEXTHOP:
                self._apply(
                    [
                        self.ways.lose(way.number)
                        for way in list(self.ways.by_number.values())
                        if way.identifier == state.identifier
                    ]
                )

    def _note_deletions(self, scan: RouteScan) -> None:
        """Install again what others have deleted of ours; try again where a route of theirs has gone."""
        deleted = (scan.message == Kind.DEL_ROUTE) & (scan.table == self.config.fib.table)
        deleted &= scan.metric == self.config.fib.metric
        if not deleted.any():
            return
        ours = self._ours(scan)
        for family, plan in self.plans.items():
            of_family = deleted & (scan.family == plan.family)
            n = plan.note_deleted(*_prefixes(plan, scan, of_family & ours))
            plan.note_room(*_prefixes(plan, scan, of_family & ~ours))
            if n:
                event(self.context.log, "routes-deleted-by-others", "warning", family=family.label, routes=n)

    # ---- ways ---------------------------------------------------------------------------------------------------

    def _refresh_ways(self) -> None:
        """Resolve all next hops again; if others change routes all the time, in a tenth of the time at most."""
        monotonic = self.context.clock.monotonic
        start = monotonic()
        if start < self._refresh_from:
            if self._refresh_timer is None or not self._refresh_timer.is_pending:
                self._refresh_timer = self.context.loop.call_at(self._refresh_from, lambda: None)
            return
        self._is_stale = False
        self.ways.take_new()
        self._resolve(list(self.ways.by_number))
        self._refresh_from = monotonic() + 10 * (monotonic() - start)

    def _resolve(self, numbers: list[int]) -> None:
        self._apply(self.ways.refresh(numbers))
        for number in numbers:
            way = self.ways.by_number[number]
            if way.reason and way.reason != way.told:
                event(self.context.log, "next-hop-unusable", "warning", next_hop=way.text, reason=way.reason)
            elif way.told and not way.reason:
                event(self.context.log, "next-hop-usable", next_hop=way.text)
            way.told = way.reason
        self.next_hops.refresh()

    def _apply(self, consequences: list[Consequence]) -> None:
        for consequence in consequences:
            for plan in self.plans.values():
                plan.apply(consequence)

    # ---- work ---------------------------------------------------------------------------------------------------

    def _handle(self, family: Family, batch: Batch) -> None:
        """Take a batch of the rib into the plan."""
        self._is_settled &= not (batch.begins_snapshot or batch.ends_snapshot)
        self.plans[family].handle(batch)
        new = self.ways.take_new()
        if new:
            self._resolve(new)
        self._owed[family] += batch.n_octets
        self._was_busy = True

    def step(self) -> bool:
        if self.kernel is None:
            return False
        if self._is_stale:
            self._refresh_ways()
        families = list(self.plans)
        # The families take turns, so a full table of one does not hold up the other.
        for i in range(len(families)):
            family = families[(self._turn + i) % len(families)]
            if self.plans[family].n_queued:
                self._turn = families.index(family) + 1
                self._change(self.plans[family], family)
                break
        n_queued = sum(plan.n_queued for plan in self.plans.values())
        if n_queued < QUEUE_LIMIT:
            self._grant()
        if not n_queued and not self._is_settled:
            self._is_settled = all(plan.is_confirmed for plan in self.plans.values())
        if self._was_busy and not n_queued:
            self._was_busy = False
            event(self.context.log, "kernel-in-step", "debug", routes=sum(p.n_installed for p in self.plans.values()))
        return n_queued > 0

    def _grant(self) -> None:
        for family, owed in self._owed.items():
            if owed:
                self.followers[family].grant(owed)
                self._owed[family] = 0

    def _change(self, plan: Plan, family: Family) -> None:
        """Make one batch of changes in the kernel."""
        work = plan.take(BATCH_ROUTES)
        if work is None:
            return
        prefixes = plan.prefixes
        errors = self.kernel.change(
            plan.family,
            work.actions,
            prefixes.hi(work.rows),
            prefixes.lo(work.rows),
            prefixes.length(work.rows),
            work.targets,
            self.ways,
        )
        refused = plan.settle(work, errors)
        if len(refused):
            self._log_refused(family, plan, work, refused)

    def _log_refused(self, family: Family, plan: Plan, work: Work, refused: np.ndarray) -> None:
        """Log each kind of refusal once, with the first prefix it met."""
        codes = plan.trouble[work.rows[refused]]
        kinds, first = np.unique(codes, return_index=True)
        for code, i in zip(kinds.tolist(), first.tolist(), strict=True):
            if (family, code) not in self._known_troubles:
                self._known_troubles.add((family, code))
                event(
                    self.context.log,
                    "route-refused",
                    "warning",
                    prefix=report.prefix_text(plan, int(work.rows[refused[i]])),
                    error=errno.errorcode.get(code, str(code)),
                    meaning=os.strerror(code),
                )

    def _on_retry(self) -> None:
        """Try again what was refused, ever more seldom while nothing gets better."""
        n_refused = sum(plan.counts.refused for plan in self.plans.values())
        n_rows = sum(plan.retry() for plan in self.plans.values())
        if n_rows:
            event(self.context.log, "refused-routes-retried", "debug", routes=n_rows, refusals=n_refused)
        else:
            self._known_troubles.clear()
        self._retry_s = min(self._retry_s * 2, LAST_RETRY_S) if n_rows else FIRST_RETRY_S
        self._is_stale |= any(way.trouble for way in self.ways.by_number.values())
        self.context.loop.call_later(self._retry_s, self._on_retry)

    def _on_sweep(self) -> None:
        """Remove nexthop objects nobody uses, once all is known that is used."""
        if all(plan.is_confirmed and not plan.n_queued for plan in self.plans.values()) and self.ways.remove_unused():
            self.next_hops.refresh()
        self.context.loop.call_later(SWEEP_S, self._on_sweep)

    # ---- what is told -------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return report.status(self)

    def is_in_step(self) -> bool:
        return self.kernel is None or self._is_settled

    def controls(self) -> dict:
        return {
            "nexthops": lambda question: {"nexthops": report.next_hops(self)},
            "route": self._on_route,
        }

    def _on_route(self, question: dict) -> dict:
        """{prefix} -> what is wanted and installed for it."""
        if self.kernel is None:
            raise ControlError("no kernel: [fib] enabled = false")
        return {"route": report.route(self, question["prefix"])}


def _prefixes(plan: Plan, scan: RouteScan, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the prefixes of the chosen routes as columns of the plan's family."""
    lo = scan.lo[chosen] if plan.family == AF_INET6 else np.empty(0, np.uint64)
    return scan.hi[chosen], lo, scan.length[chosen]


STAGE = FibStage
