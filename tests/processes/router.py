"""A router in processes of its own on loopback addresses, with two neighbors played by the feed stage.

Waiting is for a condition, with a deadline; nothing sleeps for a guessed time.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from common.bgp.constants import Family
from common.bus.question import ControlError, ask
from stages.feed import synthetic
from stages.feed.load import Load, Player
from stages.feed.neighbor import Plan
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
N_PREFIXES = 600
DEADLINE_S = 60
CLONE_NEWNET = 0x40000000
NEXT_HOPS = {Family.IPV4_UNICAST: "198.51.100.2", Family.IPV6_UNICAST: "2001:db8:77::2"}
CONFIGURATION = """\
[router]
asn = 65000
router_id = "198.51.100.1"
run_dir = "{directory}/run"
listen = ["127.0.0.1"]
port = {port}
originate = ["203.0.113.0/24"]

[status]
listen = "127.0.0.1:{status_port}"

[[neighbor]]
name = "sender"
address = "127.0.0.2"
asn = 64601
passive = true
import = {{ default = "accept", local_pref = 120 }}
export = {{ default = "reject" }}

[[neighbor]]
name = "listener"
address = "127.0.0.3"
asn = 64700
passive = true
export = {{ default = "accept", originated_routes = false }}
"""


def until(condition: Callable, what: str):
    """Return the first true answer of `condition`."""
    return wait_until(condition, what, DEADLINE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def enter(network: Path) -> None:
    """Have this thread live in a network namespace for good."""
    with network.open() as wanted:
        if ctypes.CDLL(None, use_errno=True).setns(wanted.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")


class RunningRouter:
    """`headrace run` in a directory."""

    def __init__(self, directory: Path, more: str = "", command: tuple[str, ...] = ("-m", "common.cli.main", "run")):
        """Start it; `more` is added to the configuration, `command` is what Python runs before the file's name."""
        self.directory = directory
        self.port, self.status_port = free_port(), free_port()
        self.run_dir = directory / "run"
        self.file = directory / "headrace.toml"
        text = CONFIGURATION.format(directory=directory, port=self.port, status_port=self.status_port)
        self.file.write_text(text + more)
        self.log = directory / "log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command, str(self.file)],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        until(self.answers, f"all stages to answer; log:\n{self.log.read_text()}")

    def answers(self) -> bool:
        """Tell whether every stage answers."""
        assert self.process.poll() is None, self.log.read_text()
        stages = self.ask("supervisor", "status", "stages")
        return bool(stages) and all(
            self.ask(row["stage"], "status", "pid", row["instance"]) == row["pid"] for row in stages
        )

    def ask(self, stage: str, question: str, key: str, instance: str = "0", **arguments):
        """Return one value of an answer, None when nobody answers."""
        try:
            return ask(self.run_dir, stage, instance, question, timeout_s=1, **arguments)[key]
        except (ControlError, TimeoutError):
            return None

    def call(self, *words: str) -> subprocess.CompletedProcess:
        """Call the command `headrace`."""
        return subprocess.run(
            [sys.executable, "-m", "common.cli.main", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env={**os.environ, "HEADRACE_RUN_DIR": str(self.run_dir)},
        )

    def call_json(self, *words: str):
        """Call a command with --json and return what it answers."""
        result = self.call(*words, "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def pid_of(self, stage: str) -> int:
        """Return the process of a stage, 0 while it has none."""
        return next(row["pid"] for row in self.ask("supervisor", "status", "stages") if row["stage"] == stage)

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.terminate()
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)


class Neighbors:
    """The sender and the listener, played in a thread until closed.

    They call `target` from two addresses, in the network namespace whose file is given, or this process's.
    """

    def __init__(
        self,
        port: int,
        target: str = "127.0.0.1",
        addresses: tuple[str, str] = ("127.0.0.2", "127.0.0.3"),
        network: Path | None = None,
        sizes: tuple[int, int] = (N_PREFIXES // 2, N_PREFIXES // 2),
        deadline_s: float = DEADLINE_S,
    ):
        """Start to play; the sender has as many prefixes as `sizes` says, by family."""
        self._network = network
        self._deadline_s = deadline_s
        tables = [
            synthetic.synthesize(
                family, size, seed=3, asn=64601,
                next_hop=socket.inet_pton(socket.AF_INET6 if family.is_wide else socket.AF_INET, NEXT_HOPS[family]),
            )
            for family, size in zip(Family, sizes, strict=True)
        ]  # fmt: skip
        load = Load(
            (target, port),
            [(Plan("sender", addresses[0], 64601, router_id="127.0.0.2"), tables)],
            [Plan("listener", addresses[1], 64700, router_id="127.0.0.3", n_expected=sum(sizes))],
            deadline_s,
        )
        self.player = Player(load)
        self.failure: Exception | None = None
        self.is_loaded = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)
        self._thread.start()

    def _play(self) -> None:
        try:
            if self._network is not None:
                enter(self._network)
            self.player.connect()
            self.player.send_tables()
            self.is_loaded.set()
            self.player.idle(self._is_over.is_set)
        except Exception as error:
            self.failure = error
        finally:
            self.is_loaded.set()

    def wait_until_loaded(self) -> None:
        assert self.is_loaded.wait(self._deadline_s)
        if self.failure:
            raise self.failure

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        self.player.close()
