"""`show stages`: the processes, their state, and how far behind the readers of each are."""

import click

from common.cli.asking import Router, say_and_exit
from common.cli.show.frame import Column, rows_as_table, showing
from common.cli.text import as_json, duration, some
from common.runtime.processes import memory_octets

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


def _supervised(router: Router) -> list[dict]:
    if not (router.run_dir / "supervisor.0.control").exists():
        return []
    answer = router.ask_or_error("supervisor", "status")
    return answer["stages"] if isinstance(answer, dict) else []
