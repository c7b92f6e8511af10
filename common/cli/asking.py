"""Finds a running router and asks its stages over their control sockets.

Owns: how a command finds the run directory, and what it says when nobody answers. Never: asks twice what one stage
can answer once; long answers come in pages, so no stage is held up.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

DEFAULT_RUN_DIR = "/run/headrace"
PAGE = 1000
TIMEOUT_S = 5.0
REFUSED = 1


@dataclass(frozen=True, slots=True)
class Router:
    """A running router, known by its run directory."""

    run_dir: Path

    def instances(self, stage: str) -> list[str]:
        """Return the instances of a stage that have a control socket; exit when there is none."""
        sockets = sorted(self.run_dir.glob(f"{stage}.*.control"))
        if not sockets:
            say_and_exit(
                f"no {stage} answers in {self.run_dir}: is headrace running? (--run-dir or --config says where)"
            )
        return [path.name.split(".", 1)[1].removesuffix(".control") for path in sockets]

    def stages(self) -> list[tuple[str, str]]:
        """Return (stage, instance) of each control socket but the supervisor's."""
        names = (path.name.removesuffix(".control").split(".", 1) for path in sorted(self.run_dir.glob("*.control")))
        return [(name[0], name[1]) for name in names if len(name) == 2 and name[0] != "supervisor"]

    def _nobody(self, stage: str) -> str:
        return f"no {stage} answers in {self.run_dir}: is headrace running? (--run-dir or --config says where)"

    def ask(self, stage: str, question: str, instance: str = "0", **arguments: Any) -> dict:
        """Ask one stage; exit with its reason when it refuses, or when it does not answer."""
        answer = self.ask_or_error(stage, question, instance, **arguments)
        if isinstance(answer, str):
            say_and_exit(answer)
        return answer

    def ask_or_error(self, stage: str, question: str, instance: str = "0", **arguments: Any) -> dict | str:
        """Ask one stage; return its answer, or in words why there is none."""
        from common.bus.question import ControlError, ask

        if not (self.run_dir / f"{stage}.{instance}.control").exists():
            return self._nobody(stage)
        try:
            answer = ask(self.run_dir, stage, instance, question, timeout_s=TIMEOUT_S, **arguments)
        except (ControlError, TimeoutError, OSError) as error:
            return str(error)
        answer.pop("ok", None)
        return answer

    def pages(self, stage: str, question: str, instance: str, limit: int | None, **arguments: Any) -> Iterator[dict]:
        """Yield the rows of a long answer, at most `limit`."""
        after, n_left = None, limit
        while n_left is None or n_left > 0:
            size = PAGE if n_left is None else min(PAGE, n_left)
            answer = self.ask(stage, question, instance, after=after, limit=size, **arguments)
            rows = answer["routes"]
            yield from rows
            n_left = None if n_left is None else n_left - len(rows)
            after = answer.get("next")
            if after is None:
                return


def say_and_exit(reason: str) -> None:
    """Print why a command cannot be carried out, and exit with status 1."""
    click.echo(f"headrace: {reason}", err=True)
    sys.exit(REFUSED)


def asks_router(command: Callable) -> Callable:
    """Give a command the options that say where the router is."""
    options = (
        click.option("--run-dir", type=click.Path(path_type=Path), envvar="HEADRACE_RUN_DIR", help="Where it runs."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="Configuration file that says where."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def find_router(run_dir: Path | None, file: Path | None) -> Router:
    """Return the router that the options name."""
    if run_dir is None and file is not None:
        from common.cli.configuration import load_or_exit

        run_dir = load_or_exit(file).router.run_dir
    return Router(run_dir or Path(DEFAULT_RUN_DIR))
