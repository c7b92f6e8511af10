"""Sessions lost and found again, through all stages: who keeps what, for how long, and who is told (RFC 4724)."""

from dataclasses import replace

import pytest

from common.bgp.capabilities import GracefulRestart
from common.bgp.constants import CeaseSubcode, Family
from common.bgp.messages import Notification
from tests.pipeline.harness import Peer, Pipeline
from tests.pipeline.test_pipeline import CONFIG

KEPT = tuple((family, True) for family in Family)
RESTART = GracefulRestart(60, families=KEPT)
P, Q, R = "198.51.100.0/24", "203.0.113.0/24", "2001:db8:1::/48"
OWN = "192.0.2.0/24"


@pytest.fixture
def pipeline():
    with Pipeline(CONFIG) as made:
        yield made


def fill(pipeline, restart: GracefulRestart | None = RESTART) -> tuple[Peer, Peer]:
    """Return a neighbor with graceful restart that has announced three prefixes, and one that was told them."""
    a, listener = pipeline.peer("a", restart), pipeline.peer("listener")
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    a.end_of_rib()
    pipeline.settle()
    assert set(listener.told) == {P, Q, R, OWN}
    return a, listener


# ---- a neighbor restarts: we keep its routes ---------------------------------------------------------------------


def test_a_lost_session_changes_nothing_for_others(pipeline):
    """A neighbor that promised to come back, does, and tells the same again: nobody else hears of it."""
    a, listener = fill(pipeline)
    before = listener.n_updates
    a.vanish()
    pipeline.wait(50, step_s=10)
    a.restart = replace(RESTART, is_restarting=True)
    pipeline.peer("a")
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    a.end_of_rib()
    pipeline.wait(10)
    assert listener.n_updates == before and set(listener.told) == {P, Q, R, OWN}


def test_end_of_rib_ends_what_is_stale(pipeline):
    """What a neighbor does not announce again is withdrawn at its End-of-RIB, not before; what it changes at once."""
    a, listener = fill(pipeline)
    a.vanish()
    pipeline.settle()
    pipeline.peer("a")
    a.announce([P], as_path=[64601, 3356])
    pipeline.settle()
    assert set(listener.told) == {P, Q, R, OWN} and len(listener.told[P].attributes[2]) == 14
    a.end_of_rib()
    pipeline.settle()
    assert set(listener.told) == {P, OWN}
    assert not listener.faults


def test_a_neighbor_that_does_not_come_back_loses_its_routes(pipeline):
    """Its routes are kept for the restart time it gave, and no longer."""
    a, listener = fill(pipeline)
    a.vanish()
    pipeline.settle()
    pipeline.wait(RESTART.restart_time_s - 1, step_s=10)
    assert set(listener.told) == {P, Q, R, OWN}
    pipeline.wait(2)
    assert set(listener.told) == {OWN}


def test_an_end_of_rib_that_does_not_come_is_not_waited_for(pipeline):
    """After the stale time routes that were not announced again go, although the session is up."""
    a, listener = fill(pipeline)
    a.vanish()
    pipeline.settle()
    pipeline.peer("a")
    a.announce([P], as_path=[64601])
    pipeline.wait(pipeline.config.graceful_restart.stale_time_s, step_s=20)
    assert set(listener.told) == {P, OWN}


def test_two_restarts_in_a_row(pipeline):
    """Routes that are stale from a first restart go at the second (RFC 4724 §4.2)."""
    a, listener = fill(pipeline)
    a.vanish()
    pipeline.settle()
    pipeline.peer("a")
    a.announce([P], as_path=[64601])
    pipeline.settle()
    a.vanish()
    pipeline.settle()
    assert set(listener.told) == {P, OWN}


@pytest.mark.parametrize(
    ("restart", "left"),
    [
        (None, set()),
        (replace(RESTART, families=()), set()),
        (replace(RESTART, families=((Family.IPV4_UNICAST, False), (Family.IPV6_UNICAST, True))), {R}),
        (replace(RESTART, families=((Family.IPV4_UNICAST, True),)), {P, Q}),
    ],
)
def test_what_a_neighbor_has_not_kept_goes_when_it_is_back(pipeline, restart, left):
    """Families without the Forwarding State bit, or without graceful restart, lose their stale routes at once."""
    a, listener = fill(pipeline)
    a.vanish()
    pipeline.settle()
    a.restart = restart
    a.connect()
    pipeline.settle()
    assert a.is_up and set(listener.told) == left | {OWN}


@pytest.mark.parametrize(
    ("has_notification", "subcode", "is_kept"),
    [
        (False, CeaseSubcode.ADMINISTRATIVE_RESET, False),
        (True, CeaseSubcode.ADMINISTRATIVE_RESET, True),
        (True, CeaseSubcode.HARD_RESET, False),
    ],
)
def test_after_a_notification(pipeline, has_notification, subcode, is_kept):
    """A NOTIFICATION ends all, unless both sides have said otherwise (RFC 8538); a Hard Reset ends all even then."""
    a, listener = fill(pipeline, replace(RESTART, has_notification=has_notification))
    a.send(Notification(6, subcode).encode())
    pipeline.settle()
    a.vanish()
    pipeline.settle()
    assert set(listener.told) == ({P, Q, R, OWN} if is_kept else {OWN})


def test_a_session_without_graceful_restart_takes_its_routes(pipeline):
    """Without the capability a lost session is RFC 4271's: its routes go."""
    a, listener = fill(pipeline, None)
    a.vanish()
    pipeline.settle()
    assert set(listener.told) == {OWN}


def test_a_neighbor_that_connects_anew_has_lost_its_session(pipeline):
    """A second connection of a neighbor with graceful restart ends the first without a NOTIFICATION (RFC 4724 §4.2)."""
    a, listener = fill(pipeline)
    before, former = listener.n_updates, a._socket
    pipeline.wait(3)
    a.connect()
    pipeline.settle()
    assert a.is_up and not a.notifications
    assert b"\xff" * 16 + b"\x00\x15\x03" not in former.recv(4096)
    former.close()
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    a.end_of_rib()
    pipeline.settle()
    assert listener.n_updates == before and set(listener.told) == {P, Q, R, OWN}


# ---- the speaker restarts: they keep ours, and the rib keeps theirs ----------------------------------------------


def chosen(pipeline) -> dict[str, str]:
    return {row["prefix"]: row["neighbor"] for row in pipeline.ask_pages("rib", "routes")}


def heads(pipeline) -> list[int]:
    return [table.journal.head for table in pipeline.stage("rib").loc_ribs.values()]


def test_nothing_goes_downstream_when_the_speaker_is_killed(pipeline):
    """A killed speaker's routes stay chosen until its neighbors have told them again; readers see no change at all."""
    fill(pipeline)
    before = heads(pipeline)
    pipeline.kill("speaker")
    pipeline.settle()
    told = pipeline.skeletons["rib"].status()
    assert told["state"] == "syncing" and told["missing"][0] == "speaker.0:adj-rib-in/ipv4-unicast"
    pipeline.wait(30, step_s=2)
    pipeline.start("speaker")
    pipeline.settle()
    assert pipeline.skeletons["rib"].status()["state"] == "in step"
    a = pipeline.peer("a")
    assert a.offered.is_restarting and set(a.offered.families) == set(KEPT)
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    pipeline.settle()
    a.end_of_rib()
    pipeline.wait(5)
    assert heads(pipeline) == before and chosen(pipeline) == {P: "a", Q: "a", R: "a", OWN: ""}


@pytest.mark.parametrize("is_restarting", [False, True])
def test_a_neighbor_may_be_back_before_the_rib_hears_of_the_new_speaker(pipeline, is_restarting):
    """Its routes are kept until its End-of-RIB also when it has set the Restart State bit, as FRR does every time."""
    fill(pipeline)
    before = heads(pipeline)
    for stage in ("policy", "speaker"):
        pipeline.kill(stage)
    pipeline.settle()
    pipeline.start("speaker")
    a = pipeline.peer("a", replace(RESTART, is_restarting=is_restarting))
    pipeline.start("policy")
    pipeline.wait(3)
    assert heads(pipeline) == before
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    a.end_of_rib()
    pipeline.wait(3)
    assert heads(pipeline) == before


def test_what_is_not_told_again_goes_at_the_end_of_rib(pipeline):
    """A new speaker learns at End-of-RIB what its neighbor withdrew meanwhile; a listener is told exactly that."""
    fill(pipeline)
    pipeline.restart("speaker")
    listener = pipeline.peer("listener")
    assert set(listener.told) == {P, Q, R, OWN}
    a = pipeline.peer("a")
    a.announce([P], as_path=[64601])
    pipeline.settle()
    before = listener.n_updates
    a.end_of_rib()
    pipeline.settle()
    assert set(listener.told) == {P, OWN} and listener.n_updates == before + 2
    assert not listener.faults


def test_neighbors_without_graceful_restart_lose_their_routes_with_the_speaker(pipeline):
    """Those who promised nothing are not waited for: the new speaker's table is the truth."""
    fill(pipeline)
    b = pipeline.peer("b")
    b.announce(["100.64.0.0/10"], as_path=[64602])
    pipeline.settle()
    pipeline.restart("speaker")
    assert set(chosen(pipeline)) == {P, Q, R, OWN}


def test_a_neighbor_that_stays_away_is_given_up(pipeline):
    """After the selection deferral time the routes of a neighbor that has not come back go."""
    fill(pipeline)
    pipeline.restart("speaker")
    pipeline.wait(pipeline.config.graceful_restart.selection_deferral_s - 5, step_s=10)
    assert set(chosen(pipeline)) == {P, Q, R, OWN}
    pipeline.wait(10)
    assert set(chosen(pipeline)) == {OWN}
    pipeline.restart("speaker")
    assert pipeline.stage("speaker").promises.open == {}


def test_speaker_and_rib_killed_together(pipeline):
    """When both come back nothing is served before the End-of-RIB of the neighbor that promised one."""
    fill(pipeline)
    pipeline.kill("rib")
    pipeline.kill("speaker")
    pipeline.settle()
    pipeline.start("speaker")
    pipeline.start("rib")
    pipeline.settle()
    listener = pipeline.peer("listener")
    a = pipeline.peer("a")
    a.announce([P], as_path=[64601])
    pipeline.wait(3)
    assert listener.told == {} and not listener.ended and not pipeline.stage("rib").is_open
    a.end_of_rib()
    pipeline.wait(3)
    assert set(listener.told) == {P, OWN} and listener.ended == set(Family)


def test_speaker_and_policy_killed_together(pipeline):
    """The rib keeps what it has when the way to a dead speaker is dead too."""
    fill(pipeline)
    before = heads(pipeline)
    for stage in ("policy", "speaker"):
        pipeline.kill(stage)
    pipeline.wait(10)
    for stage in ("policy", "speaker"):
        pipeline.start(stage)
    pipeline.wait(3)
    a = pipeline.peer("a")
    a.announce([P, Q], as_path=[64601])
    a.announce([R], as_path=[64601])
    a.end_of_rib()
    pipeline.settle()
    assert heads(pipeline) == before


def test_an_orderly_restart_leaves_neighbors_what_they_hold(pipeline):
    """Asked to restart, the speaker drops connections without a NOTIFICATION, or with one that is no Hard Reset."""
    a, listener = fill(pipeline)
    b = pipeline.peer("b", replace(RESTART, has_notification=True))
    pipeline.skeletons["speaker"].stage.is_to_return = True
    pipeline.skeletons["speaker"].stage.drain()
    for peer in (a, b, listener):
        peer.turn()
    assert a.notifications == []
    assert [(each.code, each.subcode) for each in b.notifications] == [(6, CeaseSubcode.ADMINISTRATIVE_RESET)]
    assert [(each.code, each.subcode) for each in listener.notifications] == [(6, CeaseSubcode.ADMINISTRATIVE_RESET)]
    pipeline.restart("speaker")
    assert set(pipeline.stage("speaker").promises.open) == {"a", "b"}


def test_an_orderly_end_is_a_hard_reset(pipeline):
    """At its end the speaker tells neighbors to keep nothing, and expects nobody to come back."""
    b = pipeline.peer("b", replace(RESTART, has_notification=True))
    pipeline.skeletons["speaker"].stage.drain()
    b.turn()
    (told,) = b.notifications
    assert (told.code, told.subcode) == (6, CeaseSubcode.HARD_RESET)
    assert told.encapsulated.subcode == CeaseSubcode.ADMINISTRATIVE_SHUTDOWN
    pipeline.restart("speaker")
    assert pipeline.stage("speaker").promises.open == {}


# ---- several speakers ----------------------------------------------------------------------------------------------

TWO = CONFIG.replace('name = "a"', 'name = "a"\nspeaker = "west"')


def test_one_of_two_speakers_restarts_alone():
    """Neighbors of another speaker keep their session and hear nothing while one is killed and comes back."""
    with Pipeline(TWO) as pipeline:
        a, listener = fill(pipeline)
        b = pipeline.peer("b")
        b.announce(["100.64.0.0/10"], as_path=[64602])
        pipeline.settle()
        assert "100.64.0.0/10" in a.told
        before = listener.n_updates, b.n_updates
        pipeline.restart("speaker.west")
        assert not a.is_up and listener.is_up and b.is_up
        pipeline.peer("a")
        assert set(a.told) == {"100.64.0.0/10", OWN}
        a.announce([P, Q], as_path=[64601])
        a.announce([R], as_path=[64601])
        a.end_of_rib()
        pipeline.wait(10)
        assert (listener.n_updates, b.n_updates) == before
        assert set(listener.told) == {P, Q, R, OWN, "100.64.0.0/10"}
