"""The kernel's table, measured: routes a second into it, and the whole way there beside BIRD.

First the kernel alone: a full table installed, replaced and removed, with nexthop objects and with gateways, in random
order and sorted, in batches of several sizes; and how long it takes when the way to the next hop of them all changes,
with one message where there are nexthop objects. Then, with --beside, the main path: the time from the first octet a
neighbor sent until the kernel has the whole table, for Headrace and for BIRD on the same input, in turn.

    python bench/bench_kernel.py --beside --json results.json

Needs root and iproute2; everything happens in network namespaces.
"""

import ctypes
import json
import platform
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.arrivals import Arrivals  # noqa: E402
from bench.bench_pipeline import Feed, senders  # noqa: E402
from bench.kernels.prefixes import full_table  # noqa: E402
from bench.routers import ROUTERS, Router  # noqa: E402
from common.bgp.constants import Family  # noqa: E402
from common.kernels import netlink  # noqa: E402
from stages.fib import messages  # noqa: E402
from stages.fib.kernel import Kernel  # noqa: E402
from stages.fib.stage import ADDRESS_FAMILIES  # noqa: E402

CLONE_NEWNET = 0x40000000
HOPS = {Family.IPV4_UNICAST: bytes([10, 77, 0, 20]), Family.IPV6_UNICAST: bytes.fromhex("fd77" + "0" * 26 + "14")}
FIRST_OBJECT = 1000
ACTIONS = {"install": netlink.INSTALL, "replace": netlink.REPLACE, "remove": netlink.REMOVE}
POLL_S = 0.02
TIME_LIMIT_S = 120


@contextmanager
def entered(name: str):
    """Be in a network namespace; sockets opened here stay there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as before, open(f"/run/netns/{name}") as inside:
        if libc.setns(inside.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            libc.setns(before.fileno(), CLONE_NEWNET)


def object_of(kernel: Kernel, family: Family, way: int) -> tuple[int, messages.Gateway]:
    """Return identifier and gateway of one of two ways."""
    index = next(link.index for link in kernel.links() if link.name == "veth0")
    gateway = messages.Gateway(ADDRESS_FAMILIES[family], HOPS[family][:-1] + bytes([HOPS[family][-1] + way]), index)
    return FIRST_OBJECT + 10 * family.index + way, gateway


def columns_by_way(kernel: Kernel, has_objects: bool) -> SimpleNamespace:
    """Make two ways for each family, as nexthop objects or gateways; return their columns."""
    octets = {}
    for family, number in ADDRESS_FAMILIES.items():
        made = [b""]
        for way in (1, 2):
            identifier, gateway = object_of(kernel, family, way)
            if has_objects:
                code, text = kernel.request(lambda n, i=identifier, g=gateway: messages.set_nexthop(n, i, g))
                if code:
                    raise OSError(code, text)
            made.append(messages.way_by_object(identifier) if has_objects else messages.way_by_gateway(number, gateway))
        octets[number] = made
    return SimpleNamespace(
        type=np.ones(3, np.uint8),
        flags=np.zeros(3, np.uint32),
        length={number: np.array([len(one) for one in made], np.uint8) for number, made in octets.items()},
        octets={
            number: np.frombuffer(b"".join(one.ljust(netlink.WAY_OCTETS, b"\0") for one in made), np.uint8)
            for number, made in octets.items()
        },
    )


def move_ms(kernel: Kernel, family: Family) -> float:
    """Return how long the kernel takes to lead all routes of a family elsewhere, by a change of the object of way 2."""
    identifier, gateway = object_of(kernel, family, 2)
    elsewhere = replace(gateway, address=gateway.address[:-1] + b"\x63")
    start = time.perf_counter()
    code, text = kernel.request(lambda n: messages.set_nexthop(n, identifier, elsewhere))
    if code:
        raise OSError(code, text)
    return 1000 * (time.perf_counter() - start)


def rates(family: Family, scale: float, has_objects: bool, is_sorted: bool, batch: int) -> dict[str, float]:
    """Return routes a second of each action on a table of one family, and `move_ms` where there are objects."""
    table = full_table(family, scale)
    order = np.random.default_rng(1).permutation(table.n_prefixes)
    if is_sorted:
        order = np.lexsort((table.length, table.lo, table.hi) if family.is_wide else (table.length, table.hi))
    hi, length = table.hi[order], table.length[order]
    lo = table.lo[order] if family.is_wide else table.lo
    found = {}
    with topology.namespaces(1):
        with entered(topology.ROUTER):
            kernel = Kernel(messages.TABLE_MAIN, 20, batch)
            kernel.compat_mode(0)
        ways = columns_by_way(kernel, has_objects)
        for name, action in ACTIONS.items():
            way = 2 if name == "replace" else 1
            start = time.perf_counter()
            n_refused = 0
            for at in range(0, len(hi), batch):
                rows = slice(at, at + batch)
                n = len(hi[rows])
                errors = kernel.change(
                    ADDRESS_FAMILIES[family], np.full(n, action, np.uint8), hi[rows],
                    lo[rows] if family.is_wide else lo, length[rows], np.full(n, way, np.uint32), ways,
                )  # fmt: skip
                n_refused += int(np.count_nonzero(errors))
            found[name] = len(hi) / (time.perf_counter() - start)
            if name == "replace" and has_objects:
                found["move_ms"] = move_ms(kernel, family)
            if n_refused:
                raise RuntimeError(f"{n_refused} routes of {family.label} were refused ({name})")
        kernel.close()
    return found


def whole_way(kind: type[Router], size: int) -> float:
    """Return the seconds from the first octet sent until a router has the whole table in the kernel."""
    with topology.namespaces(1), kind(1, with_kernel=True) as router:
        arrivals = Arrivals(topology.ROUTER, router.process.pid, size)
        feed = Feed(*senders(1), "--size", str(size), "--time-limit", str(TIME_LIMIT_S))
        feed.wait_for("established")
        start = now = time.monotonic()
        while not arrivals.are_complete():
            if now - start > TIME_LIMIT_S:
                raise RuntimeError(f"{kind.name}: {arrivals.n_missing()} of {size} are not in the kernel")
            time.sleep(POLL_S)
            now = time.monotonic()
        arrivals.close()
        feed.end()
        return now - start


def print_rates(scale: float, batches: list[int]) -> list[dict]:
    """Measure and print the kernel alone."""
    click.echo(f"{'routes a second':44}{'batch':>7}" + "".join(f"{name:>12}" for name in ACTIONS) + f"{'move ms':>10}")
    rows = []
    for family in Family:
        for has_objects in (True, False):
            for is_sorted in (False, True):
                for batch in batches if has_objects and not is_sorted else batches[-1:]:
                    found = rates(family, scale, has_objects, is_sorted, batch)
                    how = f"{'objects' if has_objects else 'gateways'}, {'sorted' if is_sorted else 'random'}"
                    click.echo(
                        f"{family.label + ', ' + how:44}{batch:7,}"
                        + "".join(f"{found[name]:12,.0f}" for name in ACTIONS)
                        + (f"{found['move_ms']:10.1f}" if has_objects else "")
                    )
                    rows.append({"family": family.label, "how": how, "batch": batch, **found})
    return rows


def print_beside(size: int, rounds: int) -> dict[str, list[float]]:
    """Measure and print the whole way, routers in turn."""
    kinds = [kind for kind in ROUTERS.values() if kind.is_installed() and kind.has_kernel]
    times: dict[str, list[float]] = {kind.name: [] for kind in kinds}
    for _ in range(rounds):
        for kind in kinds:
            times[kind.name].append(whole_way(kind, size))
    click.echo(f"\nseconds from the first octet until {size:,} routes are in the kernel (median of {rounds})")
    for name, found in times.items():
        click.echo(f"{name:12}{statistics.median(found):8.2f}   ({min(found):.2f} to {max(found):.2f})")
    if "bird" in times:
        share = statistics.median(times["headrace"]) / statistics.median(times["bird"])
        click.echo(f"{'share':12}{share:8.2f}   (to reach: 0.35)")
    return times


@click.command()
@click.option("--scale", default=1.0, show_default=True, help="Size of the table; 1 is a full one.")
@click.option(
    "--batch", "batches", multiple=True, type=int, default=(256, 2048), show_default=True, help="Routes a batch."
)
@click.option("--beside", is_flag=True, help="The whole main path, too, beside BIRD.")
@click.option("--only-beside", is_flag=True, help="The whole main path alone.")
@click.option("--rounds", default=3, show_default=True, help="Rounds of the whole path.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here, too.")
def main(
    scale: float, batches: tuple[int, ...], beside: bool, only_beside: bool, rounds: int, path: Path | None
) -> None:
    """Print routes a second into the kernel, and the whole way there beside BIRD."""
    report: dict = {"machine": platform.platform(), "scale": scale}
    if not only_beside:
        report["rates"] = print_rates(scale, list(batches))
    if beside or only_beside:
        report["seconds"] = print_beside(round(1_230_000 * scale), rounds)
    if path is not None:
        path.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench_kernel: {error}")
