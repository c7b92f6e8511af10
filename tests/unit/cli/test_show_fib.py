"""The command `show fib`, with a fib that answers as the real one does."""

import json

import pytest
from click.testing import CliRunner

from common.cli.asking import Router
from common.cli.main import main

COUNTS = {"wanted": 3, "installed": 2, "queued": 0, "unconfirmed": 0, "refused": {"EEXIST": 1}}
ANSWERS = {
    "status": {"table": 254, "namespace": "", "families": {"ipv4-unicast": COUNTS}},
    "nexthops": {"nexthops": [{"address": "192.0.2.10", "gateway": "", "reason": "no route to it"}]},
    "refused": {"routes": [{"prefix": "10.0.0.0/8", "reason": "a route of another program has this prefix"}]},
}


@pytest.fixture
def show(tmp_path, monkeypatch):
    """A run directory with the sockets of some instances of the fib."""
    monkeypatch.setattr(Router, "ask_or_error", lambda self, stage, question, instance="0", **more: ANSWERS[question])

    def call(instances: list[str], *words: str) -> str:
        for instance in instances:
            (tmp_path / f"fib.{instance}.control").touch()
        return CliRunner().invoke(main, ["show", "fib", *words, "--run-dir", str(tmp_path)]).output

    return call


def test_counts_next_hops_and_failures_with_their_reasons(show):
    """Counts by family, each next hop with why it cannot be used, each failed route with why it failed."""
    text = show(["0"])
    assert "ipv4-unicast" in text and "EEXIST 1" in text
    assert "no route to it" in text and "10.0.0.0/8  a route of another program" in text


def test_each_instance_has_its_rows(show):
    """With several instances each row names its own; JSON has all of all."""
    text = show(["0", "second"])
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["0", "second"]
    answers = json.loads(show(["0", "second"], "--json"))
    assert [one["instance"] for one in answers] == ["0", "second"] and answers[0]["status"] == ANSWERS["status"]
