"""The decision kernel: compiled, uncompiled and the oracle agree."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bgp.decision import Step
from common.kernels import decide, uncompiled
from tests.oracles import decide as oracle
from tests.unit.kernels.chains import Chains

TWINS = {"compiled": decide, "uncompiled": uncompiled("decide")}

small = st.integers(0, 2)
segments = st.lists(
    st.tuples(st.sampled_from([1, 2, 2, 2, 3, 4]), st.lists(st.integers(64600, 64602), max_size=3).map(tuple)),
    max_size=3,
).map(tuple)


def metric_of(next_hop: str) -> int | None:
    return {"10.0.0.1": 0, "10.0.0.2": 5, "2001:db8::1": 5, "10.0.0.3": None, "": 0}[next_hop]


paths = st.builds(
    oracle.Path,
    next_hop=st.sampled_from(["10.0.0.1", "10.0.0.2", "2001:db8::1", "10.0.0.3", ""]),
    local_pref=st.sampled_from([None, None, 100, 50]),
    as_path=segments,
    origin=small,
    med=st.sampled_from([None, 0, 1, 2, 0xFFFFFFFF]),
    originator_id=st.sampled_from([None, None, 0, 1]),
    cluster_list=st.lists(small, max_size=2).map(tuple),
    is_originated=st.sampled_from([False] * 9 + [True]),
    is_external=st.booleans(),
    router_id=small,
    address=st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1"]),
    path_id=small,
).map(lambda path: replace(path, metric=metric_of(path.next_hop)))


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=300, deadline=None)
@given(prefixes=st.lists(st.lists(paths, max_size=6, unique=True), min_size=1, max_size=4))
def test_chooses_as_the_oracle(twin, prefixes):
    """The best path, the deciding step, and the step in which each other path lost are those of the RFC's words."""
    chains = Chains(TWINS[twin], prefixes)
    chains.select()
    first = 1
    for number, candidates in enumerate(prefixes, 1):
        best, lost, decided = oracle.choose(candidates)
        rows, kernel_lost, kernel_decided = chains.decision.explain(number, *chains.columns)
        assert chains.decision.best[number] == (0 if best is None else first + best)
        assert chains.decision.reason[number] == decided == kernel_decided
        assert rows.tolist() == list(range(first, first + len(candidates)))
        assert kernel_lost.tolist() == lost
        first += len(candidates)


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=200, deadline=None)
@given(
    prefixes=st.lists(st.lists(paths, max_size=6, unique=True), min_size=1, max_size=4),
    limits=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_multipath_is_what_only_the_last_steps_part(twin, prefixes, limits):
    """As good as the best are the paths that lost in no step up to the metric; the best first, up to the limit."""
    chains = Chains(TWINS[twin], prefixes)
    chains.select()
    counts, rows = chains.decision.multipath(chains.prefix_rows, *limits, *chains.columns)
    expected, first = [], 1
    for candidates in prefixes:
        best, lost, _ = oracle.choose(candidates)
        equal = [i for i, step in enumerate(lost) if step == Step.NONE or Step.METRIC < step <= Step.PATH_ID]
        limit = 0 if best is None else limits[0] if candidates[best].is_external else limits[1]
        expected.append([first + i for i in sorted(equal, key=lambda i: (i != best, i))][:limit])
        first += len(candidates)
    assert counts.tolist() == [len(one) for one in expected]
    assert rows.tolist() == [row for one in expected for row in one]


@settings(max_examples=100, deadline=None)
@given(prefixes=st.lists(st.lists(paths, max_size=4), min_size=1, max_size=5), data=st.data())
def test_twins_agree_when_paths_change(prefixes, data):
    """Compiled and uncompiled report the same changed prefixes, tombstones and usable paths, call after call."""
    both = [Chains(kernel, prefixes) for kernel in TWINS.values()]
    n = len(both[0].paths)
    for _ in range(3):
        withdrawn = data.draw(st.lists(st.integers(0, n), max_size=4))
        rows = data.draw(st.lists(st.integers(1, len(prefixes)), max_size=6))
        changed = data.draw(st.lists(st.integers(0, n), min_size=len(rows), max_size=len(rows)))
        results = []
        for chains in both:
            chains.attributes[withdrawn] = 0
            results.append([column.tolist() for column in chains.select(rows, changed)])
            results[-1] += [column.tolist() for column in chains.decision.usable(chains.prefix_rows, *chains.columns)]
            results[-1] += [chains.decision.best.tolist(), chains.decision.n_chosen]
        assert results[0] == results[1]
        assert results[0][-1] == np.count_nonzero(both[0].decision.best)


@settings(max_examples=200, deadline=None)
@given(octets=st.binary(min_size=1, max_size=80))
def test_any_octets_are_read_alike(octets):
    """A set of arbitrary octets crashes neither twin and leaves the same record in both."""
    records = []
    for kernel in TWINS.values():
        facts = kernel.SetFacts(seed=1)
        facts.learn(np.array([1], np.uint32), np.array([0, len(octets)], np.uint32), np.frombuffer(octets, np.uint8))
        records.append([column.tolist() for column in (facts.records, *facts.next_hops([1]), facts.neighbor_as)])
    assert records[0] == records[1]
