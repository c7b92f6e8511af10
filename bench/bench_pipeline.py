"""The main path, measured: full tables from one and from four neighbors to one more that listens, beside BIRD.

Each round runs every router once on the same input, in turn; neighbors live in another network namespace. Shown are the
medians: time from the first octet sent until the listener holds all, CPU time, memory as the sum of PSS, UPDATEs
told, the longest silence a neighbor heard; then the delay of a single changing prefix, alone and while a table loads.

    python bench/bench_pipeline.py --rounds 3 --json results.json
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.routers import ROUTERS, Headrace, Router, sharing_headrace  # noqa: E402


class Feed:
    """The feed stage in the neighbors' namespace, as its command, speaking JSON lines."""

    def __init__(self, *options: str):
        listener = f"listener={topology.LISTENER_ADDRESS},{topology.LISTENER_ASN}"
        self.process = subprocess.Popen(
            topology.inside(
                topology.PEERS, sys.executable, "-m", "stages.feed.command", "--target", topology.ROUTER_ADDRESS,
                "--listener", listener, "--events", "--hold", *options,
            ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_for(self, event: str) -> dict:
        """Return the next report called `event`; RuntimeError with the last line if there is none."""
        line = ""
        for line in self.process.stdout:
            report = json.loads(line)
            if report["event"] == event:
                return report
        raise RuntimeError(f"the feed ended without {event!r}: {line.strip() or self.process.wait()}")

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait(30)


def senders(count: int) -> list[str]:
    words = []
    for index in range(count):
        words += ["--sender", f"sender{index}={topology.sender_address(index)},{topology.sender_asn(index)}"]
    return words


def load_once(kind: type[Router], n_senders: int, table: list[str], with_kernel: bool) -> dict:
    """Run one router through one load; `table` tells the feed what the senders send. Return what was measured."""
    with topology.namespaces(n_senders), kind(n_senders, with_kernel) as router:
        feed = Feed(*senders(n_senders), *table)
        feed.wait_for("established")
        cpu_before = router.cpu_s()
        report = feed.wait_for("converged")
        listener = report["neighbors"]["listener"]
        verdict = report["verdict"]["listener"]
        settle(router)
        sizes = router.pss_octets()
        result = {
            "wall_s": report["converged_s"],
            "cpu_s": router.cpu_s() - cpu_before,
            "pss_mib": sum(sizes.values()) / 2**20,
            "pss_by_process_mib": {name: round(octets / 2**20, 1) for name, octets in sizes.items()},
            "updates": listener["updates_received"],
            "silence_s": max(each["longest_silence_s"] for each in report["neighbors"].values()),
            "missing": verdict["missing"],
            "extra": verdict["extra"],
            "repeated": listener["repeated"],
            "spurious": listener["spurious_withdrawals"],
        }
        feed.end()
        return result


def settle(router: Router, deadline_s: float = 10) -> None:
    """Wait until the router's CPU time stands still."""
    end = time.monotonic() + deadline_s
    before = -1.0
    while time.monotonic() < end and router.cpu_s() - before > 0.02:
        before = router.cpu_s()
        time.sleep(0.3)


def probe_once(kind: type[Router], size: int, count: int, while_loading: bool) -> dict:
    """Measure the way of single changes: alone, or from one neighbor while another's full table loads."""
    options = ["--probes", str(count)]
    if while_loading:
        options += ["--probes-while-loading", "--probe-interval", "0.005", "--size", str(size)]
    else:
        options += ["--size", "1000"]
    n_senders = 2 if while_loading else 1
    with topology.namespaces(n_senders), kind(n_senders) as router:
        feed = Feed(*senders(n_senders), *options)
        report = feed.wait_for("converged")
        feed.end()
        del router
        return report["probes"]


def median_of(results: list[dict]) -> dict:
    """Reduce rounds to the median of each figure (the worst of counts that should be zero)."""
    summary = {}
    for key, value in results[0].items():
        if isinstance(value, dict):
            summary[key] = results[-1][key]
        elif key in ("missing", "extra", "repeated", "spurious", "silence_s"):
            summary[key] = max(result[key] for result in results)
        else:
            summary[key] = statistics.median(result[key] for result in results)
    return summary


def table_rows(results: dict) -> list[list[str]]:
    rows = [
        ["scenario", "router", "wall s", "cpu s", "PSS MiB", "UPDATEs", "silence s", "missing", "repeated", "of BIRD"]
    ]
    for scenario, by_router in results["loads"].items():
        bird = by_router.get("bird")
        for name, figures in by_router.items():
            ratio = (
                f"{figures['wall_s'] / bird['wall_s']:.2f} / {figures['pss_mib'] / bird['pss_mib']:.2f}"
                if bird
                else "-"
            )
            rows.append(
                [
                    scenario, name, f"{figures['wall_s']:.2f}", f"{figures['cpu_s']:.2f}", f"{figures['pss_mib']:.0f}",
                    f"{figures['updates']:.0f}", f"{figures['silence_s']:.1f}", str(figures["missing"]),
                    str(figures["repeated"]), ratio,
                ]
            )  # fmt: skip
    return rows


def show(results: dict) -> None:
    rows = table_rows(results)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    for scenario, by_router in results["probes"].items():
        for name, figures in by_router.items():
            print(f"{scenario}: {name}: {json.dumps(figures)}")


def show_cost(pairs: dict[str, list[tuple[float, float]]], name: str) -> None:
    """Print what it costs to share out the work: the CPU time of all processes, as a part of that with one of each.

    Of each round's two, which ran one after the other: what the machine does besides changes from round to round.
    """
    for scenario, rounds in pairs.items():
        ratios = sorted(shared / alone for alone, shared in rounds)
        middle, all_of_them = statistics.median(ratios), " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"{scenario}: {name}: {middle:.2f} of the CPU time with one of each (rounds: {all_of_them})")


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--rounds", default=3, show_default=True)
@click.option("--neighbors", default="1,4", show_default=True, help="How many senders, separated by commas.")
@click.option("--size", default=1_230_000, show_default=True, help="Prefixes in each table.")
@click.option("--mrt", type=FILE, help="Let each sender play a peer of this MRT file instead, the largest first.")
@click.option("--prefixes", type=FILE, help="Take the prefixes of the tables from a list.")
@click.option("--routers", default="headrace,bird", show_default=True)
@click.option("--with-kernel", is_flag=True, help="Routes go into the kernel of the router's namespace too.")
@click.option("--probes", default=1000, show_default=True, help="Single changes measured alone; 0: none.")
@click.option("--rib-shards", default=1, help="Measure beside it a Headrace with so many ribs,")
@click.option("--policy-workers", default=1, help="so many policy stages,")
@click.option("--exporters", default=1, help="and so many exporters; prints what sharing out costs.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(
    rounds,
    neighbors,
    size,
    mrt,
    prefixes,
    routers,
    with_kernel,
    probes,
    rib_shards,
    policy_workers,
    exporters,
    json_path,
):
    """Measure the pipeline beside BIRD; needs root (network namespaces)."""
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    kinds = [ROUTERS[name] for name in routers.split(",") if ROUTERS[name].is_installed()]
    instances = {"rib": rib_shards, "policy": policy_workers, "exporter": exporters}
    instances = {stage: count for stage, count in instances.items() if count > 1}
    if instances:
        kinds.append(sharing_headrace(**instances))
    results = {
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "versions": {kind.name: kind.version() for kind in kinds},
        "rounds": rounds,
        "loads": {},
        "probes": {},
    }
    table = ["--mrt", str(mrt)] if mrt else ["--prefixes", str(prefixes)] if prefixes else ["--size", str(size)]
    pairs: dict[str, list[tuple[float, float]]] = {}
    for count in (int(word) for word in neighbors.split(",") if word):
        measured: dict[str, list[dict]] = {kind.name: [] for kind in kinds}
        for _ in range(rounds):
            for kind in kinds:
                measured[kind.name].append(load_once(kind, count, table, with_kernel))
                print(f"{count} neighbors: {kind.name}: {json.dumps(measured[kind.name][-1])}", file=sys.stderr)
        scenario = f"{count} x {(mrt or prefixes or Path(str(size))).name}" + (" + kernel" if with_kernel else "")
        results["loads"][scenario] = {name: median_of(each) for name, each in measured.items()}
        if instances and Headrace in kinds:
            times = [[each["cpu_s"] for each in measured[kind.name]] for kind in (Headrace, kinds[-1])]
            pairs[scenario] = list(zip(*times, strict=True))
    if probes:
        for scenario, while_loading in (("alone", False), ("while loading", True)):
            results["probes"][scenario] = {kind.name: probe_once(kind, size, probes, while_loading) for kind in kinds}
    show(results)
    if pairs:
        show_cost(pairs, kinds[-1].name)
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
