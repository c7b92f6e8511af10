"""The compose files for real: podman-compose starts each stage in a container of the image, with the rights it says.

`scripts/machine` has built the image by the Containerfile, from a base without a registry (HEADRACE_MACHINE says
where). All of it runs in a mount and a network namespace of its own, so "the host's network" is that one.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from common.bus.keyring import write_secret
from common.bus.question import new_keys
from common.config.schema import STAGES
from stages.fib.messages import PROTOCOL
from tests.deploy.machine import DEADLINE_S, DIRECTORY
from tests.processes.router import N_PREFIXES, Neighbors
from tests.waiting import wait_until

yaml = pytest.importorskip("yaml")

FILES = Path(__file__).parents[2] / "deploy" / "containers"
USER = 7179
SENDER, LISTENER = "10.79.0.201", "10.79.0.202"
ROUTER = f"""
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "/run/headrace"
originate = ["192.0.2.0/24"]
[status]
listen = "0.0.0.0:8179"
[fib]
enabled = true
[[neighbor]]
name = "sender"
address = "{SENDER}"
asn = 64601
passive = true
import = {{ default = "accept" }}
export = {{ default = "reject" }}
[[neighbor]]
name = "listener"
address = "{LISTENER}"
asn = 64700
passive = true
export = {{ default = "accept", originated_routes = false }}
"""
# Containers here have no control groups of their own, and the limits of whoever runs the tests.
SETTINGS = """
[network]
network_backend = "netavark"
network_config_dir = "{directory}/networks"
[engine]
cgroup_manager = "cgroupfs"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=4096:4096", "nproc=1000:1000"]
"""
APART = """
ip link set lo up && ip address add 10.79.1.1 dev lo
ip link add outside type veth peer name far && ip link set outside up && ip link set far up
ip address add 198.51.100.1/24 dev outside && ip address add 2001:db8:77::1/64 dev outside nodad
umount -R /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup && mount -t tmpfs none /run/netns && echo ready && exec sleep infinity
"""

pytestmark = pytest.mark.skipif(
    not (DIRECTORY and os.geteuid() == 0 and shutil.which("podman") and find_spec("podman_compose")),
    reason="needs root, podman, podman-compose, and HEADRACE_MACHINE (scripts/machine)",
)


class Composed:
    """A compose file's services, started."""

    def __init__(self, name: str, directory: Path):
        self.directory = directory
        directory.chmod(0o755)
        self.file = directory / name
        shutil.copy(FILES / name, self.file)
        self.services = yaml.safe_load(self.file.read_text())["services"]
        (directory / "headrace.toml").write_text(ROUTER + (self._keys() if "tcp" in name else ""))
        settings = directory / "containers.conf"
        settings.write_text(SETTINGS.format(directory=directory))
        self.apart = subprocess.Popen(
            ["unshare", "--mount", "--net", "sh", "-c", APART], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.apart.stdout.readline() == b"ready\n"
        self._enter = ["nsenter", "-t", str(self.apart.pid), "--mount", "--net"]
        self.podman_path = directory / "podman"
        store = Path(DIRECTORY) / "images"
        self.podman_path.write_text(
            f"#!/bin/sh\nexport CONTAINERS_CONF={settings}\n"
            f'exec podman --root {store}/images --runroot {store}/run "$@"\n'
        )
        self.podman_path.chmod(0o755)
        self.compose("up", "-d", "--no-build")
        # Where the neighbors live: beside the speaker, wherever that is.
        bus = self.services["speaker"].get("networks", {}).get("bus")
        self.speaker = bus["ipv4_address"] if bus else "10.79.1.1"
        for address in (SENDER, LISTENER):
            self.enter("ip", "address", "add", f"{address}/32", "dev", "podman1" if bus else "lo")

    def _keys(self) -> str:
        """Make a key for each stage, in a directory that its container alone sees; return the configuration."""
        text = '[keys]\ndirectory = "/etc/headrace/keys"\n'
        for stage in STAGES:
            public, secret = new_keys()
            path = write_secret(self.directory / "keys" / stage, stage, secret)
            user = int(self.services[stage].get("user", f"{USER}").partition(":")[0])
            for each in (path, path.parent):
                os.chown(each, user, USER)
            text += f'[[key]]\nname = "{stage}"\npublic = "{public.decode()}"\nrole = "{stage}"\n'
            if stage != "status":
                text += f'[[endpoint]]\nstage = "{stage}"\nbus = "tcp://{stage}:7700"\n'
                text += f'control = "tcp://{stage}:7701"\n'
        (self.directory / "keys").chmod(0o755)
        return text

    @property
    def network(self) -> Path:
        return Path(f"/proc/{self.apart.pid}/ns/net")

    def enter(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([*self._enter, *words], capture_output=True, text=True, timeout=DEADLINE_S)

    def compose(self, *words: str) -> None:
        command = [sys.executable, "-m", "podman_compose", "--in-pod", "false"]
        result = self.enter(*command, "--podman-path", str(self.podman_path), "-f", str(self.file), *words)
        assert result.returncode == 0, result.stderr

    def podman(self, *words: str) -> subprocess.CompletedProcess:
        return self.enter(str(self.podman_path), *words)

    def container(self, stage: str) -> str:
        return f"{self.directory.name}_{stage}_1"

    def call(self, stage: str, *words: str) -> subprocess.CompletedProcess:
        """Run a command in a stage's container."""
        return self.podman("exec", self.container(stage), *words)

    def shown(self, stage: str, what: str) -> str:
        return self.podman("inspect", self.container(stage), "--format", what).stdout.strip()

    def wait_until_healthy(self, stage: str) -> None:
        """Wait until a stage is well, by the check that the compose file gives it."""
        name = self.container(stage)
        wait_until(
            lambda: self.podman("healthcheck", "run", name).returncode == 0,
            lambda: f"{stage} to be healthy: {self.podman('logs', name).stderr[-3000:]}",
            DEADLINE_S,
        )

    def kill(self, stage: str) -> None:
        """Kill a container's process, and wait until it has another."""
        pid = self.shown(stage, "{{.State.Pid}}")
        os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: self.shown(stage, "{{.State.Pid}}") not in ("0", pid), "another process", DEADLINE_S)

    def n_kernel_routes(self) -> int:
        shown = [self.enter("ip", family, "route", "show", "proto", str(PROTOCOL)).stdout for family in ("-4", "-6")]
        return sum(line.count("via") for line in shown)

    def close(self) -> None:
        self.podman("rm", "-f", "-t", "2", *map(self.container, self.services))
        self.compose("down", "-v", "-t", "2")
        self.apart.kill()
        self.apart.wait()


@pytest.fixture(scope="module", params=["compose.yaml", "compose.tcp.yaml"])
def composed(request):
    directory = Path(tempfile.mkdtemp(prefix="hr"))
    made = Composed(request.param, directory)
    for stage in made.services:
        made.wait_until_healthy(stage)
    yield made
    made.close()
    shutil.rmtree(directory, ignore_errors=True)


def test_each_container_has_its_rights_alone(composed):
    """Nothing but the run directory can be written to, no capability but its own, and root only where one is needed."""
    for stage, service in composed.services.items():
        pid = composed.shown(stage, "{{.State.Pid}}")
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        rights = {"NET_BIND_SERVICE": 1 << 10, "NET_ADMIN": 1 << 12}
        assert int(status["CapBnd"], 16) == sum(rights[name] for name in service.get("cap_add", ()))
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
        user = service.get("user", f"{USER}:{USER}").partition(":")[0]
        assert status["Uid"].split()[0] == user
        assert "Read-only" in composed.call(stage, "touch", "/opt/headrace/x").stderr
        assert composed.call(stage, "sh", "-c", "command -v gcc pip").returncode != 0


def test_killed_containers_are_back_and_the_sessions_noticed_nothing(composed):
    """While one neighbor's routes stand with another and in the kernel each process but the speaker's dies once."""
    neighbors = Neighbors(179, composed.speaker, (SENDER, LISTENER), composed.network)
    try:
        neighbors.wait_until_loaded()
        listener = neighbors.player.listeners[0]
        wait_until(lambda: composed.n_kernel_routes() == N_PREFIXES, "the routes in the kernel", DEADLINE_S)
        before = listener.n_updates
        for stage in STAGES:
            if stage == "speaker":
                continue
            composed.kill(stage)
            for each in STAGES:
                composed.wait_until_healthy(each)
            assert composed.n_kernel_routes() == N_PREFIXES
        assert listener.n_updates == before > 0
    finally:
        neighbors.close()
    assert neighbors.failure is None
    composed.kill("speaker")
    composed.wait_until_healthy("speaker")


def test_a_health_check_asks_the_stage_itself(composed):
    """A container whose process is there and does not answer is not well."""
    pid = int(composed.shown("policy", "{{.State.Pid}}"))
    os.kill(pid, signal.SIGSTOP)
    try:
        assert composed.podman("healthcheck", "run", composed.container("policy")).returncode != 0
    finally:
        os.kill(pid, signal.SIGCONT)
    composed.wait_until_healthy("policy")


def test_the_page_answers(composed):
    """Status is reached at its address, and knows of every stage."""
    line = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8179/metrics').read().decode())"
    answer = composed.call("status", "python3", "-c", line).stdout
    assert all(f'headrace_status_answering_flag{{instance="0",stage="{stage}"}} 1' in answer for stage in STAGES[:5]), (
        answer
    )


def test_who_sees_the_sockets(composed):
    """Over ipc all see each other's, in a directory open to the group alone; over tcp each sees its own."""
    seen = composed.call("rib", "sh", "-c", "ls /run/headrace").stdout.split()
    stages = {each.partition(".")[0] for each in seen if each.endswith(".control")}
    assert stages == ({"rib"} if "tcp" in composed.file.name else set(STAGES))
    mode, group = composed.call("rib", "stat", "-c", "%a %g", "/run/headrace").stdout.split()
    assert (mode, group) == (("1777", "0") if "tcp" in composed.file.name else ("3770", str(USER)))
