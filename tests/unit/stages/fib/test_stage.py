"""The fib stage against a kernel of dictionaries: what the rib says is what the kernel has."""

from errno import ENOMEM
from ipaddress import ip_address

import numpy as np
import pytest

from common.bgp.constants import Family
from common.config.load import loads
from stages.fib.messages import Kind
from tests.unit.stages.fib import world
from tests.unit.stages.fib.world import AF_INET, CONFIG, FakeKernel, World, halves


@pytest.fixture
def fake():
    """A kernel that outlives the fib."""
    kernel = FakeKernel(254, 20)

    def make(table: int, metric: int, **more) -> FakeKernel:
        kernel.listen()
        return kernel

    kernel.make = make
    return kernel


@pytest.fixture
def stage(fake):
    return World(fake.make)


def prefixes(fake: FakeKernel) -> set:
    return set(fake.ours)


def gateway_of(fake: FakeKernel, prefix: str) -> bytes:
    return fake.objects[fake.ours[halves(prefix)]].address


def test_routes_of_both_families_are_installed_and_removed(stage, fake):
    """What the rib chose is in the kernel on an object for its next hop, and goes when it is withdrawn."""
    stage.change({"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"})
    assert gateway_of(fake, "198.51.100.0/24") == bytes([192, 0, 2, 10])
    assert gateway_of(fake, "2001:db8:1::/48")[-1] == 0x10
    stage.change({"198.51.100.0/24": None, "2001:db8:1::/48": None})
    assert prefixes(fake) == set()
    assert all(plan.prefixes.n_prefixes == 0 for plan in stage.fib.plans.values())


def test_routes_of_one_next_hop_share_one_object(stage, fake):
    """A hundred routes on two next hops make two nexthop objects."""
    stage.change({f"10.0.{i}.0/24": f"192.0.2.{10 + i % 2}" for i in range(100)})
    assert len(fake.ours) == 100 and len(fake.objects) == 2


def test_a_changed_next_hop_replaces_the_route(stage, fake):
    """A prefix whose next hop changes goes to the other object, without a moment of absence."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    stage.change({"198.51.100.0/24": "192.0.2.11"})
    assert gateway_of(fake, "198.51.100.0/24") == bytes([192, 0, 2, 11])
    assert stage.fib.plans[_v4()].counts.replaced == 1 and stage.fib.plans[_v4()].counts.removed == 0


def test_a_route_without_next_hop_is_not_installed(stage, fake):
    """A prefix this router originates is nobody's to forward."""
    stage.change({"203.0.113.0/24": ""})
    assert prefixes(fake) == set()


def test_an_unresolvable_next_hop_waits(stage, fake):
    """A route whose next hop no route leads to stays out, with its reason, until one does."""
    stage.change({"198.51.100.0/24": "192.0.3.1"})
    assert prefixes(fake) == set()
    answer = stage.fib.controls()["nexthops"]({})["nexthops"][0]
    assert (answer["usable"], answer["reason"]) == (False, "no route to it")
    fake.notifications.put(_static("192.0.3.0/24"))
    stage.turn()
    assert gateway_of(fake, "198.51.100.0/24") == bytes([192, 0, 2, 77])


def test_a_way_that_changes_moves_its_object_and_no_route(stage, fake):
    """When another route leads to the next hop, one object changes and no route is written."""
    stage.change({f"10.0.{i}.0/24": "192.0.2.130" for i in range(50)})
    calls = len(fake.calls)
    fake.notifications.put(_static("192.0.2.128/25"))
    stage.turn()
    assert gateway_of(fake, "10.0.0.0/24") == bytes([192, 0, 2, 77])
    assert len(fake.calls) == calls


def test_routes_come_back_after_their_interface_was_down(stage, fake):
    """The kernel drops objects and routes with the interface; when it is up again all are installed again."""
    stage.change({"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"})
    fake.ours.clear()
    fake.objects.clear()
    fake.notifications.put(world.link(False))
    stage.turn()
    assert prefixes(fake) == set()
    fake.notifications.put(world.link(True))
    for family in (AF_INET, world.AF_INET6):
        fake.notifications.put(world.connected(family))
    stage.turn()
    assert prefixes(fake) == {halves("198.51.100.0/24"), halves("2001:db8:1::/48")}


def test_a_link_that_was_down_for_an_instant(stage, fake):
    """Down, up and connected again, all told before any is read: its routes are there, whichever is read first."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    for socket in fake.listening:
        fake.ours.clear()
        fake.objects.clear()
        for message in (world.link(False), world.link(True), world.connected(AF_INET)):
            fake.notifications.put(message)
        stage.fib._on_readable(socket)
        stage.turn()
        assert prefixes(fake) == {halves("198.51.100.0/24")}


def test_a_new_epoch_changes_only_the_differences(stage, fake):
    """After the rib's restart nothing is written but what is another route now."""
    stage.change({f"10.0.{i}.0/24": "192.0.2.10" for i in range(50)})
    calls = len(fake.calls)
    rib = stage.ribs["ipv4-unicast"]
    rib.routes.pop("10.0.7.0/24")
    rib.restart("two")
    stage.hub.drop("ipc:///run/rib.0.bus")
    stage.turn()
    assert len(fake.ours) == 49 and fake.calls[calls:] == [1]


def test_a_restarted_fib_adopts_what_it_finds(stage, fake):
    """After a kill, routes still right are not written, wrong ones are replaced, stale ones removed."""
    stage.change({f"10.0.{i}.0/24": "192.0.2.10" for i in range(50)})
    stage.kill()
    rib = stage.ribs["ipv4-unicast"]
    rib.routes.pop("10.0.7.0/24")
    rib.routes["10.0.8.0/24"] = "192.0.2.11"
    before = dict(fake.ours)
    fake.calls.clear()
    stage.start()
    stage.turn()
    assert sum(fake.calls) == 2
    assert set(before) - prefixes(fake) == {halves("10.0.7.0/24")}
    assert gateway_of(fake, "10.0.8.0/24") == bytes([192, 0, 2, 11])


def test_nothing_is_removed_before_the_snapshot_has_ended(stage, fake):
    """A fib that found routes and hears nothing of the rib leaves them all."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    stage.kill()
    stage.ribs["ipv4-unicast"].is_open = False
    stage.start()
    stage.advance(120)
    assert prefixes(fake) == {halves("198.51.100.0/24")}


def test_a_refused_route_is_tried_again(stage, fake):
    """A refusal is counted, told once with its reason, and tried again later."""
    fake.foreign.add(halves("198.51.100.0/24"))
    stage.change({"198.51.100.0/24": "192.0.2.10", "198.51.101.0/24": "192.0.2.10"})
    assert stage.fib.status()["families"]["ipv4-unicast"]["refused"] == {"EEXIST": 1}
    assert stage.log.counts["route-refused"] == 1
    assert stage.fib.controls()["route"]({"prefix": "198.51.100.0/24"})["route"]["refused"].startswith(
        "a route of another program"
    )
    fake.foreign.clear()
    stage.advance(2)
    assert halves("198.51.100.0/24") in prefixes(fake)
    assert stage.fib.status()["families"]["ipv4-unicast"]["refused"] == {}


def test_room_made_by_others_is_used_at_once(stage, fake):
    """When the route that was in the way is deleted, ours goes in without waiting for a timer."""
    fake.foreign.add(halves("198.51.100.0/24"))
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    fake.foreign.clear()
    fake.notifications.put(world.dumped(AF_INET, halves("198.51.100.0/24"), 0, Kind.DEL_ROUTE, protocol=4))
    stage.turn()
    assert prefixes(fake) == {halves("198.51.100.0/24")}


def test_a_route_deleted_by_others_is_installed_again(stage, fake):
    """A notification about a deletion that was not ours brings the route back, and is logged."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    key = halves("198.51.100.0/24")
    fake.notifications.put(world.dumped(AF_INET, key, fake.ours.pop(key), Kind.DEL_ROUTE))
    stage.turn()
    assert prefixes(fake) == {key}
    assert stage.log.counts["routes-deleted-by-others"] == 1


def test_repairs_come_at_once_and_then_no_more_than_one_round_a_second(stage, fake):
    """A program that deletes our route again and again is not fought at its own pace."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    key = halves("198.51.100.0/24")
    for is_first in (True, False):
        fake.notifications.put(world.dumped(AF_INET, key, fake.ours.pop(key), Kind.DEL_ROUTE))
        stage.turn()
        assert (key in fake.ours) is is_first
    stage.advance(1.1)
    assert key in fake.ours and stage.fib.status()["repaired"] == 2


def test_what_the_kernel_itself_deleted_is_told_so(stage, fake):
    """A deletion without a program behind it is the kernel's."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    key = halves("198.51.100.0/24")
    message = bytearray(world.dumped(AF_INET, key, fake.ours.pop(key), Kind.DEL_ROUTE))
    message[12:16] = bytes(4)
    fake.notifications.put(bytes(message))
    stage.turn()
    assert stage.log.counts["routes-deleted-by-the-kernel"] == 1 and prefixes(fake) == {key}


def test_without_memory_the_fib_pauses(fake):
    """While the kernel has no memory one batch is tried at a time, ever more seldom, and nothing is lost."""
    stage = World(fake.make)
    fake.fail_with = ENOMEM
    stage.change({f"10.{i >> 8}.{i & 255}.0/24": "192.0.2.10" for i in range(10_000)})
    assert len(fake.calls) <= 1
    fake.fail_with = None
    for _ in range(4):
        stage.advance(1)
    assert len(fake.ours) == 10_000


def test_next_hops_the_rib_asks_about_are_resolved_and_told(fake):
    """A next hop of candidates only is resolved without an object; one nobody asks about any more is forgotten."""
    stage = World(fake.make)
    told = []
    bus, _, _ = stage._bus("reader")
    bus.follow("fib", "0", "nexthops", lambda batch: told.append(_told(batch)))
    stage.want_next_hops("192.0.2.10", "192.0.3.1")
    assert told[-1] == {0xC000020A: 0, 0xC0000301: None} and fake.objects == {}
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    assert len(fake.objects) == 1
    stage.change({"198.51.100.0/24": None})
    stage.advance(11)
    assert fake.objects == {} and told[-1] == {0xC000020A: 0, 0xC0000301: None}
    stage.want_next_hops("192.0.2.11")
    stage.advance(11)
    assert 0xC000020A not in told[-1] and told[-1][0xC000020B] == 0


def test_what_changes_while_an_answer_is_awaited(stage, fake):
    """Rows on their way are not sent again before the answer; then each goes to what is wanted by now."""
    names = {name: f"10.0.{i}.0/24" for i, name in enumerate(("stays", "moves", "goes", "comes back", "is new"))}
    stage.change({f"10.1.{i}.0/24": f"192.0.2.1{i}" for i in range(3)})
    stage.change({names[name]: "192.0.2.10" for name in ("stays", "moves", "goes", "comes back")})
    fake.holds_back = True
    stage.change({names["moves"]: "192.0.2.11", names["goes"]: None, names["comes back"]: None})
    n_calls = len(fake.calls)
    stage.change({names["moves"]: "192.0.2.12", names["comes back"]: "192.0.2.12"})
    stage.change({names["goes"]: "192.0.2.10", names["is new"]: "192.0.2.11"})
    stage.change({names["goes"]: None, names["is new"]: None})
    assert fake.holds_back and fake.calls[n_calls:] == [1]
    fake.holds_back = False
    stage.turn()
    stage.change({f"10.1.{i}.0/24": None for i in range(3)})
    assert prefixes(fake) == {halves(names[name]) for name in ("stays", "moves", "comes back")}
    assert gateway_of(fake, names["moves"]) == gateway_of(fake, names["comes back"]) == bytes([192, 0, 2, 12])
    assert stage.fib.plans[_v4()].prefixes.n_prefixes == stage.fib.plans[_v4()].n_installed == 3


def test_any_changes_with_late_answers_end_as_the_rib_has_them(stage, fake):
    """Whatever changes while answers are late, of routes, links and others' doing: in the end all is as wanted."""
    rng = np.random.default_rng(3)
    for _ in range(150):
        fake.holds_back = bool(rng.random() < 0.7)
        chosen = [f"10.0.{i}.0/24" for i in rng.integers(0, 30, 5).tolist()]
        stage.change({one: None if rng.random() < 0.3 else f"192.0.2.{rng.integers(10, 14)}" for one in chosen})
        if rng.random() < 0.2 and fake.ours:
            key = list(fake.ours)[int(rng.integers(len(fake.ours)))]
            fake.notifications.put(world.dumped(AF_INET, key, fake.ours.pop(key), Kind.DEL_ROUTE))
        if rng.random() < 0.1:
            fake.ours.clear()
            fake.objects.clear()
            for message in (world.link(False), world.link(True), world.connected(AF_INET)):
                fake.notifications.put(message)
    fake.holds_back = False
    for _ in range(3):
        stage.advance(2)
    expected = {halves(one): hop for one, hop in stage.ribs["ipv4-unicast"].routes.items()}
    assert {key: ip_address(fake.objects[way].address) for key, way in fake.ours.items()} == {
        key: ip_address(hop) for key, hop in expected.items()
    }
    plan = stage.fib.plans[_v4()]
    assert (plan.n_installed, plan.prefixes.n_prefixes, plan.n_queued) == (len(expected), len(expected), 0)


def test_lost_answers_are_made_good(stage, fake):
    """When answers are lost the routes are written once more, and no route of ours is in its own way."""
    fake.lose_answers = True
    stage.change({"198.51.100.0/24": "192.0.2.10", "198.51.101.0/24": "192.0.2.10"})
    fake.lose_answers = False
    stage.advance(2)
    assert stage.fib.status()["families"]["ipv4-unicast"]["refused"] == {}
    assert stage.fib.status()["families"]["ipv4-unicast"]["installed"] == len(fake.ours) == 2
    stage.change({"198.51.100.0/24": None, "198.51.101.0/24": None})
    assert prefixes(fake) == set()


def test_trouble_that_passes_heals_by_itself(stage, fake):
    """While the kernel has no memory nothing is installed; afterwards everything is."""
    fake.fail_with = ENOMEM
    stage.change({f"10.0.{i}.0/24": "192.0.2.10" for i in range(10)})
    assert prefixes(fake) == set()
    fake.fail_with = None
    stage.advance(5)
    stage.advance(5)
    assert len(fake.ours) == 10


def test_unused_objects_are_removed(stage, fake):
    """An object no route is on goes at the next sweep."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    stage.change({"198.51.100.0/24": "192.0.2.11"})
    stage.advance(11)
    assert [gateway.address[-1] for gateway in fake.objects.values()] == [11]


def test_without_nexthop_objects_routes_name_their_gateway(fake):
    """On a kernel without nexthop objects plain routes are installed, and written again when the way changes."""
    fake.has_objects = False
    stage = World(fake.make)
    stage.change({"198.51.100.0/24": "192.0.2.130"})
    assert fake.ours == {halves("198.51.100.0/24"): world.D0} and not stage.fib.status()["nexthop_objects"]
    fake.notifications.put(_static("192.0.2.128/25"))
    stage.turn()
    assert stage.fib.plans[_v4()].counts.replaced == 1
    stage.change({"198.51.100.0/24": None})
    assert prefixes(fake) == set()


def test_a_slow_kernel_holds_back_the_rib(fake):
    """While more rows wait for the kernel than the limit, the rib is given no credit."""
    stage = World(fake.make)
    stage.turn()
    rib = stage.ribs["ipv4-unicast"]
    stage.fib.followers[_v4(), "0"].grant = lambda octets: pytest.fail("credit was given")
    rib.change({f"{10 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24": "192.0.2.10" for i in range(80_000)})
    while not stage.fib.plans[_v4()].n_queued:
        stage.loops["rib"].turn(0)
        stage.loops["fib"].turn(0)
    assert stage.fib.plans[_v4()].n_queued >= 65536


def test_next_hops_are_told(stage, fake):
    """A reader of "nexthops" gets each next hop with its metric or as unreachable, and again when that changes."""
    told = []
    bus, _, _ = stage._bus("reader")
    bus.follow("fib", "0", "nexthops", lambda batch: told.append(_told(batch)))
    stage.change({"198.51.100.0/24": "192.0.2.10", "198.51.101.0/24": "192.0.3.1"})
    assert told[-1] == {0xC000020A: 0, 0xC0000301: None}
    fake.notifications.put(_static("192.0.3.0/24"))
    stage.turn()
    assert told[-1] == {0xC000020A: 0, 0xC0000301: 5}


def test_on_exit_remove_leaves_nothing(fake):
    """With on_exit = "remove" routes and objects go when the stage ends in order."""
    stage = World(fake.make, CONFIG + 'on_exit = "remove"\n')
    stage.change({"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"})
    stage.fib.drain()
    assert prefixes(fake) == set() and fake.objects == {}


def test_metrics_show_the_table(stage, fake):
    """The exposition has the routes by family."""
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    assert 'headrace_fib_installed_routes{family="ipv4-unicast"} 1.0' in stage.context.metrics.text()


def test_a_reload_without_a_change_of_the_fib_is_taken(stage):
    """Other sections may change under a running fib; its own takes a restart."""
    other = loads(CONFIG.replace("65000", "65001"))
    stage.fib.reload(other)
    assert stage.fib.config is other
    with pytest.raises(ValueError, match="restart"):
        stage.fib.reload(loads(CONFIG + "metric = 30\n"))


def test_a_disabled_fib_touches_no_kernel(fake):
    """With enabled = false the stage runs and does nothing."""
    stage = World(fake.make, CONFIG.replace("enabled = true", "enabled = false"))
    stage.change({"198.51.100.0/24": "192.0.2.10"})
    assert stage.fib.status() == {"enabled": False} and fake.calls == []


def _v4():
    return Family.IPV4_UNICAST


def _static(prefix: str) -> bytes:
    """Return the message about a static route of metric 5 through 192.0.2.77."""
    hi, _, length = halves(prefix)
    body = world.struct.pack("=BBBBBBBBI", AF_INET, length, 0, 0, 254, 4, 0, 1, 0)
    body += world.messages.attribute(1, (hi >> 32).to_bytes(4, "big")) + world.messages.number(6, 5)
    body += world.messages.attribute(5, bytes([192, 0, 2, 77])) + world.messages.number(4, world.D0)
    return world.messages.message(Kind.NEW_ROUTE, 0, 0, body)


def _told(batch) -> dict[int, int | None]:
    columns = batch.columns
    rows = zip(columns["hi"].tolist(), columns["reachable"].tolist(), columns["metric"].tolist(), strict=True)
    return {hi >> 32: metric if reachable else None for hi, reachable, metric in rows}
