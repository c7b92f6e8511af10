"""The entry of the command `headrace`: finds the module of the command asked for.

Owns: the list of commands and the exit statuses: 0 done, 1 refused or not found, 2 wrong usage or configuration.
Never: imports what another command needs; `headrace show` starts without numpy.
"""

import difflib
from importlib import import_module

import click

from common import VERSION

COMMANDS = {
    "run": ("common.cli.run:run", "Run all stages of FILE under one supervisor."),
    "stage": ("common.cli.run:stage", "Run one stage alone."),
    "reload": ("common.cli.reload:reload", "Read the configuration again, saying what that changes."),
    "restart": ("common.cli.restart:restart", "Restart one stage of a running router."),
    "neighbor": ("common.cli.neighbor:neighbor", "Stop the session of one neighbor, or start it again."),
    "check": ("common.cli.configuration:check", "Check a configuration file."),
    "upgrade-check": ("common.cli.upgrade:upgrade_check", "Tell whether this version goes with the stages that run."),
    "health": ("common.cli.health:health", "Tell whether a stage is in step, as an exit status."),
    "keys": ("common.cli.keys:keys", "Make the keys of a bus between machines."),
    "config": ("common.cli.configuration:config", "Print an example or the reference of the configuration."),
    "show": ("common.cli.show:show", "Show neighbors, routes and stages of a running router."),
    "tap": ("common.cli.tap:tap", "Follow every change of a table, live."),
    "feed": ("stages.feed.command:feed", "Play BGP neighbors for load tests."),
}


class Commands(click.Group):
    """A group that imports a command's module when the command is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        return getattr(import_module(module), attribute)

    def resolve_command(self, context: click.Context, arguments: list[str]) -> tuple:
        """Find the command; where there is none, say which may have been meant."""
        near = [] if arguments[0] in COMMANDS else difflib.get_close_matches(arguments[0], COMMANDS, n=1, cutoff=0.5)
        if near:
            context.fail(f"No such command {arguments[0]!r:.60}. Did you mean {near[0]!r}?")
        return super().resolve_command(context, arguments)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])


def _print_version(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    if not is_asked:
        return
    click.echo(f"headrace {VERSION}")
    context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def main() -> None:
    """Headrace, a BGP router made of small processes."""


if __name__ == "__main__":
    main()
