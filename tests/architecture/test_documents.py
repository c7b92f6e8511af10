"""What README.md and ARCHITECTURE.md say of files, commands and configuration is true."""

import re
from pathlib import Path

import pytest

from common.cli.main import COMMANDS
from common.config import loads

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "ARCHITECTURE.md")
FOLDERS = ("stages/", "common/", "tests/", "scripts/", "bench/", "deploy/", ".ci/")


def paths_in(document: str) -> list[str]:
    """Return what stands in backticks or behind a link and looks like a path of this tree (NAME: any name)."""
    text = (ROOT / document).read_text()
    spans = [*re.findall(r"`([^`\s]+)`", text), *re.findall(r"\]\(([^)#:]+)\)", text)]
    return sorted({span for span in spans if span.startswith(FOLDERS) or re.fullmatch(r"[A-Za-z]+\.(md|py)", span)})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_exists(document):
    """No document names a file that is not there."""
    missing = [path for path in paths_in(document) if not list(ROOT.glob(path.replace("NAME", "*")))]
    assert missing == []
    assert len(paths_in(document)) > 5


def test_readme_configuration_loads():
    """The configuration in the README loads as it stands, and with what is said to be added to it."""
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    for text in (blocks[0], "\n".join(blocks)):
        assert len(loads(text).neighbors) == 2


def test_readme_commands_exist():
    """Each `headrace COMMAND` that a document shows is a command."""
    shown = {
        name for document in DOCUMENTS for name in re.findall(r"`headrace ([a-z-]+)", (ROOT / document).read_text())
    }
    assert shown <= set(COMMANDS)


def test_follow_one_route_is_about_ten_files():
    """The way of one route is told in about ten files, each opened once."""
    section = (ROOT / "README.md").read_text().split("## Follow one route")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| \d+ \| `([^`]+)`", section)
    assert 8 <= len(rows) <= 14
    assert len(set(rows)) == len(rows)
