"""Another configuration while the router runs: what changes is told, and nothing else happens."""

import pytest

from tests.pipeline.harness import Pipeline
from tests.pipeline.test_pipeline import CONFIG, as_path

P, Q, OWN = "198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24"
NEW = """
[[neighbor]]
name = "late"
address = "10.77.0.30"
local_address = "10.77.0.1"
asn = 64800
passive = true
import = { default = "accept" }
export = { default = "accept" }
"""
LISTENER = "export = { learned_routes = true }"
A = """asn = 64601
passive = true
import = { default = "accept" }"""


@pytest.fixture
def world():
    """The pipeline, with a route of a, one of both, and counts of what the peers were told so far."""
    with Pipeline(CONFIG) as pipeline:
        a, b, listener = (pipeline.peer(name) for name in ("a", "b", "listener"))
        a.announce([P, Q], as_path=[64601], med=7)
        b.announce([Q], as_path=[64602, 3356])
        pipeline.settle()
        yield pipeline
        for peer in pipeline.peers.values():
            assert not peer.faults


def counts(pipeline) -> dict[str, int]:
    return {name: peer.n_updates for name, peer in pipeline.peers.items()}


def everybody_is_up(pipeline) -> bool:
    return all(peer.is_up and not peer.notifications for peer in pipeline.peers.values())


def test_the_same_again_does_nothing(world):
    """A file that says the same makes nobody hear anything."""
    before = counts(world)
    world.reload(CONFIG + "# a remark")
    world.wait(5)
    assert counts(world) == before and everybody_is_up(world)


def test_an_export_change_tells_the_differences(world):
    """Another export block moves one neighbor to another group: it is told what differs, others nothing."""
    before, listener = counts(world), world.peers["listener"]
    world.reload(CONFIG.replace(LISTENER, "export = { as_path_prepend = 1, originated_routes = false }"))
    world.wait(5)
    assert set(listener.told) == {P, Q} and as_path(listener.told[P]) == [65000, 65000, 64601]
    assert counts(world) == {**before, "listener": before["listener"] + 2} and everybody_is_up(world)
    world.reload(CONFIG.replace(LISTENER, "export = { as_path_prepend = 1 }"))
    world.wait(5)
    assert set(listener.told) == {P, Q, OWN}
    assert counts(world)["listener"] == before["listener"] + 3


def test_an_export_change_that_means_the_same_tells_nothing(world):
    """Another group with the same routes in the same words: not one UPDATE."""
    before = counts(world)
    world.reload(CONFIG.replace(LISTENER, 'export = { remove_communities = ["65000:7"] }'))
    world.wait(5)
    assert counts(world) == before and everybody_is_up(world)
    world.peers["a"].withdraw([P])
    world.settle()
    assert set(world.peers["listener"].told) == {Q, OWN}


def test_export_taken_away_and_given_back(world):
    """Without an export block an external neighbor is told nothing (RFC 8212); with it, all again."""
    listener = world.peers["listener"]
    world.reload(CONFIG.replace(LISTENER, ""))
    world.wait(5)
    assert listener.told == {}
    world.reload(CONFIG)
    world.wait(5)
    assert set(listener.told) == {P, Q, OWN} and everybody_is_up(world)


def test_members_of_one_group_part_and_meet(world):
    """Of two neighbors in one group one gets another policy, and the old one again: the other hears nothing."""
    same = CONFIG.replace(LISTENER, 'export = { default = "accept" }')
    world.reload(same)
    world.wait(5)
    before = counts(world)
    apart = same.replace(
        "asn = 64700\npassive = true\nexport = {", "asn = 64700\npassive = true\nexport = { as_path_prepend = 3,"
    )
    assert apart != same
    world.reload(apart)
    world.wait(5)
    assert len(as_path(world.peers["listener"].told[P])) == 5
    assert counts(world) == {**before, "listener": before["listener"] + 2}
    world.reload(same)
    world.wait(5)
    assert len(as_path(world.peers["listener"].told[P])) == 2
    assert {**counts(world), "listener": 0} == {**before, "listener": 0} and everybody_is_up(world)


def test_an_import_change_is_evaluated_without_the_neighbor(world):
    """Routes that were refused come in, and go, with no route refresh: the Adj-RIB-In has them."""
    before, listener = counts(world), world.peers["listener"]
    world.reload(CONFIG.replace(A, A.replace("accept", "reject")))
    world.wait(5)
    assert set(listener.told) == {Q, OWN} and as_path(listener.told[Q])[1] == 64602
    assert set(world.peers["b"].told) == {OWN} and counts(world)["b"] == before["b"] + 1
    world.reload(CONFIG)
    world.wait(5)
    assert set(listener.told) == {P, Q, OWN} and as_path(listener.told[Q])[1] == 64601
    assert everybody_is_up(world)


def test_neighbors_come_and_go(world):
    """A neighbor that is added gets its session, one that is removed loses its own; nobody else hears of sessions."""
    world.reload(CONFIG + NEW)
    late = world.peer("late")
    assert set(late.told) == {P, Q, OWN}
    late.announce(["100.64.0.0/10"], as_path=[64800])
    world.settle()
    assert "100.64.0.0/10" in world.peers["listener"].told
    world.reload(CONFIG)
    world.wait(2)
    assert not late.is_up and late.notifications[0].subcode == 3
    assert set(world.peers["listener"].told) == {P, Q, OWN}
    assert all(world.peers[name].is_up for name in ("a", "b", "listener"))


def test_what_the_session_depends_on_costs_that_session_alone(world):
    """Another hold time ends one session, which comes up again; the others stand."""
    changed = CONFIG.replace("asn = 64700", "asn = 64700\nhold_time_s = 30")
    world.reload(changed)
    world.settle()
    listener = world.peers["listener"]
    assert not listener.is_up and listener.notifications[0].subcode == 6
    world.peer("listener")
    assert set(listener.told) == {P, Q, OWN} and all(world.peers[name].is_up for name in ("a", "b"))


def test_a_neighbor_that_another_speaker_takes_over():
    """A change of its speaker costs that neighbor's session; its routes then come by the other one."""
    with Pipeline(CONFIG.replace('name = "b"', 'name = "b"\nspeaker = "west"')) as pipeline:
        a, listener = pipeline.peer("a"), pipeline.peer("listener")
        a.announce([P], as_path=[64601])
        pipeline.peer("b").announce([Q], as_path=[64602])
        pipeline.settle()
        moved = CONFIG.replace('name = "b"', 'name = "b"\nspeaker = "west"')
        moved = moved.replace('name = "a"', 'name = "a"\nspeaker = "west"')
        pipeline.reload(moved)
        pipeline.settle()
        assert not a.is_up and set(listener.told) == {Q, OWN}
        pipeline.peer("a").announce([P], as_path=[64601])
        pipeline.settle()
        assert set(listener.told) == {P, Q, OWN} and listener.is_up
