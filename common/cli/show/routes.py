"""`show route` and `show routes`: candidates of one prefix, and chosen, received or told routes."""

import itertools

import click

from common.cli.asking import Router, say_and_exit
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import OWN, as_json, as_json_line

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
