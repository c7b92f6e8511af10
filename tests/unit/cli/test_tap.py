"""The rows and marks that `headrace tap` writes."""

import json
from ipaddress import ip_network

import numpy as np

from common.bgp.attributes import encode_set
from common.bus.batch import GAP, SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, Position
from common.bus.schema import NONE, BestChanges, RouteChanges, SessionChanges
from common.cli.tap import View, rows_of

SOURCES = [{"name": "transit-a"}, {"name": "transit-b"}]
SET = encode_set(next_hop=bytes([10, 0, 0, 1]), as_path=[64601, 64602])


def route_batch(**more) -> Batch:
    """10.0.0.0/8 announced by transit-a, 192.0.2.0/24 refused from transit-b, as policy writes it."""
    columns = {
        "hi": np.array([10 << 56, 0xC0000200 << 32], np.uint64),
        "lo": np.empty(0, np.uint64),
        "length": np.array([8, 24], np.uint8),
        "source": np.array([0, 1], np.uint32),
        "set": np.array([0, NONE], np.uint32),
        "reason": np.array([0, 4], np.uint8),
        "set_offset": np.array([0, len(SET)], np.uint32),
        "set_octets": np.frombuffer(SET, np.uint8),
    }
    meta = {"family": "ipv4-unicast", "sources": SOURCES}
    return Batch(RouteChanges, columns, meta, "adj-rib-in/ipv4-unicast", Position("e1", 7, -1), head=9, **more)


def lines_of(batch: Batch, **view) -> list[dict]:
    lines: list[str] = []
    View(True, write=lines.append, **view).show(batch)
    return [json.loads(line) for line in lines]


def test_route_rows():
    """A route is told with its attributes, one that is gone with the reason it was refused for."""
    announced, refused = rows_of(route_batch())
    assert (announced["prefix"], announced["neighbor"], announced["is_gone"]) == ("10.0.0.0/8", "transit-a", False)
    assert (announced["next_hop"], announced["as_path"]) == ("10.0.0.1", "64601 64602")
    assert refused == {
        "prefix": "192.0.2.0/24",
        "is_gone": True,
        "neighbor": "transit-b",
        "refused": "own AS in the path",
    }


def test_own_routes():
    """People are told that a route is our own; programs get the name as it is, which no neighbor can have."""
    batch = route_batch()
    batch.meta["sources"] = [{"name": ""}, {"name": "transit-b"}]
    lines: list[str] = []
    View(False, write=lines.append).show(batch)
    assert "neighbor (own) " in lines[0] and "neighbor transit-b " in lines[1]
    assert lines_of(batch)[0]["neighbor"] == ""


def test_marks_and_lag():
    """Gap, begin and end of a snapshot are marked, and each batch ends with its position and the lag."""
    lines = lines_of(route_batch(flags=GAP | SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END))
    assert [line.get("mark") for line in lines] == ["gap", "snapshot-begin", None, None, "snapshot-end", "position"]
    assert lines[-1]["sequence"] == 7 and lines[-1]["lag"] == 2


def test_filters():
    """--neighbor and --prefix leave the rows asked for, and all marks."""
    assert [line["prefix"] for line in lines_of(route_batch(), neighbor="transit-b") if "prefix" in line] == [
        "192.0.2.0/24"
    ]
    within = lines_of(route_batch(), within=ip_network("10.0.0.0/9"))
    assert [line["prefix"] for line in within if "prefix" in line] == []
    within = lines_of(route_batch(), within=ip_network("0.0.0.0/0"))
    assert len([line for line in within if "prefix" in line]) == 2


def test_best_rows():
    """A prefix without a path is gone, one with two paths is two rows with the reason of each."""
    columns = route_batch().columns | {
        "n_paths": np.array([2, 0], np.uint8),
        "path_source": np.array([0, 1], np.uint32),
        "path_set": np.array([0, 0], np.uint32),
        "path_reason": np.array([1, 1], np.uint8),
    }
    batch = Batch(BestChanges, columns, {"family": "ipv4-unicast", "sources": SOURCES, "view": "all"})
    rows = list(rows_of(batch))
    assert [(row["prefix"], row["is_gone"], row.get("neighbor")) for row in rows] == [
        ("10.0.0.0/8", False, "transit-a"),
        ("10.0.0.0/8", False, "transit-b"),
        ("192.0.2.0/24", True, None),
    ]


def test_session_rows():
    """What happened to a session is a row too."""
    columns = {"source": np.array([1], np.uint32), "event": np.array([3], np.uint8)}
    batch = Batch(SessionChanges, columns, {"family": "ipv4-unicast", "sources": SOURCES})
    assert list(rows_of(batch)) == [{"event": "session-end-of-rib", "neighbor": "transit-b"}]
