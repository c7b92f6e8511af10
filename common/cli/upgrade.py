"""The command `upgrade-check`: whether stages of this version can work beside those that run.

Owns nothing. Never: changes anything; what it says rests on what the running stages say of their schemas.
"""

import sys

import click

from common.cli.asking import REFUSED, asks_router, find_router, say_and_exit


@click.command()
@asks_router
def upgrade_check(run_dir, file) -> None:
    """Tell, of each stage that runs, whether stages of this version can work beside it. Exit status 0 if all can.

    Those that cannot refuse each other, by the same comparison: nothing is misunderstood, but nothing passes either.
    """
    router = find_router(run_dir, file)
    running = router.stages()
    if not running:
        say_and_exit(f"no stage runs in {router.run_dir} (--run-dir or --config says where)")
    n_troubles = 0
    for stage, instance in running:
        answer = router.ask_or_error(stage, "schema", instance)
        version, trouble = ("", answer) if isinstance(answer, str) else (answer["version"], _trouble(stage, answer))
        n_troubles += bool(trouble)
        name = f"{stage}.{instance}" + (f" ({version})" if version else "")
        click.echo(f"{name}: {trouble or 'goes with this version'}")
    sys.exit(REFUSED if n_troubles else 0)


def _trouble(stage: str, answer: dict) -> str:
    """Return what would be misunderstood on the channels that a stage writes or reads, "" if nothing."""
    from common.bus.channels import CHANNELS
    from common.bus.schema import FINGERPRINT, disagreement

    if answer["fingerprint"] == FINGERPRINT:
        return ""
    kinds = [
        kind
        for channel in CHANNELS
        if stage in (*channel.writer.split(", "), *channel.readers.split(", "))
        for kind in channel.kinds
    ]
    return disagreement(answer["kinds"], tuple(dict.fromkeys(kinds)))
