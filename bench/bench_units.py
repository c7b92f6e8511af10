"""Restarts under the units as shipped, at a full table: from `systemctl restart` until the stage is in step.

The machine that `scripts/machine DIRECTORY` has made is booted, with a network namespace of its own; one neighbor sends
its table, another listens, and the fib puts it into the namespace's kernel. Each stage is restarted in turn. Shown are

    in step s     how long `systemctl restart` takes: it comes back when the stage is in step (medians)
    CPU s         of the new process until then
    UPDATEs       the listener was sent meanwhile: 0
    routes        in the kernel at the end

    HEADRACE_MACHINE=DIRECTORY python bench/bench_units.py --rounds 3 --json results.json
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.deploy.machine import CONFIGURATION, ROOT, Machine  # noqa: E402
from tests.processes.router import Neighbors  # noqa: E402

STAGES = ("policy", "exporter", "rib", "fib")
LIMIT_S = 300.0
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
LARGE = CONFIGURATION.replace("passive = true\nimport", "passive = true\nmaximum_prefixes = 3000000\nimport")
OUTSIDE = """
ip link add outside type veth peer name far && ip link set outside up && ip link set far up
ip address add 198.51.100.1/24 dev outside && ip address add 2001:db8:77::1/64 dev outside nodad
"""


def n_installed(machine: Machine) -> int:
    """Return how many routes the fib has in the kernel."""
    shown = json.loads(machine.shell("headrace show fib --json"))
    return sum(family["installed"] for each in shown for family in each["status"]["families"].values())


def cpu_s(machine: Machine, stage: str) -> float:
    fields = machine.shell(f"cat /proc/{machine.pid(stage)}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def restart(machine: Machine, stage: str, neighbors: Neighbors) -> dict:
    """Restart a stage; return what was noticed of it."""
    listener = neighbors.player.listeners[0]
    before = listener.n_updates
    start = time.monotonic()
    machine.shell(f"systemctl restart headrace-{stage}@0")
    seconds = time.monotonic() - start
    used = cpu_s(machine, stage)
    machine.wait_for(lambda: all(map(machine.is_healthy, (*STAGES, "speaker"))), "all stages to be in step")
    return {"in_step_s": seconds, "cpu_s": used, "updates": listener.n_updates - before}


def measure(sizes: tuple[int, int], rounds: int) -> dict[str, list[dict]]:
    results: dict[str, list[dict]] = {stage: [] for stage in STAGES}
    machine = Machine(configuration=LARGE)
    neighbors = None
    try:
        machine.shell(OUTSIDE)
        neighbors = Neighbors(179, network=machine.network, sizes=sizes, deadline_s=LIMIT_S)
        neighbors.wait_until_loaded()
        machine.wait_for(lambda: n_installed(machine) == sum(sizes), "all routes in the kernel")
        for _ in range(rounds):
            for stage in STAGES:
                results[stage].append(restart(machine, stage, neighbors))
                print(f"{stage}: {json.dumps(results[stage][-1])}", file=sys.stderr)
        assert n_installed(machine) == sum(sizes)
    finally:
        if neighbors is not None:
            neighbors.close()
        machine.close()
    return results


@click.command()
@click.option("--size", default=1_230_000, show_default=True, help="Prefixes of the table, of both families.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(size, rounds, json_path):
    """Measure restarts under the units; needs root, systemd-nspawn and HEADRACE_MACHINE (scripts/machine)."""
    if os.geteuid() != 0 or not (ROOT / "etc/debian_version").exists():
        raise click.ClickException("run as root, with HEADRACE_MACHINE naming what scripts/machine has made")
    n_wide = size * 23 // 123
    results = measure((size - n_wide, n_wide), rounds)
    print(f"{'stage':10}{'in step s':>10}{'CPU s':>8}{'UPDATEs':>9}")
    for stage, found in results.items():
        medians = [statistics.median(each[name] for each in found) for name in ("in_step_s", "cpu_s")]
        print(f"{stage:10}{medians[0]:10.2f}{medians[1]:8.2f}{max(each['updates'] for each in found):9}")
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
