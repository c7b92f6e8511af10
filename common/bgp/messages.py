"""The messages other than UPDATE, as values and as octets.

Owns the message header and OPEN, NOTIFICATION, KEEPALIVE and ROUTE-REFRESH. Never scans an UPDATE: that is
common/kernels/scan.py. Whether a well-formed OPEN is acceptable is the session's to say.

RFC 4271 §4, §6.1, §6.2; RFC 5492; RFC 9072; RFC 2918, RFC 7313; RFC 6793 §4.2.1; RFC 8654 §4; RFC 9003 §2.
"""

from dataclasses import dataclass, field

from common.bgp.capabilities import Capabilities
from common.bgp.constants import (
    AS_TRANS,
    BGP_VERSION,
    HEADER_OCTETS,
    MARKER,
    MAX_MESSAGE_OCTETS,
    SHORTEST_MESSAGE_OCTETS,
    CeaseSubcode,
    ErrorCode,
    Family,
    MessageHeaderSubcode,
    MessageType,
    OpenSubcode,
    OptionalParameter,
    RouteRefreshSubcode,
    RouteRefreshSubtype,
    format_error,
)
from common.bgp.errors import MessageHeaderError, OpenMessageError, RouteRefreshMessageError

_MESSAGE_TYPES = frozenset(MessageType)


def encode_message(kind: MessageType, body: bytes = b"") -> bytes:
    """Return a whole message."""
    return MARKER + (HEADER_OCTETS + len(body)).to_bytes(2, "big") + bytes([kind]) + body


KEEPALIVE = encode_message(MessageType.KEEPALIVE)


def decode_header(
    octets, start: int, end: int, max_message_octets: int = MAX_MESSAGE_OCTETS
) -> tuple[MessageType, int] | None:
    """Return type and length of the message at `start`; None while it is not whole. Raises MessageHeaderError."""
    if end - start < HEADER_OCTETS:
        return None
    if octets[start : start + 16] != MARKER:
        raise MessageHeaderError(MessageHeaderSubcode.CONNECTION_NOT_SYNCHRONIZED)
    length_octets = bytes(octets[start + 16 : start + 18])
    length = int.from_bytes(length_octets, "big")
    kind = octets[start + 18]
    shortest = SHORTEST_MESSAGE_OCTETS.get(kind, HEADER_OCTETS)
    longest = {
        MessageType.OPEN: MAX_MESSAGE_OCTETS,
        MessageType.KEEPALIVE: HEADER_OCTETS,
    }.get(kind, max_message_octets)
    if not shortest <= length <= longest:
        raise MessageHeaderError(MessageHeaderSubcode.BAD_MESSAGE_LENGTH, length_octets, f"{length} octets")
    if kind not in _MESSAGE_TYPES:
        raise MessageHeaderError(MessageHeaderSubcode.BAD_MESSAGE_TYPE, bytes([kind]), f"type {kind}")
    return (MessageType(kind), length) if end - start >= length else None


# ---- OPEN -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """RFC 4271 §4.2. `asn` is the true AS number, of four octets where the sender has such."""

    asn: int
    hold_time_s: int
    router_id: int
    capabilities: Capabilities = field(default_factory=Capabilities)

    def encode(self) -> bytes:
        """Return the whole message."""
        asn = self.asn if self.asn < 1 << 16 else AS_TRANS
        parameters = _encode_parameters(self.capabilities.encode())
        body = bytes([BGP_VERSION]) + asn.to_bytes(2, "big") + self.hold_time_s.to_bytes(2, "big")
        return encode_message(MessageType.OPEN, body + self.router_id.to_bytes(4, "big") + parameters)

    @classmethod
    def decode(cls, body: bytes) -> "Open":
        """Return the OPEN with this body (without header), or raise an OpenMessageError. RFC 4271 §6.2"""
        if len(body) < SHORTEST_MESSAGE_OCTETS[MessageType.OPEN] - HEADER_OCTETS:
            raise _bad_length(body)
        if body[0] != BGP_VERSION:
            version = BGP_VERSION.to_bytes(2, "big")
            raise OpenMessageError(OpenSubcode.UNSUPPORTED_VERSION_NUMBER, version, f"version {body[0]}")
        capabilities = Capabilities.of(_decode_parameters(body[9:]))
        asn = int.from_bytes(body[1:3], "big")
        if capabilities.asn4 is not None:
            asn = capabilities.asn4
        # RFC 7607 §2
        if asn == 0:
            raise OpenMessageError(OpenSubcode.BAD_PEER_AS, text="AS 0")
        hold_time_s = int.from_bytes(body[3:5], "big")
        if hold_time_s in (1, 2):
            raise OpenMessageError(OpenSubcode.UNACCEPTABLE_HOLD_TIME, body[3:5], f"{hold_time_s} s")
        router_id = int.from_bytes(body[5:9], "big")
        # RFC 6286 §2.2
        if router_id == 0:
            raise OpenMessageError(OpenSubcode.BAD_BGP_IDENTIFIER, body[5:9], "0.0.0.0")
        return cls(asn, hold_time_s, router_id, capabilities)


def _encode_parameters(capabilities: bytes) -> bytes:
    """Return the length and the Optional Parameters of an OPEN: all capabilities in one."""
    if not capabilities:
        return b"\0"
    if len(capabilities) <= 253:
        parameter = bytes([OptionalParameter.CAPABILITIES, len(capabilities)]) + capabilities
        return bytes([len(parameter)]) + parameter
    # RFC 9072 §2: lengths of two octets, marked by 255 in both old places.
    parameter = bytes([OptionalParameter.CAPABILITIES]) + len(capabilities).to_bytes(2, "big") + capabilities
    return bytes([255, OptionalParameter.EXTENDED_LENGTH]) + len(parameter).to_bytes(2, "big") + parameter


def _decode_parameters(octets: bytes) -> list[tuple[int, bytes]]:
    """Return code and value of each capability in an OPEN's Optional Parameters (their length included)."""
    width, rest = 1, octets[1:]
    length = octets[0]
    # RFC 9072 §2: the first type tells, whatever the length before it, as long as there is one.
    if length and rest[:1] == bytes([OptionalParameter.EXTENDED_LENGTH]):
        if len(rest) < 3:
            raise _malformed_open("optional parameters cut short")
        width, length, rest = 2, int.from_bytes(rest[1:3], "big"), rest[3:]
    if length != len(rest):
        raise _malformed_open("length of the optional parameters")
    capabilities = []
    for kind, value in _split(rest, width, "optional parameter cut short"):
        if kind != OptionalParameter.CAPABILITIES:
            text = f"optional parameter {kind}"
            raise OpenMessageError(OpenSubcode.UNSUPPORTED_OPTIONAL_PARAMETER, text=text)
        capabilities += _split(value, 1, "capability cut short")
    return capabilities


def _split(octets: bytes, width: int, complaint: str) -> list[tuple[int, bytes]]:
    """Cut octets into type, length of `width` octets, and value."""
    items = []
    at = 0
    while at < len(octets):
        value_at = at + 1 + width
        end = value_at + int.from_bytes(octets[at + 1 : value_at], "big")
        if value_at > len(octets) or end > len(octets):
            raise _malformed_open(complaint)
        items.append((octets[at], octets[value_at:end]))
        at = end
    return items


def _malformed_open(text: str) -> OpenMessageError:
    # RFC 4271 §6.2: recognized but malformed
    return OpenMessageError(OpenSubcode.UNSPECIFIC, text=text)


def _bad_length(body: bytes) -> MessageHeaderError:
    length = (HEADER_OCTETS + len(body)).to_bytes(2, "big")
    return MessageHeaderError(MessageHeaderSubcode.BAD_MESSAGE_LENGTH, length)


# ---- NOTIFICATION ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Notification:
    """RFC 4271 §4.5."""

    code: int
    subcode: int
    data: bytes = b""

    def encode(self, max_message_octets: int = MAX_MESSAGE_OCTETS) -> bytes:
        """Return the whole message; data that does not fit is cut."""
        room = max_message_octets - SHORTEST_MESSAGE_OCTETS[MessageType.NOTIFICATION]
        return encode_message(MessageType.NOTIFICATION, bytes([self.code, self.subcode]) + self.data[:room])

    @classmethod
    def decode(cls, body: bytes) -> "Notification":
        """Return the NOTIFICATION with this body; whatever its codes are, it ends the session."""
        if len(body) < 2:
            raise _bad_length(body)
        return cls(body[0], body[1], bytes(body[2:]))

    def as_hard_reset(self) -> "Notification":
        """Return the Hard Reset that carries this NOTIFICATION (RFC 8538 §3.1)."""
        return Notification(ErrorCode.CEASE, CeaseSubcode.HARD_RESET, bytes([self.code, self.subcode]) + self.data)

    @property
    def encapsulated(self) -> "Notification | None":
        """The NOTIFICATION that a Hard Reset carries; None if this is no Hard Reset, or an empty one."""
        if (self.code, self.subcode) != (ErrorCode.CEASE, CeaseSubcode.HARD_RESET) or len(self.data) < 2:
            return None
        return Notification.decode(self.data)

    @property
    def shutdown_text(self) -> str:
        """The text for the operator that a shutdown or reset may carry, fit to be shown. RFC 9003 §2"""
        subcodes = (CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, CeaseSubcode.ADMINISTRATIVE_RESET)
        if self.code != ErrorCode.CEASE or self.subcode not in subcodes or not self.data:
            return ""
        text = self.data[1 : 1 + self.data[0]].decode(errors="replace")
        return "".join(character if character.isprintable() else "�" for character in text)

    def __str__(self) -> str:
        text, within = self.shutdown_text, self.encapsulated
        words = format_error(self.code, self.subcode) + (f' "{text}"' if text else "")
        if within is None:
            return words
        # Hard Resets within one another, which make no sense, are not followed: there may be thousands.
        return f"{words}: {format_error(within.code, within.subcode)}" if within.encapsulated else f"{words}: {within}"


# ---- ROUTE-REFRESH --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RouteRefresh:
    """RFC 2918 §3, RFC 7313 §3.2. What a request for outbound filtering adds (RFC 5291) is left out."""

    afi: int
    safi: int
    subtype: int = RouteRefreshSubtype.REQUEST

    @property
    def family(self) -> Family | None:
        return Family.of(self.afi, self.safi)

    def encode(self) -> bytes:
        """Return the whole message."""
        return encode_message(MessageType.ROUTE_REFRESH, self.afi.to_bytes(2, "big") + bytes([self.subtype, self.safi]))

    @classmethod
    def decode(cls, body: bytes) -> "RouteRefresh":
        """Return the ROUTE-REFRESH with this body."""
        if len(body) < 4:
            raise _bad_length(body)
        # RFC 7313 §5: the Data field is the complete message.
        if len(body) > 4 and body[2] in (RouteRefreshSubtype.BEGIN, RouteRefreshSubtype.END):
            whole = encode_message(MessageType.ROUTE_REFRESH, body)
            raise RouteRefreshMessageError(RouteRefreshSubcode.INVALID_MESSAGE_LENGTH, whole)
        return cls(int.from_bytes(body[:2], "big"), body[3], body[2])
