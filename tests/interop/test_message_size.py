"""UPDATEs are as full as the session allows: 4,096 octets, or 65,535 with extended messages (RFC 8654)."""

import pytest

from tests.interop.daemons import ALL, Frr
from tests.interop.exchange import Exchange, Role
from tests.interop.route import Announcement
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

N = 3000
OURS = [f"10.{i >> 8}.{i & 255}.0/24" for i in range(N)] + [f"2001:db8:{i:x}::/48" for i in range(1, N + 1)]
# The fewest messages that N prefixes fit into, of four octets each and of seven, by whether they may be extended.
FEWEST = {True: (1, 1), False: (3, 6)}
KINDS = {kind.name: kind for kind in ALL}


def many() -> list[Announcement]:
    """Return N IPv4 routes that all have the same attributes."""
    return [Announcement(prefix=f"100.{i >> 8}.{i & 255}.0/24", med=0) for i in range(N)]


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(router={"originate": OURS})
    try:
        role = Role("listener", {"is_passive": True}, {"export": {"default": "accept", "learned_routes": False}})
        for name, kind in KINDS.items():
            made.add(name, kind, role, lambda n, kind=kind: many() if kind is Frr else [])
        made.start()
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("name", KINDS)
def test_told_in_full_messages(exchange, name):
    """A daemon takes all prefixes, in about the fewest UPDATEs its session allows."""
    daemon = exchange.daemons[name]
    wait_until(lambda: daemon.n_routes() == len(OURS), lambda: f"{daemon.n_routes()} routes at {name}")
    tables = exchange.router.neighbor(name)["tables"].values()
    for table, fewest in zip(tables, FEWEST[daemon.has_extended_messages], strict=True):
        # The End-of-RIB is one more. A new peer is told little at first, then more in each turn, so a few are not full;
        # too few to take an extended message for one of 4,096 octets.
        assert fewest <= table["n_updates"] - 1 <= fewest + 3


def test_extended_message_received(exchange):
    """More than fits into 4,096 octets is taken in one UPDATE, as FRR packs it."""
    wait_until(lambda: len(exchange.router.received("frr")) == N, "routes of FRR")
    neighbor = exchange.router.neighbor("frr")
    assert neighbor["n_octets_received"] > 4 * N
    assert neighbor["messages_received"]["UPDATE"] <= 3  # and perhaps an End-of-RIB of each family
