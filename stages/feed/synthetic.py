"""Synthetic Internet tables: prefixes and attribute sets with the proportions of the real table, from a seed.

Works on whole columns, a piece of the table at a time; what runs once a prefix is compiled
(common/kernels/synthesis.py). Lengths follow the full tables of early 2023 (IPv4: 60 % are
/24; IPv6: half are /48); neighboring prefixes share an attribute set, about five on average, as those of one origin do.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from common.bgp.constants import Family
from common.kernels.synthesis import PrefixMaker, SetMaker
from stages.feed.unpack import FileError, lines

IPV4_LENGTHS = {
    24: 0.597, 23: 0.107, 22: 0.1203, 21: 0.0563, 20: 0.0473, 19: 0.0276, 18: 0.0153, 17: 0.0092, 16: 0.015,
    15: 0.0021, 14: 0.0013, 13: 0.0006, 12: 0.0002, 11: 0.0001,
}  # fmt: skip
IPV6_LENGTHS = {
    48: 0.4728, 32: 0.1409, 44: 0.0897, 40: 0.0838, 47: 0.03, 46: 0.03, 45: 0.02, 42: 0.02, 36: 0.03, 29: 0.03,
    33: 0.015, 34: 0.0125, 35: 0.0125, 38: 0.0128,
}  # fmt: skip
PATH_LENGTHS = {1: 0.01, 2: 0.09, 3: 0.27, 4: 0.29, 5: 0.18, 6: 0.09, 7: 0.04, 8: 0.02, 10: 0.01}
PREFIXES_PER_SET = 5.1
PIECE_PREFIXES = 65536


@dataclass(slots=True)
class Table:
    """What one neighbor announces of one family: rows ordered by attribute set, sets in the bus's form.

    `hi`, `lo` (uint64; `lo` empty for IPv4) and `length` (uint8) are the prefixes, `set` (uint32) the set of each;
    `set_offset` (uint32, one more than sets) and `set_octets` (uint8) the sets (ARCHITECTURE.md, "Attribute sets").
    """

    family: Family
    hi: np.ndarray
    lo: np.ndarray
    length: np.ndarray
    set: np.ndarray
    set_offset: np.ndarray
    set_octets: np.ndarray

    @property
    def n_prefixes(self) -> int:
        return len(self.hi)

    @property
    def n_sets(self) -> int:
        return len(self.set_offset) - 1

    def chosen(self, rows: np.ndarray) -> "Table":
        """Return the table with these rows only (a mask, or row numbers), and all its sets."""
        lo = self.lo[rows] if self.family.is_wide else self.lo
        return Table(
            self.family, self.hi[rows], lo, self.length[rows], self.set[rows], self.set_offset, self.set_octets
        )


def synthesize(family: Family, n_prefixes: int, *, seed: int, asn: int, next_hop: bytes, variant: int = 0) -> Table:
    """Make the table of a neighbor with AS number `asn` in one piece.

    Tables of one seed have the same prefixes and the same grouping; `variant` gives each neighbor paths of its own.
    """
    pieces = stream(family, n_prefixes, seed=seed, asn=asn, next_hop=next_hop, variant=variant, piece=n_prefixes)
    return next(pieces, None) or empty_table(family)


def stream(
    family: Family, n_prefixes: int, *, seed: int, asn: int, next_hop: bytes, variant: int = 0, pool: int = 0,
    piece: int = PIECE_PREFIXES,
) -> Iterator[Table]:  # fmt: skip
    """Make the table of a neighbor piece by piece; memory is that of one piece.

    pool: the table is a choice of its own of about `n_prefixes` among this many, so tables of several variants overlap
    by the share n_prefixes / pool; 0: all tables of a seed have all prefixes.
    """
    share = min(65536, max(1, round(65536 * n_prefixes / pool))) if pool else 65536
    prefixes = _prefix_maker(family, seed, share, variant)
    sets = set_maker(family, seed, asn, next_hop, variant)
    n_left = n_prefixes
    while n_left:
        hi, length, numbers, n_sets = prefixes.make(min(piece, n_left), pool or 1 << 60)
        if not len(hi):
            return
        n_left -= len(hi)
        lo = np.zeros(len(hi) if family.is_wide else 0, np.uint64)
        yield Table(family, hi, lo, length, numbers, *sets.make(n_sets))


def empty_table(family: Family) -> Table:
    """Return a table without a prefix."""
    nothing = np.empty(0, np.uint64)
    return Table(
        family, nothing, nothing, np.empty(0, np.uint8), np.empty(0, np.uint32), np.zeros(1, np.uint32),
        np.empty(0, np.uint8),
    )  # fmt: skip


def _prefix_maker(family: Family, seed: int, share: int = 65536, variant: int = 0) -> PrefixMaker:
    chance = round(65536 / PREFIXES_PER_SET)
    return PrefixMaker(family.is_wide, seed * 2 + family.index, _lengths(family.is_wide), chance, share, variant)


def set_maker(family: Family, seed: int, asn: int, next_hop: bytes, variant: int) -> SetMaker:
    """Return what makes the attribute sets of one neighbor."""
    own = (seed * 1_000_003 + variant) * 2 + family.index
    return SetMaker(own, asn, next_hop, _path_lengths(), _as_numbers(seed))


# What all neighbors of a load have in common is made once.


@cache
def _lengths(is_wide: bool) -> np.ndarray:
    return _drawn_from(IPV6_LENGTHS if is_wide else IPV4_LENGTHS, 65536)


@cache
def _path_lengths() -> np.ndarray:
    return _drawn_from(PATH_LENGTHS, 256)


@cache
def _as_numbers(seed: int) -> np.ndarray:
    """Return the AS numbers that paths are made of."""
    rng = np.random.default_rng([seed, 3])
    pool = np.concatenate([rng.integers(1, 23456, 20000), rng.integers(24000, 64000, 20000)])
    return np.concatenate([pool, rng.integers(131072, 400000, 35000)]).astype(np.uint32)


def _drawn_from(shares: dict[int, float], n: int) -> np.ndarray:
    """Return `n` values in which each occurs as often as its share says."""
    ends = np.round(np.cumsum(list(shares.values())) / sum(shares.values()) * n).astype(int)
    return np.repeat(np.array(list(shares), np.uint8), np.diff(ends, prepend=0))


def load_prefixes(path: Path, limit: int | None = None) -> dict[Family, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Read a list with one prefix a line (what follows the prefix is ignored; plain or packed).

    Raises FileError naming file and line for what is not a prefix.
    """
    rows: dict[Family, list] = {family: [] for family in Family}
    n_read = 0
    for number, line in lines(path):
        words = line.split()
        if not words or words[0][0] in ";#":
            continue
        try:
            network = ipaddress.ip_network(words[0])
        except ValueError as error:
            raise FileError(f"{path}: line {number}: {error}: expected a prefix such as 192.0.2.0/24") from None
        family = Family.IPV6_UNICAST if network.version == 6 else Family.IPV4_UNICAST
        shift = 0 if network.version == 6 else 96
        rows[family].append((int(network.network_address) << shift, network.prefixlen))
        n_read += 1
        if n_read == limit:
            break
    if not n_read:
        raise FileError(f"{path}: holds no prefix")
    return {family: _columns(family, items) for family, items in rows.items() if items}


def _columns(family: Family, items: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hi = np.array([address >> 64 for address, _ in items], np.uint64)
    lo = np.array([address & 0xFFFFFFFFFFFFFFFF for address, _ in items] if family.is_wide else [], np.uint64)
    return hi, lo, np.array([length for _, length in items], np.uint8)


def make_prefixes(family: Family, n_prefixes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct prefixes in ascending order as columns (hi, lo, length)."""
    hi, length, _, _ = _prefix_maker(family, seed).make(n_prefixes, 1 << 60)
    order = np.lexsort((length, hi))
    return hi[order], np.zeros(n_prefixes if family.is_wide else 0, np.uint64), length[order]


def with_paths(
    family: Family, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, *, seed: int, asn: int, next_hop: bytes,
    variant: int = 0,
) -> Table:  # fmt: skip
    """Give attribute sets to prefixes: runs of adjacent prefixes share one, and the sets come in random order."""
    n = len(hi)
    grouping = np.random.default_rng([seed, int(family.afi), 1])
    starts = np.zeros(n, bool)
    starts[0:1] = True
    starts[1:] = grouping.random(max(n - 1, 0)) < 1 / PREFIXES_PER_SET
    run = np.cumsum(starts) - 1
    n_sets = int(run[-1]) + 1 if n else 0
    order = grouping.permutation(n_sets)
    rank = order[run]
    rows = np.argsort(rank, kind="stable")
    set_offset, set_octets = set_maker(family, seed, asn, next_hop, variant).make(n_sets)
    return Table(
        family, hi[rows], lo[rows] if family.is_wide else lo, length[rows], rank[rows].astype(np.uint32), set_offset,
        set_octets,
    )  # fmt: skip
