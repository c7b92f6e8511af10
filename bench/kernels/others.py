"""Cases of the benchmark: routes of others, as many as a full table."""

import numpy as np

from common.kernels import others

BATCH = 4096


def cases(scale: float = 1.0, module=others) -> list:
    """Return (label, number of items, callable): a table learned in batches, and told of once more."""
    n = max(int(1_230_000 * scale), 100)
    rows = np.random.default_rng(1).permutation(n).astype(np.uint32) + np.uint32(1)
    u8, u32, u64 = (np.zeros(BATCH, dtype) for dtype in (np.uint8, np.uint32, np.uint64))
    message, table = np.full(BATCH, 24, np.uint8), np.full(BATCH, 254, np.uint32)
    kept = module.OtherRoutes()

    def tell(kernel) -> None:
        for at in range(0, n, BATCH):
            part = rows[at : at + BATCH]
            m = len(part)
            kernel.apply(
                part, message[:m], u32[:m], table[:m], u32[:m], u32[:m], u32[:m], u8[:m], u8[:m], u64[:m], u64[:m]
            )  # fmt: skip

    def learn() -> None:
        kernel = module.OtherRoutes()
        kernel.ensure_prefixes(n + 1)
        tell(kernel)

    kept.ensure_prefixes(n + 1)
    tell(kept)
    return [("learn routes of others", n, learn), ("hear of them again", n, lambda: tell(kept))]
