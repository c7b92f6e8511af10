"""The frame of the commands `show ...`: the group, what each of them is given, and tables of rows.

Never: asks a stage; each command does, in a file of its own.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import click

from common.cli.asking import asks_router, find_router
from common.cli.text import table

Column = tuple[str, str] | tuple[str, str, Callable[[Any], Any]]


def rows_as_table(columns: Iterable[Column], rows: list[dict]) -> str:
    """Return those of the columns that any row has, as a table; numbers to the right."""
    used = [column for column in columns if any(row.get(column[1]) not in (None, "", []) for row in rows)]
    used = used or list(columns)[:1]
    cells = [
        [column[2](row[column[1]]) if len(column) > 2 and row.get(column[1]) is not None else row.get(column[1], "")
         for column in used]
        for row in rows
    ]  # fmt: skip
    right = "".join("r" if _are_numbers([line[place] for line in cells]) else " " for place in range(len(used)))
    return table([column[0] for column in used], cells, right)


def _are_numbers(values: list) -> bool:
    """Tell whether a column has numbers alone, where it has anything."""
    given = [value for value in values if value not in (None, "")]
    return bool(given) and all(type(value) is int for value in given)


@click.group()
def show() -> None:
    """Show neighbors, routes and stages of a running router."""


def showing(command: Callable) -> click.Command:
    """Make a command of `show`: gives it the router, and whether JSON is asked for."""

    def call(run_dir, file, **arguments):
        return command(find_router(run_dir, file), **arguments)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__click_params__ = getattr(command, "__click_params__", [])
    call = click.option("--json", "is_json", is_flag=True, help="Answer in JSON.")(call)
    # In the list of commands there is room for the beginning of the first sentence alone.
    brief = re.split(r"[,:.]", command.__doc__)[0] + "."
    return show.command(command.__name__, short_help=brief)(asks_router(call))
