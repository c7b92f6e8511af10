"""A machine that is booted with Headrace's units, and what it shares with the tests of containers.

`scripts/machine DIRECTORY` makes what is run here, HEADRACE_MACHINE says where it is. The machine has a process, mount
and network namespace of its own (systemd-nspawn).
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from common.config.schema import STAGES
from tests.waiting import wait_until

DIRECTORY = os.environ.get("HEADRACE_MACHINE", "")
ROOT = Path(DIRECTORY) / "root"
DEADLINE_S = 90
COMMAND_S = 600  # some copy a whole environment, on a machine that has much else to do
MUST_RUN = bool(os.environ.get("HEADRACE_SKIP_NOTHING"))  # what a package gives; a machine is not always possible
CONFIGURATION = """
[router]
asn = 65000
router_id = "10.77.0.1"
originate = ["192.0.2.0/24"]
[fib]
enabled = true
[[neighbor]]
name = "sender"
address = "127.0.0.2"
asn = 64601
passive = true
import = { default = "accept", local_pref = 120 }
export = { default = "reject" }
[[neighbor]]
name = "listener"
address = "127.0.0.3"
asn = 64700
passive = true
export = { default = "accept", originated_routes = false }
"""

needs_machine = pytest.mark.skipif(
    not (DIRECTORY and os.geteuid() == 0 and shutil.which("systemd-nspawn")),
    reason="needs root, systemd-nspawn, and HEADRACE_MACHINE (scripts/machine)",
)


class Machine:
    """A booted machine."""

    def __init__(self, root: Path = ROOT, configuration: str = CONFIGURATION):
        assert (root / "etc/debian_version").exists(), "HEADRACE_MACHINE names no directory made by scripts/machine"
        self.root = root
        # One boots it at a time: tests that run side by side take turns.
        self._turn = (root.parent / "turn").open("w")
        fcntl.flock(self._turn, fcntl.LOCK_EX)
        (root / "etc/headrace").mkdir(exist_ok=True)
        self.file = root / "etc/headrace/headrace.toml"
        self.file.write_text(configuration)
        units = [f"headrace-{stage}@0" for stage in STAGES]
        subprocess.run(["chroot", root, "systemctl", "enable", "-q", "headrace.target", *units], check=True)
        self.console = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-D", root, "--register=no", "--keep-unit", "--private-network", "--quiet", "--boot"],
            stdin=subprocess.DEVNULL, stdout=self.console, stderr=self.console, start_new_session=True,
        )  # fmt: skip
        try:
            self.leader = wait_until(self._leader, self._said, DEADLINE_S)
            self.wait_for(lambda: all(self.state(stage) == "active" for stage in STAGES), "all stages to be ready")
        except BaseException:
            self.close()
            raise

    def _leader(self) -> int:
        """Return the process that is the machine's first, 0 while there is none (others come before it, and go)."""
        assert self.process.poll() is None, self._said()
        for child in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                status = dict(line.split(":\t", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
                if status["Name"] == "systemd" and status["NSpid"].split()[-1] == "1":
                    return int(child)
        return 0

    def _said(self) -> str:
        self.console.seek(0)
        return f"systemd-nspawn does not boot the machine: {self.console.read().decode(errors='replace')}"

    @property
    def network(self) -> Path:
        """The machine's network namespace."""
        return Path(f"/proc/{self.leader}/ns/net")

    def wait_for(self, condition, what: str):
        return wait_until(condition, lambda: f"{what}\n{self.call('journalctl', '-n', '100').stdout}", DEADLINE_S)

    def call(self, *words: str) -> subprocess.CompletedProcess:
        """Run a command inside."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-p", "-n", "-u", "-i", "-C"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, timeout=COMMAND_S)

    def shell(self, line: str) -> str:
        """Run a line of the shell inside; return what it says."""
        result = self.call("sh", "-c", line)
        assert result.returncode == 0, f"{line}: {result.stdout}{result.stderr}"
        return result.stdout

    def show(self, stage: str, name: str) -> str:
        return self.call("systemctl", "show", "-P", name, f"headrace-{stage}@0").stdout.strip()

    def state(self, stage: str) -> str:
        return self.show(stage, "ActiveState")

    def pid(self, stage: str) -> str:
        return self.show(stage, "MainPID")

    def is_healthy(self, stage: str) -> bool:
        return self.call("headrace", "health", stage).returncode == 0

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.console.close()
        self._turn.close()
