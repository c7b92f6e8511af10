"""What one neighbor is told, as a channel for taps: "adj-rib-out/FAMILY/NEIGHBOR".

Owns nothing but the views that are open. Never holds anything back for a tap: one that falls behind gets a gap and a
new snapshot; when the session ends its taps are refused until it is up again.
"""

from weakref import WeakSet

import numpy as np

from common.bgp.constants import NONE
from common.bus.journal import JournalSource
from common.bus.schema import ExportChanges
from common.bus.server import Refused, Server
from common.bus.wire import Request
from stages.speaker.adj_rib_out import AdjRibOut, Member
from stages.speaker.neighbors import Neighbors

CHANNEL_PATTERN = "adj-rib-out/*/*"


class ToldSource(JournalSource):
    """One neighbor's view of its group's routes."""

    def __init__(self, adj_rib_out: AdjRibOut, member: Member, epoch: str):
        self.neighbor = member.name
        self._table = adj_rib_out
        self._own = member.own_source
        super().__init__(
            adj_rib_out.journal,
            ExportChanges,
            self._gather_told,
            lambda: adj_rib_out.prefixes.row_limit,
            epoch=epoch,
            gate=lambda: adj_rib_out.is_complete,
        )

    def _gather_told(self, rows: np.ndarray, is_snapshot: bool) -> tuple[dict[str, np.ndarray], dict]:
        table = self._table
        # The columns of the routes may be shorter than those of the prefixes for as long as nothing was written there.
        rows = rows[rows < len(table.exports.sets)]
        sets = table.exports.sets[rows]
        sets[table.exports.sources[rows] == self._own] = 0
        if is_snapshot:
            rows, sets = rows[sets != 0], sets[sets != 0]
        local, set_offset, set_octets = table.attributes.extract(sets)
        columns = {
            "hi": table.prefixes.hi(rows),
            "lo": table.prefixes.lo(rows) if table.family.is_wide else np.empty(0, np.uint64),
            "length": table.prefixes.length(rows),
            "set": local,
            "source": np.full(len(rows), NONE, np.uint32),
            "set_offset": set_offset,
            "set_octets": set_octets,
        }
        return columns, {"family": table.family.label, "sources": []}


class Taps:
    """The open views of all neighbors."""

    def __init__(self, server: Server, neighbors: Neighbors, epoch: str):
        self._server = server
        self._neighbors = neighbors
        self._epoch = epoch
        self._open_sources: WeakSet[ToldSource] = WeakSet()
        server.add(CHANNEL_PATTERN, self._open)

    def end(self, name: str) -> None:
        """End the views of a neighbor whose session is down."""
        for source in list(self._open_sources):
            if source.neighbor == name:
                self._open_sources.discard(source)
                self._server.refuse(source, f"the session with {name} is down")

    def _open(self, request: Request) -> ToldSource:
        _, label, name = request.channel.split("/")
        neighbor = self._neighbors.get(name)
        if neighbor is None:
            raise Refused(f"no neighbor {name!r:.80}")
        family = next((family for family in neighbor.members if family.label == label), None)
        if family is None:
            raise Refused(f"{name} is told nothing of {label:.40} now")
        group, member = neighbor.members[family]
        session_number = neighbor.peering.session.record.n_established
        source = ToldSource(group.adj_rib_out, member, f"{self._epoch}-{group.group}-{session_number}")
        self._open_sources.add(source)
        return source
