"""The demo: all stages on this machine, a neighbor with a full table, another that listens, and the figures.

Owns a scratch directory, the `headrace run` it starts in it, and the two neighbors it plays, all on loopback
addresses. Needs no root, and touches no kernel route. Called by scripts/demo, which makes the environment first.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from common.bgp.constants import Family
from common.cli.asking import Router
from common.cli.text import table
from common.runtime.processes import memory_octets
from stages.feed import synthetic
from stages.feed.load import Load, LoadFailed, Player
from stages.feed.neighbor import Plan

FULL_TABLE = 1_230_000
IPV4_SHARE = 1_000_000 / FULL_TABLE
ROUTER, SENDER, LISTENER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
PORT, STATUS_PORT = 1790, 8179
START_LIMIT_S = 30
# What the sender gives as next hops: a router does not accept loopback addresses as such.
NEXT_HOPS = {Family.IPV4_UNICAST: "198.51.100.2", Family.IPV6_UNICAST: "2001:db8:77::2"}

CONFIGURATION = """\
[router]
asn = 65000
router_id = "198.51.100.1"
run_dir = "{run_dir}"
listen = ["{router}"]
port = {port}

[fib]
enabled = false

[status]
listen = "127.0.0.1:{status_port}"

[[neighbor]]
name = "sender"
address = "{sender}"
local_address = "{router}"
asn = 64601
passive = true
expected_routes = {size}
import = {{ default = "accept" }}
export = {{ default = "reject" }}

[[neighbor]]
name = "listener"
address = "{listener}"
local_address = "{router}"
asn = 64700
passive = true
import = {{ default = "reject" }}
export = {{ default = "accept" }}
"""


class DemoFailed(Exception):
    """The demo cannot go on; the text says why."""


@click.command()
@click.option("--once", is_flag=True, help="End after the figures instead of staying up until Ctrl-C.")
@click.option("--size", type=click.IntRange(1), help=f"Prefixes in the table (default: {FULL_TABLE:,}, or all listed).")
@click.option(
    "--prefixes", "lists", multiple=True, help="Take the prefixes from this list, one a line; may be repeated."
)
@click.option("--port", default=PORT, show_default=True, help="TCP port of the router; another if it is taken.")
@click.option("--seed", default=1, show_default=True, help="Seed of the synthetic table.")
@click.option("--relative-to", default=".", hidden=True)
def main(once: bool, size: int | None, lists: tuple[str, ...], port: int, seed: int, relative_to: str) -> None:
    """Run all stages, play a neighbor with a full table and another that listens, and show the figures."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        with ExitStack() as stack:
            _demo(stack, once, size, [Path(relative_to, name) for name in lists], port, seed)
    except KeyboardInterrupt:
        print("\nstopped")
    except (DemoFailed, LoadFailed, OSError, ValueError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        print(f"\nthe demo failed: {reason}", file=sys.stderr)
        sys.exit(1)


def _demo(stack: ExitStack, once: bool, size: int | None, lists: list[Path], port: int, seed: int) -> None:
    print("making the table", flush=True)
    tables = make_tables(size, lists, seed)
    n_prefixes = sum(each.n_prefixes for each in tables)
    port, status_port = free_port(ROUTER, port), free_port("127.0.0.1", STATUS_PORT)
    directory = stack.enter_context(scratch_directory())
    file = directory / "headrace.toml"
    file.write_text(
        CONFIGURATION.format(
            run_dir=directory / "run",
            router=ROUTER,
            sender=SENDER,
            listener=LISTENER,
            port=port,
            status_port=status_port,
            size=n_prefixes,
        )
    )
    print("starting headrace", flush=True)
    router = stack.enter_context(running(file, directory))
    display = Display(n_prefixes)
    load = Load(
        (ROUTER, port),
        [(Plan("sender", SENDER, 64601, router_id=SENDER), tables)],
        [Plan("listener", LISTENER, 64700, router_id=LISTENER, n_expected=n_prefixes)],
        progress=display.on_report,
    )
    player = Player(load)
    stack.callback(player.close)
    player.connect()
    watch = stack.enter_context(LocRibWatch(router, n_prefixes, display))
    watch.begin()
    player.send_tables()
    watch.wait()
    display.end()
    show_figures(router, player, watch, n_prefixes, sum(each.n_sets for each in tables))
    if not once:
        show_what_next(file, status_port)
        player.idle(lambda: False)


def make_tables(size: int | None, lists: list[Path], seed: int) -> list[synthetic.Table]:
    """Make what the sender announces: the prefixes of the lists, or synthetic ones."""
    columns: dict[Family, tuple] = {}
    for path in lists:
        for family, found in synthetic.load_prefixes(path, size).items():
            if family in columns:
                raise DemoFailed(f"{path}: {family.label} prefixes come from another list already")
            columns[family] = found
    if not lists:
        n_prefixes = size or FULL_TABLE
        n_ipv4 = round(n_prefixes * IPV4_SHARE)
        for family, count in ((Family.IPV4_UNICAST, n_ipv4), (Family.IPV6_UNICAST, n_prefixes - n_ipv4)):
            if count:
                columns[family] = synthetic.make_prefixes(family, count, seed)
    return [
        synthetic.with_paths(family, *found, seed=seed, asn=64601, next_hop=packed(NEXT_HOPS[family]))
        for family, found in columns.items()
    ]


def packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def free_port(address: str, wanted: int) -> int:
    """Return the port wanted, or another that is free if somebody has it."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise DemoFailed(f"no TCP port is free at {address}")


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a directory that is gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def running(file: Path, directory: Path) -> Iterator[Router]:
    """Start `headrace run` and stop it in order at the end; gives it when every stage answers."""
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "common.cli.main", "run", str(file)],
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the demo alone: it stops the router when it is done with it
        )
    router = Router(directory / "run")
    try:
        wait_for_stages(router, process)
        yield router
    except BaseException as error:
        if not isinstance(error, KeyboardInterrupt | SystemExit):
            print(f"\nthe end of headrace's log:\n{tail(log)}", file=sys.stderr)
        raise
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for_stages(router: Router, process: subprocess.Popen) -> None:
    """Return when all stages of the supervisor run and answer."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise DemoFailed(f"headrace ended with status {process.returncode}")
        answer = router.ask_or_error("supervisor", "status")
        if isinstance(answer, dict) and answer["stages"]:
            names = [(each["stage"], each["instance"]) for each in answer["stages"]]
            if all(isinstance(router.ask_or_error(stage, "status", instance), dict) for stage, instance in names):
                return
        time.sleep(0.05)
    raise DemoFailed(f"the stages did not come up within {START_LIMIT_S} s")


def tail(log: Path, n_lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-n_lines:])


class Display:
    """The progress: three bars in one line on a terminal, a line each second elsewhere."""

    def __init__(self, n_prefixes: int):
        self.n_prefixes = n_prefixes
        self.n_loc_rib = 0
        self._is_terminal = sys.stdout.isatty()
        self._next_at = 0.0
        self._is_over = False

    def on_report(self, report: dict) -> None:
        """Draw what the feed reports of its neighbors."""
        now = time.monotonic()
        if self._is_over or now < self._next_at or report["elapsed_s"] is None:
            return
        self._next_at = now + (0.1 if self._is_terminal else 1.0)
        held = report["neighbors"]["listener"]["held"]
        text = "   ".join(
            f"{name} {self._bar(count)} {count:>9,}"
            for name, count in (("Loc-RIB", self.n_loc_rib), ("listener", held))
        )
        line = f"{report['elapsed_s']:5.1f} s   {text}"
        print(f"\r{line}" if self._is_terminal else line, end="" if self._is_terminal else "\n", flush=True)

    def end(self) -> None:
        """Draw no more."""
        self._is_over = True
        if self._is_terminal:
            print("\r\x1b[K", end="")

    def _bar(self, count: int, width: int = 20) -> str:
        full = min(width, width * count // max(1, self.n_prefixes))
        return "█" * full + "░" * (width - full)


class LocRibWatch:
    """Asks the rib again and again how many prefixes its Loc-RIB has, and notes when it has all."""

    def __init__(self, router: Router, n_wanted: int, display: Display):
        self.router, self.n_wanted, self.display = router, n_wanted, display
        self.complete_s: float | None = None
        self._began_at = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "LocRibWatch":
        return self

    def __exit__(self, *_) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def begin(self) -> None:
        self._began_at = time.monotonic()
        self._thread.start()

    def wait(self) -> None:
        """Return when the Loc-RIB has all prefixes, or soon after if it does not get there."""
        self._thread.join(10)

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            answer = self.router.ask_or_error("rib", "summary")
            if isinstance(answer, dict):
                self.display.n_loc_rib = sum(each["n_chosen"] for each in answer["tables"].values())
                if self.display.n_loc_rib >= self.n_wanted:
                    self.complete_s = time.monotonic() - self._began_at
                    return


def show_figures(router: Router, player: Player, watch: LocRibWatch, n_prefixes: int, n_sets: int) -> None:
    """Print the summary; raise DemoFailed when the listener does not hold exactly what was sent."""
    report = player.report()
    listener = report["neighbors"]["listener"]
    verdict = player.verdict()["listener"]
    missing, extra = verdict.missing, verdict.extra
    print()
    print(
        table(
            ("", ""),
            [
                ("routes sent", f"{n_prefixes:,} in {n_sets:,} attribute sets"),
                ("all in the Loc-RIB after", f"{watch.complete_s:.2f} s" if watch.complete_s else "not seen"),
                ("listener held all after", f"{report['converged_s']:.2f} s"),
                ("UPDATEs to the listener", f"{listener['updates_received']:,}"),
                ("missing / too many there", f"{missing:,} / {extra:,}"),
            ],
        ).lstrip("\n")
    )
    print()
    sizes = stage_sizes(router)
    rows = [(name, f"{octets / 2**20:.1f} MiB") for name, octets in sizes]
    rows.append(("all", f"{sum(octets for _, octets in sizes) / 2**20:.1f} MiB"))
    print(table(("stage", "memory (PSS)"), rows, "lr"), flush=True)
    if missing or extra:
        raise DemoFailed(f"the listener misses {missing:,} prefixes and has {extra:,} too many")


def stage_sizes(router: Router) -> list[tuple[str, int]]:
    """Return the proportional set size of the supervisor and each stage."""
    answer = router.ask("supervisor", "status")
    processes = [("supervisor", answer.get("pid"))]
    processes += [(f"{each['stage']}.{each['instance']}", each["pid"]) for each in answer["stages"]]
    return [(name, memory_octets(pid) or 0) for name, pid in processes]


def show_what_next(file: Path, status_port: int) -> None:
    headrace = Path(sys.executable).with_name("headrace")
    print(f"\nstatus page: http://127.0.0.1:{status_port}/\nlook around, in another terminal:")
    print(f"  export HEADRACE_RUN_DIR={file.parent / 'run'}")
    for words in ("show neighbors", "show routes --limit 10", "show stages", "tap loc-rib/ipv4-unicast"):
        print(f"  {headrace} {words}")
    print("Ctrl-C ends it.", flush=True)


if __name__ == "__main__":
    main()
