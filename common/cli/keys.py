"""The commands `keys ...`: the keys of a bus between machines.

Never: sends or shows a secret; it is written into a file that its owner alone may read, and nowhere else.
"""

import sys
from pathlib import Path

import click

from common.cli.asking import say_and_exit
from common.cli.configuration import WRONG_CONFIGURATION, load_or_exit
from common.config.keys import NAME, Unfit
from common.config.schema import ROLES, STAGES

DIRECTORY = "/etc/headrace/keys"


@click.group()
def keys() -> None:
    """Make and check the keys of a bus between machines."""


@keys.command()
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), help="What its owner may do; not given: as NAME says.")
@click.option(
    "--directory", type=click.Path(file_okay=False, path_type=Path), default=DIRECTORY, show_default=True,
    help="Where the secret is written.",
)  # fmt: skip
def new(name: str, role: str | None, directory: Path) -> None:
    """Make a pair of keys, a secret and a public one.

    The secret goes into DIRECTORY/NAME.secret (mode 0600), the public one is for the configuration. A stage's key is
    named STAGE, or STAGE.INSTANCE. A secret that is there is never replaced.
    """
    from common.bus.keyring import write_secret
    from common.bus.question import new_keys

    try:
        NAME.parse(name)
    except Unfit as error:
        raise click.BadParameter(str(error), param_hint="NAME") from None
    stage = name.partition(".")[0]
    if stage in STAGES and role not in (None, stage):
        raise click.UsageError(f"the {stage} stage goes by a key of that name: give one of role {role} another name")
    role = role or stage
    if role not in ROLES:
        raise click.UsageError(f"which role has {name}? --role is one of {', '.join(ROLES)}")
    public, secret = new_keys()
    try:
        path = write_secret(directory, name, secret)
    except FileExistsError:
        say_and_exit(f"{directory / name}.secret: there is one already, and it stays")
    except OSError as error:
        say_and_exit(f"{error.filename}: {error.strerror}")
    click.echo(f"# The secret is in {path}. On every machine, in headrace.toml:", err=True)
    click.echo(f'[[key]]\nname = "{name}"\npublic = "{public.decode()}"\nrole = "{role}"')


@keys.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1)
def check(file: Path, names: tuple[str, ...]) -> None:
    """Check that secret keys are well kept and the right ones.

    Those of NAMES, or of all keys of FILE that this machine has.
    """
    from common.bus.keyring import KeyTrouble, named_keyring

    config = load_or_exit(file)
    directory = config.keys.directory
    names = names or tuple(name for name in config.public_keys if (directory / f"{name}.secret").exists())
    n_troubles = 0
    for name in names:
        try:
            named_keyring(config, name)
            click.echo(f"{name}: correct, {config.public_keys[name].role}")
        except KeyTrouble as trouble:
            n_troubles += 1
            click.echo(f"{name}: {trouble}", err=True)
    sys.exit(WRONG_CONFIGURATION if n_troubles else 0)
