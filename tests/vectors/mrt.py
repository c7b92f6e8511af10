"""Reads the BGP messages out of MRT update files (RFC 6396 §4.4), for tests on what route collectors recorded.

The files are not part of the project: they are looked for under $HEADRACE_DATA, or ../shared/data beside the checkout,
in `mrt/`, with `bgpdump -vm` of some in `mrt/expect/`. The names are those of RIPE-NCC/bgpdump's tests.
"""

import bz2
import gzip
import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

BESIDE = Path(__file__).parents[3] / "shared" / "data"
FOLDER = Path(os.environ.get("HEADRACE_DATA", BESIDE)) / "mrt"
_BGP4MP, _BGP4MP_ET = 16, 17
_MESSAGE, _MESSAGE_AS4 = 1, 4


class Recorded(NamedTuple):
    """One recorded message."""

    time: int
    peer: str
    peer_asn: int
    has_as4: bool
    octets: bytes


def read(name: str) -> Iterator[Recorded]:
    """Yield the BGP messages of a file."""
    path = FOLDER / name
    octets = {".gz": gzip.open, ".bz2": bz2.open}[path.suffix](path).read()
    at = 0
    while at < len(octets):
        time, kind, subtype, length = (
            int.from_bytes(octets[at + first : at + last], "big") for first, last in ((0, 4), (4, 6), (6, 8), (8, 12))
        )
        body = octets[at + 12 : at + 12 + length]
        at += 12 + length
        if kind == _BGP4MP_ET:
            body = body[4:]
        if kind in (_BGP4MP, _BGP4MP_ET) and subtype in (_MESSAGE, _MESSAGE_AS4):
            yield _message(time, subtype == _MESSAGE_AS4, body)


def _message(time: int, has_as4: bool, body: bytes) -> Recorded:
    width = 4 if has_as4 else 2
    address = 16 if body[2 * width + 2 : 2 * width + 4] == b"\0\2" else 4
    peer_at = 2 * width + 4
    peer = str(ip_address(body[peer_at : peer_at + address]))
    return Recorded(time, peer, int.from_bytes(body[:width], "big"), has_as4, body[peer_at + 2 * address :])
