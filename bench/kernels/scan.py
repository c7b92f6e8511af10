"""Cases of the benchmark: UPDATEs taken in, as a full table comes from a neighbor."""

import numpy as np

from bench.kernels.prefixes import full_table
from common.bgp.constants import Family
from common.kernels import pack, scan

SLICE_OCTETS = 1 << 18  # what a speaker reads from a socket at a time


def encode_table(family: Family, scale: float):
    """Return a full table's UPDATEs as octets, the number of prefixes and that of UPDATEs; and withdrawals of all."""
    table = full_table(family, scale)
    out = np.empty(64 * table.n_prefixes + (1 << 20), np.uint8)
    no_ids = np.empty(0, np.uint32)
    packed = pack.pack_announcements(
        table.hi, table.lo, table.length, no_ids, table.set, table.set_offset, table.set_octets,
        family.is_wide, 4096, False, out,
    )  # fmt: skip
    assert packed.n_rows == table.n_prefixes
    announcements = out[: packed.n_octets].copy()
    gone = pack.pack_withdrawals(table.hi, table.lo, table.length, no_ids, family.is_wide, 4096, False, out)
    return table.n_prefixes, packed.n_messages, announcements, out[: gone.n_octets].copy()


def scan_all(scanner, octets, options) -> None:
    """Scan in slices as a speaker does."""
    start = 0
    while start < len(octets):
        scanner.scan(octets, start, min(start + SLICE_OCTETS, len(octets)), options)
        start = scanner.consumed


def cases(scale: float = 1.0, module=scan) -> list:
    """Return (label, number of items, callable) for a neighbor's full table times `scale`."""
    result = []
    for family in Family:
        n_prefixes, n_updates, announcements, withdrawals = encode_table(family, scale)
        scanner, options = module.Scanner(), module.Options()

        def take(octets, scanner=scanner, options=options):
            return lambda: scan_all(scanner, octets, options)

        result += [
            (f"scan {family}, per UPDATE with its prefixes", n_updates, take(announcements)),
            (f"scan {family}, per prefix with its UPDATE", n_prefixes, take(announcements)),
            (f"scan {family} withdrawals, per prefix", n_prefixes, take(withdrawals)),
        ]
    return result
