"""The exporter between a rib and two groups, over the memory transport."""

import numpy as np
import pytest

from common.bgp.reasons import ExportRefusal
from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END, START
from common.bus.channels import adj_rib_out
from common.bus.journal import JournalSource
from common.bus.schema import NONE, BestChanges
from common.config.digest import policy_digest
from common.config.load import loads
from common.kernels.journal import Journal
from stages.exporter.stage import STAGE
from tests.oracles import dress as sets
from tests.unit.bus.conftest import World
from tests.unit.stages.policy.test_policy_stage import start

CHANNEL = adj_rib_out("ipv4-unicast")
CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
[[neighbor]]
name = "peer"
address = "10.77.0.20"
local_address = "10.77.0.1"
asn = 64700
export = {{ as_path_prepend = {} }}
[[neighbor]]
name = "core"
address = "10.77.0.30"
asn = 65000
"""
SOURCE = {
    "name": "transit",
    "asn": 64601,
    "local_asn": 65000,
    "router_id": 7,
    "address": b"\x0a\x4d\0\x0a",
    "external": True,
    "rr_client": False,
    "path_id": 0,
}
PEER = {"group": 1, "neighbors": ["peer"], "external": True, "asn4": True, "local_asn": 65000, "next_hop": bytes(4)}
CORE = {**PEER, "group": 2, "neighbors": ["core"], "external": False}


class Rib:
    """A Loc-RIB of (row -> origin AS), 0 is gone."""

    def __init__(self, world: World):
        self.asns: dict[int, int] = {}
        self.journal = Journal(12)
        self.n_requests = 0
        self.source = JournalSource(self.journal, BestChanges, self.gather, lambda: max(self.asns) + 1, epoch="r1")
        world.bus("rib").serve().add("loc-rib/*", self.open)

    def open(self, request):
        self.n_requests += 1
        assert request.params["view"] == "best"
        return self.source

    def put(self, row: int, asn: int) -> None:
        self.asns[row] = asn
        self.journal.ensure_rows(64)
        self.journal.append(np.array([row], np.uint32))

    def gather(self, rows, is_snapshot: bool):
        rows = [row for row in rows.tolist() if self.asns.get(row) or not is_snapshot]
        octets = [attribute_set(self.asns[row]) for row in rows if self.asns[row]]
        n = len(octets)
        columns = {
            "hi": np.array(rows, np.uint64),
            "length": np.full(len(rows), 32, np.uint8),
            "n_paths": np.array([self.asns[row] > 0 for row in rows], np.uint8),
            "path_source": np.zeros(n, np.uint32),
            "path_set": np.arange(n, dtype=np.uint32),
            "path_reason": np.zeros(n, np.uint8),
            "set_offset": np.cumsum([0, *map(len, octets)], dtype=np.uint32),
            "set_octets": np.frombuffer(b"".join(octets), np.uint8),
        }
        return columns, {"family": "ipv4-unicast", "sources": [SOURCE], "view": "best"}


def attribute_set(asn: int) -> bytes:
    return sets.encode(b"\x0a\x4d\0\x0a", {1: (0x40, b"\0"), 2: (0x40, sets.path_of([(2, [asn])], 4))})


class Told:
    """What a group is told: {row: the AS numbers of the path}."""

    def __init__(self):
        self.paths: dict[int, list[int]] = {}
        self.flags: list[int] = []

    def handle(self, batch) -> None:
        self.flags.append(batch.flags)
        columns = batch.columns
        for row, number in zip(columns["hi"].tolist(), columns["set"].tolist(), strict=True):
            self.paths.pop(row, None)
            if number != NONE:
                start, end = columns["set_offset"][number : number + 2].tolist()
                value = sets.decode(columns["set_octets"][start:end].tobytes())[1][2][1]
                self.paths[row] = sets.segments_of(value)[0][1]


@pytest.fixture
def world():
    return World()


def follow(world, params, told, **more):
    bus = world.buses.get("speaker") or world.bus("speaker")
    return bus.follow("exporter", "0", CHANNEL, told.handle, params=params, position=START, **more)


def test_each_group_is_told_in_its_own_words(world):
    """Two groups follow one Loc-RIB: own AS before the path outside, unchanged inside; changes and removals follow."""
    rib = Rib(world)
    stage = start(world, STAGE, CONFIG.format(0))
    rib.put(1, 100)
    rib.put(2, 200)
    outside, inside = Told(), Told()
    follow(world, PEER, outside)
    follow(world, CORE, inside)
    world.settle()
    assert outside.paths == {1: [65000, 100], 2: [65000, 200]}
    assert inside.paths == {1: [100], 2: [200]}
    assert outside.flags[0] & SNAPSHOT_BEGIN and outside.flags[-1] & SNAPSHOT_END
    rib.put(1, 0)
    rib.put(2, 300)
    world.settle()
    assert outside.paths == {2: [65000, 300]} and inside.paths == {2: [300]}
    assert rib.n_requests == 2
    assert {(*group["names"], *group["neighbors"]) for group in stage.status()["groups"]} == {
        ("1", "peer"),
        ("2", "core"),
    }


def test_a_group_that_is_not_described_is_refused(world):
    """A request without usable parameters gets the reason, not an empty table."""
    Rib(world)
    start(world, STAGE, CONFIG.format(0))
    reasons = []
    follow(world, {"group": 1}, Told(), on_refused=reasons.append)
    world.settle()
    assert len(reasons) == 1 and "neighbors" in reasons[0]


def test_a_reload_tells_the_groups_anew(world):
    """Another export block makes a snapshot; positions go on afterwards."""
    rib = Rib(world)
    stage = start(world, STAGE, CONFIG.format(0))
    rib.put(1, 100)
    told = Told()
    follow(world, PEER, told)
    world.settle()
    stage.reload(loads(CONFIG.format(2)))
    rib.put(2, 200)
    world.settle()
    assert told.paths == {1: [65000] * 3 + [100], 2: [65000] * 3 + [200]}
    assert sum(bool(flags & SNAPSHOT_BEGIN) for flags in told.flags) == 2


def test_a_group_with_a_named_policy_keeps_it(world):
    """A reload leaves groups alone: the speaker asks for the new policy, and is refused until that is known here."""
    rib = Rib(world)
    old, new = loads(CONFIG.format(0)), loads(CONFIG.format(2))
    stage = start(world, STAGE, CONFIG.format(0))
    rib.put(1, 100)
    kept, moved, reasons = Told(), Told(), []
    follow(world, {**PEER, "policy": policy_digest(old.neighbors["peer"].export)}, kept)
    follow(world, {**PEER, "policy": policy_digest(new.neighbors["peer"].export)}, moved, on_refused=reasons.append)
    world.settle()
    assert len(reasons) == 1 and "read the configuration again" in reasons[0]
    stage.reload(new)
    rib.put(2, 200)
    world.wait(1)
    assert kept.paths == {1: [65000, 100], 2: [65000, 200]}
    assert sum(bool(flags & SNAPSHOT_BEGIN) for flags in kept.flags) == 1
    assert moved.paths == {1: [65000] * 3 + [100], 2: [65000] * 3 + [200]}


def test_a_tap_names_a_neighbor(world):
    """What one neighbor is told can be followed by its name alone."""
    rib = Rib(world)
    start(world, STAGE, CONFIG.format(1))
    rib.put(1, 100)
    told = Told()
    follow(world, {"neighbor": "peer", "tap": True}, told)
    world.settle()
    assert told.paths == {1: [65000, 65000, 100]}


def test_explain_says_what_a_neighbor_is_told_and_why_not(world):
    """The same evaluation as for a batch, for single routes."""
    stage = start(world, STAGE, CONFIG.format(0))
    kept_back = sets.encode(b"\x0a\x4d\0\x0a", {1: (0x40, b"\0"), 8: (0xC0, sets.put(0xFFFFFF01))})
    question = {
        "family": "ipv4-unicast",
        "params": {"neighbor": "peer"},
        "sources": [SOURCE],
        "routes": [
            {"source": 0, "set": attribute_set(5), "prefix": "198.51.100.0/24"},
            {"source": 0, "set": kept_back, "prefix": "198.51.100.0/24"},
        ],
    }
    told, not_told = stage.controls()["explain"](question)["routes"]
    assert told["refusal"] == 0 and sets.decode(told["set"])[0] == b"\x0a\x4d\0\1"
    assert not_told == {
        "refusal": int(ExportRefusal.NO_EXPORT),
        "reason": ExportRefusal.NO_EXPORT.words,
        "set": None,
    }
