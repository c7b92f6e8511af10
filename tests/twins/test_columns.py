"""The columns of small batches: compiled, uncompiled and the oracle agree."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import columns as compiled
from common.kernels import uncompiled
from common.kernels.columns import ANY, LONGEST, NOTHING, OCTET, PATH, ROW, SET, SETS, SOURCES, TWO
from tests.oracles import columns as oracle

TWINS = {"compiled": compiled, "uncompiled": uncompiled("columns")}

# Of each column: octets of an item, what it has one item for, its limit, whether NONE is allowed.
KINDS = {
    "routes": ([(8, ROW, ANY, 0), (8, NOTHING, ANY, 0), (1, ROW, LONGEST, 0), (4, ROW, SOURCES, 1),
                (4, ROW, SETS, 1), (4, SET, ANY, 0), (1, OCTET, ANY, 0)], -1, 5, 6),
    "paths": ([(1, ROW, ANY, 0), (4, PATH, SOURCES, 0), (4, PATH, SETS, 0), (4, SET, ANY, 0),
               (1, OCTET, ANY, 0)], 0, 3, 4),
    "flags": ([(8, ROW, ANY, 0), (1, ROW, TWO, 0)], -1, -1, -1),
}  # fmt: skip


@st.composite
def frames(draw):
    """A kind, and a frame of it that is good, or nearly so, or nothing of the kind."""
    name = draw(st.sampled_from(sorted(KINDS)))
    columns, paths_column, *_ = KINDS[name]
    longest, n_sources, n_rows = draw(st.sampled_from([32, 128])), draw(st.integers(0, 2)), draw(st.integers(0, 3))
    next_hops = draw(st.lists(st.sampled_from([0, 4, 16, 32, 5]), max_size=3))
    sets = [bytes([size]) + bytes(draw(st.sampled_from([size, size, size + 3, 2]))) for size in next_hops]
    n_paths = [draw(st.integers(0, 2)) for _ in range(n_rows)]
    offsets = [sum(map(len, sets[:index])) for index in range(len(sets) + 1)]
    parts = []
    for index, (size, per, limit, may_be_none) in enumerate(columns):
        n = {ROW: n_rows, NOTHING: n_rows if longest == 128 else 0, PATH: sum(n_paths)}.get(per, 0)
        high = {ANY: 255, LONGEST: longest, SOURCES: n_sources, SETS: len(sets), TWO: 1}[limit]
        items = [draw(st.sampled_from([0, max(high - 1, 0), high])) for _ in range(n)]
        if may_be_none and items:
            items[0] = oracle.NONE
        if index == paths_column:
            items = n_paths
        elif per == SET:
            items = offsets
        elif per == OCTET:
            items = list(b"".join(sets))
        parts.append([item.to_bytes(size, "little") for item in items])
    counts = [len(part) for part in parts]
    octets = b"".join((joined := b"".join(part)) + bytes(-len(joined) % 8) for part in parts)
    spoiled = draw(st.sampled_from(["", "", "count", "cut", "octet"]))
    if spoiled == "count":
        counts[draw(st.integers(0, len(counts) - 1))] = draw(st.sampled_from([-1, 1, 2, 1 << 70, True, 1.0, "1"]))
    elif spoiled == "cut":
        octets = octets[: draw(st.integers(0, len(octets)))]
    elif spoiled == "octet" and octets:
        at = draw(st.integers(0, len(octets) - 1))
        octets = octets[:at] + bytes([draw(st.integers(0, 255))]) + octets[at + 1 :]
    return KINDS[name], bytearray(octets), counts, longest, n_sources


@pytest.mark.parametrize("name", TWINS)
@given(case=frames())
@settings(max_examples=300, deadline=None)
def test_columns_are_found_where_they_lie_and_only_if_all_is_good(name, case):
    """A frame is split as the declaration says, or refused, as the oracle does."""
    kind, octets, counts, longest, n_sources = case
    layout = TWINS[name].Layout(*kind)
    expected = oracle.split(*kind, bytes(octets), counts, longest, n_sources)
    assert layout.split(octets, counts, longest, n_sources) == expected
