"""BIRD and FRR exchange routes through Headrace, which puts them into the kernel; ExaBGP listens.

What matters for a router: the better path, the way back from a loss, a neighbor that falls silent, and stages that die
without anybody outside noticing.
"""

import os
import signal

import pytest

from common.bus.control import ControlError
from tests.interop.daemons import Bird, ExaBgp, Frr
from tests.interop.exchange import Exchange, Role, marked, plain
from tests.interop.network import address
from tests.interop.route import Announcement
from tests.interop.router import ASN
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

ORIGINATED = {"192.0.2.0/24", "2001:db8:ffff::/48"}
SHARED = [Announcement(prefix="198.51.100.0/24", med=7), Announcement(prefix="2001:db8:5100::/48", med=7)]
BIRD = Role("bird", keys={"hold_time_s": 3, "import": {"default": "accept", "local_pref": 200}})
FRR = Role("frr", {"over": 6})
LISTENER = Role("listener", {"is_passive": True})


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(router={"originate": sorted(ORIGINATED)}, fib={"enabled": True})
    try:
        made.add("bird", Bird, BIRD, lambda n: [*marked(n), *SHARED])
        made.add("frr", Frr, FRR, lambda n: [*marked(n), *SHARED])
        made.add("listener", ExaBgp, LISTENER, lambda n: [])
        made.start()
        wait_for_winner(made, "bird")
        yield made
    finally:
        made.close()


def wait_for_winner(exchange: Exchange, winner: str) -> None:
    """Wait until the prefixes both announce are known by way of one of them, to the listener and to the kernel."""
    daemon = exchange.daemons[winner]

    def is_winner() -> bool:
        held, kernel = exchange.held("listener"), exchange.router.kernel_routes()
        return all(
            each.prefix in held
            and held[each.prefix].as_path == (ASN, daemon.asn)
            and kernel.get(each.prefix, {}).get("gateway") == daemon.addresses[each.version]
            for each in SHARED
        )

    wait_until(is_winner, lambda: f"{winner} in {exchange.held('listener')}, {exchange.router.kernel_routes()}")


def has_shared(exchange: Exchange, name: str) -> bool:
    return {each.prefix for each in SHARED} <= exchange.held(name).keys()


@pytest.mark.parametrize(("name", "other"), [("bird", "frr"), ("frr", "bird")])
def test_exchange(exchange, name, other):
    """Each holds what the other announces, by way of Headrace."""
    n = exchange.daemons[other].n
    wait_until(lambda: {each.prefix for each in marked(n)} <= exchange.held(name).keys(), f"routes at {name}")
    for route in marked(n):
        held = exchange.held(name)[route.prefix]
        assert held.as_path == (ASN, 64600 + n) and held.next_hop == address(1, route.version) and held.med is None
        assert held.communities == set(route.communities)


@pytest.mark.parametrize("name", ["bird", "frr", "listener"])
def test_originated_prefixes(exchange, name):
    """Headrace's own prefixes are told to everybody, and are not put into the kernel."""
    wait_until(lambda: exchange.held(name).keys() >= ORIGINATED, f"prefixes at {name}")
    for prefix in ORIGINATED:
        assert exchange.held(name)[prefix].as_path == (ASN,)
        assert exchange.held(name)[prefix].next_hop == address(1, 6 if ":" in prefix else 4)
    assert not exchange.router.kernel_routes().keys() & ORIGINATED


def test_better_path_wins_and_comes_back(exchange):
    """Of two paths all are told the better one, but not its own announcer; the other takes over while it is gone."""
    bird = exchange.daemons["bird"]
    assert has_shared(exchange, "frr") and not has_shared(exchange, "bird")
    for each in SHARED:
        bird.withdraw(each.prefix)
    wait_for_winner(exchange, "frr")
    wait_until(lambda: has_shared(exchange, "bird") and not has_shared(exchange, "frr"), "the other way round")
    for each in SHARED:
        bird.announce(each)
    wait_for_winner(exchange, "bird")
    wait_until(lambda: has_shared(exchange, "frr") and not has_shared(exchange, "bird"), "as before")


def test_reasons_are_shown(exchange):
    """`headrace show route` says which path was chosen and why the other lost."""
    shown = exchange.router.command("show", "route", SHARED[0].prefix).splitlines()
    chosen = [line for line in shown if line.lstrip().startswith("*")]
    assert len(chosen) == 1 and "bird" in chosen[0]
    assert any("frr" in line and "preference" in line.lower() for line in shown)


def test_silent_neighbor(exchange):
    """A neighbor from which nothing is heard for the hold time has no session and no routes, and returns with both."""
    bird = exchange.daemons["bird"]
    assert exchange.router.neighbor("bird")["hold_time_s"] == 3
    exchange.network.set_link(bird.n, is_up=False)
    wait_for_winner(exchange, "frr")
    assert "Hold Timer Expired" in exchange.router.neighbor("bird")["last_error"]
    exchange.network.set_link(bird.n, is_up=True)
    exchange.wait_for_sessions("bird")
    wait_for_winner(exchange, "bird")


@pytest.mark.parametrize("stage", ["policy", "rib", "exporter", "fib"])
def test_death_of_a_stage_is_not_noticed(exchange, stage):
    """A stage that is killed comes back; no session ends, nobody is told anything, the kernel keeps its routes."""
    router, listener = exchange.router, exchange.daemons["listener"]
    before = (listener.routes(), listener.n_updates(), router.kernel_routes())
    n_established = [router.neighbor(name)["n_established"] for name in exchange.daemons]
    pid = router.stages()[stage]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: router.stages()[stage]["pid"] not in (0, pid), f"another {stage}")

    def is_in_step() -> bool:
        try:
            return all(router.ask(name, "status")["state"] == "in step" for name in router.stages())
        except (ControlError, TimeoutError):
            return False

    wait_until(is_in_step, f"all stages in step after the death of {stage}")
    assert (listener.routes(), listener.n_updates(), router.kernel_routes()) == before
    assert [router.neighbor(name)["n_established"] for name in exchange.daemons] == n_established
    frr = exchange.daemons["frr"]
    for route in plain(frr.n):
        frr.announce(route)
        wait_until(lambda route=route: route.prefix in listener.routes(), f"{route} at the listener")
        wait_until(lambda route=route: route.prefix in router.kernel_routes(), f"{route} in the kernel")
        frr.withdraw(route.prefix)
    wait_until(lambda: listener.routes() == before[0] and router.kernel_routes() == before[2], "withdrawal")
    assert listener.n_updates() == before[1] + 4
