"""The fib stage on the bus: follows the rib, feeds the kernel, serves next hops.

Owns when things happen: reading before changing, batches by turns of the families, credit, retries.
"""

import errno
import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from socket import AF_INET, AF_INET6, AF_NETLINK, AF_UNIX
from typing import Any, ClassVar

import numpy as np

from common.arrays import distinct
from common.bgp.constants import Family
from common.bgp.prefixes import prefix_text, text_at
from common.bus.batch import Batch
from common.bus.channels import NEXTHOPS, WANTED_NEXTHOPS, installed, loc_rib
from common.bus.control import ControlError
from common.bus.follower import Follower
from common.bus.server import Refused, Source
from common.bus.wire import Request
from common.config.expected import expected_routes
from common.config.schema import Config
from common.config.sharing import Share
from common.kernels import netlink
from common.kernels import plan as steps
from common.kernels.netlink import RouteScan
from common.runtime.forwarding import Forwarding
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.rights import CAP_NET_ADMIN, CAP_SYS_ADMIN
from common.runtime.shrinking import Shrinking
from common.runtime.stage import Context, Stage
from stages.fib import messages, report
from stages.fib.installed import InstalledSource
from stages.fib.kernel import BATCH_ROUTES, Kernel
from stages.fib.memory import Memory
from stages.fib.messages import NLM_F_REPLACE, TABLE_MAIN, Kind
from stages.fib.netlink_socket import Overrun
from stages.fib.nexthop_source import NextHopSource, NextHopTable
from stages.fib.plan import Filter, Plan
from stages.fib.resolver import Resolver
from stages.fib.ways import FIRST_OBJECT, OBJECTS_PER_INSTANCE, Consequence, Ways

ADDRESS_FAMILIES = {Family.IPV4_UNICAST: AF_INET, Family.IPV6_UNICAST: AF_INET6}
EVERY_OBJECT = 0x48000000, 0x48FFFFFF  # identifiers that some instance of Headrace has
QUEUE_LIMIT = 65536  # rows; while more wait for the kernel, the rib gets no credit back
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0
SWEEP_S = 10.0
REPAIR_S = 1.0  # what others spoil is repaired at once, and after that no more often than this
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 5.0  # while the kernel has no memory
NO_MEMORY = (errno.ENOMEM, errno.ENOBUFS)
NO_WAY = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENODEV)
NO_OBJECT = (errno.EINVAL, errno.ENOENT)
NOTIFICATION_ROUNDS = 64
TURNS = 4  # batches begun in one step
# After lost notifications the table is read when nobody has changed a route for a while, or at the latest:
QUIET_S, QUIET_LIMIT_S = 0.5, 30.0


@dataclass(slots=True)
class Refusal:
    """What the kernel refused of one batch, each with its errno."""

    family: Family
    rows: np.ndarray
    actions: np.ndarray
    targets: np.ndarray
    codes: np.ndarray


class FibStage(Stage):
    """The kernel's table."""

    name = "fib"
    KERNEL: ClassVar[Any] = Kernel  # tests put another one here
    MEMORY: ClassVar[Any] = Memory
    GATHER_S: ClassVar[float] = 0.005  # notifications about routes are taken in no more often than this
    RIGHTS = (CAP_NET_ADMIN,)
    SOCKETS = (AF_UNIX, AF_NETLINK)
    NICE = -10  # a table takes it longest of all stages, and only what is in the kernel carries traffic

    @classmethod
    def rights_to_start(cls, config: Config) -> tuple[int, ...]:
        """Return also what entering another network namespace takes."""
        return (*cls.RIGHTS, CAP_SYS_ADMIN) if any(fib.namespace for fib in config.fibs.values()) else cls.RIGHTS

    @classmethod
    def places_to_write(cls, config: Config) -> list[Path]:
        """Return also where nexthop_compat_mode is set."""
        return [*super().places_to_write(config), Path("/proc/sys/net")]

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self.settings = config.fib_of(instance)
        self.kernel: Kernel | None = None
        self.compat_mode = -1
        self._is_permitted = True
        self._installed: dict[Family, InstalledSource] = {}
        self.n_repaired = 0
        self._repair_timer: Timer | None = None
        self._wake_timer: Timer | None = None
        self.plans: dict[Family, Plan] = {}
        # What comes from each rib, by family and rib; and the octets of it that are not given back yet.
        self.followers: dict[tuple[Family, str], Follower] = {}
        self._owed: dict[tuple[Family, str], int] = {}
        self._wanted: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._wanted_followers: list[Follower] = []
        self._turn = 0
        self._is_stale = False  # something about links or routes of others has changed
        self._refresh_from = float("-inf")
        self._refresh_timer: Timer | None = None
        self._retry_s = FIRST_RETRY_S
        self._known_troubles: set[tuple[Family, int]] = set()
        self._refusals: list[Refusal] = []
        self._was_busy = False
        self._is_settled = False  # the kernel has had all of the last snapshot
        self.forwarding = Forwarding(config)
        self._scan = RouteScan()
        self._repair_from = float("-inf")
        self._reread_from = float("-inf")
        self._is_reread_due = False
        self._overrun_at = self._heard_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._paused_until = float("-inf")

    # ---- start and stop -----------------------------------------------------------------------------------------

    def start(self) -> None:
        fib = self.settings
        if not fib.enabled:
            event(self.context.log, "fib-disabled")
            return
        self._open_kernel()
        nexthops = self.kernel.nexthops() if fib.nexthop_objects else None
        self._make_ways(nexthops is not None)
        self.plans = {family: self._make_plan(family) for family in self._families()}
        Shrinking(self.context.loop, self.context.log, self.plans.values)
        self.next_hops = NextHopTable(self.ways, f"{self.context.seed:x}")
        adopted = self._adopt_objects(nexthops or [])
        self._read_links()
        self._read_routes(lambda plan, scan: self._adopt_routes(plan, scan, adopted))
        self._refresh_ways()
        loop = self.context.loop
        for socket in self.kernel.listening:
            loop.add_reader(socket.fileno(), partial(self._on_readable, socket))
        for bell in self.kernel.bells:
            loop.add_reader(bell, lambda: None)  # `step` looks
        loop.call_later(FIRST_RETRY_S, self._on_retry)
        loop.call_later(SWEEP_S, self._on_sweep)
        self._follow_ribs()
        self.context.bus.serve().add(NEXTHOPS, lambda request: NextHopSource(self.next_hops, lambda: True))
        self.context.bus.serve().add("installed/*", self._open_installed)
        report.add_metrics(self, self.context.metrics)
        event(
            self.context.log,
            "fib-ready",
            table=fib.table,
            metric=fib.metric,
            namespace=fib.namespace,
            nexthop_objects=self.ways.has_objects,
            adopted=sum(plan.n_installed for plan in self.plans.values()),
        )

    def _open_installed(self, request: Request) -> Source:
        for family, plan in self.plans.items():
            if request.channel == installed(family.label):
                if family not in self._installed:
                    self._installed[family] = InstalledSource(plan, family.label, f"{self.context.seed:x}")
                return self._installed[family]
        raise Refused(f"no {request.channel:.60} here")

    def _families(self) -> list[Family]:
        return [family for family in Family if family.label in self.settings.families]

    def _open_kernel(self) -> None:
        fib = self.settings
        self.kernel = self.KERNEL(fib.table, fib.metric, protocol=fib.protocol, namespace=fib.namespace)
        self._is_permitted = self.kernel.may_change()
        if not self._is_permitted:
            event(
                self.context.log,
                "kernel-not-permitted",
                "error",
                meaning="no route can be changed",
                remedy="run the fib as root or with CAP_NET_ADMIN, or fib.enabled = false",
            )
        mode = self.kernel.compat_mode()
        if mode == 1 and fib.nexthop_compat == "off":
            mode = self.kernel.compat_mode(0)
        if mode == 1 and fib.nexthop_objects:
            event(
                self.context.log,
                "nexthop-compat-mode",
                "warning",
                meaning="a change of a next hop takes the kernel 1 ms a thousand IPv4 routes",
                remedy='sysctl net.ipv4.nexthop_compat_mode=0, or nexthop_compat = "off" in [fib]',
            )
        self.compat_mode = mode

    def _make_ways(self, has_objects: bool) -> None:
        fib = self.settings
        self.resolver = Resolver(fib.protocol, self.context.seed, self.kernel.route_type)
        if fib.resolve_over_bgp:
            self.resolver.own = self._own_route
        sources = {AF_INET: fib.preferred_source_ipv4, AF_INET6: fib.preferred_source_ipv6}
        self.ways = Ways(
            self.resolver,
            self.kernel.request,
            has_objects,
            self.context.seed,
            fib.protocol,
            self.MEMORY(self._memory_path(), f"{self.kernel.world} {sources}"),
            {family: ipaddress.ip_address(text).packed for family, text in sources.items() if text},
            FIRST_OBJECT + OBJECTS_PER_INSTANCE * list(self.config.fibs).index(self.instance),
        )

    def _memory_path(self) -> Path:
        return Path(self.context.bus.run_dir) / f"{self.name}.{self.instance}.nexthops"

    def _make_plan(self, family: Family) -> Plan:
        neighbors = self.config.neighbors.values()
        expected = max((expected_routes(each, family.label) for each in neighbors), default=0)
        plan = Plan(ADDRESS_FAMILIES[family], self.ways, self.context.seed, expected)
        if self.settings.prefixes:
            plan.is_chosen = Filter(self.settings.prefixes, family.is_wide)
        return plan

    def _follow_ribs(self) -> None:
        """Follow each rib for its share of the prefixes, in the place of any followed so far."""
        for follower in (*self.followers.values(), *self._wanted_followers):
            follower.close()
        bus, ribs = self.context.bus, self.config.instances("rib")
        self.followers, self._owed = {}, dict.fromkeys(product(self.plans, ribs), 0)
        for index, rib in enumerate(ribs):
            for family in self.plans:
                self._follow(family, rib, Share(index, len(ribs)))
        for plan in self.plans.values():
            plan.expect(len(ribs))
        self._wanted_followers = [
            bus.follow("rib", rib, WANTED_NEXTHOPS, partial(self._on_wanted_next_hops, rib)) for rib in ribs
        ]

    def _follow(self, family: Family, rib: str, share: Share) -> None:
        self.followers[family, rib] = self.context.bus.follow(
            "rib",
            rib,
            loc_rib(family.label),
            lambda batch: self._handle(family, batch, rib, share),
            params=self._view() | share.params,
            is_credit_manual=True,
        )

    def _view(self) -> dict[str, Any]:
        external, internal = self.settings.maximum_paths, self.settings.maximum_paths_internal
        if external == internal == 1:
            return {"view": "best"}
        return {"view": "multipath", "external": external, "internal": internal}

    def reload(self, config: Config) -> None:
        if config.fibs.get(self.instance) != self.settings:
            raise ValueError("a change of [fib] takes a restart of the fib")
        has_other_ribs = config.instances("rib") != self.config.instances("rib")
        self.config = config
        if has_other_ribs and self.kernel is not None:
            self._follow_ribs()

    def drain(self) -> None:
        if self.kernel is None:
            return
        for descriptor in (*(socket.fileno() for socket in self.kernel.listening), *self.kernel.bells):
            self.context.loop.remove(descriptor)
        self._come_to_rest()
        if self.settings.on_exit == "remove":
            self._remove_all()
        self.kernel.close()

    def _remove_all(self) -> None:
        self.forwarding.forget()
        for family, plan in self.plans.items():
            plan.mark_unconfirmed()
            plan.remove_unconfirmed()
            while plan.n_queued:
                self._change(plan, family)
                self._come_to_rest()
        self.ways.need(*(np.empty(0, dtype) for dtype in (np.uint64, np.uint64, np.uint8)))
        self.ways.remove_unused()  # groups
        self.ways.remove_unused()  # their members

    # ---- the kernel as it is found ------------------------------------------------------------------------------

    def _adopt_objects(self, states: list[messages.NextHopState]) -> dict[int, int]:
        """Take over our nexthop objects, groups after their members; return way by identifier."""
        adopted = {}
        for state in sorted(states, key=lambda state: len(state.members)):
            if self._is_own_object(state):
                adopted[state.identifier] = self.ways.adopt(state)
            elif not self._is_any_own_object(state):
                self.resolver.learn_object(Kind.NEW_NEXTHOP, state)
        return adopted

    def _is_own_object(self, state: messages.NextHopState) -> bool:
        return state.protocol == self.settings.protocol and state.identifier in self.ways.object_range

    def _is_any_own_object(self, state: messages.NextHopState) -> bool:
        return state.protocol == self.settings.protocol and EVERY_OBJECT[0] <= state.identifier <= EVERY_OBJECT[1]

    def _read_links(self) -> None:
        for link in self.kernel.links():
            self.resolver.learn_link(link)

    def _read_routes(self, take: Callable[[Plan, RouteScan], None]) -> None:
        """Dump once: others' routes for resolution, our own for `take`, part by part; then note what is beside ours."""
        table = self.settings.table
        beside: list[tuple[Plan, tuple[np.ndarray, ...]]] = []
        for family, number in ADDRESS_FAMILIES.items():
            plan = self.plans.get(family)
            for scan in self.kernel.routes(number, TABLE_MAIN):
                self.resolver.learn_routes(scan)
                if table == TABLE_MAIN and plan is not None:
                    take(plan, scan)
                    beside.append((plan, _prefixes(plan, scan, self._theirs(scan))))
            if table != TABLE_MAIN and plan is not None:
                for scan in self.kernel.routes(number, table):
                    take(plan, scan)
                    beside.append((plan, _prefixes(plan, scan, self._theirs(scan))))
        for plan, prefixes in beside:
            plan.note_beside(*prefixes)

    def _adopt_routes(self, plan: Plan, scan: RouteScan, adopted: dict[int, int]) -> None:
        chosen = np.flatnonzero(self._ours(scan))
        ways = self._ways_of(scan, chosen, adopted)
        plan.adopt(*_prefixes(plan, scan, chosen), ways)

    def _ways_of(self, scan: RouteScan, chosen: np.ndarray, way_of_object: dict[int, int]) -> np.ndarray:
        """Return the way each of our routes goes, ELSEWHERE where it is none we know."""
        ways = np.full(len(chosen), steps.ELSEWHERE, np.uint32)
        objects = self.ways.object_range
        table = np.full(len(objects) + 1, steps.ELSEWHERE, np.uint32)
        for identifier, way in way_of_object.items():
            if way:
                table[identifier - objects.start] = way
        if self.ways.has_objects:
            at = scan.nexthop_id[chosen].astype(np.int64) - objects.start
            return table[np.where((at >= 0) & (at < len(objects)), at, -1)]
        # Plain routes: that of a next hop which is its own gateway is known by it.
        is_plain = (scan.gateway_family[chosen] != 0) & (scan.nexthop_id[chosen] == 0) & (scan.n_hops[chosen] == 0)
        plain = chosen[is_plain]
        if len(plain):
            hi, lo = scan.gateway_hi[plain], scan.gateway_lo[plain]
            is_wide = scan.gateway_family[plain] == AF_INET6
            is_local = is_wide & (hi >> np.uint64(54) == np.uint64(0x3FA))
            hi = hi | np.where(is_local, scan.oif[plain].astype(np.uint64), np.uint64(0))
            numbers = self.ways.intern(hi, lo, np.where(is_wide, 128, 32).astype(np.uint8))
            for number, oif in set(zip(numbers.tolist(), scan.oif[plain].tolist(), strict=True)):
                self.ways.adopt_plain(number, oif)
            ways[is_plain] = np.where(self.ways.oif[numbers] == scan.oif[plain], numbers, np.uint32(steps.ELSEWHERE))
        return ways

    def _ours(self, scan: RouteScan) -> np.ndarray:
        fib = self.settings
        return (scan.protocol == fib.protocol) & (scan.metric == fib.metric) & (scan.table == fib.table)

    def _theirs(self, scan: RouteScan) -> np.ndarray:
        """Return where the routes of others are that could stand in the place of ours."""
        fib = self.settings
        is_theirs = (scan.protocol != fib.protocol) & (scan.metric == fib.metric) & (scan.table == fib.table)
        return np.flatnonzero(is_theirs)

    def _reread(self) -> None:
        """Read once what notifications were lost about: links, others' routes and objects, and our own routes."""
        monotonic = self.context.clock.monotonic
        start = monotonic()
        self._is_reread_due = False
        self._come_to_rest()
        self.kernel.discard_notifications()
        states = (self.kernel.nexthops() or []) if self.ways.has_objects else []
        found = {state.identifier: state for state in states}
        self.resolver.objects = {n: state for n, state in found.items() if not self._is_any_own_object(state)}
        for way in [way for way in self.ways.by_number.values() if way.identifier]:
            if way.identifier not in found:
                self._apply(self.ways.lose(way.identifier))
        for state in states:
            if self._is_own_object(state):
                self._apply(self.ways.check(state) or [])
        for link in self.kernel.links():
            if self.resolver.learn_link(link):
                self._apply(self.ways.lose_interface(link))
        self.resolver.forget_routes()
        self._compare_routes()
        self._is_stale = True
        self._repair_soon()
        self._reread_from = monotonic() + 10 * (monotonic() - start)

    def _compare_routes(self) -> None:
        nothing = self._found(next(iter(self.plans.values())), RouteScan())
        found = {plan: [nothing] for plan in self.plans.values()}
        self._read_routes(lambda plan, scan: found[plan].append(self._found(plan, scan)))
        for plan, parts in found.items():
            lost, altered = plan.compare(*map(np.concatenate, zip(*parts, strict=True)))
            if lost or altered:
                event(self.context.log, "routes-found-otherwise", "warning", lost=lost, altered=altered)

    def _found(self, plan: Plan, scan: RouteScan) -> tuple[np.ndarray, ...]:
        """Return prefixes (hi, lo, length) and ways of our own among the routes read."""
        chosen = np.flatnonzero(self._ours(scan))
        return *_prefixes(plan, scan, chosen), self._current_ways(plan, scan, chosen)

    def _current_ways(self, plan: Plan, scan: RouteScan, chosen: np.ndarray) -> np.ndarray:
        """Return the way of each of our routes as the kernel tells of it: that in the plan, or ELSEWHERE."""
        rows = plan.prefixes.find(*_prefixes(plan, scan, chosen))
        planned = plan.installed[rows]
        known = np.where(planned == steps.ELSEWHERE, 0, planned)
        ways = self.ways
        if ways.has_objects:
            is_same = ways.identifier[known] == scan.nexthop_id[chosen]
        else:
            is_same = (ways.oif[known] == scan.oif[chosen]) & (ways.gateway_hi[known] == scan.gateway_hi[chosen])
            is_same &= ways.gateway_lo[known] == scan.gateway_lo[chosen]
            is_same &= ways.n_hops[known] == scan.n_hops[chosen]
        return np.where(is_same & (known != 0), known, steps.ELSEWHERE).astype(np.uint32)

    # ---- what others do in the kernel ---------------------------------------------------------------------------

    def _on_readable(self, socket) -> None:
        """Take in notifications; those about routes gather for a moment, so that each costs no wake-up of its own."""
        self._take_notifications(socket)
        if self.GATHER_S and socket is self.kernel.notifications:
            loop = self.context.loop
            loop.remove(socket.fileno())
            loop.call_later(self.GATHER_S, lambda: loop.add_reader(socket.fileno(), partial(self._on_readable, socket)))

    def _take_notifications(self, socket) -> None:
        """Take in what the kernel tells of others, until nothing is left or it has been enough for once."""
        kernel = self.kernel
        for _ in range(NOTIFICATION_ROUNDS):
            try:
                lengths = socket.receive()
            except Overrun:
                now = self.context.clock.monotonic()
                if not self._is_reread_due:
                    event(self.context.log, "notifications-lost", "warning")
                    self._overrun_at = now
                self._is_reread_due, self._heard_at = True, now
                continue
            if self._is_reread_due and len(lengths) and socket is kernel.notifications:
                # All routes will be read; until then it only matters when this ends.
                self._heard_at = self.context.clock.monotonic()
                continue
            if not len(lengths):
                return
            # What others did is told of a table that has all of ours; and what became of links before is known first.
            self._come_to_rest()
            if socket is kernel.notifications:
                self._take_notifications(kernel.events)
            scan = self._scan
            scan.clear()
            if scan.scan(socket.octets, socket.slot_octets, lengths):
                self._is_stale |= self.resolver.learn_routes(scan)
                self._note_routes(scan)
            if scan.n_others:
                for slot in range(len(lengths)):
                    for kind, _, _, body in messages.messages_of(socket.datagram(slot)):
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
            self._on_object(kind, messages.decode_nexthop(body))

    def _on_object(self, kind: int, state: messages.NextHopState) -> None:
        if not self._is_own_object(state):
            if not self._is_any_own_object(state):
                self.resolver.learn_object(kind, state)
                self._is_stale = True
        elif kind == Kind.DEL_NEXTHOP:
            self._apply(self.ways.lose(state.identifier))
            self._is_stale = True
        else:
            consequences = self.ways.check(state)
            if consequences is not None:
                event(self.context.log, "nexthop-object-altered-by-others", "warning", object=state.identifier)
                self._apply(consequences)

    def _note_routes(self, scan: RouteScan) -> None:
        """Find out what others did to our routes: deleted, altered or replaced them, or made room for them."""
        fib = self.settings
        of_table = (scan.table == fib.table) & (scan.metric == fib.metric)
        if not of_table.any():
            return
        is_new, is_own = scan.message == Kind.NEW_ROUTE, scan.protocol == fib.protocol
        is_in_place = scan.header_flags & NLM_F_REPLACE != 0
        for family, plan in self.plans.items():
            here = of_table & (scan.family == plan.family)
            self._note_others(family, plan, scan, np.flatnonzero(here & is_new & ~is_own))
            altered = np.flatnonzero(here & is_new & is_own)
            ways = self._current_ways(plan, scan, altered)
            # What the kernel itself tells anew (port 0), like that hardware has it now, is no second route.
            is_replaced = is_in_place[altered] | (scan.port[altered] == 0)
            n = plan.note_altered(*_prefixes(plan, scan, altered), ways, is_replaced)
            self._tell_found("routes-altered-by-others", family, n, scan, altered)
            deleted = np.flatnonzero(here & ~is_new & is_own)
            n = plan.note_deleted(*_prefixes(plan, scan, deleted))
            is_kernel = len(deleted) and not scan.port[deleted].any()
            self._tell_found("routes-deleted-by-" + ("the-kernel" if is_kernel else "others"), family, n, scan, deleted)
            plan.note_room(*_prefixes(plan, scan, np.flatnonzero(here & ~is_new & ~is_own)))
        self._repair_soon()

    def _note_others(self, family: Family, plan: Plan, scan: RouteScan, chosen: np.ndarray) -> None:
        is_replaced = scan.header_flags[chosen] & NLM_F_REPLACE != 0
        n = plan.note_others(*_prefixes(plan, scan, chosen), is_replaced)
        self._tell_found("routes-replaced-by-others", family, n, scan, chosen)

    def _tell_found(self, name: str, family: Family, n: int, scan: RouteScan, chosen: np.ndarray) -> None:
        """Log what was found of our routes, with the first prefix it is about and who did it."""
        if n:
            i = int(chosen[0])
            is_wide = scan.family[i] == AF_INET6
            prefix = prefix_text(int(scan.hi[i]), int(scan.lo[i]), int(scan.length[i]), is_wide)
            event(
                self.context.log, name, "warning", family=family.label, routes=n, first=prefix, port=int(scan.port[i])
            )

    def _repair_soon(self) -> None:
        """Queue what others have spoiled: now, or when enough time has passed since the last repair."""
        if not any(plan.needs_repair for plan in self.plans.values()):
            return
        now = self.context.clock.monotonic()
        if now < self._repair_from:
            if self._repair_timer is None or not self._repair_timer.is_pending:
                self._repair_timer = self.context.loop.call_at(self._repair_from, self._repair_soon)
            return
        self._repair_from = now + REPAIR_S
        for plan in self.plans.values():
            self.n_repaired += plan.repair()

    # ---- next hops the rib asks about ---------------------------------------------------------------------------

    def _on_wanted_next_hops(self, rib: str, batch: Batch) -> None:
        """Resolve all next hops the ribs have candidates with, not only those of routes that are chosen."""
        columns = batch.columns
        self._wanted[rib] = columns["hi"], columns["lo"], columns["length"] * np.uint8(8)
        ribs = self.config.instances("rib")
        if self._wanted.keys() > set(ribs):
            self._wanted = {rib: self._wanted[rib] for rib in ribs}
        self.ways.need(*(np.concatenate(each) for each in zip(*self._wanted.values(), strict=True)))
        new = self.ways.take_new()
        self._resolve(new)

    def _own_route(self, family: int, address: bytes) -> tuple[int, messages.Gateway] | None:
        """Return (length, way) of the longest of our own routes to an address, if its way can be used."""
        plan = next((plan for plan in self.plans.values() if plan.family == family), None)
        return None if plan is None else plan.own_route(address)

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
        self._come_to_rest()
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

    def _handle(self, family: Family, batch: Batch, rib: str, share: Share) -> None:
        """Take a batch of a rib into the plan."""
        self._is_settled &= not (batch.begins_snapshot or batch.ends_snapshot)
        self.plans[family].handle(batch, self._interfaces(batch), share)
        new = self.ways.take_new()
        if new:
            self._resolve(new)
        if self.resolver.own is not None:
            self._is_stale = True
        self._owed[family, rib] += batch.n_octets
        self._was_busy = True

    def _interfaces(self, batch: Batch) -> list[int]:
        """Return for each source of a batch the number of the interface its session is on, 0 if that is not told."""
        names = [source.get("interface", "") for source in batch.meta.get("sources", [])]
        return [self.resolver.index_of(name) if name else 0 for name in names]

    def step(self) -> bool:
        if self.kernel is None:
            return False
        self._account()
        if self._refusals:
            self._handle_refusals()
        if self._is_reread_due:
            when = max(min(self._heard_at + QUIET_S, self._overrun_at + QUIET_LIMIT_S), self._reread_from)
            if self.context.clock.monotonic() >= when:
                self._reread()
            else:
                self._wake_at(when)
        if self._is_stale:
            self._refresh_ways()
        is_more = False
        if self.context.clock.monotonic() >= self._paused_until:
            is_more = self._take_turns()
            n_waiting = self.n_queued
            self._account()
            is_more |= self.n_queued > n_waiting  # an answer may lead to more
        elif self.n_queued:
            self._wake_at(self._paused_until)
        if self.n_queued < QUEUE_LIMIT:
            self._grant()
        if not self.n_queued and not self.kernel.n_on_the_way:
            self._note_in_step()
        return is_more or bool(self._refusals)

    @property
    def n_queued(self) -> int:
        """Rows that wait for the kernel."""
        return sum(plan.n_queued for plan in self.plans.values())

    def _note_in_step(self) -> None:
        """Note that the kernel has all there is."""
        if not self._is_settled:
            self._is_settled = all(plan.is_confirmed for plan in self.plans.values())
            if self._is_settled:
                self.forwarding.note()
        if self._was_busy:
            self._was_busy = False
            event(self.context.log, "kernel-in-step", "debug", routes=sum(p.n_installed for p in self.plans.values()))

    def _take_turns(self) -> bool:
        """Begin batches of changes, a few at most; return True if there is more, and room for it.

        The families take turns, so a full table of one does not hold up the other.
        """
        for _ in range(TURNS):
            if not self._take_turn():
                return False
        return True

    def _take_turn(self) -> bool:
        """Begin the next batch; return False if there is nothing to begin, or no room."""
        families = list(self.plans)
        for i in range(len(families)):
            family = families[(self._turn + i) % len(families)]
            plan = self.plans[family]
            if plan.n_queued and self.kernel.has_room(plan.family) and self._change(plan, family):
                self._turn = families.index(family) + 1
                return True
        return False

    def _wake_at(self, when: float) -> None:
        if self._wake_timer is None or not self._wake_timer.is_pending:
            self._wake_timer = self.context.loop.call_at(when, lambda: None)

    def _grant(self) -> None:
        for each, owed in self._owed.items():
            if owed:
                self.followers[each].grant(owed)
                self._owed[each] = 0

    def _change(self, plan: Plan, family: Family) -> bool:
        """Begin one batch of changes; return False if all that is queued waits for an answer of the kernel first."""
        # A replacement must not meet a route of others we have been told of: what waits is read first.
        for socket in self.kernel.listening:
            self._take_notifications(socket)
        n_before = plan.n_queued
        work = plan.take(BATCH_ROUTES)
        if work is None:
            return plan.n_queued < n_before
        prefixes = _prefixes_in(plan, work.rows)
        self.kernel.begin((family, work), plan.family, work.actions, *prefixes, work.targets, self.ways)
        return True

    def _account(self) -> None:
        """Note what the kernel has answered."""
        for sent in self.kernel.answered():
            family, work = sent.token
            plan = self.plans[family]
            refused = plan.settle(work, sent.errors)
            if len(refused):
                rows = work.rows[refused]
                codes = plan.trouble[rows]
                self._refusals.append(Refusal(family, rows, work.actions[refused], work.targets[refused], codes))
            elif self._pause_s > FIRST_PAUSE_S:
                self._pause_s = FIRST_PAUSE_S

    def _come_to_rest(self) -> None:
        """Wait until the kernel has answered all it was sent, and note it: the plan says what is in the kernel."""
        self.kernel.wait()
        self._account()

    def _handle_refusals(self) -> None:
        self._come_to_rest()
        refusals, self._refusals = self._refusals, []
        for refusal in refusals:
            self._handle_refusal(refusal, self.plans[refusal.family])

    def _handle_refusal(self, refusal: Refusal, plan: Plan) -> None:
        """Do about each refusal what its cause asks for; all are tried again later in any case."""
        rows, codes = refusal.rows, refusal.codes
        if np.isin(codes, NO_MEMORY).any():
            plan.put_back(rows[np.isin(codes, NO_MEMORY)])
            self._paused_until = self.context.clock.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, LAST_PAUSE_S)
        self._is_stale |= bool(np.isin(codes, NO_WAY).any())
        is_without_object = np.isin(codes, NO_OBJECT)
        if is_without_object.any() and self.ways.has_objects:
            targets = distinct(refusal.targets[is_without_object])
            self._apply(self.ways.restore(targets[targets != 0].tolist()))
        in_the_way = rows[(codes == errno.EEXIST) & (refusal.actions == netlink.INSTALL)]
        if len(in_the_way):
            self._clear_own(plan, in_the_way)
        self._log_refusal(refusal, plan)

    def _clear_own(self, plan: Plan, rows: np.ndarray) -> None:
        """Find out who is in the way: what is ours (it was thought gone) is removed, and installed again.

        A removal names our protocol, so the kernel removes nothing of others.
        """
        actions, targets = np.full(len(rows), netlink.REMOVE, np.uint8), np.zeros(len(rows), np.uint32)
        errors = self.kernel.change(plan.family, actions, *_prefixes_in(plan, rows), targets, self.ways)
        plan.put_back(rows[errors == 0])

    def _log_refusal(self, refusal: Refusal, plan: Plan) -> None:
        """Log each kind of refusal once, with the first prefix it met."""
        kinds, first = np.unique(refusal.codes, return_index=True)
        for code, i in zip(kinds.tolist(), first.tolist(), strict=True):
            if (refusal.family, code) not in self._known_troubles:
                self._known_troubles.add((refusal.family, code))
                event(
                    self.context.log,
                    "route-refused",
                    "warning",
                    prefix=text_at(plan.prefixes, int(refusal.rows[i]), plan.is_wide),
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
        if all(plan.is_confirmed and not plan.n_queued for plan in self.plans.values()):
            self._come_to_rest()
            if self.ways.remove_unused():
                self.next_hops.refresh()
        self.context.loop.call_later(SWEEP_S, self._on_sweep)

    # ---- what is told -------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return report.status(self)

    def owns(self) -> list[str]:
        fib = self.settings
        return [f"table {fib.table}" + (f" of {fib.namespace}" if fib.namespace else "")] if fib.enabled else []

    def is_in_step(self) -> bool:
        return self.kernel is None or self._is_settled

    def missing(self) -> list[str]:
        return [] if self._is_permitted else ["kernel:CAP_NET_ADMIN"]

    def controls(self) -> dict:
        return {
            "nexthops": lambda question: {"nexthops": report.next_hops(self)},
            "refused": lambda question: {"routes": report.refused(self, min(int(question.get("limit", 100)), 1000))},
            "route": self._on_route,
        }

    def _on_route(self, question: dict) -> dict:
        """{prefix} -> what is wanted and installed for it."""
        if self.kernel is None:
            raise ControlError("no kernel: [fib] enabled = false")
        return {"route": report.route(self, question["prefix"])}


def _prefixes_in(plan: Plan, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the prefixes of rows of a plan as columns."""
    return plan.prefixes.hi(rows), plan.prefixes.lo(rows), plan.prefixes.length(rows)


def _prefixes(plan: Plan, scan: RouteScan, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the prefixes of the chosen routes as columns of the plan's family."""
    lo = scan.lo[chosen] if plan.family == AF_INET6 else np.empty(0, np.uint64)
    return scan.hi[chosen], lo, scan.length[chosen]


STAGE = FibStage
