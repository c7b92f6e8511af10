"""Synthetic tables: both twins make the same, and what they make is what is promised."""

import ipaddress

import numpy as np
import pytest

from common.bgp.attributes import describe_set
from common.kernels import synthesis, uncompiled

TWINS = {"compiled": synthesis, "uncompiled": uncompiled("synthesis")}
V4_LENGTHS = np.resize(np.array([24, 24, 24, 22, 20, 16, 11], np.uint8), 65536)
V6_LENGTHS = np.resize(np.array([48, 32, 44, 29, 19], np.uint8), 65536)
POOL = np.arange(1, 1000, dtype=np.uint32)
PATHS = np.resize(np.array([1, 2, 3, 4, 10], np.uint8), 256)


def made(maker, piece: int, total: int) -> list[tuple]:
    """Return (hi, length, run) of all prefixes, made so many at a time."""
    rows, first_run = [], 0
    while len(rows) < total:
        hi, length, sets, n_sets = maker.make(min(piece, total - len(rows)), 1 << 60)
        rows += zip(hi.tolist(), length.tolist(), (sets + np.uint32(first_run)).tolist(), strict=True)
        first_run += n_sets
    return rows


@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "wide"])
def test_twins_make_the_same(is_wide):
    """Compiled and uncompiled make the same prefixes and sets from a seed."""
    lengths = V6_LENGTHS if is_wide else V4_LENGTHS
    one, other = (kernel.PrefixMaker(is_wide, 5, lengths, 12850, 40000, 3) for kernel in TWINS.values())
    assert made(one, 100, 300) == made(other, 100, 300)
    sets = [kernel.SetMaker(5, 64601, bytes(16), PATHS, POOL).make(100) for kernel in TWINS.values()]
    assert all((a == b).all() for a, b in zip(*sets, strict=True))


@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "wide"])
def test_no_prefix_comes_twice(is_wide):
    """All prefixes differ, have no bit beyond their length, and lie in unicast space that is not reserved."""
    rows = made(synthesis.PrefixMaker(is_wide, 1, V6_LENGTHS if is_wide else V4_LENGTHS), 5000, 20000)
    assert len({row[:2] for row in rows}) == 20000
    reserved = [ipaddress.ip_network((network, bits)) for network, bits in synthesis.RESERVED_IPV4]
    for hi, length, _ in rows[::7]:
        network = ipaddress.ip_network((hi << 64, length) if is_wide else (hi >> 32, length))  # strict: no bits beyond
        assert network.is_global or is_wide
        assert is_wide or not any(network.overlaps(each) for each in reserved)


def test_lengths_have_their_shares():
    """Each length comes as often as it stands among those to draw from."""
    counts = np.bincount([length for _, length, _ in made(synthesis.PrefixMaker(False, 1, V4_LENGTHS), 1000, 7000)])
    assert 2700 < counts[24] < 3300 and 800 < counts[22] < 1200


def test_a_length_that_runs_out_is_made_up_for_by_longer_ones():
    """There are 1784 networks of 11 bits, less what is reserved; what is more becomes longer prefixes."""
    rows = made(synthesis.PrefixMaker(False, 1, np.full(65536, 11, np.uint8)), 1000, 3000)
    counts = np.bincount([length for _, length, _ in rows])
    assert counts.sum() == 3000 and 1700 < counts[11] < 1784 and counts[12] == 3000 - counts[11]


def test_tables_of_two_variants_share_what_is_asked_for():
    """Two choices of a fifth of the runs overlap in about a twenty-fifth, and each is a fifth of the whole."""
    tables = []
    for variant in (1, 2):
        maker = synthesis.PrefixMaker(False, 1, V4_LENGTHS, 12850, 65536 // 5, variant)
        hi, length, _, _ = maker.make(50000, 50000)
        tables.append(set(zip(hi.tolist(), length.tolist(), strict=True)))
    assert all(8500 < len(table) < 11500 for table in tables)
    assert 1400 < len(tables[0] & tables[1]) < 2600


def test_sets_are_well_formed():
    """Each set begins with the next hop, its path with the neighbor's AS, and can be described."""
    offset, octets = synthesis.SetMaker(5, 64601, b"\x0a\x4d\x00\x0a", PATHS, POOL).make(200)
    described = [describe_set(octets[a:b].tobytes()) for a, b in zip(offset[:-1], offset[1:], strict=True)]
    assert {each["next_hop"] for each in described} == {"10.77.0.10"}
    assert all(str(each["as_path"]).split()[0] == "64601" for each in described)
    assert sum("med" in each and each["med"] is not None for each in described) in range(15, 50)


def test_impossible_wishes_are_refused():
    """Too few lengths, or one of which no networks are made, are refused at the beginning."""
    with pytest.raises(ValueError, match="65536"):
        synthesis.PrefixMaker(False, 1, V4_LENGTHS[:5])
    with pytest.raises(ValueError, match="length 8"):
        synthesis.PrefixMaker(False, 1, np.full(65536, 8, np.uint8))
