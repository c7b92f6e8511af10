"""Losing each stage under a full table, measured from outside: what a peer, the kernel and the other stages notice.

Tables from one and from four neighbors go to one more that listens, and into the kernel of the router's namespace. Then
each stage is killed in turn with SIGKILL, and at that moment one neighbor announces one prefix more. Shown for each:

    seen s        until the listener has been told that prefix
    in step s     until every stage says it is in step
    UPDATEs       the listener was sent beside the one with that prefix: 0
    kernel        notifications of routes beside the one of that prefix: 0
    silence s     the longest a neighbor heard nothing; a KEEPALIVE is due after 3 s
    peak MiB      the new process at its largest (resident)
    growth %      of the others meanwhile, at their largest (resident)
    CPU s         of all stages, until all was quiet

    python bench/bench_restart.py --neighbors 1,4 --json results.json
"""

import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.routers import Headrace  # noqa: E402
from common.bus.question import ControlError, ask  # noqa: E402
from stages.feed.load import Load, Player  # noqa: E402
from stages.feed.neighbor import Plan  # noqa: E402
from stages.feed.probe import Probes  # noqa: E402
from stages.feed.source import Synthetic  # noqa: E402

STAGES = ("policy", "exporter", "rib", "fib", "status")
PAIRS = (("policy", "rib"), ("rib", "fib"))
LIMIT_S = 120.0
HOLD_TIME_S = 9
QUIET_S = 1.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE_OCTETS = os.sysconf("SC_PAGE_SIZE")
ROUTE_GROUPS = 0x40 | 0x400  # RTMGRP_IPV4_ROUTE, RTMGRP_IPV6_ROUTE
SO_RCVBUFFORCE = 33
PROTOCOL_BGP = 186
COLUMNS = (
    "scenario", "killed", "seen s", "in step s", "UPDATEs", "kernel", "silence s", "peak MiB", "growth %", "CPU s",
)  # fmt: skip


class KernelWatch:
    """Counts what the kernel tells of BGP's routes in the router's namespace: new or replaced (24), deleted (25)."""

    def __init__(self):
        with topology.joined(topology.ROUTER):
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        self.socket.bind((0, ROUTE_GROUPS))
        self.socket.setblocking(False)

    def count(self) -> int:
        """Return how many there were since the last call."""
        n = 0
        while True:
            try:
                octets = self.socket.recv(1 << 20)
            except BlockingIOError:
                return n
            except OSError:  # more than the buffer holds
                n += 1_000_000
                continue
            at = 0
            while at + 16 <= len(octets):
                length, kind = struct.unpack_from("=IH", octets, at)
                n += kind in (24, 25) and octets[at + 21] == PROTOCOL_BGP  # rtmsg.rtm_protocol
                at += (length + 3) & ~3


class Stages:
    """The router's processes as the supervisor knows them, looked at from a thread of its own."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir

    def pids(self) -> dict[str, int]:
        """Return the process of each stage, 0 while it has none."""
        return {row["stage"]: row["pid"] for row in ask(self.run_dir, "supervisor")["stages"]}

    def n_installed(self) -> int:
        """Return how many routes are in the kernel, -1 while some wait for it."""
        families = ask(self.run_dir, "fib", timeout_s=5)["families"].values()
        return -1 if any(each["queued"] for each in families) else sum(each["installed"] for each in families)

    def is_in_step(self, name: str) -> bool:
        try:
            return ask(self.run_dir, name, timeout_s=2)["state"] == "in step"
        except (ControlError, TimeoutError):
            return False


def resident_octets(pid: int) -> int:
    """Return the resident size of a process, 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_OCTETS
    except OSError:
        return 0


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used, 0 if it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


class Watch(threading.Thread):
    """Kills stages, and looks until all are in step again; the sizes of all processes meanwhile."""

    def __init__(self, stages: Stages, victims: tuple[str, ...]):
        super().__init__(daemon=True)
        self.stages = stages
        self.victims = victims
        self.before = stages.pids()
        self.sizes = {name: resident_octets(pid) for name, pid in self.before.items()}
        self.peaks = dict(self.sizes)
        self.cpu_before = {name: cpu_s(pid) for name, pid in self.before.items()}
        self.killed_at = 0.0
        self.in_step_s: float | None = None
        self.is_over = threading.Event()

    def kill(self) -> None:
        """Kill the stages, and begin to look."""
        for name in self.victims:
            os.kill(self.before[name], signal.SIGKILL)
            self.peaks[name] = 0
        self.killed_at = time.monotonic()
        self.start()

    def run(self) -> None:
        missing = list(self.before)
        while not self.is_over.wait(0.02):
            pids = self.stages.pids()
            for name, pid in pids.items():
                self.peaks[name] = max(self.peaks[name], resident_octets(pid))
            if self.in_step_s is None and all(pids[name] not in (0, self.before[name]) for name in self.victims):
                missing = [name for name in missing if not self.stages.is_in_step(name)]
                if not missing:
                    # All were so at some time since; the last look is the one that counts.
                    missing = [name for name in self.before if not self.stages.is_in_step(name)]
                if not missing:
                    self.in_step_s = time.monotonic() - self.killed_at

    def cpu_by_stage(self) -> dict[str, float]:
        """Return the CPU time each stage has used since its loss, seconds."""
        return {
            name: round(cpu_s(pid) - (0 if name in self.victims else self.cpu_before[name]), 2)
            for name, pid in self.stages.pids().items()
        }

    def growth_by_stage(self) -> dict[str, int]:
        """Return by how much each of the others has grown, octets."""
        return {name: self.peaks[name] - size for name, size in self.sizes.items() if name not in self.victims}

    def growth_percent(self) -> float:
        """Return by how much the others, together, have grown."""
        grown = self.growth_by_stage()
        return 100 * sum(grown.values()) / sum(self.sizes[name] for name in grown)


def make_player(n_senders: int, size: int) -> Player:
    senders = [
        (
            Plan(f"sender{index}", topology.sender_address(index), topology.sender_asn(index),
                 router_id=topology.sender_address(index), hold_time_s=HOLD_TIME_S),
            Synthetic(size, 1, index),
        )
        for index in range(n_senders)
    ]  # fmt: skip
    listener = Plan(
        "listener", topology.LISTENER_ADDRESS, topology.LISTENER_ASN, topology.LISTENER_ADDRESS,
        hold_time_s=HOLD_TIME_S, n_expected=None,
    )  # fmt: skip
    return Player(Load((topology.ROUTER_ADDRESS, 179), senders, [listener], time_limit_s=LIMIT_S))


def lose(player: Player, stages: Stages, kernel: KernelWatch, victims: tuple[str, ...], turn: int) -> dict:
    """Kill stages, announce a prefix, wait until all is as it should be; return what was noticed."""
    listener = player.listeners[0]
    kernel.count()
    n_updates = listener.n_updates
    for neighbor in player.neighbors:
        neighbor.longest_silence_s = 0.0
    watch = Watch(stages, victims)
    probes = Probes(player.senders[0], 0.0, turn + 1)
    probes.n_sent = turn
    watch.kill()
    player.probes = listener.probes = probes
    player.deadline = time.monotonic() + LIMIT_S
    player.until(lambda: probes.is_done and watch.in_step_s is not None, f"{victims} to be back")
    player.run_for(QUIET_S)
    cpu = watch.cpu_by_stage()
    watch.is_over.set()
    watch.join()
    player.probes = listener.probes = None
    return {
        "seen_s": probes.delays_s[0],
        "in_step_s": watch.in_step_s,
        "updates": listener.n_updates - n_updates - 1,
        "kernel": kernel.count() - 1,
        "silence_s": max(neighbor.longest_silence_s for neighbor in player.neighbors),
        "peak_mib": max(watch.peaks[name] for name in victims) / 2**20,
        "growth_percent": watch.growth_percent(),
        "growth_mib": {name: round(size / 2**20, 1) for name, size in watch.growth_by_stage().items() if size},
        "cpu_s": cpu,
    }


def measure(n_senders: int, size: int, choices: list[tuple[str, ...]]) -> dict[str, dict]:
    """Load a router, and lose stages in turn."""
    results = {}
    player = make_player(n_senders, size)
    with topology.namespaces(n_senders), Headrace(n_senders, with_kernel=True) as router:
        kernel = KernelWatch()
        stages = Stages(router.directory / "run")
        try:
            with topology.joined(topology.PEERS):
                player.connect()
            player.send_tables()
            wait_for_kernel(player, stages)
            for turn, victims in enumerate(choices):
                name = "+".join(victims)
                results[name] = lose(player, stages, kernel, victims, turn)
                print(f"{n_senders} x {size}: {name}: {json.dumps(results[name])}", file=sys.stderr)
            verdict = player.verdict()["listener"]
            assert verdict.extra == len(choices) and not verdict.missing and not verdict.wrong, verdict
        except Exception:
            print((router.directory / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            player.close()
    return results


def wait_for_kernel(player: Player, stages: Stages) -> None:
    """Go on until every stage is in step, and the kernel has every route."""
    is_done = threading.Event()

    def look() -> None:
        while stages.n_installed() != player.listeners[0].n_held:
            time.sleep(0.2)
        while not all(stages.is_in_step(name) for name in stages.pids()):
            time.sleep(0.2)
        is_done.set()

    threading.Thread(target=look, daemon=True).start()
    player.until(is_done.is_set, "all stages to be in step")


def show(results: dict) -> None:
    rows = [COLUMNS]
    for scenario, by_stage in results["losses"].items():
        for name, each in by_stage.items():
            rows.append(
                (
                    scenario, name, f"{each['seen_s']:.2f}", f"{each['in_step_s']:.2f}", str(each["updates"]),
                    str(each["kernel"]), f"{each['silence_s']:.1f}", f"{each['peak_mib']:.0f}",
                    f"{each['growth_percent']:.1f}", f"{sum(each['cpu_s'].values()):.1f}",
                )
            )  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


@click.command()
@click.option("--neighbors", default="1,4", show_default=True, help="How many senders, separated by commas.")
@click.option("--size", default=1_230_000, show_default=True, help="Prefixes in each table.")
@click.option("--stages", default=",".join(STAGES), show_default=True, help="Which to kill, one after the other.")
@click.option("--pairs/--no-pairs", default=True, show_default=True, help="Also two at the same time.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(neighbors, size, stages, pairs, json_path):
    """Measure what is noticed of the loss of each stage; needs root (network namespaces)."""
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    choices = [(name,) for name in stages.split(",") if name] + (list(PAIRS) if pairs else [])
    results = {"machine": {"cores": os.cpu_count()}, "losses": {}}
    for count in (int(word) for word in neighbors.split(",") if word):
        results["losses"][f"{count} x {size}"] = measure(count, size, choices)
    show(results)
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
