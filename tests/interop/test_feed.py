"""The feed against other daemons: it loads them, judges them, and they survive what it throws at them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import topology
from bench.bench_routers import standing
from bench.routers import Bird, Frr
from stages.feed import scenario as scenarios

pytestmark = pytest.mark.namespaces

ROOT = Path(__file__).parents[2]
EXACT = {"missing": 0, "extra": 0, "wrong": 0, "returned": 0}
# What these versions answer otherwise than the RFCs say.
KNOWN = {
    Bird: {"keepalive-with-body"},
    Frr: {
        "mp-reach-twice", "origin-of-7", "origin-of-two-octets", "as-path-cut", "as-path-bad-segment", "wrong-flags",
        "attribute-twice", "unknown-well-known",
    },
}  # fmt: skip


def played(kind, name: str, size: int, report: Path) -> tuple[int, dict]:
    """Play a scenario against a router in namespaces; return the exit status and the report."""
    with standing(kind, scenarios.load(name, size=size)):
        done = subprocess.run(
            topology.inside(
                topology.PEERS, sys.executable, "-m", "stages.feed.command", name, "--size", str(size),
                "--json", str(report), "--time-limit", "120",
            ),
            capture_output=True, text=True, cwd=ROOT, timeout=180,
        )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    return done.returncode, json.loads(report.read_text())


@pytest.mark.parametrize("kind", [Bird, Frr])
def test_full_table(kind, tmp_path):
    """A table goes through the daemon, and the listener comes to hold exactly that, with the right attributes."""
    status, report = played(kind, "full-table", 5000, tmp_path / "report.json")
    assert status == 0 and report["verdict"]["listener"] == EXACT
    listener = report["neighbors"]["listener"]
    assert (listener["held"], listener["wrong_first_as"], listener["invalid_updates"]) == (5000, 0, 0)
    assert 0 < listener["first_update_s"] <= listener["complete_s"]


def test_mesh(tmp_path):
    """Two routers with an internal session tell each other's neighbors all, and nothing comes from nowhere."""
    status, report = played(Bird, "mesh", 3000, tmp_path / "report.json")
    assert status == 0 and report["verdict"] == {"left": EXACT, "right": EXACT}
    assert all(each["held"] > 1000 for each in report["neighbors"].values())


@pytest.mark.parametrize("kind", [Bird, Frr])
def test_garbage(kind, tmp_path):
    """The daemon answers each kind of garbage as the RFCs say but for what is known, and the table beside it stands."""
    hasty = tmp_path / "garbage.toml"
    hasty.write_text(scenarios.text_of("garbage").replace('["vandal"]', '["vandal"]\nanswer_s = 0.3'))
    _, report = played(kind, str(hasty), 500, tmp_path / "report.json")
    (step,) = (step for step in report["steps"] if step["do"] == "garbage")
    assert step["kinds"] > 25 and set(step["wrong"]) <= KNOWN[kind], step
    assert report["verdict"]["listener"] == EXACT
