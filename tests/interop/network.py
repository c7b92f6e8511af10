"""Namespaces for interoperation tests: a router and its neighbors on one bridged segment.

The router is 10.99.0.1 and fd99::1; neighbor n is 10.99.0.(n) and fd99::(n), n from 2.
"""

import json
import os
import signal
import subprocess
import time
from pathlib import Path


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def wait_until(condition, what: str, deadline_s: float = 30):
    """Poll `condition` until it returns something true, and return that; fail naming `what` after the deadline."""
    end = time.monotonic() + deadline_s
    pause = __import__("threading").Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what}")
        pause.wait(0.05)


class Network:
    """The segment; `add(n)` makes the namespace of one neighbor, `close()` takes all away."""

    def __init__(self):
        self.prefix = f"hrit{os.getpid()}"
        self.router = f"{self.prefix}-1"
        self.names: list[str] = []
        self._make_namespace(self.router)
        ip("-n", self.router, "link", "add", "br0", "type", "bridge")
        ip("-n", self.router, "address", "add", "10.99.0.1/24", "dev", "br0")
        ip("-n", self.router, "address", "add", "fd99::1/64", "dev", "br0", "nodad")
        ip("-n", self.router, "link", "set", "br0", "up")

    def _make_namespace(self, name: str) -> None:
        ip("netns", "add", name)
        self.names.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def add(self, n: int) -> str:
        """Make neighbor n's namespace with its addresses; return the namespace's name."""
        name = f"{self.prefix}-{n}"
        self._make_namespace(name)
        ip("-n", self.router, "link", "add", f"port{n}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("-n", self.router, "link", "set", f"port{n}", "master", "br0", "up")
        ip("-n", name, "address", "add", f"10.99.0.{n}/24", "dev", "eth0")
        ip("-n", name, "address", "add", f"fd99::{n:x}/64", "dev", "eth0", "nodad")
        ip("-n", name, "link", "set", "eth0", "up")
        return name

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


class Program:
    """One program running in a namespace, its output in a file."""

    def __init__(self, namespace: str, command: list[str], log: Path, env: dict[str, str] | None = None):
        self.log = log
        self.namespace = namespace
        with open(log, "ab") as output:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", namespace, *command],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **(env or {})},
            )  # fmt: skip

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop the program and everything it started."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def output(self) -> str:
        return self.log.read_text(errors="replace")


def run_inside(namespace: str, *command: str, timeout_s: float = 10) -> str:
    """Run one command in a namespace and return what it prints; empty when it fails."""
    done = subprocess.run(
        ["ip", "netns", "exec", namespace, *command], capture_output=True, text=True, timeout=timeout_s
    )
    return done.stdout if done.returncode == 0 else ""


def json_inside(namespace: str, *command: str):
    """Run one command and return the JSON it prints, or None."""
    try:
        return json.loads(run_inside(namespace, *command))
    except (json.JSONDecodeError, subprocess.TimeoutExpired):
        return None
