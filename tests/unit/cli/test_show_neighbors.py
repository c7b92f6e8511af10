"""The commands `show neighbors` and `show neighbor`, with stages that answer as the real ones do."""

import json

import pytest
from click.testing import CliRunner

from common.cli.asking import Router
from common.cli.main import main

UP = {
    "name": "up", "address": "2001:db8::a", "asn": 64601, "external": True, "state": "Established", "since_s": 61,
    "reason": None, "retry_s": None, "last_error": "sent Hold Timer Expired", "n_received": 1005, "n_advertised": 7,
    "maximum_prefixes": 2000, "capabilities": ["route refresh"], "hold_time_s": 90, "hold_left_s": 71.6,
    "tables": {"ipv4-unicast": {"n_told": 3, "in_step": True, "group": "beef"}},
    "messages_received": {"OPEN": 1, "UPDATE": 4321}, "messages_sent": {"OPEN": 1, "UPDATE": 2},
}  # fmt: skip
DOWN = {**UP, "name": "down", "address": "10.0.0.2", "state": "Active", "n_received": 0, "last_error": "", "tables": {}}
GROUPS = [
    {"names": ["beef", "cafe"], "family": "ipv4-unicast", "routes_refused": {"no own address": 3000, "no-export": 1}},
    {"names": ["cafe"], "family": "ipv4-unicast", "routes_refused": {"x": 7}},
    {"names": ["beef"], "family": "ipv6-unicast", "routes_refused": {"x": 7}},
]
STOPPED, LIMIT = "stopped by an operator: lunch", "went beyond maximum_prefixes: 6, limit 5"
WAITS = "waits to be called, or to call again"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call `show ...` where two speakers have these neighbors, and ribs and policies answer what is given."""
    for name in ("speaker.0", "speaker.1", "rib.0", "rib.1", "policy.0", "policy.1", "exporter.0"):
        (tmp_path / f"{name}.control").touch()

    def make(*words: str, up: dict = UP, down: dict = DOWN, ribs: tuple = (), policies: tuple = ()):
        held = {"0": up, "1": down}

        def answer(self, stage, question, instance="0", **arguments):
            if stage == "speaker":
                return {"neighbors": [held[instance]]} if question == "neighbors" else dict(held[instance])
            if stage == "exporter":
                return {"groups": GROUPS}
            given = {"rib": ribs, "policy": policies}[stage]
            return given[int(instance)] if given else f"no question '{question}'"

        monkeypatch.setattr(Router, "ask_or_error", answer)
        return CliRunner().invoke(main, ["show", *words, "--run-dir", str(tmp_path)])

    return make


def accepted(n_up: int, is_current: bool = True) -> dict:
    return {"neighbors": {"up": n_up}, "is_current": is_current}


def line_of(result, name: str) -> str:
    return next(line for line in result.output.splitlines() if line.startswith(name))


@pytest.mark.parametrize(
    ("ribs", "n_refused"),
    [
        ((accepted(1000), accepted(2)), 3),
        ((accepted(1000), accepted(5)), 0),
        ((accepted(1000), accepted(2, is_current=False)), None),
        ((accepted(1000), "rib.1 does not run"), None),
        ((), None),
    ],
)
def test_what_was_refused(call, ribs, n_refused):
    """What came and no rib has: known only when all ribs say that they have everything, else left open."""
    row = line_of(call("neighbors", ribs=ribs), "up").split()
    told = ["1", "005", "7"] if n_refused is None else ["1", "005", str(n_refused), "7"]
    assert row == ["up", "2001:db8::a", "64601", "Established", "1m01s", *told]
    rows = {row["name"]: row for row in json.loads(call("neighbors", "--json", ribs=ribs).output)}
    assert rows["up"]["n_refused"] == n_refused and rows["up"]["n_received"] == 1005
    assert rows["down"]["n_refused"] == (None if n_refused is None else 0)


@pytest.mark.parametrize(
    ("reason", "error", "retry_s", "words"),
    [
        (WAITS, "Connection refused", 3.2, "Connection refused; tried again in 3s"),
        (WAITS, "", 3.2, f"{WAITS}; tried again in 3s"),
        ("waits to be called (passive)", "", None, "waits to be called (passive)"),
        ("waits after an error", "sent Hold Timer Expired", 64, "sent Hold Timer Expired; tried again in 1m04s"),
        (STOPPED, "sent Cease: x", None, f"{STOPPED}; until `headrace neighbor start down`"),
        (LIMIT, "sent Cease: x", 290, f"{LIMIT}; tried again in 4m50s"),
        (LIMIT, "sent Cease: x", None, f"{LIMIT}; until `headrace neighbor start down`"),
    ],
)
def test_why_there_is_no_session(call, reason, error, retry_s, words):
    """What matters most, and when it is tried again or what an operator can do; nothing of a session that stands."""
    is_held = reason in (STOPPED, LIMIT)
    down = {**DOWN, "reason": reason, "is_held": is_held, "last_error": error, "retry_s": retry_s}
    result = call("neighbors", down=down)
    assert line_of(result, "down").endswith(words) and line_of(result, "up").endswith(" 7")
    told = call("neighbor", "down", down=down).output
    assert reason in told and error in told and words.rpartition("; ")[2] in told


def test_all_about_a_neighbor(call):
    """In words, by name or address, with the reasons of all policies; what there is not is not mentioned."""
    policies = ({"neighbors": {"up": {"own AS": 2}}}, {"neighbors": {"up": {"own AS": 1, "martian": 1}, "x": {"y": 1}}})
    for name in ("up", "2001:DB8:0::A"):
        told = call("neighbor", name, ribs=(accepted(1000), accepted(2)), policies=policies).output
        lines = [" ".join(line.split()) for line in told.splitlines()]
        for line in (
            "up 2001:db8::a AS 64601, external",
            "state Established for 1m01s",
            "last error sent Hold Timer Expired",
            "hold time 90 s, 72 s left",
            "received 1 005 of at most 2 000 (maximum_prefixes)",
            "accepted 1 002",
            "refused 3",
            "refused so far own AS 3, martian 1",
            "not told so far no own address 3 000, no-export 1",
            "ipv4-unicast 3 yes beef",
            "UPDATE 4 321 2",
        ):
            assert line in lines
        assert "why" not in told and "router ID" not in told and " -" not in told
    answer = json.loads(call("neighbor", "up", "--json", ribs=(accepted(1), accepted(1)), policies=policies).output)
    assert answer["refusals"] == {"own AS": 3, "martian": 1} and answer["n_refused"] == 1003
    assert answer["left_out"] == GROUPS[0]["routes_refused"]


def test_while_routes_are_on_their_way(call):
    """No number is told that is not true."""
    told = call("neighbor", "up", ribs=(accepted(1000, is_current=False),) * 2).output
    assert "not known while routes are on their way" in told and "refused" not in told


def test_a_neighbor_nobody_has(call):
    """Status 1."""
    assert call("neighbor", "nobody").exit_code == 1
