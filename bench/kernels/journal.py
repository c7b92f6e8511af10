"""Cases of the benchmark: the journal."""

import numpy as np

from bench.kernels.prefixes import FULL_TABLE, in_batches
from common.bgp.constants import Family
from common.kernels import journal


def cases(scale: float = 1.0, module=journal) -> list:
    """Return (label, number of items, callable) for as many changes as a full table has prefixes, times `scale`."""
    n = max(int(FULL_TABLE[Family.IPV4_UNICAST] * scale), 100)
    in_order = np.arange(1, n + 1, dtype=np.uint32)
    shuffled = np.random.default_rng(1).permutation(in_order)
    gone = np.zeros(n + 1, np.uint32)
    written = module.Journal()
    written.append(in_order)
    written.append(shuffled)

    def append(rows: np.ndarray) -> None:
        target = module.Journal()
        target.ensure_rows(n + 1)
        for part in in_batches(n):
            target.append(rows[part])

    def read() -> None:
        sequence = 1
        while sequence < written.head:
            _, sequence = written.read(sequence, 8_000)

    def remove() -> None:
        target = module.Journal()
        target.append(in_order)
        while not target.is_swept(target.head):
            target.removable(target.head, gone)

    return [
        ("journal, append", n, lambda: append(in_order)),
        ("journal, append, rows in random order", n, lambda: append(shuffled)),
        ("journal, read, half of it outdated", 2 * n, read),
        ("journal, append and find removable", n, remove),
    ]
