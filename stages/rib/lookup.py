"""The rib's answers to questions: one prefix with all its candidates, and the chosen routes page by page.

Owns the form of the answers. Never holds the loop up: a page looks at a bounded number of rows, so it may have fewer
routes than asked for and still not be the last.
"""

from collections import Counter
from ipaddress import ip_network
from typing import Any

import numpy as np

from common.bgp.attributes import describe_set
from common.bgp.constants import Family
from common.bgp.decision import CHOSEN_WORDS, LOST_WORDS, Step
from common.bgp.prefixes import Network, Prefixes, covering, text_at
from common.bus.control import ControlError, n_on_page, network_within
from stages.rib.loc_rib import LocRib

# Rows looked at for one page.
SCAN_ROWS = 1 << 16


class Lookup:
    """Answers from the tables of all families."""

    def __init__(self, loc_ribs: dict[Family, LocRib]):
        self._loc_ribs = loc_ribs

    def accepted(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return how many candidates there are of each neighbor: {} -> {neighbors: {name: count}}."""
        totals: Counter[str] = Counter()
        for table in self._loc_ribs.values():
            counts = table.routes.n_by_source
            for number, name in enumerate(table.sources.neighbors()[: len(counts)]):
                totals[name] += int(counts[number])
        del totals[""]
        return {"neighbors": dict(totals)}

    def route(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return all candidates for a prefix, or for the longest prefix that covers an address.

        Each has why it was chosen or in which step it lost.
        """
        network, is_address = _network(question.get("prefix"))
        table = self._loc_ribs[Family.IPV4_UNICAST if network.version == 4 else Family.IPV6_UNICAST]
        row = _find(table, network, is_address)
        if not row:
            return {"prefix": str(network), "candidates": [], "reason": CHOSEN_WORDS[Step.NONE]}
        rows, lost, decided = table.explain(row)
        return {
            "prefix": text_at(table.prefixes, row, table.family.is_wide),
            "candidates": [
                {
                    **_describe(table, candidate),
                    "is_chosen": step == Step.NONE,
                    "step": Step(decided if step == Step.NONE else step).name.lower(),
                    "why": CHOSEN_WORDS[Step(decided)] if step == Step.NONE else LOST_WORDS[Step(step)],
                    "metric": table.metric_of(candidate),
                }
                for candidate, step in zip(rows.tolist(), lost.tolist(), strict=True)
            ],
            "reason": CHOSEN_WORDS[Step(decided)],
        }

    def routes(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return a page of chosen routes: {family?, after?, limit?} -> {routes, next}; `next` is None at the end."""
        families = [Family.named(question["family"])] if question.get("family") else list(self._loc_ribs)
        label, first = question.get("after") or (families[0].label, 1)
        family = Family.named(label)
        if family not in families:
            raise ControlError(f"{label:.40} is not asked for")
        table = self._loc_ribs[family]
        rows, following = _chosen_rows(table, max(int(first), 1), question.get("limit"))
        routes = [self._chosen(table, row) for row in rows.tolist()]
        if following is not None:
            return {"routes": routes, "next": [family.label, following]}
        position = families.index(family) + 1
        return {"routes": routes, "next": [families[position].label, 1] if position < len(families) else None}

    def prefixes(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return which prefixes have a chosen path: {family, within?, after?} -> {hi, lo, length, next}.

        In no order, as many as there are among the rows of one slice; see Prefixes.pack for the form.
        """
        table = self._loc_ribs[Family.named(question["family"])]
        first = max(int(question.get("after") or 1), 1)
        end = min(first + SCAN_ROWS, table.prefixes.row_limit)
        rows = first + np.flatnonzero(table.decision.best[first:end])
        found = Prefixes(*table.prefixes.columns_of(rows.astype(np.uint32)))
        found = found.within(network_within(question, table.family.is_wide))
        return found.pack() | {"next": end if end < table.prefixes.row_limit else None}

    def of_prefixes(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the chosen routes of some prefixes: {family, prefixes} -> {routes, places, next}.

        `places` says for each route which of the prefixes it has, `next` how many were looked at if that is not all.
        """
        table = self._loc_ribs[Family.named(question["family"])]
        rows = table.prefixes.find(*Prefixes.unpack(question["prefixes"]))
        best = table.decision.best.take(rows)
        n_done = n_on_page(None, (len(_octets(table, path)) if path else 0 for path in best.tolist()))
        places = np.flatnonzero(best[:n_done])
        return {
            "routes": [self._chosen(table, row) for row in rows[places].tolist()],
            "places": places.tolist(),
            "next": n_done if n_done < len(rows) else None,
        }

    def _chosen(self, table: LocRib, row: int) -> dict[str, Any]:
        return {
            "prefix": text_at(table.prefixes, row, table.family.is_wide),
            **_describe(table, int(table.decision.best[row])),
            "why": CHOSEN_WORDS[Step(int(table.decision.reason[row]))],
        }


def _network(text: Any) -> tuple[Network, bool]:
    try:
        return ip_network(text, strict=False), "/" not in text
    except (TypeError, ValueError) as error:
        raise ControlError(f"not a prefix: {text!r:.80}") from error


def _find(table: LocRib, network: Network, is_address: bool) -> int:
    """Return the row of a prefix, or of the longest one with a chosen path that covers an address; 0 for none."""
    rows = table.prefixes.find(*Prefixes.of(reversed(covering(network)) if is_address else [network]))
    rows = rows[table.decision.best[rows] != 0] if is_address else rows[rows != 0]
    return int(rows[0]) if len(rows) else 0


def _chosen_rows(table: LocRib, first: int, n_wanted: Any) -> tuple[np.ndarray, int | None]:
    """Return prefix rows from `first` that have a chosen path, as many as go on a page, and where to look on."""
    end = min(first + SCAN_ROWS, table.prefixes.row_limit)
    rows = first + np.flatnonzero(table.decision.best[first:end])
    n_routes = n_on_page(n_wanted, (len(_octets(table, int(table.decision.best[row]))) for row in rows))
    if len(rows) > n_routes:
        return rows[:n_routes], int(rows[n_routes])
    return rows, end if end < table.prefixes.row_limit else None


def _describe(table: LocRib, row: int) -> dict[str, Any]:
    source = table.sources.meta(int(table.routes.source[row]))
    return {
        "neighbor": source["name"],
        "asn": source["asn"],
        "path_id": source["path_id"],
        **describe_set(_octets(table, row)),
    }


def _octets(table: LocRib, row: int) -> bytes:
    """Return the attribute set of a route."""
    return table.attributes.octets_of(int(table.routes.attributes[row]))
