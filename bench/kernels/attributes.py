"""Cases of the benchmark: the attribute table."""

import numpy as np

from bench.kernels.prefixes import full_table, in_batches
from common.bgp.constants import Family
from common.kernels import attributes


def cases(scale: float = 1.0, module=attributes) -> list:
    """Return (label, number of items, callable) for the attribute sets of a full table times `scale`."""
    table = full_table(Family.IPV4_UNICAST, scale)
    n_rows, n_sets = table.n_prefixes, table.n_sets
    offsets = [table.set_offset[rows.start : rows.stop + 1] for rows in in_batches(n_sets)]
    filled = module.AttributeTable(1, n_sets)
    ids = filled.intern_rows(table.set_offset, table.set_octets, table.set)
    filled.references[:] = 1

    def fill(capacity: int) -> None:
        target = module.AttributeTable(1, capacity)
        for offset in offsets:
            target.intern(offset, table.set_octets)

    def find_again() -> None:
        for offset in offsets:
            filled.intern(offset, table.set_octets)

    def extract() -> None:
        for rows in in_batches(n_rows):
            filled.extract(ids[rows])

    def sweep() -> None:
        target = module.AttributeTable(1, n_sets)
        target.intern(table.set_offset, table.set_octets)
        target.references[np.arange(0, n_sets, 3)] = 1
        target.sweep()

    return [
        ("attributes, new sets, sized beforehand", n_sets, lambda: fill(n_sets + 1)),
        ("attributes, new sets, growing", n_sets, lambda: fill(1024)),
        ("attributes, known sets", n_sets, find_again),
        ("attributes, extract, per row", n_rows, extract),
        ("attributes, new sets, two thirds swept", n_sets, sweep),
    ]
