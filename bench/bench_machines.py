"""The bus between machines: a full table through stages that meet over ipc, over tcp, and over CURVE.

Each stage is a process of its own (`headrace stage`). Over ipc and tcp all are in one namespace, tcp on loopback
without keys. Over CURVE policy and rib are in another namespace than speaker and exporter; all four ways are encrypted,
also that from policy to rib. Each round runs every form once, in turn; shown are the medians, and what each takes of
ipc's.

    python bench/bench_machines.py --rounds 3 --json results.json
"""

import json
import os
import shlex
import statistics
import sys
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.bench_pipeline import load_once  # noqa: E402
from bench.routers import Headrace  # noqa: E402
from common.bus.keyring import write_secret  # noqa: E402
from common.bus.question import new_keys  # noqa: E402

STAGES = ("speaker", "policy", "rib", "exporter")
NEAR, FAR = "10.78.0.1", "10.78.0.2"
BUS_PORT, CONTROL_PORT = 7700, 7800


class Ipc(Headrace):
    """Stages that meet in the run directory."""

    name = "ipc"

    def command(self) -> list[str]:
        *_, file = super().command()
        path = Path(file)
        path.write_text(path.read_text() + self.more())
        stages = [" ".join(map(shlex.quote, self.start(stage, file))) + " &" for stage in STAGES]
        return ["sh", "-c", "\n".join(["trap 'trap - TERM; kill 0' TERM", *stages, "wait"])]

    def more(self) -> str:
        """Return what the configuration has beside a router's on one machine."""
        return ""

    def start(self, stage: str, file: str) -> list[str]:
        """Return the command line of a stage."""
        return [sys.executable, "-m", "common.cli.main", "stage", stage, file]


class Tcp(Ipc):
    """Stages that meet on loopback ports."""

    name = "tcp"

    def address(self, stage: str) -> str:
        return "127.0.0.1"

    def more(self) -> str:
        text = ""
        for number, stage in enumerate(STAGES):
            place = f"tcp://{self.address(stage)}"
            text += f'[[endpoint]]\nstage = "{stage}"\nbus = "{place}:{BUS_PORT + number}"\n'
            text += f'control = "{place}:{CONTROL_PORT + number}"\n'
        return text


class CurveKeys(Tcp):
    """Stages in two namespaces, each with its key."""

    name = "curve"

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.far = f"{topology.NAME}-far-{os.getpid()}"

    def address(self, stage: str) -> str:
        return FAR if stage in ("policy", "rib") else NEAR

    def more(self) -> str:
        keys = self.directory / "keys"
        text = super().more() + f'[keys]\ndirectory = "{keys}"\n'
        for stage in STAGES:
            public, secret = new_keys()
            write_secret(keys, stage, secret)
            text += f'[[key]]\nname = "{stage}"\npublic = "{public.decode()}"\nrole = "{stage}"\n'
        return text

    def start(self, stage: str, file: str) -> list[str]:
        words = super().start(stage, file)
        return topology.inside(self.far, *words) if self.address(stage) == FAR else words

    def __enter__(self):
        topology.run("ip", "netns", "add", self.far)
        topology.run("ip", "-n", self.far, "link", "set", "lo", "up")
        cable = ("link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", self.far)
        topology.run("ip", "-n", topology.ROUTER, *cable)
        for name, address in ((topology.ROUTER, NEAR), (self.far, FAR)):
            topology.run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "cable")
            topology.run("ip", "-n", name, "link", "set", "cable", "up")
        return super().__enter__()


FORMS = (Ipc, Tcp, CurveKeys)


@click.command()
@click.option("--size", default=1_230_000, show_default=True, help="Prefixes of the table, of both families.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--forms", default="ipc,tcp,curve", show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path))
def main(size, rounds, forms, json_path):
    """Measure the bus over ipc, tcp and CURVE; needs root (network namespaces)."""
    if os.geteuid() != 0:
        raise click.ClickException("run as root: the benchmark makes network namespaces")
    chosen = [form for form in FORMS if form.name in forms.split(",")]
    results: dict[str, list[dict]] = {form.name: [] for form in chosen}
    for _ in range(rounds):
        for form in chosen:
            found = load_once(form, 1, size, False)
            assert not found["missing"] and not found["extra"], found
            results[form.name].append(found)
            print(f"{form.name}: {found['wall_s']:.2f} s, {found['cpu_s']:.2f} s of CPU", file=sys.stderr)
    medians = {
        name: {key: statistics.median(each[key] for each in found) for key in ("wall_s", "cpu_s")}
        for name, found in results.items()
    }
    first = medians[chosen[0].name]
    share = f"of {chosen[0].name}"
    print(f"{'form':8}{'wall s':>8}{share:>8}{'CPU s':>8}{share:>8}")
    for name, each in medians.items():
        cells = [f"{each[key]:8.2f}{each[key] / first[key]:8.2f}" for key in ("wall_s", "cpu_s")]
        print(f"{name:8}{''.join(cells)}")
    if json_path:
        json_path.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
