"""The form of a batch on the wire: round trips, and that nothing malformed gets through or crashes."""

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bus.batch import (
    JOIN_BELOW_OCTETS,
    Batch,
    Position,
    _decode_any,
    _decode_small,
    decode,
    empty_columns,
    encode,
    no_sets,
)
from common.bus.schema import (
    FAMILIES,
    FINGERPRINT,
    KINDS,
    NONE,
    Check,
    Kind,
    Per,
    RouteChanges,
    SchemaError,
    Status,
)

SOURCE = {"name": "a", "asn": 1, "address": b"\x0a\0\0\1"}
META = {"family": "ipv6-unicast", "sources": [SOURCE, SOURCE], "view": "best", "cache": "c"}


def octets_of(batch: Batch, subscription: int = 7) -> list[bytes]:
    return [bytes(memoryview(frame)) for frame in encode(batch, subscription)]


@st.composite
def batches(draw, kinds=KINDS):
    """Well-formed batches of any kind, with up to 300 rows: both sides of the joined form and of the quick checks."""
    kind: Kind = draw(st.sampled_from(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows = draw(st.sampled_from([0, 1, 2, 40, 50, 300])) if kind.columns else 0
    family = draw(st.sampled_from(sorted(FAMILIES)))
    n_sets = int(rng.integers(0, 60))
    lengths = rng.integers(33, 80, n_sets)
    set_offset = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    set_octets = rng.integers(0, 256, int(set_offset[-1])).astype(np.uint8)
    set_octets[set_offset[:-1]] = rng.choice([0, 4, 16, 32], n_sets)
    n_paths = rng.integers(0, 3 if n_sets else 1, n_rows).astype(np.uint8)
    columns = {}
    for column in kind.columns:
        n = {Per.ROW: n_rows, Per.PATH: int(n_paths.sum()), Per.SET: n_sets + 1, Per.OCTET: len(set_octets)}[column.per]
        if column.check is Check.LOW_HALF and family == "ipv4-unicast":
            n = 0
        high = {
            Check.PREFIX_LENGTH: FAMILIES[family] + 1,
            Check.SOURCE: 2,
            Check.SOURCE_OR_NONE: 2,
            Check.SET: max(n_sets, 1),
            Check.SET_OR_NONE: max(n_sets, 1),
            Check.FLAG: 2,
        }.get(column.check, 1 << (8 * np.dtype(column.dtype).itemsize))
        values = (
            rng.integers(0, high, n, dtype=np.uint64, endpoint=False) if high < 1 << 64 else rng.integers(0, 1 << 63, n)
        )
        values = values.astype(column.dtype)
        if column.check is Check.EVENT:
            values = rng.integers(1, 5, n).astype(np.uint8)
        elif column.check is Check.ADDRESS_LENGTH:
            values = rng.choice([4, 16], n).astype(np.uint8)
        elif column.check in (Check.SET_OR_NONE, Check.SOURCE_OR_NONE):
            is_none = rng.random(n) < (0.2 if n_sets or column.check is Check.SOURCE_OR_NONE else 2)
            values[is_none] = NONE
        columns[column.name] = values
    columns |= {
        name: values
        for name, values in (("n_paths", n_paths), ("set_offset", set_offset), ("set_octets", set_octets))
        if name in columns
    }
    meta = {key: META[key] for key in kind.meta}
    if "family" in meta:
        meta["family"] = family
    position = Position(draw(st.text(max_size=8)), draw(st.integers(0, 2**60)), draw(st.integers(-1, 2**40)))
    flags = draw(st.integers(0, 15))
    return Batch(kind, columns, meta, "adj-rib-in/x", position, draw(st.integers(0, 9)), draw(st.integers(0, 9)), flags)


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 2**40))
def test_what_is_encoded_is_decoded(batch, subscription):
    """Every batch comes out as it went in, with columns that kernels can take."""
    found, copy = decode(octets_of(batch, subscription))
    assert found == subscription
    for name in ("kind", "meta", "channel", "position", "first", "head", "flags"):
        assert getattr(copy, name) == getattr(batch, name)
    for column in batch.kind.columns:
        array = copy.columns[column.name]
        assert array.dtype == np.dtype(column.dtype) and array.flags.writeable and array.flags.aligned
        assert array.tolist() == batch.columns[column.name].tolist()
    assert copy.n_octets == batch.n_octets and copy.n_rows == batch.n_rows


@settings(max_examples=60, deadline=None)
@given(batches(), st.data())
def test_cut_at_any_length_is_refused(batch, data):
    """A frame that is shorter than it should be is never taken for a batch."""
    frames = octets_of(batch)
    index = data.draw(st.sampled_from([index for index, frame in enumerate(frames) if frame]))
    frames[index] = frames[index][: data.draw(st.integers(0, len(frames[index]) - 1))]
    with pytest.raises(SchemaError):
        decode(frames)


@settings(max_examples=100, deadline=None)
@given(batches(), st.data())
def test_a_changed_octet_is_refused_or_harmless(batch, data):
    """Whatever octet is changed, what decode lets through keeps every promise about indices and lengths."""
    frames = [bytearray(frame) for frame in octets_of(batch)]
    index = data.draw(st.sampled_from([index for index, frame in enumerate(frames) if frame]))
    place = data.draw(st.integers(0, len(frames[index]) - 1))
    frames[index][place] ^= data.draw(st.integers(1, 255))
    try:
        _, copy = decode(frames)
    except SchemaError:
        return
    check_promises(copy)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=12))
def test_arbitrary_octets_never_crash(frames):
    """Octets from anywhere raise SchemaError and nothing else."""
    with pytest.raises(SchemaError):
        decode(frames)


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["kind", "n", "meta", "flags", "sub", "cursor", "epoch", "v", "channel"]),
        st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
        ),
    ),
    batches(),
)
def test_arbitrary_headers_never_crash(changes, batch):
    """Headers with any values in any field raise SchemaError or keep the promises."""
    frames = octets_of(batch)
    frames[0] = msgpack.packb(msgpack.unpackb(frames[0]) | changes)
    try:
        _, copy = decode(frames)
    except SchemaError:
        return
    check_promises(copy)


def check_promises(batch: Batch) -> None:
    """Assert, slowly, what `decode` says kernels may trust."""
    columns = batch.columns
    longest = FAMILIES[batch.meta["family"]] if "family" in batch.kind.meta else 128
    n_sources = len(batch.meta["sources"]) if "sources" in batch.kind.meta else 0
    offsets = columns["set_offset"].tolist() if "set_offset" in columns else [0]
    octets = columns.get("set_octets", np.empty(0, np.uint8)).tolist()
    assert offsets[0] == 0 and offsets[-1] == len(octets)
    for first, end in zip(offsets, offsets[1:], strict=False):
        assert first < end and octets[first] in (0, 4, 16, 32) and end - first > octets[first]
    for column in batch.kind.columns:
        for value in columns[column.name].tolist():
            match column.check:
                case Check.PREFIX_LENGTH:
                    assert value <= longest
                case Check.SOURCE:
                    assert value < n_sources
                case Check.SOURCE_OR_NONE:
                    assert value < n_sources or value == NONE
                case Check.SET:
                    assert value < len(offsets) - 1
                case Check.SET_OR_NONE:
                    assert value < len(offsets) - 1 or value == NONE
                case Check.EVENT:
                    assert 1 <= value <= 4
        if column.per is Per.ROW and not (column.check is Check.LOW_HALF and longest == 32):
            assert len(columns[column.name]) == batch.n_rows
        if column.per is Per.PATH:
            assert len(columns[column.name]) == sum(columns["n_paths"].tolist())


def route_batch(n: int = 2, **columns) -> Batch:
    base = {
        "hi": np.zeros(n, np.uint64),
        "length": np.full(n, 24, np.uint8),
        "source": np.zeros(n, np.uint32),
        "set": np.zeros(n, np.uint32),
        "reason": np.zeros(n, np.uint8),
        "set_offset": np.array([0, 6], np.uint32),
        "set_octets": np.array([4, 1, 1, 1, 1, 0], np.uint8),
    }
    return Batch(
        RouteChanges, base | columns, {"family": "ipv4-unicast", "sources": [SOURCE]}, "adj-rib-in/ipv4-unicast"
    )


@pytest.mark.parametrize("n", [2, 5000])
@pytest.mark.parametrize(
    ("column", "values", "place"),
    [
        ("length", [33], "length"),
        ("source", [1], "source"),
        ("set", [1], "set"),
        ("set_offset", [0, 0, 6], "set_offset"),
        ("set_offset", [0, 7], "set_offset"),
        ("set_offset", [1, 6], "set_offset"),
        ("set_offset", [], "set"),
        ("set_octets", [5, 1, 1, 1, 1, 0], "set_offset"),
        ("set_octets", [16, 1, 1, 1, 1, 0], "set_offset"),
    ],
)
def test_a_wrong_value_is_refused_by_name(n, column, values, place):
    """The error names kind and column of what is wrong, in small batches and in large ones."""
    batch = route_batch(n)
    array = batch.columns[column]
    array = np.resize(np.array(values, array.dtype), n) if column in ("length", "source", "set") else values
    batch.columns[column] = np.array(array, batch.columns[column].dtype)
    with pytest.raises(SchemaError, match=f"RouteChanges.{place}"):
        decode(octets_of(batch))


def test_small_batches_take_two_frames_and_large_ones_one_a_column():
    """What is small is joined, so that a single change is cheap; what is large lies in frames of its own."""
    assert len(encode(route_batch(1), 1)) == 2
    assert len(encode(route_batch(JOIN_BELOW_OCTETS), 1)) == 1 + len(RouteChanges.columns)


def test_a_small_batch_that_nobody_changed_goes_on_in_the_frame_it_came_in():
    """What a relay passes on as it is is not put together again; what it changed is."""
    frames = octets_of(route_batch(2))
    _, batch = decode(frames)
    assert encode(batch, 1)[1] == frames[1] and encode(batch, 1)[1] is encode(batch, 2)[1]
    batch.columns = batch.columns | {"reason": np.array([1, 2], np.uint8)}
    _, changed = decode(octets_of(batch))
    assert changed.columns["reason"].tolist() == [1, 2]


@given(batch=batches(), at=st.integers(0, 1 << 30), octet=st.integers(0, 255), is_header=st.booleans())
def test_the_quick_way_and_the_slow_way_of_decoding_agree(batch, at, octet, is_header):
    """Of octets of any sort both make the same batch, or neither makes one."""
    frames = octets_of(batch)
    spoiled = bytearray(frames[0 if is_header else -1])
    if spoiled:
        spoiled[at % len(spoiled)] = octet
    frames[0 if is_header else -1] = bytes(spoiled)
    try:
        slow = _decode_any(frames)
    except SchemaError:
        slow = None
    quick = _decode_small(frames) if len(frames) == 2 else None
    assert quick is None or slow is not None
    if quick is not None:
        assert quick[0] == slow[0] and quick[1].position == slow[1].position and quick[1].meta == slow[1].meta
        assert {name: (array.dtype, array.tolist()) for name, array in quick[1].columns.items()} == {
            name: (array.dtype, array.tolist()) for name, array in slow[1].columns.items()
        }


def test_large_columns_are_not_copied():
    """The frames of a large batch are the columns themselves, at both ends."""
    batch = route_batch(JOIN_BELOW_OCTETS)
    frames = encode(batch, 1)
    assert frames[1] is batch.columns["hi"]
    received = [bytearray(memoryview(frame)) for frame in frames]
    _, copy = decode(received)
    assert np.shares_memory(copy.columns["hi"], np.frombuffer(received[1], np.uint8))


def test_a_column_of_another_type_is_refused_by_the_encoder():
    """A mistake of ours is found where it is made."""
    with pytest.raises(SchemaError, match="RouteChanges.set"):
        encode(route_batch(set=np.zeros(2, np.int64)), 1)


def test_columns_not_given_are_empty():
    """A batch without routes needs no columns at all."""
    _, copy = decode(octets_of(Batch(RouteChanges, no_sets(), {"family": "ipv4-unicast", "sources": []}, "x")))
    assert copy.n_rows == 0 and copy.columns["set_offset"].tolist() == [0]
    _, copy = decode(octets_of(Batch(Status, {}, {"anything": [1, 2]}, "x")))
    assert copy.meta == {"anything": [1, 2]}


def test_every_kind_has_a_number_of_its_own_and_an_empty_form():
    """Kinds are told apart by number, and each may be empty."""
    assert [kind.number for kind in KINDS] == list(range(1, len(KINDS) + 1))
    for kind in KINDS:
        meta = {key: META[key] for key in kind.meta}
        assert decode(octets_of(Batch(kind, empty_columns(kind), meta, "x")))[1].n_rows == 0


def test_golden_frames():
    """The form on the wire does not change by accident: another form is another fingerprint."""
    batch = route_batch(1)
    batch.position = Position("e", 5, -1)
    header, joined = octets_of(batch, 3)
    assert msgpack.unpackb(header) == {
        "v": FINGERPRINT,
        "kind": 1,
        "sub": 3,
        "channel": "adj-rib-in/ipv4-unicast",
        "epoch": "e",
        "sequence": 5,
        "cursor": -1,
        "first": 0,
        "head": 0,
        "flags": 0,
        "meta": {"family": "ipv4-unicast", "sources": [SOURCE]},
        "n": [1, 0, 1, 1, 1, 1, 2, 6],
    }
    assert joined.hex() == (
        "0000000000000000" + "1800000000000000" + "0000000000000000" * 3 + "0000000006000000" + "0401010101000000"
    )
    assert FINGERPRINT == "0ba1f59c1555"
