"""The commands that start stages: `run` (all, under one supervisor) and `stage` (one alone).

Never: does a stage's work; it reads the configuration, says what that will not do, and hands over.
"""

import contextlib
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from common.cli.asking import say_and_exit
from common.cli.configuration import WRONG_CONFIGURATION, load_or_exit
from common.config import Config, notices


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def run(file: Path) -> None:
    """Run all stages of FILE under one supervisor, in the foreground, until SIGTERM or Ctrl-C.

    A stage that dies is started again. At the end all stop in order, with a Cease to every peer.
    """
    config = _load(file)
    from common.runtime.supervisor import AlreadyRunning, planned, run_supervisor

    _check_machine(config, planned(config))
    with _said_as_it_is(config):
        try:
            sys.exit(run_supervisor(config))
        except AlreadyRunning as error:
            say_and_exit(str(error))


@click.command()
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--instance",
    default="0",
    show_default=True,
    envvar="HEADRACE_INSTANCE",
    help="Which instance of the stage this is.",
)
def stage(name: str, file: Path, instance: str) -> None:
    """Run the stage NAME of FILE alone: what a systemd unit or a container runs."""
    config = _load(file)
    from common.runtime.ports import check_ports
    from common.runtime.stage import run_stage, stage_class

    try:
        cls = stage_class(name)
    except LookupError as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    _check_instance(config, file, name, instance)
    _check_machine(config, [(name, instance)])
    with _said_as_it_is(config):
        check_ports(cls.places_to_listen(config, instance), config.router.user)
        sys.exit(run_stage(name, config, instance))


@contextlib.contextmanager
def _said_as_it_is(config: Config) -> Iterator[None]:
    """Exit with status 1, and with the place, where the system does not give what is needed."""
    from common.runtime.ports import PortTrouble

    try:
        yield
    except PortTrouble as trouble:
        say_and_exit("\nheadrace: ".join(f"cannot run: {each}" for each in trouble.args))
    except OSError as error:
        say_and_exit(f"cannot run: {error.filename or config.router.run_dir}: {error.strerror or error}")


def _check_instance(config: Config, file: Path, name: str, instance: str) -> None:
    """Exit unless the configuration has this instance."""
    known = config.instances(name)
    if instance not in known:
        where = "[[fib.instance]]" if name == "fib" else f"{name}.instances"
        click.echo(
            f"headrace: no {name} {instance!r} in {file}: there is {', '.join(known)}. "
            f"--instance takes one of these; {where} says which there are",
            err=True,
        )
        sys.exit(WRONG_CONFIGURATION)


def _check_machine(config: Config, stages: list[tuple[str, str]]) -> None:
    """Exit, with all that is wrong, unless this machine has the keys and the user that the stages need."""
    troubles = {}
    if config.router.user is not None and os.geteuid() == 0:
        try:
            pwd.getpwnam(config.router.user)
        except KeyError:
            troubles[f"router.user: there is no user {config.router.user!r}"] = None
    if config.public_keys or config.endpoints:
        from common.bus.keyring import KeyTrouble, load_keyring

        for name, instance in stages:
            try:
                load_keyring(config, name, instance)
            except KeyTrouble as trouble:
                troubles[str(trouble)] = None
    if troubles:
        for trouble in troubles:
            click.echo(f"headrace: {trouble}", err=True)
        sys.exit(WRONG_CONFIGURATION)


def _load(file: Path) -> Config:
    config = load_or_exit(file)
    with contextlib.suppress(OSError):  # a full disk must not keep the router from starting
        for notice in notices(config):
            click.echo(f"{file}: notice: {notice}", err=True)
    return config
