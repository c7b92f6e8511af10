"""The command `headrace` itself: what it lists, and what it says of a word it does not know."""

import subprocess
import sys

import pytest
from click.testing import CliRunner

from common.cli.main import COMMANDS, main


@pytest.mark.parametrize(
    ("words", "meant"),
    [(("shwo",), "'show'"), (("releod",), "'reload'"), (("neighbors",), "'neighbor'"), (("xyzzy",), None)],
)
def test_a_command_there_is_not(words, meant):
    """The nearest one is told, none where nothing is near."""
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2 and f"No such command '{words[0]}'" in result.output
    assert (f"Did you mean {meant}?" in result.output) if meant else "Did you mean" not in result.output


@pytest.mark.parametrize("words", [(), ("show",), ("neighbor",), ("config",), ("keys",)])
def test_lists_of_commands_are_whole_sentences(words):
    """No sentence is cut off in the middle."""
    listed = CliRunner().invoke(main, [*words, "--help"]).output.partition("Commands:")[2]
    assert len(listed.splitlines()) > 2 and "..." not in listed


def test_each_command_has_help():
    """Every name in the list is a command."""
    for name in COMMANDS:
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


def test_show_starts_without_what_is_slow_to_import():
    """Ten lines are there in a tenth of a second; numpy is for those that need it, when they do."""
    asked = "import common.cli.show, sys; sys.exit('numpy' in sys.modules or 'common.config.load' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked]).returncode == 0
