"""MRT files read slowly and plainly, from the words of RFC 6396 and RFC 8050: an oracle.

Counts routes of all families, as bgpdump prints them: one for each prefix announced, withdrawn, or in a table.
"""

import struct
from collections import Counter
from dataclasses import dataclass, field
from ipaddress import ip_address

MESSAGES = {
    1: (2, False),
    4: (4, False),
    6: (2, False),
    7: (4, False),
    8: (2, True),
    9: (4, True),
    10: (2, True),
    11: (4, True),
}
STATES = {0: 2, 5: 4}
TABLES = {2: (1, 1, False), 3: (1, 2, False), 4: (2, 1, False), 5: (2, 2, False),
          8: (1, 1, True), 9: (1, 2, True), 10: (2, 1, True), 11: (2, 2, True)}  # fmt: skip
LIMITS = {1: 32, 2: 128}


@dataclass
class Counts:
    """What is in a file; families are (AFI, SAFI), prefixes (AFI, SAFI, address octets, length)."""

    records: int = 0
    kinds: Counter = field(default_factory=Counter)
    announced: Counter = field(default_factory=Counter)
    withdrawn: Counter = field(default_factory=Counter)
    entries: Counter = field(default_factory=Counter)
    prefixes: set = field(default_factory=set)
    states: int = 0
    peers: set = field(default_factory=set)  # with routes or states

    def n_prefixes(self, afi: int, safis=(1,)) -> int:
        """Return how many prefixes of an AFI there are, whatever their SAFI."""
        return len({prefix[2:] for prefix in self.prefixes if prefix[0] == afi and prefix[1] in safis})


def count(octets: bytes) -> Counts:
    """Read a whole unpacked file."""
    counts = Counts()
    at = 0
    index: list[tuple] = []
    while at < len(octets):
        _, kind, subtype, length = struct.unpack_from(">IHHI", octets, at)
        body = octets[at + 12 : at + 12 + length]
        counts.records += 1
        counts.kinds[kind, subtype] += 1
        if kind == 17:
            body = body[4:]
        if kind in (16, 17):
            _bgp4mp(counts, subtype, body)
        elif kind == 13:
            index = _table_dump_v2(counts, subtype, body, index)
        elif kind == 12:
            _table_dump(counts, subtype, body)
        at += 12 + length
    return counts


def _bgp4mp(counts: Counts, subtype: int, body: bytes) -> None:
    if subtype not in MESSAGES and subtype not in STATES:
        return
    width, has_ids = MESSAGES.get(subtype, (STATES.get(subtype), False))
    asn = int.from_bytes(body[:width], "big")
    at = 2 * width + 2
    afi = int.from_bytes(body[at : at + 2], "big")
    size = 16 if afi == 2 else 4
    peer = (ip_address(body[at + 2 : at + 2 + size]), asn)
    message = body[at + 2 + 2 * size :]
    if subtype in STATES:
        counts.states += 1
        counts.peers.add(peer)
    elif message[18] == 2:
        if _update(counts, message[19:], has_ids):
            counts.peers.add(peer)


def _update(counts: Counts, body: bytes, has_ids: bool) -> bool:
    n = int.from_bytes(body[:2], "big")
    gone, rest = body[2 : 2 + n], body[2 + n :]
    n = int.from_bytes(rest[:2], "big")
    told = rest[2 + n :]
    fields = [(counts.withdrawn, 1, 1, gone), (counts.announced, 1, 1, told)]
    for code, value in attributes(rest[2 : 2 + n]):
        afi, safi = int.from_bytes(value[:2], "big"), value[2] if len(value) > 2 else 0
        if code == 14:
            fields.append((counts.announced, afi, safi, value[5 + value[3] :]))
        elif code == 15:
            fields.append((counts.withdrawn, afi, safi, value[3:]))
    n_routes = 0
    for counter, afi, safi, octets in fields:
        if afi in LIMITS and safi in (1, 2):
            found = list(prefixes(octets, has_ids))
            counter[afi, safi] += len(found)
            counts.prefixes.update((afi, safi, *prefix) for prefix in found)
            n_routes += len(found)
    return n_routes > 0


def _table_dump_v2(counts: Counts, subtype: int, body: bytes, index: list[tuple]) -> list[tuple]:
    if subtype == 1:
        return _peer_index(body)
    if subtype not in TABLES:
        return index
    afi, safi, has_ids = TABLES[subtype]
    length = body[4]
    at = 5 + (length + 7) // 8
    prefix = (body[5:at], length)
    n = int.from_bytes(body[at : at + 2], "big")
    at += 2
    for _ in range(n):
        number = int.from_bytes(body[at : at + 2], "big")
        at += 10 if has_ids else 6
        at += 2 + int.from_bytes(body[at : at + 2], "big")
        counts.entries[afi, safi] += 1
        counts.peers.add(index[number])
    counts.prefixes.add((afi, safi, *prefix))
    return index


def _peer_index(body: bytes) -> list[tuple]:
    at = 6 + int.from_bytes(body[4:6], "big")
    n = int.from_bytes(body[at : at + 2], "big")
    at += 2
    peers = []
    for _ in range(n):
        size, width = (16 if body[at] & 1 else 4), (4 if body[at] & 2 else 2)
        at += 5
        peers.append((ip_address(body[at : at + size]), int.from_bytes(body[at + size : at + size + width], "big")))
        at += size + width
    return peers


def _table_dump(counts: Counts, afi: int, body: bytes) -> None:
    size = 16 if afi == 2 else 4
    length = body[4 + size]
    at = 4 + size + 6
    counts.peers.add((ip_address(body[at : at + size]), int.from_bytes(body[at + size : at + size + 2], "big")))
    counts.entries[afi, 1] += 1
    counts.prefixes.add((afi, 1, body[4 : 4 + (length + 7) // 8], length))


def attributes(octets: bytes) -> list[tuple[int, bytes]]:
    """Return type and value of each path attribute."""
    found, at = [], 0
    while at < len(octets):
        width = 2 if octets[at] & 0x10 else 1
        size = int.from_bytes(octets[at + 2 : at + 2 + width], "big")
        found.append((octets[at + 1], octets[at + 2 + width : at + 2 + width + size]))
        at += 2 + width + size
    return found


def prefixes(octets: bytes, has_ids: bool):
    """Give (address octets, length) of each prefix."""
    at = 0
    while at < len(octets):
        at += 4 if has_ids else 0
        n = (octets[at] + 7) // 8
        yield octets[at + 1 : at + 1 + n], octets[at]
        at += 1 + n


def rewritten(octets: bytes, next_hop: bytes, asn: int, how: str) -> bytes:
    """Return an attribute set with another next hop and first AS number; how: keep, replace, prepend."""
    out = bytes([len(next_hop)]) + next_hop
    at = 1 + octets[0]
    while at < len(octets):
        width = 2 if octets[at] & 0x10 else 1
        size = int.from_bytes(octets[at + 2 : at + 2 + width], "big")
        value = octets[at + 2 + width : at + 2 + width + size]
        if octets[at + 1] == 2 and how != "keep":
            value = _path(value, asn, how)
            flags, wide = (0x50, 2) if len(value) > 255 else (0x40, 1)
            out += bytes([flags, 2]) + len(value).to_bytes(wide, "big") + value
        else:
            out += octets[at : at + 2 + width + size]
        at += 2 + width + size
    return out


def _path(value: bytes, asn: int, how: str) -> bytes:
    own = asn.to_bytes(4, "big")
    if value[:1] == b"\2" and value[1] > 0:
        if how == "replace":
            return value[:2] + own + value[6:]
        if value[1] < 255:
            return bytes([2, value[1] + 1]) + own + value[2:]
    return b"\2\1" + own + value
