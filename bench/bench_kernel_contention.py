"""What a program that dumps the kernel's table costs those who change it.

A steady churn of IPv6 routes (each removed and added again, one a message or many) runs alone, then beside a program
that dumps the table in a loop, then beside Headrace's own fib stage, which listens and never dumps. The kernel walks
the table under the lock that a change needs, so a dumper costs a factor; a listener costs its notifications.

    python bench/bench_kernel_contention.py --routes 100000 --json results.json

Needs root and iproute2; everything happens in network namespaces.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET6

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.bench_kernel import columns_by_way, entered  # noqa: E402
from common.bus.question import ask  # noqa: E402
from common.kernels import netlink  # noqa: E402
from stages.fib import messages  # noqa: E402
from stages.fib.kernel import Kernel  # noqa: E402

PROTOCOL = 99  # of the routes that change: nobody's
METRIC = 1024
ROOT = Path(__file__).resolve().parent.parent
NO_LO = np.empty(0, np.uint64)


class Churn:
    """Routes of one table that are removed and added again, in batches of one size."""

    def __init__(self, n_routes: int, batch: int):
        self.kernel = Kernel(messages.TABLE_MAIN, METRIC, max(batch, 2048), PROTOCOL)
        for socket in self.kernel.listening:  # alone means that nobody listens
            socket.close()
        self.ways = columns_by_way(self.kernel, has_objects=False)
        self.hi = (np.uint64(0x2001 << 48) + (np.arange(n_routes, dtype=np.uint64) << np.uint64(16))).astype(np.uint64)
        self.lo = np.zeros(n_routes, np.uint64)
        self.length = np.full(n_routes, 48, np.uint8)
        self.batch = batch

    def change(self, action: int, rows: slice) -> None:
        """Make one batch of changes; raise RuntimeError if the kernel refuses any."""
        n = len(self.hi[rows])
        errors = self.kernel.change(
            AF_INET6, np.full(n, action, np.uint8), self.hi[rows], self.lo[rows], self.length[rows],
            np.ones(n, np.uint32), self.ways,
        )  # fmt: skip
        if errors.any():
            raise RuntimeError(f"the kernel refused a route: {os.strerror(int(errors.max()))}")

    def fill(self) -> None:
        for at in range(0, len(self.hi), 2048):
            self.change(netlink.INSTALL, slice(at, at + 2048))

    def rate(self, seconds: float) -> float:
        """Remove and add routes for so long; return changes a second (a removal and an addition are two)."""
        start, at, n = time.perf_counter(), 0, 0
        while time.perf_counter() - start < seconds:
            rows = slice(at, at + self.batch)
            self.change(netlink.REMOVE, rows)
            self.change(netlink.INSTALL, rows)
            n += 2 * len(self.hi[rows])
            at = at + self.batch if at + self.batch < len(self.hi) else 0
        return n / (time.perf_counter() - start)


@contextmanager
def nobody():
    """The churn alone."""
    yield lambda: {}


@contextmanager
def dumper():
    """Another program that dumps the IPv6 table in a loop."""
    loop = "while :; do ip -6 route show table main > /dev/null; done"
    process = subprocess.Popen(topology.inside(topology.ROUTER, "sh", "-c", loop), start_new_session=True)
    try:
        time.sleep(0.5)
        yield lambda: {}
    finally:
        os.killpg(process.pid, 15)
        process.wait()


@contextmanager
def headrace():
    """Headrace's fib stage, which has read the table once and follows its notifications."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as directory:
        path = Path(directory) / "headrace.toml"
        path.write_text(
            f'[router]\nasn = 65000\nrouter_id = "{topology.ROUTER_ADDRESS}"\nrun_dir = "{directory}/run"\n'
            "[fib]\nenabled = true\n[status]\nenabled = false\n"
        )
        command = [sys.executable, "-m", "common.cli.main", "stage", "fib", str(path)]
        process = subprocess.Popen(
            topology.inside(topology.ROUTER, *command), cwd=ROOT, stderr=open(f"{directory}/log", "wb")
        )
        try:
            yield _dumps_since_ready(f"{directory}/run")
        finally:
            process.terminate()
            process.wait()


def _dumps_since_ready(run_dir: str):
    """Wait until the stage answers; return a function that tells how many dumps it has made since."""
    end = time.monotonic() + 30
    while True:
        try:
            before = ask(run_dir, "fib", "0", "status")["dumps"]
            break
        except (OSError, TimeoutError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
    return lambda: {"dumps": ask(run_dir, "fib", "0", "status", timeout_s=20)["dumps"] - before}


@click.command()
@click.option("--routes", "n_routes", default=100_000, show_default=True, help="IPv6 routes in the table.")
@click.option("--batch", "batches", multiple=True, type=int, default=(1, 2048), show_default=True)
@click.option("--seconds", default=5.0, show_default=True, help="How long each churn runs.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here, too.")
def main(n_routes: int, batches: tuple[int, ...], seconds: float, path: Path | None) -> None:
    """Print changes a second: alone, beside a program that dumps, beside Headrace."""
    rows = []
    click.echo(
        f"{'changes a second, ' + format(n_routes, ',') + ' IPv6 routes':44}{'batch':>7}{'rate':>12}{'of alone':>10}"
    )
    for batch in batches:
        alone = 0.0
        for name, beside in (("alone", nobody), ("beside a program that dumps", dumper), ("beside Headrace", headrace)):
            with topology.namespaces(1):
                with entered(topology.ROUTER):
                    churn = Churn(n_routes, batch)
                churn.fill()
                with beside() as more:
                    rate = churn.rate(seconds)
                    found = more()
                churn.kernel.close()
            alone = alone or rate
            words = f"   ({found['dumps']} dumps by Headrace meanwhile)" if found else ""
            click.echo(f"{name:44}{batch:7,}{rate:12,.0f}{rate / alone:10.2f}{words}")
            rows.append({"beside": name, "batch": batch, "rate": rate, **found})
    if path is not None:
        path.write_text(json.dumps({"machine": platform.platform(), "routes": n_routes, "rates": rows}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench_kernel_contention: {error}")
