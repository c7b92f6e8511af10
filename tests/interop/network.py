"""Namespaces for interoperation tests: a router and its neighbors on one bridged segment, and the programs in them.

Owns the addresses: the router is 10.99.0.1 and fd99::1, neighbor n is 10.99.0.(n) and fd99::(n), n from 2. Each network
has namespaces and a directory of its own, so several stand side by side. What is left by a run that was killed goes
when the next one begins.
"""

import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

NAME = "headrace-it"
ROUTER = 1
_numbers = itertools.count(1)


def address(n: int, version: int = 4) -> str:
    """Return the address of host n on the segment."""
    return f"fd99::{n:x}" if version == 6 else f"10.99.0.{n}"


def run_inside(namespace: str, *command: str, timeout_s: float = 10) -> str:
    """Run one command in a namespace and return what it prints; empty when it fails."""
    try:
        done = subprocess.run(
            ["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout if done.returncode == 0 else ""


class Program:
    """One program running in a namespace, its output in a file; it dies with us."""

    def __init__(self, namespace: str, command: list[str], log: Path, env: dict[str, str] | None = None):
        self.log = log
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace, *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **(env or {})},
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop the program and everything it started."""
        if self.is_running:
            self.process.send_signal(how)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def output(self) -> str:
        """Return all the program has written so far."""
        return self.log.read_text(errors="replace")


class Network:
    """The segment; `add(n)` makes the namespace of a neighbor, `close()` takes all away, programs too."""

    def __init__(self):
        remove_left_over()
        self._prefix = f"{NAME}-{os.getpid()}-{next(_numbers)}"
        # Short, because the paths of control sockets may have no more than 107 octets.
        self.directory = Path(tempfile.mkdtemp(prefix="hrit-"))
        self.directory.chmod(0o755)
        self.programs: list[Program] = []
        self._namespaces: list[str] = []
        self.router = self._make_namespace(ROUTER)
        batch(self.router, "link add br0 type bridge", "link set br0 up", *_addresses(ROUTER, "br0"))

    def _make_namespace(self, n: int) -> str:
        name = f"{self._prefix}-{n}"
        subprocess.run(["ip", "netns", "add", name], check=True, capture_output=True)
        self._namespaces.append(name)
        batch(name, "link set lo up")
        return name

    def add(self, n: int) -> str:
        """Make neighbor n's namespace with its addresses; return the namespace's name."""
        name = self._make_namespace(n)
        batch(self.router, f"link add port{n} type veth peer name eth0 netns {name}", f"link set port{n} master br0 up")
        batch(name, "link set eth0 up", *_addresses(n, "eth0"))
        return name

    def set_link(self, n: int, is_up: bool) -> None:
        """Cut neighbor n off from the segment, or join it again."""
        batch(self.router, f"link set port{n} {'up' if is_up else 'down'}")

    def run(self, namespace: str, command: list[str], log: Path, env: dict[str, str] | None = None) -> Program:
        """Start a program in a namespace."""
        self.programs.append(Program(namespace, command, log, env))
        return self.programs[-1]

    def logs(self, n_lines: int = 40) -> str:
        """Return the last lines of what each program wrote."""
        paths = dict.fromkeys(program.log for program in self.programs)
        return "\n".join(line for path in paths for line in (f"--- {path}", *telling_lines(path)[-n_lines:]))

    def close(self) -> None:
        """End everything and remove it."""
        for program in self.programs:
            if program.is_running:
                program.process.terminate()
        for program in self.programs:
            program.stop()
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
        if "HEADRACE_KEEP_LOGS" not in os.environ:
            shutil.rmtree(self.directory, ignore_errors=True)


def telling_lines(path: Path) -> list[str]:
    """Return the lines of a log, without what FRR says of zebra not being there; none if it is gone already."""
    if not path.exists():
        return []
    return [
        line for line in path.read_text(errors="replace").splitlines() if "zclient_send_message() failed" not in line
    ]


def batch(namespace: str, *commands: str) -> None:
    """Carry out several commands of ip(8) in a namespace."""
    done = subprocess.run(
        ["ip", "-n", namespace, "-batch", "-"], input="\n".join(commands), capture_output=True, text=True
    )
    assert done.returncode == 0, f"{commands}: {done.stderr}"


def _addresses(n: int, interface: str) -> tuple[str, str]:
    return (
        f"address add {address(n)}/24 dev {interface}",
        f"address add {address(n, 6)}/64 dev {interface} nodad",
    )


def remove_left_over() -> None:
    """Delete the namespaces of test runs whose process is gone."""
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name, pid in re.findall(rf"(?m)^({NAME}-(\d+)-\d+-\d+)", shown):
        if not Path(f"/proc/{pid}").exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)
