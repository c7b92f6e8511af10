"""The routers a benchmark compares: how each is configured, started, measured and stopped."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import topology

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Router:
    """A router under test in its namespace; a context manager that starts and stops it."""

    name: str

    def __init__(self, n_senders: int, with_kernel: bool = False):
        self.n_senders = n_senders
        self.with_kernel = with_kernel
        self.directory = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{self.name}-"))
        self.process: subprocess.Popen | None = None

    @classmethod
    def is_installed(cls) -> bool:
        raise NotImplementedError

    @classmethod
    def version(cls) -> str:
        raise NotImplementedError

    def command(self) -> list[str]:
        """Write the configuration and return the command line."""
        raise NotImplementedError

    def __enter__(self):
        log = open(self.directory / "log", "wb")
        self.process = subprocess.Popen(
            topology.inside(topology.ROUTER, *self.command()), stdout=log, stderr=log, start_new_session=True
        )
        self._wait_for_port()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _wait_for_port(self, deadline_s: float = 20):
        """Wait until something listens on port 179 in the router's namespace."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            listing = subprocess.run(
                topology.inside(topology.ROUTER, "ss", "-Hltn", "sport = :179"), capture_output=True, text=True
            )
            if listing.stdout.strip():
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen: {(self.directory / 'log').read_text()[-2000:]}")

    def pids(self) -> list[int]:
        """Process ids of the router: the one started and all its descendants."""
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                children.setdefault(int(fields[1]), []).append(int(entry.name))
        found = [self.process.pid]
        for pid in found:
            found.extend(children.get(pid, ()))
        return found

    def cpu_s(self) -> float:
        """CPU time used so far by all processes, user and system, seconds."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / CLOCK_TICKS

    def pss_octets(self) -> dict[str, int]:
        """Proportional set size of each process, octets, by `pid name`."""
        sizes = {}
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    sizes[f"{pid} {self.process_name(pid)}"] = int(line.split()[1]) * 1024
        return sizes

    def process_name(self, pid: int) -> str:
        return Path(f"/proc/{pid}/comm").read_text().strip()


class Bird(Router):
    """Debian's BIRD 2, or another build named by its path in HEADRACE_BIRD."""

    name = "bird"
    binary = os.environ.get("HEADRACE_BIRD", "bird")

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which(cls.binary) is not None

    @classmethod
    def version(cls) -> str:
        shown = subprocess.run([cls.binary, "--version"], capture_output=True, text=True)
        return (shown.stdout + shown.stderr).strip()

    def command(self) -> list[str]:
        lines = [f"router id {topology.ROUTER_ADDRESS};", "protocol device {}"]
        if self.with_kernel:
            lines += [
                "protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }",
                "protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; }",
            ]
        for index in range(self.n_senders):
            lines.append(
                self._neighbor(
                    f"sender{index}", topology.sender_address(index), topology.sender_asn(index), "all", "none"
                )
            )
        lines.append(self._neighbor("listener", topology.LISTENER_ADDRESS, topology.LISTENER_ASN, "none", "all"))
        path = self.directory / "bird.conf"
        path.write_text("\n".join(lines))
        return [
            self.binary,
            "-f",
            "-c",
            str(path),
            "-s",
            str(self.directory / "ctl"),
            "-P",
            str(self.directory / "pid"),
        ]

    @staticmethod
    def _neighbor(name: str, address: str, asn: int, imports: str, exports: str) -> str:
        return (
            f"protocol bgp {name} {{ local {topology.ROUTER_ADDRESS} as 65000; neighbor {address} as {asn}; passive on;"
            f" ipv4 {{ import {imports}; export {exports}; }};"
            f" ipv6 {{ import {imports}; export {exports}; next hop address {topology.ROUTER_ADDRESS_6}; }}; }}"
        )


class Headrace(Router):
    """Headrace as `headrace run` starts it."""

    name = "headrace"
    expected_routes = 1_230_000

    @classmethod
    def is_installed(cls) -> bool:
        return True

    @classmethod
    def version(cls) -> str:
        from importlib.metadata import PackageNotFoundError, version

        try:
            return f"headrace {version('headrace')}"
        except PackageNotFoundError:
            return "headrace (source tree)"

    def command(self) -> list[str]:
        lines = [
            "[router]", "asn = 65000", f'router_id = "{topology.ROUTER_ADDRESS}"', f'run_dir = "{self.directory}/run"',
            f'listen = ["{topology.ROUTER_ADDRESS}"]',
            "[fib]", f"enabled = {str(self.with_kernel).lower()}",
            "[status]", 'listen = "127.0.0.1:8179"',
        ]  # fmt: skip
        for index in range(self.n_senders):
            lines += self._neighbor(f"sender{index}", topology.sender_address(index), topology.sender_asn(index))
            lines += ['import = { default = "accept" }', 'export = { default = "reject" }']
            lines += [f"expected_routes = {self.expected_routes}", "maximum_prefixes = 3000000"]
        lines += self._neighbor("listener", topology.LISTENER_ADDRESS, topology.LISTENER_ASN)
        lines += ['import = { default = "reject" }', "export = { learned_routes = true }"]
        path = self.directory / "headrace.toml"
        path.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "common.cli.main", "run", str(path)]

    @staticmethod
    def _neighbor(name: str, address: str, asn: int) -> list[str]:
        return [
            "[[neighbor]]", f'name = "{name}"', f'address = "{address}"', f"asn = {asn}", "passive = true",
            f'local_address = "{topology.ROUTER_ADDRESS}"', 'families = ["ipv4-unicast", "ipv6-unicast"]',
        ]  # fmt: skip

    def process_name(self, pid: int) -> str:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().split()
        return " ".join(words)[:60]


ROUTERS = {router.name: router for router in (Headrace, Bird)}
