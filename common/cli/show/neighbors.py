"""`show neighbors` and `show neighbor`: sessions, how many routes went each way, and why a session is not there."""

import click

from common.cli.asking import Router
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import as_json, duration, pairs

NEIGHBORS: tuple[Column, ...] = (
    ("neighbor", "name"),
    ("address", "address"),
    ("AS", "asn", str),
    ("state", "state"),
    ("for", "since_s", duration),
    ("received", "n_received"),
    ("told", "n_advertised"),
    ("last error", "last_error"),
)


@showing
def neighbors(router: Router, is_json: bool) -> None:
    """Show all neighbors, their state, and how many routes went each way."""
    rows = [row for instance in router.instances("speaker") for row in _list(router, "speaker", "neighbors", instance)]
    click.echo(as_json(rows) if is_json else rows_as_table(NEIGHBORS, rows))


@showing
@click.argument("name")
def neighbor(router: Router, name: str, is_json: bool) -> None:
    """Show all about the neighbor NAME, or the one with that address."""
    name, instance = router.holder(name)
    answer = router.ask("speaker", "neighbor", instance, name=name)
    click.echo(as_json(answer) if is_json else _tree(answer))


def _list(router: Router, stage: str, question: str, instance: str) -> list[dict]:
    return router.ask(stage, question, instance)[question]


def _tree(value: dict, indent: str = "") -> str:
    """Return a nested map as indented lines."""
    plain = {name: item for name, item in value.items() if not isinstance(item, dict)}
    plain |= {name: str(plain[name]) for name in ("asn",) if name in plain}
    parts = [indent + line for line in pairs(plain).splitlines()]
    for name, item in value.items():
        if isinstance(item, dict):
            parts += [f"{indent}{name}", _tree(item, indent + "  ")]
    return "\n".join(parts)
