"""The speaker's answers to questions about its neighbors; those about routes are in lookup.py.

Owns the form of the answers, and what an operator may do to a session. Never looks at a route.
"""

import ipaddress
from typing import Any

from common.bgp.constants import CeaseSubcode, MessageType
from common.bgp.session import NEVER
from common.bus.control import ControlError, Handler
from common.config.schema import ExportPolicy, ImportPolicy
from stages.speaker.limits import maximum_attribute_octets
from stages.speaker.lookup import Lookup
from stages.speaker.neighbors import Neighbor
from stages.speaker.standing import standing


class Questions:
    """The questions this stage answers."""

    def __init__(self, speaker):
        self._speaker = speaker

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by question."""
        return {
            "neighbors": lambda question: {"neighbors": [self._summary(each) for each in self._speaker.neighbors]},
            "neighbor": lambda question: self._details(self._neighbor(question["name"])),
            "neighbor-stop": self._stop,
            "neighbor-start": self._start,
            **Lookup(self._speaker, self._neighbor).handlers(),
        }

    def _neighbor(self, name: str) -> Neighbor:
        neighbor = self._speaker.neighbors.get(name)
        if neighbor is None:
            raise ControlError(f"no neighbor {name!r:.80}")
        return neighbor

    def _summary(self, neighbor: Neighbor) -> dict[str, Any]:
        record = neighbor.peering.session.record
        now = self._speaker.context.clock.monotonic()
        since = record.established_at if neighbor.is_established else record.ended_at
        reason, is_held, retry_s = standing(neighbor, now)
        return {
            "name": neighbor.name,
            "address": neighbor.config.address,
            "asn": neighbor.config.asn,
            "state": record.state.label,
            "since_s": None if since is None else round(now - since, 3),
            "families": [family.label for family in neighbor.families],
            "n_received": self._speaker.limits.n_routes(neighbor),
            "n_advertised": self._speaker.n_advertised(neighbor),
            "reason": reason,
            "is_held": is_held,
            "retry_s": retry_s,
            "last_error": "; since then: ".join(filter(None, (record.last_error, record.call_error))),
        }

    def _details(self, neighbor: Neighbor) -> dict[str, Any]:
        peering = neighbor.peering
        record, connection = peering.session.record, peering.connection
        now = self._speaker.context.clock.monotonic()
        peer = record.peer_open
        return {
            **self._summary(neighbor),
            "description": neighbor.config.description,
            "external": neighbor.is_external,
            "passive": neighbor.config.passive,
            "import": _policy(neighbor.config.import_, neighbor.is_external),
            "export": _policy(neighbor.config.export, neighbor.is_external),
            "local_address": connection.local if connection is not None else neighbor.config.local_address,
            "router_id": str(ipaddress.IPv4Address(peer.router_id)) if peer is not None else None,
            "hold_time_s": record.hold_time_s if record.negotiated is not None else neighbor.config.hold_time_s,
            "hold_left_s": None if record.hold_at == NEVER else round(record.hold_at - now, 3),
            "capabilities": record.negotiated.words() if record.negotiated is not None else [],
            "n_established": record.n_established,
            "n_octets_received": peering.n_octets_received + (connection.n_received if connection else 0),
            "n_octets_sent": peering.n_octets_sent + (connection.n_sent if connection else 0),
            "n_octets_queued": connection.n_queued if connection is not None else 0,
            "n_treated_as_withdraw": neighbor.n_treated_as_withdraw,
            "n_attributes_discarded": neighbor.n_attributes_discarded,
            "maximum_prefixes": neighbor.config.maximum_prefixes,
            "n_attribute_octets": self._speaker.limits.count_octets(neighbor),
            "maximum_attribute_octets": maximum_attribute_octets(neighbor.config),
            "messages_received": {kind.name: record.received[kind] for kind in MessageType},
            "messages_sent": {kind.name: record.sent[kind] for kind in MessageType},
            "tables": {
                family.label: {
                    "group": group.group,
                    "n_told": member.n_told,
                    "n_updates": member.n_updates,
                    "n_too_long": member.n_too_long,
                    "lag": group.adj_rib_out.journal.head - member.sequence,
                    "in_step": group.adj_rib_out.is_in_step(member),
                    "end_of_rib_received": neighbor.source in self._speaker.ended[family],
                    "end_of_rib_sent": member.end_of_rib_after is None,
                }
                for family, (group, member) in neighbor.members.items()
            },
        }

    def _stop(self, question: dict) -> dict:
        """{name, text?: what the neighbor is told, by?: who stops it, and why}"""
        neighbor, text = self._neighbor(question["name"]), str(question.get("text", ""))
        self._speaker.neighbors.stop(neighbor, CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, text)
        neighbor.held_back_by = ""
        neighbor.stopped_by = str(question.get("by") or "an operator" + (f": {text}" if text else ""))
        return {}

    def _start(self, question: dict) -> dict:
        self._speaker.neighbors.start(self._neighbor(question["name"]))
        return {}


def _policy(block: ImportPolicy | ExportPolicy | None, is_external: bool) -> str:
    """Return what a policy does with a route that nothing else is said of."""
    return block.default if block is not None else "none (RFC 8212)" if is_external else "accept"
