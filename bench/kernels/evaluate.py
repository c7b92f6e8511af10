"""Cases of the benchmark: policy verdicts for sets and rows."""

import numpy as np

from bench.kernels.dress import table_of_sets
from common.config.schema import Policy
from common.kernels import evaluate


def cases(scale: float = 1.0, module=evaluate) -> list:
    """Return (label, number of items, callable) for a table of 241 k sets and 1 M prefixes times `scale`."""
    n_sets, n_rows = int(241_000 * scale), int(1_000_000 * scale)
    offset, octets = table_of_sets(n_sets)
    every, first_rule = np.arange(n_sets, dtype=np.uint32), np.zeros(n_sets, np.uint32)
    imports = module.ImportChecks([bytes([10, 77, 0, 1])])
    imports.add(own_asn=65000, local_asn=65000, asn_expected=64601)
    exports = module.ExportChecks()
    exports.add(is_external=True)
    rng = np.random.default_rng(1)
    hi = rng.integers(1 << 24, 223 << 24, n_rows).astype(np.uint64) << 32
    lo, length, source = np.empty(0, np.uint64), np.full(n_rows, 24, np.uint8), np.zeros(n_rows, np.uint32)
    sets = np.sort(rng.integers(0, n_sets, n_rows)).astype(np.uint32)
    martians = [
        (int(prefix.network_address) << 96, prefix.prefixlen) for prefix in Policy().martians if prefix.version == 4
    ]
    prefixes = module.PrefixChecks(False, martians, 32)
    is_exempt, reason = np.zeros(1, np.uint8), np.zeros(n_rows, np.uint8)
    pairs, _, _ = module.pair(source, source, sets, n_sets)
    no_refusal = np.zeros(n_sets, np.uint8)
    return [
        ("import verdict, per set", n_sets, lambda: imports.evaluate(first_rule, every, offset, octets)),
        ("export verdict, per set", n_sets, lambda: exports.evaluate(first_rule, every, offset, octets)),
        ("prefix verdict, per row", n_rows, lambda: prefixes.evaluate(hi, lo, length, source, sets, is_exempt, reason)),
        ("pairs, per row", n_rows, lambda: module.pair(source, source, sets, n_sets)),
        ("settle, per row", n_rows, lambda: module.settle(pairs, every, no_refusal, reason)),
    ]
