"""Sources: where the tables come from that neighbors announce. Each can be read again and again, piece by piece.

Owns no table: a source gives pieces (`Table`) one after the other, and the same each time for the same neighbor.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from common.bgp.constants import Family
from stages.feed import synthetic
from stages.feed.synthetic import Table

FULL_TABLE = {Family.IPV4_UNICAST: 1_000_000, Family.IPV6_UNICAST: 230_000}


@runtime_checkable
class Source(Protocol):
    """What a neighbor announces."""

    def tables(self, plan) -> Iterator[Table]:
        """Give the pieces of a neighbor's table, with its own AS number and next hop in their attribute sets."""


@dataclass(slots=True)
class Ready:
    """Tables that are there already."""

    pieces: list[Table] = field(default_factory=list)

    def tables(self, plan) -> Iterator[Table]:
        yield from self.pieces


@dataclass(slots=True)
class Synthetic:
    """A synthetic table; see `synthetic.stream`."""

    size: int = sum(FULL_TABLE.values())
    seed: int = 1
    variant: int = 0
    pool: int = 0  # of how many prefixes the table is a choice; 0: it has all

    def tables(self, plan) -> Iterator[Table]:
        hops = next_hops(plan)
        sizes, pools = shared_out(self.size, plan.families), shared_out(self.pool, plan.families)
        for family, count in sizes.items():
            yield from synthetic.stream(
                family, count, seed=self.seed, asn=plan.asn, next_hop=hops[family], variant=self.variant,
                pool=pools.get(family, 0),
            )  # fmt: skip


@dataclass(slots=True)
class PrefixList:
    """The prefixes of a list file, with synthetic attributes."""

    path: Path
    limit: int | None = None
    seed: int = 1
    variant: int = 0
    _columns: dict | None = None

    def tables(self, plan) -> Iterator[Table]:
        if self._columns is None:
            self._columns = synthetic.load_prefixes(self.path, self.limit)
        hops = next_hops(plan)
        for family, columns in self._columns.items():
            if family in plan.families:
                yield synthetic.with_paths(
                    family, *columns, seed=self.seed, asn=plan.asn, next_hop=hops[family], variant=self.variant
                )


def shared_out(size: int, families=tuple(FULL_TABLE)) -> dict[Family, int]:
    """Share `size` prefixes out over these families as in a full table."""
    chosen = [family for family in FULL_TABLE if family in families]
    total = sum(FULL_TABLE[family] for family in chosen)
    counts = {family: size * FULL_TABLE[family] // total for family in chosen}
    if chosen:
        counts[chosen[0]] += size - sum(counts.values())
    return {family: count for family, count in counts.items() if count}


def next_hops(plan) -> dict[Family, bytes]:
    """Return the next hop a neighbor gives for each family: what its plan says, or its address.

    Without either, a neighbor at an IPv4 address gives for IPv6 fd77:: with the last octet of that address, and one at
    an IPv6 address gives for IPv4 198.51.100.(last octet).
    """
    own = ipaddress.ip_address(plan.address)
    last = own.packed[-1]
    ipv4 = plan.next_hop or (str(own) if own.version == 4 else f"198.51.100.{last}")
    ipv6 = plan.next_hop_6 or (str(own) if own.version == 6 else f"fd77::{last:x}")
    return {
        Family.IPV4_UNICAST: ipaddress.IPv4Address(ipv4).packed,
        Family.IPV6_UNICAST: ipaddress.IPv6Address(ipv6).packed,
    }
