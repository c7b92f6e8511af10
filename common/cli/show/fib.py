"""`show fib`: what is in the kernel."""

import click

from common.cli.asking import Router
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import as_json

KERNEL: tuple[Column, ...] = (
    ("instance", "instance"),
    ("table", "table", str),
    ("namespace", "namespace"),
    ("family", "family"),
    ("wanted", "wanted"),
    ("installed", "installed"),
    ("queued", "queued"),
    ("unconfirmed", "unconfirmed"),
    ("failed", "failed"),
    ("reasons", "reasons"),
)
NEXT_HOPS: tuple[Column, ...] = (
    ("instance", "instance"),
    ("next hop", "address"),
    ("gateway", "gateway"),
    ("interface", "interface"),
    ("metric", "metric", str),
    ("object", "object", str),
    ("wanted", "routes_wanted"),
    ("installed", "routes_installed"),
    ("why not", "reason"),
)
FAILED: tuple[Column, ...] = (("instance", "instance"), ("failed", "prefix"), ("why", "reason"))


@showing
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="No more failed routes than this.")
def fib(router: Router, limit: int, is_json: bool) -> None:
    """Show what is in the kernel: counts, next hops and their ways, and routes that failed, each with its reason."""
    answers = []
    for instance in router.instances("fib"):
        status = router.ask("fib", "status", instance)
        next_hops = router.ask("fib", "nexthops", instance)["nexthops"]
        failed = router.ask("fib", "refused", instance, limit=limit)["routes"]
        answers.append({"instance": instance, "status": status, "next_hops": next_hops, "failed": failed})
    if is_json:
        click.echo(as_json(answers))
        return
    several = len(answers) > 1
    named = [(answer, {"instance": answer["instance"]} if several else {}) for answer in answers]
    click.echo(rows_as_table(KERNEL, [named_row | row for one, named_row in named for row in _tables(one["status"])]))
    for columns, key in ((NEXT_HOPS, "next_hops"), (FAILED, "failed")):
        rows = [named_row | row for one, named_row in named for row in one[key]]
        if rows:
            click.echo("\n" + rows_as_table(columns, rows))


def _tables(status: dict) -> list[dict]:
    """Return a row for each family of one instance of the fib."""
    families = status.get("families", {})
    return [
        {
            "table": status["table"],
            "namespace": status["namespace"],
            "family": label,
            "failed": sum(counts["refused"].values()),
            "reasons": ", ".join(f"{code} {n}" for code, n in counts["refused"].items()),
            **counts,
        }
        for label, counts in families.items()
    ]
