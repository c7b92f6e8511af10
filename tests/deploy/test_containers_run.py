"""The compose topology for real: each stage in a container with the rights compose.yaml gives it.

The image is a root made by `scripts/machine` (HEADRACE_MACHINE says where), so no registry is needed; podman runs it.
What compose would read from compose.yaml this test reads from there.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.waiting import wait_until

yaml = pytest.importorskip("yaml")

COMPOSE = Path(__file__).parents[2] / "deploy" / "containers" / "compose.yaml"
MACHINE = os.environ.get("HEADRACE_MACHINE", "")
DEADLINE_S = 60
GROUP = 7179
NAMESPACE = "hr-containers"
CONFIGURATION = """
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "/run/headrace"
originate = ["192.0.2.0/24"]
[fib]
enabled = true
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64601
"""

pytestmark = pytest.mark.skipif(
    not MACHINE or os.geteuid() != 0 or not shutil.which("podman"),
    reason="needs root, podman, and HEADRACE_MACHINE (scripts/machine)",
)


class Containers:
    """The services of compose.yaml, and what they share."""

    def __init__(self, directory: Path):
        self.services = yaml.safe_load(COMPOSE.read_text())["services"]
        self.directory = directory
        directory.chmod(0o755)
        (directory / "headrace.toml").write_text(CONFIGURATION)
        run = directory / "run"  # as the image has it
        run.mkdir()
        os.chown(run, 0, GROUP)
        run.chmod(0o3770)
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        subprocess.run(["ip", "-n", NAMESPACE, "link", "set", "lo", "up"], check=True)

    def podman(self, *words: str) -> subprocess.CompletedProcess:
        """Call podman where the one hierarchy of control groups is at its place, which is not so on every machine."""
        mounts = 'umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec podman "$@"'
        command = ["unshare", "-m", "sh", "-c", mounts, "podman", "--cgroup-manager=cgroupfs", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)

    def start(self, stage: str) -> None:
        service = self.services[stage]
        network = f"ns:/run/netns/{NAMESPACE}" if service["network_mode"] == "host" else service["network_mode"]
        options = [
            *("--name", f"hr-{stage}", "--replace", "--cgroups=disabled", "--network", network),
            *("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1000:1000", "--security-opt", "no-new-privileges"),
            *("--user", service.get("user", f"{GROUP}:{GROUP}")),
            *(word for right in service["cap_drop"] for word in ("--cap-drop", right.lower())),
            *(word for right in service.get("cap_add", ()) for word in ("--cap-add", right)),
            *(["--read-only"] if service["read_only"] else []),
            *("-v", f"{self.directory}/run:/run/headrace", "-v", f"{self.directory}:/etc/headrace:ro"),
        ]
        result = self.podman("run", "-d", *options, "--rootfs", f"{MACHINE}:O", "headrace", *service["command"])
        assert result.returncode == 0, result.stderr

    def is_healthy(self, stage: str) -> bool:
        """Ask as compose would."""
        words = self.services[stage]["healthcheck"]["test"][1:]
        return self.podman("exec", f"hr-{stage}", *words).returncode == 0

    def until_healthy(self, stage: str) -> None:
        wait_until(lambda: self.is_healthy(stage), lambda: self.podman("logs", f"hr-{stage}").stderr, DEADLINE_S)

    def close(self) -> None:
        for stage in self.services:
            self.podman("rm", "-f", "-t", "3", f"hr-{stage}")
        subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False)


@pytest.fixture
def containers():
    directory = Path(tempfile.mkdtemp(prefix="hr"))
    made = Containers(directory)
    yield made
    made.close()
    shutil.rmtree(directory, ignore_errors=True)


def test_the_stages_find_each_other_and_one_that_was_killed_is_back(containers):
    """All come into step with the rights they have; the rib is killed, another one fills, the fib goes on with it."""
    for stage in containers.services:
        containers.start(stage)
    for stage in containers.services:
        containers.until_healthy(stage)
    containers.podman("kill", "hr-rib")
    assert not containers.is_healthy("rib")
    containers.start("rib")
    containers.until_healthy("rib")
    containers.until_healthy("fib")
    shown = containers.podman("exec", "hr-rib", "headrace", "show", "route", "192.0.2.0/24")
    assert "the only usable path" in shown.stdout
