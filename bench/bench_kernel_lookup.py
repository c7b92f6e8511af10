"""What a route lookup costs in the kernel, by size of the table and with or without a rule more.

Asks the kernel by RTM_GETROUTE for the route to one address after another, drawn from the installed prefixes, and
takes off what the round trip itself costs: that of a request the kernel answers without doing anything (NLMSG_NOOP
with an acknowledgement), asked in turn with the others. What is left is the lookup and the writing of its answer.

    python bench/bench_kernel_lookup.py --json results.json

Needs root and iproute2; everything happens in network namespaces.
"""

import json
import platform
import struct
import subprocess
import sys
import time
from pathlib import Path
from socket import AF_NETLINK, SOCK_RAW, socket

import click
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import topology  # noqa: E402
from bench.bench_kernel import columns_by_way, entered  # noqa: E402
from bench.kernels.prefixes import full_table  # noqa: E402
from common.bgp.constants import Family  # noqa: E402
from common.kernels import netlink  # noqa: E402
from stages.fib import messages  # noqa: E402
from stages.fib.kernel import BATCH_ROUTES, Kernel  # noqa: E402
from stages.fib.stage import ADDRESS_FAMILIES  # noqa: E402

FULL_TABLE = 1_230_000
NOOP = 1  # NLMSG_NOOP
REQUEST, ACKNOWLEDGED = 0x1, 0x5
RULE = ["rule", "add", "from", "198.18.0.0/15", "lookup", "100"]
RULE_6 = ["-6", "rule", "add", "from", "2001:2::/48", "lookup", "100"]
BARS = " ▁▂▃▄▅▆▇█"


def install(kernel: Kernel, n_routes: int) -> dict[Family, np.ndarray]:
    """Put so many routes into the kernel, both families in a full table's ratio; return their addresses as octets."""
    ways = columns_by_way(kernel, has_objects=True)
    addresses = {}
    for family in Family:
        table = full_table(family, n_routes / FULL_TABLE)
        for at in range(0, table.n_prefixes, BATCH_ROUTES):
            rows = slice(at, at + BATCH_ROUTES)
            n = len(table.hi[rows])
            kernel.change(
                ADDRESS_FAMILIES[family], np.full(n, netlink.INSTALL, np.uint8), table.hi[rows],
                table.lo[rows] if family.is_wide else table.lo, table.length[rows], np.ones(n, np.uint32), ways,
            )  # fmt: skip
        wide = np.stack([table.hi, table.lo if family.is_wide else np.zeros_like(table.hi)], axis=1).astype(">u8")
        addresses[family] = np.ascontiguousarray(wide).view(np.uint8).reshape(-1, 16)
    return addresses


def times_ns(requests: list[bytes]) -> np.ndarray:
    """Return how long each request took from sending to the answer, nanoseconds."""
    with entered(topology.ROUTER):
        asker = socket(AF_NETLINK, SOCK_RAW, 0)
    asker.bind((0, 0))
    buffer = bytearray(4096)
    taken = np.empty(len(requests), np.int64)
    clock = time.perf_counter_ns
    for i, request in enumerate(requests):
        start = clock()
        asker.send(request)
        asker.recv_into(buffer)
        taken[i] = clock() - start
    asker.close()
    return taken


def lookup_request(address: bytes) -> bytes:
    """Return the request for the route to an address."""
    family = 2 if len(address) == 4 else 10
    body = struct.pack("=BBBBBBBBI", family, 8 * len(address), 0, 0, 0, 0, 0, 0, 0) + messages.attribute(1, address)
    return messages.message(messages.Kind.GET_ROUTE, REQUEST, 1, body)


def measure(family: Family, addresses: np.ndarray, n: int) -> np.ndarray:
    """Return the cost of lookups of random addresses without the round trip, nanoseconds."""
    chosen = np.random.default_rng(1).integers(0, len(addresses), n)
    n_octets = 16 if family.is_wide else 4
    noop = messages.message(NOOP, ACKNOWLEDGED, 1, b"")
    requests = []
    for row in chosen.tolist():
        requests += [noop, lookup_request(addresses[row, :n_octets].tobytes())]
    times_ns(requests[: n // 5])  # caches warm up
    taken = times_ns(requests)
    return np.maximum(taken[1::2] - int(np.median(taken[::2])), 0)


def described(taken: np.ndarray) -> dict[str, float]:
    """Return minimum, median, percentiles and median absolute deviation."""
    median = float(np.median(taken))
    return {
        "minimum": float(taken.min()),
        "median": median,
        "p90": float(np.percentile(taken, 90)),
        "p95": float(np.percentile(taken, 95)),
        "deviation": float(np.median(np.abs(taken - median))),
    }


def histogram(taken: np.ndarray, width: int = 48) -> str:
    """Return a histogram from the minimum to the 99th percentile as one line of blocks, with its ends."""
    low, high = float(taken.min()), float(np.percentile(taken, 99))
    counts, _ = np.histogram(taken, width, (low, max(high, low + 1)))
    bars = "".join(BARS[int(np.ceil(count * (len(BARS) - 1) / counts.max()))] for count in counts)
    return f"{low:6,.0f} {bars} {high:,.0f} ns"


@click.command()
@click.option("--routes", "sizes", multiple=True, type=int, default=(40_000, FULL_TABLE), show_default=True)
@click.option("--lookups", default=50_000, show_default=True, help="Lookups measured of each kind.")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here, too.")
def main(sizes: tuple[int, ...], lookups: int, path: Path | None) -> None:
    """Print what a lookup costs, IPv4 and IPv6, for each size, without and with a rule more."""
    rows = []
    click.echo(f"{'ns a lookup':40}" + "".join(f"{name:>11}" for name in described(np.zeros(1))))
    for size in sizes:
        with topology.namespaces(1):
            with entered(topology.ROUTER):
                kernel = Kernel(messages.TABLE_MAIN, 20)
            addresses = install(kernel, size)
            for has_rule in (False, True):
                if has_rule:
                    for rule in (RULE, RULE_6):
                        topology.run("ip", "-n", topology.ROUTER, *rule)
                for family in Family:
                    taken = measure(family, addresses[family], lookups)
                    name = f"{family.label}, {size:,} routes" + (", a rule" if has_rule else "")
                    click.echo(f"{name:40}" + "".join(f"{value:11,.0f}" for value in described(taken).values()))
                    click.echo(f"  {histogram(taken)}")
                    row = {"family": family.label, "routes": size, "rule": has_rule}
                    rows.append(row | described(taken))
            kernel.close()
    if path is not None:
        path.write_text(json.dumps({"machine": platform.platform(), "lookups": rows}, indent=1))


if __name__ == "__main__":
    try:
        main()
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"bench_kernel_lookup: {error}")
