"""`show route` and `show routes`: candidates of one prefix, and chosen, received or told routes."""

import ipaddress
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from common.cli.asking import Router, say_and_exit
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import OWN, as_json, as_json_line, number

if TYPE_CHECKING:
    from common.bgp.prefixes import Network
    from common.cli.show.ordered import Found

FAMILIES = ("ipv4-unicast", "ipv6-unicast")
LIMIT = 1000  # of a table for people

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
@click.argument("prefix", default="")
@click.option(
    "--longer/--shorter",
    "is_longer",
    default=None,
    help="PREFIX and what is within it, or PREFIX and what covers it. Not given: --longer for a prefix, --shorter for "
    "an address.",
)
@click.option("--received", metavar="NEIGHBOR", help="What this neighbor announced, as received.")
@click.option("--advertised", metavar="NEIGHBOR", help="What this neighbor was told.")
@click.option("--family", type=click.Choice(FAMILIES), help="Only this family.")
@click.option("--limit", type=click.IntRange(0), help=f"Of no more prefixes; 0: all. Not given: {LIMIT}, in JSON all.")
def routes(
    router: Router,
    prefix: str,
    is_longer: bool | None,
    received: str,
    advertised: str,
    family: str,
    limit: int | None,
    is_json: bool,
) -> None:
    """Show chosen routes, or those received from or told to one neighbor, in the order of their prefixes.

    With PREFIX only those within it, or those that cover it. JSON is one route a line.
    """
    if received and advertised:
        raise click.UsageError("--received and --advertised exclude each other")
    network = _network(prefix, family)
    from common.cli.show.ordered import Holders

    if received or advertised:
        name, instance = router.holder(received or advertised)
        table = {"table": "received" if received else "advertised", "neighbor": name}
        holders = Holders(router, "speaker", [instance], table)
    else:
        holders = Holders(router, "rib", router.instances("rib"))
    families = [family] if family else FAMILIES if network is None else [FAMILIES[network.version == 6]]
    is_covering = network is not None and (not is_longer if is_longer is not None else "/" not in prefix)
    found = [holders.covering(each, network) if is_covering else holders.within(each, network) for each in families]
    limit = (None if is_json else LIMIT) if limit is None else limit or None
    rows = _first(found, limit)
    if is_json:
        for row in rows:
            click.echo(as_json_line(row))
        return
    n_pages = 0
    while page := list(itertools.islice(rows, 1000)):
        n_pages += 1
        click.echo(rows_as_table(ROUTES, page))
    if not n_pages and network is not None:
        say_and_exit(f"no routes {'that cover' if is_covering else 'within'} {network}")
    n_found = sum(map(len, found))
    if limit is not None and n_found > limit and not is_covering:
        click.echo(f"{number(limit)} of {number(n_found)} prefixes; --limit shows more, --limit 0 all", err=True)


def _network(text: str, family: str | None) -> "Network | None":
    """Return the prefix or address that is asked for, None for none."""
    if not text:
        return None
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise click.BadParameter(
            f'{text!r:.60} is neither a prefix like "192.0.2.0/24" nor an address', param_hint="PREFIX"
        ) from None
    if family not in (None, FAMILIES[network.version == 6]):
        raise click.UsageError(f"{network} is no prefix of {family}")
    return network


def _first(found: "list[Found]", limit: int | None) -> Iterator[dict]:
    """Yield the routes of the first `limit` prefixes of all families."""
    for each in found:
        yield from each.routes(limit)
        limit = None if limit is None else max(limit - len(each), 0)


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
