"""What the feed itself can do: prefixes a second made, sent to a sink, and taken in by a listener with its checks on.

The other side is a process that forks off, opens the session, and then only reads, or only writes what it has ready.
Shown are prefixes a second by the feed's own CPU time (what it could do alone on a core) and by the clock.

    python bench/bench_feed.py --size 2000000 --rounds 5
"""

import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common.bgp.capabilities import Capabilities  # noqa: E402
from common.bgp.messages import KEEPALIVE, Open  # noqa: E402
from stages.feed import wire  # noqa: E402
from stages.feed.load import Load, Player  # noqa: E402
from stages.feed.mrt import MrtSource  # noqa: E402
from stages.feed.neighbor import Plan  # noqa: E402
from stages.feed.source import Source, Synthetic  # noqa: E402

ADDRESS = "127.0.0.1"
ASN = 65000


def plan(n_expected: int | None = 0) -> Plan:
    return Plan("feed", ADDRESS, 64601, "10.77.0.10", n_expected=n_expected)


# ---- the other side -------------------------------------------------------------------------------------------------


@contextmanager
def other_side(blocks: list[bytes] | None):
    """A speaker in a process of its own that writes these blocks, or reads all; gives its port."""
    with socket.create_server((ADDRESS, 0)) as server:
        pid = os.fork()
        if not pid:
            speak(server, blocks)
            os._exit(0)
        try:
            yield server.getsockname()[1]
        finally:
            os.waitpid(pid, 0)


def speak(server: socket.socket, blocks: list[bytes] | None) -> None:
    connection, _ = server.accept()
    capabilities = Capabilities(families=tuple(plan().families), asn4=ASN, route_refresh=True)
    connection.sendall(Open(asn=ASN, hold_time_s=90, router_id=0x0A4D0001, capabilities=capabilities).encode())
    connection.sendall(KEEPALIVE)
    for block in blocks or ():
        connection.sendall(block)
    buffer = bytearray(1 << 20)
    while connection.recv_into(buffer):
        pass


# ---- what is measured -----------------------------------------------------------------------------------------------


class Times:
    """CPU time of this process, and the clock, over a block."""

    def __enter__(self) -> "Times":
        self.cpu_s, self.wall_s = -time.process_time(), -time.monotonic()
        return self

    def __exit__(self, *_) -> None:
        self.cpu_s += time.process_time()
        self.wall_s += time.monotonic()


def make(source: Source) -> Times:
    """Make a table, piece by piece."""
    with Times() as times:
        for _ in source.tables(plan()):
            pass
    return times


def encode(source: Source) -> Times:
    """Make a table and encode it."""
    with Times() as times:
        for _ in wire.encode_stream(source.tables(plan()), plan().families):
            pass
    return times


def send(source: Source, prepared_octets: int) -> Times:
    """Send a table to a sink, encoded beforehand or while it is sent."""
    with other_side(None) as port:
        player = Player(Load((ADDRESS, port), [(plan(), source)], [], prepared_octets=prepared_octets))
        try:
            player.connect()
            with Times() as times:
                player.send_tables()
        finally:
            player.close()
    return times


def listen(source: Source, size: int) -> Times:
    """Take in a table, checked, entered in the ledger, and judged at the end."""
    sender = Plan("sender", "10.77.0.10", ASN, "10.77.0.10")
    blocks = [bytes(block) for block in wire.encode_stream(source.tables(sender), sender.families)]
    with other_side(blocks) as port:
        player = Player(Load((ADDRESS, port), [], [plan(size)]))
        for table in source.tables(sender):
            player.judge.note("sender", table)
        try:
            with Times() as times:
                player.connect()
                player.wait_for_routes()
                player.judge.judge("feed", player.listeners[0].ledgers, ["sender"])
            report = player.listeners[0].counts()
        finally:
            player.close()
    assert (report["held"], report["repeated"], player.listeners[0].n_invalid) == (size, 0, 0), report
    return times


def cases(size: int, mrt: Path | None) -> dict[str, tuple[int, Callable[[], Times]]]:
    """Return by label (number of prefixes, what does it once)."""
    table = Synthetic(size)
    found: dict[str, tuple[int, Callable[[], Times]]] = {
        "synthetic table made": (size, lambda: make(table)),
        "made and encoded": (size, lambda: encode(table)),
        "sent while it is made": (size, lambda: send(table, 0)),
        "sent, encoded before": (size, lambda: send(table, 1 << 40)),
        "taken in by a listener": (size, lambda: listen(table, size)),
    }
    if mrt is not None:
        source = MrtSource(mrt, keeps_as_sets=True)
        n = sum(each.n_prefixes for each in source.tables(plan()))
        found["read from the MRT file"] = (n, lambda: make(source))
    return found


@click.command()
@click.option("--size", default=1_230_000, show_default=True, help="Prefixes in the table.")
@click.option("--rounds", default=5, show_default=True)
@click.option("--only", default="", help="Only what has this in its name.")
@click.option("--mrt", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Read this file too.")
def main(size: int, rounds: int, only: str, mrt: Path | None) -> None:
    """Measure the feed; medians of the rounds."""
    print(f"{'':<24}{'M prefixes/s CPU':>18}{'M prefixes/s clock':>20}")
    for label, (n, call) in cases(size, mrt).items():
        if only not in label:
            continue
        found = [call() for _ in range(rounds)]
        cpu, wall = (statistics.median(getattr(each, key) for each in found) for key in ("cpu_s", "wall_s"))
        print(f"{label:<24}{n / cpu / 1e6:>18.2f}{n / wall / 1e6:>20.2f}", flush=True)


if __name__ == "__main__":
    main()
