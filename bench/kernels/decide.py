"""Cases of the benchmark: the decision process."""

import numpy as np

from bench.kernels.dress import table_of_sets
from bench.kernels.prefixes import FULL_TABLE, in_batches
from common.bgp.constants import Family
from common.kernels import decide

SETS_PER_PREFIX = 0.2


def cases(scale: float = 1.0, module=decide) -> list:
    """Return (label, number of items, callable) for a full IPv4 table times `scale` with 1, 2 and 4 candidates."""
    n = max(int(FULL_TABLE[Family.IPV4_UNICAST] * scale), 100)
    n_sets = max(int(n * SETS_PER_PREFIX), 1)
    offset, octets = table_of_sets(n_sets)
    ids = np.arange(1, n_sets + 1, dtype=np.uint32)

    def learn():
        facts = module.SetFacts(7, n_sets + 1)
        facts.learn(ids, offset, octets)
        return facts

    facts = learn()
    result = [("decide, facts of new sets, per set", n_sets, learn)]
    for n_sources in (1, 2, 4):
        columns = _chains(n, n_sources, n_sets)
        rows = np.arange(1, n + 1, dtype=np.uint32)

        def choose(columns=columns, rows=rows, n_sources=n_sources) -> None:
            decision = module.Decision(facts, n + 1)
            number = np.arange(n_sources + 1, dtype=np.uint32)
            decision.set_sources(np.ones(n_sources + 1, np.uint8), number, number, np.zeros_like(number))
            for part in in_batches(n):
                decision.select(rows[part], np.zeros(len(rows[part]), np.uint32), *columns)

        result.append((f"decide, choose among {n_sources}, per prefix", n, choose))
    return result


def _chains(n: int, n_sources: int, n_sets: int) -> tuple:
    """Return head, next, source and attributes of a table where source k has rows k * n + 1 to (k + 1) * n."""
    rng = np.random.default_rng(1)
    row = np.arange(n_sources * n + 1, dtype=np.uint32)
    head = np.concatenate([[0], row[(n_sources - 1) * n + 1 :]]).astype(np.uint32)
    next_row = np.where(row > n, row - n, 0).astype(np.uint32)
    source = ((row - 1) // np.uint32(n) + 1).astype(np.uint32)
    attributes = np.concatenate([[0], *(np.sort(rng.integers(1, n_sets + 1, n)) for _ in range(n_sources))])
    return head, next_row, source, attributes.astype(np.uint32)
