"""Man pages and completions are made from the commands."""

import shutil
import subprocess

import pytest

from common.cli.main import COMMANDS
from common.cli.manual import completion, write_all


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    directory = tmp_path_factory.mktemp("manual")
    write_all(directory)
    return directory


def test_every_command_has_a_page(written):
    """Also those within others."""
    pages = {path.stem for path in (written / "man" / "man1").iterdir()}
    assert {f"headrace-{name}" for name in COMMANDS} | {"headrace", "headrace-show-route", "headrace-keys-new"} <= pages


def test_a_page_says_what_the_command_says(written):
    """Its sentence, its options."""
    page = (written / "man" / "man1" / "headrace-health.1").read_text()
    assert "Ask STAGE how it is" in page and "\\-\\-instance" in page and ".SH SYNOPSIS" in page


@pytest.mark.skipif(not shutil.which("man"), reason="needs man")
def test_pages_are_well_formed(written):
    """The formatter has nothing to complain about."""
    for path in (written / "man" / "man1").iterdir():
        command = ["man", "--warnings=w", "-E", "UTF-8", "-l", "-Tutf8", str(path)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert result.returncode == 0 and not result.stderr, result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """Each shell is given a script that asks the command itself."""
    assert "_HEADRACE_COMPLETE" in completion(shell)
