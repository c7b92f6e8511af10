"""The packing of UPDATEs: fullness, room, End-of-RIB."""

import numpy as np
import pytest

from common.bgp.attributes import encode_set
from common.bgp.constants import Family
from common.kernels import pack, scan

NO_IDS = np.empty(0, np.uint32)
NO_LOW = np.empty(0, np.uint64)


def routes(n: int):
    """Return hi, lo, length and path id of n /24s."""
    hi = (np.arange(n, dtype=np.uint64) + np.uint64(1 << 16)) << np.uint64(40)
    return hi, NO_LOW, np.full(n, 24, np.uint8), NO_IDS


def one_set(**values):
    """Return the set columns for rows that all have one set."""
    octets = encode_set(next_hop=bytes([10, 0, 0, 1]), as_path=[64601], **values)
    return np.array([0, len(octets)], np.uint32), np.frombuffer(octets, np.uint8).copy()


@pytest.mark.parametrize("max_message", [4096, 65535])
def test_fills_messages(max_message):
    """Messages are full but for less than one prefix, all except the last; extended ones to their size (RFC 8654)."""
    n, out = 20_000, np.empty(1 << 18, np.uint8)
    packed = pack.pack_announcements(*routes(n), np.zeros(n, np.uint32), *one_set(), False, max_message, False, out)
    assert packed.n_rows == n
    lengths, at = [], 0
    while at < packed.n_octets:
        lengths.append(int.from_bytes(out[at + 16 : at + 18].tobytes(), "big"))
        at += lengths[-1]
    assert len(lengths) == packed.n_messages
    assert all(max_message - 4 < length <= max_message for length in lengths[:-1])


def test_stops_when_there_is_no_room_for_a_message():
    """With room for two messages two are written, and the next call goes on behind them."""
    n, out = 5000, np.empty(2 * 4096 + 4000, np.uint8)
    arguments = routes(n), np.zeros(n, np.uint32), one_set()
    packed = pack.pack_announcements(*arguments[0], arguments[1], *arguments[2], False, 4096, False, out)
    assert (packed.n_messages, packed.n_rows < n) == (2, True)
    assert pack.pack_announcements(*arguments[0], arguments[1], *arguments[2], False, 4096, False, out[:4095]) == (
        0,
        0,
        0,
    )


def test_names_what_no_message_can_carry():
    """A set larger than a message is passed over, and found beforehand; an extended message can carry it."""
    n, out = 3, np.empty(1 << 17, np.uint8)
    columns = routes(n), np.zeros(n, np.uint32), one_set(communities=tuple(range(1500)))
    for max_message, expected in ((4096, 0), (65535, 1)):
        packed = pack.pack_announcements(*columns[0], columns[1], *columns[2], False, max_message, False, out)
        assert (packed.n_rows, packed.n_messages) == (n, expected)
        found = pack.find_unsendable(columns[0][2], columns[1], *columns[2], False, max_message, False)
        assert len(found) == (0 if expected else n)


@pytest.mark.parametrize("family", Family, ids=str)
def test_end_of_rib_is_read_as_such(family):
    """A scan takes the End-of-RIB of each family for what it is."""
    octets = pack.end_of_rib(family)
    scanner = scan.Scanner()
    assert scanner.scan(octets, 0, len(octets), scan.Options()) == scan.NEED_MORE
    assert scanner.end_of_rib == family.bit


def test_packs_nothing_from_nothing():
    """No rows, no messages."""
    out = np.empty(4096, np.uint8)
    assert pack.pack_withdrawals(*routes(0), False, 4096, False, out) == (0, 0, 0)
