"""UPDATEs of rows, one after the other as full as they can be, slow and obvious: an oracle."""

from tests.oracles.dress import attribute, decode
from tests.oracles.updates import update


def prefix(row, has_path_id: bool) -> bytes:
    """Encode a row (address as a 128-bit number, length, path id)."""
    address, length, path_id = row[:3]
    octets = address.to_bytes(16, "big")[: (length + 7) // 8]
    return (path_id.to_bytes(4, "big") if has_path_id else b"") + bytes([length]) + octets


def announcement(set_octets: bytes, routes: bytes, is_wide: bool) -> bytes:
    """Encode an UPDATE with one attribute set. RFC 4271 §4.3, RFC 4760 §3"""
    next_hop, attributes = decode(set_octets)
    if len(next_hop) == 4:
        attributes = {**attributes, 3: (0x40, next_hop)}
        encoded = b"".join(attribute(flags, kind, value) for kind, (flags, value) in sorted(attributes.items()))
        return update(attributes=encoded, nlri=routes)
    value = bytes([0, 2 if is_wide else 1, 1, len(next_hop)]) + next_hop + b"\0" + routes
    reach = bytes([0x90, 14]) + len(value).to_bytes(2, "big") + value
    rest = b"".join(attribute(flags, kind, value) for kind, (flags, value) in sorted(attributes.items()))
    return update(attributes=reach + rest)


def withdrawal(routes: bytes, is_wide: bool) -> bytes:
    """Encode an UPDATE that withdraws. RFC 4271 §4.3, RFC 4760 §4"""
    if not is_wide:
        return update(routes)
    value = b"\0\2\1" + routes
    return update(attributes=bytes([0x90, 15]) + len(value).to_bytes(2, "big") + value)


def is_sendable(set_octets: bytes | None, row, is_wide: bool, max_message: int, has_path_id: bool) -> bool:
    """Tell whether a message can carry the row alone."""
    if not set_octets or set_octets[0] == 0 or (is_wide and set_octets[0] == 4):
        return False
    return len(announcement(set_octets, prefix(row, has_path_id), is_wide)) <= max_message


def pack(rows, encode, can_join, max_message: int, has_path_id: bool) -> list[bytes]:
    """Fill messages with rows in order: `encode(row, routes)` makes one, `can_join` says who may share."""
    messages, first, routes = [], None, b""
    for row in rows:
        longer = routes + prefix(row, has_path_id)
        if first is not None and can_join(first, row) and len(encode(first, longer)) <= max_message:
            routes = longer
            continue
        if first is not None:
            messages.append(encode(first, routes))
        first, routes = row, prefix(row, has_path_id)
    return messages + ([encode(first, routes)] if first is not None else [])
