"""The rib stage between policies and readers, over the memory transport."""

import pytest

from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END, START, Position
from common.bus.channels import adj_rib_in, loc_rib
from common.bus.server import Source
from common.config.load import loads
from stages.rib.stage import CHECK_EVERY_S, FILL_LIMIT_S, STAGE, STALE_LIMIT_S
from tests.unit.bus.conftest import World
from tests.unit.stages.policy.test_policy_stage import start
from tests.unit.stages.rib.test_loc_rib import LONG, SHORT, A, B, P, Q, best_of, routes

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64610
[[neighbor]]
name = "b"
address = "10.77.0.11"
asn = 64611
speaker = "1"
"""
V4, V6 = "ipv4-unicast", "ipv6-unicast"


class Script(Source):
    """Sends batches as they are put in; a reader that comes later gets all of them again."""

    def __init__(self, channel: str):
        self.channel = channel
        self.epoch_name = "e"
        self.batches = []

    def put(self, rows, flags=0):
        batch = routes(rows, flags)
        batch.channel, batch.meta["family"] = self.channel, self.channel.split("/")[1]
        batch.position = Position(self.epoch_name, len(self.batches) + 1, -1)
        self.batches.append(batch)

    def read(self, position, max_octets):
        first = position.sequence if position.epoch == self.epoch_name else 0
        return self.batches[first : first + 1]


class Policy:
    """What policy lets through, by speaker and family."""

    def __init__(self, world: World):
        self.world = world
        self.scripts = {(s, f): Script(adj_rib_in(f)) for s in "01" for f in (V4, V6)}
        self.serve()

    def serve(self):
        server = self.world.bus("policy").serve()
        server.add("adj-rib-in/*", lambda ask: self.scripts[ask.params["speaker"], ask.channel.split("/")[1]])

    def put(self, speaker, rows, flags=0, family=V4):
        self.scripts[speaker, family].put(rows, flags)
        self.world.settle()

    def fill(self, *speakers):
        for speaker in speakers:
            for family in (V4, V6):
                self.put(speaker, [], SNAPSHOT_BEGIN | SNAPSHOT_END, family)


class Reader:
    """Follows loc-rib."""

    def __init__(self, world: World, name="fib", position=START, **params):
        self.batches = []
        self.follower = world.bus(name).follow(
            "rib", "0", loc_rib(V4), self.batches.append, params=params, position=position
        )

    def told(self) -> list[dict]:
        told = [best_of((batch.columns, batch.meta)) for batch in self.batches]
        self.batches.clear()
        return told


@pytest.fixture
def world():
    return World()


def test_nothing_is_served_before_all_speakers_have_sent_their_tables(world):
    """The gate: a reader hears nothing until the last speaker's snapshot has ended, then the whole table at once."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.fill("0")
    policy.put("0", [(P, A, SHORT)])
    policy.put("1", [(Q, B, LONG)], SNAPSHOT_BEGIN, V4)
    assert reader.batches == []
    policy.put("1", [], SNAPSHOT_END, V4)
    assert reader.batches == []
    policy.put("1", [], SNAPSHOT_BEGIN | SNAPSHOT_END, V6)
    assert [batch.flags & (SNAPSHOT_BEGIN | SNAPSHOT_END) for batch in reader.batches] == [5]
    assert [set(told) for told in reader.told()] == [{P, Q}]
    policy.put("0", [(P, A, None)])
    assert reader.told() == [{P: None}]


def test_a_speaker_that_never_comes_is_waited_for_a_while_only(world):
    """After the time limit the rib serves without the speaker that is missing."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.fill("0")
    policy.put("0", [(P, A, SHORT)])
    world.wait(FILL_LIMIT_S - 1)
    assert reader.batches == []
    world.wait(2)
    assert [set(told) for told in reader.told()] == [{P}]


def test_routes_of_a_speaker_that_stays_away_go(world):
    """While policy is away routes stay, until the time limit; when it is back its snapshot counts."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.fill("0", "1")
    policy.put("0", [(P, A, SHORT)])
    reader.told()
    world.kill("policy")
    world.settle()
    world.wait(CHECK_EVERY_S)
    world.wait(STALE_LIMIT_S - 2 * CHECK_EVERY_S)
    assert reader.told() == []
    world.wait(2 * CHECK_EVERY_S)
    world.wait(CHECK_EVERY_S)
    assert reader.told() == [{P: None}]
    policy.serve()
    world.settle()
    assert {P: ("a", "10.77.0.10", 1)} in reader.told()
    assert rib.is_open


def test_a_reader_of_another_view_is_refused(world):
    """Only the views that are declared, of families that exist, can be read."""
    Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world, view="second-best")
    world.settle()
    assert "second-best" in reader.follower.refused


def test_views_have_epochs_of_their_own(world):
    """A position of one view does not pass for one of the other."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    best, all_paths = Reader(world), Reader(world, "tap", view="all", tap=True)
    world.settle()
    assert best.follower.position.epoch != all_paths.follower.position.epoch
    assert all_paths.batches[0].meta["view"] == "all"


def test_status_tells_what_is_held(world):
    """The status names each speaker's part and the sizes of the tables."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    policy.put("1", [(P, B, SHORT)])
    status = rib.status()
    assert status["is_open"] and all(speaker["is_complete"] for speaker in status["speakers"])
    assert status["tables"][V4]["n_routes"] == 1
    assert 'headrace_rib_candidates_held{family="ipv4-unicast"} 1.0' in rib.context.metrics.text()


def test_a_speaker_that_is_configured_no_more_goes_with_its_routes(world):
    """After a reload the routes of a speaker that no neighbor names are gone, and a new one is followed."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    policy.put("1", [(P, B, LONG)])
    reader = Reader(world)
    world.settle()
    reader.told()
    rib.reload(loads(CONFIG.replace('speaker = "1"', "")))
    world.settle()
    assert reader.told() == [{P: None}]
    rib.reload(loads(CONFIG))
    world.settle()
    assert [set(told) for told in reader.told()] == [{P}]
