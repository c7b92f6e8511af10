"""Routers side by side: the feed's scenarios against Headrace, BIRD, FRR, GoBGP and OpenBGPD, one after the other.

Each round runs every installed router once on the same input, in turn. Shown are the medians: time until every listener
holds all, CPU time of the router until then, memory as the sum of PSS, UPDATEs told, the delay of single changes where
the scenario measures it, and what the judge found. bench/README.md says how to read it.

    python bench/bench_routers.py full-table new-neighbor --rounds 3 --json results.json --plot results.svg
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.routers import ASN, ROUTERS, Peer, Router  # noqa: E402
from stages.feed import scenario as scenarios  # noqa: E402
from stages.feed.source import Ready  # noqa: E402

SCENARIOS = ("full-table", "four-tables", "new-neighbor", "mesh", "churn", "route-server")
GAP_S = 1.0


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


def run_once(kind: type[Router], name: str, size: int, time_limit_s: float, with_kernel: bool) -> dict:
    """Run one router through one scenario; return what was measured."""
    with standing(kind, scenarios.load(name, size=size), with_kernel) as routers:
        feed = Feed(name, size, time_limit_s)
        started = feed.wait_for("established", "failed")
        cpu_before = sum(router.cpu_s() for router in routers)
        report = started if started["event"] == "failed" else feed.wait_for("converged", "failed")
        cpu_s = sum(router.cpu_s() for router in routers) - cpu_before
        pss_octets = sum(sum(router.pss_octets().values()) for router in routers)
        feed.end()
    return summary(report) | {"cpu_s": round(cpu_s, 2), "pss_mib": round(pss_octets / 2**20, 1)}


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
    "wall s": ("wall_s", "{:.2f}"), "cpu s": ("cpu_s", "{:.2f}"), "PSS MiB": ("pss_mib", "{:.0f}"),
    "UPDATEs": ("updates", "{:,.0f}"), "p50 ms": ("p50_ms", "{:.2f}"), "p99 ms": ("p99_ms", "{:.2f}"),
    "silence s": ("silence_s", "{:.1f}"), "missing": ("missing", "{}"), "extra": ("extra", "{}"),
    "wrong": ("wrong", "{}"), "repeated": ("repeated", "{:,}"), "": ("failure", "{}"),
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


def bars(results: dict) -> str:
    """Return the times as an SVG of bars, a group for each scenario."""
    lines, y, longest = [], 10, 1e-9
    for by_router in results["scenarios"].values():
        longest = max([longest, *(each["wall_s"] or 0 for each in by_router.values())])
    for scenario, by_router in results["scenarios"].items():
        lines.append(f'<text x="10" y="{y + 14}" font-weight="bold">{scenario}</text>')
        y += 22
        for name, each in by_router.items():
            width = 480 * (each["wall_s"] or 0) / longest
            color = "#1b6ca8" if name == "headrace" else "#999"
            label = f"{each['wall_s']:.2f} s" if each["wall_s"] is not None else each["failure"][:60] or "did not end"
            lines.append(f'<text x="90" y="{y + 13}" text-anchor="end">{name}</text>')
            lines.append(f'<rect x="100" y="{y}" width="{width:.1f}" height="16" fill="{color}"/>')
            lines.append(f'<text x="{106 + width:.1f}" y="{y + 13}">{label}</text>')
            y += 20
        y += 12
    style = "<style>text{font:13px sans-serif}</style>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{y}">{style}{"".join(lines)}</svg>\n'


@click.command()
@click.argument("names", nargs=-1)
@click.option("--rounds", default=3, show_default=True)
@click.option("--size", default=0, help="Prefixes in each table instead of the scenario's.")
@click.option("--routers", default=",".join(ROUTERS), show_default=True)
@click.option("--with-kernel", is_flag=True, help="Routes go into the kernel too, where the router is set up for it.")
@click.option("--time-limit", default=300.0, show_default=True, help="Seconds for one run.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--plot", "plot_path", type=click.Path(dir_okay=False, path_type=Path))
def main(names, rounds, size, routers, with_kernel, time_limit, json_path, plot_path):
    """Run scenarios (default: all that fit one router) against routers side by side; needs root."""
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    unknown = set(routers.split(",")) - set(ROUTERS)
    if unknown:
        raise click.UsageError(f"no router is called {', '.join(sorted(unknown))}; there are {', '.join(ROUTERS)}")
    kinds = [ROUTERS[name] for name in routers.split(",") if ROUTERS[name].is_installed()]
    kinds = [kind for kind in kinds if kind.has_kernel or not with_kernel]
    results = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "versions": {kind.name: kind.version() for kind in kinds},
        "rounds": rounds,
        "scenarios": {},
    }
    for name in names or SCENARIOS:
        measured: dict[str, list[dict]] = {kind.name: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                measured[kind.name].append(run_once(kind, name, size, time_limit, with_kernel))
                print(f"{name}: {kind.name}: {json.dumps(measured[kind.name][-1])}", file=sys.stderr, flush=True)
                time.sleep(GAP_S)
        results["scenarios"][name] = {key: median_of(each) for key, each in measured.items()}
    print(table_of(results))
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")
    if plot_path:
        plot_path.write_text(bars(results))


if __name__ == "__main__":
    main()
