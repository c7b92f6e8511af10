"""Cases of the benchmark: which share each prefix of a table belongs to."""

import numpy as np

from common.bgp.constants import Family
from common.kernels import shares
from stages.feed.synthetic import make_prefixes


def cases(scale: float = 1.0, module=shares) -> list:
    n = max(int(1_000_000 * scale), 1)
    hi, _, _ = make_prefixes(Family.IPV4_UNICAST, n, seed=1)
    rows = np.arange(n, dtype=np.uint32)
    return [("shares, choose, per row", n, lambda: module.rows_in_share(1, 4, rows, rows, hi, False))]
