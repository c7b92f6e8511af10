"""The kernel `dress`, compiled and uncompiled, against the oracle."""

import random

import numpy as np
import pytest

from common.bgp.reasons import ExportRefusal
from common.bgp.rules import Edits
from common.kernels import dress, uncompiled
from tests.oracles import dress as oracle

NONE = 0xFFFFFFFF
twins = pytest.mark.parametrize("module", [dress, uncompiled("dress")], ids=["installed", "uncompiled"])


def columns(sets: list[bytes]):
    offset = np.cumsum([0, *map(len, sets)], dtype=np.uint32)
    return offset, np.frombuffer(b"".join(sets), np.uint8)


def dressed(module, edits: list[Edits], rules: list[int], sets: list[bytes]):
    """Dress set i by rule i; return each as octets or as its refusal."""
    dresser = module.Dresser()
    assert [dresser.add(item) for item in edits] == list(range(len(edits)))
    refusal = np.zeros(len(sets), np.uint8)
    offset, octets = columns(sets)
    every = np.arange(len(sets), dtype=np.uint32)
    new, new_offset, new_octets = dresser.dress(np.array(rules, np.uint32), every, refusal, offset, octets)
    return [
        int(refusal[i]) if new[i] == NONE else new_octets[new_offset[new[i]] : new_offset[new[i] + 1]].tobytes()
        for i in range(len(sets))
    ]


def expected(edits: Edits, octets: bytes):
    try:
        return oracle.dress(edits, octets)
    except oracle.Refused as refused:
        return int(refused.args[0])


@twins
@pytest.mark.parametrize("seed", range(4))
def test_dressed_sets_equal_those_of_the_oracle(module, seed):
    """Random sets under random edits come out octet for octet as the RFCs' words have them."""
    rng = random.Random(seed)
    edits = [oracle.random_edits(rng) for _ in range(60)]
    sets = [oracle.random_set(rng) for _ in range(300)]
    rules = [rng.randrange(len(edits)) for _ in sets]
    for rule, octets, got in zip(rules, sets, dressed(module, edits, rules, sets), strict=True):
        assert got == expected(edits[rule], octets), edits[rule]


@twins
def test_no_edits_leave_a_set_octet_for_octet(module):
    """A rule without edits copies sets, also those with a needless Extended Length bit."""
    rng = random.Random(1)
    sets = [oracle.random_set(rng) for _ in range(50)] + [b"\x04\x0a\x00\x00\x01\x50\x01\x00\x01\x00"]
    assert dressed(module, [Edits()], [0] * len(sets), sets) == sets


@twins
def test_a_set_cut_anywhere_is_refused_or_read_to_its_end(module):
    """A set cut short never makes the kernel read beyond it: what follows cannot change the answer."""
    rng = random.Random(2)
    octets = oracle.random_set(rng)
    edits = [oracle.random_edits(rng) for _ in range(8)]
    for edit in edits:
        for end in range(1, len(octets)):
            answers = {
                str(dressed(module, [edit], [0, 0], [octets[:end], filler])[0]) for filler in (b"\x00", b"\xff" * 300)
            }
            assert len(answers) == 1


@twins
def test_arbitrary_octets_do_no_harm(module):
    """Octets that are no set at all are refused or rewritten, but never written beyond the room made for them."""
    rng = random.Random(3)
    sets = [rng.randbytes(rng.randint(1, 60)) for _ in range(500)]
    edits = [oracle.random_edits(rng) for _ in range(20)]
    answers = dressed(module, edits, [i % 20 for i in range(500)], sets)
    assert int(ExportRefusal.MALFORMED) in answers


@twins
def test_a_path_too_long_to_prepend_to_is_refused(module):
    """An AS path near 65535 octets cannot take more."""
    path = oracle.path_of([(2, [1] * 255)] * 64, 4)
    octets = oracle.encode(b"\x0a\x00\x00\x01", {1: (0x40, b"\0"), 2: (0x40, path)})
    edits = [Edits(prepend_asn=65000, prepend_count=count) for count in (15, 255)]
    answers = dressed(module, edits, [0, 1], [octets, octets])
    assert answers == [expected(edits[0], octets), int(ExportRefusal.TOO_LARGE)]


@twins
def test_refused_pairs_carry_no_octets(module):
    """A pair refused before costs nothing: its set is left out."""
    offset, octets = columns([b"\x00\x40\x01\x01\x00", b"\x00\x40\x01\x01\x02"])
    dresser = module.Dresser()
    dresser.add(Edits())
    new, new_offset, new_octets = dresser.dress(
        np.zeros(2, np.uint32), np.arange(2, dtype=np.uint32), np.array([3, 0], np.uint8), offset, octets
    )
    assert new.tolist() == [NONE, 0]
    assert new_offset.tolist() == [0, 5] and new_octets.tobytes() == b"\x00\x40\x01\x01\x02"
