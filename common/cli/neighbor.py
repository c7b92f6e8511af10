"""The commands `neighbor stop` and `neighbor start`: an operator ends a session, and lets it begin again.

Never: changes the configuration; what is stopped begins again when its speaker is started anew.
"""

import click

from common.cli.asking import asks_router, find_router


@click.group()
def neighbor() -> None:
    """Stop the session of one neighbor, or start it again."""


@neighbor.command()
@click.argument("name")
@click.option("--text", default="", help="Why, in words the neighbor is told.")
@asks_router
def stop(run_dir, file, name: str, text: str) -> None:
    """End the session with neighbor NAME until it is started again.

    NAME may be its address. The neighbor is sent a Cease (administrative shutdown). A restart of the speaker starts
    the session as well.
    """
    router = find_router(run_dir, file)
    name, instance = router.holder(name)
    router.ask("speaker", "neighbor-stop", instance, name=name, text=text)
    click.echo(f"{name}: stopped, until `headrace neighbor start {name}`")


@neighbor.command()
@click.argument("name")
@asks_router
def start(run_dir, file, name: str) -> None:
    """Let neighbor NAME have a session again after it was stopped.

    NAME may be its address.
    """
    router = find_router(run_dir, file)
    name, instance = router.holder(name)
    router.ask("speaker", "neighbor-start", instance, name=name)
    click.echo(f"{name}: started")
