"""The speaker stage: joins sessions, tables and groups to the loop and the bus.

Owns the objects of the other modules and the flow between them: it stops reading peers while the bus is behind, and
tells peers as fast as they take it, a bounded slice each turn. Never touches a socket.
"""

import errno
import ipaddress
import socket
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from common.arrays import populated
from common.bgp.capabilities import Capabilities, GracefulRestart
from common.bgp.constants import CeaseSubcode, Family, MessageType, RouteRefreshSubtype
from common.bgp.session import Refresh, SessionSettings
from common.bus import channels
from common.bus.control import Handler
from common.bus.journal import Content, JournalSource, Marks, new_epoch
from common.bus.schema import RouteChanges, SessionChanges, SessionEvent
from common.bus.server import Refused, Server
from common.bus.wire import Request
from common.config import Config
from common.config import Neighbor as NeighborConfig
from common.config.changes import costs_session
from common.config.expected import expected_prefixes, expected_routes
from common.config.sharing import decode_share
from common.kernels.scan import Options
from common.runtime.forwarding import Forwarding
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.ports import Port
from common.runtime.processes import is_reserved
from common.runtime.rights import CAP_NET_BIND_SERVICE
from common.runtime.shrinking import Shrinking
from common.runtime.stage import Context, Stage
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.control import Questions
from stages.speaker.handover import Handover
from stages.speaker.intake import Intake
from stages.speaker.limits import Limits
from stages.speaker.metrics import export_metrics
from stages.speaker.neighbors import Neighbor, Neighbors, Peering, is_from
from stages.speaker.origination import local_source, originate
from stages.speaker.peer_groups import PeerGroup, PeerGroups
from stages.speaker.prefixes import SharedPrefixes
from stages.speaker.promises import Promises
from stages.speaker.regroup import Regroup
from stages.speaker.retention import Retention
from stages.speaker.sockets import Listener, admit, interface_of, refuse
from stages.speaker.sources import Source, Sources
from stages.speaker.taps import Taps

# Journal entries that the slowest reader of the bus may be behind before peers are read no more, and at which they are
# read again. They are also what a change has to wait for while another peer's table loads.
MAX_BACKLOG = 65536
RESUME_BACKLOG = 32768
# A peer is told more when less than this waits for its connection.
LOW_WATER_OCTETS = 1 << 17
# How long one turn may be spent telling peers.
TELL_S = 0.008
LISTEN_REMEDIES = {
    errno.EACCES: "a port below 1024 takes root or CAP_NET_BIND_SERVICE",
    errno.EADDRINUSE: "another BGP daemon may be there: end it, or give router.listen or router.port other values",
    errno.EADDRNOTAVAIL: "no interface has this address yet; it is tried again",
}
LISTEN_RETRY_S = 5.0
# Prefixes gone are forgotten now and then, not in every turn.
COLLECT_INTERVAL_S = 0.1


class Speaker(Stage):
    """Sessions with this instance's neighbors."""

    name = "speaker"
    RIGHTS = (CAP_NET_BIND_SERVICE,)
    SOCKETS = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)  # netlink: to know its interfaces

    @classmethod
    def places_to_listen(cls, config: Config, instance: str) -> list[Port]:
        is_shared = len(config.instances(cls.name)) > 1
        key = "router.listen and router.port" if config.router.listen else "router.port"
        ports = (Port(address, config.router.port, key, is_shared, is_patient=True) for address in _addresses(config))
        return [*super().places_to_listen(config, instance), *ports]

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self.epoch = new_epoch()
        self.sources = Sources()
        self.prefixes: dict[Family, SharedPrefixes] = {}
        self.tables: dict[Family, AdjRibIn] = {}
        for family in Family:
            self._make_tables(family)
        self.marks = {family: Marks(table.journal) for family, table in self.tables.items()}
        # Sources whose End-of-RIB has come, or was promised and is awaited, by family.
        self.ended: dict[Family, set[int]] = {family: set() for family in Family}
        self.awaited: dict[Family, set[int]] = {family: set() for family in Family}
        self.retention = Retention(context.loop, context.log, self.tables, self._on_given_up)
        self.promises = Promises(config.router.run_dir, instance)
        self.forwarding = Forwarding(config)
        self._was_forwarding = self.forwarding.is_kept
        self._deferral: Timer | None = None
        self.neighbors = Neighbors(context.loop, context.log, Random(context.seed), self)
        self.limits = Limits(context.log, self.tables, self.neighbors)
        self.intake = Intake(
            context.loop, context.log, self.neighbors, self.tables, self.limits.check, self._on_end_of_rib
        )
        self.groups = PeerGroups(config, instance, context.loop, context.bus, context.log, context.seed, self.prefixes)
        with populated():
            for family in Family:
                if self._tells(family):
                    self.groups.prepare(family)
        # Members on their way to another group, by neighbor and family.
        self.regroups: dict[tuple[str, Family], tuple[PeerGroup, PeerGroup, Regroup]] = {}
        self.is_reading_paused = False
        self.n_pauses = 0
        self._is_draining = False
        self._server: Server | None = None
        self._taps: Taps | None = None
        self._listeners: dict[str, Listener] = {}
        self._handover: Handover | None = None
        self._listen_retries: dict[str, Timer] = {}
        self._channels = {family: channels.adj_rib_in(family.label) for family in Family}
        self._floor = dict.fromkeys(Family, 1)
        self._turn = 0
        self._collecting: Timer | None = None
        self._local = local_source(config, self.sources, _router_id(config))

    def _make_tables(self, family: Family) -> None:
        expected = [expected_routes(neighbor, family.label) for neighbor in self._configs(self.config)]
        # What is told may come to neighbors of other speakers.
        n_told = expected_prefixes(self.config, family.label) if self._tells(family) else 0
        seed = self.context.seed
        with populated():
            prefixes = self.prefixes[family] = SharedPrefixes(family, seed, max([n_told, *expected]))
            self.tables[family] = AdjRibIn(family, seed, self.sources, prefixes, sum(expected))

    def _tells(self, family: Family) -> bool:
        """Tell whether any neighbor may be told routes of a family."""
        configs = [each for each in self._configs(self.config) if family.label in each.families]
        return not all(self.config.tells_nothing(each) for each in configs)

    # ---- the stage's life -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._server = self.context.bus.serve()
        for family in Family:
            self._server.add(channels.adj_rib_in(family.label), partial(self._source, family))
        self._taps = Taps(self._server, self.neighbors, self.epoch)
        self._originate(self._originated(self.config))
        self._recall()
        self._listen()
        for config in self._configs(self.config):
            self.neighbors.add(config, self._settings(self.config, config))
        Shrinking(self.context.loop, self.context.log, self._all_tables)
        export_metrics(self)

    def _recall(self) -> None:
        """Go on where an earlier process ended: its neighbors are awaited (RFC 4724 §4.1)."""
        configs = {config.name: config for config in self._configs(self.config) if config.graceful_restart}
        self.promises.recall(configs)
        for name, promise in self.promises.open.items():
            source = self._describe(configs[name], promise.router_id, promise.local_address)
            for family in promise.awaited():
                self.awaited[family].add(source)
        limit_s = self.config.graceful_restart.selection_deferral_s
        self._deferral = self.context.loop.call_later(limit_s, self._end_deferral)
        if self.promises.open:
            event(self.context.log, "restarted", awaited=",".join(sorted(self.promises.open)), limit_s=limit_s)

    def _end_deferral(self) -> None:
        """Wait no longer for neighbors that have not come back."""
        for name in list(self.promises.open):
            event(self.context.log, "neighbor-not-back", "warning", neighbor=name)
            self._break_promise(name)

    def _break_promise(self, name: str, but: Iterable[Family] = ()) -> None:
        """Tell that a neighbor of an earlier process does not come back, in some families at least."""
        promise = self.promises.open.pop(name, None)
        if promise is None:
            return
        source = int(self.sources.numbers(name)[0])
        for family in promise.awaited() - set(but):
            self.awaited[family].discard(source)
            self._mark(family, source, SessionEvent.DOWN)
        if not but:
            self.promises.forget(name)

    def step(self) -> bool:
        is_handling = not self.is_reading_paused and self.intake.go_on()
        is_moving = self._regroup() if self.regroups else False
        return self._tell() or is_moving or is_handling

    def tidy(self) -> None:
        self._regulate_reading()
        self.promises.write()
        if self._collecting is None and self._has_garbage():
            self._collecting = self.context.loop.call_later(COLLECT_INTERVAL_S, self._collect)

    def status(self) -> dict[str, Any]:
        return {
            "neighbors": len(self.neighbors),
            "established": sum(neighbor.is_established for neighbor in self.neighbors),
            "reading_paused": self.is_reading_paused,
            "reading_pauses": self.n_pauses,
            "groups": [
                {
                    "group": group.group,
                    "family": group.adj_rib_out.family.label,
                    "members": sorted(group.adj_rib_out.members),
                    "routes": group.adj_rib_out.exports.n_routes,
                    "sets": group.adj_rib_out.attributes.n_sets,
                    "complete": group.adj_rib_out.is_complete,
                }
                for group in self.groups
            ],
            "tables": {
                family.label: {
                    "prefixes": table.prefixes.n_prefixes,
                    "routes": table.routes.n_live,
                    "sets": table.attributes.n_sets,
                    "backlog": table.journal.head - self._floor[family],
                }
                for family, table in self.tables.items()
            },
        }

    def owns(self) -> list[str]:
        """Return its neighbors."""
        return sorted(neighbor.name for neighbor in self.neighbors)

    def controls(self) -> dict[str, Handler]:
        return Questions(self).handlers()

    def reload(self, config: Config) -> None:
        """Take over neighbors that came, went or changed, and the prefixes originated."""
        former, self.config = self.config, config
        self.groups.reload(config)
        wanted, had = self._originated(config), self._originated(former)
        self._originate(had - wanted, is_gone=True)
        self._originate(wanted - had)
        wanted = {neighbor.name: neighbor for neighbor in self._configs(config)}
        is_other_router = (config.router.asn, config.router.router_id) != (former.router.asn, former.router.router_id)
        for neighbor in list(self.neighbors):
            new = wanted.get(neighbor.name)
            if new is None:
                self.neighbors.remove(neighbor.name)
                self._forget(neighbor.name)
            elif is_other_router or costs_session(neighbor.config, new):
                is_other_peer = (new.address, new.asn) != (neighbor.config.address, neighbor.config.asn)
                self.neighbors.remove(neighbor.name, CeaseSubcode.OTHER_CONFIGURATION_CHANGE)
                if is_other_peer or is_other_router:
                    self._forget(neighbor.name)
            else:
                self._reconfigure(neighbor, new)
        for name, new in wanted.items():
            if self.neighbors.get(name) is None:
                self.neighbors.add(new, self._settings(config, new))
        if _listening(config) != _listening(former):
            self._stop_listening()
            self._listen()

    def _reconfigure(self, neighbor: Neighbor, config: NeighborConfig) -> None:
        """Go on with a neighbor whose session can stand."""
        former, neighbor.config = neighbor.config, config
        neighbor.settings = self._settings(self.config, config)
        for peering in neighbor.peerings():
            session = peering.session
            session.settings = replace(
                neighbor.settings,
                capabilities=session.settings.capabilities,
                is_passive=neighbor.settings.is_passive or peering is neighbor.contender,
            )
        if neighbor.is_established:
            neighbor.peering.options = self._options(neighbor)
            for family in list(neighbor.members):
                self._find_group(neighbor, family)
        neighbor.count_octets_at = 0
        self.limits.relent(neighbor, former)
        self.limits.check(neighbor)

    def _find_group(self, neighbor: Neighbor, family: Family) -> None:
        """Begin to move a member to another group, if its export policy or what else makes a group has changed."""
        self._stop_regroup(neighbor.name, family)
        group, member = neighbor.members[family]
        negotiated = neighbor.peering.session.record.negotiated
        other = self.groups.find(neighbor, family, negotiated, neighbor.peering.connection.local)
        if other is not None and other is not group:
            moving = Regroup(group.adj_rib_out, member, other.adj_rib_out)
            self.regroups[neighbor.name, family] = group, other, moving

    def _regroup(self) -> bool:
        """Do a slice of the work for each member that moves; return True if there is more to do at once."""
        for (name, family), (group, other, moving) in list(self.regroups.items()):
            if moving.step():
                del self.regroups[name, family]
                self.neighbors.get(name).members[family] = other, moving.joined
                self.groups.release(group)
                self._taps.end(name)
                event(self.context.log, "regrouped", neighbor=name, family=family.label, group=other.group)
        return any(moving.joined is not None for _, _, moving in self.regroups.values())

    def _stop_regroup(self, name: str, family: Family) -> None:
        _, other, moving = self.regroups.pop((name, family), (None, None, None))
        if moving is not None:
            moving.cancel()
            self.groups.release(other)

    def _forget(self, name: str) -> None:
        """Keep nothing of a neighbor that is no more, or is another one."""
        self.retention.forget(name)
        self._break_promise(name)
        self.promises.forget(name)

    def drain(self) -> None:
        """End the sessions, but withdraw nothing: who reads us keeps what it has, as if this process had died."""
        self._is_draining = True
        self._stop_listening()
        for neighbor in list(self.neighbors):
            if self.is_to_return:
                self.neighbors.lapse(neighbor)
            else:
                self.neighbors.stop(neighbor, CeaseSubcode.ADMINISTRATIVE_SHUTDOWN)
        if not self.is_to_return:
            self.promises.forget_all()
        self.groups.close()

    def _configs(self, config: Config) -> list[NeighborConfig]:
        return [neighbor for neighbor in config.neighbors.values() if neighbor.speaker == self.instance]

    def _settings(self, config: Config, neighbor: NeighborConfig) -> SessionSettings:
        return SessionSettings(
            local_asn=config.router.asn,
            router_id=_router_id(config),
            peer_asn=neighbor.asn,
            capabilities=Capabilities(
                families=tuple(Family.named(label) for label in neighbor.families),
                asn4=config.router.asn,
                route_refresh=True,
                extended_message=True,
            ),
            hold_time_s=neighbor.hold_time_s,
            is_passive=neighbor.passive,
            connect_retry_s=neighbor.connect_retry_s,
            open_hold_time_s=neighbor.open_hold_time_s,
            send_hold_time_s=neighbor.send_hold_time_s,
        )

    def _listen(self) -> None:
        """Listen at the addresses configured; at all of both families if there are none."""
        if len(self.config.instances(self.name)) > 1:
            try:
                self._handover = Handover(self.context.loop, self.config.router.run_dir, self.instance, self._take_over)
            except OSError as error:
                event(self.context.log, "handover-failed", "error", problem=error)
        for address in _addresses(self.config):
            self._listen_at(address)

    def _listen_at(self, address: str) -> None:
        """Listen at one address; one that is not there, or not free, is tried again (an interface may come up)."""
        loop, port = self.context.loop, self.config.router.port
        try:
            self._listeners[address] = Listener(
                loop,
                address,
                port,
                self.neighbors.admits,
                self.neighbors.accept,
                self._pass_on if self._handover is not None else None,
                self._on_shortage,
            )
        except OSError as error:
            remedy = LISTEN_REMEDIES.get(error.errno, "")
            event(self.context.log, "listen-failed", "error", address=address, port=port, problem=error, remedy=remedy)
            self._listen_retries[address] = loop.call_later(LISTEN_RETRY_S, lambda: self._listen_at(address))

    def _on_shortage(self) -> None:
        event(self.context.log, "descriptors-short", "error", effect="no connection is accepted for a while")

    def _pass_on(self, sock: socket.socket, local: str, peer: str) -> bool:
        """Give a connection to the speaker whose neighbor it comes from."""
        name = next((each.speaker for each in self.config.neighbors.values() if is_from(each, local, peer)), None)
        return name not in (None, self.instance) and self._handover.pass_on(sock, name)

    def _take_over(self, sock: socket.socket) -> None:
        """Take a connection that another speaker has accepted."""
        if is_reserved(sock.fileno()):
            refuse(sock)
            self._on_shortage()
        elif not admit(self.context.loop, sock, self.neighbors.admits, self.neighbors.accept):
            refuse(sock)

    def _stop_listening(self) -> None:
        if self._handover is not None:
            self._handover.close()
            self._handover = None
        for retry in self._listen_retries.values():
            retry.cancel()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        self._listen_retries.clear()

    def _originated(self, config: Config) -> set:
        """Return the prefixes of this router's own that this speaker announces: the first speaker does."""
        return set(config.router.originate if config.instances(self.name)[0] == self.instance else ())

    def _originate(self, prefixes, is_gone: bool = False) -> None:
        for table in self.tables.values():
            originate(table, self._local, prefixes, is_gone)

    # ---- what sessions report ---------------------------------------------------------------------------------------

    def capabilities_for(self, neighbor: Neighbor) -> Capabilities:
        """Return what is offered to a neighbor now; graceful restart depends on what has become of us (RFC 4724 §3)."""
        capabilities = neighbor.settings.capabilities
        if not neighbor.config.graceful_restart:
            return capabilities
        is_restarting = not neighbor.has_been_up and self._deferral is not None and self._deferral.is_pending
        is_kept = self._was_forwarding if is_restarting else self.forwarding.is_kept
        restart = GracefulRestart(
            self.config.graceful_restart.restart_time_s,
            is_restarting,
            has_notification=True,
            families=tuple((family, is_kept) for family in capabilities.families),
        )
        return replace(capabilities, graceful_restart=restart)

    def on_readable(self, neighbor: Neighbor, peering: Peering) -> None:
        self.intake.read(neighbor, peering)

    def on_up(self, neighbor: Neighbor) -> None:
        """Begin to take a neighbor's routes, and to tell it ours."""
        peering = neighbor.peering
        record = peering.session.record
        negotiated = record.negotiated
        families = negotiated.families
        neighbor.families = tuple(families)
        neighbor.path_id_families = negotiated.add_path_receive
        neighbor.warned_of.clear()
        neighbor.held_back_by = ""
        router_id, local = record.peer_open.router_id, peering.connection.local
        neighbor.has_been_up = True
        neighbor.restart = negotiated.graceful_restart
        agreed = families if neighbor.restart is not None else ()
        self._break_promise(neighbor.name, agreed)
        self.retention.resume(neighbor.name, families, neighbor.restart, self.config.graceful_restart.stale_time_s)
        neighbor.source = self._describe(neighbor.config, router_id, local)
        self.promises.note(neighbor.name, agreed, router_id, local)
        peering.options = self._options(neighbor)
        event(
            self.context.log,
            "session-up",
            neighbor=neighbor.name,
            address=neighbor.config.address,
            families=",".join(family.label for family in families),
            hold_time_s=record.hold_time_s,
        )
        for family in families:
            self._mark(family, neighbor.source, SessionEvent.UP)
            self._note_promise(neighbor, family)
            joined = self.groups.join(neighbor, family, negotiated, peering.connection.local)
            if joined is not None:
                neighbor.members[family] = joined

    def _options(self, neighbor: Neighbor) -> Options:
        """Return how a neighbor's UPDATEs are read."""
        negotiated = neighbor.peering.session.record.negotiated
        return Options(
            as4=negotiated.as4,
            external=neighbor.is_external,
            families=sum(family.bit for family in negotiated.families),
            add_path=sum(family.bit for family in negotiated.add_path_receive),
            max_message=negotiated.max_message_octets,
            extended_next_hop=negotiated.extended_next_hop,
            accept_as_sets=self.config.policy.as_set == "accept",
        )

    def _describe(self, config: NeighborConfig, router_id: int, local_address: str) -> int:
        return self.sources.describe(
            Source(
                config.name,
                config.asn,
                self.config.router.asn,
                router_id,
                ipaddress.ip_address(config.address).packed,
                self.config.is_external(config),
                ipaddress.ip_address(local_address).packed,
                interface=interface_of(local_address) or "",
            )
        )

    def _note_promise(self, neighbor: Neighbor, family: Family) -> None:
        """Tell what a neighbor that is up has agreed on; one that has restarted itself is not waited for (§4.1)."""
        self.awaited[family].discard(neighbor.source)
        if neighbor.restart is not None:
            self._mark(family, neighbor.source, SessionEvent.GRACEFUL)
            if not neighbor.restart.is_restarting:
                self.awaited[family].add(neighbor.source)
                self._mark(family, neighbor.source, SessionEvent.AWAITED)

    def on_down(self, neighbor: Neighbor, reason: str, is_graceful: bool) -> None:
        """Tell a neighbor nothing more, and withdraw its routes, or keep them until it is back (RFC 4724 §4.2)."""
        if not self._is_draining:
            self._lose_routes(neighbor, is_graceful)
        for family, (group, _member) in neighbor.members.items():
            self._stop_regroup(neighbor.name, family)
            self.groups.leave(group, neighbor.name)
        neighbor.members.clear()
        neighbor.families = ()
        self._taps.end(neighbor.name)

    def _lose_routes(self, neighbor: Neighbor, is_graceful: bool) -> None:
        restart = neighbor.restart if is_graceful else None
        kept = {family for family, _ in restart.families} & set(neighbor.families) if restart is not None else set()
        self.retention.lose(neighbor.name, neighbor.source, kept, restart.restart_time_s if restart is not None else 0)
        for family in neighbor.families:
            self.ended[family].discard(neighbor.source)
            self.awaited[family].discard(neighbor.source)
            if family not in kept:
                self.tables[family].purge(neighbor.name)
            self._mark(family, neighbor.source, SessionEvent.STALE if family in kept else SessionEvent.DOWN)
        if not kept:
            self.promises.forget(neighbor.name)
            neighbor.n_attribute_octets = neighbor.count_octets_at = 0

    def _on_given_up(self, name: str, source: int, family: Family) -> None:
        """A neighbor whose routes were kept has not come back, or not with this family."""
        self._mark(family, source, SessionEvent.DOWN)
        if not self.retention.families_of(name):
            self.promises.forget(name)

    def on_refresh(self, neighbor: Neighbor, refresh: Refresh) -> None:
        """Tell a table again (RFC 2918); one that was not negotiated is ignored (RFC 2918 §4)."""
        joined = neighbor.members.get(refresh.message.family)
        if joined is not None and refresh.message.subtype == RouteRefreshSubtype.REQUEST:
            group, member = joined
            group.adj_rib_out.tell_again(member)

    def _on_end_of_rib(self, neighbor: Neighbor, family: Family) -> None:
        self.retention.end_of_rib(neighbor.name, family)
        self.awaited[family].discard(neighbor.source)
        if neighbor.source not in self.ended[family]:
            event(self.context.log, "end-of-rib", neighbor=neighbor.name, family=family.label)
            self.ended[family].add(neighbor.source)
            self._mark(family, neighbor.source, SessionEvent.END_OF_RIB)

    def n_advertised(self, neighbor: Neighbor) -> int:
        """Return how many prefixes a neighbor holds from us, of all families."""
        return sum(member.n_told for _group, member in neighbor.members.values())

    # ---- the bus ----------------------------------------------------------------------------------------------------

    def _source(self, family: Family, request: Request) -> JournalSource:
        """Return what a reader is served: all routes, or those of one share of the prefixes."""
        table = self.tables[family]
        try:
            share = decode_share(request.params)
        except ValueError as error:
            raise Refused(str(error)) from error
        return JournalSource(
            table.journal,
            RouteChanges,
            table.gather,
            lambda: table.routes.row_limit,
            epoch=share.epoch_of(self.epoch),
            marks=self.marks[family],
            preamble=lambda: self._preamble(family),
            epilogue=lambda: self._sessions(family, sorted(self.ended[family]), SessionEvent.END_OF_RIB),
            sizes=table.sizes,
            choose=None if share.count == 1 else partial(table.rows_of_share, share),
            share=share.count,
        )

    def _preamble(self, family: Family) -> list[Content]:
        """Return what is known of all sessions: a snapshot begins with it."""
        up = [neighbor for neighbor in self.neighbors if family in neighbor.families]
        away = self.retention.away(family)
        missing = [
            int(self.sources.numbers(name)[0])
            for name, promise in self.promises.open.items()
            if family in promise.awaited()
        ]
        graceful = [neighbor.source for neighbor in up if neighbor.restart is not None]
        return [
            *self._sessions(family, [neighbor.source for neighbor in up], SessionEvent.UP),
            *self._sessions(family, graceful + away + missing, SessionEvent.GRACEFUL),
            *self._sessions(family, away, SessionEvent.STALE),
            *self._sessions(family, sorted(self.awaited[family]), SessionEvent.AWAITED),
        ]

    def _mark(self, family: Family, source: int, happened: SessionEvent) -> None:
        self.marks[family].append(lambda: self._sessions(family, [source], happened)[0])

    def _sessions(self, family: Family, numbers: list[int], happened: SessionEvent) -> list[Content]:
        """Return a batch that says that this happened to the sessions of these sources; none for no source."""
        if not numbers:
            return []
        local, sources = self.sources.localize(np.array(numbers, np.uint32))
        columns = {"source": local, "event": np.full(len(numbers), happened, np.uint8)}
        return [(SessionChanges, columns, {"family": family.label, "sources": sources})]

    # ---- flow -------------------------------------------------------------------------------------------------------

    def backlog(self) -> int:
        """Return how many changes are on their way: those read and not fetched yet, or chosen and not come back yet.

        Counting both keeps the whole way short, so that one peer's full table does not stand in front of
        another peer's single change.
        """
        coming_in = max(table.journal.head - self._floor[family] for family, table in self.tables.items())
        going_out = max((group.lag for group in self.groups), default=0)
        return max(coming_in, going_out)

    def _regulate_reading(self) -> None:
        for family, channel in self._channels.items():
            position = self._server.min_position(channel)
            if position is not None:
                self._floor[family] = position
        backlog = self.backlog()
        if not self.is_reading_paused and backlog > MAX_BACKLOG:
            self.is_reading_paused = True
            self.n_pauses += 1
            self.neighbors.pause_reading()
        elif self.is_reading_paused and backlog < RESUME_BACKLOG:
            self.is_reading_paused = False
            self.neighbors.resume_reading()

    def _all_tables(self) -> list:
        """Return the tables of routes, and then those of prefixes that they share."""
        return [*self.tables.values(), *(group.adj_rib_out for group in self.groups), *self.prefixes.values()]

    def _has_garbage(self) -> bool:
        return any(table.has_garbage for table in self._all_tables())

    def _collect(self) -> None:
        self._collecting = None
        for family, table in self.tables.items():
            table.collect(self._floor[family])
            self._server.tell_positions(channels.adj_rib_in(family.label))
        for group in self.groups:
            group.adj_rib_out.collect()
        for prefixes in self.prefixes.values():
            prefixes.collect()

    def _tell(self) -> bool:
        """Tell peers what they have not been told, each in turn, until all are in step or time is up."""
        waiting = deque([neighbor for neighbor in self.neighbors if _is_behind(neighbor)])
        if not waiting:
            return False
        monotonic = self.context.loop.clock.monotonic
        until = monotonic() + TELL_S
        # Who was served last is served last again, so that a short turn does not always end with the same ones.
        waiting.rotate(-(self._turn % len(waiting)))
        while waiting:
            neighbor = waiting.popleft()
            if self._tell_neighbor(neighbor):
                waiting.append(neighbor)
            self._turn += 1
            if monotonic() >= until:
                break
        return bool(waiting)

    def _tell_neighbor(self, neighbor: Neighbor) -> bool:
        """Tell one peer a slice; return False when it is in step or its connection takes no more now."""
        connection = neighbor.peering.connection
        if connection is None or connection.n_queued >= LOW_WATER_OCTETS:
            return False
        has_told = False
        for group, member in list(neighbor.members.values()):
            if not group.adj_rib_out.has_to_tell(member):
                continue
            n_before = member.n_updates
            for chunk in group.adj_rib_out.tell(member):
                connection.queue(chunk)
            neighbor.peering.session.record.sent[MessageType.UPDATE] += member.n_updates - n_before
            has_told |= group.adj_rib_out.has_to_tell(member)
        if connection.n_queued:
            self.neighbors.flush(neighbor, neighbor.peering)
        return has_told and neighbor.is_established and connection.n_queued < LOW_WATER_OCTETS


def _is_behind(neighbor: Neighbor) -> bool:
    """Tell whether there is something a neighbor has not been told."""
    for group, member in neighbor.members.values():
        if group.adj_rib_out.has_to_tell(member):
            return True
    return False


def _addresses(config: Config) -> tuple[str, ...]:
    """Return the addresses to listen at: all of both families where none is named."""
    return config.router.listen or ("0.0.0.0", "::")


def _listening(config: Config) -> tuple:
    """Return what the listening sockets depend on."""
    return config.router.listen, config.router.port, len(config.instances("speaker")) > 1


def _router_id(config: Config) -> int:
    return int(ipaddress.IPv4Address(config.router.router_id))


STAGE = Speaker
