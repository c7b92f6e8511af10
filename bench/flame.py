"""A flame graph of one stage of Headrace, or of the feed, while a scenario is played; by py-spy, with native frames.

    scripts/flame rib full-table
    scripts/flame speaker route-server --size 5000 --output speaker.svg
    scripts/flame 4711 10

The last one records a process that runs already, for so many seconds.
"""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.bench_routers import Feed, standing  # noqa: E402
from bench.routers import Headrace, Router  # noqa: E402
from common.bus.question import ask  # noqa: E402
from stages.feed import scenario as scenarios  # noqa: E402

RATE = 250


def spy() -> str:
    """Return the path of py-spy, of this Python's environment or of the system."""
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise click.ClickException(f"py-spy is not installed: {sys.executable} -m pip install py-spy")
    return found


def start(pid: int, output: Path, *more: str) -> subprocess.Popen:
    """Begin to record a process; SIGINT ends it, and lets the graph be written."""
    command = [spy(), "record", "--native", "--rate", str(RATE), "--pid", str(pid), "--output", str(output), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(recording: subprocess.Popen, output: Path) -> None:
    """Wait until the graph is written."""
    errors = recording.communicate()[1]
    if not output.exists():
        raise click.ClickException(f"py-spy: {errors.strip()[-500:]}")


def pid_of(router: Router, stage: str) -> int:
    """Return the process id of a stage, named as `headrace show stages` does."""
    stages = ask(str(router.directory / "run"), "supervisor", "0", "status")["stages"]
    by_name = {each["stage"]: each["pid"] for each in reversed(stages)}
    by_name |= {f"{each['stage']}.{each['instance']}": each["pid"] for each in stages}
    if stage not in by_name:
        raise click.UsageError(f"no stage is called {stage!r}; there are feed, {', '.join(sorted(by_name))}")
    return by_name[stage]


@contextmanager
def recorded(pid: int, output: Path):
    """Have a process recorded over a block."""
    recording = start(pid, output)
    try:
        yield
    finally:
        recording.send_signal(signal.SIGINT)
        finish(recording, output)


@click.command()
@click.argument("what")
@click.argument("during")
@click.option("--size", default=0, help="Prefixes in each table instead of the scenario's.")
@click.option("--with-kernel", is_flag=True, help="Routes go into the kernel too.")
@click.option("--time-limit", default=120.0, show_default=True, help="Seconds for the scenario.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="(default: flame-WHAT.svg)")
def main(what: str, during: str, size: int, with_kernel: bool, time_limit: float, output: Path | None) -> None:
    """Record WHAT DURING: a stage (or feed) and a scenario, or a process id and a number of seconds; needs root."""
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    output = output or Path(f"flame-{what}.svg")
    output.unlink(missing_ok=True)
    if what.isdigit():
        finish(start(int(what), output, "--duration", during), output)
    else:
        play(what, during, size, with_kernel, time_limit, output)
    click.echo(output)


def play(stage: str, name: str, size: int, with_kernel: bool, time_limit_s: float, output: Path) -> None:
    """Play a scenario against Headrace, and record one stage from the first session to the last verdict."""
    try:
        scenario = scenarios.load(name, size=size)
    except scenarios.ScenarioError as error:
        raise click.UsageError(str(error)) from None
    with standing(Headrace, scenario, with_kernel) as routers:
        pid = None if stage == "feed" else pid_of(routers[0], stage)
        feed = Feed(name, size, time_limit_s)
        with recorded(pid or feed.process.pid, output):
            report = feed.wait_for("converged", "failed")
        feed.end()
    if report.get("reason"):
        click.echo(f"the scenario failed: {report['reason']}", err=True)


if __name__ == "__main__":
    main()
