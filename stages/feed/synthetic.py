"""Synthetic Internet tables: prefixes and attribute sets with the proportions of the real table, from a seed.

Works on whole columns; nothing here runs once a prefix. Lengths follow the full tables of early 2023 (IPv4: 60 % are
/24; IPv6: half are /48); neighboring prefixes share an attribute set, about five on average, as those of one origin do.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from common.bgp.constants import Family

IPV4_LENGTHS = {
    24: 0.597, 23: 0.107, 22: 0.1203, 21: 0.0563, 20: 0.0473, 19: 0.0276, 18: 0.0153, 17: 0.0092, 16: 0.015,
    15: 0.0021, 14: 0.0013, 13: 0.0006, 12: 0.0002, 11: 0.0001,
}  # fmt: skip
IPV6_LENGTHS = {
    48: 0.4728, 32: 0.1409, 44: 0.0897, 40: 0.0838, 47: 0.03, 46: 0.03, 45: 0.02, 42: 0.02, 36: 0.03, 29: 0.03,
    33: 0.015, 34: 0.0125, 35: 0.0125, 38: 0.0128,
}  # fmt: skip
PATH_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 10)
PATH_SHARES = (0.01, 0.09, 0.27, 0.29, 0.18, 0.09, 0.04, 0.02, 0.01)
PREFIXES_PER_SET = 5.1
MED_SHARE = 0.15


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


def synthesize(family: Family, n_prefixes: int, *, seed: int, asn: int, next_hop: bytes, variant: int = 0) -> Table:
    """Make the table of a neighbor with AS number `asn`.

    Tables of one seed have the same prefixes and the same grouping; `variant` gives each neighbor paths of its own.
    """
    hi, lo, length = make_prefixes(family, n_prefixes, seed)
    return with_paths(family, hi, lo, length, seed=seed, asn=asn, next_hop=next_hop, variant=variant)


def load_prefixes(path: Path, limit: int | None = None) -> dict[Family, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Read a list with one prefix a line (what follows the prefix is ignored; plain, .xz, .gz or .bz2).

    Raises ValueError naming file and line for what is not a prefix.
    """
    import bz2
    import gzip
    import ipaddress
    import lzma

    opener = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    rows: dict[Family, list] = {family: [] for family in Family}
    n_read = 0
    with opener(path, "rt") as lines:
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0][0] in ";#":
                continue
            try:
                network = ipaddress.ip_network(words[0])
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}: expected a prefix such as 192.0.2.0/24") from None
            family = Family.IPV6_UNICAST if network.version == 6 else Family.IPV4_UNICAST
            shift = 0 if network.version == 6 else 96
            rows[family].append((int(network.network_address) << shift, network.prefixlen))
            n_read += 1
            if n_read == limit:
                break
    return {family: _columns(family, items) for family, items in rows.items() if items}


def _columns(family: Family, items: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    hi = np.array([address >> 64 for address, _ in items], np.uint64)
    lo = np.array([address & 0xFFFFFFFFFFFFFFFF for address, _ in items] if family.is_wide else [], np.uint64)
    return hi, lo, np.array([length for _, length in items], np.uint8)


def make_prefixes(family: Family, n_prefixes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return distinct prefixes in ascending order as columns (hi, lo, length)."""
    rng = np.random.default_rng([seed, int(family.afi)])
    lengths = IPV6_LENGTHS if family.is_wide else IPV4_LENGTHS
    shares = np.array(list(lengths.values()))
    counts = np.floor(shares / shares.sum() * n_prefixes).astype(int)
    counts[0] += n_prefixes - counts.sum()
    hi = np.empty(0, np.uint64)
    length = np.empty(0, np.uint8)
    shortfall = 0
    for bits, count in sorted(zip(lengths, counts, strict=True)):
        made = _distinct_networks(rng, family, bits, count + shortfall)
        shortfall += count - len(made)  # short prefixes can run out: the longer ones make up for them
        hi = np.concatenate([hi, made])
        length = np.concatenate([length, np.full(len(made), bits, np.uint8)])
    order = np.lexsort((length, hi))
    return hi[order], np.zeros(n_prefixes if family.is_wide else 0, np.uint64), length[order]


def _distinct_networks(rng, family: Family, bits: int, count: int) -> np.ndarray:
    """Draw up to `count` distinct networks of one length from the unicast space, unordered."""
    found = np.empty(0, np.uint64)
    shift = np.uint64(64 - bits)
    for _ in range(8):
        need = count - len(found)
        if need <= 0:
            break
        if family.is_wide:
            drawn = rng.integers(0x2001_0000, 0x2A10_0000, need * 2 + 16, dtype=np.uint64) << np.uint64(32)
            drawn |= rng.integers(0, 1 << 32, len(drawn), dtype=np.uint64)
        else:
            drawn = rng.integers(1 << 24, 224 << 24, need * 2 + 16, dtype=np.uint64) << np.uint64(32)
        drawn = drawn[_is_usable(family, drawn)]
        found = np.unique(np.concatenate([found, (drawn >> shift) << shift]))
        found = found[_is_usable(family, found)]
    return rng.permutation(found)[:count]


def _is_usable(family: Family, hi: np.ndarray) -> np.ndarray:
    if family.is_wide:
        top = hi >> np.uint64(32)
        return (top != 0x20010DB8) & ((top >> np.uint64(16)) != 0x2002) & (top >= 0x20010200)
    address = hi >> np.uint64(32)
    octet = address >> np.uint64(24)
    usable = (octet != 10) & (octet != 127) & (octet >= 1) & (octet < 224)
    for network, bits in ((0xA9FE0000, 16), (0xAC100000, 12), (0xC0A80000, 16), (0x64400000, 10), (0xC0000000, 22),
                          (0xC6120000, 15), (0xC6336400, 24), (0xCB007100, 24), (0xC0586300, 24)):  # fmt: skip
        shift = np.uint64(32 - bits)
        usable &= (address >> shift) != (network >> int(shift))
    return usable


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
    paths = np.random.default_rng([seed, int(family.afi), 2, variant])
    set_offset, set_octets = make_sets(paths, n_sets, asn, next_hop)
    return Table(
        family, hi[rows], lo[rows] if family.is_wide else lo, length[rows], rank[rows].astype(np.uint32), set_offset,
        set_octets,
    )  # fmt: skip


def make_sets(rng, n_sets: int, asn: int, next_hop: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Make attribute sets: ORIGIN, AS_PATH beginning with `asn`, MED for some, COMMUNITIES for most."""
    n_hops = rng.choice(PATH_LENGTHS, n_sets, p=PATH_SHARES).astype(np.int64)
    n_communities = rng.integers(0, 8, n_sets)
    has_med = rng.random(n_sets) < MED_SHARE
    head = bytes([len(next_hop)]) + next_hop + bytes([0x40, 1, 1, 0])
    path_at = len(head)
    med_at = path_at + 5 + 4 * n_hops
    communities_at = med_at + 7 * has_med
    sizes = communities_at + np.where(n_communities > 0, 3 + 4 * n_communities, 0)
    offset = np.zeros(n_sets + 1, np.int64)
    np.cumsum(sizes, out=offset[1:])
    octets = np.zeros(int(offset[-1]), np.uint8)
    base = offset[:-1]
    for position, value in enumerate(head):
        octets[base + position] = value
    octets[base + path_at - 1] = np.where(rng.random(n_sets) < 0.08, 2, 0)  # ORIGIN INCOMPLETE for some
    for position, value in ((0, 0x40), (1, 2), (2, 2 + 4 * n_hops), (3, 2), (4, n_hops)):
        octets[base + path_at + position] = value
    pool = np.concatenate([rng.integers(1, 64000, 40000), rng.integers(131072, 400000, 35000)]).astype(">u4")
    _scatter_words(octets, base + path_at + 5, n_hops, pool[rng.integers(0, len(pool), int(n_hops.sum()))])
    octets[np.add.outer(base + path_at + 5, np.arange(4))] = np.frombuffer(
        np.uint32(asn).byteswap().tobytes(), np.uint8
    )
    med = base[has_med] + med_at[has_med]
    for position, value in ((0, 0x80), (1, 4), (2, 4), (5, rng.integers(0, 4, len(med))), (6, 10)):
        octets[med + position] = value
    some = n_communities > 0
    at = base[some] + communities_at[some]
    for position, value in ((0, 0xC0), (1, 8), (2, 4 * n_communities[some])):
        octets[at + position] = value
    values = rng.integers(1 << 16, 64000 << 16, int(n_communities.sum())).astype(">u4")
    _scatter_words(octets, at + 3, n_communities[some], values)
    return offset.astype(np.uint32), octets


def _scatter_words(octets: np.ndarray, at: np.ndarray, counts: np.ndarray, words: np.ndarray) -> None:
    """Write `counts[i]` 32-bit words of `words` (big-endian, in order) at octet `at[i]`, for each i."""
    first = np.cumsum(counts) - counts
    where = np.repeat(at - 4 * first, counts) + 4 * np.arange(len(words))
    raw = words.view(np.uint8).reshape(-1, 4)
    for position in range(4):
        octets[where + position] = raw[:, position]
