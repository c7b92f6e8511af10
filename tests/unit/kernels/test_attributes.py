"""The attribute table: what the twins' small batches do not reach."""

import numpy as np
import pytest

from common.kernels.attributes import AttributeTable


def packed(sets: list[bytes]):
    offsets = np.cumsum([0] + [len(octets) for octets in sets]).astype(np.uint32)
    return offsets, np.frombuffer(b"".join(sets), np.uint8)


def numbered(n: int, first: int = 0) -> list[bytes]:
    """Return n different sets of 40 octets."""
    return [b"\x04\x0a\x00\x00\x01" + number.to_bytes(35, "big") for number in range(first, first + n)]


def test_grows_to_many_sets():
    """A table made for few sets keeps the octets of twenty thousand, and their references."""
    table = AttributeTable(1, 16)
    sets = numbered(20_000)
    for at in range(0, 20_000, 3_000):
        ids = table.intern(*packed(sets[at : at + 3_000]))
        table.references[ids] += 1
    assert table.intern(*packed(sets)).tolist() == list(range(1, 20_001))
    assert [table.octets_of(id) for id in (1, 10_000, 20_000)] == [sets[0], sets[9_999], sets[19_999]]
    assert table.references[1:20_001].tolist() == [1] * 20_000
    assert table.n_octets == 40 * 20_000
    assert set(table.sizes[1:20_001].tolist()) == {40}


def test_sweep_gives_octets_back():
    """After most sets have gone the arena is as small as what is left, and what is left is unharmed."""
    table = AttributeTable(1)
    sets = numbered(20_000)
    ids = table.intern(*packed(sets))
    table.references[ids[::100]] = 1
    size = table.arena_size
    assert table.sweep() == 19_800
    assert table.arena_size < size / 50
    assert [table.octets_of(id) for id in ids[::100].tolist()] == sets[::100]


def test_garbage_does_not_pile_up():
    """A table whose sets come and go stays as large as what lives at one time, ids and octets alike."""
    table = AttributeTable(1)
    for first in range(0, 100_000, 1_000):
        table.intern(*packed(numbered(1_000, first)))
        if table.needs_sweep:
            table.sweep()
    assert table.id_limit < 10_000
    assert table.arena_size < 1_000_000


def test_needs_sweep_counts_new_sets_only():
    """Sets that are known already do not bring a sweep nearer."""
    table = AttributeTable(1)
    few = packed(numbered(10))
    for _ in range(1_000):
        table.intern(*few)
    assert not table.needs_sweep
    table.intern(*packed(numbered(6_000)))
    assert table.needs_sweep
    table.sweep()
    assert not table.needs_sweep


def test_a_few_large_sets_make_a_sweep_due():
    """Sets of the largest size that come and go do not pile up either."""
    table = AttributeTable(1)
    n_octets = 64_000
    for number in range(1_000):
        table.intern(*packed([number.to_bytes(4, "big") * (n_octets // 4)]))
        if table.needs_sweep:
            table.sweep()
    assert table.n_sets < 500 and table.arena_size < 800 * n_octets


@pytest.mark.parametrize("seed", [0, 12345, 2**64 - 1])
def test_chosen_sets_do_not_meet_in_the_index(seed):
    """Sets in which a difference in one word could cancel that in the next, for any seed, are spread."""
    table = AttributeTable(seed)
    sets = [
        b"".join(
            (1 << 63 if pattern >> word & 1 else 0).to_bytes(8, "little")
            + ((1 << 63 | 1 << 31) if pattern >> word & 1 else 0).to_bytes(8, "little")
            for word in range(11)
        )
        for pattern in range(2048)
    ]
    table.intern(*packed(sets))
    assert table.longest_run() < 100


def test_unknown_ids_are_refused():
    """An id that was never given out, or was swept, is an error wherever octets are asked for."""
    table = AttributeTable(1)
    table.intern(*packed([b"a", b"b"]))
    table.references[1] = 1
    table.sweep()
    for id in (0, 2, 3, 100_000):
        with pytest.raises(IndexError):
            table.octets_of(id)
    for id in (2, 3, 100_000):
        with pytest.raises(IndexError):
            table.extract(np.array([1, id], np.uint32))
    local, _, octets = table.extract(np.array([1, 0], np.uint32))
    assert (local.tolist(), octets.tobytes()) == ([0, 0xFFFFFFFF], b"a")


def test_false_offsets_are_refused():
    """Offsets that fall, or that lead past the octets, are an error."""
    table = AttributeTable(1)
    octets = np.zeros(4, np.uint8)
    for offsets in ([0, 3, 2], [0, 5], [3, 0], []):
        with pytest.raises(ValueError, match="offsets"):
            table.intern(np.array(offsets, np.uint32), octets)
    with pytest.raises(IndexError):
        table.intern_rows(np.array([0, 4], np.uint32), octets, np.array([1], np.uint32))


def test_no_sets_are_a_batch_too():
    """A batch of withdrawals has no sets, and rows without one."""
    table = AttributeTable(1)
    ids = table.intern_rows(np.zeros(1, np.uint32), np.empty(0, np.uint8), np.full(3, 0xFFFFFFFF, np.uint32))
    assert ids.tolist() == [0, 0, 0]
    assert table.new_ids.tolist() == []
    local, set_offset, set_octets = table.extract(ids)
    assert (set(local.tolist()), set_offset.tolist(), len(set_octets)) == ({0xFFFFFFFF}, [0], 0)


def test_long_sets_are_kept_whole():
    """The longest set an extended message can carry, and a longer one, come back as they were."""
    table = AttributeTable(1, 1)
    sets = [bytes(65_535), bytes(65_534) + b"x", bytes(200_000)]
    assert [table.octets_of(id) for id in table.intern(*packed(sets)).tolist()] == sets
