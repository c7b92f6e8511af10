"""The speaker's answers to questions about routes: what a neighbor announced, and what it was told.

Owns the form of the answers. Never holds the loop up: a long answer comes in pages, and a page looks at a bounded
number of rows, so it may have fewer routes than asked for and still not be the last.
"""

import ipaddress
from collections.abc import Callable
from typing import Any

import numpy as np

from common.bgp.attributes import describe_set
from common.bgp.constants import Family
from common.bgp.prefixes import Prefixes, text_at
from common.bus.control import ControlError, Handler, n_on_page, network_within
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.adj_rib_out import AdjRibOut, Member
from stages.speaker.neighbors import Neighbor

SCAN_ROWS = 1 << 16  # looked at for one page
_NO_ROWS = np.empty(0, np.uint32)


class Lookup:
    """The questions about routes."""

    def __init__(self, speaker, find_neighbor: Callable[[str], Neighbor]):
        self._speaker = speaker
        self._neighbor = find_neighbor

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers by question."""
        return {
            "received": lambda question: self._page(question, "received"),
            "advertised": lambda question: self._page(question, "advertised"),
            "prefixes": self._prefixes,
            "routes-of": self._of_prefixes,
            "lookup": self._lookup,
        }

    def _shown(self, name: Any, neighbor: Neighbor, family: Family) -> "_Received | _Advertised":
        """Return the table that is asked for: "received" or "advertised"."""
        if name == "received":
            return _Received(self._speaker, neighbor, family)
        if name == "advertised":
            return _Advertised(neighbor, family)
        raise ControlError(f"no table {name!r:.40}: received or advertised")

    def _page(self, question: dict, table: str) -> dict[str, Any]:
        """Return a page of a neighbor's routes; `after` is the `next` of the page before."""
        neighbor = self._neighbor(question["neighbor"])
        families = [Family.named(question["family"])] if question.get("family") else list(Family)
        label, first = question.get("after") or (families[0].label, 1)
        family = Family.named(label)
        shown = self._shown(table, neighbor, family)
        rows, following = shown.rows(int(first))
        n_routes = n_on_page(question.get("limit"), map(shown.size, rows.tolist()))
        if len(rows) > n_routes:
            rows, following = rows[:n_routes], int(rows[n_routes])
        routes = [shown.describe(row) for row in rows.tolist()]
        if following is not None:
            return {"routes": routes, "next": [family.label, following]}
        position = families.index(family) + 1
        return {"routes": routes, "next": [families[position].label, 1] if position < len(families) else None}

    def _prefixes(self, question: dict) -> dict[str, Any]:
        """{table, neighbor, family, within?, after?} -> {hi, lo, length, next}: the prefixes of a neighbor's routes.

        In no order, as many as there are among the rows of one slice; one of several paths is there several times.
        """
        family = Family.named(question["family"])
        shown = self._shown(question["table"], self._neighbor(question["neighbor"]), family)
        rows, following = shown.rows(max(int(question.get("after") or 1), 1))
        return shown.prefixes_of(rows).within(network_within(question, family.is_wide)).pack() | {"next": following}

    def _of_prefixes(self, question: dict) -> dict[str, Any]:
        """{table, neighbor, family, prefixes} -> {routes, places, next}: a neighbor's routes of some prefixes.

        `places` says for each route which of the prefixes it has, `next` how many were looked at if that is not all.
        """
        shown = self._shown(question["table"], self._neighbor(question["neighbor"]), Family.named(question["family"]))
        found = shown.find(Prefixes.unpack(question["prefixes"]))
        n_done = n_on_page(None, (sum(map(shown.size, rows)) for rows in found))
        told = [(shown.describe(row), place) for place, rows in enumerate(found[:n_done]) for row in rows]
        return {
            "routes": [route for route, _ in told],
            "places": [place for _, place in told],
            "next": n_done if n_done < len(found) else None,
        }

    def _lookup(self, question: dict) -> dict[str, Any]:
        """Return all routes received for one prefix, of all neighbors."""
        network = ipaddress.ip_network(question["prefix"])
        table = self._speaker.tables[Family.IPV6_UNICAST if network.version == 6 else Family.IPV4_UNICAST]
        sources = self._speaker.sources
        (row,) = table.prefixes.find(*Prefixes.of([network])).tolist()
        rows = table.routes.rows_of(row) if row else _NO_ROWS
        rows = rows[table.routes.attributes[rows] != 0]
        # With what policy needs to explain each: the octets of the set, and the source as on the bus.
        local, described = sources.localize(table.routes.source[rows])
        return {
            "prefix": str(network),
            "routes": [
                _describe_received(table, sources, row) | {"set": _received_set(table, row), "source": described[index]}
                for row, index in zip(rows.tolist(), local.tolist(), strict=True)
            ],
        }


class _Received:
    """What a neighbor announced in a family: rows are those of its routes in the Adj-RIB-In."""

    def __init__(self, speaker, neighbor: Neighbor, family: Family):
        self._table: AdjRibIn = speaker.tables[family]
        self._sources = speaker.sources
        self._numbers = self._sources.numbers(neighbor.name)

    def rows(self, first: int) -> tuple[np.ndarray, int | None]:
        """Return the neighbor's rows of one slice from `first`, and where the next slice begins."""
        routes = self._table.routes
        end = min(first + SCAN_ROWS, routes.row_limit)
        is_wanted = np.isin(routes.source[first:end], self._numbers) & (routes.attributes[first:end] != 0)
        rows = np.flatnonzero(is_wanted).astype(np.uint32) + np.uint32(first)
        return rows, end if end < routes.row_limit else None

    def prefixes_of(self, rows: np.ndarray) -> Prefixes:
        return Prefixes(*self._table.prefixes.columns_of(self._table.routes.prefix[rows]))

    def find(self, prefixes: Prefixes) -> list[list[int]]:
        """Return the neighbor's rows of each prefix."""
        routes = self._table.routes
        found = (routes.rows_of(row) if row else _NO_ROWS for row in self._table.prefixes.find(*prefixes).tolist())
        return [
            rows[np.isin(routes.source[rows], self._numbers) & (routes.attributes[rows] != 0)].tolist()
            for rows in found
        ]

    def size(self, row: int) -> int:
        return len(_received_set(self._table, row))

    def describe(self, row: int) -> dict[str, Any]:
        return _describe_received(self._table, self._sources, row)


class _Advertised:
    """What a neighbor was told in a family: rows are those of its group's Adj-RIB-Out."""

    def __init__(self, neighbor: Neighbor, family: Family):
        self._neighbor = neighbor
        self._family = family
        group, member = neighbor.members.get(family, (None, None))
        self._table: AdjRibOut | None = group and group.adj_rib_out
        self._member: Member | None = member
        self._as4 = group is not None and group.params["asn4"]

    def rows(self, first: int) -> tuple[np.ndarray, int | None]:
        """Return the rows told of one slice from `first`, and where the next slice begins."""
        if self._table is None:
            return _NO_ROWS, None
        n_rows = min(self._table.prefixes.row_limit, 8 * len(self._member.told))
        end = min(first + SCAN_ROWS, n_rows)
        first_octet = first // 8
        bits = np.unpackbits(self._member.told[first_octet : (end + 7) // 8], bitorder="little")
        rows = np.flatnonzero(bits).astype(np.uint32) + np.uint32(8 * first_octet)
        rows = rows[(rows >= first) & (rows < end)]
        # What is told but gone from the table waits to be withdrawn: its attributes are known no more.
        return rows[self._table.exports.sets[rows] != 0], end if end < n_rows else None

    def prefixes_of(self, rows: np.ndarray) -> Prefixes:
        if self._table is None:
            return Prefixes.of([])
        return Prefixes(*self._table.prefixes.columns_of(rows))

    def find(self, prefixes: Prefixes) -> list[list[int]]:
        """Return the row of each prefix that was told, as a list of one or none."""
        if self._table is None:
            return [[] for _ in prefixes.length]
        told, sets = self._member.told, self._table.exports.sets
        return [
            [row] if row and row < 8 * len(told) and told[row >> 3] >> (row & 7) & 1 and sets[row] else []
            for row in self._table.prefixes.find(*prefixes).tolist()
        ]

    def size(self, row: int) -> int:
        return len(self._set(row))

    def describe(self, row: int) -> dict[str, Any]:
        return {
            "prefix": text_at(self._table.prefixes, row, self._family.is_wide),
            "neighbor": self._neighbor.name,
            **describe_set(self._set(row), as4=self._as4),
        }

    def _set(self, row: int) -> bytes:
        return self._table.attributes.octets_of(int(self._table.exports.sets[row]))


def _describe_received(table: AdjRibIn, sources, row: int) -> dict[str, Any]:
    source = int(table.routes.source[row])
    return {
        "prefix": text_at(table.prefixes, int(table.routes.prefix[row]), table.family.is_wide),
        "neighbor": sources.name(source),
        "path_id": sources.path_id(source),
        **describe_set(_received_set(table, row)),
    }


def _received_set(table: AdjRibIn, row: int) -> bytes:
    """Return the attribute set of a route that was received."""
    return table.attributes.octets_of(int(table.routes.attributes[row]))
