"""Routes through all stages with a fib behind the rib, whose kernel is made of dictionaries."""

import pytest

from stages.fib.memory import Memory
from stages.fib.stage import FibStage
from tests.pipeline.harness import STAGES, Pipeline
from tests.pipeline.test_pipeline import CONFIG, PREFIX
from tests.unit.stages.fib import world
from tests.unit.stages.fib.world import AF_INET, FakeKernel, halves

MORE = """
announce_after_install = true

[[neighbor]]
name = "eager"
address = "10.77.0.21"
local_address = "10.77.0.1"
asn = 64701
passive = true
export = { learned_routes = true }

[fib]
enabled = true
maximum_paths = 2
"""
CONFIGURATION = CONFIG.replace('originate = ["192.0.2.0/24"]', 'originate = ["203.0.113.0/24"]') + MORE
HOP = "192.0.2.10"


@pytest.fixture
def kernel(monkeypatch):
    made = FakeKernel(254, 20)
    monkeypatch.setattr(FibStage, "KERNEL", staticmethod(lambda table, metric, **more: made))
    monkeypatch.setattr(FibStage, "MEMORY", staticmethod(lambda path, world: Memory()))
    monkeypatch.setattr(FibStage, "GATHER_S", 0.0)
    return made


@pytest.fixture
def pipeline(kernel):
    with Pipeline(CONFIGURATION, (*STAGES, "fib")) as made:
        yield made


def test_a_route_is_told_when_the_kernel_has_it(pipeline, kernel):
    """One neighbor is told at once, the other when the kernel has the route; gone from there, it is withdrawn."""
    kernel.foreign.add(halves(PREFIX))
    a, listener, eager = (pipeline.peer(name) for name in ("a", "listener", "eager"))
    pipeline.settle()
    assert list(listener.told) == list(eager.told) == ["203.0.113.0/24"]
    a.announce([PREFIX], HOP, as_path=[64601])
    pipeline.settle()
    assert PREFIX in eager.told and PREFIX not in listener.told
    kernel.foreign.clear()
    pipeline.clock.advance(2)
    pipeline.settle()
    assert PREFIX in listener.told and halves(PREFIX) in kernel.ours
    a.withdraw([PREFIX])
    pipeline.settle()
    assert PREFIX not in listener.told and PREFIX not in eager.told and not kernel.ours


def test_a_route_the_kernel_lost_is_withdrawn(pipeline, kernel):
    """What another program put in its place is no route of ours any more: the neighbor is told so."""
    a, listener = pipeline.peer("a"), pipeline.peer("listener")
    a.announce([PREFIX], HOP, as_path=[64601])
    pipeline.settle()
    assert PREFIX in listener.told
    key = halves(PREFIX)
    del kernel.ours[key]
    kernel.foreign.add(key)
    kernel.notifications.put(world.dumped(AF_INET, key, 0, protocol=4, flags=0x100))
    pipeline.settle()
    assert PREFIX not in listener.told


def test_equally_good_paths_share_the_traffic(pipeline, kernel):
    """Two neighbors' paths that differ in nothing up to the metric make a group; one of them alone does not."""
    a, b = pipeline.peer("a"), pipeline.peer("b")
    a.announce([PREFIX], HOP, as_path=[64601, 3356])
    b.announce([PREFIX], "192.0.2.11", as_path=[64602, 1299])
    pipeline.settle()
    (group,) = [state for state in kernel.groups.values()]
    assert [weight for _, weight in group] == [1, 1] and kernel.ours[halves(PREFIX)] in kernel.groups
    b.announce([PREFIX], "192.0.2.11", as_path=[64602, 1299, 1299])
    pipeline.settle()
    assert kernel.ours[halves(PREFIX)] not in kernel.groups


def test_an_unreachable_next_hop_loses_without_being_chosen_first(pipeline, kernel):
    """All candidates' next hops are resolved: a shorter path by a next hop nobody reaches is not chosen."""
    a, b, eager = (pipeline.peer(name) for name in ("a", "b", "eager"))
    a.announce([PREFIX], "198.18.0.1", as_path=[64601])
    b.announce([PREFIX], HOP, as_path=[64602, 1299])
    pipeline.settle()
    assert kernel.ours.keys() == {halves(PREFIX)} and PREFIX in eager.told
    answer = pipeline.skeletons["rib"].stage.controls()["route"]({"prefix": PREFIX})
    assert [one["neighbor"] for one in answer["candidates"] if one["is_chosen"]] == ["b"]
    pipeline.clock.advance(25)
    pipeline.settle()
    answer = pipeline.skeletons["rib"].stage.controls()["route"]({"prefix": PREFIX})
    assert [one["neighbor"] for one in answer["candidates"] if one["is_chosen"]] == ["b"]


def test_ribs_that_share_out_anew_change_nothing_in_the_kernel(pipeline, kernel):
    """From one rib to four, to other names, and back: no route is changed, nobody is told, and changes go on."""
    a, b, listener, eager = (pipeline.peer(name) for name in ("a", "b", "listener", "eager"))
    prefixes = [f"198.{n}.0.0/16" for n in range(20, 40)]
    a.announce(prefixes, HOP, as_path=[64601])
    b.announce(prefixes[:5], "192.0.2.11", as_path=[64602])
    pipeline.settle()
    held = dict(kernel.ours)
    n_before = len(kernel.calls), listener.n_updates, eager.n_updates
    assert len(held) == 20 and listener.told.keys() >= set(prefixes)
    for ribs in ("4", '["north", "south"]', "1"):
        pipeline.reload(CONFIGURATION + f"[rib]\ninstances = {ribs}\n")
        pipeline.wait(15, step_s=5)
        assert (len(kernel.calls), listener.n_updates, eager.n_updates) == n_before and kernel.ours == held
    a.withdraw(prefixes[5:])
    pipeline.reload(CONFIGURATION + "[rib]\ninstances = 3\n")
    pipeline.wait(15, step_s=5)
    assert kernel.ours.keys() == {halves(prefix) for prefix in prefixes[:5]}
    assert set(listener.told) == set(eager.told) == {"203.0.113.0/24", *prefixes[:5]}
