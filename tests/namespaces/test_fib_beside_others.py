"""The fib stage beside another program that deletes, replaces and adds routes, against the real kernel."""

import random
import subprocess
from ipaddress import ip_address, ip_network

import pytest

from tests.namespaces.worlds import routes, settle, until, world_in
from tests.unit.stages.fib.world import CONFIG

ROUTES = {"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"}
HOW = ["nexthop_objects = true", "nexthop_objects = false"]
N_MANY = 100_000


@pytest.fixture(params=HOW)
def world(namespace, request):
    made = world_in(namespace, CONFIG + request.param + "\n")
    yield made
    made.kill()


def many(n: int = N_MANY) -> dict[str, str]:
    """Return n routes of each family."""
    found = {f"{10 + (i >> 16)}.{i >> 8 & 255}.{i & 255}.0/24": f"192.0.2.{2 + i % 20}" for i in range(n)}
    return found | {f"2001:{0x1000 + (i >> 8):x}:{i & 255:x}00::/40": f"2001:db8::{2 + i % 20:x}" for i in range(n)}


def n_routes(namespace) -> int:
    return len(routes(namespace))


def batch(namespace, lines: str) -> None:
    """Run many commands of ip(8) at once, whatever becomes of each."""
    command = ["ip", "-n", namespace.name, "-force", "-batch", "-"]
    subprocess.run(command, input=lines, text=True, capture_output=True)


def test_a_route_replaced_by_another_program_is_theirs(world, namespace):
    """What another protocol put in the place of ours stays, is told and counted; when it goes, ours comes back."""
    world.change(ROUTES)
    namespace.ip("route replace 198.51.100.0/24 via 192.0.2.99 metric 20 proto static")
    namespace.ip("-6 route replace 2001:db8:1::/48 via 2001:db8::99 metric 20 proto static")
    settle(world)
    assert routes(namespace) == []
    assert world.log.counts["routes-replaced-by-others"] == 2
    families = world.fib.status()["families"].values()
    assert [(one["refused"], one["installed"]) for one in families] == [({"EEXIST": 1}, 0)] * 2
    world.change({"198.51.100.0/24": "192.0.2.11", "2001:db8:1::/48": "2001:db8::11"})
    settle(world)
    assert "via 192.0.2.99" in namespace.ip("route show 198.51.100.0/24")
    assert "via 2001:db8::99" in namespace.ip("-6 route show 2001:db8:1::/48")
    namespace.ip("route del 198.51.100.0/24 proto static")
    namespace.ip("-6 route del 2001:db8:1::/48 proto static")
    until(world, lambda: n_routes(namespace) == 2)
    assert "192.0.2.11" in routes(namespace)[0] and "2001:db8::11" in routes(namespace)[1]


def test_a_route_put_before_ours_is_not_overwritten(world, namespace):
    """A change of ours does not hit the route of others that stands before it, same prefix and metric."""
    world.change(ROUTES)
    namespace.ip("route prepend 198.51.100.0/24 via 192.0.2.99 metric 20 proto static")
    settle(world)
    world.change({"198.51.100.0/24": "192.0.2.11"})
    settle(world)
    assert "via 192.0.2.99" in namespace.ip("route show 198.51.100.0/24 proto static")
    assert world.fib.status()["families"]["ipv4-unicast"]["refused"] == {"EEXIST": 1}
    namespace.ip("route del 198.51.100.0/24 via 192.0.2.99 proto static")
    until(world, lambda: "via 192.0.2.11" in namespace.ip("route show 198.51.100.0/24 proto 186"))


def test_what_others_write_in_our_name_is_made_right(world, namespace):
    """A route of ours led elsewhere is led back, one we never made is removed; both are told."""
    world.change(ROUTES)
    namespace.ip("route replace 198.51.100.0/24 via 192.0.2.99 metric 20 proto 186")
    namespace.ip("-6 route replace 2001:db8:1::/48 via 2001:db8::99 metric 20 proto 186")
    namespace.ip("route add 203.0.113.0/24 via 192.0.2.99 metric 20 proto 186")
    settle(world)
    found = routes(namespace)
    assert len(found) == 2 and "via 192.0.2.10" in found[0] and "via 2001:db8::10" in found[1]
    assert world.log.counts["routes-altered-by-others"] >= 2
    assert world.fib.status()["repaired"] == 3


@pytest.mark.parametrize("how", ["append", "prepend"])
def test_a_second_route_in_our_name_is_removed(world, namespace, how):
    """What others put before or behind ours, with our protocol and metric, goes: one route a prefix is there."""
    world.change(ROUTES)
    namespace.ip(f"route {how} 198.51.100.0/24 via 192.0.2.99 metric 20 proto 186")
    batch(namespace, f"-6 route {how} 2001:db8:1::/48 via 2001:db8::99 metric 20 proto 186\n")
    settle(world)
    assert "192.0.2.99" not in namespace.ip("route show") and "::99" not in namespace.ip("-6 route show")
    assert n_routes(namespace) == 2 and world.log.counts["routes-altered-by-others"] >= 1
    world.change(dict.fromkeys(ROUTES))
    assert routes(namespace) == []


def test_routes_of_ours_with_other_metrics_are_not_touched(world, namespace):
    """Of the same protocol, but of another metric: not ours."""
    namespace.ip("route add 198.51.100.0/24 via 192.0.2.99 metric 30 proto 186")
    world.change(ROUTES)
    world.change(dict.fromkeys(ROUTES))
    settle(world)
    assert len(routes(namespace)) == 1


@pytest.mark.parametrize("how", HOW)
def test_routes_of_frr_are_not_ours(namespace, how):
    """FRR's bgpd uses our metric, and 186: beside it, with another number, its routes stay and keep ours out till they
    go."""
    world = world_in(namespace, f"{CONFIG}{how}\nprotocol = 72\n")
    namespace.ip("nexthop add id 20 via 192.0.2.99 dev d0 proto zebra")
    theirs = "198.51.100.0/24 nhid 20 proto bgp metric 20"
    namespace.ip(f"route add {theirs}")
    for _ in range(2):
        world.change(ROUTES)
        settle(world)
        assert [line.split()[0] for line in routes(namespace, protocol=72)] == ["2001:db8:1::/48"]
        assert world.fib.status()["families"]["ipv4-unicast"]["refused"] == {"EEXIST": 1}
        world.change({"198.51.100.0/24": None})
        assert "via 192.0.2.99" in namespace.ip("route show proto bgp")
        world.change(ROUTES)
        world.kill()
        world.start()
    settle(world)
    assert "via 192.0.2.99" in namespace.ip("route show proto bgp")
    namespace.ip(f"route del {theirs}")
    until(world, lambda: len(routes(namespace, protocol=72)) == 2)
    world.kill()


def spoil(prefixes: list[str], rng: random.Random) -> str:
    """Return commands of another program that delete, replace and add among our routes, and move an interface."""
    lines = []
    for prefix in prefixes:
        hop, how = ("2001:db8::99", "-6 ") if ":" in prefix else ("192.0.2.99", "")
        route = f"{how}route {{}} {prefix} via {hop} metric 20 proto {{}}"
        lines += rng.choice([
            [f"{how}route del {prefix} metric 20"],
            # By numbers: ip(8) of 2022 takes a name for the number before it, in one batch.
            [route.format("replace", 4)],
            [route.format("replace", 4), f"{how}route del {prefix} metric 20 proto 4"],
            [route.format("replace", 186)],
            [route.format("append", 4)],
            [route.format("append", 186)],
            ["nexthop flush"] if rng.random() < 0.01 else [],
            ["link set d1 down", "link set d1 up"] if rng.random() < 0.01 else [],
        ])  # fmt: skip
    return "\n".join(lines)


def test_changes_in_the_midst_of_another_programs(world, namespace, tmp_path):
    """While another program spoils thousands of routes ours change; in the end the kernel has what the rib has."""
    namespace.add_interface("d1", "198.18.0.1/24")
    rng = random.Random(7)
    table = many(3000)
    world.change(table)
    commands = tmp_path / "commands"
    commands.write_text(spoil(rng.sample(list(table), 4000), rng))
    with commands.open() as lines:
        command = ["ip", "-n", namespace.name, "-force", "-batch", "-"]
        other = subprocess.Popen(command, stdin=lines, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    hops = ["192.0.2.30", "192.0.2.31", "198.18.0.9", None]
    while other.poll() is None:
        chosen = [prefix for prefix in rng.sample(list(table), 100) if ":" not in prefix]
        world.change({prefix: rng.choice(hops) for prefix in chosen})
        world.clock.advance(0.2)
    batch(namespace, "route flush proto static\n-6 route flush proto static\n")
    for _ in range(3):
        world.advance(61)
        settle(world)
    expected = {prefix: hop for rib in world.ribs.values() for prefix, hop in rib.routes.items()}
    found = {line.split()[0]: line.split("via ")[1].split()[0] for line in routes(namespace)}
    assert found == {str(ip_network(prefix)): str(ip_address(hop)) for prefix, hop in expected.items()}
    assert sum(plan.n_installed for plan in world.fib.plans.values()) == len(expected)


def test_a_flushed_table_is_repaired(namespace):
    """100 k routes of each family deleted by another program are all back, and each counted once."""
    world = world_in(namespace)
    table = many()
    world.change(table)
    batch(namespace, "".join(f"route del {prefix} metric 20\n" for prefix in table))
    assert n_routes(namespace) == 0
    settle(world)
    until(world, lambda: sum(plan.n_queued for plan in world.fib.plans.values()) == 0)
    settle(world)
    assert n_routes(namespace) == 2 * N_MANY
    counted = [plan.n_installed for plan in world.fib.plans.values()]
    assert counted == [N_MANY, N_MANY]
    world.kill()


def test_deletions_nobody_was_told_of_are_found(world, namespace):
    """With a buffer too small for the notifications, what was deleted and altered meanwhile is found by one reading."""
    world.change(many(20_000))
    world.fib.kernel.notifications._socket.setsockopt(1, 33, 4096)  # SO_RCVBUFFORCE
    lines = "".join(f"route del 10.0.{i}.0/24 metric 20\n" for i in range(256))
    lines += "".join(f"route replace 10.1.{i}.0/24 via 192.0.2.99 metric 20 proto 186\n" for i in range(256))
    lines += "".join(f"-6 route del 2001:1000:{i:x}00::/40 metric 20\n" for i in range(256))
    for i in range(256):
        lines += f"route {'append' if i % 2 else 'prepend'} 10.3.{i}.0/24 via 192.0.2.99 metric 20 proto 186\n"
        lines += f"-6 route append 2001:1001:{i:x}00::/40 via 2001:db8::99 metric 20 proto 186\n"
    lines += "route replace 10.2.0.0/24 via 192.0.2.99 metric 20 proto static\n"
    lines += "route prepend 10.2.1.0/24 via 192.0.2.99 metric 20 proto static\n"
    batch(namespace, lines)
    settle(world)
    until(world, lambda: n_routes(namespace) == 40_000 - 1)
    assert world.log.counts["notifications-lost"] >= 1
    until(world, lambda: "::99" not in namespace.ip("-6 route show"))
    assert "192.0.2.99" not in "".join(routes(namespace))
    assert world.fib.status()["families"]["ipv4-unicast"]["refused"] == {"EEXIST": 1}
    assert "via 192.0.2.99" in namespace.ip("route show 10.2.0.0/24")
    world.change({"10.2.1.0/24": "192.0.2.50"})
    assert "via 192.0.2.99" in namespace.ip("route show 10.2.1.0/24 proto static")


@pytest.mark.parametrize("how", ["append", "prepend"])
def test_a_route_of_others_found_beside_ours_is_not_overwritten(world, namespace, how):
    """What came before or behind ours while the fib was away stays when ours changes."""
    world.change(ROUTES)
    world.kill()
    namespace.ip(f"route {how} 198.51.100.0/24 via 192.0.2.99 metric 20 proto static")
    world.start()
    world.turn()
    world.change({"198.51.100.0/24": "192.0.2.11"})
    settle(world)
    assert "via 192.0.2.99" in namespace.ip("route show 198.51.100.0/24 proto static")
    assert "192.0.2.10 " not in namespace.ip("route show 198.51.100.0/24")


def test_churn_of_another_program_leaves_exactly_ours(world, namespace):
    """While another program deletes, replaces and adds, changes go on; in the end all is as the rib has it."""
    table = many(2000)
    world.change(table)
    for turn in range(5):
        lines = "".join(f"route del 10.0.{i}.0/24 metric 20\n" for i in range(turn, 250, 3))
        lines += "".join(
            f"route replace 10.1.{i}.0/24 via 192.0.2.99 metric 20 proto static\n" for i in range(turn, 250, 3)
        )
        lines += "".join(f"-6 route del 2001:1000:{i:x}00::/40 metric 20\n" for i in range(turn, 250, 3))
        batch(namespace, lines)
        world.change({f"10.{i % 4}.{i % 250}.0/24": f"192.0.2.{30 + turn}" for i in range(0, 1000, 7)})
    batch(namespace, "route flush proto static\n")
    settle(world)
    world.advance(61)
    settle(world)
    expected = {str(ip_network(prefix)): hop for rib in world.ribs.values() for prefix, hop in rib.routes.items()}
    found = {line.split()[0]: line.split("via ")[1].split()[0] for line in routes(namespace)}
    assert found == expected


def test_routes_of_others_are_learned_by_the_thousand(world, namespace):
    """100 k routes of another program in the main table come in as notifications and as a dump; one decides a way."""
    lines = "".join(f"route add {i // 65536 + 20}.{i // 256 % 256}.{i % 256}.0/24 via 192.0.2.50 proto static\n"
                    for i in range(N_MANY))  # fmt: skip
    batch(namespace, lines + "route add 203.0.113.0/24 via 192.0.2.51 proto static\n")
    world.change({"198.51.100.0/24": "203.0.113.7"})
    until(world, lambda: "via 192.0.2.51" in "".join(routes(namespace)))
    assert world.fib.resolver.n_routes > N_MANY
    world.kill()
    world.start()
    assert world.fib.resolver.n_routes > N_MANY
    world.turn()
    assert "via 192.0.2.51" in routes(namespace)[0]
