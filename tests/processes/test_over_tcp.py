"""A whole router whose stages meet over tcp with keys, as they would on several machines."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from common.bus.keyring import write_secret
from common.bus.question import ask, new_keys
from tests.processes.router import ROOT, free_port, until

STAGES = ("speaker", "policy", "rib", "exporter")


def endpoint(stage: str, instance: str = "0") -> str:
    bus, control = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
    return f'[[endpoint]]\nstage = "{stage}"\ninstance = "{instance}"\nbus = "{bus}"\ncontrol = "{control}"\n'


def configuration(directory: Path) -> str:
    text = f"""
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "{directory}/run"
port = {free_port()}
listen = ["127.0.0.1"]
originate = ["192.0.2.0/24"]
[status]
listen = "127.0.0.1:{free_port()}"
[keys]
directory = "{directory}/keys"
"""
    for stage in STAGES:
        text += endpoint(stage)
    for name in (*STAGES, "status", "operator"):
        public, secret = new_keys()
        write_secret(directory / "keys", name, secret)
        text += f'[[key]]\nname = "{name}"\npublic = "{public.decode()}"\nrole = "{name}"\n'
    return text


@pytest.fixture
def file():
    """The configuration of a router that runs."""
    directory = Path(tempfile.mkdtemp(prefix="hr"))
    file = directory / "headrace.toml"
    file.write_text(configuration(directory))
    command = [sys.executable, "-m", "common.cli.main", "run", str(file)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
    yield file
    process.terminate()
    process.wait(20)
    shutil.rmtree(directory, ignore_errors=True)


def test_what_is_on_other_machines_changes_with_a_reload(file):
    """A policy stage more, elsewhere, is called and let in; a rib that moves is followed; neither costs a restart."""
    for stage in STAGES:
        until(lambda stage=stage: call("health", stage, "--config", str(file)).returncode == 0, f"{stage} in step")
    pids = {row["stage"]: row["pid"] for row in stages_of(file)}
    text = file.read_text()
    (moved,) = re.findall(r'stage = "rib"\ninstance = "0"\nbus = "tcp://127.0.0.1:(\d+)', text)
    public, secret = new_keys()
    write_secret(file.parent / "keys", "policy.more", secret)
    text = text.replace("[status]", '[policy]\ninstances = ["0", "more"]\n[status]').replace(moved, str(free_port()))
    text += endpoint("policy", "more")
    text += f'[[key]]\nname = "policy.more"\npublic = "{public.decode()}"\nrole = "policy"\n'
    file.write_text(text)
    told = call("reload", "--config", str(file)).stdout
    assert "endpoint.policy.more: none -> set: applied live" in told
    assert "key.policy.more: none -> set: applied live" in told
    assert "endpoint.rib.0: set -> set: others go by it at once; rib.0 itself has it from its next start" in told
    assert call("restart", "rib", "--config", str(file)).returncode == 0
    for stage in STAGES:
        until(lambda stage=stage: call("health", stage, "--config", str(file)).returncode == 0, f"{stage} in step")
    until(lambda: owned(file, "policy", "more"), "readers of the new one")
    now = {row["stage"]: row["pid"] for row in stages_of(file) if row["instance"] == "0"}
    assert [stage for stage in pids if pids[stage] != now[stage]] == ["rib"]


def stages_of(file) -> list[dict]:
    return ask(file.parent / "run", "supervisor")["stages"]


def owned(file, stage: str, instance: str) -> list:
    try:
        return ask(file.parent / "run", stage, instance)["bus"]["readers"]
    except TimeoutError:
        return []


def _a_stage_that_cannot_start_again_says_so_in_a_line(file):
    """Without its secret it says which and what to do, each time; with it again it starts."""
    secret, log = file.parent / "keys" / "rib.secret", file.parent / "log"
    secret.rename(secret.with_suffix(".away"))
    assert call("restart", "rib.0", "--wait", "0", "--config", str(file)).returncode == 0
    line = f'start-failed child=rib.0 problem="{secret}: there is none: `headrace keys new rib` makes one"'
    until(lambda: line in log.read_text(), "the rib to say why it does not start")
    assert "Traceback" not in log.read_text()
    secret.with_suffix(".away").rename(secret)
    until(lambda: call("health", "rib", "--config", str(file)).returncode == 0, "the rib to be back")


def call(*words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "common.cli.main", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30)


def test_all_stages_come_into_step_and_an_operator_asks_from_elsewhere(file):
    """Each by its own key; a command with no socket at hand goes by the operator's, and without it gets nothing."""
    for stage in STAGES:
        until(lambda stage=stage: call("health", stage, "--config", str(file)).returncode == 0, f"{stage} in step")
    far = ("--config", str(file), "--run-dir", str(file.parent / "nowhere"))
    routes = json.loads(call("show", "route", "192.0.2.0/24", "--json", *far).stdout)
    assert routes["prefix"] == "192.0.2.0/24"
    _a_stage_that_cannot_start_again_says_so_in_a_line(file)
    (file.parent / "keys" / "operator.secret").unlink()
    refused = call("show", "route", "192.0.2.0/24", *far)
    assert refused.returncode == 1 and "headrace keys new operator" in refused.stderr
