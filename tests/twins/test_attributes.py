"""The attribute table: compiled, uncompiled and the oracle agree."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import attributes as compiled
from common.kernels import uncompiled
from tests.oracles import attributes as oracle

TWINS = {"compiled": compiled, "uncompiled": uncompiled("attributes")}
NONE = 0xFFFFFFFF

# Sets of every length modulo 8, some that differ in one octet only, some long ones.
sets = st.one_of(
    st.binary(max_size=3),
    st.integers(0, 300).map(lambda n: bytes([4, 10, 0, 0, n % 7]) + b"\x40\x01\x01\x00" * (n % 5) + bytes([n % 100])),
    st.integers(0, 9).map(lambda n: bytes([n]) * 700),
)
batches = st.lists(sets, max_size=80)


def packed(batch: list[bytes], lead: bytes = b""):
    """Return (offsets, octets) of these sets; `lead` is octets before the first that belong to none."""
    offsets = np.cumsum([len(lead)] + [len(octets) for octets in batch]).astype(np.uint32)
    octets = np.frombuffer(lead + b"".join(batch), np.uint8)
    return offsets, octets


@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), steps=st.lists(st.tuples(batches, st.integers(1, 4), st.booleans()), max_size=6))
def test_gives_ids_as_the_oracle(twin, seed, steps):
    """Ids are given, extracted, swept and given again as a dictionary would, and octets come back as they were."""
    table, model = TWINS[twin].AttributeTable(seed, 1), oracle.AttributeTable()
    for batch, nth, has_sweep in steps:
        known = set(model.id_of.values())
        expected = model.intern(batch)
        assert table.intern(*packed(batch, b"lead")).tolist() == expected
        assert table.new_ids.tolist() == [id for id in dict.fromkeys(expected) if id not in known]
        for id in expected[::nth]:
            table.references[id] += 1
            model.references[id] += 1
        check_extract(table, model, expected + [0] + expected[::-1])
        if has_sweep:
            assert table.sweep() == model.sweep()
        assert {table.octets_of(id): id for id in model.id_of.values()} == model.id_of
        assert (table.n_sets, table.id_limit) == (len(model.id_of), model.id_limit)
        assert table.capacity == len(table.references) >= table.id_limit


def check_extract(table, model, ids: list[int]) -> None:
    local, set_offset, set_octets = table.extract(np.array(ids, np.uint32))
    expected_local, expected_sets = model.extract(ids)
    assert local.tolist() == [NONE if index is None else index for index in expected_local]
    offsets, octets = packed(expected_sets)
    assert set_offset.tolist() == offsets.tolist()
    assert set_octets.tobytes() == octets.tobytes()


@pytest.mark.parametrize("twin", TWINS)
@given(batch=st.lists(sets, min_size=1, max_size=5), rows=st.lists(st.integers(0, 5), max_size=40))
def test_rows_get_the_ids_of_their_sets(twin, batch, rows):
    """A batch's rows get the ids of the sets they refer to, and 0 where they refer to none."""
    table = TWINS[twin].AttributeTable(1)
    indices = [row if row < len(batch) else NONE for row in rows]
    ids = table.intern_rows(*packed(batch), np.array(indices, np.uint32))
    octets = [table.octets_of(id) if id else None for id in ids.tolist()]
    assert octets == [None if index == NONE else batch[index] for index in indices]


@settings(deadline=None)
@given(batch=batches, seed=st.integers(0, 2**64 - 1))
def test_twins_hash_alike(batch, seed):
    """Both twins spread sets alike over the slots, so both were tested with the same collisions."""
    tables = [kernel.AttributeTable(seed, 1) for kernel in TWINS.values()]
    for table in tables:
        table.intern(*packed(batch))
    assert tables[0].longest_run() == tables[1].longest_run()
