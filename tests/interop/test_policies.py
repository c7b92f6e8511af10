"""Routes that are out of the ordinary, and a configuration that changes: what others see of it.

ExaBGP announces what no decent router would; a BIRD outside and one inside our AS listen.
"""

import pytest

from tests.interop.daemons import Bird, ExaBgp
from tests.interop.exchange import Exchange, Role
from tests.interop.network import address
from tests.interop.router import ASN
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

PREFIX = "198.18.77.0/24"


@pytest.fixture(scope="module")
def exchange():
    made = Exchange()
    try:
        made.add("crafty", ExaBgp, Role("crafty", {"is_passive": True}), lambda n: [])
        made.add("outside", Bird, Role("outside"), lambda n: [])
        made.add("inside", Bird, Role("inside", {"is_internal": True}), lambda n: [])
        made.add("stranger", Bird, Role("stranger", keys={"import": None, "export": None}))
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def crafty(exchange):
    """Announces a route of any kind: crafty(words after the prefix); withdrawn at the end."""
    daemon, told = exchange.daemons["crafty"], []

    def announce(words: str, prefix: str = PREFIX) -> None:
        next_hop = "" if "next-hop" in words else f"next-hop {daemon.addresses[6 if ':' in prefix else 4]}"
        told.append(f"route {prefix} {next_hop} {words}")
        daemon.order(f"announce {told[-1]}")

    yield announce
    for route in told:
        daemon.order(f"withdraw {route}")
    wait_until(lambda: not exchange.router.received("crafty"), "withdrawal")
    wait_until(lambda: not exchange.held("outside") and not exchange.held("inside"), "withdrawal everywhere")


def shown(exchange: Exchange, name: str) -> str:
    return exchange.daemons[name].show(PREFIX)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("origin egp", "BGP.origin: EGP"),
        ("origin incomplete", "BGP.origin: Incomplete"),
        ("atomic-aggregate aggregator (64602:10.0.0.9)", "BGP.aggregator: 10.0.0.9 AS64602"),
        ("atomic-aggregate", "BGP.atomic_aggr"),
        ("community [64602:1 64602:2 blackhole]", "BGP.community: (64602,1) (64602,2) (65535,666)"),
        ("large-community [64602:0:4294967295]", "BGP.large_community: (64602, 0, 4294967295)"),
        ("extended-community [target:64602:7 origin:64602:9]", "BGP.ext_community: (rt, 64602, 7) (ro, 64602, 9)"),
        ("attribute [0x63 0xc0 0x01020304]", "BGP.63 [t]: 01 02 03 04"),
        ("as-path [64602 4200000000 64602 64602]", f"BGP.as_path: {ASN} 64602 4200000000 64602 64602"),
    ],
)
def test_attribute_is_passed_on(exchange, crafty, words, expected):
    """An attribute that Headrace need not touch, known to it or not, reaches another AS as it was told."""
    crafty(words)
    wait_until(lambda: expected in shown(exchange, "outside"), lambda: shown(exchange, "outside"))


def test_unknown_attributes(exchange, crafty):
    """An unknown transitive attribute is passed on as partial, one that is not transitive not at all (RFC 4271 §5)."""
    crafty("attribute [0x63 0xc0 0x01020304]")
    crafty("attribute [0x63 0x80 0x01020304]", "198.18.78.0/24")
    wait_until(lambda: len(exchange.held("outside")) == 2, "routes")
    told = {
        route["prefix"]: route for route in exchange.router.ask("speaker", "advertised", neighbor="outside")["routes"]
    }
    assert told[PREFIX]["others"][0]["flags"] == 0xE0
    assert "others" not in told["198.18.78.0/24"]


@pytest.mark.parametrize(
    ("community", "listeners"),
    [("no-export", {"inside"}), ("no-export-subconfed", {"inside"}), ("no-advertise", set())],
)
def test_well_known_communities(exchange, crafty, community, listeners):
    """A route that is not to leave our AS, or this router, does not (RFC 1997)."""
    crafty(f"community [{community}]")
    crafty("", "198.18.78.0/24")
    for name in ("outside", "inside"):
        wait_until(lambda name=name: "198.18.78.0/24" in exchange.held(name), f"the other route at {name}")
    assert {name for name in ("outside", "inside") if PREFIX in exchange.held(name)} == listeners
    assert PREFIX in exchange.router.chosen()


@pytest.mark.parametrize(
    ("words", "prefix", "reason"),
    [
        (f"as-path [64602 {ASN} 64999]", PREFIX, "own AS in the path"),
        ("as-path [64999 64602]", PREFIX, "path does not start with the neighbor's AS"),
        (f"next-hop {address(1)}", PREFIX, "next hop is an address of this router"),
        ("next-hop 127.0.0.1", PREFIX, "next hop cannot be used"),
        ("next-hop ::1", "2001:db8:77::/48", "next hop cannot be used"),
        ("", "127.1.0.0/16", "prefix that nobody may announce"),
        ("", "fe80:77::/48", "prefix that nobody may announce"),
    ],
)
def test_refused_route(exchange, crafty, words, prefix, reason):
    """A route that cannot be right is kept as received, with the reason shown, and told to nobody."""
    crafty(words, prefix)
    crafty("", "198.18.78.0/24")
    wait_until(lambda: "198.18.78.0/24" in exchange.held("outside"), "the other route")
    assert prefix in exchange.router.received("crafty")
    assert f"refused: {reason}" in exchange.router.command("show", "route", prefix)
    assert prefix not in exchange.router.chosen() and prefix not in exchange.held("inside")


def test_as_set_takes_the_route_back(exchange, crafty):
    """A route that comes again with an AS_SET is withdrawn from everybody, and no session ends (RFC 9774, RFC 7606)."""
    crafty("")
    wait_until(lambda: PREFIX in exchange.held("outside"), "the route")
    before = exchange.router.neighbor("crafty")
    crafty("as-path [64602 (64998 64999)]")
    wait_until(lambda: PREFIX not in exchange.held("outside") | exchange.held("inside"), "withdrawal")
    after = exchange.router.neighbor("crafty")
    assert after["n_treated_as_withdraw"] == before["n_treated_as_withdraw"] + 1
    assert after["n_established"] == before["n_established"]


def test_neighbor_without_policies(exchange, crafty):
    """An external neighbor without import and export is listened to and told nothing (RFC 8212)."""
    crafty("")
    wait_until(lambda: PREFIX in exchange.held("outside"), "the route")
    exchange.wait_for_received("stranger")
    assert exchange.held("stranger") == {}
    assert exchange.router.chosen().keys() == {PREFIX}
    prefix = next(iter(exchange.daemons["stranger"].announced))
    assert "no import policy (RFC 8212)" in exchange.router.command("show", "route", prefix)


def test_changed_policies_take_effect_at_once(exchange, crafty):
    """After a reload with other policies everybody is told what is different now, and no session ends."""
    router = exchange.router
    crafty("community [64602:1]")
    wait_until(lambda: PREFIX in exchange.held("outside") and PREFIX in exchange.held("inside"), "the route")
    n_established = [router.neighbor(name)["n_established"] for name in exchange.daemons]
    before = {name: dict(keys) for name, keys in router.neighbors.items()}
    router.neighbors["crafty"]["import"] = {"local_pref": 300, "add_communities": [f"{ASN}:5"]}
    router.neighbors["outside"]["export"] = {"as_path_prepend": 1, "remove_communities": ["64602:*"]}
    router.reload()
    try:
        wait_until(lambda: exchange.held("inside")[PREFIX].local_pref == 300, "another preference inside")
        assert exchange.held("inside")[PREFIX].communities == {"64602:1", f"{ASN}:5"}

        def outside():
            return exchange.held("outside").get(PREFIX)

        wait_until(lambda: outside() and outside().as_path == (ASN, ASN, 64602), "a longer path outside")
        wait_until(lambda: outside() and outside().communities == {f"{ASN}:5"}, "other communities outside")
    finally:
        router.neighbors = before
        router.reload()
    wait_until(lambda: outside() and outside().as_path == (ASN, 64602), "the path as before")
    assert [router.neighbor(name)["n_established"] for name in exchange.daemons] == n_established


def test_bad_configuration_changes_nothing(exchange, crafty):
    """A reload of a file with an error is refused, and all goes on."""
    crafty("")
    wait_until(lambda: PREFIX in exchange.held("outside"), "the route")
    keys = exchange.router.neighbors["outside"]
    before = exchange.router.neighbor("outside")["n_established"]
    keys["export"] = {"as_path_prepend": -1}
    with pytest.raises(Exception, match="as_path_prepend"):
        exchange.router.reload()
    keys["export"] = {"default": "accept"}
    exchange.router.write()
    assert PREFIX in exchange.held("outside")
    assert exchange.router.neighbor("outside")["n_established"] == before


def test_neighbor_removed_and_added(exchange):
    """A neighbor that the configuration has no longer is told so (RFC 4486), and comes back with it."""
    stranger, router = exchange.daemons["stranger"], exchange.router
    keys = router.neighbors.pop("stranger")
    router.reload()
    wait_until(lambda: not stranger.is_established(), "the end of the session")
    wait_until(lambda: "Peer de-configured" in stranger.last_notification(), stranger.last_notification)
    assert "stranger" not in router.states()
    router.neighbors["stranger"] = keys
    router.reload()
    exchange.wait_for_sessions("stranger")
    exchange.wait_for_received("stranger")
