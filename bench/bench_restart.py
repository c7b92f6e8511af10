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

The speaker is lost last, killed and restarted in order, in a router of its own with two of them: all neighbors are the
first one's, with graceful restart, but for one more listener, which is the second one's and is the one looked at. Its
neighbors call again, the senders tell their tables anew, and then comes the one prefix more.

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
from bench.routers import Headrace, Peer, cpu_s, senders_and_listener  # noqa: E402
from common.bus.question import ControlError, ask  # noqa: E402
from stages.feed import wire  # noqa: E402
from stages.feed.load import Load, Player  # noqa: E402
from stages.feed.neighbor import Plan  # noqa: E402
from stages.feed.probe import Probes  # noqa: E402
from stages.feed.source import Synthetic  # noqa: E402

STAGES = ("policy", "exporter", "rib", "fib", "status", "speaker")
PAIRS = (("policy", "rib"), ("rib", "fib"))
LIMIT_S = 120.0
HOLD_TIME_S = 9
RESTART_TIME_S = 120
RETRY_S = 0.02
QUIET_S = 1.0
OTHER, OTHER_ADDRESS = "west", "10.77.0.21"  # the speaker that is not lost, and its neighbor
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
        """Return the process of each stage, 0 while it has none; of a second instance as STAGE.INSTANCE."""
        rows = ask(self.run_dir, "supervisor")["stages"]
        return {f"{row['stage']}.{row['instance']}".removesuffix(".0"): row["pid"] for row in rows}

    def restart(self, name: str) -> None:
        """Have a stage ended in order, and started again."""
        stage, _, instance = name.partition(".")
        ask(self.run_dir, "supervisor", question="restart", name=f"{stage}.{instance or 0}")

    def n_installed(self) -> int:
        """Return how many routes are in the kernel, -1 while some wait for it."""
        families = ask(self.run_dir, "fib", timeout_s=5)["families"].values()
        return -1 if any(each["queued"] for each in families) else sum(each["installed"] for each in families)

    def is_in_step(self, name: str) -> bool:
        stage, _, instance = name.partition(".")
        try:
            return ask(self.run_dir, stage, instance or "0", "health", timeout_s=2)["state"] == "in step"
        except (ControlError, TimeoutError):
            return False


def resident_octets(pid: int) -> int:
    """Return the resident size of a process, 0 if it has gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_OCTETS
    except OSError:
        return 0


class Watch(threading.Thread):
    """Ends stages, and looks until all are in step again; the sizes of all processes meanwhile."""

    def __init__(self, stages: Stages, victims: tuple[str, ...], is_orderly: bool = False):
        super().__init__(daemon=True)
        self.stages = stages
        self.victims = victims
        self.is_orderly = is_orderly
        self.is_due = threading.Event()  # all has been sent that the stages can be in step with
        self.before = stages.pids()
        self.sizes = {name: resident_octets(pid) for name, pid in self.before.items()}
        self.peaks = dict(self.sizes)
        self.cpu_before = {name: cpu_s(pid) for name, pid in self.before.items()}
        self.killed_at = 0.0
        self.in_step_s: float | None = None
        self.is_over = threading.Event()

    def lose(self) -> None:
        """End the stages, and begin to look."""
        self.killed_at = time.monotonic()
        for name in self.victims:
            if self.is_orderly:
                self.stages.restart(name)
            else:
                os.kill(self.before[name], signal.SIGKILL)
            self.peaks[name] = 0
        self.start()

    def run(self) -> None:
        missing = list(self.before)
        pids = self.before
        while not self.is_over.wait(0.02):
            # A look takes the time of those it asks: the supervisor only until all are back, one stage a look.
            if not self._are_back(pids):
                pids = self.stages.pids()
            for name, pid in pids.items():
                if name not in self.victims or pid != self.before[name]:
                    self.peaks[name] = max(self.peaks[name], resident_octets(pid))
            if self.in_step_s is None and self.is_due.is_set() and self._are_back(pids):
                while missing and self.stages.is_in_step(missing[-1]):
                    missing.pop()
                if not missing:
                    # All were so at some time since; the last look is the one that counts.
                    missing = [name for name in self.before if not self.stages.is_in_step(name)]
                if not missing:
                    self.in_step_s = time.monotonic() - self.killed_at

    def _are_back(self, pids: dict[str, int]) -> bool:
        return all(pids[name] not in (0, self.before[name]) for name in self.victims)

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


def make_player(n_senders: int, size: int, restart_time_s: int = 0) -> Player:
    """Return the neighbors, with graceful restart if there is a time for it; with it goes one more listener."""
    common = {"hold_time_s": HOLD_TIME_S, "restart_time_s": restart_time_s}
    senders = [
        (
            Plan(f"sender{index}", topology.sender_address(index), topology.sender_asn(index),
                 router_id=topology.sender_address(index), **common),
            Synthetic(size, 1, index),
        )
        for index in range(n_senders)
    ]  # fmt: skip
    listeners = [
        Plan(peer.name, peer.address, peer.asn, peer.address, n_expected=None, **common)
        for peer in router_peers(n_senders, restart_time_s > 0)
        if peer.exports
    ]
    target = topology.ROUTER_ADDRESS, 179
    return Player(Load(target, senders, listeners, time_limit_s=LIMIT_S, retry_s=RETRY_S))


def router_peers(n_senders: int, has_two_speakers: bool) -> list[Peer]:
    """Return the neighbors as the router is configured; one that listens at a second speaker, if there is one."""
    peers = senders_and_listener(n_senders)
    if has_two_speakers:
        peers.append(Peer("other", OTHER_ADDRESS, topology.LISTENER_ASN + 1, False, True, speaker=OTHER))
    return peers


class Loss:
    """One loss of stages: what the listener, the kernel and the other stages notice of it."""

    def __init__(self, player: Player, stages: Stages, kernel: KernelWatch, turn: int):
        """`turn` numbers the losses; the last listener is the one looked at."""
        self.player = player
        self.stages = stages
        self.kernel = kernel
        self.listener = player.listeners[-1]
        self.turn = turn
        self.watch: Watch | None = None

    def lose(self, victims: tuple[str, ...], is_orderly: bool = False) -> None:
        """End the stages."""
        self.kernel.count()
        self.n_updates = self.listener.n_updates
        for neighbor in self.player.neighbors:
            neighbor.longest_silence_s = 0.0
        self.watch = Watch(self.stages, victims, is_orderly)
        self.watch.lose()

    def wait(self) -> None:
        """Announce a prefix, wait until all is as it should be."""
        player, watch = self.player, self.watch
        probes = self.probes = Probes(player.senders[0], 0.0, self.turn + 1)
        probes.n_sent = self.turn
        self.announced_s = time.monotonic() - watch.killed_at
        watch.is_due.set()
        player.probes = self.listener.probes = probes
        player.deadline = time.monotonic() + LIMIT_S
        player.until(lambda: probes.is_done and watch.in_step_s is not None, f"{watch.victims} to be back")
        self.seen_s = self.announced_s + probes.delays_s[0]
        player.run_for(QUIET_S)
        self.cpu = watch.cpu_by_stage()
        watch.is_over.set()
        watch.join()
        player.probes = self.listener.probes = None

    def call_again(self, tables: dict[str, list], announced: list[Probes]) -> None:
        """Have the neighbors of a speaker that was lost call again, and the senders tell all once more."""
        player = self.player
        lost = [neighbor for neighbor in player.neighbors if neighbor is not self.listener]
        player.ignored |= {neighbor.plan.name for neighbor in lost}
        player.deadline = time.monotonic() + LIMIT_S
        player.until(lambda: all(neighbor.failure for neighbor in lost), "the loss of the sessions")
        with topology.joined(topology.PEERS):
            player.connect(lost, LIMIT_S)
        player.ignored -= {neighbor.plan.name for neighbor in lost}
        for probes in announced:
            for block in wire.announce(probes.table()):
                probes.sender.send(block)
        player.sending.update(tables)
        for neighbor in player.senders:
            player.start_sending(neighbor)
        player.until(lambda: not any(neighbor.wants_to_send for neighbor in player.senders), "the tables")

    def result(self) -> dict:
        """Return what was noticed; silence of neighbors whose session is meant to end is not looked at."""
        watch = self.watch
        heard = [self.listener] if self.listener.plan.name == "other" else self.player.neighbors
        return {
            "seen_s": self.seen_s,
            "in_step_s": watch.in_step_s,
            "updates": self.listener.n_updates - self.n_updates - 1,
            "kernel": self.kernel.count() - 1,
            "silence_s": max(neighbor.longest_silence_s for neighbor in heard),
            "peak_mib": max(watch.peaks[name] for name in watch.victims) / 2**20,
            "growth_percent": watch.growth_percent(),
            "growth_mib": {name: round(size / 2**20, 1) for name, size in watch.growth_by_stage().items() if size},
            "cpu_s": self.cpu,
        }


def measure(n_senders: int, size: int, choices: list[tuple[str, ...]]) -> dict[str, dict]:
    """Load a router, and lose stages in turn."""
    results = {}

    def lose(player: Player, stages: Stages, kernel: KernelWatch, tables: dict[str, list]) -> int:
        for turn, victims in enumerate(choices):
            loss = Loss(player, stages, kernel, turn)
            loss.lose(victims)
            loss.wait()
            results["+".join(victims)] = loss.result()
        return len(choices)

    with_table(n_senders, size, 0, lose)
    return results


def measure_speaker(n_senders: int, size: int) -> dict[str, dict]:
    """Load a router with two speakers, kill one and restart it in order."""
    results = {}

    def lose(player: Player, stages: Stages, kernel: KernelWatch, tables: dict[str, list]) -> int:
        announced = []
        for turn, way in enumerate(("speaker", "speaker, restarted")):
            loss = Loss(player, stages, kernel, turn)
            loss.lose(("speaker",), is_orderly=turn == 1)
            loss.call_again(tables, announced)
            loss.wait()
            announced.append(loss.probes)
            results[way] = loss.result()
        return len(announced)

    with_table(n_senders, size, RESTART_TIME_S, lose)
    return results


def with_table(n_senders: int, size: int, restart_time_s: int, lose) -> None:
    """Load a router, call `lose(player, stages, kernel, tables)`, which returns how many prefixes it has announced."""
    player = make_player(n_senders, size, restart_time_s)
    tables = {name: list(sending) for name, sending in player.sending.items()}
    player.sending.update(tables)
    peers = router_peers(n_senders, restart_time_s > 0)
    with (
        topology.namespaces(peers=[peer.address for peer in peers]),
        Headrace(n_senders, with_kernel=True, peers=peers) as router,
    ):
        kernel = KernelWatch()
        stages = Stages(router.directory / "run")
        try:
            with topology.joined(topology.PEERS):
                player.connect()
            player.send_tables()
            wait_for_kernel(player, stages)
            n_more = lose(player, stages, kernel, tables)
            for name, verdict in player.verdict().items():
                assert verdict.extra == n_more and not verdict.missing and not verdict.wrong, (name, verdict)
        except Exception:
            print((router.directory / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            player.close()


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
    names = [name for name in stages.split(",") if name]
    choices = [(name,) for name in names if name != "speaker"] + (list(PAIRS) if pairs else [])
    results = {"machine": {"cores": os.cpu_count()}, "losses": {}}
    for count in (int(word) for word in neighbors.split(",") if word):
        losses = results["losses"][f"{count} x {size}"] = measure(count, size, choices) if choices else {}
        if "speaker" in names:
            losses |= measure_speaker(count, size)
    show(results)
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
