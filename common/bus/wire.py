"""The small messages beside batches: what a reader asks, and a refusal. One msgpack frame each.

Owns their form and the checks on what arrives. Never touches a socket.

    reader -> owner   {v, schema, t: "read", sub, channel, params, reader, epoch, sequence, cursor, credit}
                      {t: "credit", sub, octets}       {t: "stop", sub}
    owner -> reader   frames of a batch (batch.py), or {t: "refused", sub, reason}
"""

from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgpack

from common.bus.batch import START, Position
from common.bus.schema import FINGERPRINT, SchemaError, description

MAX_REQUEST_OCTETS: Final = 1 << 20
MAX_CREDIT: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Request:
    """A reader's wish to follow a channel."""

    channel: str
    params: dict[str, Any] = field(default_factory=dict)
    reader: str = ""
    """Who asks, for status and logs, such as "policy.0"."""
    position: Position = START
    credit: int = 0

    @property
    def is_tap(self) -> bool:
        """A tap never holds anything back for its owner."""
        return bool(self.params.get("tap"))


@dataclass(frozen=True, slots=True)
class Read:
    """A request as it arrived, with the number by which the reader knows its answers."""

    subscription: int
    request: Request
    fingerprint: str
    schema: object = None
    """The reader's `schema.description()`, as it came."""


@dataclass(frozen=True, slots=True)
class Credit:
    """The reader can take so many octets more."""

    subscription: int
    octets: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The reader has enough."""

    subscription: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The owner will not serve this."""

    subscription: int
    reason: str


class Unread(Exception):
    """A peer has left so many messages unread that no more are kept for it."""


class ListenPort(Protocol):
    """The owner's end of a transport: sends to one of many peers."""

    def send(self, peer: bytes, frames: list) -> bool:
        """Send one message; return False if the peer is gone. Raises Unread."""

    def grant_of(self, peer: bytes) -> Any:
        """Return what a peer may do (keyring.Grant), None for one that may do everything."""

    def close(self) -> None: ...


class ConnectPort(Protocol):
    """A reader's end of a transport; it connects again by itself."""

    def send(self, frames: list) -> bool:
        """Send one message; return False if there is no connection now."""

    def close(self) -> None: ...


class Transport(Protocol):
    """Carries lists of frames between processes, or inside one."""

    def listen(self, endpoint: str, on_frames, on_gone, max_unread: int) -> ListenPort:
        """Bind; `on_frames(peer, frames)` for each message, `on_gone(peer)` when a peer that has sent has gone.

        No more than `max_unread` messages wait for a peer to read them.
        """

    def connect(self, endpoint: str, on_frames, on_up, on_down) -> ConnectPort:
        """Connect, now or when somebody listens; `on_frames(frames)`, `on_up()` at each connection, `on_down()`."""

    def renew(self, keyring: Any) -> None:
        """Go by another keyring (keyring.Keyring) from now on."""


def encode_read(subscription: int, request: Request) -> list[bytes]:
    position = request.position
    return [
        msgpack.packb(
            {
                "v": FINGERPRINT,
                "schema": description(),
                "t": "read",
                "sub": subscription,
                "channel": request.channel,
                "params": request.params,
                "reader": request.reader,
                "epoch": position.epoch,
                "sequence": position.sequence,
                "cursor": position.cursor,
                "credit": request.credit,
            }
        )
    ]


def encode_credit(subscription: int, octets: int) -> list[bytes]:
    return [msgpack.packb({"t": "credit", "sub": subscription, "octets": octets})]


def encode_stop(subscription: int) -> list[bytes]:
    return [msgpack.packb({"t": "stop", "sub": subscription})]


def encode_refusal(subscription: int, reason: str) -> list[bytes]:
    return [msgpack.packb({"t": "refused", "sub": subscription, "reason": reason})]


def decode_request(frames: list) -> Read | Credit | Stop:
    """Return what a reader asks; raise SchemaError for anything else."""
    message = decode_map(frames)
    what = message.get("t")
    subscription = _integer(message, "sub", 0, 1 << 62)
    if what == "credit":
        return Credit(subscription, _integer(message, "octets", 0, MAX_CREDIT))
    if what == "stop":
        return Stop(subscription)
    if what != "read":
        raise SchemaError(f"request: no such request {what!r:.40}")
    position = Position(
        _text(message, "epoch"), _integer(message, "sequence", 0, 1 << 62), _integer(message, "cursor", -1, 1 << 62)
    )
    params = message.get("params")
    if type(params) is not dict:
        raise SchemaError("request: `params` is not a map")
    request = Request(
        _text(message, "channel"),
        params,
        _text(message, "reader"),
        position,
        _integer(message, "credit", 0, MAX_CREDIT),
    )
    return Read(subscription, request, _text(message, "v"), message.get("schema"))


def decode_refusal(frames: list) -> Refusal:
    """Return an owner's refusal; raise SchemaError for anything else."""
    message = decode_map(frames)
    if message.get("t") != "refused":
        raise SchemaError("answer: neither batch nor refusal")
    return Refusal(_integer(message, "sub", 0, 1 << 62), _text(message, "reason"))


def decode_map(frames: list) -> dict:
    """Return the one msgpack map in these frames; raise SchemaError for anything else."""
    if len(frames) != 1:
        raise SchemaError(f"message: {len(frames)} frames, not 1")
    octets = memoryview(frames[0])
    if octets.nbytes > MAX_REQUEST_OCTETS:
        raise SchemaError(f"message: {octets.nbytes} octets")
    try:
        message = msgpack.unpackb(octets)
    except Exception as error:  # msgpack raises its own tree, ValueError, TypeError, RecursionError and more
        raise SchemaError(f"message: not msgpack: {error!r}") from error
    if type(message) is not dict:
        raise SchemaError("message: not a map")
    return message


def _integer(message: dict, name: str, low: int, high: int) -> int:
    value = message.get(name)
    if type(value) is not int or not low <= value <= high:
        raise SchemaError(f"message: `{name}` is no number from {low} to {high}")
    return value


def _text(message: dict, name: str) -> str:
    value = message.get(name)
    if type(value) is not str:
        raise SchemaError(f"message: `{name}` is not text")
    return value
