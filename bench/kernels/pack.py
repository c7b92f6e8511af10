"""Cases of the benchmark: a full table packed for a neighbor."""

import numpy as np

from bench.kernels.prefixes import full_table
from common.bgp.constants import Family
from common.kernels import pack

OUT_OCTETS = 1 << 20
NO_IDS = np.empty(0, np.uint32)


def pack_all(pack_some, n_rows: int) -> None:
    """Pack rows a buffer at a time, as a speaker does."""
    first, out = 0, np.empty(OUT_OCTETS, np.uint8)
    while first < n_rows:
        first += pack_some(slice(first, None), out).n_rows


def cases(scale: float = 1.0, module=pack) -> list:
    """Return (label, number of items, callable) for a full table times `scale`."""
    result = []
    for family in Family:
        table = full_table(family, scale)

        def prefixes_of(rows, table=table):
            return table.hi[rows], table.lo[rows] if table.family.is_wide else table.lo, table.length[rows], NO_IDS

        def announce(rows, out, table=table, prefixes_of=prefixes_of):
            sets = table.set[rows], table.set_offset, table.set_octets
            return module.pack_announcements(*prefixes_of(rows), *sets, table.family.is_wide, 4096, False, out)

        def withdraw(rows, out, table=table, prefixes_of=prefixes_of):
            return module.pack_withdrawals(*prefixes_of(rows), table.family.is_wide, 4096, False, out)

        for label, call in (("announcements", announce), ("withdrawals", withdraw)):
            n = table.n_prefixes
            result.append((f"pack {family} {label}, per prefix", n, lambda call=call, n=n: pack_all(call, n)))
    return result
