"""The commands that start stages: `run` (all, under one supervisor) and `stage` (one alone).

Never: does a stage's work; it reads the configuration and hands over.
"""

import sys
from pathlib import Path

import click

from common.cli.configuration import load_or_exit


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def run(file: Path) -> None:
    """Run all stages of FILE under one supervisor, in the foreground, until SIGTERM or Ctrl-C.

    A stage that dies is started again. At the end all stop in order, with a Cease to every peer.
    """
    config = load_or_exit(file)
    from common.runtime.supervisor import run_supervisor

    sys.exit(run_supervisor(config))


@click.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--instance", default="0", show_default=True, help="Which instance of the stage this is.")
def stage(name: str, file: Path, instance: str) -> None:
    """Run the stage NAME of FILE alone: what a systemd unit or a container runs."""
    config = load_or_exit(file)
    from common.runtime.stage import run_stage

    sys.exit(run_stage(name, config, instance))
