"""Malformed messages by name, and what a speaker must answer to each.

Owns the list. Each is sent alone over a session that is up; the answer is a NOTIFICATION of certain codes, or none: the
session stands, and the route does not (treat-as-withdraw) or has lost the attribute (RFC 7606). RFC 4271 §6; RFC 7606.
"""

from collections.abc import Callable
from dataclasses import dataclass

from common.bgp.constants import MARKER, MessageType

HEADER, OPEN, UPDATE, FSM = 1, 2, 3, 5
ROUTE = bytes([24, 198, 51, 100])


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of garbage.

    make: (neighbor's AS number, its address) -> octets. codes: what NOTIFICATIONs are right, (code, subcode or None for
    any); empty: the session must stand. may_stand: standing is right too.
    """

    make: Callable[[int, bytes], bytes]
    codes: tuple[tuple[int, int | None], ...] = ()
    may_stand: bool = False
    source: str = ""


def message(kind: int, body: bytes = b"", length: int | None = None, marker: bytes = MARKER) -> bytes:
    return marker + (19 + len(body) if length is None else length).to_bytes(2, "big") + bytes([kind]) + body


def update(attributes: bytes, nlri: bytes = ROUTE, attributes_length: int | None = None) -> bytes:
    n = len(attributes) if attributes_length is None else attributes_length
    return message(MessageType.UPDATE, bytes(2) + n.to_bytes(2, "big") + attributes + nlri)


def attribute(flags: int, code: int, value: bytes) -> bytes:
    return bytes([flags, code, len(value)]) + value


ORIGIN = attribute(0x40, 1, b"\0")


def path(asn: int) -> bytes:
    return attribute(0x40, 2, b"\2\1" + asn.to_bytes(4, "big"))


def hop(address: bytes) -> bytes:
    return attribute(0x40, 3, address)


def _with(extra: bytes = b"", *, origin: bytes = ORIGIN, as_path: bytes | None = None, next_hop: bytes | None = None):
    """Return what makes an UPDATE with one of its attributes replaced, or one more."""

    def make(asn: int, address: bytes) -> bytes:
        own_path = path(asn) if as_path is None else as_path
        return update(origin + own_path + (hop(address) if next_hop is None else next_hop) + extra)

    return make


KINDS = {
    "bad-marker": Kind(lambda asn, own: message(4, marker=bytes(16)), ((HEADER, 1),), source="RFC 4271 §6.1"),
    "length-too-small": Kind(lambda asn, own: message(4, length=18), ((HEADER, 2),), source="RFC 4271 §6.1"),
    "length-too-large": Kind(
        lambda asn, own: message(2, bytes(4), length=60000), ((HEADER, 2),), source="RFC 4271 §6.1"
    ),
    "keepalive-with-body": Kind(lambda asn, own: message(4, b"\0"), ((HEADER, 2),), source="RFC 4271 §6.1"),
    "unknown-type": Kind(lambda asn, own: message(77, b"hello"), ((HEADER, 3),), source="RFC 4271 §6.1"),
    "open-again": Kind(
        lambda asn, own: message(1, b"\4" + min(asn, 65535).to_bytes(2, "big") + b"\0\x5a" + own[-4:] + b"\0"),
        ((FSM, None), (6, None), (OPEN, None)), source="RFC 4271 §8.2.2",
    ),
    "attributes-beyond-message": Kind(
        lambda asn, own: update(ORIGIN, b"", attributes_length=2000), ((UPDATE, 1),), source="RFC 7606 §3.j"
    ),
    "withdrawn-beyond-message": Kind(
        lambda asn, own: message(2, b"\x0f\xff" + b"\0\0"), ((UPDATE, 1),), source="RFC 4271 §6.3"
    ),
    "prefix-too-long": Kind(
        lambda asn, own: update(ORIGIN + path(asn) + hop(own), bytes([33, 198, 51, 100, 0, 0])), ((UPDATE, 10),),
        source="RFC 7606 §5.3",
    ),
    "prefix-cut": Kind(
        lambda asn, own: update(ORIGIN + path(asn) + hop(own), bytes([24, 198])), ((UPDATE, 10), (UPDATE, 1)),
        source="RFC 7606 §5.3",
    ),
    "mp-reach-twice": Kind(
        _with(attribute(0x80, 14, bytes([0, 2, 1, 16]) + bytes.fromhex("20010db8" + "0" * 23 + "1") + b"\0") * 2),
        ((UPDATE, 1),), source="RFC 7606 §3.g",
    ),
    "origin-of-7": Kind(_with(origin=attribute(0x40, 1, b"\7")), source="RFC 7606 §7.1"),
    "origin-of-two-octets": Kind(_with(origin=attribute(0x40, 1, b"\0\0")), source="RFC 7606 §7.1"),
    "no-origin": Kind(_with(origin=b""), source="RFC 7606 §3.d"),
    "no-as-path": Kind(_with(as_path=b""), source="RFC 7606 §3.d"),
    "no-next-hop": Kind(_with(next_hop=b""), source="RFC 7606 §3.d"),
    "as-path-cut": Kind(_with(as_path=attribute(0x40, 2, b"\2\5\0\0\0\1")), source="RFC 7606 §7.2"),
    "as-path-bad-segment": Kind(_with(as_path=attribute(0x40, 2, b"\x09\1\0\0\0\1")), source="RFC 7606 §7.2"),
    "next-hop-of-three-octets": Kind(_with(next_hop=attribute(0x40, 3, b"\1\2\3")), source="RFC 7606 §7.3"),
    "wrong-flags": Kind(_with(origin=attribute(0xC0, 1, b"\0")), source="RFC 7606 §3.c"),
    "med-of-three-octets": Kind(_with(attribute(0x80, 4, bytes(3))), source="RFC 7606 §7.4"),
    "communities-of-five-octets": Kind(_with(attribute(0xC0, 8, bytes(5))), source="RFC 7606 §7.8"),
    "large-communities-of-five-octets": Kind(_with(attribute(0xC0, 32, bytes(5))), source="RFC 8092 §6"),
    "aggregator-of-three-octets": Kind(_with(attribute(0xC0, 7, bytes(3))), source="RFC 7606 §7.7"),
    "atomic-aggregate-with-value": Kind(_with(attribute(0x40, 6, b"\0")), source="RFC 7606 §7.6"),
    "attribute-twice": Kind(_with(ORIGIN), source="RFC 7606 §3.g"),
    "unknown-well-known": Kind(
        _with(attribute(0x40, 99, b"\1")), ((UPDATE, 2),), may_stand=True, source="RFC 4271 §6.3"
    ),
    "unknown-optional": Kind(_with(attribute(0xC0, 99, b"\1")), source="RFC 4271 §5"),
    "random-octets": Kind(
        lambda asn, own: bytes((i * 197 + 31) & 0xFF for i in range(200)), ((HEADER, None),), source="RFC 4271 §6.1"
    ),
}  # fmt: skip


def judged(kind: Kind, notification: tuple[int, int] | None, is_standing: bool) -> bool:
    """Tell whether this answer is right: the NOTIFICATION that came, or that the session stands."""
    if notification is None:
        return is_standing and (not kind.codes or kind.may_stand)
    return any(notification[0] == code and subcode in (None, notification[1]) for code, subcode in kind.codes)
