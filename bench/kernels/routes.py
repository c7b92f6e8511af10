"""Cases of the benchmark: the route table."""

import numpy as np

from bench.kernels.prefixes import FULL_TABLE, in_batches
from common.bgp.constants import Family
from common.kernels import routes

N_SOURCES = 4


def cases(scale: float = 1.0, module=routes) -> list:
    """Return (label, number of items, callable) for the routes of four full tables times `scale`."""
    n = max(int(FULL_TABLE[Family.IPV4_UNICAST] * scale), 100)
    rng = np.random.default_rng(1)
    in_order = np.arange(1, n + 1, dtype=np.uint32)
    shuffled = [rng.permutation(in_order) for _ in range(N_SOURCES)]
    ids = np.sort(rng.integers(1, n // 5 + 2, n)).astype(np.uint32)
    none = np.zeros(n, np.uint32)
    references = np.zeros(n // 5 + 2, np.uint32)
    one = np.ones(1, np.uint32)

    def announce(table, orders, sets=ids):
        for source, prefix_rows in enumerate(orders):
            for rows in in_batches(n):
                table.apply(prefix_rows[rows], one * source, sets[rows], references)
        return table

    def filled(orders, capacity: int = N_SOURCES * n):
        return announce(module.RouteTable(capacity), orders)

    same_order = [in_order] * N_SOURCES
    held, held_shuffled = filled(same_order), filled(shuffled)

    def change() -> None:
        held.apply(in_order, one, np.roll(ids, 1), references)
        held.apply(in_order, one, ids, references)

    def purge() -> None:
        held.unlink(held.purge(1, references))
        held.apply(in_order, one, ids, references)

    def withdraw_and_announce() -> None:
        announce(held, same_order, none)
        announce(held, same_order)

    return [
        ("routes, new, 1 source", n, lambda: filled(same_order[:1], n)),
        ("routes, new, 4 sources in one order", N_SOURCES * n, lambda: filled(same_order)),
        ("routes, new, 4 sources in one order, growing", N_SOURCES * n, lambda: filled(same_order, 1024)),
        ("routes, new, 4 sources in random orders", N_SOURCES * n, lambda: filled(shuffled)),
        ("routes, announced again, 4 sources in one order", N_SOURCES * n, lambda: announce(held, same_order)),
        ("routes, announced again, 4 in random orders", N_SOURCES * n, lambda: announce(held_shuffled, shuffled)),
        ("routes, other sets", 2 * n, change),
        ("routes, withdrawn and announced", 2 * N_SOURCES * n, withdraw_and_announce),
        ("routes, purged, unlinked and announced, per route", n, purge),
    ]
