"""The ledger of a listener: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bgp.constants import NONE
from common.kernels import ledger, uncompiled
from tests.oracles import ledger as oracle
from tests.oracles import updates

TWINS = {"compiled": ledger, "uncompiled": uncompiled("ledger")}

asns = st.integers(1, 4)
paths = st.lists(st.tuples(st.sampled_from([1, 2, 2]), st.lists(asns, min_size=1, max_size=3)), max_size=3)
values = {
    4: st.sampled_from([bytes(4), b"\0\0\0\1"]),
    5: st.just(bytes(4)),
    8: st.lists(st.sampled_from([b"abcd", b"efgh", b"ijkl"]), max_size=4).map(b"".join),
    9: st.just(b"\1\1\1\1"),
    32: st.lists(st.sampled_from([b"abcdefghijkl", b"ABCDEFGHIJKL"]), max_size=3).map(b"".join),
    99: st.binary(max_size=3) | st.just(bytes(300)),
}
sets = st.builds(
    lambda hop, origin, path, rest: (
        bytes([len(hop)]) + hop + updates.attribute(0x40, 1, origin) + updates.attribute(0x40, 2, updates.path(*path))
        + b"".join(updates.attribute(flags, code, value) for code, (flags, value) in sorted(rest.items()))
    ),
    st.sampled_from([b"", b"\1\2\3\4", bytes(16)]),
    st.sampled_from([b"\0", b"\2"]),
    paths,
    st.fixed_dictionaries(
        {}, optional={code: st.tuples(st.sampled_from([0x80, 0xC0, 0xE0]), value) for code, value in values.items()}
    ),
)  # fmt: skip


def columns(octets: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offset = np.cumsum([0, *map(len, octets)]).astype(np.uint32)
    return offset, np.frombuffer(b"".join(octets), np.uint8)


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=100, deadline=None)
@given(
    known=st.lists(sets, min_size=1, max_size=5, unique=True),
    steps=st.lists(st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 4)), max_size=12), max_size=5),
)
def test_counts_as_the_oracle(twin, known, steps):
    """Whatever is announced and withdrawn, the counts and what is held are those of a dictionary."""
    module = TWINS[twin]
    table, plain = module.Ledger(16), oracle.Ledger()
    states, _ = module.digest_sets(*columns(known))
    for step in steps:
        chosen = [(row, None if number < 0 else number % len(known)) for row, number in step]
        rows = np.array([row for row, _ in chosen], np.uint32)
        numbers = np.array([NONE if number is None else number for _, number in chosen], np.uint32)
        table.apply(rows, numbers, states)
        plain.apply([(row, None if number is None else known[number]) for row, number in chosen])
    assert table.counts == {"held": len(plain.held), **plain.counts}
    assert set(np.flatnonzero(np.asarray(table.states)).tolist()) == set(plain.held)


@settings(max_examples=200, deadline=None)
@given(known=st.lists(sets, min_size=2, max_size=6), n_own=st.integers(0, 2))
def test_digests_tell_what_the_oracle_tells(known, n_own):
    """Two sets have the same digest when they are equal, the same core when a router passes them on alike."""
    (states, first), (other_states, other_first) = (
        kernel.digest_sets(*columns(known), n_own) for kernel in TWINS.values()
    )
    assert states.tolist() == other_states.tolist() and first.tolist() == other_first.tolist()
    assert first.tolist() == [oracle.first(octets) for octets in known]
    for i, one in enumerate(known):
        for j, other in enumerate(known):
            assert (int(states[i]) & 0xFFFFFFFF == int(states[j]) & 0xFFFFFFFF) == (one == other)
            assert (states[i] >> 32 == states[j] >> 32) == (oracle.core(one, n_own) == oracle.core(other, n_own))


@pytest.mark.parametrize("twin", TWINS)
def test_clearing_keeps_the_counts(twin):
    """At the end of a session nothing is held, and what was counted stays counted."""
    table = TWINS[twin].Ledger(16)
    states, _ = TWINS[twin].digest_sets(*columns([b"\0" + updates.ORIGIN]))
    table.apply(np.array([3, 4], np.uint32), np.zeros(2, np.uint32), states)
    table.clear()
    table.ensure(100)
    assert (table.held, table.counts["announced"], len(table.states)) == (0, 2, 100)
    assert not np.asarray(table.states).any()
