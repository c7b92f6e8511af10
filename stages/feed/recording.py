"""Recordings of a tap as sources: the lines that `headrace tap adj-rib-in --json` or `loc-rib --json` wrote.

Owns the open file. Made for recordings a person keeps: one line is one route, and read as such.
"""

import ipaddress
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.bgp.attributes import encode_set
from common.bgp.constants import NONE, Family, WellKnownCommunity
from common.config.keys import COMMUNITY, LARGE_COMMUNITY
from common.kernels import mrt
from stages.feed.mrt import HOW, PIECE_ROUTES
from stages.feed.source import next_hops
from stages.feed.synthetic import Table
from stages.feed.unpack import FileError, lines

NO_SET = b""
WRONG = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError)


@dataclass(slots=True)
class RecordedTap:
    """What one neighbor (empty: all) announced, as a tap saw it, with the AS number and next hop of a plan."""

    path: Path
    peer: str = ""
    first_as: str = "replace"

    def tables(self, plan) -> Iterator[Table]:
        """Give the routes piece by piece, in the order of the recording; each prefix once in each piece."""
        hops = next_hops(plan)
        rows: dict[Family, dict] = {family: {} for family in plan.families}
        is_empty = True
        for number, line in lines(self.path):
            route = self._route(number, line)
            is_empty &= route is None
            if route is None or route[0] not in rows:
                continue
            family, prefix, octets = route
            rows[family][prefix] = octets
            if len(rows[family]) >= PIECE_ROUTES:
                yield self._table(plan, family, hops[family], rows[family])
                rows[family] = {}
        if is_empty:
            raise FileError(f"{self.path}: holds no routes{f' of a neighbor {self.peer}' if self.peer else ''}")
        for family, each in rows.items():
            if each:
                yield self._table(plan, family, hops[family], each)

    def _route(self, number: int, line: str):
        """Return (family, (address, length), set octets; none: gone) of a line; None for a mark or another's route."""
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise TypeError("expected { and }")
            if "prefix" not in row or (self.peer and row.get("neighbor") != self.peer):
                return None
            network = ipaddress.ip_network(str(row["prefix"]))
            octets = NO_SET if row.get("is_gone") else _set_of(row)
        except WRONG as error:
            raise FileError(f"{self.path}: line {number} is no line of `headrace tap --json`: {error}") from None
        family = Family.IPV6_UNICAST if network.version == 6 else Family.IPV4_UNICAST
        return family, (int(network.network_address), network.prefixlen), octets

    def _table(self, plan, family: Family, hop: bytes, rows: dict) -> Table:
        numbers = {octets: number for number, octets in enumerate(dict.fromkeys(rows.values()).keys() - {NO_SET})}
        order = sorted(rows.items(), key=lambda row: numbers.get(row[1], NONE))
        shift = 0 if family.is_wide else 96
        addresses = [address << shift for (address, _), _ in order]
        offset = np.cumsum([0, *map(len, numbers)]).astype(np.uint32)
        octets = np.frombuffer(b"".join(numbers), np.uint8)
        return Table(
            family,
            np.array([address >> 64 for address in addresses], np.uint64),
            np.array([address & (1 << 64) - 1 for address in addresses] if family.is_wide else [], np.uint64),
            np.array([length for (_, length), _ in order], np.uint8),
            np.array([numbers.get(each, NONE) for _, each in order], np.uint32),
            *mrt.rewrite_sets(offset, octets, hop, plan.asn, HOW[self.first_as]),
        )


def _set_of(row: dict) -> bytes:
    """Return the attribute set a line describes (see `common.bgp.attributes.describe_set`)."""
    path = []
    for word in str(row.get("as_path") or "").replace("{", " {").split():
        path.append({int(each) for each in word[1:-1].split(",")} if word[0] + word[-1] == "{}" else int(word))
    communities = tuple(map(_community, row.get("communities", ())))
    large = tuple(map(LARGE_COMMUNITY.parse, row.get("large_communities", ())))
    origin = {"IGP": 0, "EGP": 1}.get(str(row.get("origin", "IGP")).upper(), 2)
    return encode_set(
        as_path=path, origin=origin, next_hop=b"", med=row.get("med"), communities=communities, large_communities=large
    )


def _community(text: str) -> int:
    """Return the value of a community as `format_community` writes it."""
    name = text.upper().replace("-", "_")
    if name in WellKnownCommunity.__members__:
        return int(WellKnownCommunity[name])
    high, low = COMMUNITY.parse(text)
    return high << 16 | low
