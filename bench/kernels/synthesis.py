"""Cases of the benchmark: synthetic tables."""

import numpy as np

from common.kernels import synthesis


def cases(scale: float = 1.0, module=synthesis) -> list:
    """Return (label, number of items, callable) for 1 M prefixes and 200 k sets times `scale`."""
    n, n_sets = int(1_000_000 * scale), int(200_000 * scale)
    lengths = np.resize(np.array([24, 24, 23, 22, 20], np.uint8), 65536)
    paths, pool = np.resize(np.array([3, 4, 5], np.uint8), 256), np.arange(1, 60000, dtype=np.uint32)
    return [
        ("synthesis, per prefix", n, lambda: module.PrefixMaker(False, 1, lengths).make(n, 1 << 40)),
        ("synthesis, per set", n_sets, lambda: module.SetMaker(1, 64601, bytes(4), paths, pool).make(n_sets)),
    ]
