"""Cases of the benchmark: the prefix table."""

from functools import lru_cache

import numpy as np

from common.bgp.constants import Family
from common.kernels import prefixes
from stages.feed.synthetic import Table, synthesize

FULL_TABLE = {Family.IPV4_UNICAST: 1_000_000, Family.IPV6_UNICAST: 230_000}
BATCH = 8_000  # rows a stage handles at once


@lru_cache
def full_table(family: Family, scale: float, variant: int = 0) -> Table:
    """Return a neighbor's full table of one family, times `scale`; all variants have the same prefixes."""
    next_hop = bytes(12) + b"\x0a\x4d\x00\x0a" if family.is_wide else b"\x0a\x4d\x00\x0a"
    n_prefixes = max(int(FULL_TABLE[family] * scale), 100)
    return synthesize(family, n_prefixes, seed=1, asn=64601, next_hop=next_hop, variant=variant)


def in_batches(n: int):
    """Return slices of BATCH rows."""
    return [slice(at, at + BATCH) for at in range(0, n, BATCH)]


def cases(scale: float = 1.0, module=prefixes) -> list:
    """Return (label, number of items, callable) for the prefixes of a full table times `scale`."""
    return [case for family in Family for case in _cases_of(family, scale, module)]


def _cases_of(family: Family, scale: float, module) -> list:
    table = full_table(family, scale)
    n = table.n_prefixes
    batches = [(table.hi[rows], table.lo[rows], table.length[rows]) for rows in in_batches(n)]
    filled = module.PrefixTable(family.is_wide, 1, n)
    order = np.random.default_rng(1).permutation(n)
    shuffled = (table.hi[order], table.lo[order] if family.is_wide else table.lo, table.length[order])

    def fill(capacity: int) -> None:
        target = module.PrefixTable(family.is_wide, 1, capacity)
        for batch in batches:
            target.intern(*batch)

    def find_again() -> None:
        for batch in batches:
            filled.intern(*batch)

    def release() -> None:
        filled.release(filled.intern(*shuffled))
        find_again()

    find_again()
    return [
        (f"prefixes, {family.label}, new, sized beforehand", n, lambda: fill(n)),
        (f"prefixes, {family.label}, new, growing", n, lambda: fill(1024)),
        (f"prefixes, {family.label}, known", n, find_again),
        (f"prefixes, {family.label}, known, in random order", n, lambda: filled.find(*shuffled)),
        (f"prefixes, {family.label}, released and interned again", n, release),
    ]
