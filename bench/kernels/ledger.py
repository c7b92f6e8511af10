"""Cases of the benchmark: the ledger of a listener."""

import numpy as np

from common.bgp.constants import Family
from common.kernels import ledger
from stages.feed.synthetic import synthesize


def cases(scale: float = 1.0, module=ledger) -> list:
    """Return (label, number of items, callable) for a table of 1 M prefixes times `scale`."""
    n = int(1_000_000 * scale)
    table = synthesize(Family.IPV4_UNICAST, n, seed=1, asn=64601, next_hop=b"\x0a\x4d\x00\x0a")
    rows = np.random.default_rng(1).permutation(np.arange(1, n + 1, dtype=np.uint32))
    states = np.asarray(module.digest_sets(table.set_offset, table.set_octets)[0])
    held = module.Ledger(n + 1)
    return [
        ("ledger, digest, per set", table.n_sets, lambda: module.digest_sets(table.set_offset, table.set_octets)),
        ("ledger, enter, per prefix", n, lambda: held.apply(rows, table.set, states)),
    ]
