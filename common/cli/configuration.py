"""The commands about configuration: `check`, `config example`, `config reference`, and how errors are shown.

Never: starts or asks a stage.
"""

import sys
from pathlib import Path
from typing import NoReturn

import click

from common.config import Config, ConfigErrors, load, notices
from common.config.render import example, reference

WRONG_CONFIGURATION = 2


def load_or_exit(path: str | Path) -> Config:
    """Return the configuration in `path`; where it is wrong, print every error and exit with status 2."""
    try:
        return load(path)
    except ConfigErrors as errors:
        say_errors_and_exit(errors.lines)


def say_errors_and_exit(errors: list[str], consequence: str = "") -> NoReturn:
    """Print each error of a configuration, how many there are and what follows; exit with status 2."""
    for error in errors:
        click.echo(error, err=True)
    count = f"{len(errors)} error{'s' * (len(errors) > 1)}"
    click.echo(f"{count}: {consequence}" if consequence else count, err=True)
    sys.exit(WRONG_CONFIGURATION)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check FILE: print all errors with their lines (exit status 2), or what the configuration will not do."""
    configuration = load_or_exit(file)
    for notice in notices(configuration):
        click.echo(f"{file}: notice: {notice}")
    n_neighbors = len(configuration.neighbors)
    click.echo(f"{file}: correct: AS {configuration.router.asn}, {n_neighbors} neighbor{'s' * (n_neighbors != 1)}")


@click.group()
def config() -> None:
    """Print an example or the reference of the configuration."""


@config.command("example")
def config_example() -> None:
    """Print a file with every section and key, ready to be loaded."""
    click.echo(example(), nl=False)


@config.command("reference")
def config_reference() -> None:
    """Print what each key means, its default and limits, in Markdown."""
    click.echo(reference(), nl=False)
