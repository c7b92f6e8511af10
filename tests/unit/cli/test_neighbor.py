"""The commands `neighbor stop` and `neighbor start`, with speakers that answer as the real ones do."""

import pytest
from click.testing import CliRunner

from common.cli.asking import Router
from common.cli.main import main

HELD = {"0": [("transit-a", "10.77.0.10")], "edge": [("customer", "10.77.0.20")]}


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call `headrace neighbor ...`; return (result, what was asked but for the list of neighbors)."""
    for instance in HELD:
        (tmp_path / f"speaker.{instance}.control").touch()

    def make(*words: str, silent: str = ""):
        asked = []

        def answer(self, stage, question, instance="0", **arguments):
            if instance == silent:
                return f"{stage}.{instance} does not answer"
            if question == "neighbors":
                return {"neighbors": [{"name": name, "address": address} for name, address in HELD[instance]]}
            asked.append((question, instance, arguments))
            return {}

        monkeypatch.setattr(Router, "ask_or_error", answer)
        return CliRunner().invoke(main, ["neighbor", *words, "--run-dir", str(tmp_path)]), asked

    return make


@pytest.mark.parametrize("wanted", ["customer", "10.77.0.20"])
def test_the_speaker_that_holds_the_session_is_asked(call, wanted):
    """By name or address, and no other speaker is asked."""
    result, asked = call("stop", wanted, "--text", "night falls")
    assert result.exit_code == 0 and "customer: stopped" in result.output
    assert asked == [("neighbor-stop", "edge", {"name": "customer", "text": "night falls"})]
    result, asked = call("start", wanted)
    assert result.exit_code == 0 and "customer: started" in result.output
    assert asked == [("neighbor-start", "edge", {"name": "customer"})]


@pytest.mark.parametrize("command", ["stop", "start"])
def test_an_unknown_neighbor(call, command):
    """Nothing is stopped, and the nearest name of all speakers is told."""
    result, asked = call(command, "custmer")
    assert result.exit_code == 1 and 'did you mean "customer"?' in result.output and not asked


def test_a_silent_speaker_may_hold_it(call):
    """While a speaker does not answer, nobody says that there is no such neighbor; the others can be stopped."""
    result, asked = call("stop", "customer", silent="edge")
    assert result.exit_code == 1 and "speaker.edge does not answer" in result.output and not asked
    result, asked = call("stop", "transit-a", silent="edge")
    assert result.exit_code == 0 and asked
