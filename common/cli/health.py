"""The command `health`: asks one stage how it is, for health checks and probes.

Never: judges by anything but the stage's own answer.
"""

import sys

import click

from common.cli.asking import asks_router, find_router
from common.config.schema import STAGES


@click.command()
@click.argument("stage")
@click.option(
    "--instance",
    default="0",
    show_default=True,
    envvar="HEADRACE_INSTANCE",
    help="Which instance of the stage.",
)
@click.option("--alive", is_flag=True, help="Ask only whether it answers, not whether it is in step.")
@asks_router
def health(run_dir, file, stage: str, instance: str, alive: bool) -> None:
    """Ask STAGE how it is. Exit status 0 when it is in step, 1 when it is not or does not answer."""
    if stage not in STAGES:
        raise click.BadParameter(f"no stage {stage!r:.60}; there are {', '.join(STAGES)}", param_hint="STAGE")
    answer = find_router(run_dir, file).ask_or_error(stage, "health", instance)
    if isinstance(answer, str):
        click.echo(answer, err=True)
        sys.exit(1)
    missing = f", waits for {' '.join(answer['missing'])}" if answer["missing"] else ""
    click.echo(f"{stage}.{instance}: {answer['state']}{missing}")
    for reason in answer["refused"]:
        click.echo(f"refused: {reason}")
    sys.exit(0 if alive or answer["state"] == "in step" else 1)
