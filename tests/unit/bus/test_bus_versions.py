"""Two versions on one bus: what they say of their schemas when they connect, and batches of one read by the other."""

from dataclasses import replace

import msgpack
import numpy as np
import pytest

from common.bus import batch as batch_module
from common.bus import schema, server, wire
from common.bus.batch import JOIN_BELOW_OCTETS, Batch, Position, decode, encode
from common.bus.channels import CHANNELS, kinds_of
from common.bus.schema import KINDS, Check, Column, Kind, Per, SchemaError, description, disagreement
from tests.unit.bus.conftest import CHANNEL, SOURCE

ROW = Column("weight", "u4", "a preference", otherwise=7)
PATH = Column("path_weight", "u2", "a preference", per=Per.PATH, otherwise=9)
SMALL, LARGE = 3, JOIN_BELOW_OCTETS
ROUTES, BEST = schema.RouteChanges, schema.BestChanges


def widened(kind: Kind, *columns: Column) -> Kind:
    return Kind(kind.number, kind.name, kind.meaning, kind.columns + columns, kind.meta)


class Version:
    """A version of the software, which knows these kinds."""

    def __init__(self, monkeypatch, *kinds: Kind):
        self._patch = monkeypatch
        numbers = {kind.number for kind in kinds}
        self.kinds = tuple(kind for kind in KINDS if kind.number not in numbers) + kinds

    def __enter__(self):
        self._former = (batch_module.FINGERPRINT, dict(schema._BY_NUMBER))
        batch_module.FINGERPRINT = schema.fingerprint(self.kinds)
        schema._BY_NUMBER.update({kind.number: kind for kind in self.kinds})
        return {kind.name: kind for kind in self.kinds}

    def __exit__(self, *_):
        batch_module.FINGERPRINT = self._former[0]
        schema._BY_NUMBER.update(self._former[1])


def columns_of(kind: Kind, n_rows: int) -> dict[str, np.ndarray]:
    """Return columns of routes that all have the one set; of each prefix two paths."""
    n = {Per.ROW: n_rows, Per.PATH: 2 * n_rows, Per.SET: 2, Per.OCTET: 6}
    columns = {column.name: np.zeros(n[column.per], column.dtype) for column in kind.columns}
    columns["lo"] = np.zeros(0, np.uint64)
    columns["set_offset"][1], columns["set_octets"][0] = 6, 4
    if "n_paths" in columns:
        columns["n_paths"][:] = 2
    return columns


def sent(batch: Batch) -> list[bytes]:
    return [bytes(memoryview(frame)) for frame in encode(batch, 1)]


def batch_of(kind: Kind, n_rows: int, **more) -> Batch:
    meta = {"family": "ipv4-unicast", "sources": [SOURCE], "view": "best"}
    return Batch(kind, columns_of(kind, n_rows) | more, meta, CHANNEL, Position("e", 1, -1))


@pytest.mark.parametrize("n_rows", [SMALL, LARGE])
@pytest.mark.parametrize(
    ("kind", "added"), [(ROUTES, (ROW,)), (ROUTES, (ROW, replace(ROW, name="more"))), (BEST, (PATH,))]
)
def test_an_older_stage_passes_over_what_it_does_not_know(monkeypatch, kind, added, n_rows):
    """The columns it knows are as they were sent, and it gives back as much credit as the owner has counted."""
    with Version(monkeypatch, widened(kind, *added)) as kinds:
        batch = batch_of(kinds[kind.name], n_rows)
        charged = batch.n_octets
        frames = sent(batch)
    _, read = decode(frames)
    assert read.kind is kind and set(read.columns) == {column.name for column in kind.columns}
    assert all((read.columns[name] == batch.columns[name]).all() for name in read.columns)
    assert read.n_octets == charged


@pytest.mark.parametrize("n_rows", [0, SMALL, LARGE])
@pytest.mark.parametrize(("kind", "added"), [(ROUTES, ROW), (BEST, PATH)])
def test_a_newer_stage_puts_in_what_an_older_one_does_not_send(monkeypatch, kind, added, n_rows):
    """The column is there, as long as it must be; the credit given back is that of the octets that came."""
    batch = batch_of(kind, n_rows)
    frames = sent(batch)
    with Version(monkeypatch, widened(kind, added)):
        _, read = decode(frames)
    n_items = n_rows * (2 if added.per is Per.PATH else 1)
    assert read.columns[added.name].tolist() == [added.otherwise] * n_items
    assert read.n_octets == batch.n_octets


def test_between_two_of_a_newer_version_nothing_is_lost(monkeypatch):
    """An added column arrives with its values."""
    with Version(monkeypatch, widened(ROUTES, ROW)) as kinds:
        batch = batch_of(kinds["RouteChanges"], 3, weight=np.array([1, 2, 3], np.uint32))
        _, read = decode(sent(batch))
    assert read.columns["weight"].tolist() == [1, 2, 3] and read.n_octets == batch.n_octets


@pytest.mark.parametrize("later", [None, [], [-1], ["x"], [1 << 40], [13]])
def test_what_a_newer_stage_says_of_its_columns_must_fit(monkeypatch, later):
    """A column of which nobody says how long it is, or says so wrongly, is a malformed batch."""
    with Version(monkeypatch, widened(ROUTES, ROW)) as kinds:
        header, *columns = sent(batch_of(kinds["RouteChanges"], SMALL))
    header = msgpack.unpackb(header)
    assert header["later"] == [4 * SMALL]
    header["later"] = later
    octets = msgpack.packb(header)
    if later == [13]:  # takes the same place as twelve
        decode([octets, *columns])
        return
    with pytest.raises(SchemaError):
        decode([octets, *columns])


def test_fewer_columns_than_every_version_has_are_no_batch():
    """Another fingerprint does not make a batch of half its columns."""
    header, *_ = sent(batch_of(ROUTES, 0))
    header = msgpack.unpackb(header) | {"v": "0" * 12, "n": [0, 0, 0]}
    with pytest.raises(SchemaError, match="3 counts for"):
        decode([msgpack.packb(header), b""])


def changed(kind: Kind, index: int, **how) -> tuple[Kind, ...]:
    columns = list(kind.columns)
    columns[index] = replace(columns[index], **how)
    return (Kind(kind.number, kind.name, kind.meaning, tuple(columns), kind.meta),)


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (KINDS, ""),
        ((widened(ROUTES, ROW), schema.SessionChanges), ""),
        ((widened(ROUTES, replace(ROW, otherwise=None)), schema.SessionChanges), "only one of both knows the column"),
        ((*changed(ROUTES, 5, name="verdict"), schema.SessionChanges), "column 6 is 'verdict u1 ROW ANY'"),
        ((*changed(ROUTES, 3, dtype="u8"), schema.SessionChanges), "column 4 is 'source u8 ROW SOURCE'"),
        ((*changed(ROUTES, 4, check=Check.ANY), schema.SessionChanges), "column 5 is"),
        ((ROUTES,), "knows no SessionChanges"),
        ((Kind(1, "Other", "", ROUTES.columns, ROUTES.meta), schema.SessionChanges), "number 1 is 'Other'"),
        ((Kind(1, "RouteChanges", "", ROUTES.columns, ("color",)), schema.SessionChanges), "header key 'color'"),
        ((ROUTES, schema.SessionChanges, widened(schema.VrpChanges, replace(ROW, otherwise=None))), ""),
    ],
)
def test_what_differs_is_said_by_name(theirs, words):
    """Added columns are no hindrance, on either side; all else on the channel's kinds is, and is named."""
    said = disagreement(description(theirs), kinds_of(CHANNEL))
    assert (words in said) if words else not said


@pytest.mark.parametrize("garbage", [None, 7, "", [], [1], [[1]], [[1, "RouteChanges", 3, 4]], [[[], "x", [], []]]])
def test_a_description_that_is_none_is_refused(garbage):
    """Whatever arrives in its place, the answer is a reason."""
    assert "the reader" in disagreement(garbage, kinds_of(CHANNEL))


def test_added_columns_are_of_rows_or_paths_and_at_the_end():
    """The declaration itself keeps the rule."""
    for kind in KINDS:
        later = [column.otherwise is not None for column in kind.columns]
        assert later == sorted(later)
        assert all(column.per in (Per.ROW, Per.PATH) for column in kind.columns if column.otherwise is not None)
    assert all(kinds_of(entry.pattern.replace("*", "x")) == entry.kinds for entry in CHANNELS)


def test_stages_of_two_versions_meet(world, make_owner, make_copy, monkeypatch):
    """A reader that knows a column more follows an owner that does not; it is said nowhere to be in the way."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 5)
    kinds = (widened(ROUTES, ROW), schema.SessionChanges)
    monkeypatch.setattr(wire, "FINGERPRINT", schema.fingerprint(kinds))
    monkeypatch.setattr(wire, "description", lambda: description(kinds))
    copy = make_copy()
    world.bus("fib").follow("speaker", "0", CHANNEL, copy.handle)
    world.settle()
    assert copy.values == {1: 5}


def test_one_that_was_refused_is_in_step_again_though_there_is_nothing_new(world, make_owner, make_copy, monkeypatch):
    """An owner of another version has come and gone; the reader is where it was, and knows it without a batch."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 5)
    copy = make_copy()
    follower = world.bus("fib").follow("speaker", "0", CHANNEL, copy.handle)
    world.settle()
    assert follower.is_in_step
    with monkeypatch.context() as other:
        other.setattr(server, "FINGERPRINT", "0" * 12)
        other.setattr(server, "disagreement", lambda theirs, kinds: "another meaning")
        follower.ask()
        world.settle()
        assert "another meaning" in follower.refused and not follower.is_in_step
    n_batches = len(copy.batches)
    for _ in range(4):
        world.clock.advance(1.1)
        world.settle()
    assert follower.is_in_step and follower.refused is None and len(copy.batches) == n_batches
