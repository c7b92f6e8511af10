"""Ways to next hops against the real kernel: several at once, link-local, nowhere, recursive, adopted, moved."""

import pytest

from tests.namespaces.worlds import routes, settle, until, world_in
from tests.unit.stages.fib.world import CONFIG

SEVERAL = CONFIG + "maximum_paths = 4\n"
HOW = ["nexthop_objects = true\n", "nexthop_objects = false\n"]
N_MANY = 100_000


@pytest.fixture(params=HOW)
def world(namespace, request):
    namespace.add_interface("d1", "198.18.0.1/24", "2001:db8:f::1/64")
    made = world_in(namespace, SEVERAL + request.param)
    yield made
    made.kill()


def hops_of(namespace, prefix: str) -> list[str]:
    """Return the gateways of a route with their weights, as ip(8) shows them, sorted."""
    family = "-6 " if ":" in prefix else ""
    words = namespace.ip(f"{family}route show {prefix}").split()
    found = []
    for i, word in enumerate(words):
        if word == "via":
            weight = words[words.index("weight", i) + 1] if "weight" in words[i:] else "1"
            found.append(f"{words[i + 2] if words[i + 1] == 'inet6' else words[i + 1]} {weight}")
    return sorted(found)


def written(world) -> int:
    """Return how many routes have been written or removed since the start of the fib."""
    return sum(plan.counts.installed + plan.counts.replaced + plan.counts.removed for plan in world.fib.plans.values())


def test_equal_paths_share_the_traffic(world, namespace):
    """Several next hops make one route of several ways, in both families, and one again when others go."""
    world.change({
        "198.51.100.0/24": ("192.0.2.10", "198.18.0.10", "192.0.2.11"),
        "2001:db8:1::/48": ("2001:db8::10", "2001:db8:f::10"),
    })  # fmt: skip
    assert hops_of(namespace, "198.51.100.0/24") == ["192.0.2.10 1", "192.0.2.11 1", "198.18.0.10 1"]
    assert hops_of(namespace, "2001:db8:1::/48") == ["2001:db8::10 1", "2001:db8:f::10 1"]
    world.change({"198.51.100.0/24": ("192.0.2.10", "192.0.2.11"), "2001:db8:1::/48": "2001:db8:f::10"})
    assert hops_of(namespace, "198.51.100.0/24") == ["192.0.2.10 1", "192.0.2.11 1"]
    assert hops_of(namespace, "2001:db8:1::/48") == ["2001:db8:f::10 1"]
    world.change({"198.51.100.0/24": None, "2001:db8:1::/48": None})
    assert routes(namespace) == []


def test_bandwidths_are_weights(world, namespace):
    """Paths that tell what they can carry share the traffic in that ratio."""
    world.change({"198.51.100.0/24": ("192.0.2.10@3e8", "198.18.0.10@1e8")})
    assert hops_of(namespace, "198.51.100.0/24") == ["192.0.2.10 75", "198.18.0.10 25"]


def test_an_ipv4_route_over_both_families(world, namespace):
    """RFC 8950: gateways of both families share the traffic of one IPv4 prefix."""
    world.change({"198.51.100.0/24": ("192.0.2.10", "2001:db8:f::10")})
    assert hops_of(namespace, "198.51.100.0/24") == ["192.0.2.10 1", "2001:db8:f::10 1"]


@pytest.mark.parametrize("end", ["near", "far"])
def test_a_group_goes_on_with_the_rest(world, namespace, end):
    """When the interface of one next hop goes down the others carry on, and it is back when the interface is."""
    world.change({f"10.0.{i}.0/24": ("192.0.2.10", "198.18.0.10") for i in range(200)})
    name = namespace.name if end == "near" else namespace.far
    namespace.ip("link set d1 down", name)
    until(world, lambda: hops_of(namespace, "10.0.7.0/24") == ["192.0.2.10 1"])
    settle(world)
    assert len(routes(namespace)) == 200 and hops_of(namespace, "10.0.199.0/24") == ["192.0.2.10 1"]
    namespace.ip("link set d1 up", name)
    until(world, lambda: hops_of(namespace, "10.0.7.0/24") == ["192.0.2.10 1", "198.18.0.10 1"])
    namespace.ip("link set d0 down", namespace.name)
    namespace.ip("link set d1 down", namespace.name)
    until(world, lambda: routes(namespace) == [])
    settle(world)
    namespace.ip("link set d1 up", namespace.name)
    until(world, lambda: len(routes(namespace)) == 200)
    assert {plan.n_installed for plan in world.fib.plans.values()} == {200, 0}


def test_link_local_next_hops_are_on_their_interface(world, namespace):
    """One link-local address on two interfaces is two next hops; each route goes by its session's."""
    world.change({"2001:db8:1::/48": "fe80::7%d0", "2001:db8:2::/48": "fe80::7%d1", "198.51.100.0/24": "fe80::7%d1"})
    assert "via fe80::7 dev d0" in namespace.ip("-6 route show 2001:db8:1::/48")
    assert "via fe80::7 dev d1" in namespace.ip("-6 route show 2001:db8:2::/48")
    assert "via inet6 fe80::7 dev d1" in namespace.ip("route show 198.51.100.0/24")
    namespace.ip("link set d1 down")
    until(world, lambda: len(routes(namespace)) == 1)
    namespace.ip("link set d1 up")
    until(world, lambda: len(routes(namespace)) == 3)


def test_a_link_local_next_hop_without_its_interface_waits(world, namespace):
    """Without an interface a link-local next hop is no way, and the reason is told."""
    world.change({"2001:db8:1::/48": "fe80::7"})
    assert routes(namespace) == []
    reasons = [one["reason"] for one in world.fib.controls()["nexthops"]({})["nexthops"]]
    assert reasons == ["link-local next hop without its interface"]


def test_a_next_hop_routed_to_nowhere_takes_its_routes_along(world, namespace):
    """Remotely triggered blackholing: what has a next hop that a static route throws away is thrown away, and back."""
    namespace.ip("route add blackhole 192.0.3.1/32 proto static")
    namespace.ip("-6 route add blackhole 2001:db8:dead::1/128 proto static")
    world.change({"198.51.100.66/32": "192.0.3.1", "2001:db8:1::/48": "2001:db8:dead::1", "10.0.0.0/8": "192.0.2.10"})
    settle(world)
    assert "blackhole" in namespace.ip("route show 198.51.100.66")
    assert "blackhole" in namespace.ip("-6 route show 2001:db8:1::/48")
    assert world.fib.status()["blackhole"] == 2
    namespace.ip("route replace 192.0.3.1/32 via 192.0.2.50 proto static")
    until(world, lambda: "via 192.0.2.50" in namespace.ip("route show 198.51.100.66"))
    assert world.fib.status()["blackhole"] == 1
    namespace.ip("route replace blackhole 192.0.3.1/32 proto static")
    until(world, lambda: "blackhole" in namespace.ip("route show 198.51.100.66"))


def test_an_unreachable_next_hop_is_none(world, namespace):
    """A next hop whose route says unreachable or prohibited cannot be used."""
    namespace.ip("route add unreachable 192.0.3.0/24 proto static")
    world.change({"198.51.100.0/24": "192.0.3.1"})
    assert routes(namespace) == []
    assert world.fib.controls()["nexthops"]({})["nexthops"][0]["reason"] == "unreachable"


def test_recursive_groups_and_link_local_ways_are_adopted_as_they_are(namespace):
    """After a kill nothing is written again, whatever its next hop was resolved through."""
    namespace.add_interface("d1", "198.18.0.1/24", "2001:db8:f::1/64")
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.50 proto static")
    namespace.ip("route add blackhole 192.0.3.1/32 proto static")
    world = world_in(namespace, SEVERAL)
    table = {f"10.0.{i}.0/24": f"203.0.113.{i % 7}" for i in range(200)}
    table |= {f"10.1.{i}.0/24": ("192.0.2.10", "198.18.0.10", "203.0.113.1") for i in range(200)}
    table |= {f"2001:db8:{i:x}::/48": "fe80::7%d1" for i in range(256, 300)} | {"10.2.0.1/32": "192.0.3.1"}
    world.change(table)
    before = sorted(routes(namespace))
    assert len(before) == len(table)
    for _ in range(2):
        world.kill()
        world.start()
        world.turn()
        world.advance(11)
        assert written(world) == 0
    assert sorted(routes(namespace)) == before
    world.change(dict.fromkeys(table))
    world.advance(11)
    world.advance(11)
    assert routes(namespace) == [] and namespace.ip("nexthop") == ""
    world.kill()


def test_plain_routes_are_adopted_as_they_are(namespace):
    """Without nexthop objects, too, routes by a next hop's own address are taken over unwritten."""
    world = world_in(namespace, CONFIG + "nexthop_objects = false\n")
    world.change({f"10.0.{i}.0/24": f"192.0.2.{2 + i % 9}" for i in range(200)} | {"2001:db8:1::/48": "2001:db8::10"})
    world.kill()
    world.start()
    world.turn()
    assert written(world) == 0 and len(routes(namespace)) == 201
    world.kill()


def test_an_object_another_program_altered_is_set_right(namespace):
    """ip nexthop replace of ours moves all its routes elsewhere; they are moved back, and it is told."""
    world = world_in(namespace)
    world.change({f"10.0.{i}.0/24": "192.0.2.10" for i in range(50)})
    identifier = namespace.ip("nexthop").split()[1]
    namespace.ip(f"nexthop replace id {identifier} via 192.0.2.99 dev d0 proto 186")
    until(world, lambda: "via 192.0.2.10" in namespace.ip("nexthop"))
    assert world.log.counts["nexthop-object-altered-by-others"] == 1 and len(routes(namespace)) == 50
    world.kill()


def test_objects_of_others_are_not_overwritten(namespace):
    """An identifier another program took from our range is passed over."""
    namespace.ip(f"nexthop add id {0x48520000} via 192.0.2.77 dev d0 proto static")
    world = world_in(namespace)
    world.change({"198.51.100.0/24": "192.0.2.10"})
    assert "via 192.0.2.77 dev d0" in namespace.ip(f"nexthop show id {0x48520000}")
    assert "via 192.0.2.10" in routes(namespace)[0]
    world.kill()


def test_a_table_moves_with_one_message(namespace):
    """When the way to its next hop changes, 100 k routes of each family move at once and no route is written."""
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.50 proto static")
    namespace.ip("-6 route add 2001:db8:5::/48 via 2001:db8::50 proto static")
    world = world_in(namespace, CONFIG + 'nexthop_compat = "off"\n')
    world.change(
        {f"{10 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24": "203.0.113.7" for i in range(N_MANY)}
        | {f"2001:{0x1000 + (i >> 8):x}:{i & 255:x}00::/40": "2001:db8:5::7" for i in range(N_MANY)}
    )
    before, asked = written(world), []
    request = world.fib.ways._request

    def counted(make):
        asked.append(make)
        return request(make)

    world.fib.ways._request = counted
    namespace.ip("route replace 203.0.113.0/24 via 192.0.2.51 proto static")
    until(world, lambda: asked)
    namespace.ip("-6 route replace 2001:db8:5::/48 via 2001:db8::51 proto static")
    until(world, lambda: "via 2001:db8::51" in namespace.ip("nexthop") and "via 192.0.2.51" in namespace.ip("nexthop"))
    settle(world)
    assert "via 192.0.2.51" in namespace.ip("route get 11.0.0.1")
    assert "via 2001:db8::51" in namespace.ip("-6 route get 2001:1001::1")
    assert written(world) == before and len(asked) == 2
    world.kill()
