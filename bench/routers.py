"""The routers a benchmark compares: how each is configured, started, measured and stopped."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench import topology

ASN = 64510  # for documentation (RFC 5398), so no path of a real table should have it


def cpu_s(pid: int) -> float:
    """Return the CPU time a process has used, user and system, with threads that have ended; 0 if it has gone."""
    try:
        # The clock of another process (clock_getcpuclockid(3)): in nanoseconds, where /proc counts in ticks of 10 ms.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A neighbor as the router is configured for it: whether it takes routes from it, tells it routes, and calls it."""

    name: str
    address: str
    asn: int
    imports: bool
    exports: bool
    calls: bool = False
    speaker: str = "0"  # the instance of Headrace's that has it
    n_routes: int = 1_230_000  # that may come from it

    @property
    def is_internal(self) -> bool:
        return self.asn == ASN


def senders_and_listener(n_senders: int) -> list[Peer]:
    """Return the neighbors of most benchmarks: some that only send, one that only listens."""
    peers = [
        Peer(f"sender{index}", topology.sender_address(index), topology.sender_asn(index), True, False)
        for index in range(n_senders)
    ]
    return [*peers, Peer("listener", topology.LISTENER_ADDRESS, topology.LISTENER_ASN, False, True)]


class Router:
    """A router under test in its namespace; a context manager that starts and stops it."""

    name: str

    has_kernel = True  # whether it can put routes into the kernel in a benchmark

    def __init__(self, n_senders: int, with_kernel: bool = False, peers: list[Peer] | None = None, number: int = 0):
        self.site = topology.site(number)
        self.peers = senders_and_listener(n_senders) if peers is None else peers
        self.with_kernel = with_kernel
        self.directory = Path(tempfile.mkdtemp(prefix=f"headrace-bench-{self.name.partition(',')[0]}-"))
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
            topology.inside(self.site.namespace, *self.command()), stdout=log, stderr=log, start_new_session=True
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
                topology.inside(self.site.namespace, "ss", "-Hltn", "sport = :179"), capture_output=True, text=True
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
        return sum(map(cpu_s, self.pids()))

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
        return shown(cls.binary, "--version")

    def command(self) -> list[str]:
        lines = [f"router id {self.site.address};", "protocol device {}"]
        if self.with_kernel:
            lines += [
                "protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; }",
                "protocol kernel { ipv6 { import none; export where source = RTS_BGP; }; }",
            ]
        lines += [self._neighbor(peer) for peer in self.peers]
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

    def _neighbor(self, peer: Peer) -> str:
        rules = f"import {'all' if peer.imports else 'none'}; export {'all' if peer.exports else 'none'};"
        rules += " gateway direct;" if peer.is_internal else ""
        own_hop = "" if peer.is_internal else f" next hop address {self.site.address_6};"
        way = ("" if peer.calls else " passive on;") + (" direct;" if peer.is_internal else "")
        name = peer.name.replace("-", "_")
        return (
            f"protocol bgp {name} {{ local {self.site.address} as {ASN}; neighbor {peer.address} as {peer.asn};"
            f"{way} error wait time 1, 2; connect delay time 1;"
            f" ipv4 {{ {rules} }}; ipv6 {{ {rules}{own_hop} }}; }}"
        )


class Headrace(Router):
    """Headrace as `headrace run` starts it."""

    name = "headrace"
    instances: ClassVar[dict[str, int]] = {}  # how many of a stage there are, where it is not one

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
            "[router]", f"asn = {ASN}", f'router_id = "{self.site.address}"',
            f'run_dir = "{self.directory}/run"', f'listen = ["{self.site.address}"]',
            "[fib]", f"enabled = {str(self.with_kernel).lower()}",
            "[status]", 'listen = "127.0.0.1:8179"',
        ]  # fmt: skip
        for stage, count in self.instances.items():
            lines += [f"[{stage}]", f"instances = {count}"]
        for peer in self.peers:
            lines += self._neighbor(peer)
        path = self.directory / "headrace.toml"
        path.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "common.cli.main", "run", str(path)]

    def _neighbor(self, peer: Peer) -> list[str]:
        lines = [
            "[[neighbor]]", f'name = "{peer.name}"', f'address = "{peer.address}"', f"asn = {peer.asn}",
            f"passive = {str(not peer.calls).lower()}", f'local_address = "{self.site.address}"',
            'families = ["ipv4-unicast", "ipv6-unicast"]',
            f'import = {{ default = "{"accept" if peer.imports else "reject"}" }}',
            "export = { learned_routes = true }" if peer.exports else 'export = { default = "reject" }',
            f'speaker = "{peer.speaker}"',
        ]  # fmt: skip
        if peer.imports and not peer.exports:
            lines += [f"expected_routes = {peer.n_routes}", "maximum_prefixes = 3000000"]
        return lines

    def process_name(self, pid: int) -> str:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().split()
        return " ".join(words)[:60]


def sharing_headrace(**instances: int) -> type[Headrace]:
    """Return a Headrace with so many instances of some stages."""
    name = "+".join(f"{count} {stage}" for stage, count in instances.items())
    return type("SharingHeadrace", (Headrace,), {"name": f"headrace, {name}", "instances": instances})


class Frr(Router):
    """FRR's bgpd, with zebra where routes go into the kernel; another build is named in HEADRACE_FRR_BGPD."""

    name = "frr"
    binary = os.environ.get("HEADRACE_FRR_BGPD", "/usr/lib/frr/bgpd")
    zebra = Path(binary).with_name("zebra")
    has_kernel = zebra.exists()

    @classmethod
    def is_installed(cls) -> bool:
        return Path(cls.binary).exists()

    @classmethod
    def version(cls) -> str:
        return shown(cls.binary, "--version")

    def command(self) -> list[str]:
        neighbors = "".join(
            f" neighbor {peer.address} remote-as {peer.asn}\n"
            + ("" if peer.calls else f" neighbor {peer.address} passive\n")
            + f" neighbor {peer.address} advertisement-interval 0\n"
            for peer in self.peers
        )
        families = "".join(
            f" address-family {family} unicast\n" + "".join(map(self._activated, self.peers)) + " exit-address-family\n"
            for family in ("ipv4", "ipv6")
        )
        path = self.directory / "bgpd.conf"
        path.write_text(
            f"router bgp {ASN}\n bgp router-id {self.site.address}\n no bgp ebgp-requires-policy\n"
            f" no bgp default ipv4-unicast\n{neighbors}{families}"
            f"route-map nothing deny 10\nroute-map all permit 10\n"
            f" set ipv6 next-hop global {self.site.address_6}\n"
        )
        common = ["-P", "0", "--vty_socket", str(self.directory), "--log", "stdout", "-z", f"{self.directory}/zserv"]
        bgpd = [
            self.binary, "-f", str(path), "-i", str(self.directory / "pid"), "-S", "-l", self.site.address,
            *common, *([] if self.with_kernel else ["-Z"]),
        ]  # fmt: skip
        if not self.with_kernel:
            return bgpd
        (self.directory / "zebra.conf").write_text("")
        shutil.chown(self.directory, "frr", "frr")  # as whom zebra runs
        zebra = [
            str(self.zebra), "-f", f"{self.directory}/zebra.conf",
            "-i", f"{self.directory}/zebra.pid", *common,
        ]  # fmt: skip
        # zebra ends with bgpd: both are of one group, and the shell waits for bgpd alone.
        script = (
            f"{shlex.join(zebra)} & zebra=$!; {shlex.join(bgpd)} & bgpd=$!; trap 'kill $bgpd $zebra' TERM; wait $bgpd"
        )
        return ["sh", "-c", f"{script}; kill $zebra; wait"]

    @staticmethod
    def _activated(peer: Peer) -> str:
        lines = [f"neighbor {peer.address} activate"]
        lines += [] if peer.imports else [f"neighbor {peer.address} route-map nothing in"]
        if not peer.is_internal:
            lines += [f"neighbor {peer.address} route-map {'all' if peer.exports else 'nothing'} out"]
        return "".join(f"  {line}\n" for line in lines)


class GoBgp(Router):
    """GoBGP, without the kernel; another build is named in HEADRACE_GOBGPD."""

    name = "gobgp"
    has_kernel = False
    binary = os.environ.get("HEADRACE_GOBGPD", "gobgpd")

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which(cls.binary) is not None

    @classmethod
    def version(cls) -> str:
        return shown(cls.binary, "--version")

    def command(self) -> list[str]:
        path = self.directory / "gobgpd.toml"
        path.write_text("\n".join(self._lines()) + "\n")
        return [self.binary, "-f", str(path), "--api-hosts", "127.0.0.1:50179", "--log-plain", "--log-level", "error"]

    def _lines(self) -> list[str]:
        rules = [
            ("import", [peer for peer in self.peers if not peer.imports]),
            ("export", [peer for peer in self.peers if not peer.exports]),
        ]
        lines = [
            "[global.config]", f"as = {ASN}", f'router-id = "{self.site.address}"',
            f'local-address-list = ["{self.site.address}"]', "[global.apply-policy.config]",
        ]  # fmt: skip
        for way, peers in rules:
            lines += [f'default-{way}-policy = "accept-route"']
            lines += [f'{way}-policy-list = ["{way}-none"]'] if peers else []
        for way, peers in rules:
            if peers:
                addresses = ", ".join(f'"{peer.address}/32"' for peer in peers)
                lines += [
                    "[[defined-sets.neighbor-sets]]", f'neighbor-set-name = "{way}-none"',
                    f"neighbor-info-list = [{addresses}]",
                    "[[policy-definitions]]", f'name = "{way}-none"', "[[policy-definitions.statements]]",
                    "[policy-definitions.statements.conditions.match-neighbor-set]", f'neighbor-set = "{way}-none"',
                    "[policy-definitions.statements.actions]", 'route-disposition = "reject-route"',
                ]  # fmt: skip
        for peer in self.peers:
            lines += [
                "[[neighbors]]", "[neighbors.config]", f'neighbor-address = "{peer.address}"', f"peer-as = {peer.asn}",
                "[neighbors.transport.config]", f"passive-mode = {str(not peer.calls).lower()}",
                f'local-address = "{self.site.address}"',
            ]  # fmt: skip
            for family in ("ipv4", "ipv6"):
                lines += ["[[neighbors.afi-safis]]", f'config = {{ afi-safi-name = "{family}-unicast" }}']
        return lines


class OpenBgpd(Router):
    """OpenBGPD's portable version; another build is named in HEADRACE_OPENBGPD."""

    name = "openbgpd"
    has_kernel = False  # the portable version does not on Linux
    binary = os.environ.get("HEADRACE_OPENBGPD", "/usr/sbin/bgpd")
    chroot = Path("/run/openbgpd")  # to which Debian's changes root

    @classmethod
    def is_installed(cls) -> bool:
        return Path(cls.binary).exists()

    @classmethod
    def version(cls) -> str:
        return shown(cls.binary, "-V")

    def command(self) -> list[str]:
        self.chroot.mkdir(mode=0o755, exist_ok=True)
        lines = [
            f"AS {ASN}", f"router-id {self.site.address}", f"listen on {self.site.address}",
            f"fib-update {'yes' if self.with_kernel else 'no'}", f'socket "{self.directory}/ctl"',
        ]  # fmt: skip
        for peer in self.peers:
            lines += [
                f"neighbor {peer.address} {{", f" remote-as {peer.asn}", f" local-address {self.site.address}",
                "" if peer.calls else " passive", " announce IPv4 unicast", " announce IPv6 unicast",
                f" local-address {self.site.address_6}" if ":" in peer.address else "", "}",
            ]  # fmt: skip
        lines += [f"allow from {peer.address}" for peer in self.peers if peer.imports]
        lines += [f"allow to {peer.address}" for peer in self.peers if peer.exports]
        path = self.directory / "bgpd.conf"
        path.write_text("\n".join(lines) + "\n")
        path.chmod(0o600)
        return [self.binary, "-d", "-f", str(path)]


def shown(*command: str) -> str:
    """Return the first line a program prints of itself."""
    done = subprocess.run(command, capture_output=True, text=True)
    return ((done.stdout + done.stderr).strip().splitlines() or ["unknown"])[0]


ROUTERS = {router.name: router for router in (Headrace, Bird, Frr, GoBgp, OpenBgpd)}
