"""What is installed is whole, and what is packed holds what an installation needs, and nothing of its packer's own."""

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
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

# The list of files that `python -m build --sdist` packs; nothing is compiled for it.
PACKED = """
from setuptools import Distribution, Extension
kernel = Extension("common.kernels.scan", ["common/kernels/scan.c"])
distribution = Distribution({"ext_modules": [kernel], "script_name": "setup.py"})
distribution.parse_config_files()
command = distribution.get_command_obj("egg_info")
command.ensure_finalized()
command.run()
print("\\n".join(command.filelist.files))
"""
SOURCES = (
    "common",
    "stages",
    "deploy",
    "scripts",
    "README.md",
    "ARCHITECTURE.md",
    "MANIFEST.in",
    "pyproject.toml",
    "setup.py",
)
NOT_SOURCES = ("__pycache__", "*.so", "*.c", "*.secret", "keys", "headrace.egg-info")
PRIVATE = (
    *(f"common/kernels/scan.{ending}" for ending in ("c", "cpython-311-x86_64-linux-gnu.so")),
    *(f"{place}/__pycache__/x.cpython-311.pyc" for place in ("common", "scripts")),
    *(f"deploy/{place}" for place in ("containers/headrace.toml", "containers/keys/rib/note", "speaker.secret")),
    *(f"deploy/containers/{place}keys/rib/rib.secret" for place in ("", "kubernetes/")),
    "tests/unit/test_x.py", "bench/results/run.json", ".venv/bin/python", ".git/config", "headrace.toml", "build/x.o",
)  # fmt: skip


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> tuple[set[str], set[str]]:
    """Return what is packed of a checkout in which people have worked, and what of it is the project's."""
    checkout = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns(*NOT_SOURCES))
        else:
            shutil.copy(ROOT / name, checkout / name)
    (checkout / "deploy/containers/headrace.toml").unlink(missing_ok=True)
    ours = {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()}
    for name in PRIVATE:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text("private")
    done = subprocess.run([sys.executable, "-c", PACKED], cwd=checkout, capture_output=True, text=True, check=True)
    return {line for line in done.stdout.splitlines() if "egg-info/" not in line}, ours


def test_a_source_distribution_holds_the_project(packed):
    """Modules, kernels, the page, the scenarios, what is deployed, the scripts; nobody's keys, objects or notes."""
    files, ours = packed
    assert {path for path in files if (ROOT / path).is_file() or path in PRIVATE} == ours


def test_what_the_readme_of_the_deployment_installs_is_packed(packed):
    """Each path its commands name is there; so is what the image is built from."""
    text = (ROOT / "deploy/README.md").read_text()
    named = set(re.findall(r"(?:deploy|scripts)/[\w./*-]+\w", text)) - {"deploy/containers/kubernetes/keys/rib"}
    copied = re.findall(r"(?m)^COPY (?!--from)(.*) \S+$", (ROOT / "deploy/containers/Containerfile").read_text())
    assert len(named) > 5 and len(copied) == 3
    for path in (*named, *" ".join(copied).split()):
        assert any(fnmatch(file, path) or file.startswith(f"{path}/") for file in packed[0]), path


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
