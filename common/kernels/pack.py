"""Packs routes into UPDATE messages that are as full as they can be.

Owns nothing: columns in, octets out. Never changes an attribute: the sets are already dressed and encoded for the
peer. Rows come in the caller's order; those with the same set that stand side by side share messages.

RFC 4271 §4.3; RFC 4760 §3, §4; RFC 7606 §5.1 (MP_REACH_NLRI and MP_UNREACH_NLRI first, nothing beside a withdrawal);
RFC 7911 §3; RFC 8654; RFC 8950 §4; RFC 4724 §2.
"""

from typing import NamedTuple

import cython
import numpy as np

from common.bgp.constants import (
    HEADER_OCTETS,
    MARKER,
    Afi,
    AttributeFlag,
    AttributeType,
    Family,
    MessageType,
    Safi,
)

_HEADER = cython.declare(cython.Py_ssize_t, HEADER_OCTETS)
# A message's header and its two lengths: an UPDATE with nothing in it.
_EMPTY_UPDATE = cython.declare(cython.Py_ssize_t, HEADER_OCTETS + 4)
# Flags, type, two octets of length; AFI and SAFI.
_MP_HEADER = cython.declare(cython.Py_ssize_t, 4)
_AFI_SAFI = cython.declare(cython.Py_ssize_t, 3)
_NEXT_HOP_OCTETS = cython.declare(cython.Py_ssize_t, 7)

_UPDATE = cython.declare(cython.uint, int(MessageType.UPDATE))
_NEXT_HOP = cython.declare(cython.uint, int(AttributeType.NEXT_HOP))
_MP_REACH = cython.declare(cython.uint, int(AttributeType.MP_REACH_NLRI))
_MP_UNREACH = cython.declare(cython.uint, int(AttributeType.MP_UNREACH_NLRI))
_WELL_KNOWN = cython.declare(cython.uint, int(AttributeFlag.TRANSITIVE))
_OPTIONAL_LONG = cython.declare(cython.uint, int(AttributeFlag.OPTIONAL | AttributeFlag.EXTENDED_LENGTH))
_EXTENDED = cython.declare(cython.uint, int(AttributeFlag.EXTENDED_LENGTH))
_IPV4 = cython.declare(cython.uint, int(Afi.IPV4))
_IPV6 = cython.declare(cython.uint, int(Afi.IPV6))
_UNICAST = cython.declare(cython.uint, int(Safi.UNICAST))


class Packed(NamedTuple):
    """What became of the rows."""

    n_rows: int  # rows dealt with; the next call goes on behind them
    n_octets: int  # octets written to `out`
    n_messages: int


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_u16(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.void:
    out[at] = cython.cast(cython.uchar, (value >> 8) & 0xFF)
    out[at + 1] = cython.cast(cython.uchar, value & 0xFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_header(out: cython.uchar[::1], at: cython.Py_ssize_t, length: cython.Py_ssize_t) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(16):
        out[at + i] = 0xFF
    put_u16(out, at + 16, length)
    out[at + 18] = cython.cast(cython.uchar, _UPDATE)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_mp_header(
    out: cython.uchar[::1], at: cython.Py_ssize_t, code: cython.uint, size: cython.Py_ssize_t, is_wide: cython.bint
) -> cython.void:
    """Write the header of MP_REACH_NLRI or MP_UNREACH_NLRI and the AFI and SAFI its value begins with."""
    out[at] = cython.cast(cython.uchar, _OPTIONAL_LONG)
    out[at + 1] = cython.cast(cython.uchar, code)
    put_u16(out, at + 2, size)
    put_u16(out, at + 4, _IPV6 if is_wide else _IPV4)
    out[at + 6] = cython.cast(cython.uchar, _UNICAST)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy_octets(
    source: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(n):
        out[to + i] = source[at + i]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_octets(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.ulonglong, n: cython.Py_ssize_t
) -> cython.void:
    """Write the first `n` octets of a half address."""
    i: cython.Py_ssize_t
    for i in range(n):
        out[at + i] = cython.cast(cython.uchar, (value >> (56 - 8 * i)) & 0xFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_prefix(
    out: cython.uchar[::1],
    at: cython.Py_ssize_t,
    hi: cython.ulonglong,
    lo: cython.ulonglong,
    length: cython.uint,
) -> cython.Py_ssize_t:
    """Write one prefix; return where it ends. RFC 4271 §4.3"""
    n: cython.Py_ssize_t = (length + 7) >> 3
    out[at] = cython.cast(cython.uchar, length)
    if n <= 8:
        put_octets(out, at + 1, hi, n)
    else:
        put_octets(out, at + 1, hi, 8)
        put_octets(out, at + 9, lo, n - 8)
    return at + 1 + n


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def overhead_of(
    set_octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, is_wide: cython.bint
) -> cython.Py_ssize_t:
    """Octets of an UPDATE with this set and no routes yet; -1 where the set cannot be sent."""
    next_hop: cython.Py_ssize_t = set_octets[at]
    attributes: cython.Py_ssize_t = end - at - 1 - next_hop
    if next_hop == 0 or attributes < 0 or (is_wide and next_hop == 4):
        return -1
    if next_hop == 4:
        return _EMPTY_UPDATE + attributes + _NEXT_HOP_OCTETS
    return _EMPTY_UPDATE + attributes + _MP_HEADER + _AFI_SAFI + 1 + next_hop + 1


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def before_next_hop(
    set_octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return where the attributes of a set end whose types come before NEXT_HOP."""
    size: cython.Py_ssize_t
    while at + 3 <= end and set_octets[at + 1] < _NEXT_HOP:
        size = 3 + set_octets[at + 2]
        if set_octets[at] & _EXTENDED:
            if at + 4 > end:
                return end
            size = 4 + (cython.cast(cython.Py_ssize_t, set_octets[at + 2]) << 8) + set_octets[at + 3]
        at += size
    return at if at < end else end


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def can_carry(
    sets: cython.const[cython.uint][::1],
    row: cython.Py_ssize_t,
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
    is_wide: cython.bint,
    max_message: cython.Py_ssize_t,
    prefix_octets: cython.Py_ssize_t,
) -> cython.bint:
    """Tell whether a message can hold this row alone."""
    number: cython.Py_ssize_t = sets[row]
    if number + 1 >= set_offset.shape[0] or set_offset[number] >= set_offset[number + 1]:
        return False
    overhead: cython.Py_ssize_t = overhead_of(set_octets, set_offset[number], set_offset[number + 1], is_wide)
    return overhead >= 0 and overhead + prefix_octets <= max_message


def pack_announcements(
    hi: cython.const[cython.ulonglong][::1],
    lo: cython.const[cython.ulonglong][::1],
    length: cython.const[cython.uchar][::1],
    path_id: cython.const[cython.uint][::1],
    sets: cython.const[cython.uint][::1],
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
    is_wide: cython.bint,
    max_message: cython.Py_ssize_t,
    add_path: cython.bint,
    out: cython.uchar[::1],
):
    """Write UPDATEs that announce the rows, from the first on, while `out` has room for a whole message.

    hi, lo, length, path_id: the prefixes; `lo` may be empty unless wide, `path_id` unless add_path.
    sets: for each row its set in set_offset/set_octets (next hop length, next hop, attributes as the peer wants them).
    A set with a next hop of 4 octets goes as NEXT_HOP and NLRI, any other as MP_REACH_NLRI. Rows that
    `find_unsendable` names are passed over. Return `Packed`.
    """
    n: cython.Py_ssize_t = length.shape[0]
    room: cython.Py_ssize_t = out.shape[0]
    row: cython.Py_ssize_t = 0
    to: cython.Py_ssize_t = 0
    n_messages: cython.Py_ssize_t = 0
    id_octets: cython.Py_ssize_t = 4 if add_path else 0
    start: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    split: cython.Py_ssize_t
    next_hop: cython.Py_ssize_t
    size: cython.Py_ssize_t
    number: cython.uint
    with cython.nogil:
        while row < n and room - to >= max_message:
            size = id_octets + 1 + ((length[row] + 7) >> 3)
            if not can_carry(sets, row, set_offset, set_octets, is_wide, max_message, size):
                row += 1
                continue
            number = sets[row]
            at = set_offset[number]
            end = set_offset[number + 1]
            next_hop = set_octets[at]
            start = to
            limit = start + max_message
            to += _HEADER
            put_u16(out, to, 0)
            to += 4
            at += 1
            if next_hop == 4:
                split = before_next_hop(set_octets, at + 4, end)
                copy_octets(set_octets, at + 4, out, to, split - at - 4)
                to += split - at - 4
                out[to] = cython.cast(cython.uchar, _WELL_KNOWN)
                out[to + 1] = cython.cast(cython.uchar, _NEXT_HOP)
                out[to + 2] = 4
                copy_octets(set_octets, at, out, to + 3, 4)
                to += _NEXT_HOP_OCTETS
                copy_octets(set_octets, split, out, to, end - split)
                to += end - split
                put_u16(out, start + _HEADER + 2, to - start - _EMPTY_UPDATE)
            else:
                to += _MP_HEADER + _AFI_SAFI
                out[to] = cython.cast(cython.uchar, next_hop)
                copy_octets(set_octets, at, out, to + 1, next_hop)
                out[to + 1 + next_hop] = 0
                to += next_hop + 2
                # The attributes go behind the routes.
                limit -= end - at - next_hop
            while row < n and sets[row] == number:
                size = id_octets + 1 + ((length[row] + 7) >> 3)
                if to + size > limit:
                    break
                if add_path:
                    put_u16(out, to, path_id[row] >> 16)
                    put_u16(out, to + 2, path_id[row] & 0xFFFF)
                    to += 4
                to = put_prefix(out, to, hi[row], lo[row] if is_wide else 0, length[row])
                row += 1
            if next_hop != 4:
                size = to - start - _EMPTY_UPDATE - _MP_HEADER
                put_mp_header(out, start + _EMPTY_UPDATE, _MP_REACH, size, is_wide)
                copy_octets(set_octets, at + next_hop, out, to, end - at - next_hop)
                to += end - at - next_hop
                put_u16(out, start + _HEADER + 2, to - start - _EMPTY_UPDATE)
            put_header(out, start, to - start)
            n_messages += 1
    return Packed(row, to, n_messages)


def find_unsendable(
    length: cython.const[cython.uchar][::1],
    sets: cython.const[cython.uint][::1],
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
    is_wide: cython.bint,
    max_message: cython.Py_ssize_t,
    add_path: cython.bint,
):
    """Return the rows (uint32) that no message can carry: the set is too large for one, or has no usable next hop.

    RFC 8654 §5: what has become too large for a peer is withdrawn from it.
    """
    n: cython.Py_ssize_t = length.shape[0]
    found = np.empty(n, np.uint32)
    rows: cython.uint[::1] = memoryview(found)
    n_found: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    row: cython.Py_ssize_t
    with cython.nogil:
        for row in range(n):
            size = (5 if add_path else 1) + ((length[row] + 7) >> 3)
            if not can_carry(sets, row, set_offset, set_octets, is_wide, max_message, size):
                rows[n_found] = cython.cast(cython.uint, row)
                n_found += 1
    return found[:n_found]


def pack_withdrawals(
    hi: cython.const[cython.ulonglong][::1],
    lo: cython.const[cython.ulonglong][::1],
    length: cython.const[cython.uchar][::1],
    path_id: cython.const[cython.uint][::1],
    is_wide: cython.bint,
    max_message: cython.Py_ssize_t,
    add_path: cython.bint,
    out: cython.uchar[::1],
):
    """Write UPDATEs that withdraw the rows, from the first on, while `out` has room for a whole message.

    Narrow: in the Withdrawn Routes field; wide: in MP_UNREACH_NLRI. Arguments and result as of `pack_announcements`.
    """
    n: cython.Py_ssize_t = length.shape[0]
    room: cython.Py_ssize_t = out.shape[0]
    row: cython.Py_ssize_t = 0
    to: cython.Py_ssize_t = 0
    n_messages: cython.Py_ssize_t = 0
    id_octets: cython.Py_ssize_t = 4 if add_path else 0
    start: cython.Py_ssize_t
    limit: cython.Py_ssize_t
    size: cython.Py_ssize_t
    with cython.nogil:
        while row < n and room - to >= max_message:
            start = to
            limit = start + max_message
            if is_wide:
                to += _EMPTY_UPDATE + _MP_HEADER + _AFI_SAFI
            else:
                to += _HEADER + 2
                # Behind the routes: the length of the attributes, none.
                limit -= 2
            while row < n:
                size = id_octets + 1 + ((length[row] + 7) >> 3)
                if to + size > limit:
                    break
                if add_path:
                    put_u16(out, to, path_id[row] >> 16)
                    put_u16(out, to + 2, path_id[row] & 0xFFFF)
                    to += 4
                to = put_prefix(out, to, hi[row], lo[row] if is_wide else 0, length[row])
                row += 1
            if is_wide:
                put_u16(out, start + _HEADER, 0)
                put_u16(out, start + _HEADER + 2, to - start - _EMPTY_UPDATE)
                size = to - start - _EMPTY_UPDATE - _MP_HEADER
                put_mp_header(out, start + _EMPTY_UPDATE, _MP_UNREACH, size, is_wide)
            else:
                put_u16(out, start + _HEADER, to - start - _HEADER - 2)
                put_u16(out, to, 0)
                to += 2
            put_header(out, start, to - start)
            n_messages += 1
    return Packed(row, to, n_messages)


def end_of_rib(family) -> bytes:
    """Return the End-of-RIB of a `Family`: an UPDATE that is empty, or has an empty MP_UNREACH_NLRI. RFC 4724 §2"""
    if family is Family.IPV4_UNICAST:
        attributes = b""
    else:
        value = family.afi.to_bytes(2, "big") + bytes([family.safi])
        attributes = bytes([AttributeFlag.OPTIONAL, AttributeType.MP_UNREACH_NLRI, len(value)]) + value
    body = bytes(2) + len(attributes).to_bytes(2, "big") + attributes
    return MARKER + (HEADER_OCTETS + len(body)).to_bytes(2, "big") + bytes([MessageType.UPDATE]) + body


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
