"""A batch split by where its routes come from."""

import numpy as np
import pytest

from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, START, Batch, Position, decode, encode
from common.bus.parts import by_source
from common.bus.schema import NONE, BestChanges, ExportChanges, RouteChanges, SessionChanges

BEFORE, AFTER = Position("e1", 5, -1), Position("e1", 9, -1)
NAMES = ("a", "b", "c")
SETS = (b"\4\1\1\1\1one", b"\4\2\2\2\2three", b"\4\3\3\3\3five!")


def columns(kind, sources, sets, n_paths=None):
    n = len(sources) if n_paths is None else len(n_paths)
    made = {
        "hi": np.arange(n, dtype=np.uint64) << np.uint64(40),
        "lo": np.empty(0, np.uint64),
        "length": np.full(n, 24, np.uint8),
        "set_offset": np.cumsum([0, *map(len, SETS)]).astype(np.uint32),
        "set_octets": np.frombuffer(b"".join(SETS), np.uint8),
    }
    prefix = "path_" if kind is BestChanges else ""
    made |= {f"{prefix}source": np.array(sources, np.uint32), f"{prefix}set": np.array(sets, np.uint32)}
    if kind is BestChanges:
        made |= {"n_paths": np.array(n_paths, np.uint8), "path_reason": np.zeros(len(sources), np.uint8)}
    if kind is RouteChanges:
        made["reason"] = np.zeros(n, np.uint8)
    return made


def batch_of(kind, sources, sets, n_paths=None, flags=0):
    meta = {"family": "ipv4-unicast", "sources": [{"name": name} for name in NAMES], "view": "best"}
    return Batch(kind, columns(kind, sources, sets, n_paths), meta, "channel", AFTER, 5, 9, flags)


def told(batches):
    """Return (prefix, source, set octets) of each path of batches, and of rows without one."""
    found = []
    for batch in batches:
        _, batch = decode([bytes(memoryview(frame)) for frame in encode(batch, 1)])  # well-formed, every index in range
        parts = batch.columns
        octets, offset = parts["set_octets"].tobytes(), parts["set_offset"]
        prefix = "path_" if batch.kind is BestChanges else ""
        hi = np.repeat(parts["hi"], parts["n_paths"]) if prefix else parts["hi"]
        for row, source, index in zip(hi, parts[f"{prefix}source"], parts[f"{prefix}set"], strict=True):
            name = None if source == NONE else batch.meta["sources"][source]["name"]
            value = None if index == NONE else octets[offset[index] : offset[index + 1]]
            found.append((int(row) >> 40, name, value))
        if prefix:
            found += [(int(row) >> 40, None, None) for row in parts["hi"][parts["n_paths"] == 0]]
    return sorted(found, key=repr)


CASES = {
    "routes": batch_of(RouteChanges, [0, 1, 0, 2, 1], [0, 1, NONE, 2, 0]),
    "exports": batch_of(ExportChanges, [0, NONE, 1, 1], [0, NONE, 1, 2]),
    "best": batch_of(BestChanges, [0, 1, 0], [0, 1, 2], [1, 0, 1, 1]),
    "all": batch_of(BestChanges, [0, 1, 2, 0], [0, 1, 2, 2], [2, 0, 1, 1]),
}


@pytest.mark.parametrize("name", CASES)
def test_parts_tell_together_what_the_batch_tells(name):
    """No row is lost or told twice, and each part is a batch that can be understood alone."""
    batch = CASES[name]
    parts = by_source(batch, BEFORE)
    assert len(parts) > 1 and told(parts) == told([batch])
    assert sum(part.n_octets for part in parts) >= batch.n_octets, "so that giving credit back for each is enough"
    if name != "all":
        assert all(len(part.meta["sources"]) <= 1 for part in parts)
    for part in parts:
        index = part.columns["path_set" if part.kind is BestChanges else "set"]
        assert len(part.columns["set_offset"]) - 1 == len(set(index[index != NONE].tolist())), "only its own sets"


def test_marks_and_positions_of_parts():
    """Only the first part begins a snapshot, only the last ends it and acknowledges the whole."""
    flags = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END
    parts = by_source(batch_of(RouteChanges, [0, 1, 2], [0, 1, 2], flags=flags), BEFORE)
    assert [part.flags for part in parts] == [SNAPSHOT_BEGIN | SNAPSHOT, SNAPSHOT, SNAPSHOT | SNAPSHOT_END]
    assert [part.position for part in parts] == [START, START, AFTER]
    parts = by_source(batch_of(RouteChanges, [0, 1, 2], [0, 1, 2]), BEFORE)
    assert [part.position for part in parts] == [BEFORE, BEFORE, AFTER]


def test_what_cannot_be_split_is_left_alone():
    """Batches of one source, without routes, or of another kind are handled as they are."""
    one = batch_of(RouteChanges, [0], [0])
    one.meta["sources"] = one.meta["sources"][:1]
    sessions = Batch(
        SessionChanges, {"source": np.array([0, 1], np.uint32), "event": np.ones(2, np.uint8)}, dict(one.meta)
    )
    for batch in (one, sessions, batch_of(RouteChanges, [], [])):
        assert by_source(batch, BEFORE) == [batch]
