"""Requests and refusals on the wire, channel names."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bus import channels
from common.bus.batch import Position
from common.bus.schema import SchemaError
from common.bus.server import MAX_WINDOW_OCTETS
from common.bus.wire import (
    Credit,
    Refusal,
    Request,
    Stop,
    decode_refusal,
    decode_request,
    encode_credit,
    encode_read,
    encode_refusal,
    encode_stop,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


@given(st.integers(0, 2**60), st.text(), st.text(), st.integers(0, 2**60), st.integers(-1, 2**60))
def test_requests_arrive_as_they_were_sent(subscription, channel, epoch, sequence, cursor):
    """A request, credit, stop and refusal come out as they went in."""
    request = Request(channel, {"tap": True}, "rib.0", Position(epoch, sequence, cursor), 4096)
    read = decode_request(encode_read(subscription, request))
    assert read.request == request and read.subscription == subscription and request.is_tap
    assert decode_request(encode_credit(subscription, 9)) == Credit(subscription, 9)
    assert decode_request(encode_stop(subscription)) == Stop(subscription)
    assert decode_refusal(encode_refusal(subscription, channel)) == Refusal(subscription, channel)


@given(st.lists(st.binary(max_size=40), max_size=3))
def test_arbitrary_octets_never_crash(frames):
    """Octets from anywhere raise SchemaError and nothing else."""
    for decode in (decode_request, decode_refusal):
        with pytest.raises(SchemaError):
            decode(frames)


@given(
    st.sampled_from(["read", "credit", "stop", "refused"]),
    st.dictionaries(
        st.sampled_from(["sub", "octets", "channel", "params", "reader", "epoch", "sequence", "cursor", "credit", "v"]),
        VALUES,
    ),
)
def test_arbitrary_fields_never_crash(what, fields):
    """Fields with any values raise SchemaError, or are what they should be."""
    frames = [msgpack.packb({"t": what, **fields})]
    for decode in (decode_request, decode_refusal):
        try:
            message = decode(frames)
        except SchemaError:
            continue
        assert message.subscription >= 0


def test_no_credit_goes_beyond_the_largest_window(world, make_owner):
    """A reader that grants without end does not make its owner send without end."""
    owner = make_owner(world.bus("speaker"))
    follower = world.bus("tap").follow(
        "speaker", "0", "adj-rib-in/ipv4-unicast", lambda batch: None, credit=1 << 39, is_credit_manual=True
    )
    world.settle()
    for _ in range(10):
        follower.grant(1 << 39)
    world.settle()
    assert 0 < owner.server.readers()[0]["credit"] <= MAX_WINDOW_OCTETS


@pytest.mark.parametrize(
    ("pattern", "channel", "is_match"),
    [
        ("adj-rib-in/*", "adj-rib-in/ipv4-unicast", True),
        ("adj-rib-in/*", "adj-rib-in/ipv4-unicast/x", False),
        ("adj-rib-out/*/*", "adj-rib-out/ipv4-unicast/peer", True),
        ("nexthops", "nexthops", True),
        ("nexthops", "vrps", False),
        ("*", "", True),
    ],
)
def test_patterns(pattern, channel, is_match):
    """A star stands for one segment."""
    assert channels.is_match(pattern, channel) is is_match


def test_names():
    """Every name that is made fits a declared channel."""
    names = [
        channels.adj_rib_in("ipv4-unicast"),
        channels.loc_rib("ipv6-unicast"),
        channels.adj_rib_out("ipv4-unicast"),
        channels.adj_rib_out("ipv4-unicast", "transit-a"),
        channels.NEXTHOPS,
        channels.VRPS,
    ]
    for name in names:
        assert sum(channels.is_match(channel.pattern, name) for channel in channels.CHANNELS) == 1
    assert channels.family_of(names[0]) == "ipv4-unicast" and channels.family_of("vrps") == ""
    assert channels.endpoint("/run/headrace", "rib") == "ipc:///run/headrace/rib.0.bus"
    assert channels.control_endpoint("/run/headrace", "rib", "1") == "ipc:///run/headrace/rib.1.control"
