"""OPEN, NOTIFICATION, ROUTE-REFRESH and the header, as values and octets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.bgp.capabilities import Capabilities, GracefulRestart
from common.bgp.constants import HEADER_OCTETS, AddPathMode, ErrorCode, Family, MessageType, OpenSubcode
from common.bgp.errors import MessageHeaderError, OpenMessageError, ProtocolError, RouteRefreshMessageError
from common.bgp.messages import KEEPALIVE, Notification, Open, RouteRefresh, decode_header, encode_message

some_families = st.lists(st.sampled_from(Family), unique=True, min_size=1).map(tuple)
names = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=64)
capabilities = st.builds(
    Capabilities,
    families=some_families,
    asn4=st.none() | st.integers(1, 0xFFFFFFFF),
    route_refresh=st.booleans(),
    enhanced_route_refresh=st.booleans(),
    extended_message=st.booleans(),
    add_path=st.dictionaries(st.sampled_from(Family), st.sampled_from([1, 2, 3]).map(AddPathMode)).map(
        lambda modes: tuple(modes.items())
    ),
    extended_next_hop=st.sampled_from([(), (Family.IPV4_UNICAST,)]),
    graceful_restart=st.none()
    | st.builds(
        GracefulRestart,
        st.integers(0, 4095),
        st.booleans(),
        st.booleans(),
        st.lists(st.tuples(st.sampled_from(Family), st.booleans()), max_size=2).map(tuple),
    ),
    role=st.none() | st.integers(0, 4),
    host_name=st.just("") | names,
    others=st.lists(st.tuples(st.sampled_from([7, 99, 200]), st.binary(max_size=255)), max_size=3).map(tuple),
)


@st.composite
def opens(draw):
    said = draw(capabilities)
    asn = said.asn4 if said.asn4 is not None else draw(st.integers(1, 65535))
    return Open(asn, draw(st.just(0) | st.integers(3, 65535)), draw(st.integers(1, 0xFFFFFFFF)), said)


def body_of(**changes) -> bytes:
    """Return an OPEN's body with some fields changed."""
    fields = {"version": b"\4", "asn": b"\xfd\xe8", "hold": b"\0\x5a", "id": bytes([10, 0, 0, 1]), "parameters": b"\0"}
    return b"".join({**fields, **changes}.values())


@given(opens())
def test_open_comes_back(message):
    """What is encoded is decoded to the same, with few capabilities or many."""
    octets = message.encode()
    assert decode_header(octets, 0, len(octets)) == (MessageType.OPEN, len(octets))
    assert Open.decode(octets[HEADER_OCTETS:]) == message


@given(opens(), st.data())
def test_open_cut_anywhere_is_an_error(message, data):
    """A body cut at any length raises a protocol error, never another exception."""
    octets = message.encode()[HEADER_OCTETS:]
    with pytest.raises(ProtocolError):
        Open.decode(octets[: data.draw(st.integers(0, len(octets) - 1))])


@given(st.binary(max_size=80), st.booleans())
def test_arbitrary_open_never_crashes(octets, is_plausible):
    """Any octets make an OPEN or a protocol error."""
    try:
        Open.decode(body_of(parameters=octets) if is_plausible else octets)
    except ProtocolError as error:
        assert error.code in (ErrorCode.OPEN_MESSAGE_ERROR, ErrorCode.MESSAGE_HEADER_ERROR)


@pytest.mark.parametrize(
    ("octets", "subcode", "data"),
    [
        (body_of(version=b"\3"), OpenSubcode.UNSUPPORTED_VERSION_NUMBER, b"\0\4"),
        (body_of(asn=b"\0\0"), OpenSubcode.BAD_PEER_AS, b""),
        (body_of(parameters=bytes([8, 2, 6, 65, 4, 0, 0, 0, 0])), OpenSubcode.BAD_PEER_AS, b""),
        (body_of(hold=b"\0\2"), OpenSubcode.UNACCEPTABLE_HOLD_TIME, b"\0\2"),
        (body_of(id=bytes(4)), OpenSubcode.BAD_BGP_IDENTIFIER, bytes(4)),
        (body_of(parameters=bytes([3, 1, 1, 0])), OpenSubcode.UNSUPPORTED_OPTIONAL_PARAMETER, b""),
        (body_of(parameters=bytes([4, 2, 3, 65, 4])), OpenSubcode.UNSPECIFIC, b""),
        (body_of(parameters=bytes([4, 2, 2, 65, 4])), OpenSubcode.UNSPECIFIC, b""),
        (body_of(parameters=bytes([2, 2, 0, 0])), OpenSubcode.UNSPECIFIC, b""),
        (body_of(parameters=bytes([255, 255, 0])), OpenSubcode.UNSPECIFIC, b""),
    ],
    ids=["version", "AS 0", "four-octet AS 0", "hold time", "id", "parameter", "cut", "capability", "trailing", "long"],
)
def test_open_errors(octets, subcode, data):
    """Each error has its subcode and data (RFC 4271 §6.2)."""
    with pytest.raises(OpenMessageError) as raised:
        Open.decode(octets)
    assert (raised.value.subcode, raised.value.data) == (subcode, data)


def test_open_says_as_trans_for_a_large_number():
    """A four-octet number is 23456 in the fixed part (RFC 6793 §4.2.1)."""
    assert Open(70000, 90, 1, Capabilities(asn4=70000)).encode()[20:22] == (23456).to_bytes(2, "big")


@given(st.binary(max_size=60), st.integers(0, 255), st.integers(0, 255))
def test_notification_comes_back(data, code, subcode):
    """Codes and data survive, known or not, and can be shown."""
    octets = Notification(code, subcode, data).encode()
    notification = Notification.decode(octets[HEADER_OCTETS:])
    assert notification == Notification(code, subcode, data)
    assert str(notification).isprintable()


def test_notification_data_is_cut_to_the_message():
    """An UPDATE of 4,096 octets as data still makes a message of no more."""
    assert len(Notification(3, 1, bytes(5000)).encode()) == 4096


def test_hard_resets_within_one_another_have_words():
    """A NOTIFICATION full of Hard Resets, one in the other, can be logged (RFC 8538 §3.1)."""
    assert str(Notification(6, 9, b"\6\2")) == "Cease: Hard Reset: Cease: Administrative Shutdown"
    assert str(Notification(6, 9, b"\6\x09" * 30000)).startswith("Cease: Hard Reset")


def test_notification_without_codes_is_an_error():
    """A NOTIFICATION of less than 21 octets has a bad length."""
    with pytest.raises(MessageHeaderError):
        Notification.decode(b"\6")


@given(st.integers(0, 65535), st.integers(0, 255), st.integers(0, 3))
def test_route_refresh_comes_back(afi, safi, subtype):
    """Families that are not ours are read, too."""
    message = RouteRefresh(afi, safi, subtype)
    assert RouteRefresh.decode(message.encode()[HEADER_OCTETS:]) == message


def test_route_refresh_lengths():
    """A mark of a wrong length is an error with the message as data; a request may carry filters (RFC 7313 §5)."""
    with pytest.raises(RouteRefreshMessageError) as raised:
        RouteRefresh.decode(bytes([0, 1, 1, 1, 9]))
    assert raised.value.data == encode_message(MessageType.ROUTE_REFRESH, bytes([0, 1, 1, 1, 9]))
    assert RouteRefresh.decode(bytes([0, 1, 0, 1, 9])).family is Family.IPV4_UNICAST
    with pytest.raises(MessageHeaderError):
        RouteRefresh.decode(bytes(3))


@pytest.mark.parametrize("cut", range(HEADER_OCTETS))
def test_header_waits_for_the_whole_message(cut):
    """Until all octets are there, there is no message."""
    assert decode_header(bytearray(KEEPALIVE), 0, cut) is None


@pytest.mark.parametrize(
    ("octets", "subcode"),
    [
        (bytes(19), 1),
        (KEEPALIVE[:16] + b"\0\x12\4", 2),
        (encode_message(MessageType.KEEPALIVE, b"x"), 2),
        (KEEPALIVE[:16] + b"\x10\1\2", 2),
        (KEEPALIVE[:18] + b"\x09", 3),
    ],
    ids=["marker", "short", "KEEPALIVE", "long", "type"],
)
def test_header_errors(octets, subcode):
    """Bad headers are found as soon as they are there (RFC 4271 §6.1)."""
    with pytest.raises(MessageHeaderError) as raised:
        decode_header(octets, 0, len(octets))
    assert raised.value.subcode == subcode
