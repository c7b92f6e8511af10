"""The README's demo, at a small size."""

import subprocess
import sys

from tests.processes.router import DEADLINE_S, ROOT


def demo(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "scripts/demo.py", "--once", *words],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )


def test_demo_shows_its_figures():
    """The demo ends by itself with times and the memory of each stage, and nothing is missing at the listener."""
    result = demo("--size", "2000")
    assert result.returncode == 0, result.stderr
    assert "missing / too many there  0 / 0" in result.stdout
    assert "listener held all after" in result.stdout
    assert all(f"{stage}.0" in result.stdout for stage in ("speaker", "policy", "rib", "exporter", "status"))


def test_demo_takes_prefixes_from_a_list(tmp_path):
    """The synthetic table can take its prefixes from a list file."""
    file = tmp_path / "prefixes.txt"
    file.write_text("".join(f"11.{n}.0.0/16 64500\n" for n in range(50)))
    result = demo("--prefixes", str(file))
    assert result.returncode == 0, result.stderr
    assert "routes sent               50 in" in result.stdout


def test_demo_says_what_is_wrong(tmp_path):
    """A list that has something else in it ends the demo with its name and line."""
    file = tmp_path / "prefixes.txt"
    file.write_text("11.0.0.0/16\nnothing\n")
    result = demo("--prefixes", str(file))
    assert result.returncode == 1
    assert "line 2" in result.stderr and "Traceback" not in result.stderr
