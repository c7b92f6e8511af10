"""The kernel `evaluate`, compiled and uncompiled, against the oracle."""

import random

import numpy as np
import pytest

from common.bgp.reasons import ExportRefusal, ImportRefusal
from common.kernels import evaluate, uncompiled
from tests.oracles import evaluate as oracle
from tests.oracles.dress import random_set
from tests.twins.test_dress import columns

NONE = 0xFFFFFFFF
OWN = [bytes([10, 0, 0, 0]), b"\x0a" + bytes(15)]
twins = pytest.mark.parametrize("module", [evaluate, uncompiled("evaluate")], ids=["installed", "uncompiled"])


def random_rule(rng) -> dict:
    """Return the arguments of an import rule."""
    return {
        "verdict": rng.choice([0, 0, 0, 0, int(ImportRefusal.NO_POLICY)]),
        "is_checked": rng.random() < 0.9,
        "own_asn": rng.choice([65000, 3]),
        "local_asn": rng.choice([65000, 70000]),
        "asn_expected": rng.choice([0, 0, 1, 65000, 70000]),
        "router_id": rng.choice([0, 1, 2]),
        "cluster_id": rng.choice([0, 1, 2]),
    }


@twins
@pytest.mark.parametrize("seed", range(4))
def test_import_verdicts_equal_those_of_the_oracle(module, seed):
    """Random sets under random rules are refused for the reason the RFCs give."""
    rng = random.Random(seed)
    rules = [random_rule(rng) for _ in range(40)]
    sets = [random_set(rng) for _ in range(400)]
    checks = module.ImportChecks(OWN)
    assert [checks.add(**rule) for rule in rules] == list(range(40))
    chosen = np.array([rng.randrange(40) for _ in sets], np.uint32)
    got = checks.evaluate(chosen, np.arange(len(sets), dtype=np.uint32), *columns(sets))
    for i, octets in enumerate(sets):
        assert got[i] == oracle.evaluate_import(rules[chosen[i]], OWN, octets), (rules[chosen[i]], octets)


@twins
def test_export_verdicts_equal_those_of_the_oracle(module):
    """Well-known communities keep a route from those they name, and a rule's own verdict stands before them."""
    rng = random.Random(5)
    sets = [random_set(rng) for _ in range(600)]
    checks = module.ExportChecks()
    for rule in ({}, {"is_external": True}, {"verdict": int(ExportRefusal.REJECTED)}):
        checks.add(**rule)
    chosen = np.array([i % 3 for i in range(600)], np.uint32)
    got = checks.evaluate(chosen, np.arange(600, dtype=np.uint32), *columns(sets))
    for i, octets in enumerate(sets):
        wanted = ExportRefusal.REJECTED if i % 3 == 2 else oracle.evaluate_export(i % 3 == 1, octets)
        assert got[i] == wanted


@twins
def test_a_set_cut_anywhere_is_not_read_beyond(module):
    """What follows a set in its batch never changes what is said of the set, wherever it is cut."""
    rng = random.Random(6)
    checks = module.ImportChecks(OWN)
    checks.add(own_asn=3, local_asn=4, router_id=1, cluster_id=1)
    pair = np.zeros(2, np.uint32), np.arange(2, dtype=np.uint32)
    for _ in range(20):
        octets = random_set(rng)
        for end in range(1, min(len(octets), 200)):
            a = checks.evaluate(*pair, *columns([octets[:end], b"\x00"]))
            b = checks.evaluate(*pair, *columns([octets[:end], b"\xff" * 300]))
            assert a[0] == b[0]


@twins
def test_pairs_are_the_distinct_ones_in_order_of_first_use(module):
    """Each row's pair has the row's rule and set; rows without a set have none."""
    rng = np.random.default_rng(7)
    rule_of_source = rng.integers(0, 3, 9).astype(np.uint32)
    source = rng.integers(0, 9, 500).astype(np.uint32)
    sets = rng.integers(0, 20, 500).astype(np.uint32)
    sets[rng.random(500) < 0.2] = NONE
    pair, rules, pair_sets = module.pair(rule_of_source, source, sets, 20)
    seen: dict = {}
    for i in range(500):
        if sets[i] == NONE:
            assert pair[i] == NONE
            continue
        assert pair[i] == seen.setdefault((int(rule_of_source[source[i]]), int(sets[i])), len(seen))
    assert list(zip(rules.tolist(), pair_sets.tolist(), strict=True)) == list(seen)


@twins
def test_settled_rows_follow_their_pair_or_their_own_refusal(module):
    """A row refused for its prefix stays so; others get the set and the refusal of their pair."""
    pair = np.array([0, 1, NONE, 0, 1], np.uint32)
    reason = np.array([0, 0, 0, 8, 0], np.uint8)
    sets = module.settle(pair, np.array([5, NONE], np.uint32), np.array([0, 4], np.uint8), reason)
    assert sets.tolist() == [5, NONE, NONE, NONE, NONE]
    assert reason.tolist() == [0, 4, 0, 8, 4]


@twins
@pytest.mark.parametrize("is_wide", [False, True])
def test_prefix_verdicts_equal_those_of_the_oracle(module, is_wide):
    """Martians cover all that is more specific; others are refused only where they are too long."""
    rng = random.Random(8)
    bits, longest = (128, 48) if is_wide else (32, 24)
    shift = 128 - bits
    lengths = [rng.choice([1, 3, 8, 10, 15, 16, 17, 24, bits]) for _ in range(12)]
    martians = [(rng.getrandbits(bits) >> (bits - length) << (128 - length), length) for length in lengths]
    checks = module.PrefixChecks(is_wide, martians, longest)
    rows = []
    for _ in range(800):
        base = rng.choice([rng.choice(martians)[0], rng.getrandbits(bits) << shift])
        length = rng.randint(0, bits)
        address = (
            (base ^ (rng.getrandbits(bits) << shift) & ((1 << rng.choice([40, 100, 115])) - 1))
            >> (128 - length)
            << (128 - length)
        )
        rows.append((address, length))
    hi = np.array([address >> 64 for address, _ in rows], np.uint64)
    lo = np.array([address & (1 << 64) - 1 for address, _ in rows] if is_wide else [], np.uint64)
    length = np.array([length for _, length in rows], np.uint8)
    zeros = np.zeros(800, np.uint32)
    reason = np.zeros(800, np.uint8)
    n_refused = checks.evaluate(hi, lo, length, zeros, zeros, np.zeros(1, np.uint8), reason)
    wanted = [oracle.evaluate_prefix(*row, martians, longest) for row in rows]
    assert reason.tolist() == wanted
    assert n_refused == sum(map(bool, wanted)) > 20


@twins
def test_exempt_sources_and_withdrawn_rows_are_not_refused_for_their_prefix(module):
    """The router's own routes are taken whatever their prefix; a row without a set has nothing to refuse."""
    checks = module.PrefixChecks(False, [(127 << 120, 8)], 24)
    hi = np.full(3, 127 << 56, np.uint64)
    reason = np.zeros(3, np.uint8)
    source, sets = np.array([0, 1, 0], np.uint32), np.array([0, 0, NONE], np.uint32)
    n = checks.evaluate(
        hi, np.empty(0, np.uint64), np.full(3, 8, np.uint8), source, sets, np.array([0, 1], np.uint8), reason
    )
    assert n == 1 and reason.tolist() == [ImportRefusal.MARTIAN, 0, 0]
