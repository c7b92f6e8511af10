"""The fib stage beside another program that writes in our name, with notifications and answers that come late."""

import itertools
import random

import pytest

from common.bgp.constants import Family
from stages.fib.messages import PROTOCOL
from tests.unit.stages.fib.world import CONFIG, FakeKernel, World, halves

PREFIX, KEY = "198.51.100.0/24", halves("198.51.100.0/24")
THEIRS = 99  # a nexthop object of others


@pytest.fixture(params=[True, False], ids=["objects", "plain"])
def fake(request):
    kernel = FakeKernel(254, 20)
    kernel.has_objects = request.param
    kernel.make = lambda table, metric, **more: (kernel.listen(), kernel)[1]
    return kernel


@pytest.fixture
def stage(fake):
    """A fib that has just repaired something, so that what is spoiled next waits for a second."""
    stage = World(fake.make, CONFIG + f"nexthop_objects = {str(fake.has_objects).lower()}\n")
    stage.change({"203.0.113.0/24": "192.0.2.10", PREFIX: "192.0.2.10"})
    fake.others_delete(halves("203.0.113.0/24"), PROTOCOL)
    stage.turn()
    stage.change({"203.0.113.0/24": None})
    return stage


def is_clean(stage: World, fake: FakeKernel) -> bool:
    """Whether the kernel has no route of ours, and the plan knows of none."""
    plan = stage.fib.plans[Family.IPV4_UNICAST]
    is_forgotten = (plan.n_installed, plan.n_queued, plan.prefixes.n_prefixes) == (0, 0, 0)
    return is_forgotten and not fake.ours and not any(fake.behind.values())


@pytest.mark.parametrize("n_behind", [1, 2, 3])
def test_what_was_appended_in_our_name_goes_with_a_withdrawal(stage, fake, n_behind):
    """Ours is withdrawn before what stands behind it was repaired: all of it is removed."""
    for i in range(n_behind):
        fake.others_write(KEY, THEIRS + i, PROTOCOL, False)
    stage.change({PREFIX: None})
    assert is_clean(stage, fake)


@pytest.mark.parametrize("hop", ["192.0.2.10", "192.0.2.11"])
def test_what_was_appended_in_our_name_leaves_one_route(stage, fake, hop):
    """Ours moves or stays: it is the only one in the end."""
    stage.change({"203.0.113.0/24": "192.0.2.11"})
    for i in range(2):
        fake.others_write(KEY, THEIRS + i, PROTOCOL, False)
    stage.change({PREFIX: hop})
    stage.advance(2)
    assert not any(fake.behind.values()) and fake.ours[KEY] not in (THEIRS, THEIRS + 1)
    stage.change({PREFIX: None, "203.0.113.0/24": None})
    assert is_clean(stage, fake)


def told_late(stage: World, fake: FakeKernel, done) -> None:
    """Have another program do something that is told after our route has moved, and withdraw ours before a repair."""
    fake.notifications.come_late(True)
    done()
    stage.change({PREFIX: "192.0.2.11"})
    fake.notifications.come_late(False)
    stage.turn()
    stage.change({PREFIX: None})
    stage.advance(2)


def test_a_deletion_told_late_hides_no_route(stage, fake):
    """Others deleted ours, and we had written it anew before we heard of it: it goes when it is withdrawn."""
    told_late(stage, fake, lambda: fake.others_delete(KEY, PROTOCOL))
    assert is_clean(stage, fake)


def test_a_replacement_told_late_hides_no_route(stage, fake):
    """Others had a route in the place of ours for a moment, in their own name, and ours was written anew since."""
    told_late(stage, fake, lambda: fake.others_write(KEY, THEIRS, 4, True))
    assert is_clean(stage, fake)


def test_no_lost_answer_has_others_overwritten(stage, fake):
    """The kernel refused ours because of theirs, and its answer was lost: theirs stays."""
    stage.change({PREFIX: None})
    fake.foreign.add(KEY)
    fake.lose_answers = True
    stage.change({PREFIX: "192.0.2.10"})
    fake.lose_answers = False
    stage.advance(61)
    assert KEY in fake.foreign and KEY not in fake.ours
    assert stage.fib.status()["families"]["ipv4-unicast"]["refused"] == {"EEXIST": 1}
    fake.others_delete(KEY, 4)
    stage.turn()
    assert KEY in fake.ours


def test_a_route_deleted_and_added_in_our_name_is_removed(stage, fake):
    """Both are told at once; what comes last is in the kernel."""
    fake.others_delete(KEY, PROTOCOL)
    fake.others_write(KEY, THEIRS, PROTOCOL, False)
    stage.change({PREFIX: None})
    assert is_clean(stage, fake)


def test_ours_behind_what_took_the_place_of_others_is_removed(stage, fake):
    """Others stand before ours, and turn their route into one in our name: both are removed."""
    fake.others_write(KEY, THEIRS, 4, False)
    fake.others_write(KEY, THEIRS, PROTOCOL, True)
    assert fake.behind[KEY]
    stage.change({PREFIX: None})
    assert is_clean(stage, fake)


@pytest.mark.parametrize("hop", [None, "192.0.2.10", "192.0.2.11"])
@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "read anew"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "behind"])
def test_several_routes_of_one_prefix_that_are_read(stage, fake, hop, is_restarted, is_first):
    """The kernel's table has two of ours for a prefix, which no notification tells: one is left, or none."""
    fake.notifications.come_late(True)
    fake.others_write(KEY, THEIRS, PROTOCOL, False)
    if is_first:
        fake.ours[KEY], fake.behind[KEY] = THEIRS, [fake.ours[KEY]]
    fake.notifications.come_late(False)
    stage.ribs["ipv4-unicast"].change({PREFIX: hop} if is_restarted or hop != "192.0.2.10" else {})
    if is_restarted:
        stage.kill()
        stage.start()
    else:
        fake.notifications.lose()
    stage.turn()
    stage.advance(2)
    assert not any(fake.behind.values()) and set(fake.ours) == ({KEY} if hop else set())
    assert fake.ours.get(KEY) != THEIRS
    stage.change({PREFIX: None})
    assert is_clean(stage, fake)


@pytest.mark.parametrize("seed", range(8))
def test_any_doing_of_others_told_late_ends_as_the_rib_has_it(stage, fake, seed):
    """Whatever others write and delete, in any name, and however late it is told: in the end all is as wanted."""
    rng = random.Random(seed)
    names = [f"10.0.{i}.0/24" for i in range(6)]
    for _ in range(300):
        fake.holds_back = rng.random() < 0.5
        fake.notifications.come_late(rng.random() < 0.6)
        for prefix in rng.sample(names, 2):
            protocol = rng.choice([4, PROTOCOL, PROTOCOL])
            if rng.random() < 0.3:
                fake.others_delete(halves(prefix), protocol)
            elif rng.random() < 0.5:
                fake.others_write(halves(prefix), THEIRS, protocol, rng.random() < 0.5)
        hops = ["192.0.2.10", "192.0.2.11", None]
        stage.change({prefix: rng.choice(hops) for prefix in rng.sample(names, rng.randrange(3))})
        if rng.random() < 0.1:
            stage.advance(rng.choice([0.3, 1.1, 5]))
    fake.holds_back = False
    fake.notifications.come_late(False)
    for prefix in names:
        fake.others_delete(halves(prefix), 4)
    stage.turn()
    for _ in range(3):
        stage.advance(61)
    wanted = stage.ribs["ipv4-unicast"].routes
    assert set(fake.ours) == {halves(prefix) for prefix in wanted}
    # A former one of ours may be left behind where ours hit a route of theirs, and goes with the next change.
    assert THEIRS not in (*fake.ours.values(), *itertools.chain(*fake.behind.values()))
    stage.change(dict.fromkeys(wanted))
    assert is_clean(stage, fake)
