"""The speaker's answers to questions: neighbors, what was received, what was told.

Owns the form of the answers. Never holds the loop up: a long answer comes in pages, and a page looks at a bounded
number of rows, so it may have fewer routes than asked for and still not be the last.
"""

import ipaddress
from typing import Any

import numpy as np

from common.bgp.attributes import describe_set
from common.bgp.constants import CeaseSubcode, Family, MessageType
from common.bgp.session import NEVER
from common.bus.control import ControlError, Handler, n_on_page
from common.config.schema import ExportPolicy, ImportPolicy
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.adj_rib_out import AdjRibOut
from stages.speaker.limits import maximum_attribute_octets
from stages.speaker.neighbors import Neighbor
from stages.speaker.origination import halves
from stages.speaker.standing import standing

# Rows looked at for one page.
SCAN_ROWS = 1 << 16


class Questions:
    """The questions this stage answers."""

    def __init__(self, speaker):
        self._speaker = speaker

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by question."""
        return {
            "neighbors": lambda question: {"neighbors": [self._summary(each) for each in self._speaker.neighbors]},
            "neighbor": lambda question: self._details(self._neighbor(question["name"])),
            "received": lambda question: self._page(question, self._received),
            "advertised": lambda question: self._page(question, self._advertised),
            "lookup": self._lookup,
            "neighbor-stop": self._stop,
            "neighbor-start": self._start,
        }

    # ---- neighbors --------------------------------------------------------------------------------------------------

    def _neighbor(self, name: str) -> Neighbor:
        neighbor = self._speaker.neighbors.get(name)
        if neighbor is None:
            raise ControlError(f"no neighbor {name!r:.80}")
        return neighbor

    def _summary(self, neighbor: Neighbor) -> dict[str, Any]:
        record = neighbor.peering.session.record
        now = self._speaker.context.clock.monotonic()
        since = record.established_at if neighbor.is_established else record.ended_at
        reason, retry_s = standing(neighbor, now)
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

    # ---- routes -----------------------------------------------------------------------------------------------------

    def _page(self, question: dict, find) -> dict[str, Any]:
        """Return a page of a neighbor's routes; `after` is the `next` of the page before."""
        neighbor = self._neighbor(question["neighbor"])
        families = [Family.named(question["family"])] if question.get("family") else list(Family)
        label, row = question.get("after") or (families[0].label, 1)
        family = Family.named(label)
        within = _network(question.get("prefix"))
        routes, following = find(neighbor, family, int(row), question.get("limit"), within)
        if following is not None:
            return {"routes": routes, "next": [family.label, following]}
        position = families.index(family) + 1
        return {"routes": routes, "next": [families[position].label, 1] if position < len(families) else None}

    def _received(self, neighbor: Neighbor, family: Family, first: int, n_wanted, within):
        table = self._speaker.tables[family]
        end = min(first + SCAN_ROWS, table.routes.row_limit)
        numbers = self._speaker.sources.numbers(neighbor.name)
        is_wanted = np.isin(table.routes.source[first:end], numbers) & (table.routes.attributes[first:end] != 0)
        rows = np.flatnonzero(is_wanted).astype(np.uint32) + np.uint32(first)
        rows = _keep_within(rows, table.routes.prefix[rows], table.prefixes, family, within)
        following = end if end < table.routes.row_limit else None
        n_routes = n_on_page(n_wanted, (len(_received_set(table, row)) for row in rows.tolist()))
        if len(rows) > n_routes:
            rows, following = rows[:n_routes], int(rows[n_routes])
        return self._describe_received(table, rows), following

    def _describe_received(self, table: AdjRibIn, rows: np.ndarray) -> list[dict[str, Any]]:
        described = []
        for row in rows.tolist():
            source = int(table.routes.source[row])
            described.append(
                {
                    "prefix": _prefix(table.prefixes, int(table.routes.prefix[row]), table.family),
                    "neighbor": self._speaker.sources.name(source),
                    "path_id": self._speaker.sources.path_id(source),
                    **describe_set(_received_set(table, row)),
                }
            )
        return described

    def _advertised(self, neighbor: Neighbor, family: Family, first: int, n_wanted, within):
        if family not in neighbor.members:
            return [], None
        group, member = neighbor.members[family]
        table = group.adj_rib_out
        n_rows = min(table.prefixes.row_limit, 8 * len(member.told))
        end = min(first + SCAN_ROWS, n_rows)
        first_octet = first // 8
        bits = np.unpackbits(member.told[first_octet : (end + 7) // 8], bitorder="little")
        rows = np.flatnonzero(bits).astype(np.uint32) + np.uint32(8 * first_octet)
        rows = rows[(rows >= first) & (rows < end)]
        # What is told but gone from the table waits to be withdrawn: its attributes are known no more.
        rows = rows[table.exports.sets[rows] != 0]
        rows = _keep_within(rows, rows, table.prefixes, family, within)
        following = end if end < n_rows else None
        n_routes = n_on_page(n_wanted, (len(_told_set(table, row)) for row in rows.tolist()))
        if len(rows) > n_routes:
            rows, following = rows[:n_routes], int(rows[n_routes])
        as4 = group.params["asn4"]
        return [
            {
                "prefix": _prefix(table.prefixes, row, family),
                "neighbor": neighbor.name,
                **describe_set(_told_set(table, row), as4=as4),
            }
            for row in rows.tolist()
        ], following

    def _lookup(self, question: dict) -> dict[str, Any]:
        """Return all routes received for one prefix."""
        network = _network(question["prefix"])
        family = Family.IPV6_UNICAST if network.version == 6 else Family.IPV4_UNICAST
        table = self._speaker.tables[family]
        high, low = halves([int(network.network_address)], family)
        row = int(table.prefixes.find(high, low, np.array([network.prefixlen], np.uint8))[0])
        rows = table.routes.rows_of(row) if row else np.empty(0, np.uint32)
        rows = rows[table.routes.attributes[rows] != 0]
        # With what policy needs to explain each: the octets of the set, and the source as on the bus.
        local, sources = self._speaker.sources.localize(table.routes.source[rows])
        sets = [table.attributes.octets_of(number) for number in table.routes.attributes[rows].tolist()]
        raw = [{"set": octets, "source": sources[index]} for octets, index in zip(sets, local.tolist(), strict=True)]
        described = self._describe_received(table, rows)
        return {"prefix": str(network), "routes": [one | more for one, more in zip(described, raw, strict=True)]}


def _policy(block: ImportPolicy | ExportPolicy | None, is_external: bool) -> str:
    """Return what a policy does with a route that nothing else is said of."""
    return block.default if block is not None else "none (RFC 8212)" if is_external else "accept"


def _received_set(table: AdjRibIn, row: int) -> bytes:
    """Return the attribute set of a route that was received."""
    return table.attributes.octets_of(int(table.routes.attributes[row]))


def _told_set(table: AdjRibOut, row: int) -> bytes:
    """Return the attribute set with which a prefix is told."""
    return table.attributes.octets_of(int(table.exports.sets[row]))


def _network(text: str | None):
    return None if text is None else ipaddress.ip_network(text)


def _keep_within(rows: np.ndarray, prefix_rows: np.ndarray, prefixes, family: Family, within) -> np.ndarray:
    """Return those of `rows` whose prefix is `within` or more specific."""
    if within is None:
        return rows
    if (within.version == 6) != family.is_wide:
        return rows[:0]
    high, low = halves([int(within.network_address)], family)
    n_high = min(within.prefixlen, 64)
    high_mask = np.uint64(((1 << n_high) - 1) << (64 - n_high))
    is_within = (prefixes.hi(prefix_rows) & high_mask) == high[0]
    is_within &= prefixes.length(prefix_rows) >= within.prefixlen
    if within.prefixlen > 64:
        n_low = within.prefixlen - 64
        low_mask = np.uint64(((1 << n_low) - 1) << (64 - n_low))
        is_within &= (prefixes.lo(prefix_rows) & low_mask) == low[0]
    return rows[is_within]


def _prefix(prefixes, row: int, family: Family) -> str:
    """Return a prefix of a table as text."""
    one = np.array([row], np.uint32)
    high, length = int(prefixes.hi(one)[0]), int(prefixes.length(one)[0])
    if not family.is_wide:
        return f"{ipaddress.IPv4Address(high >> 32)}/{length}"
    return f"{ipaddress.IPv6Address(high << 64 | int(prefixes.lo(one)[0]))}/{length}"
