"""Messages that other implementations really sent, read as tcpdump reads them (vectors: bgp_messages.txt)."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from common.bgp.attributes import describe_set
from common.bgp.capabilities import GracefulRestart
from common.bgp.constants import HEADER_OCTETS, NONE, AddPathMode, Family, RouteRefreshSubtype
from common.bgp.messages import Notification, Open, RouteRefresh, decode_header
from common.kernels import scan

LINES = Path(__file__).with_name("bgp_messages.txt").read_text().splitlines()
VECTORS = {name: bytes.fromhex(octets) for name, octets in (line.split() for line in LINES if line[0] != "#")}
V4, V6 = Family


def body(name: str) -> bytes:
    """Return a vector without its header, once the header has been found right."""
    octets = VECTORS[name]
    assert decode_header(octets, 0, len(octets))[1] == len(octets)
    return octets[HEADER_OCTETS:]


def update_of(name: str, **options):
    """Scan a vector; return the scanner, and for each route its prefix and its set in words (None: withdrawn)."""
    scanner = scan.Scanner()
    scanner.scan(VECTORS[name], 0, len(VECTORS[name]), scan.Options(**options))
    routes = []
    for family in Family:
        found = scanner.routes(family.index)
        offset, octets = found.set_offset.tolist(), found.set_octets.tobytes()
        for row, index in enumerate(found.set.tolist()):
            address = int(found.hi[row]) >> 32 if family is V4 else int(found.hi[row]) << 64 | int(found.lo[row])
            width = 4 if family is V4 else 16
            prefix = f"{ip_address(address.to_bytes(width, 'big'))}/{found.length[row]}"
            words = None if index == NONE else describe_set(octets[offset[index] : offset[index + 1]])
            routes.append((prefix, words))
    return scanner, routes


def test_open_of_an_implementation_with_four_octet_numbers():
    """AS_TRANS in the fixed part, the true number in the capability; ADD-PATH for receiving only."""
    message = Open.decode(body("open-four-octet-add-path"))
    assert (message.asn, message.hold_time_s, message.router_id) == (2764334674, 180, 0x101)
    assert message.capabilities.families == (V4,)
    assert message.capabilities.add_path == ((V4, AddPathMode.RECEIVE),)
    assert message.capabilities.graceful_restart == GracefulRestart(300, is_restarting=True, has_notification=True)


def test_open_with_each_capability_in_a_parameter_of_its_own():
    """Extended message, enhanced route refresh and the host's name are found."""
    capabilities = Open.decode(body("open-extended-message")).capabilities
    assert capabilities.extended_message and capabilities.route_refresh and capabilities.enhanced_route_refresh
    assert (capabilities.asn4, capabilities.host_name) == (65001, "exit1-debian-9")


def test_open_with_extended_optional_parameters():
    """The long form of RFC 9072, used though the short one would do."""
    message = Open.decode(body("open-extended-parameters"))
    assert (message.asn, message.capabilities.families) == (174, (V4, V6))
    assert message.capabilities.host_name == "exit1-debian-11"
    assert (V6, AddPathMode.RECEIVE) in message.capabilities.add_path


def test_open_with_a_role():
    """RFC 9234: role 3, customer."""
    assert Open.decode(body("open-role")).capabilities.role == 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("notification-bfd-down", "Cease: BFD Down"),
        ("notification-hard-reset", "Cease: Hard Reset: Cease: Peer De Configured"),
        (
            "notification-shutdown-text",
            'Cease: Administrative Shutdown "This is a test of the shutdown communication system."',
        ),
    ],
)
def test_notifications(name, words):
    """NOTIFICATIONs in words."""
    assert str(Notification.decode(body(name))) == words


def test_shutdown_text_of_more_than_128_octets():
    """RFC 9003 allows 255 octets."""
    assert len(Notification.decode(body("notification-long-text")).shutdown_text) == 210


def test_route_refreshes():
    """A begin mark, and a request with filters behind it, which are left out."""
    assert RouteRefresh.decode(body("route-refresh-begin")).subtype == RouteRefreshSubtype.BEGIN
    assert RouteRefresh.decode(body("route-refresh-orf")).family is V4


def test_update_with_as4_path():
    """The path of a two-octet session becomes the true one."""
    _, routes = update_of("update-as4-path", as4=False)
    assert [prefix for prefix, _ in routes] == [f"{n}.{n}.{n}.{n}/32" for n in (4, 5, 1, 2, 3)]
    assert routes[0][1]["as_path"] == "200 1 222222 333333 4294967290"
    assert update_of("update-as4-path-of-five", as4=False)[1][0][1]["as_path"].startswith("2764334674 200 1 222222")


def test_update_with_four_octet_numbers():
    """The path of a four-octet session is taken as it is."""
    _, routes = update_of("update-four-octet")
    assert routes[0][1]["as_path"] == "2764334674 200 1 222222 333333 4294967290"


def test_update_that_withdraws():
    """Five routes go."""
    _, routes = update_of("update-withdrawals")
    assert [words for _, words in routes] == [None] * 5


def test_update_with_large_communities():
    """All three."""
    _, [(prefix, words)] = update_of("update-large-communities")
    assert (prefix, words["large_communities"]) == ("203.0.113.13/32", ["65536:1:1", "65536:1:2", "65536:1:3"])


def test_update_with_an_unknown_extended_community():
    """Link bandwidth is kept, though not understood; LOCAL_PREF is an internal peer's."""
    _, routes = update_of("update-link-bandwidth", external=False)
    assert (routes[0][1]["local_pref"], routes[0][1]["extended_communities"]) == (100, ["4004fde847f42400"])


def test_update_with_only_to_customer():
    """OTC and a large community beside it."""
    _, [(_, words)] = update_of("update-only-to-customer")
    assert (words["only_to_customer"], words["large_communities"]) == (65001, ["65001:65001:1"])


def test_update_with_link_local_next_hop():
    """Both next hops are kept; the NEXT_HOP 0.0.0.0 beside MP_REACH_NLRI is not looked at."""
    scanner, [(prefix, words)] = update_of("update-link-local-next-hop", as4=False)
    assert (prefix, words["next_hop"]) == ("4:5::/64", "dead:beef::1 fe80::1ff:fe01:0")
    assert scanner.n_withdrawn == 0


def test_update_with_everything_wrong():
    """MP_REACH_NLRI twice and with the wrong flags is a reset, whatever else is in the UPDATE."""
    scanner, routes = update_of("update-add-path-malformed", as4=False, add_path=3)
    assert (scanner.stop, routes) == (scan.ERROR, [])
