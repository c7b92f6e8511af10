"""The systemd units: what systemd says of them, and a machine that is booted with them."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from common.config.schema import STAGES
from common.runtime.stage import stage_class
from tests.deploy.machine import CONFIGURATION, DEADLINE_S, MUST_RUN, Machine, needs_machine

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
MAXIMUM_EXPOSURE = 2.0
BEHIND_TCP = ("policy", "rib", "exporter", "fib")  # what needs the drop-in to be reached from other machines

needs_systemd = pytest.mark.skipif(not MUST_RUN and not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


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
def test_exposure(unit, record_property):
    """What systemd reckons a stage that was taken over could do is little."""
    last = analyze("security", "--offline=yes", str(unit)).stdout.strip().splitlines()[-1]
    exposure = float(re.search(r": ([\d.]+) ", last)[1])
    record_property("figure", f"exposure {exposure}")
    assert exposure <= MAXIMUM_EXPOSURE


@needs_systemd
def test_verify(tmp_path):
    """No line of a unit is one that systemd does not know, nor of the drop-in for tcp:// endpoints."""
    for source in (*UNITS, SYSTEMD / "headrace.target"):
        text = source.read_text().replace("/usr/bin/headrace", "/bin/true")
        (tmp_path / source.name.replace("@.", "@0.")).write_text(text)
        if source.name != "headrace.target":
            (tmp_path / f"{source.name.replace('@.', '@0.')}.d").mkdir()
            shutil.copy(SYSTEMD / "tcp.conf", tmp_path / f"{source.name.replace('@.', '@0.')}.d")
    result = analyze("verify", "--man=no", *(str(path) for path in sorted(tmp_path.iterdir()) if path.is_file()))
    said = [line for line in result.stderr.splitlines() if str(tmp_path) in line or "headrace" in line]
    assert result.returncode == 0 and not said, result.stderr


@pytest.fixture(scope="module")
def machine():
    made = Machine()
    yield made
    made.close()


@needs_machine
def test_all_stages_are_in_step(machine):
    """A unit that is active is in step, by what the stage itself says."""
    for stage in STAGES:
        result = machine.call("headrace", "health", stage)
        assert result.returncode == 0, result.stderr


@needs_machine
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_stage_is_back(machine, stage, record_property):
    """Each unit alone is started again and comes into step; the others are not touched."""
    before = {each: machine.pid(each) for each in STAGES}
    machine.call("kill", "-KILL", before[stage])
    start = time.monotonic()
    machine.wait_for(lambda: machine.pid(stage) not in ("0", before[stage]), "another process")
    machine.wait_for(lambda: machine.state(stage) == "active", "the stage to be ready")
    record_property("figure", f"in step {time.monotonic() - start:.1f} s after it was killed")
    assert all(machine.pid(each) == before[each] for each in STAGES if each != stage)


@needs_machine
@pytest.mark.parametrize("stage", ("policy", "rib", "exporter", "fib"))
def test_a_restart_ends_when_the_stage_is_in_step(machine, stage, record_property):
    """`systemctl restart` comes back once the stage is ready, so a rolling upgrade is a list of them."""
    start = time.monotonic()
    assert machine.call("systemctl", "restart", f"headrace-{stage}@0").returncode == 0
    record_property("figure", f"systemctl restart took {time.monotonic() - start:.1f} s")
    assert machine.call("headrace", "health", stage).returncode == 0


def wait_for_words(machine, unit: str, words: str) -> str:
    """Wait until the journal, which is written after the event, has words of a unit; return the unit's last lines."""
    said = ""

    def has_them() -> bool:
        nonlocal said
        said = machine.call("journalctl", "-u", unit, "-n", "200").stdout
        return words in said.lower()

    machine.wait_for(has_them, f"'{words}' in the journal of {unit}")
    return said


@needs_machine
def test_the_check_holds_up_no_restart(machine):
    """However often stages are started, the check before them has no limit of its own."""
    for _ in range(8):
        assert machine.call("systemctl", "restart", "headrace-policy@0", "headrace-exporter@0").returncode == 0


@needs_machine
def test_the_watchdog_sees_a_loop_that_stands_still(machine):
    """A stage that hangs is killed and started again."""
    before = machine.pid("rib")
    machine.call("kill", "-STOP", before)
    machine.wait_for(lambda: machine.pid("rib") not in ("0", before), "the watchdog")
    machine.wait_for(lambda: machine.state("rib") == "active", "the rib to be ready")
    wait_for_words(machine, "headrace-rib@0", "watchdog")


@needs_machine
def test_the_journal_has_each_line_with_its_priority(machine):
    """So that it can be asked for what is important; the line does not tell the time a second time."""
    lines = machine.call("journalctl", "-u", "headrace-rib@0", "-o", "json", "-n", "200").stdout.splitlines()
    told = [(row["PRIORITY"], row["MESSAGE"]) for row in map(json.loads, lines) if " rib.0 " in str(row["MESSAGE"])]
    assert told and all(
        (priority, text.split()[0]) in {("6", "INFO"), ("4", "WARNING"), ("3", "ERROR")} for priority, text in told
    )


@needs_machine
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


@pytest.fixture
def over_tcp(machine):
    """The units with endpoints and keys for all, and with the drop-in, as deploy/README.md has it; later as before."""
    text, places = CONFIGURATION, [f"/etc/systemd/system/headrace-{stage}@.service.d" for stage in BEHIND_TCP]
    try:
        for number, stage in enumerate(STAGES):
            text += machine.shell(
                f"headrace keys new {stage} && chown headrace-{stage} /etc/headrace/keys/{stage}.secret"
            )
            text += f'[[endpoint]]\nstage = "{stage}"\nbus = "tcp://127.0.0.1:{7700 + 2 * number}"\n'
            text += f'control = "tcp://127.0.0.1:{7701 + 2 * number}"\n'
        for place in places:
            (machine.root / place[1:]).mkdir()
            shutil.copy(SYSTEMD / "tcp.conf", machine.root / place[1:])
        restart_all(machine, text)
        yield machine
    finally:
        machine.shell(f"rm -rf {' '.join(places)} /etc/headrace/keys/*.secret")
        restart_all(machine, CONFIGURATION)


def restart_all(machine, text: str) -> None:
    machine.file.write_text(text)
    machine.shell("systemctl daemon-reload && systemctl restart " + " ".join(f"headrace-{each}@0" for each in STAGES))
    machine.wait_for(lambda: all(map(machine.is_healthy, STAGES)), "all stages to be in step")


@needs_machine
def test_over_tcp_with_the_drop_in(over_tcp):
    """Confined as they are, the stages find each other by their endpoints and keys."""
    connected = over_tcp.shell("ss -Htn state established")
    followed = [STAGES.index(stage) for stage in ("speaker", "policy", "rib", "fib")]  # the exporter by sessions only
    assert all(f" 127.0.0.1:{7700 + 2 * number} " in connected for number in followed), connected
    assert "stranger-refused" not in over_tcp.call("journalctl", "-n", "200").stdout


@needs_machine
def test_an_instance_there_is_not(machine):
    """A unit of a name that the configuration has not says which there are, and is not tried again."""
    assert machine.call("systemctl", "start", "headrace-rib@nowhere").returncode != 0
    said = wait_for_words(machine, "headrace-rib@nowhere", "no rib 'nowhere'")
    assert "there is 0" in said and "rib.instances" in said
    assert machine.call("systemctl", "show", "-P", "NRestarts", "headrace-rib@nowhere").stdout.strip() == "0"
    machine.call("systemctl", "reset-failed", "headrace-rib@nowhere")


@needs_machine
def test_a_wrong_configuration_starts_nothing_and_is_not_tried_again(machine):
    """The check says what is wrong; nothing that runs is touched."""
    file = machine.file
    before = machine.pid("policy")
    file.write_text(CONFIGURATION.replace("asn = 64601", "asn = 0"))
    try:
        assert machine.call("systemctl", "start", "headrace-check").returncode != 0
        wait_for_words(machine, "headrace-check", "neighbor.sender.asn")
        assert machine.pid("policy") == before
    finally:
        file.write_text(CONFIGURATION)
