"""Several fib instances, tables, namespaces and filters; preferred source, compatibility mode, rights."""

import os
import subprocess
import sys
from pathlib import Path

from common.config.load import loads
from tests.namespaces.conftest import Namespace
from tests.namespaces.worlds import routes, world_in
from tests.unit.stages.fib.world import CONFIG

ROOT = Path(__file__).parents[2]
ROUTES = {"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"}
SECOND = CONFIG + '[[fib.instance]]\nname = "second"\ntable = 70000\nmetric = 77\n'


def test_two_instances_fill_two_tables(namespace):
    """Each has its table, metric and nexthop objects; the end of one leaves the other's alone."""
    first, second = world_in(namespace, SECOND), world_in(namespace, SECOND, instance="second")
    first.change(ROUTES)
    second.change(ROUTES | {"203.0.113.0/24": "192.0.2.11"})
    assert len(routes(namespace)) == 2 and len(routes(namespace, "table 70000")) == 3
    assert all("metric 77" in line for line in routes(namespace, "table 70000"))
    assert len(namespace.ip("nexthop").splitlines()) == 5
    second.change(dict.fromkeys(ROUTES | {"203.0.113.0/24": ""}))
    second.advance(11)
    assert len(routes(namespace)) == 2 and len(namespace.ip("nexthop").splitlines()) == 2
    second.kill()
    first.kill()


def test_an_instance_in_another_namespace(namespace):
    """An instance fills the table of the namespace it names, over that one's interfaces."""
    other = Namespace()
    try:
        more = f'[[fib.instance]]\nname = "other"\nnamespace = "{other.name}"\n'
        world = world_in(namespace, CONFIG + more, instance="other")
        world.change(ROUTES)
        assert routes(namespace) == [] and len(routes(other)) == 2
        world.kill()
    finally:
        other.close()


def test_filters_choose_what_is_installed(namespace):
    """Only the families and prefixes configured go into the kernel; a filtered route is no refusal."""
    config = CONFIG + 'families = ["ipv4-unicast"]\nprefixes = ["10.0.0.0/8", "198.51.100.0/25"]\n'
    world = world_in(namespace, config)
    world.change(ROUTES | {"10.1.0.0/16": "192.0.2.10", "198.51.100.64/26": "192.0.2.10", "8.0.0.0/6": "192.0.2.10"})
    assert sorted(line.split()[0] for line in routes(namespace)) == ["10.1.0.0/16", "198.51.100.64/26"]
    assert list(world.fib.status()["families"]) == ["ipv4-unicast"]
    world.kill()


def test_the_preferred_source_is_in_the_routes(namespace):
    """Both families carry the source; after a change of it, adopted routes are written again."""
    namespace.ip("address add 192.0.2.2/24 dev d0")
    config = CONFIG + 'preferred_source_ipv4 = "{}"\npreferred_source_ipv6 = "2001:db8::1"\n'
    world = world_in(namespace, config.format("192.0.2.2"))
    world.change(ROUTES)
    found = routes(namespace)
    assert "src 192.0.2.2" in found[0] and "src 2001:db8::1" in found[1]
    world.change(dict.fromkeys(ROUTES))
    assert routes(namespace) == []
    world.kill()


def test_compat_mode_is_told_and_set(namespace):
    """With the kernel's default the start warns; with nexthop_compat = "off" it is set to 0, there alone."""
    world = world_in(namespace)
    assert world.fib.status()["nexthop_compat_mode"] == 1 and world.log.counts["nexthop-compat-mode"] == 1
    world.kill()
    world = world_in(namespace, CONFIG + 'nexthop_compat = "off"\n')
    assert world.fib.status()["nexthop_compat_mode"] == 0 and "nexthop-compat-mode" not in world.log.counts
    world.kill()


def test_resolving_over_bgp_when_configured(namespace):
    """A next hop inside a prefix of our own is reached over that route, if the configuration says so, and not else."""
    for resolve, n_expected in (("false", 1), ("true", 2)):
        world = world_in(namespace, CONFIG + f"resolve_over_bgp = {resolve}\n")
        world.change({"198.51.100.0/24": "192.0.2.10", "203.0.113.0/24": "198.51.100.7"})
        world.turn()
        assert len(routes(namespace)) == n_expected
        world.kill()
        world.start()


def test_with_cap_net_admin_alone_routes_are_changed(namespace):
    """After all other rights are given up the kernel still takes our routes, and nothing else that needs root."""
    script = """
import os, sys
from tests.namespaces.worlds import world_in
from common.runtime.rights import capabilities, keep_only
from stages.fib.stage import FibStage
class There:
    name = sys.argv[1]
world = world_in(There)
keep_only(FibStage.RIGHTS)
world.change({"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"})
assert sum(plan.n_installed for plan in world.fib.plans.values()) == 2
assert capabilities() == 1 << 12
try:
    os.chown("/proc/self/fd/1", 1, 1)
except PermissionError:
    print("dropped")
"""
    command = [sys.executable, "-c", script, namespace.name]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.stdout == "dropped\n", done.stderr
    assert len(routes(namespace)) == 2


def test_instances_take_what_they_do_not_set():
    """An instance has the keys of [fib] but for those it names."""
    config = loads(SECOND.replace("[fib]\n", '[fib]\non_exit = "remove"\n'))
    assert list(config.fibs) == ["0", "second"]
    assert config.fibs["second"].on_exit == "remove" and config.fibs["second"].metric == 77
    assert config.fib.table == 254 and config.fib_of("0") is config.fib
