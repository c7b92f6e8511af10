"""The decision process, step by step, each beside what the RFC says."""

from dataclasses import replace

import numpy as np
import pytest

from common.bgp.decision import CHOSEN_WORDS, LOST_WORDS, Step
from common.kernels import decide
from tests.oracles.decide import AS_CONFED_SEQUENCE, AS_SEQUENCE, AS_SET, Path
from tests.unit.kernels.chains import Chains


def path(*asns: int, **more) -> Path:
    return Path(as_path=((AS_SEQUENCE, asns),), **more)


def winner(paths: list[Path]) -> tuple[int, Step]:
    """Return the index of the best path and the deciding step."""
    chains = Chains(decide, [paths])
    chains.select()
    return int(chains.decision.best[1]) - 1, Step(int(chains.decision.reason[1]))


@pytest.mark.parametrize(
    ("better", "worse", "step"),
    [
        (path(1, 2, 3, is_originated=True), path(1, local_pref=900), Step.ORIGINATED),
        (path(1, 2, 3, local_pref=101), path(1), Step.LOCAL_PREF),
        (path(1), path(1, 2), Step.AS_PATH),
        (Path(as_path=((AS_SET, (1, 2, 3)),)), path(1, 2), Step.AS_PATH),
        (Path(as_path=((AS_CONFED_SEQUENCE, (7, 8, 9)), (AS_SEQUENCE, (1,)))), path(1, 2), Step.AS_PATH),
        (path(1, origin=0), path(1, origin=2, med=0), Step.ORIGIN),
        (path(1, 2), path(1, 2, med=1), Step.MED),
        (path(1, med=5), path(1, med=6, router_id=0), Step.MED),
        (path(1, med=6, router_id=0), path(2, med=5), Step.ROUTER_ID),
        (path(1, router_id=9), path(2, is_external=False, router_id=1), Step.EXTERNAL),
        (path(1, metric=3, router_id=9), path(2, next_hop="10.0.0.2", metric=4), Step.METRIC),
        (path(1, router_id=1, address="10.0.0.9"), path(2, router_id=2), Step.ROUTER_ID),
        (path(1, originator_id=1, router_id=9), path(2, router_id=2), Step.ROUTER_ID),
        (path(1, cluster_list=(5,), address="10.0.0.9"), path(2, cluster_list=(5, 6)), Step.CLUSTER_LIST),
        (path(1, address="10.0.0.2"), path(2, address="10.0.0.10"), Step.ADDRESS),
        (path(1, address="10.0.0.2"), path(1, address="2001:db8::1"), Step.ADDRESS),
        (path(1, path_id=3), path(2, path_id=4), Step.PATH_ID),
        (path(1, 2, 3), path(1, metric=None, next_hop="10.0.0.3"), Step.ONLY),
    ],
)
def test_each_step(better, worse, step):
    """The better path wins by this step, in whichever order the two came."""
    assert winner([better, worse]) == (0, step)
    assert winner([worse, better]) == (1, step)


def test_med_does_not_depend_on_the_order_of_arrival():
    """MED is compared within a neighboring AS, so three paths that beat each other in a ring have one winner."""
    ring = [path(1, med=10, router_id=1), path(2, med=0, router_id=2), path(1, med=0, router_id=3)]
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert {order[winner([ring[index] for index in order])[0]] for order in orders} == {1}


def test_an_unreachable_path_is_not_chosen():
    """Where no next hop can be reached nothing is chosen, and the reason says so."""
    chains = Chains(decide, [[path(1, metric=None)]])
    changed, _ = chains.select()
    rows, lost, decided = chains.decision.explain(1, *chains.columns)
    assert changed.tolist() == [] and chains.decision.best[1] == 0
    assert (rows.tolist(), lost.tolist(), decided) == ([1], [Step.UNREACHABLE], Step.NONE)


def test_a_change_of_the_best_path_is_a_change():
    """A prefix is reported when the chosen row is another one, or the same with other attributes; else not."""
    chains = Chains(decide, [[path(1), path(1, 2)]])
    assert chains.select()[0].tolist() == [1]
    assert chains.select()[0].tolist() == []
    assert chains.select([1], [2])[0].tolist() == []
    assert chains.select([1], [1])[0].tolist() == [1]
    chains.attributes[1] = 0
    changed, dead = chains.select([1], [1])
    assert (changed.tolist(), dead.tolist()) == ([1], [1])
    assert chains.decision.best[1] == 2


def test_usable_paths_begin_with_the_best():
    """All usable paths of a prefix are listed, the chosen one first, unreachable ones not."""
    paths = [path(1, 2), path(1, metric=None, next_hop="10.0.0.3"), path(1), path(1, 2, 3)]
    chains = Chains(decide, [paths, []])
    chains.select()
    counts, rows = chains.decision.usable(chains.prefix_rows, *chains.columns)
    assert counts.tolist() == [3, 0]
    assert rows.tolist() == [3, 1, 4]


def test_forgotten_sets_free_their_ways():
    """A way lives as long as one known set has it, and its number is given out again."""
    chains = Chains(decide, [[path(1, next_hop="10.0.0.1"), path(2, next_hop="10.0.0.2")]])
    facts = chains.facts
    limit = facts.way_limit
    facts.forget(np.array([0, 0, 1], np.uint32))
    assert facts.n_ways_known == 1
    assert facts.ways_of([1, 2]).tolist() == [0, 2]
    octets = path(3, next_hop="10.0.0.3").encode()
    offset = np.array([0, len(octets)], np.uint32)
    new = facts.learn(np.array([1], np.uint32), offset, np.frombuffer(octets, np.uint8))
    assert new.tolist() == facts.ways_of([1]).tolist() == [1]
    assert facts.way_limit == limit


def test_each_step_has_words():
    """Whatever can decide or lose can be told to an operator."""
    assert set(CHOSEN_WORDS) == set(Step) - {Step.UNREACHABLE}
    assert set(LOST_WORDS) == set(Step) - {Step.ONLY}


def test_tables_grow_past_their_first_size():
    """Thousands of sets, ways and prefixes are chosen from as a few are."""
    n = 3000
    prefixes = [
        [replace(path(1, 2), next_hop=f"10.1.{i // 256}.{i % 256}"), path(i + 1, address="10.0.0.2")] for i in range(n)
    ]
    chains = Chains(decide, prefixes)
    changed, _ = chains.select()
    assert len(changed) == chains.decision.n_chosen == n
    assert chains.decision.best[1 : n + 1].tolist() == [2 * i + 2 for i in range(n)]
    assert chains.facts.n_ways_known == 2 * n
