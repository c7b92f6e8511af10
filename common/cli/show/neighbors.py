"""`show neighbors` and `show neighbor`: sessions, what became of the routes, and why a session is not there.

A speaker knows what it received, the ribs what was accepted of it, the policy stages why the rest was not, and the
exporters why what was chosen is not told.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from common.cli.asking import Router
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import as_json, duration, number, pairs

NEIGHBORS: tuple[Column, ...] = (
    ("neighbor", "name"),
    ("address", "address"),
    ("AS", "asn", str),
    ("state", "state"),
    ("for", "since_s", duration),
    ("received", "n_received"),
    ("refused", "n_refused"),
    ("told", "n_advertised"),
    ("why", "why"),
)
TABLES: tuple[Column, ...] = (
    ("family", "family"),
    ("told", "n_told"),
    ("UPDATEs", "n_updates"),
    ("yet to tell", "lag"),
    ("too long", "n_too_long"),
    ("in step", "in_step"),
    ("End-of-RIB received", "end_of_rib_received"),
    ("sent", "end_of_rib_sent"),
    ("group", "group", str),
)
MESSAGES: tuple[Column, ...] = (("messages", "kind"), ("received", "received"), ("sent", "sent"))


@showing
def neighbors(router: Router, is_json: bool) -> None:
    """Show all neighbors, their state, how many routes went each way, and why a session is not there.

    "refused" are the routes received that import policy or its checks did not accept; it is left open while routes
    are on their way. `show neighbor NAME` has the reasons.
    """
    rows = [
        row
        for instance in router.instances("speaker")
        for row in router.ask("speaker", "neighbors", instance)["neighbors"]
    ]
    if rows:
        accepted = _accepted(router)
        rows = [row | _fate(row, accepted) for row in rows]
    if is_json:
        click.echo(as_json(rows))
    else:
        click.echo(rows_as_table(NEIGHBORS, [row | {"why": _why(row)} for row in rows]))


@showing
@click.argument("name")
def neighbor(router: Router, name: str, is_json: bool) -> None:
    """Show all about the neighbor NAME, or the one with that address.

    Why it has no session and when that is tried again, and how many of its routes were refused, for which reasons.
    """
    name, instance = router.holder(name)
    row = router.ask("speaker", "neighbor", instance, name=name)
    row |= _fate(row, _accepted(router)) | {"refusals": _refusals(router).get(name, {})}
    row["left_out"] = _left_out(router, {family: table["group"] for family, table in row.get("tables", {}).items()})
    click.echo(as_json(row) if is_json else "\n\n".join(_described(row)))


# ---- what became of routes ------------------------------------------------------------------------------------------


def _accepted(router: Router) -> dict[str, int] | None:
    """Return how many routes of each neighbor the ribs have, None while they do not have all that came."""
    answers = [router.ask_or_error("rib", "accepted", instance) for instance in _asked(router, "rib")]
    if not answers or not all(isinstance(answer, dict) and answer["is_current"] for answer in answers):
        return None
    return sum((Counter(answer["neighbors"]) for answer in answers), Counter())


def _refusals(router: Router) -> dict[str, Counter[str]]:
    """Return how often routes of each neighbor were refused, by reason."""
    found: dict[str, Counter[str]] = {}
    for instance in _asked(router, "policy"):
        answer = router.ask_or_error("policy", "refused", instance)
        for name, counts in answer["neighbors"].items() if isinstance(answer, dict) else ():
            found.setdefault(name, Counter()).update(counts)
    return found


def _left_out(router: Router, groups: dict[str, str]) -> Counter[str]:
    """Return how often routes were not told to the groups a neighbor is in, by family, for which reasons."""
    found: Counter[str] = Counter()
    for instance in _asked(router, "exporter"):
        answer = router.ask_or_error("exporter", "status", instance)
        for group in answer.get("groups", ()) if isinstance(answer, dict) else ():
            if groups.get(group["family"]) in group.get("names", ()):
                found.update(group["routes_refused"])
    return found


def _asked(router: Router, stage: str) -> list[str]:
    return [instance for name, instance in router.stages() if name == stage]


def _fate(row: dict, accepted: dict[str, int] | None) -> dict[str, int | None]:
    """Return how many of a neighbor's routes were accepted and refused, None where that is not known."""
    n_received, n_accepted = row.get("n_received"), None if accepted is None else accepted.get(row["name"], 0)
    if n_received is None or n_accepted is None:
        return {"n_accepted": None, "n_refused": None}
    return {"n_accepted": n_accepted, "n_refused": max(n_received - n_accepted, 0)}


# ---- in words -------------------------------------------------------------------------------------------------------


def _why(row: dict) -> str:
    """Return why there is no session: what ended or hindered it, else what is awaited; and when it is tried again."""
    words = _hold(row) or row.get("reason") and row.get("last_error") or row.get("reason") or ""
    return "; ".join(filter(None, (words, _again(row))))


def _hold(row: dict) -> str:
    """Return why a neighbor is not to have a session, "" where it may."""
    return row["reason"] if row.get("is_held") else ""


def _again(row: dict) -> str:
    """Return when a session is tried again, or what an operator can do."""
    if row.get("retry_s") is not None:
        return f"tried again in {duration(row['retry_s'])}"
    return f"until `headrace neighbor start {row['name']}`" if _hold(row) else ""


def _described(row: dict) -> Iterator[str]:
    """Yield what is told of one neighbor, a block at a time."""
    kind = "external" if row.get("external") else "internal"
    yield f"{row['name']}  {row.get('address')}  AS {row.get('asn')}, {kind}  {row.get('description') or ''}".rstrip()
    for block in (_session(row), _routes(row)):
        yield pairs({name: value for name, value in block.items() if value not in (None, "", [])})
    if tables := [{"family": family, **table} for family, table in row.get("tables", {}).items()]:
        yield rows_as_table(TABLES, tables)
    if received := row.get("messages_received"):
        sent = row["messages_sent"]
        yield rows_as_table(
            MESSAGES, [{"kind": kind, "received": received[kind], "sent": sent[kind]} for kind in received]
        )


def _session(row: dict) -> dict[str, Any]:
    reason, since_s = row.get("reason"), row.get("since_s")
    since = "" if since_s is None else f"{', without a session' if reason else ''} for {duration(since_s)}"
    left = row.get("hold_left_s")
    return {
        "state": f"{row.get('state')}{since}",
        "why": "; ".join(filter(None, (reason, _again(row)))),
        "last error": row.get("last_error"),
        "sessions so far": row.get("n_established"),
        "families": row.get("families"),
        "capabilities": ", ".join(row.get("capabilities", ())),
        "local address": row.get("local_address"),
        "router ID": row.get("router_id"),
        "hold time": f"{row.get('hold_time_s', 0):g} s" + ("" if left is None else f", {left:.0f} s left"),
        "passive": row.get("passive") or None,
        "octets": ", ".join(f"{number(row.get(f'n_octets_{way}', 0))} {way}" for way in ("received", "sent", "queued")),
    }


def _routes(row: dict) -> dict[str, Any]:
    is_open = row["n_accepted"] is None
    return {
        "received": _of(row.get("n_received"), "", row.get("maximum_prefixes"), "maximum_prefixes"),
        "accepted": "not known while routes are on their way" if is_open else row["n_accepted"],
        "refused": row["n_refused"],
        "refused so far": _reasons(row.get("refusals", {})),
        "told": row.get("n_advertised"),
        "not told so far": _reasons(row.get("left_out", {})),
        "import, export": f"{row.get('import')}, {row.get('export')}",
        "malformed": f"{number(row.get('n_treated_as_withdraw', 0))} UPDATEs treated as withdraw, "
        f"{number(row.get('n_attributes_discarded', 0))} attributes discarded",
        "attributes": _of(
            row.get("n_attribute_octets"), " octets", row.get("maximum_attribute_octets"), "maximum_attribute_octets"
        ),
    }


def _reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{words} {number(count)}" for words, count in Counter(counts).most_common())


def _of(count: int | None, unit: str, limit: int | None, name: str) -> str | None:
    if count is None:
        return None
    return number(count) + unit + (f" of at most {number(limit)} ({name})" if limit else "")
