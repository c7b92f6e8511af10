"""Routes on their way through all stages, one case at a time."""

import pytest

from common.bgp.constants import Family
from tests.pipeline.harness import Pipeline

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
listen = ["10.77.0.1"]
originate = ["192.0.2.0/24"]

[[neighbor]]
name = "a"
address = "10.77.0.10"
local_address = "10.77.0.1"
asn = 64601
passive = true
import = { default = "accept" }
export = { default = "accept" }

[[neighbor]]
name = "b"
address = "10.77.0.11"
local_address = "10.77.0.1"
asn = 64602
passive = true
import = { default = "accept" }
export = { default = "accept" }

[[neighbor]]
name = "listener"
address = "10.77.0.20"
local_address = "10.77.0.1"
asn = 64700
passive = true
export = { learned_routes = true }
"""
PREFIX = "198.51.100.0/24"
PREFIX_6 = "2001:db8:1::/48"


@pytest.fixture
def pipeline():
    with Pipeline(CONFIG) as made:
        yield made


def as_path(told) -> list[int]:
    """Return the AS numbers of a path that is one sequence."""
    octets = told.attributes[2]
    return [int.from_bytes(octets[at : at + 4], "big") for at in range(2, len(octets), 4)]


def test_a_route_reaches_the_other_neighbors(pipeline):
    """What one neighbor announces, the others are told with our AS before the path and us as next hop, it is not."""
    a, listener = pipeline.peer("a"), pipeline.peer("listener")
    a.announce([PREFIX], as_path=[64601, 3356], med=5)
    a.announce([PREFIX_6], as_path=[64601])
    pipeline.settle()
    assert set(listener.told) == {PREFIX, PREFIX_6, "192.0.2.0/24"}
    assert as_path(listener.told[PREFIX]) == [65000, 64601, 3356]
    assert listener.told[PREFIX].next_hop == bytes([10, 77, 0, 1])
    assert 4 not in listener.told[PREFIX].attributes
    assert set(a.told) == {"192.0.2.0/24"}


def test_the_better_path_is_told_and_the_next_best_after_it(pipeline):
    """The shorter path wins; when it goes, the longer one is told in its place, without a withdrawal between."""
    a, b, listener = pipeline.peer("a"), pipeline.peer("b"), pipeline.peer("listener")
    a.announce([PREFIX], as_path=[64601, 3356])
    pipeline.settle()
    b.announce([PREFIX], as_path=[64602])
    pipeline.settle()
    assert as_path(listener.told[PREFIX]) == [65000, 64602]
    assert as_path(a.told[PREFIX]) == [65000, 64602]
    assert PREFIX not in b.told
    b.withdraw([PREFIX])
    pipeline.settle()
    assert as_path(listener.told[PREFIX]) == [65000, 64601, 3356]
    assert PREFIX not in a.told
    assert as_path(b.told[PREFIX]) == [65000, 64601, 3356]
    assert not listener.faults


def test_a_lost_session_takes_its_routes(pipeline):
    """When a peer is gone, so are its routes."""
    a, listener = pipeline.peer("a"), pipeline.peer("listener")
    a.announce([PREFIX], as_path=[64601])
    pipeline.settle()
    a.vanish()
    pipeline.settle()
    assert set(listener.told) == {"192.0.2.0/24"}


def test_a_peer_that_comes_up_gets_the_table_and_the_end_mark(pipeline):
    """A neighbor that comes up later is told all, then End-of-RIB of both families."""
    a = pipeline.peer("a")
    a.announce([PREFIX], as_path=[64601])
    pipeline.settle()
    listener = pipeline.peer("listener")
    assert set(listener.told) == {PREFIX, "192.0.2.0/24"}
    assert listener.ended == set(Family)


@pytest.mark.parametrize("stage", ["policy", "rib", "exporter"])
def test_a_restart_is_quiet(pipeline, stage):
    """A stage that dies and comes back causes no UPDATE at all when nothing has changed."""
    a, b, listener = pipeline.peer("a"), pipeline.peer("b"), pipeline.peer("listener")
    a.announce([PREFIX, "203.0.113.0/24"], as_path=[64601])
    b.announce([PREFIX], as_path=[64602])
    pipeline.settle()
    before = [peer.n_updates for peer in (a, b, listener)]
    pipeline.restart(stage)
    pipeline.wait(5)
    assert [peer.n_updates for peer in (a, b, listener)] == before
    assert PREFIX in listener.told


@pytest.mark.parametrize("stage", ["policy", "rib", "exporter"])
def test_what_changed_meanwhile_is_told_after_a_restart(pipeline, stage):
    """What was announced and withdrawn while a stage was away is told once it is back, and nothing else."""
    a, listener = pipeline.peer("a"), pipeline.peer("listener")
    a.announce([PREFIX, "203.0.113.0/24"], as_path=[64601])
    pipeline.settle()
    before = listener.n_updates
    pipeline.kill(stage)
    a.withdraw([PREFIX])
    a.announce([PREFIX_6], as_path=[64601])
    pipeline.settle()
    assert listener.n_updates == before
    pipeline.start(stage)
    pipeline.wait(5)
    assert set(listener.told) == {"203.0.113.0/24", PREFIX_6, "192.0.2.0/24"}
    assert listener.n_updates == before + 2
    assert not listener.faults


def test_show_route_gives_all_candidates(pipeline):
    """The rib tells all candidates for a prefix, the chosen one, and why the other lost."""
    a, b = pipeline.peer("a"), pipeline.peer("b")
    a.announce([PREFIX], as_path=[64601])
    b.announce([PREFIX], as_path=[64602, 3356])
    pipeline.settle()
    answer = pipeline.ask("rib", "route", prefix=PREFIX)
    why = {row["neighbor"]: (row["is_chosen"], row["why"]) for row in answer["candidates"]}
    assert why == {"a": (True, "shorter AS path"), "b": (False, "longer AS path")}
    assert pipeline.ask("rib", "route", prefix="198.51.100.77")["prefix"] == PREFIX
    page = pipeline.ask("rib", "routes", family="ipv4-unicast", limit=1)
    rest = pipeline.ask("rib", "routes", family="ipv4-unicast", after=page["next"])
    assert {row["prefix"] for row in page["routes"] + rest["routes"]} == {PREFIX, "192.0.2.0/24"}
    assert rest["next"] is None


@pytest.mark.parametrize("export", ['export = { default = "reject" }', ""])
def test_a_neighbor_that_is_told_nothing_costs_no_stage_anything(export):
    """Where export policy refuses all, the peer gets its End-of-RIB and the exporter is not asked for a table."""
    with Pipeline(CONFIG.replace("export = { learned_routes = true }", export)) as pipeline:
        listener = pipeline.peer("listener")
        assert not listener.told and listener.ended == set(Family)
        assert pipeline.ask("exporter", "status")["groups"] == []
        pipeline.peer("a").announce([PREFIX], as_path=[64601])
        pipeline.settle()
        assert not listener.told and not listener.faults
