"""The one tree of protocol errors: what was wrong, and what follows from it.

Owns the exceptions that codecs raise. Never sends a NOTIFICATION: the session turns an error into one, in one place.
RFC 4271 §6, RFC 7606 §2.
"""

from enum import IntEnum

from common.bgp.constants import (
    CeaseSubcode,
    ErrorCode,
    FiniteStateMachineSubcode,
    MessageHeaderSubcode,
    OpenSubcode,
    RouteRefreshSubcode,
    UpdateSubcode,
    format_error,
)


class Consequence(IntEnum):
    """What an error leads to, from the weakest to the strongest. RFC 7606 §2."""

    ATTRIBUTE_DISCARD = 1
    TREAT_AS_WITHDRAW = 2
    SESSION_RESET = 3


class ProtocolError(Exception):
    """Something a peer sent, or did not send, that BGP calls an error.

    `code`, `subcode` and `data` are those of the NOTIFICATION; `text` says for the log what was wrong.
    """

    code: ErrorCode
    consequence = Consequence.SESSION_RESET

    def __init__(self, subcode: int = 0, data: bytes = b"", text: str = "", consequence: Consequence | None = None):
        self.subcode = subcode
        self.data = bytes(data)
        self.text = text
        if consequence is not None:
            self.consequence = consequence
        super().__init__(format_error(self.code, subcode) + (f" ({text})" if text else ""))


class MessageHeaderError(ProtocolError):
    """RFC 4271 §6.1."""

    code = ErrorCode.MESSAGE_HEADER_ERROR
    Subcode = MessageHeaderSubcode


class OpenMessageError(ProtocolError):
    """RFC 4271 §6.2."""

    code = ErrorCode.OPEN_MESSAGE_ERROR
    Subcode = OpenSubcode


class UpdateMessageError(ProtocolError):
    """RFC 4271 §6.3 as revised by RFC 7606."""

    code = ErrorCode.UPDATE_MESSAGE_ERROR
    Subcode = UpdateSubcode


class HoldTimerExpired(ProtocolError):
    """RFC 4271 §6.5."""

    code = ErrorCode.HOLD_TIMER_EXPIRED


class FiniteStateMachineError(ProtocolError):
    """RFC 4271 §6.6, RFC 6608."""

    code = ErrorCode.FINITE_STATE_MACHINE_ERROR
    Subcode = FiniteStateMachineSubcode


class Cease(ProtocolError):
    """RFC 4271 §6.7, RFC 4486."""

    code = ErrorCode.CEASE
    Subcode = CeaseSubcode


class RouteRefreshMessageError(ProtocolError):
    """RFC 7313 §5."""

    code = ErrorCode.ROUTE_REFRESH_MESSAGE_ERROR
    Subcode = RouteRefreshSubcode


class SendHoldTimerExpired(ProtocolError):
    """RFC 9687."""

    code = ErrorCode.SEND_HOLD_TIMER_EXPIRED


ERRORS: dict[ErrorCode, type[ProtocolError]] = {
    error.code: error
    for error in (
        MessageHeaderError,
        OpenMessageError,
        UpdateMessageError,
        HoldTimerExpired,
        FiniteStateMachineError,
        Cease,
        RouteRefreshMessageError,
        SendHoldTimerExpired,
    )
}


def protocol_error(code: int, subcode: int, data: bytes = b"", text: str = "") -> ProtocolError:
    """Return the error of a NOTIFICATION's code, such as a scan's stop gives."""
    return ERRORS[ErrorCode(code)](subcode, data, text)
