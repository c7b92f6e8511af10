"""Peers that know 2-octet AS numbers only (RFC 6793), where the router's AS and others need four octets.

All but FRR put the AS4_PATH they receive back into the path they show, so a path that is shown whole was told with both
attributes right. FRR shows the AS_PATH alone.
"""

from dataclasses import replace

import pytest

from tests.interop.daemons import Bird, ExaBgp, Frr, OpenBgpd
from tests.interop.exchange import Exchange, Role, differences, marked
from tests.interop.route import Announcement
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

ASN = 4200000000
AS_TRANS = 23456
OLD = {"bird": Bird, "frr": Frr, "openbgpd": OpenBgpd, "exabgp": ExaBgp}


def near(n: int) -> list[Announcement]:
    return marked(n)[:1]


def beyond(n: int) -> list[Announcement]:
    """Return a route that comes from behind an AS whose number needs four octets."""
    return [replace(each, as_path=(4200000100 + n, 64512)) for each in near(n)]


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(asn=ASN)
    try:
        made.add("new", Bird, Role("new"), near, asn=4200000001, router_asn=ASN)
        role = Role("old", {"has_asn4": False, "is_passive": True})
        for name, kind in OLD.items():
            # FRR looks at our capability also where it offers none itself; OpenBGPD cannot make up a path.
            router_asn = ASN if kind is Frr else AS_TRANS
            made.add(name, kind, role, near if kind is OpenBgpd else beyond, router_asn=router_asn)
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", OLD)
def test_received_path_is_whole(exchange, name):
    """What an old peer tells in AS_PATH and AS4_PATH is one path of 4-octet numbers."""
    exchange.wait_for_received(name)
    assert all(AS_TRANS not in route.as_path for route in exchange.router.received(name).values())


@pytest.mark.parametrize("name", ["new", "bird", "openbgpd", "exabgp"])
def test_told_path_is_whole(exchange, name):
    """Everybody finds every AS of a path, our own too, whatever the session itself can express."""
    exchange.wait_for_routes(name)
    assert all(route.as_path[0] == ASN for route in exchange.held(name).values())


def test_path_in_two_octets(exchange):
    """In the AS_PATH for an old peer AS_TRANS stands for each AS number that needs four octets."""

    def in_two_octets(route):
        return replace(route, as_path=tuple(asn if asn < 1 << 16 else AS_TRANS for asn in route.as_path))

    expected = {prefix: in_two_octets(route) for prefix, route in exchange.expected_told("frr").items()}
    wait_until(lambda: exchange.held("frr") == expected, lambda: differences(exchange.held("frr"), expected))


def test_peer_without_capabilities_gets_ipv4(exchange):
    """A peer that sends no capabilities at all has a session for IPv4 unicast."""
    assert exchange.router.neighbor("frr")["families"] == ["ipv4-unicast"]
