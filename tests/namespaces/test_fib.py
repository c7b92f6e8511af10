"""The fib stage against the real kernel, in a network namespace, with ip(8) as the other program."""

import os
import subprocess

import numpy as np
import pytest

from common.bgp.constants import Family
from common.runtime.rights import CAP_SYS_ADMIN, keep_only
from tests.namespaces.worlds import routes, until, world_in
from tests.unit.stages.fib.world import CONFIG

V4, V6 = Family.IPV4_UNICAST, Family.IPV6_UNICAST
ROUTES = {"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"}


@pytest.fixture
def world(namespace):
    made = world_in(namespace)
    yield made
    made.kill()


def test_routes_are_in_the_kernel_as_ip_shows_them(world, namespace):
    """Prefix, object, gateway, interface, protocol and metric are what the configuration says."""
    world.change(ROUTES)
    found = routes(namespace)
    assert len(found) == 2 and all("metric 20" in line and "dev d0" in line for line in found)
    assert "198.51.100.0/24" in found[0] and "via 192.0.2.10" in found[0] and "nhid 1213" in found[0]
    assert "2001:db8:1::/48" in found[1] and "via 2001:db8::10" in found[1]
    world.change(dict.fromkeys(ROUTES))
    assert routes(namespace) == []


def test_plain_routes_without_nexthop_objects(namespace):
    """With nexthop_objects = false each route names its gateway and no object is made."""
    world = world_in(namespace, CONFIG + "nexthop_objects = false\n")
    world.change(ROUTES)
    found = routes(namespace)
    assert len(found) == 2 and not any("nhid" in line for line in found)
    assert namespace.ip("nexthop") == ""
    world.kill()


@pytest.mark.parametrize("has_objects", ["true", "false"])
def test_a_replaced_ipv6_route_does_not_become_multipath(namespace, has_objects):
    """A prefix whose next hop changes has one way in the kernel afterwards, the new one."""
    world = world_in(namespace, CONFIG + f"nexthop_objects = {has_objects}\n")
    world.change(ROUTES)
    world.change({"198.51.100.0/24": "192.0.2.11", "2001:db8:1::/48": "2001:db8::11"})
    found = routes(namespace)
    assert len(found) == 2 and "192.0.2.11" in found[0] and "2001:db8::11" in found[1]
    world.kill()


@pytest.mark.parametrize("has_objects", ["true", "false"])
def test_an_ipv4_route_with_an_ipv6_next_hop(namespace, has_objects):
    """RFC 8950: the route goes in with the IPv6 gateway, as an object or by RTA_VIA."""
    world = world_in(namespace, CONFIG + f"nexthop_objects = {has_objects}\n")
    world.change({"198.51.100.0/24": "2001:db8::10"})
    assert "via inet6 2001:db8::10 dev d0" in routes(namespace)[0]
    world.kill()


def test_a_table_beyond_255(namespace):
    """Routes go into the table of the configuration, and are adopted from it."""
    config = CONFIG + "table = 70000\nmetric = 4294967295\n"
    world = world_in(namespace, config)
    world.change(ROUTES)
    assert len(routes(namespace, "table 70000")) == 2 and routes(namespace) == []
    world.kill()
    world.start()
    world.turn()
    assert sum(plan.counts.installed + plan.counts.refused for plan in world.fib.plans.values()) == 0
    world.change(dict.fromkeys(ROUTES))
    assert routes(namespace, "table 70000") == []
    world.kill()


def test_a_foreign_route_is_not_overwritten(world, namespace):
    """A static route of the same prefix and metric stays; ours is refused, and goes in when that has gone."""
    namespace.ip("route add 198.51.100.0/24 via 192.0.2.99 metric 20 proto static")
    namespace.ip("-6 route add 2001:db8:1::/48 via 2001:db8::99 metric 20 proto static")
    world.change(ROUTES)
    assert routes(namespace) == []
    assert world.fib.status()["families"]["ipv6-unicast"]["refused"] == {"EEXIST": 1}
    namespace.ip("route del 198.51.100.0/24 via 192.0.2.99 metric 20 proto static")
    namespace.ip("-6 route del 2001:db8:1::/48 via 2001:db8::99 metric 20 proto static")
    until(world, lambda: len(routes(namespace)) == 2)


def test_a_route_another_program_deleted_is_repaired(world, namespace):
    """ip route del of ours is noticed and made good."""
    world.change(ROUTES)
    namespace.ip("route del 198.51.100.0/24 metric 20")
    namespace.ip("-6 route del 2001:db8:1::/48 metric 20")
    until(world, lambda: world.log.counts.get("routes-deleted-by-others", 0) == 2 and len(routes(namespace)) == 2)


@pytest.mark.parametrize("has_objects", ["true", "false"])
@pytest.mark.parametrize("end", ["near", "far"])
def test_routes_come_back_with_their_interface(namespace, end, has_objects):
    """Down and up again, by us or by loss of the carrier: afterwards the kernel has all routes."""
    world = world_in(namespace, CONFIG + f"nexthop_objects = {has_objects}\n")
    many = {f"10.{i // 256}.{i % 256}.0/24": "192.0.2.10" for i in range(3000)} | {
        f"2001:db8:{i:x}::/48": "2001:db8::10" for i in range(1, 1000)
    }
    world.change(many)
    assert len(routes(namespace)) == len(many)
    name = namespace.name if end == "near" else namespace.far
    namespace.ip("link set d0 down", name)
    until(world, lambda: len(routes(namespace)) == 0)
    namespace.ip("link set d0 up", name)
    if end == "near":
        namespace.ip("address replace 2001:db8::1/64 dev d0 nodad")  # the kernel drops IPv6 addresses with the link
    until(world, lambda: len(routes(namespace)) == len(many))
    counted = {family.label: plan.n_installed for family, plan in world.fib.plans.items()}
    assert counted == {"ipv4-unicast": 3000, "ipv6-unicast": 999}
    world.kill()


def test_an_object_another_program_deleted_comes_back_with_its_routes(world, namespace):
    """ip nexthop del takes its routes along; both are made again."""
    world.change(ROUTES)
    namespace.ip("nexthop flush")
    assert routes(namespace) == []
    until(world, lambda: len(routes(namespace)) == 2)


def test_a_recursive_next_hop_follows_its_route(world, namespace):
    """A next hop behind a static route goes by that route's gateway, moves with it, and goes with it."""
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.50 proto static")
    until(world, lambda: world.fib.resolver.n_routes and not world.fib._is_stale)
    world.change({"198.51.100.0/24": "203.0.113.7"})
    assert "via 192.0.2.50" in routes(namespace)[0]
    namespace.ip("route replace 203.0.113.0/24 via 192.0.2.51 proto static")
    until(world, lambda: "via 192.0.2.51" in routes(namespace)[0])
    namespace.ip("route del 203.0.113.0/24")
    until(world, lambda: routes(namespace) == [])
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.52 proto static")
    until(world, lambda: routes(namespace) and "via 192.0.2.52" in routes(namespace)[0])


def test_kill_and_adoption_of_a_table(world, namespace):
    """100 k routes of each family go in without a dump; after a kill they are taken over, and none is written again."""
    many = {f"{10 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24": f"192.0.2.{2 + i % 20}" for i in range(100_000)}
    many |= {f"2001:{0x1000 + (i >> 8):x}:{i & 255:x}00::/40": "2001:db8::10" for i in range(100_000)}
    n_dumps = world.fib.kernel.n_dumps
    world.change(many)
    world.change({prefix: "2001:db8::11" if ":" in prefix else "192.0.2.30" for prefix in list(many)[::1000]})
    assert world.fib.kernel.n_dumps == n_dumps
    world.kill()
    world.start()
    assert sum(plan.n_installed for plan in world.fib.plans.values()) == len(many)
    world.turn()
    counts = [plan.counts for plan in world.fib.plans.values()]
    assert sum(count.installed + count.replaced + count.removed for count in counts) == 0
    assert all(plan.is_confirmed for plan in world.fib.plans.values())


def test_what_is_gone_after_a_restart_is_removed(world, namespace):
    """Routes the rib no longer has when the new fib has its snapshot are removed, with their objects."""
    world.change(ROUTES | {"198.51.101.0/24": "192.0.2.11"})
    world.kill()
    world.ribs["ipv4-unicast"].routes.pop("198.51.101.0/24")
    world.start()
    world.turn()
    assert len(routes(namespace)) == 2
    world.advance(11)
    assert "192.0.2.11" not in namespace.ip("nexthop")


def test_lost_notifications_are_read_again(namespace):
    """When the buffer for notifications overflows, links and routes are read once more and all is right again."""
    world = world_in(namespace)
    world.change({"198.51.100.0/24": "203.0.113.7"})
    kernel = world.fib.kernel
    kernel.notifications._socket.setsockopt(1, 33, 4096)  # SO_RCVBUFFORCE
    lines = "".join(f"route add 10.1.{i}.0/24 via 192.0.2.50\n" for i in range(200))
    lines += "route add 203.0.113.0/24 via 192.0.2.50\n"
    subprocess.run(["ip", "-n", namespace.name, "-batch", "-"], input=lines, text=True, check=True)
    until(world, lambda: len(routes(namespace)) == 1)
    assert world.log.counts["notifications-lost"] >= 1
    world.kill()


def test_a_next_hop_that_is_our_own_address_is_none(world, namespace):
    """An address of this router or of all is no next hop; the reason stands in the answer."""
    world.change({"198.51.100.0/24": "192.0.2.1", "198.51.101.0/24": "192.0.2.255"})
    assert routes(namespace) == []
    reasons = [answer["reason"] for answer in world.fib.controls()["nexthops"]({})["nexthops"]]
    assert reasons == ["an address of this router", "a broadcast address"]


@pytest.mark.parametrize(
    ("family", "made", "around", "prefix", "hop"),
    [
        ("-4", "203.0.113.0/24", "default via 192.0.2.9", "198.51.100.0/24", "203.0.113.7"),
        ("-6", "2001:db8:5::/64", "default via 2001:db8::9", "2001:db8:a::/48", "2001:db8:5::7"),
    ],
)
def test_local_routes_made_by_hand_count_too(world, namespace, family, made, around, prefix, hop):
    """A next hop in a prefix that is delivered here is none as long as it is, whatever covers that prefix."""

    def reasons():
        return [answer["reason"] for answer in world.fib.controls()["nexthops"]({})["nexthops"]]

    def ip(*words):
        subprocess.run(["ip", "-n", namespace.name, family, "route", *words], check=True)

    ip("add", *around.split())
    ip("add", "local", made, "dev", "lo")
    world.change({prefix: hop})
    until(world, lambda: reasons() == ["an address of this router"])
    assert routes(namespace) == []
    ip("del", "local", made, "dev", "lo")
    until(world, lambda: len(routes(namespace)) == 1)
    ip("add", "local", made, "dev", "lo")
    until(world, lambda: routes(namespace) == [])
    assert reasons() == ["an address of this router"]


def test_a_fib_that_may_change_nothing_says_so(namespace):
    """Without CAP_NET_ADMIN the log names the remedy, and the fib is not in step."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            keep_only((CAP_SYS_ADMIN,))  # what it takes to enter the namespace
            world = world_in(namespace)
            assert world.log.counts["kernel-not-permitted"] == 1
            assert world.fib.missing() == ["kernel:CAP_NET_ADMIN"]
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_batches_mixed_of_all_actions(world, namespace):
    """Random changes end in the kernel having exactly what the rib has."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        chosen = rng.integers(0, 4000, 500).tolist()
        world.change(
            {
                f"10.{i // 256}.{i % 256}.0/24": None if rng.random() < 0.4 else f"192.0.2.{rng.integers(2, 9)}"
                for i in chosen
            }
        )
    expected = world.ribs["ipv4-unicast"].routes
    found = {line.split()[0]: line.split("via ")[1].split()[0] for line in routes(namespace)}
    assert found == expected
