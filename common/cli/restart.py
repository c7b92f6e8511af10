"""The command `restart`: ends one stage of a running router in order, and waits until its successor is in step.

Never: touches a process itself; the supervisor does.
"""

import time

import click

from common.cli.asking import Router, asks_router, find_router, say_and_exit
from common.cli.text import duration

ASK_AGAIN_S = 0.05


@click.command()
@click.argument("stage")
@click.option("--instance", help="Which instance of the stage; not given: all of them.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds to wait; 0: do not."
)
@asks_router
def restart(run_dir, file, stage: str, instance: str | None, wait_s: float) -> None:
    """Restart STAGE, in order. Only a speaker's restart is seen outside: its sessions end.

    Exit status 1 when a stage is not in step again in time.
    """
    router = find_router(run_dir, file)
    name = stage if instance is None else f"{stage}.{instance}"
    start = time.monotonic()
    answer = router.ask("supervisor", "restart", name=name)
    for label, pid in zip(answer["restarted"], answer["pids"], strict=True):
        if not wait_s:
            click.echo(f"{label}: restarting")
            continue
        state = _wait(router, label, pid, start + wait_s)
        if state != "in step":
            say_and_exit(f"{label}: {state} after {duration(time.monotonic() - start)}")
        click.echo(f"{label}: in step after {time.monotonic() - start:.1f} s")


def _wait(router: Router, label: str, former_pid: int, deadline: float) -> str:
    """Wait until the successor of a process is in step; return the last state seen."""
    stage, _, instance = label.partition(".")
    while True:
        answer = router.ask_or_error(stage, "status", instance)
        is_new = isinstance(answer, dict) and answer["pid"] != former_pid
        state = answer["state"] if is_new else "not started again"
        if state == "in step" or time.monotonic() >= deadline:
            return state
        time.sleep(ASK_AGAIN_S)
