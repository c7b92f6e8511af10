"""Capabilities: what is read from odd encodings, and what is negotiated."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bgp.capabilities import Capabilities, GracefulRestart, negotiate
from common.bgp.constants import AddPathMode, CapabilityCode, Family

V4, V6 = Family
FULL = Capabilities(
    families=(V4, V6),
    asn4=65000,
    route_refresh=True,
    enhanced_route_refresh=True,
    extended_message=True,
    add_path=((V4, AddPathMode.RECEIVE | AddPathMode.SEND), (V6, AddPathMode.RECEIVE)),
    extended_next_hop=(V4,),
    graceful_restart=GracefulRestart(120),
)


def test_no_multiprotocol_capability_means_ipv4():
    """A peer that names no family routes IPv4 unicast; one that names only others does not (RFC 4760 §8)."""
    assert Capabilities.of([]).families == (V4,)
    assert Capabilities.of([(1, bytes([0, 25, 0, 65]))]).families == ()
    assert Capabilities.of([(1, bytes([0, 2, 0, 1]))] * 2).families == (V6,)


def test_keeps_what_it_does_not_know():
    """Unknown capabilities and families are kept as they came."""
    items = [(1, bytes([0, 25, 0, 65])), (99, b"x")]
    assert Capabilities.of(items).others == tuple(items)


@pytest.mark.parametrize(
    ("code", "value"),
    [
        (CapabilityCode.FOUR_OCTET_AS, bytes(3)),
        (CapabilityCode.GRACEFUL_RESTART, bytes(1)),
        (CapabilityCode.GRACEFUL_RESTART, bytes(5)),
        (CapabilityCode.ADD_PATH, bytes(3)),
        (CapabilityCode.ADD_PATH, bytes([0, 1, 1, 4])),
        (CapabilityCode.EXTENDED_NEXT_HOP, bytes(5)),
        (CapabilityCode.EXTENDED_NEXT_HOP, bytes([0, 2, 0, 1, 0, 2])),
        (CapabilityCode.ROLE, b""),
        (CapabilityCode.FQDN, b""),
    ],
)
def test_ignores_malformed_values(code, value):
    """A known capability with a value that makes no sense counts as not there."""
    assert Capabilities.of([(code, value)]) == Capabilities()


@given(st.lists(st.tuples(st.sampled_from(CapabilityCode) | st.integers(0, 255), st.binary(max_size=40)), max_size=6))
def test_any_values_make_capabilities(items):
    """Whatever a peer says, decoding ends with something that can be negotiated."""
    assert set(negotiate(FULL, Capabilities.of(items)).families) <= {V4, V6}


def test_negotiates_what_both_can():
    """Everything that both sides have."""
    negotiated = negotiate(FULL, FULL)
    assert (negotiated.families, negotiated.as4, negotiated.max_message_octets) == ((V4, V6), True, 65535)
    assert negotiated.route_refresh and negotiated.enhanced_route_refresh and negotiated.extended_next_hop
    assert negotiated.graceful_restart == GracefulRestart(120)


def test_negotiates_add_path_by_direction():
    """Path identifiers come if one side sends and the other receives (RFC 7911 §4)."""
    remote = Capabilities(families=(V4, V6), add_path=((V4, AddPathMode.SEND), (V6, AddPathMode.RECEIVE)))
    negotiated = negotiate(FULL, remote)
    assert (negotiated.add_path_receive, negotiated.add_path_send) == ((V4,), ())
    assert negotiate(remote, FULL).add_path_send == (V4,)


def test_negotiates_nothing_with_an_old_peer():
    """A peer without capabilities gets BGP-4 as it was."""
    negotiated = negotiate(FULL, Capabilities())
    assert negotiated == type(negotiated)(families=(V4,))
    assert negotiate(Capabilities(families=(V6,)), Capabilities()).families == ()
