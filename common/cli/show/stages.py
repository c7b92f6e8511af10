"""`show stages`: the processes and their state in a row each; for one stage all it says, and who reads from it.

Owns the width: a row of the summary fits into a hundred and some characters, whatever a stage owns or waits for.
"""

from collections.abc import Iterator

import click

from common.cli.asking import Router, say_and_exit
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import as_json, duration, number, pairs
from common.runtime.processes import memory_octets

OWNS_CHARACTERS = 32
REASONS_SHOWN = 3
STAGES: tuple[Column, ...] = (
    ("stage", "label"),
    ("pid", "pid", str),
    ("state", "state"),
    ("up", "uptime_s", duration),
    ("restarts", "restarts"),
    ("memory", "memory"),
    ("lag", "lag"),
    ("taps", "taps"),
    ("owns", "owns", lambda words: cut(", ".join(words), OWNS_CHARACTERS)),
    ("waits for", "missing", lambda channels: ", ".join(owners(channels))),
)
POSITIONS: tuple[Column, ...] = (
    ("read from", "label"),
    ("by", "reader"),
    ("channel", "channel"),
    ("", "tap", lambda value: "tap" if value else ""),
    ("position", "sequence"),
    ("lag", "lag"),
)
READERS: tuple[Column, ...] = (
    ("read by", "reader"),
    ("channel", "channel"),
    ("", "tap", lambda value: "tap" if value else ""),
    ("epoch", "epoch"),
    ("position", "sequence"),
    ("row", "cursor", lambda cursor: cursor if cursor >= 0 else ""),
    ("lag", "lag"),
    ("credit", "credit"),
)
FOLLOWED: tuple[Column, ...] = (
    ("reads from", "owner"),
    ("channel", "channel"),
    ("in step", "in_step"),
    ("epoch", "epoch"),
    ("position", "sequence"),
    ("row", "cursor", lambda cursor: cursor if cursor >= 0 else ""),
    ("lag", "lag"),
    ("batches", "batches"),
    ("octets", "octets"),
    ("refused", "refused"),
)


@showing
@click.argument("stage", default="")
def stages(router: Router, stage: str, is_json: bool) -> None:
    """Show all stages: process, state, restarts with reasons, memory, and how far each reader is.

    With STAGE ("rib", or "rib.0" for one instance) all that it says of itself, who reads from it, and what it reads.
    """
    rows = _known_stages(router)
    if not rows:
        say_and_exit(f"no stage answers in {router.run_dir}: is headrace running? (--run-dir or --config says where)")
    labels = ", ".join(label(row) for row in rows)
    rows = [_described(router, row) for row in rows if stage in ("", row["stage"], label(row))]
    if not rows:
        say_and_exit(f"no stage {stage!r:.60}; there are {labels}")
    if is_json:
        click.echo(as_json(rows))
    elif stage:
        click.echo("\n\n".join(block for row in rows for block in _in_full(row)))
    else:
        click.echo("\n".join(_summary(rows)))


def label(row: dict) -> str:
    return f"{row['stage']}.{row['instance']}"


def cut(text: str, n_characters: int) -> str:
    """Return a text of at most so many characters; one that was longer says so."""
    return text if len(text) <= n_characters else text[: n_characters - 1] + "…"


def owners(channels: list[str]) -> list[str]:
    """Return whose channels these are (owner:channel), each once."""
    return list(dict.fromkeys(channel.partition(":")[0] for channel in channels))


# ---- asking ---------------------------------------------------------------------------------------------------------


def _known_stages(router: Router) -> list[dict]:
    """Return what the supervisor knows of each stage, and those that run alone."""
    rows = {(row["stage"], row["instance"]): row for row in _supervised(router)}
    for stage, instance in router.stages():
        rows.setdefault((stage, instance), {"stage": stage, "instance": instance, "state": "running"})
    return list(rows.values())


def _supervised(router: Router) -> list[dict]:
    if not (router.run_dir / "supervisor.0.control").exists():
        return []
    answer = router.ask_or_error("supervisor", "status")
    return answer["stages"] if isinstance(answer, dict) else []


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


def _readers(row: dict) -> list[dict]:
    return row.get("status", {}).get("bus", {}).get("readers", [])


# ---- in words -------------------------------------------------------------------------------------------------------


def _summary(rows: list[dict]) -> Iterator[str]:
    for row in rows:
        row["label"] = label(row)
        if row["state"] == "syncing" and row.get("state_since_s") is not None:
            row["state"] += f" for {duration(row['state_since_s'])}"
        row["lag"] = max((reader["lag"] for reader in _readers(row) if not reader["tap"]), default=None)
        row["taps"] = sum(bool(reader["tap"]) for reader in _readers(row)) or None
    yield rows_as_table(STAGES, rows)
    for row in rows:
        if row.get("problem"):
            yield f"{row['label']}: {row['problem']}"
        for reason in row.get("reasons", [])[-REASONS_SHOWN:]:
            yield f"{row['label']} ended: {reason}"
    known = [row for row in rows if row.get("kernels")]
    if slow := [row["label"] for row in known if row["kernels"] != "compiled"]:
        yield f"kernels: {'not compiled' if len(slow) == len(known) else 'compiled, but not of'} {', '.join(slow)}"
    elif known:
        yield "kernels: compiled"
    if readers := [reader | {"label": row["label"]} for row in rows for reader in _readers(row)]:
        yield "\n" + rows_as_table(POSITIONS, readers)


def _in_full(row: dict) -> Iterator[str]:
    """Yield what is told of one stage, a block at a time."""
    status = row.get("status", {})
    since = f" for {duration(row['state_since_s'])}" if row.get("state_since_s") is not None else ""
    spent = status.get("loop", {}).get("phase_s", {})
    facts = {
        "state": row["state"] + since,
        "problem": row.get("problem"),
        "pid": str(row.get("pid") or "-"),
        "up": duration(row.get("uptime_s")),
        "restarts": row.get("restarts"),
        "memory": row["memory"],
        "kernels": row.get("kernels"),
        "version": status.get("version"),
        "time spent": ", ".join(f"{name} {seconds:.1f} s" for name, seconds in spent.items()),
    }
    facts = {name: value for name, value in facts.items() if value not in (None, "")}
    yield f"{label(row)}\n" + pairs(facts)
    for name, lines in (("owns", row.get("owns")), ("waits for", row.get("missing")), ("ended", row.get("reasons"))):
        if lines:
            yield "\n".join((name, *(f"  {line}" for line in lines)))
    if events := status.get("events"):
        yield "\n".join(("events so far", *(f"  {name}  {number(count)}" for name, count in events.items())))
    if readers := _readers(row):
        yield rows_as_table(READERS, readers)
    if followers := status.get("bus", {}).get("followers"):
        named = ({**each, "owner": each["endpoint"].rsplit("/", 1)[-1].removesuffix(".bus")} for each in followers)
        yield rows_as_table(FOLLOWED, list(named))
