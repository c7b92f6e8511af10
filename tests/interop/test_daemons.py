"""Each daemon in each role beside all the others: sessions, routes and attributes both ways, changes, loss and return.

All share one running router with sixteen neighbors, so every test leaves behind what it has found.
"""

import signal

import pytest

from tests.interop.daemons import ALL, Bird
from tests.interop.exchange import Exchange, Role, marked, plain
from tests.interop.network import address
from tests.interop.router import ASN
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

SOURCE = Role(
    "source",
    keys={
        "passive": True,
        "import": {
            "default": "accept",
            "local_pref": 120,
            "remove_communities": ["64699:*"],
            "add_communities": [f"{ASN}:100"],
            "add_large_communities": [f"{ASN}:1:1"],
        },
    },
)
# Headrace waits to be called, over IPv4, and tells with a policy.
CALLED = Role(
    "called",
    keys={
        "passive": True,
        "export": {
            "default": "accept",
            "as_path_prepend": 2,
            "remove_communities": [f"{ASN}:100"],
            "add_communities": [f"{ASN}:777"],
            "remove_large_communities": [f"{ASN}:*:*"],
            "add_large_communities": [f"{ASN}:7:7"],
        },
    },
)
# Headrace dials, over IPv6.
DIALS = Role("dials", {"over": 6, "is_passive": True}, {"maximum_prefixes": 4, "maximum_prefixes_restart_s": 1})
# Both dial, over IPv4, and collide now and then.
INTERNAL = Role("internal", {"is_internal": True})

ROLES = (CALLED, DIALS, INTERNAL)
KINDS = {f"{kind.name}-{role.name}": kind for role in ROLES for kind in ALL}
each_neighbor = pytest.mark.parametrize("name", KINDS)
each_daemon = pytest.mark.parametrize("name", [name for name in KINDS if name.endswith(DIALS.name)])


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(fib={"enabled": True})
    try:
        made.add("source", Bird, SOURCE, lambda n: marked(n, more=("64699:1",)))
        for role in ROLES:
            local_pref = 150 if role.is_internal else None
            for kind in ALL:
                name = f"{kind.name}-{role.name}"
                made.add(name, kind, role, lambda n, local_pref=local_pref: marked(n, local_pref=local_pref))
        made.start()
        yield made
    finally:
        made.close()


@each_neighbor
def test_session(exchange, name):
    """The session is up with both families, over the addresses and in the direction that were configured."""
    role, neighbor = exchange.roles[name], exchange.router.neighbor(name)
    assert neighbor["state"] == "Established"
    assert neighbor["families"] == ["ipv4-unicast", "ipv6-unicast"]
    assert neighbor["local_address"] == address(1, exchange.daemons[name].over)
    assert neighbor["external"] is not role.is_internal
    assert neighbor["router_id"] == exchange.daemons[name].addresses[4]
    assert neighbor["hold_time_s"] == 90
    assert neighbor["n_treated_as_withdraw"] == neighbor["n_attributes_discarded"] == 0


@each_neighbor
def test_received_routes(exchange, name):
    """Headrace holds what the daemon announces, of both families, with every attribute."""
    exchange.wait_for_received(name)


@each_neighbor
def test_told_routes(exchange, name):
    """The daemon holds every route it ought to, of both families, with every attribute as it is due."""
    exchange.wait_for_routes(name)
    assert exchange.router.advertised(name).keys() == exchange.held(name).keys()


@each_neighbor
def test_end_of_rib(exchange, name):
    """The daemon has been sent an End-of-RIB of both families."""
    wait_until(exchange.daemons[name].has_end_of_rib, f"End-of-RIB at {name}")


def test_end_of_rib_received(exchange):
    """The End-of-RIB that ExaBGP sends to everybody is taken note of."""
    tables = exchange.router.neighbor("exabgp-dials")["tables"]
    assert [table["end_of_rib_received"] for table in tables.values()] == [True, True]


@each_neighbor
def test_daemon_announces_and_withdraws(exchange, name):
    """A route that comes and goes at the daemon comes and goes at another neighbor and in the kernel."""
    daemon = exchange.daemons[name]
    routes = plain(daemon.n)
    for route in routes:
        daemon.announce(route)
    exchange.wait_for_received(name)
    exchange.wait_for_routes("source")
    for route in routes:
        wait_until(lambda route=route: route.prefix in exchange.router.kernel_routes(), f"{route} in the kernel")
        daemon.withdraw(route.prefix)
    exchange.wait_for_received(name)
    exchange.wait_for_routes("source")
    wait_until(lambda: not exchange.router.kernel_routes().keys() & {route.prefix for route in routes}, "removal")


@each_neighbor
def test_daemon_is_told_changes(exchange, name):
    """The daemon is told a new route, its new attributes and its end."""
    source = exchange.daemons["source"]
    routes = plain(source.n)
    for route in routes:
        source.announce(route)
    exchange.wait_for_routes(name)
    for route in marked(source.n):
        for prefix in [each.prefix for each in routes if each.version == route.version]:
            source.announce(type(route)(prefix=prefix, communities=route.communities))
    exchange.wait_for_routes(name)
    for route in routes:
        source.withdraw(route.prefix)
    exchange.wait_for_routes(name)


def test_kernel_routes(exchange):
    """Every route is in the kernel, by way of the neighbor that announced it."""
    expected = {
        prefix: daemon.addresses[each.version]
        for daemon in exchange.daemons.values()
        for prefix, each in daemon.announced.items()
    }

    def gateways():
        return {prefix: route["gateway"] for prefix, route in exchange.router.kernel_routes().items()}

    wait_until(lambda: gateways() == expected, lambda: f"{gateways()} in the kernel")


def test_commands(exchange):
    """`headrace show` answers about a router in this state."""
    shown = exchange.router.command("show", "neighbors")
    assert shown.count("Established") == len(exchange.daemons)
    route = exchange.router.command("show", "route", "198.18.2.0/24")
    assert "source" in route and "*" in route
    assert '"198.18.2.0/24"' in exchange.router.command("show", "routes", "--advertised", "frr-dials", "--json")


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.can_refresh])
def test_route_refresh(exchange, name):
    """A daemon that asks for its routes again is told each table again, and holds the same as before."""

    def n_updates():
        return [table["n_updates"] for table in exchange.router.neighbor(name)["tables"].values()]

    exchange.wait_for_routes(name)
    before = n_updates()
    exchange.daemons[name].refresh()
    wait_until(lambda: all(now > then for now, then in zip(n_updates(), before, strict=True)), "UPDATEs")
    assert exchange.router.neighbor(name)["messages_received"]["ROUTE_REFRESH"] >= 2
    exchange.wait_for_routes(name)


@each_daemon
def test_daemon_shuts_down(exchange, name):
    """The text of a daemon's administrative shutdown is shown; its routes go, and come back with it."""
    daemon = exchange.daemons[name]
    announced = dict(daemon.announced)
    daemon.shut_down("lunch break")
    wait_until(lambda: "Cease" in exchange.router.neighbor(name)["last_error"], "a Cease")
    last_error = exchange.router.neighbor(name)["last_error"]
    assert "Administrative Shutdown" in last_error and ("lunch break" in last_error or not daemon.has_shutdown_text)
    if daemon.has_shutdown_text:  # the other comes back at once
        daemon.announced.clear()
        exchange.wait_for_routes("source")
        daemon.announced.update(announced)
    daemon.bring_up()
    exchange.wait_for_sessions(name)
    exchange.wait_for_routes("source")
    exchange.wait_for_routes(name)


@each_daemon
def test_router_shuts_down(exchange, name):
    """A daemon understands the text of our administrative shutdown, and comes back afterwards."""
    daemon = exchange.daemons[name]
    text = "night falls" if daemon.has_shutdown_text else ""
    exchange.router.ask("speaker", "neighbor-stop", name=name, text=text)
    exchange.wait_for_end(name)
    wait_until(lambda: (text or "Administrative Shutdown") in daemon.last_notification(), daemon.last_notification)
    exchange.router.ask("speaker", "neighbor-start", name=name)
    exchange.wait_for_sessions(name)
    exchange.wait_for_routes(name)


@each_daemon
def test_maximum_prefixes(exchange, name):
    """A daemon that announces too much loses its session, and gets another once it announces less."""
    daemon = exchange.daemons[name]
    n_established = exchange.router.neighbor(name)["n_established"]
    too_many = [*plain(daemon.n), *plain(daemon.n + 100)]
    for route in too_many:
        daemon.announce(route)
    wait_until(lambda: "sent Cease: Maximum" in exchange.router.neighbor(name)["last_error"], "a Cease")
    for route in too_many:
        daemon.withdraw(route.prefix)
    daemon.bring_up()  # OpenBGPD waits for a minute if nobody says so
    wait_until(lambda: exchange.router.neighbor(name)["n_established"] > n_established, "another session")
    exchange.wait_for_sessions(name)
    exchange.wait_for_received(name)
    exchange.wait_for_routes("source")


@each_neighbor
def test_daemon_dies(exchange, name):
    """Routes of a daemon that is killed go everywhere, and come back when it is started again."""
    daemon = exchange.daemons[name]
    announced = dict(daemon.announced)
    daemon.stop(signal.SIGKILL)
    daemon.announced.clear()
    try:
        exchange.wait_for_routes("source")
        assert not exchange.router.kernel_routes().keys() & announced.keys()
    finally:
        daemon.announced.update(announced)
        daemon.start()
        daemon.get_ready()
    exchange.wait_for_sessions(name)
    exchange.wait_for_received(name)
    exchange.wait_for_routes("source")
    exchange.wait_for_routes(name)


def test_router_restarts(exchange):
    """When Headrace is stopped, all are told and the kernel's routes stay; when it is back, so is everything."""
    before = exchange.router.kernel_routes().keys()
    exchange.router.stop()
    for name, daemon in exchange.daemons.items():
        wait_until(lambda daemon=daemon: not daemon.is_established(), f"end of {name}")
    assert exchange.router.kernel_routes().keys() == before
    exchange.router.start()
    # Of those who have to call us some wait for half a minute: the others will do.
    names = [name for name, role in exchange.roles.items() if role in (DIALS, INTERNAL)]
    exchange.wait_for_sessions(*names)
    for name in names:
        exchange.wait_for_received(name)
