"""Routers side by side: the feed's scenarios against Headrace, BIRD, FRR, GoBGP and OpenBGPD, one after the other.

Each round runs every installed router once on the same input, in turn. Shown are the medians: time until every listener
holds all, CPU time of the router until then, memory as the sum of PSS, UPDATEs told, the delay of single changes where
the scenario measures it, and what the judge found. bench/README.md says how to read it.

    python bench/bench_routers.py --json results.json --plot results.svg
    python bench/bench_routers.py full-table full-table:kernel --routers headrace,bird --rounds 5

A run ends at a time limit, or when it takes ten times as long as the fastest router's; what did not end is not run
again, nor a scenario that asks for more. After the first round there are only runs that the budget has time for.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.arrivals import Arrivals  # noqa: E402
from bench.routers import ASN, ROUTERS, Peer, Router  # noqa: E402
from stages.feed import picture  # noqa: E402
from stages.feed import scenario as scenarios  # noqa: E402
from stages.feed.source import Ready, Synthetic  # noqa: E402

KERNEL = ":kernel"
SCENARIOS = (
    "full-table", f"full-table{KERNEL}", "churn", "four-tables", "new-neighbor", "mesh", "route-server",
)  # fmt: skip
EASIER = {each: "full-table" for each in (f"full-table{KERNEL}", "four-tables", "new-neighbor")}
GAP_S = 1.0
POLL_S = 0.02
SLOWEST = 10.0  # times the fastest: what takes longer is cut
SHORTEST_LIMIT_S = 30.0


def peers_of(scenario: scenarios.Scenario, number: int = 0) -> list[Peer]:
    """Return the neighbors of the scenario's n-th router: those it is the target of, and the other routers."""
    own = scenario.targets[number]
    peers = [
        Peer(
            plan.name,
            plan.address,
            plan.asn,
            not isinstance(source, Ready) or plan.n_expected == 0,
            plan.n_expected != 0,
            n_routes=getattr(source, "size", 0),
        )
        for plan, source in scenario.players
        if plan.target == (own.address, own.port)
    ]
    others = [
        Peer(f"internal-{other}", target.address, ASN, True, True, calls=number > other)
        for other, target in enumerate(scenario.targets)
        if other != number
    ]
    return peers + others


@contextmanager
def standing(kind: type[Router], scenario: scenarios.Scenario, with_kernel: bool = False):
    """Have the scenario's routers stand in their namespaces, configured for it; gives them."""
    addresses = [plan.address for plan, _ in scenario.players]
    n_routers = len(scenario.targets)
    with topology.namespaces(peers=addresses, n_routers=n_routers), ExitStack() as stack:
        yield [
            stack.enter_context(kind(0, with_kernel, peers_of(scenario, number), number)) for number in range(n_routers)
        ]


class Feed:
    """`headrace feed` in the neighbors' namespace, telling what happens line by line."""

    def __init__(self, name: str, size: int, time_limit_s: float):
        options = ["--size", str(size)] if size else []
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            topology.inside(
                topology.PEERS, sys.executable, "-m", "stages.feed.command", name, "--events", "--hold",
                "--time-limit", str(time_limit_s), *options,
            ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip

    def wait_for(self, *events: str) -> dict:
        """Return the next report with one of these names."""
        for line in self.process.stdout:
            report = json.loads(line)
            if report["event"] in events:
                return report
        self.errors.seek(0)
        return {"event": "failed", "reason": self.errors.read().strip()[-300:], "steps": [], "neighbors": {}}

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(60)


def run_once(kind: type[Router], label: str, size: int, time_limit_s: float) -> dict:
    """Run one router through one scenario; return what was measured."""
    name, with_kernel = label.removesuffix(KERNEL), label.endswith(KERNEL)
    scenario = scenarios.load(name, size=size)
    began_at = time.monotonic()
    with standing(kind, scenario, with_kernel) as routers, ExitStack() as stack:
        arrivals = stack.enter_context(_arrivals(routers[0], scenario)) if with_kernel else None
        feed = Feed(name, size, time_limit_s)
        report = feed.wait_for("established", "failed")
        cpu_before = sum(router.cpu_s() for router in routers)
        found = {}
        if report["event"] == "established":
            if arrivals is not None:
                found["kernel_s"] = until_complete(arrivals, time_limit_s)
            report = feed.wait_for("converged", "failed")
        found["cpu_s"] = round(sum(router.cpu_s() for router in routers) - cpu_before, 2)
        pss_octets = sum(sum(router.pss_octets().values()) for router in routers)
        feed.end()
    if with_kernel and found.get("kernel_s") is None:
        report["reason"] = report.get("reason") or "not all was in the kernel at the time limit"
    found["pss_mib"] = round(pss_octets / 2**20, 1)
    return summary(report) | found | {"took_s": round(time.monotonic() - began_at, 1)}


def _arrivals(router: Router, scenario: scenarios.Scenario):
    size = max(source.size for _, source in scenario.players if isinstance(source, Synthetic))
    return closing(Arrivals(router.site.namespace, router.process.pid, size))


def until_complete(arrivals: Arrivals, time_limit_s: float) -> float | None:
    """Wait until all is in the kernel's table; return how long that took, None at the time limit."""
    start = time.monotonic()
    while not arrivals.are_complete():
        if time.monotonic() - start > time_limit_s:
            return None
        time.sleep(POLL_S)
    return round(time.monotonic() - start, 2)


def summary(report: dict) -> dict:
    """Reduce the feed's report to the figures of the table."""
    neighbors = report["neighbors"].values()
    verdicts = report.get("verdict", {}).values()
    last = [step for step in report["steps"] if step["do"] == "converge"]
    result = {
        "wall_s": last[-1].get("converged_after_s" if len(last) > 1 else "converged_s") if last else None,
        "updates": sum(each["updates_received"] for each in neighbors),
        "silence_s": max((each["longest_silence_s"] for each in neighbors), default=None),
        "repeated": sum(each["repeated"] for each in neighbors),
        "failure": report.get("reason", ""),
    }
    result |= {key: sum(each[key] for each in verdicts) if verdicts else None for key in ("missing", "extra", "wrong")}
    if report.get("probes") and report["probes"]["count"]:
        result |= {key: report["probes"][key] for key in ("p50_ms", "p99_ms")}
    return result


def median_of(results: list[dict]) -> dict:
    """Reduce rounds to the median of each figure, the worst of counts that should be zero, any failure."""
    reduced = {}
    for key in dict.fromkeys(key for result in results for key in result):
        values = [result[key] for result in results if result.get(key) not in (None, "")]
        if key == "failure":
            reduced[key] = values[-1] if values else ""
        elif key in ("missing", "extra", "wrong", "repeated", "silence_s"):
            reduced[key] = max(values, default=None)
        else:
            reduced[key] = statistics.median(values) if values else None
    return reduced


COLUMNS = {
    "wall s": ("wall_s", "{:.2f}"), "kernel s": ("kernel_s", "{:.2f}"), "cpu s": ("cpu_s", "{:.2f}"),
    "PSS MiB": ("pss_mib", "{:.0f}"),
    "UPDATEs": ("updates", "{:,.0f}"), "p50 ms": ("p50_ms", "{:.2f}"), "p99 ms": ("p99_ms", "{:.2f}"),
    "silence s": ("silence_s", "{:.1f}"), "missing": ("missing", "{}"), "extra": ("extra", "{}"),
    "wrong": ("wrong", "{}"), "repeated": ("repeated", "{:,}"), "rounds": ("rounds", "{}"), "": ("failure", "{}"),
}  # fmt: skip


def table_of(results: dict) -> str:
    """Return the results as a text table."""
    rows = [["scenario", "router", *COLUMNS]]
    for scenario, by_router in results["scenarios"].items():
        for name, figures in by_router.items():
            cells = [(figures.get(key), form) for key, form in COLUMNS.values()]
            rows.append([scenario, name, *("-" if value is None else form.format(value) for value, form in cells)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


PANELS = {
    "s until told, or in the kernel": "wall_s",
    "s of CPU time": "cpu_s",
    "MiB of memory (PSS)": "pss_mib",
}
PANEL_WIDTH, BAR_WIDTH = 330, 190


def bars(results: dict) -> str:
    """Return times, CPU times and memory as an SVG of bars: a column for each, a group for each scenario."""
    parts, y = [], 30
    for column, title in enumerate(PANELS):
        parts.append(f'<text x="{100 + PANEL_WIDTH * column}" y="18" font-weight="bold">{title}</text>')
    for scenario, by_router in results["scenarios"].items():
        parts.append(f'<text x="10" y="{y + 14}" font-weight="bold">{scenario}</text>')
        y += 22
        for column, key in enumerate(PANELS.values()):
            parts += _group(100 + PANEL_WIDTH * column, y, by_router, key)
        y += 20 * len(by_router) + 12
    style = "<style>text{font:13px sans-serif}</style>"
    width = 100 + PANEL_WIDTH * len(PANELS)
    body = f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}'
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}">{style}{body}</svg>\n'


def _group(x: int, y: int, by_router: dict[str, dict], key: str):
    """Give the bars of one figure in one scenario, a line for each router."""
    shown = {name: None if each["failure"] else each.get(key) for name, each in by_router.items()}
    if key == "wall_s":
        shown |= {name: each["kernel_s"] for name, each in by_router.items() if each.get("kernel_s") is not None}
    longest = max((value or 0 for value in shown.values()), default=0) or 1
    for name, value in shown.items():
        color = "#1b6ca8" if name == "headrace" else "#999"
        width = BAR_WIDTH * (value or 0) / longest
        label = f"{value:.{0 if value >= 100 else 2}f}" if value is not None else "did not end"
        yield f'<text x="{x - 8}" y="{y + 13}" text-anchor="end">{name}</text>'
        yield f'<rect x="{x}" y="{y}" width="{width:.1f}" height="16" fill="{color}"/>'
        yield f'<text x="{x + 6 + width:.1f}" y="{y + 13}">{label}</text>'
        y += 20


class Comparison:
    """The runs, round by round, within a budget of time."""

    def __init__(self, names: list[str], kinds: list[type[Router]], size: int, time_limit_s: float, budget_s: float):
        self.size, self.time_limit_s = size, time_limit_s
        self.ends_at = time.monotonic() + budget_s
        self.runs = {name: {kind.name: [] for kind in kinds if _can_run(kind, name)} for name in names}

    def go(self, rounds: int) -> None:
        """Do the first round, and then the runs for which there is time."""
        for number in range(rounds):
            for name, by_router in self.runs.items():
                for router, done in by_router.items():
                    if number == 0:
                        self._run_first(name, router)
                    elif not done[-1]["failure"] and done[-1]["took_s"] < self._left_s:
                        self._run(name, router, self.time_limit_s)

    @property
    def _left_s(self) -> float:
        return self.ends_at - time.monotonic()

    def _run_first(self, name: str, router: str) -> None:
        """Run what has not been run yet, unless it would take too long."""
        limit_s = self._limit_s(name)
        easier = self.runs.get(EASIER.get(name, ""), {}).get(router, [])
        why = ""
        if easier and (easier[-1]["failure"] or (easier[-1]["wall_s"] or 0) > limit_s):
            why = f"not run: {EASIER[name]} took too long"
        elif self._left_s < SHORTEST_LIMIT_S:
            why = "not run: no time was left"
        if why:
            self.runs[name][router].append({"failure": why, "took_s": 0.0})
        else:
            self._run(name, router, limit_s)

    def _limit_s(self, name: str) -> float:
        """Return how long a first run may take: the whole limit until one has ended, then some times as long."""
        if name in EASIER.values():
            return self.time_limit_s
        ended = [done[0]["wall_s"] for done in self.runs[name].values() if done and not done[0]["failure"]]
        limit_s = max(SHORTEST_LIMIT_S, SLOWEST * min(ended)) if ended else self.time_limit_s
        return max(SHORTEST_LIMIT_S, min(limit_s, self.time_limit_s, self._left_s))

    def _run(self, name: str, router: str, limit_s: float) -> None:
        found = run_once(ROUTERS[router], name, self.size, round(limit_s, 1))
        self.runs[name][router].append(found)
        print(f"{name}: {router}: {json.dumps(found)}", file=sys.stderr, flush=True)
        time.sleep(GAP_S)

    def medians(self) -> dict[str, dict[str, dict]]:
        """Return by scenario and router the figures of all rounds together."""
        return {
            name: {router: median_of(done) | {"rounds": len(done)} for router, done in by_router.items() if done}
            for name, by_router in self.runs.items()
        }


def _can_run(kind: type[Router], label: str) -> bool:
    return kind.has_kernel or not label.endswith(KERNEL)


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=3, show_default=True)
@click.option("--size", default=0, help="Prefixes in each table instead of the scenario's.")
@click.option("--routers", default=",".join(ROUTERS), show_default=True)
@click.option("--time-limit", default=100.0, show_default=True, help="Seconds for one run, at most.")
@click.option(
    "--budget", default=14.0, show_default=True, help="Minutes for all; what is slow gets less than its limit."
)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--plot", "plot_path", type=click.Path(dir_okay=False, path_type=Path))
def main(names, rounds, size, routers, time_limit, budget, json_path, plot_path):
    """Run scenarios (default: all that are compared) against routers side by side; needs root.

    NAME:kernel is a scenario with the routes in the kernel too, for the routers that put them there.
    """
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    if plot_path and (why := picture.why_not(plot_path)):
        raise click.UsageError(why)
    unknown = set(routers.split(",")) - set(ROUTERS)
    if unknown:
        raise click.UsageError(f"no router is called {', '.join(sorted(unknown))}; there are {', '.join(ROUTERS)}")
    kinds = [ROUTERS[name] for name in routers.split(",") if ROUTERS[name].is_installed()]
    for name in names:
        try:
            scenarios.load(name.removesuffix(KERNEL))
        except scenarios.ScenarioError as error:
            raise click.UsageError(str(error)) from None
    comparison = Comparison(list(names or SCENARIOS), kinds, size, time_limit, budget * 60)
    began_at = time.monotonic()
    try:
        comparison.go(rounds)
    except KeyboardInterrupt:
        click.echo("stopped from the keyboard; what there is:", err=True)
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "took_s": round(time.monotonic() - began_at),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "versions": {kind.name: kind.version() for kind in kinds},
        "scenarios": comparison.medians(),
        "runs": comparison.runs,
    }
    print(table_of(results))
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")
    if plot_path:
        picture.write(bars(results), plot_path)


if __name__ == "__main__":
    main()
