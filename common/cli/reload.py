"""The command `reload`: has a running router read its configuration again, and says beforehand what that will change.

Never: reads the file itself; the supervisor does, or, where stages run alone, each of them.
"""

import click

from common.cli.asking import Router, asks_router, find_router, say_and_exit


@click.command()
@click.option("--check", is_flag=True, help="Only say what would change.")
@asks_router
def reload(run_dir, file, check: bool) -> None:
    """Read the configuration again and apply it.

    Each difference is told first: whether it is applied live, has routes evaluated again, or costs a session, and
    which. A file with errors changes nothing: they are printed as `headrace check` does, exit status 2. Exit status 1
    when it was refused otherwise.
    """
    router = find_router(run_dir, file)
    stages = [] if (router.run_dir / "supervisor.0.control").exists() else router.stages()
    if not stages:
        planned = router.ask("supervisor", "reload", check=True)
    else:
        planned = router.ask(stages[0][0], "reload", stages[0][1], check=True)
    for change in planned["changes"]:
        click.echo(change["text"])
    if not planned["changes"]:
        click.echo("no differences")
    if check:
        return
    if not stages:
        router.ask("supervisor", "reload", fingerprint=planned["fingerprint"])
    else:
        _reload_each(router, stages)
    click.echo("reloaded")


def _reload_each(router: Router, stages: list[tuple[str, str]]) -> None:
    refused = []
    for stage, instance in stages:
        answer = router.ask_or_error(stage, "reload", instance)
        if isinstance(answer, str):
            refused.append(f"{stage}.{instance}: {answer}")
    if refused:
        say_and_exit("; ".join(refused))
