"""The packing of UPDATEs: compiled, uncompiled and the oracle agree, and a scan reads back what was packed."""

import itertools

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common.kernels import pack as compiled
from common.kernels import scan, uncompiled
from tests.oracles import pack as oracle
from tests.oracles.updates import AS_PATH, IPV6_NEXT_HOP, ORIGIN, attribute

TWINS = {"compiled": compiled, "uncompiled": uncompiled("pack")}
MAX = 4096
SCANNER = scan.Scanner(1 << 21)


def sets_for(is_wide: bool):
    """Attribute sets as peers want them: small, large, too large, without next hop."""
    next_hop = st.sampled_from([IPV6_NEXT_HOP, IPV6_NEXT_HOP * 2] + ([] if is_wide else [bytes([10, 0, 0, 1])] * 4))
    size = st.sampled_from([0, 4, 252, 256, 3600, 3960, 3984, 4000, 4012, 4040, 4100])
    extra = size.map(lambda n: attribute(0xC0, 8, bytes(n)) if n else b"")
    return st.builds(lambda hop, more: bytes([len(hop)]) + hop + ORIGIN + AS_PATH + more, next_hop, extra)


@st.composite
def tables(draw):
    """Rows with their sets, equal sets mostly side by side."""
    is_wide = draw(st.booleans())
    sets = draw(st.lists(sets_for(is_wide) | st.just(b"\0" + ORIGIN), min_size=1, max_size=4))
    length = st.integers(0, 128 if is_wide else 32)
    one = st.tuples(st.integers(0, (1 << 128) - 1), length, st.integers(0, (1 << 32) - 1))
    rows = []
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.integers(0, len(sets)))
        few = draw(st.lists(one, max_size=6))
        rows += [(*row, number) for row in few * draw(st.sampled_from([1, 1, 1, 60]))]
    rows = [(address >> (128 - size) << (128 - size), size, path, number) for address, size, path, number in rows]
    return is_wide, sets, rows


def columns(rows, is_wide: bool):
    """Return the kernel's prefix columns."""
    mask = (1 << 64) - 1
    return (
        np.array([row[0] >> 64 for row in rows], np.uint64),
        np.array([row[0] & mask for row in rows] if is_wide else [], np.uint64),
        np.array([row[1] for row in rows], np.uint8),
        np.array([row[2] for row in rows], np.uint32),
    )


def set_columns(sets, rows):
    """Return the kernel's set columns."""
    offset = np.cumsum([0, *map(len, sets)], dtype=np.uint32)
    return np.array([row[3] for row in rows], np.uint32), offset, np.frombuffer(b"".join(sets), np.uint8).copy()


def packed_by(pack_some, n_rows: int, room: int) -> bytes:
    """Call until all rows are packed, with little room at a time."""
    octets, first, out = b"", 0, np.empty(room, np.uint8)
    while first < n_rows:
        packed = pack_some(first, out)
        assert packed.n_rows > 0
        octets += out[: packed.n_octets].tobytes()
        first += packed.n_rows
    return octets


NO_HOP, WIDE_HOP = bytes([0]) + ORIGIN, bytes([16]) + bytes(15) + b"\1" + ORIGIN


@settings(max_examples=150, deadline=None)
@given(table=tables(), has_path_id=st.booleans(), room=st.sampled_from([MAX, MAX + 100, 1 << 17]))
@example(table=(False, [NO_HOP, WIDE_HOP], [(0, 0, 0, 1), (0, 0, 0, 0), (0, 0, 0, 1)]), has_path_id=False, room=1 << 17)
def test_packs_announcements_as_the_oracle(table, has_path_id, room):
    """UPDATEs are as the RFCs say, as full as they can be; what no message can carry is named and left out."""
    is_wide, sets, rows = table
    prefixes, (numbers, offset, octets) = columns(rows, is_wide), set_columns(sets, rows)
    set_of = [*sets, None]
    is_sendable = [oracle.is_sendable(set_of[row[3]], row, is_wide, MAX, has_path_id) for row in rows]
    expected = b""  # what cannot be told ends a message
    for can_go, run in itertools.groupby(range(len(rows)), is_sendable.__getitem__):
        if can_go:
            expected += b"".join(
                oracle.pack(
                    [rows[index] for index in run],
                    lambda row, routes: oracle.announcement(sets[row[3]], routes, is_wide),
                    lambda first, row: first[3] == row[3],
                    MAX,
                    has_path_id,
                )
            )
    unsendable = [index for index, can_go in enumerate(is_sendable) if not can_go]
    for twin in TWINS.values():

        def some(first, out, twin=twin):
            cut = [column[first:] for column in prefixes]
            return twin.pack_announcements(*cut, numbers[first:], offset, octets, is_wide, MAX, has_path_id, out)

        found = twin.find_unsendable(prefixes[2], numbers, offset, octets, is_wide, MAX, has_path_id)
        assert found.tolist() == unsendable
        if len(unsendable) in (0, len(rows)) or room > MAX + 100:
            assert packed_by(some, len(rows), room) == expected


@settings(max_examples=100, deadline=None)
@given(table=tables(), has_path_id=st.booleans(), room=st.sampled_from([MAX, 1 << 17]))
def test_packs_withdrawals_as_the_oracle(table, has_path_id, room):
    """Withdrawals fill Withdrawn Routes or MP_UNREACH_NLRI, whatever their sets were."""
    is_wide, _, rows = table
    prefixes = columns(rows, is_wide)
    expected = b"".join(
        oracle.pack(
            rows,
            lambda _, routes: oracle.withdrawal(routes, is_wide),
            lambda first, row: True,
            MAX,
            has_path_id,
        )
    )
    for twin in TWINS.values():

        def some(first, out, twin=twin):
            return twin.pack_withdrawals(*(column[first:] for column in prefixes), is_wide, MAX, has_path_id, out)

        assert packed_by(some, len(rows), room) == expected


@settings(max_examples=100, deadline=None)
@given(table=tables(), has_path_id=st.booleans())
def test_scan_reads_back_what_is_packed(table, has_path_id):
    """What is announced comes back from a scan: same prefixes, path identifiers and sets, in order."""
    is_wide, sets, rows = table
    rows = [
        row for row in rows if row[3] < len(sets) and oracle.is_sendable(sets[row[3]], row, is_wide, MAX, has_path_id)
    ]
    out = np.empty(1 << 21, np.uint8)
    prefixes, set_arguments = columns(rows, is_wide), set_columns(sets, rows)
    packed = compiled.pack_announcements(*prefixes, *set_arguments, is_wide, MAX, has_path_id, out)
    options = scan.Options(add_path=3 if has_path_id else 0, extended_next_hop=True)
    assert SCANNER.scan(out, 0, packed.n_octets, options) == scan.NEED_MORE
    assert (SCANNER.consumed, SCANNER.n_updates) == (packed.n_octets, packed.n_messages)
    found = SCANNER.routes(int(is_wide))
    assert found.hi.tolist() == prefixes[0].tolist()
    assert found.lo.tolist() == prefixes[1].tolist()
    assert found.length.tolist() == prefixes[2].tolist()
    assert found.path_id.tolist() == (prefixes[3].tolist() if has_path_id else [0] * len(rows))
    offset, octets = found.set_offset.tolist(), found.set_octets.tobytes()
    assert [octets[offset[i] : offset[i + 1]] for i in found.set.tolist()] == [sets[row[3]] for row in rows]
