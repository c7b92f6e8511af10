"""The policy stage between an owner and a reader, over the memory transport."""

import pytest

from common.bgp.reasons import ImportRefusal
from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, START
from common.bus.channels import adj_rib_in
from common.bus.control import ControlError
from common.config.load import loads
from common.runtime.metrics import Metrics
from common.runtime.stage import Context, Skeleton
from stages.policy.stage import STAGE
from tests.oracles import dress as sets
from tests.unit.bus.conftest import SOURCE, Copy, Owner, World

CHANNEL = adj_rib_in("ipv4-unicast")
BASE = """
[router]
asn = 65000
router_id = "10.77.0.1"
[policy]
martians = ["127.0.0.0/8"]
[[neighbor]]
name = "a"
address = "10.0.0.1"
asn = 64601
enforce_first_as = false
{}
"""
ACCEPT, REJECT = 'import = { default = "accept" }', 'import = { default = "reject" }'


def start(world: World, stage_class, text: str):
    """Run a stage on a bus of the world."""
    name = stage_class.name
    bus = world.bus(name)
    loop, log = world.loops[name], world.logs[name]
    context = Context(world.clock, loop, bus, Metrics(name), log, seed=1)
    stage = stage_class(loads(text), "0", context)
    Skeleton(stage, context).start()
    return stage


@pytest.fixture
def world():
    return World()


@pytest.fixture
def owner(world):
    return Owner(world.bus("speaker"))


def follow(world: World, copy: Copy, position=START, **more):
    world_bus = world.buses.get("rib") or world.bus("rib")
    return world_bus.follow("policy", "0", CHANNEL, copy.handle, position=position, **more)


def address(text: str) -> int:
    return int.from_bytes(bytes(map(int, text.split("."))), "big")


GOOD, BAD = address("192.0.2.1"), address("127.0.0.1")


def test_routes_come_through_and_refused_ones_are_gone(world, owner):
    """A reader of the policy has what the speaker has, but for what is refused; live changes follow."""
    stage = start(world, STAGE, BASE.format(ACCEPT))
    copy = Copy()
    owner.put(1, GOOD)
    owner.put(2, BAD)
    follow(world, copy)
    world.settle()
    assert copy.values == {1: GOOD}
    assert copy.flags[0] & SNAPSHOT_BEGIN and copy.flags[-1] & SNAPSHOT_END and copy.events == [1, 3]
    owner.put(1, BAD)
    owner.put(2, GOOD)
    world.settle()
    assert copy.values == {2: GOOD} and not copy.flags[-1] & SNAPSHOT
    assert stage.status()["routes_refused"] == {ImportRefusal.NEXT_HOP_UNUSABLE.words: 2}
    assert stage.controls()["refused"]({})["neighbors"] == {"a": {ImportRefusal.NEXT_HOP_UNUSABLE.words: 2}}


def test_a_new_policy_process_goes_on_where_the_reader_was(world, owner):
    """Positions are the speaker's: after a restart with the same configuration only what is new is sent."""
    start(world, STAGE, BASE.format(ACCEPT))
    copy = Copy()
    owner.put(1, GOOD)
    follow(world, copy)
    world.settle()
    n_before = len(copy.batches)
    world.kill("policy")
    owner.put(2, GOOD)
    world.settle()
    start(world, STAGE, BASE.format(ACCEPT))
    world.wait(5)
    assert copy.values == {1: GOOD, 2: GOOD}
    assert not any(flags & SNAPSHOT for flags in copy.flags[n_before:])


def test_a_restart_with_another_configuration_is_noticed(world, owner):
    """The version is part of the epoch: the reader gets a snapshot and loses what is refused now."""
    start(world, STAGE, BASE.format(ACCEPT))
    copy = Copy()
    owner.put(1, GOOD)
    follow(world, copy)
    world.settle()
    world.kill("policy")
    start(world, STAGE, BASE.format(REJECT))
    world.wait(5)
    assert copy.values == {}
    assert sum(bool(flags & SNAPSHOT_BEGIN) for flags in copy.flags) == 2


def test_a_reload_evaluates_again(world, owner):
    """Another configuration makes a snapshot for all readers; the same one makes nothing."""
    stage = start(world, STAGE, BASE.format(REJECT))
    copy = Copy()
    owner.put(1, GOOD)
    follow(world, copy)
    world.settle()
    assert copy.values == {}
    n_batches = len(copy.batches)
    stage.reload(loads(BASE.format(REJECT)))
    world.settle()
    assert len(copy.batches) == n_batches
    stage.reload(loads(BASE.format(ACCEPT)))
    world.settle()
    assert copy.values == {1: GOOD}


def test_explain_says_what_became_of_a_route(world):
    """An operator gets the verdict, its words, and the set as policy leaves it."""
    stage = start(world, STAGE, BASE.format("import = { local_pref = 120 }"))
    good = sets.encode(b"\xc0\0\2\1", {1: (0x40, b"\0"), 2: (0x40, sets.path_of([(2, [64601])], 4))})
    bad = sets.encode(b"\x7f\0\0\1", {1: (0x40, b"\0")})
    question = {
        "family": "ipv4-unicast",
        "sources": [SOURCE],
        "routes": [
            {"source": 0, "set": good, "prefix": "198.51.100.0/24"},
            {"source": 0, "set": bad, "prefix": "198.51.100.0/24"},
            {"source": 0, "set": good, "prefix": "127.0.0.0/8"},
        ],
    }
    one, two, three = stage.controls()["explain"](question)["routes"]
    assert one["refusal"] == 0 and sets.decode(one["set"])[1][5] == (0x40, sets.put(120))
    assert two == {
        "refusal": int(ImportRefusal.NEXT_HOP_UNUSABLE),
        "reason": ImportRefusal.NEXT_HOP_UNUSABLE.words,
        "set": None,
    }
    assert three["reason"] == ImportRefusal.MARTIAN.words
    assert stage.status()["routes_evaluated"] == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"family": "ipx"},
        {"routes": [{"source": 1, "set": b"\0\x40\1\1\0", "prefix": "10.0.0.0/8"}]},
        {"routes": [{"source": 0, "set": b"", "prefix": "10.0.0.0/8"}]},
        {"routes": [{"source": 0, "set": b"\0\x40\1\1\0", "prefix": "2001:db8::/32"}]},
        {"routes": [{}]},
        {"sources": 7},
    ],
)
def test_a_broken_question_is_answered_with_an_error(world, broken):
    """Whatever is asked, the stage goes on."""
    stage = start(world, STAGE, BASE.format(ACCEPT))
    question = {"family": "ipv4-unicast", "sources": [SOURCE], "routes": [], **broken}
    with pytest.raises(ControlError):
        stage.controls()["explain"](question)
