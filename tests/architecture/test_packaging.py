"""What is installed is whole: the files that are read at run time go where the modules go."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = """
from setuptools import Distribution
from setuptools.command.build_py import build_py
distribution = Distribution()
distribution.parse_config_files()
distribution.include_package_data = False
command = build_py(distribution)
command.finalize_options()
for package, source, _, names in command.data_files:
    for name in names:
        print(f"{source}/{name}")
"""


@pytest.fixture(scope="module")
def installed() -> set[str]:
    """Paths of the files, other than modules, that an installation has."""
    done = subprocess.run([sys.executable, "-c", SHOW], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("ending", ["toml", "html", "css", "js"])
def test_files_beside_modules_are_installed(installed, ending):
    """Every scenario and every part of the page is installed with the package it lies in."""
    beside = {str(path.relative_to(ROOT)) for top in ("common", "stages") for path in (ROOT / top).rglob(f"*.{ending}")}
    assert beside <= installed


def test_scenarios_are_among_them(installed):
    """The shipped scenarios are installed."""
    assert "stages/feed/scenarios/full-table.toml" in installed
