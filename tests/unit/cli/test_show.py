"""The commands `show`, with stages that answer as the real ones do."""

import copy
import json

import pytest
from click.testing import CliRunner

from common.cli.asking import Router
from common.cli.main import main

READER = {
    "reader": "policy.0", "channel": "adj-rib-in/ipv4-unicast", "tap": False,
    "epoch": "e1", "sequence": 17, "cursor": -1,
    "lag": 3, "credit": 96,
}  # fmt: skip
STATUS = {
    "pid": 0, "uptime_s": 100.0, "state": "in step", "state_since_s": 90.0, "missing": [], "compiled": True,
    "bus": {"readers": [READER], "followers": []},
}  # fmt: skip
ANSWERS = {
    ("speaker", "neighbors"): {"neighbors": [{"name": "transit-a", "address": "2001:db8::a", "asn": 64601}]},
    ("rib", "route"): {
        "prefix": "10.0.0.0/8",
        "candidates": [
            {"neighbor": "transit-a", "is_chosen": True, "why": "shorter AS path"},
            {"neighbor": "transit-b", "is_chosen": False, "why": "longer AS path"},
        ],
    },
    ("speaker", "lookup"): {
        "prefix": "10.0.0.0/8",
        "routes": [
            {"neighbor": name, "path_id": 0, "set": b"", "source": {"name": name}}
            for name in ("transit-a", "transit-c")
        ],
    },
    ("policy", "explain"): {"routes": [{"refusal": 4, "reason": "own AS in the path", "set": None}]},
    ("supervisor", "status"): {
        "pid": 1,
        "stages": [
            {
                "stage": "rib",
                "instance": "0",
                "pid": 0,
                "state": "running",
                "restarts": 2,
                "reasons": ["signal SIGSEGV"],
            },
            {"stage": "fib", "instance": "0", "pid": 0, "state": "waiting", "restarts": 1, "reasons": []},
        ],
    },
    ("rib", "status"): {**STATUS, "state": "syncing", "missing": ["policy.0:adj-rib-in/ipv4-unicast"]},
    ("speaker", "status"): STATUS,
}


@pytest.fixture
def router(tmp_path, monkeypatch):
    """A run directory with sockets, and stages that give ANSWERS."""
    for stage in ("speaker", "rib", "fib", "supervisor"):
        (tmp_path / f"{stage}.0.control").touch()
    asked = []

    def answer(self, stage, question, instance="0", **arguments):
        asked.append((stage, question, arguments))
        if arguments.get("name", "transit-a") != "transit-a":
            return "no neighbor"
        return copy.deepcopy(ANSWERS.get((stage, question), "no answer"))

    monkeypatch.setattr(Router, "ask_or_error", answer)
    return lambda *words: CliRunner().invoke(main, ["show", *words, "--run-dir", str(tmp_path)]), asked


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("transit-b", "no neighbor 'transit-b' (did you mean \"transit-a\"?)"),
        ("2001:db8::b", '(did you mean "2001:db8::a"?)'),
        ("zzz", "no neighbor 'zzz'; there are transit-a"),
    ],
)
def test_unknown_neighbor(router, wanted, words):
    """The nearest name or address is told, or those there are; no routes are asked for either."""
    call, asked = router
    for command in (("neighbor", wanted), ("routes", "--received", wanted)):
        result = call(*command)
        assert result.exit_code == 1 and words in result.output
    assert {question for _, question, _ in asked} == {"neighbors"}


def test_route(router):
    """`show route` marks the chosen path and says why each other lost."""
    call, _ = router
    lines = call("route", "10.0.0.0/8").output.splitlines()
    assert lines[0] == "10.0.0.0/8"
    assert lines[2].startswith("*  transit-a") and lines[3].endswith("longer AS path")


def test_route_shows_communities_and_whose_an_own_route_is(router, monkeypatch):
    """People see communities as well, and a route that is originated here is said to be our own."""
    candidates = [
        {"neighbor": "", "is_chosen": True, "as_path": "", "why": "higher degree of preference"},
        {"neighbor": "transit-a", "as_path": "64601", "communities": ["65000:1", "65000:2"], "why": "lower"},
    ]
    monkeypatch.setitem(ANSWERS, ("rib", "route"), {"prefix": "10.0.0.0/8", "candidates": candidates})
    call, _ = router
    _, _, own, learned, *_ = call("route", "10.0.0.0/8").output.splitlines()
    assert own.split()[:2] == ["*", "(own)"] and "65000:1 65000:2" in learned


def test_route_shows_what_policy_refuses(router):
    """A route received that is no candidate stands there too, with policy's reason."""
    call, asked = router
    refused = json.loads(call("route", "10.0.0.0/8", "--json").output)["candidates"][2]
    assert refused == {
        "neighbor": "transit-c",
        "path_id": 0,
        "is_chosen": False,
        "why": "refused: own AS in the path",
    }
    explained = [arguments for _, question, arguments in asked if question == "explain"]
    assert [source["name"] for source in explained[0]["sources"]] == ["transit-c"]


def test_stages(router):
    """`show stages` joins what the supervisor knows with what answers by itself."""
    call, _ = router
    rows = {row["stage"]: row for row in json.loads(call("stages", "--json").output)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "rib": "syncing",
        "fib": "waiting",
        "speaker": "in step",
    }
    assert rows["rib"]["missing"] == ["policy.0:adj-rib-in/ipv4-unicast"] and rows["rib"]["kernels"] == "compiled"


def test_stages_as_a_table(router):
    """People are shown state, whom it waits for, how far the slowest reader is behind, and why a stage ended."""
    call, _ = router
    header, *rows = call("stages").output.splitlines()
    assert header.split() == ["stage", "pid", "state", "up", "restarts", "lag", "waits", "for"]
    rib = next(row for row in rows if row.startswith("rib.0"))
    assert rib.split() == ["rib.0", "0", "syncing", "for", "1m30s", "1m40s", "2", "3", "policy.0"]
    assert "rib.0 ended: signal SIGSEGV" in rows and "kernels: compiled" in rows
    readers = [row.split() for row in rows[rows.index("") + 1 :]]
    assert readers[0] == ["read", "from", "by", "channel", "position", "lag"]
    assert ["rib.0", READER["reader"], READER["channel"], str(READER["sequence"]), "3"] in readers


def test_the_summary_of_stages_stays_narrow(router, monkeypatch):
    """Whatever a stage owns, waits for or has to complain of; taps that lag are nobody's trouble."""
    long = {
        **STATUS,
        "pid": 4194304,
        "compiled": False,
        "missing": [f"{stage}.0:loc-rib/{family}" for stage in ("policy", "rib") for family in ("ipv4", "ipv6") * 9],
        "owns": [f"ipv4-unicast for customer-{number} of speaker.0, rib.0" for number in range(50)],
        "bus": {"readers": [READER, {**READER, "lag": 5}, {**READER, "tap": True, "lag": 10**9}]},
        "events": {"log-unwritable": 10**9},
    }
    monkeypatch.setitem(ANSWERS, ("rib", "status"), long)
    call, _ = router
    lines = call("stages").output.splitlines()
    rib = next(line for line in lines if line.startswith("rib.0"))
    assert max(map(len, lines)) <= 110 and rib.split()[6:8] == ["5", "1"] and "policy.0, rib.0" in rib
    assert "kernels: compiled, but not of rib.0" in lines
    assert "rib.0: 1000000000 lines could not be logged" in lines


@pytest.mark.parametrize("name", ["rib", "rib.0"])
def test_one_stage_in_full(router, name):
    """All channels it waits for, all it has died of, and each of its readers with position and lag; no other stage."""
    call, asked = router
    asked.clear()
    lines = [line.split() for line in call("stages", name).output.splitlines()]
    assert ["policy.0:adj-rib-in/ipv4-unicast"] in lines and ["signal", "SIGSEGV"] in lines
    assert ["state", "syncing", "for", "1m30s"] in lines and ["kernels", "compiled"] in lines
    assert ["policy.0", "adj-rib-in/ipv4-unicast", "e1", "17", "3", "96"] in lines
    assert {stage for stage, _, _ in asked} == {"supervisor", "rib"}


def test_a_stage_there_is_not(router):
    """Those there are are named."""
    call, _ = router
    result = call("stages", "ribb")
    assert result.exit_code == 1 and "no stage 'ribb'; there are rib.0, fib.0, speaker.0" in result.output


def test_nobody_there(tmp_path):
    """Without a router the command says so and ends with status 1."""
    result = CliRunner().invoke(main, ["show", "neighbors", "--run-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert "is headrace running?" in result.output
