"""Composes one picture of the router from what the stages answered.

Owns the form of the page's data and of /api/v1/. Pure: answers and times come in, plain maps go out.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

HISTORY_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class Answer:
    """What one stage said; `trouble` says why there is nothing."""

    stage: str
    instance: str
    status: dict[str, Any] = field(default_factory=dict)
    neighbors: list[dict[str, Any]] = field(default_factory=list)
    next_hops: list[dict[str, Any]] = field(default_factory=list)
    trouble: str = ""


class Pictures:
    """Makes pictures one after the other; rates are differences to the picture before."""

    def __init__(self, router: dict[str, Any]):
        self.router = router
        self.history: deque[dict[str, Any]] = deque(maxlen=HISTORY_SAMPLES)
        self._before: tuple[float, dict[tuple[str, str], int]] | None = None

    def compose(
        self, at_s: float, wall_s: float, answers: list[Answer], supervised: list[dict], memory: dict[int, int]
    ) -> dict[str, Any]:
        """Return the picture at a time.

        answers: of all stages. supervised: the supervisor's list of stages. memory: octets by process.
        """
        tables = _tables(answers)
        rates = self._rates(at_s, answers)
        stages = _stages(answers, supervised, memory)
        self.history.append(
            {
                "at": round(wall_s, 3),
                "routes": {f"{table['table']}/{table['family']}": table["prefixes"] for table in tables},
                "changes_per_s": {f"{rate['name']}/{rate['family']}": rate["per_s"] for rate in rates},
                "memory": sum(stage["memory_octets"] or 0 for stage in stages),
            }
        )
        return {
            "at": round(wall_s, 3),
            "router": self.router,
            "neighbors": [
                {**neighbor, "speaker": answer.instance} for answer in answers for neighbor in answer.neighbors
            ],
            "stages": stages,
            "tables": tables,
            "rates": rates,
            "next_hops": [{**hop, "fib": answer.instance} for answer in answers for hop in answer.next_hops],
            "readers": _readers(answers),
        }

    def _rates(self, at_s: float, answers: list[Answer]) -> list[dict[str, Any]]:
        """Return changes a second since the picture before, by table and family."""
        counts = _counts(answers)
        before, self._before = self._before, (at_s, counts)
        if before is None or at_s <= before[0]:
            return []
        seconds = at_s - before[0]
        # A count that went back belongs to a stage that was started again.
        return [
            {
                "name": name,
                "family": family,
                "per_s": round(max(0, count - before[1].get((name, family), count)) / seconds),
            }
            for (name, family), count in sorted(counts.items())
        ]


def _counts(answers: list[Answer]) -> dict[tuple[str, str], int]:
    """Return what only ever grows: changes of the Loc-RIB, changes made in the kernel."""
    counts: dict[tuple[str, str], int] = {}
    for answer in answers:
        for family, table in _maps(answer.status.get("tables")):
            if answer.stage == "rib":
                _add(counts, ("loc-rib", family), table.get("head", 0))
        for family, table in _maps(answer.status.get("families")):
            if answer.stage == "fib":
                changes = table.get("changes", {})
                done = sum(changes.get(name, 0) for name in ("installed", "replaced", "removed"))
                _add(counts, ("kernel", family), done)
    return counts


def _tables(answers: list[Answer]) -> list[dict[str, Any]]:
    """Return one row a table and family: Adj-RIB-In, Loc-RIB, kernel; instances are added up."""
    rows: dict[tuple[int, str, str], dict[str, Any]] = {}

    def add(order: int, table: str, family: str, **numbers: int) -> None:
        row = rows.setdefault((order, table, family), {"table": table, "family": family})
        for name, number in numbers.items():
            row[name] = row.get(name, 0) + number

    for answer in answers:
        for family, table in _maps(answer.status.get("tables")):
            if answer.stage == "speaker":
                numbers = {"prefixes": table.get("prefixes", 0), "routes": table.get("routes", 0)}
                add(0, "adj-rib-in", family, **numbers, sets=table.get("sets", 0), waiting=table.get("backlog", 0))
            elif answer.stage == "rib":
                numbers = {"prefixes": table.get("n_chosen", 0), "routes": table.get("n_routes", 0)}
                add(1, "loc-rib", family, **numbers, sets=table.get("n_sets", 0))
        for family, table in _maps(answer.status.get("families")):
            if answer.stage == "fib":
                refused = sum(table.get("refused", {}).values())
                numbers = {"prefixes": table.get("installed", 0), "routes": table.get("wanted", 0)}
                add(2, "kernel", family, **numbers, waiting=table.get("queued", 0), refused=refused)
    return [rows[key] for key in sorted(rows)]


def _stages(answers: list[Answer], supervised: list[dict], memory: dict[int, int]) -> list[dict[str, Any]]:
    """Return one row a process: what the supervisor says of it and what it says of itself."""
    known = {(row.get("stage"), row.get("instance")): row for row in supervised}
    rows = []
    for answer in answers:
        row = known.pop((answer.stage, answer.instance), {})
        pid = answer.status.get("pid", row.get("pid"))
        rows.append(
            {
                "stage": answer.stage,
                "instance": answer.instance,
                "pid": pid,
                "state": "silent" if answer.trouble else row.get("state", "running"),
                "since_s": answer.status.get("uptime_s", row.get("uptime_s")),
                "restarts": row.get("restarts", 0),
                "last_end": _last_end(row) or answer.trouble,
                "compiled": answer.status.get("compiled"),
                "memory_octets": memory.get(pid),
            }
        )
    for (stage, instance), row in known.items():
        rows.append(
            {
                "stage": stage,
                "instance": instance,
                "pid": row.get("pid"),
                "state": row.get("state", "gone"),
                "since_s": row.get("uptime_s"),
                "restarts": row.get("restarts", 0),
                "last_end": _last_end(row),
                "compiled": None,
                "memory_octets": None,
            }
        )
    return rows


def _last_end(row: dict[str, Any]) -> str:
    """Return how a process ended last, as the supervisor tells it."""
    reasons = row.get("reasons") or [""]
    return str(reasons[-1])


def _readers(answers: list[Answer]) -> list[dict[str, Any]]:
    """Return every reader of the bus with its lag."""
    return [
        {
            "owner": f"{answer.stage}.{answer.instance}",
            "reader": reader.get("reader", ""),
            "channel": reader.get("channel", ""),
            "tap": bool(reader.get("tap")),
            "lag": reader.get("lag", 0),
            "octets": reader.get("octets", 0),
        }
        for answer in answers
        for reader in (answer.status.get("bus") or {}).get("readers", [])
    ]


def _maps(value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Return the (key, map) pairs of a map of maps, whatever else is there left out."""
    if not isinstance(value, dict):
        return []
    return [(str(key), item) for key, item in value.items() if isinstance(item, dict)]


def _add(counts: dict, key: tuple[str, str], number: int) -> None:
    counts[key] = counts.get(key, 0) + number
