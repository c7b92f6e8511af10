"""The systemd units: what systemd says of them, and a machine that is booted with them.

The machine is a Debian root that `scripts/machine DIRECTORY` makes; HEADRACE_MACHINE says where it is.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from common.config.schema import STAGES
from common.runtime.stage import stage_class
from tests.waiting import wait_until

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
MAXIMUM_EXPOSURE = 2.0
DEADLINE_S = 60
MACHINE = os.environ.get("HEADRACE_MACHINE", "")
CONFIGURATION = """
[router]
asn = 65000
router_id = "10.77.0.1"
originate = ["192.0.2.0/24"]
[fib]
enabled = true
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64601
import = { default = "accept" }
export = { default = "accept" }
"""

needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


def analyze(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=DEADLINE_S)


def test_every_stage_has_a_unit():
    """One template unit a stage, and a user for it."""
    assert {unit.name for unit in UNITS} == {f"headrace-{stage}@.service" for stage in STAGES} | {
        "headrace-check.service"
    }
    users = (SYSTEMD / "headrace.sysusers.conf").read_text()
    assert all(f"u headrace-{stage} " in users for stage in STAGES)


def test_precedence():
    """A stage that comes first where stages compete for a processor does so under systemd, too."""
    for stage in STAGES:
        found = re.search(r"(?m)^Nice=(-?\d+)", (SYSTEMD / f"headrace-{stage}@.service").read_text())
        assert (int(found[1]) if found else 0) == stage_class(stage).NICE


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_exposure(unit):
    """What systemd reckons a stage that was taken over could do is little."""
    last = analyze("security", "--offline=yes", str(unit)).stdout.strip().splitlines()[-1]
    exposure = float(re.search(r": ([\d.]+) ", last)[1])
    print(f"{unit.name}: exposure {exposure}")
    assert exposure <= MAXIMUM_EXPOSURE


@needs_systemd
def test_verify(tmp_path):
    """No line of a unit is one that systemd does not know."""
    for source in (*UNITS, SYSTEMD / "headrace.target"):
        text = source.read_text().replace("/usr/bin/headrace", "/bin/true")
        (tmp_path / source.name.replace("@.", "@0.")).write_text(text)
    result = analyze("verify", "--man=no", *map(str, sorted(tmp_path.iterdir())))
    said = [line for line in result.stderr.splitlines() if str(tmp_path) in line or "headrace" in line]
    assert result.returncode == 0 and not said, result.stderr


class Machine:
    """A booted machine, in a network namespace of its own."""

    def __init__(self, root: Path):
        (root / "etc/headrace").mkdir(exist_ok=True)
        (root / "etc/headrace/headrace.toml").write_text(CONFIGURATION)
        for stage in STAGES:
            subprocess.run(["chroot", root, "systemctl", "enable", "-q", f"headrace-{stage}@0"], check=True)
        subprocess.run(["chroot", root, "systemctl", "enable", "-q", "headrace.target"], check=True)
        self.process = subprocess.Popen(
            ["systemd-nspawn", "-D", root, "--register=no", "--keep-unit", "--private-network", "--quiet", "--boot"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.leader = self.until(self._leader, "systemd to run")
        self.until(lambda: all(self.state(stage) == "active" for stage in STAGES), "all stages to be ready")

    def _leader(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def until(self, condition, what: str):
        return wait_until(condition, lambda: f"{what}\n{self.call('journalctl', '-n', '100').stdout}", DEADLINE_S)

    def call(self, *words: str) -> subprocess.CompletedProcess:
        """Run a command inside."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-p", "-n", "-u", "-i", "-C"]
        return subprocess.run([*enter, *words], capture_output=True, text=True, timeout=DEADLINE_S)

    def show(self, stage: str, name: str) -> str:
        return self.call("systemctl", "show", "-P", name, f"headrace-{stage}@0").stdout.strip()

    def state(self, stage: str) -> str:
        return self.show(stage, "ActiveState")

    def pid(self, stage: str) -> str:
        return self.show(stage, "MainPID")

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def machine():
    if not MACHINE or not shutil.which("systemd-nspawn") or os.geteuid() != 0:
        pytest.skip("needs root, systemd-nspawn, and HEADRACE_MACHINE (scripts/machine)")
    made = Machine(Path(MACHINE))
    yield made
    made.close()


def test_all_stages_are_in_step(machine):
    """A unit that is active is in step, by what the stage itself says."""
    for stage in STAGES:
        result = machine.call("headrace", "health", stage)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_is_back(machine, stage):
    """Each unit alone is started again and comes into step; the others are not touched."""
    before = {each: machine.pid(each) for each in STAGES}
    machine.call("kill", "-KILL", before[stage])
    start = time.monotonic()
    machine.until(lambda: machine.pid(stage) not in ("0", before[stage]), "another process")
    machine.until(lambda: machine.state(stage) == "active", "the stage to be ready")
    print(f"{stage}: in step {time.monotonic() - start:.1f} s after it was killed")
    assert all(machine.pid(each) == before[each] for each in STAGES if each != stage)


@pytest.mark.parametrize("stage", ("policy", "rib", "exporter", "fib"))
def test_a_restart_ends_when_the_stage_is_in_step(machine, stage):
    """`systemctl restart` comes back once the stage is ready, so a rolling upgrade is a list of them."""
    start = time.monotonic()
    assert machine.call("systemctl", "restart", f"headrace-{stage}@0").returncode == 0
    print(f"{stage}: systemctl restart took {time.monotonic() - start:.1f} s")
    assert machine.call("headrace", "health", stage).returncode == 0


def test_the_check_holds_up_no_restart(machine):
    """However often stages are started, the check before them has no limit of its own."""
    for _ in range(8):
        assert machine.call("systemctl", "restart", "headrace-policy@0", "headrace-exporter@0").returncode == 0


def test_the_watchdog_sees_a_loop_that_stands_still(machine):
    """A stage that hangs is killed and started again."""
    before = machine.pid("rib")
    machine.call("kill", "-STOP", before)
    machine.until(lambda: machine.pid("rib") not in ("0", before), "the watchdog")
    machine.until(lambda: machine.state("rib") == "active", "the rib to be ready")
    assert "watchdog" in machine.call("journalctl", "-u", "headrace-rib@0", "-n", "200").stdout.lower()


def test_each_stage_has_the_rights_it_needs_and_no_more(machine):
    """Users, capabilities, and who may connect."""
    wanted = {"speaker": 1 << 10, "fib": 1 << 12}
    for stage in STAGES:
        status = machine.call("cat", f"/proc/{machine.pid(stage)}/status").stdout
        assert int(re.search(r"CapEff:\s*(\w+)", status)[1], 16) == wanted.get(stage, 0)
        assert re.search(r"NoNewPrivs:\s*1", status) and re.search(r"Seccomp:\s*2", status)
        socket = machine.call("stat", "-c", "%U %G %a", f"/run/headrace/{stage}.0.control").stdout.strip()
        assert socket == f"headrace-{stage} headrace 660"
    stranger = machine.call("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls", "/run/headrace")
    assert stranger.returncode != 0


def test_a_wrong_configuration_starts_nothing_and_is_not_tried_again(machine):
    """The check says what is wrong; nothing that runs is touched."""
    file = Path(MACHINE) / "etc/headrace/headrace.toml"
    before = machine.pid("policy")
    file.write_text(CONFIGURATION.replace("asn = 64601", "asn = 0"))
    try:
        assert machine.call("systemctl", "start", "headrace-check").returncode != 0
        assert "neighbor.a.asn" in machine.call("journalctl", "-u", "headrace-check", "-n", "20").stdout
        assert machine.pid("policy") == before
    finally:
        file.write_text(CONFIGURATION)
