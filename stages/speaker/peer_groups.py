"""Peer groups: which sessions are told the same octets, and what the exporter has to know to make them.

Owns one Adj-RIB-Out with its follower for each (group, family). Sessions are in one group when their export
configuration is equal and so is all that the encoding depends on; the peers' AS numbers are not. Never packs an UPDATE.
"""

import hashlib
import ipaddress
from dataclasses import dataclass, field
from functools import partial

from common.bgp.capabilities import Negotiated
from common.bgp.constants import Family
from common.bus import channels
from common.bus.bus import Bus
from common.bus.follower import Follower
from common.config import Config
from common.config import Neighbor as NeighborConfig
from common.config.digest import policy_digest
from common.config.expected import expected_prefixes
from common.config.sharing import Share, worker_of
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer
from stages.speaker import sockets
from stages.speaker.adj_rib_out import AdjRibOut, Member
from stages.speaker.gathering import Gathering
from stages.speaker.neighbors import Neighbor
from stages.speaker.prefixes import SharedPrefixes

# A group without members is kept for this long, so that a session that flaps finds it filled.
KEEP_S = 60.0


@dataclass(slots=True, eq=False)
class PeerGroup:
    """One group's routes of one family, as they come from the exporters: a follower for each share of the prefixes.

    There is none where no routes are to come.
    """

    group: str
    params: dict
    adj_rib_out: AdjRibOut
    followers: list[Follower] = field(default_factory=list)
    leaving: Timer | None = None

    @property
    def lag(self) -> int:
        """Changes that were chosen and have not come; 0 while a whole table comes or nobody sends."""
        return sum(each.lag for each in self.followers if each.is_connected and not each.is_in_snapshot)


class PeerGroups:
    """All groups of this speaker."""

    def __init__(
        self,
        config: Config,
        instance: str,
        loop: Loop,
        bus: Bus,
        log: Log,
        seed: int,
        prefixes: dict[Family, SharedPrefixes],
    ):
        self.config = config
        self._instance = instance
        self._loop = loop
        self._bus = bus
        self._log = log
        self._seed = seed
        self._prefixes = prefixes
        self._ready: dict[Family, AdjRibOut] = {}
        self._groups: dict[tuple[str, Family], PeerGroup] = {}

    def prepare(self, family: Family) -> None:
        """Make the table of the first group of a family that is told anything: there is time before it has members."""
        self._ready[family] = self._table(family)

    def _table(self, family: Family) -> AdjRibOut:
        return AdjRibOut(family, self._seed, self._prefixes[family], expected_prefixes(self.config, family.label))

    def __iter__(self):
        return iter(list(self._groups.values()))

    def reload(self, config: Config) -> None:
        """Follow those who serve now. What ribs of other shares have told stays until the new ones have told theirs."""
        has_other_ribs = config.instances("rib") != self.config.instances("rib")
        self.config = config
        for group in self:
            if has_other_ribs and group.followers:
                for follower in group.followers:
                    follower.close()
                group.followers.clear()
                self._follow_ribs(group)
            for share, follower in enumerate(group.followers):
                self._bus.move(follower, "exporter", self._exporter_of(group, share))

    def join(
        self, neighbor: Neighbor, family: Family, negotiated: Negotiated, local_address: str
    ) -> tuple[PeerGroup, Member] | None:
        """Put a session into its group, making the group if it is the first; None if nothing can be told."""
        group = self.find(neighbor, family, negotiated, local_address)
        return None if group is None else (group, group.adj_rib_out.join(neighbor.name, negotiated.max_message_octets))

    def find(self, neighbor: Neighbor, family: Family, negotiated: Negotiated, local_address: str) -> PeerGroup | None:
        """Return the group a session belongs to now, made if there was none; None if nothing can be told."""
        next_hop = self._next_hop(neighbor.config, family, local_address)
        if next_hop is None:
            event(self._log, "no-next-hop", "warning", neighbor=neighbor.name, family=family.label)
            return None
        params = self._params(neighbor, negotiated, next_hop)
        key = (params["group"], family)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = self._make(params, family, neighbor.config)
        if group.leaving is not None:
            group.leaving.cancel()
            group.leaving = None
        return group

    def leave(self, group: PeerGroup, name: str) -> None:
        """Take a session out of its group; the last one leaves the group to be forgotten after a while."""
        group.adj_rib_out.leave(name)
        self.release(group, KEEP_S)

    def release(self, group: PeerGroup, after_s: float = 0.0) -> None:
        """Let a group that nobody needs be forgotten after a while."""
        if not group.adj_rib_out.members and group.leaving is None:
            group.leaving = self._loop.call_later(after_s, lambda: self._forget(group))

    def close(self) -> None:
        """Follow the exporter no longer."""
        for group in self:
            self._forget(group)

    def _forget(self, group: PeerGroup) -> None:
        for follower in group.followers:
            follower.close()
        group.adj_rib_out.close()
        self._groups.pop((group.group, group.adj_rib_out.family), None)

    def _make(self, params: dict, family: Family, neighbor: NeighborConfig) -> PeerGroup:
        if self.config.tells_nothing(neighbor):
            # An empty table is complete at once, and no stage has to send each change to somebody who drops it.
            empty = AdjRibOut(family, self._seed, self._prefixes[family], is_complete=True)
            return PeerGroup(params["group"], params, empty)
        adj_rib_out = self._ready.pop(family, None) or self._table(family)
        group = PeerGroup(params["group"], params, adj_rib_out)
        self._follow_ribs(group)
        return group

    def _follow_ribs(self, group: PeerGroup) -> None:
        """Have a group told each rib's share of the prefixes."""
        table, ribs = group.adj_rib_out, self.config.instances("rib")
        channel = channels.adj_rib_out(table.family.label)
        table.expect(len(ribs))
        gathering = Gathering(self._loop, table)
        for index, rib in enumerate(ribs):
            share = Share(index, len(ribs))
            params = group.params | ({"rib": rib} | share.params if ribs != ("0",) else {})
            exporter, handle = self._exporter_of(group, index), partial(gathering.handle, share=share)
            group.followers.append(self._bus.follow("exporter", exporter, channel, handle, params=params))

    def _exporter_of(self, group: PeerGroup, share: int) -> str:
        """Return the instance of the exporter that serves a stream."""
        number = int(group.group, 16)
        return worker_of(self.config.instances("exporter"), group.adj_rib_out.family.index, number, share)

    def _params(self, neighbor: Neighbor, negotiated: Negotiated, next_hop: bytes) -> dict:
        """Return what the exporter has to know of a group, with a name that is the same for equal groups only."""
        config = neighbor.config
        params = {
            "policy": policy_digest(config.export),
            "external": neighbor.is_external,
            "asn4": negotiated.as4,
            "local_asn": self.config.router.asn,
            "next_hop": next_hop,
            "rr_client": False,
            "view": "installed" if config.announce_after_install else "best",
        }
        text = repr((sorted(params.items()), self._instance))
        # The names are for people: who is told what does not depend on them.
        return {"group": hashlib.sha256(text.encode()).hexdigest()[:12], "neighbors": [neighbor.name], **params}

    def _next_hop(self, neighbor: NeighborConfig, family: Family, local_address: str) -> bytes | None:
        """Return our own address for a family on a session, which may run over the other one."""
        local = ipaddress.ip_address(local_address)
        if family.is_wide == (local.version == 6):
            return local.packed
        router = self.config.router
        if family.is_wide:
            text = neighbor.next_hop_ipv6 or router.next_hop_ipv6 or sockets.ipv6_beside(local_address)
            # RFC 4291 §2.5.5.2: nothing better is known; also what others tell in this case.
            return ipaddress.ip_address(text or f"::ffff:{local_address}").packed
        text = neighbor.next_hop_ipv4 or router.next_hop_ipv4 or sockets.ipv4_beside(local_address)
        return ipaddress.ip_address(text).packed if text else None
