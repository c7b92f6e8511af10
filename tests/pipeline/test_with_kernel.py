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
    config = CONFIG.replace('originate = ["192.0.2.0/24"]', 'originate = ["203.0.113.0/24"]') + MORE
    with Pipeline(config, (*STAGES, "fib")) as made:
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
