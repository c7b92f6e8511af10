"""The commands `show ...`: what the stages know, as tables for people or as JSON for programs.

Owns: the columns shown. Never: computes what a stage can tell, nor asks for more than it shows.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import click

from common.cli.asking import Router, asks_router, find_router, say_and_exit
from common.cli.text import OWN, as_json, as_json_line, duration, pairs, some, table
from common.runtime.processes import memory_octets

Column = tuple[str, str] | tuple[str, str, Callable[[Any], Any]]

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
ROUTES: tuple[Column, ...] = (
    ("prefix", "prefix"),
    ("next hop", "next_hop"),
    ("neighbor", "neighbor", lambda name: name or OWN),
    ("local pref", "local_pref", str),
    ("MED", "med", str),
    ("origin", "origin"),
    ("AS path", "as_path"),
    ("refused", "refused"),
)
CANDIDATES: tuple[Column, ...] = (
    ("", "is_chosen", lambda value: "*" if value else ""),
    ("neighbor", "neighbor", lambda name: name or OWN),
    ("next hop", "next_hop"),
    ("local pref", "local_pref", str),
    ("MED", "med", str),
    ("origin", "origin"),
    ("AS path", "as_path"),
    ("communities", "communities"),
    ("large communities", "large_communities"),
    ("why", "why"),
)
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
STAGES: tuple[Column, ...] = (
    ("stage", "stage"),
    ("instance", "instance"),
    ("pid", "pid", str),
    ("state", "state"),
    ("since", "state_since_s", duration),
    ("up", "uptime_s", duration),
    ("restarts", "restarts"),
    ("memory", "memory"),
    ("kernels", "kernels"),
    ("owns", "owns", some),
    ("waits for", "missing", ", ".join),
    ("problem", "problem"),
)
READERS: tuple[Column, ...] = (
    ("owner", "owner"),
    ("channel", "channel"),
    ("reader", "reader"),
    ("", "tap", lambda value: "tap" if value else ""),
    ("epoch", "epoch"),
    ("position", "sequence"),
    ("row", "cursor", lambda cursor: cursor if cursor >= 0 else ""),
    ("lag", "lag"),
    ("credit", "credit"),
)
REASONS_SHOWN = 3


def rows_as_table(columns: Iterable[Column], rows: list[dict]) -> str:
    """Return those of the columns that any row has, as a table; numbers to the right."""
    used = [column for column in columns if any(row.get(column[1]) not in (None, "", []) for row in rows)]
    used = used or list(columns)[:1]
    cells = [
        [column[2](row[column[1]]) if len(column) > 2 and row.get(column[1]) is not None else row.get(column[1], "")
         for column in used]
        for row in rows
    ]  # fmt: skip
    right = "".join("r" if cells and all(isinstance(line[i], int) for line in cells) else " " for i in range(len(used)))
    return table([column[0] for column in used], cells, right)


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
    return show.command(command.__name__)(asks_router(call))


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


@showing
@click.argument("prefix")
def route(router: Router, prefix: str, is_json: bool) -> None:
    """Show all candidates for PREFIX, the chosen one, and why each other lost."""
    from common.config.sharing import longest_route

    answer = longest_route([router.ask("rib", "route", each, prefix=prefix) for each in router.instances("rib")])
    answer["candidates"] += refused_routes(router, answer["prefix"], answer["candidates"])
    if is_json:
        click.echo(as_json(answer))
    elif not answer["candidates"]:
        say_and_exit(f"no route for {prefix}")
    else:
        click.echo(answer["prefix"])
        click.echo(rows_as_table(CANDIDATES, answer["candidates"]))


@showing
@click.option("--received", metavar="NEIGHBOR", help="What this neighbor announced, as received.")
@click.option("--advertised", metavar="NEIGHBOR", help="What this neighbor was told.")
@click.option("--family", type=click.Choice(["ipv4-unicast", "ipv6-unicast"]), help="Only this family.")
@click.option("--limit", type=click.IntRange(1), help="No more than this many.")
def routes(router: Router, received: str, advertised: str, family: str, limit: int | None, is_json: bool) -> None:
    """Show chosen routes, or those received from or told to one neighbor; JSON is one route a line."""
    if received and advertised:
        raise click.UsageError("--received and --advertised exclude each other")
    if received or advertised:
        question = "received" if received else "advertised"
        name, instance = router.holder(received or advertised)
        rows = router.pages("speaker", question, instance, limit, neighbor=name, family=family)
    else:
        pages = (router.pages("rib", "routes", each, limit, family=family) for each in router.instances("rib"))
        rows = itertools.islice(itertools.chain.from_iterable(pages), limit)
    if is_json:
        for row in rows:
            click.echo(as_json_line(row))
        return
    while page := list(itertools.islice(rows, 1000)):
        click.echo(rows_as_table(ROUTES, page))


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


@showing
def stages(router: Router, is_json: bool) -> None:
    """Show all stages: process, state, restarts with reasons, memory, and how far behind each reader is."""
    rows = [_described(router, row) for row in _known_stages(router)]
    if not rows:
        say_and_exit(f"no stage answers in {router.run_dir}: is headrace running? (--run-dir or --config says where)")
    if is_json:
        click.echo(as_json(rows))
        return
    click.echo(rows_as_table(STAGES, rows))
    readers = [
        {"owner": f"{row['stage']}.{row['instance']}", **reader}
        for row in rows
        for reader in row.get("status", {}).get("bus", {}).get("readers", [])
    ]
    if readers:
        click.echo()
        click.echo(rows_as_table(READERS, readers))
    for row in rows:
        for reason in row.get("reasons", [])[-REASONS_SHOWN:]:
            click.echo(f"{row['stage']}.{row['instance']} ended: {reason}")


def _known_stages(router: Router) -> list[dict]:
    """Return what the supervisor knows of each stage, and those that run alone."""
    rows = {(row["stage"], row["instance"]): row for row in _supervised(router)}
    for stage, instance in router.stages():
        rows.setdefault((stage, instance), {"stage": stage, "instance": instance, "state": "running"})
    return list(rows.values())


def _described(router: Router, row: dict) -> dict:
    """Return a stage with what it says of itself, and its memory."""
    answer = router.ask_or_error(row["stage"], "status", row["instance"])
    if isinstance(answer, dict):
        row |= {name: answer[name] for name in ("pid", "uptime_s", "state", "state_since_s", "missing")}
        row |= {
            "owns": answer.get("owns", []),
            "kernels": "compiled" if answer["compiled"] else "uncompiled",
            "status": answer,
        }
        n_lost = answer.get("events", {}).get("log-unwritable", 0)
        row |= {"problem": f"{n_lost} lines could not be logged"} if n_lost else {}
    elif row["state"] == "running":
        row |= {"state": "silent", "problem": answer}
    row["pss_octets"] = memory_octets(row.get("pid"))
    row["memory"] = "" if row["pss_octets"] is None else f"{row['pss_octets'] / (1 << 20):.1f} MiB"
    return row


def refused_routes(router: Router, prefix: str, candidates: list[dict]) -> list[dict]:
    """Return the routes received for a prefix that are no candidates, because import policy refuses them."""
    known = {(candidate["neighbor"], candidate.get("path_id", 0)) for candidate in candidates}
    refused = []
    for instance in router.instances("speaker"):
        answer = router.ask_or_error("speaker", "lookup", instance, prefix=prefix)
        received = [] if isinstance(answer, str) else answer["routes"]
        received = [route for route in received if (route["neighbor"], route["path_id"]) not in known]
        question = {
            "family": "ipv6-unicast" if ":" in prefix else "ipv4-unicast",
            "sources": [route.pop("source") for route in received],
            "routes": [
                {"source": number, "set": route.pop("set"), "prefix": prefix} for number, route in enumerate(received)
            ],
        }
        explained = _explained(router, question) if received else {"routes": []}
        for route, verdict in zip(received, [] if isinstance(explained, str) else explained["routes"], strict=False):
            if verdict["refusal"]:
                refused.append({**route, "is_chosen": False, "why": f"refused: {verdict['reason']}"})
    return refused


def _explained(router: Router, question: dict) -> dict | str:
    """Ask one policy stage, whichever there is: all go by the same configuration."""
    known = [instance for stage, instance in router.stages() if stage == "policy"] or ["0"]
    return router.ask_or_error("policy", "explain", known[0], **question)


def _supervised(router: Router) -> list[dict]:
    if not (router.run_dir / "supervisor.0.control").exists():
        return []
    answer = router.ask_or_error("supervisor", "status")
    return answer["stages"] if isinstance(answer, dict) else []


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
