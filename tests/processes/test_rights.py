"""A router that root starts: what its stages are left with, and that it still works."""

import os
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

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

CONFIGURATION = """
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "{directory}/run"
port = {port}
listen = ["127.0.0.1"]
originate = ["192.0.2.0/24"]
{user}
[status]
enabled = {has_status}
listen = "127.0.0.1:{status_port}"
[keys]
directory = "{directory}/keys"
[[endpoint]]
stage = "speaker"
bus = "tcp://127.0.0.1:{bus_port}"
control = "tcp://127.0.0.1:{control_port}"
"""
RIGHTS = {"speaker": 1 << 10}


@pytest.fixture(params=["", 'user = "nobody"'], ids=["root", "nobody"])
def statuses(request):
    """Start a router; return /proc/PID/status of each stage. Their secrets are root's alone."""
    directory = Path(tempfile.mkdtemp(prefix="hr"))
    directory.chmod(0o755)
    file = directory / "headrace.toml"
    # The page imports some things late, from where another user may have no access on a developer's machine.
    more = {"user": request.param, "has_status": "false" if request.param else "true"}
    ports = {name: free_port() for name in ("port", "status_port", "bus_port", "control_port")}
    text = CONFIGURATION.format(directory=directory, **ports, **more)
    for stage in ("speaker", "policy", "rib", "exporter", "status"):
        public, secret = new_keys()
        write_secret(directory / "keys", stage, secret)
        text += f'[[key]]\nname = "{stage}"\npublic = "{public.decode()}"\nrole = "{stage}"\n'
    file.write_text(text)
    command = [sys.executable, "-m", "common.cli.main", "run", str(file)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)

    def in_step() -> dict[str, str] | None:
        assert process.poll() is None, (directory / "log").read_text()
        found = {}
        try:
            for row in ask(directory / "run", "supervisor")["stages"]:
                status = ask(directory / "run", row["stage"])
                if status["state"] != "in step":
                    return None
                found[row["stage"]] = Path(f"/proc/{status['pid']}/status").read_text()
        except (OSError, TimeoutError):
            return None
        return found

    try:
        yield request.param, until(in_step, "all stages to be in step")
    finally:
        process.terminate()
        process.wait(20)
        shutil.rmtree(directory, ignore_errors=True)


def test_stages_keep_what_they_need(statuses):
    """No capability but a stage's own, nothing gained by starting another program, a filter; another user if wished."""
    user, found = statuses
    assert {"speaker", "policy", "rib", "exporter"} <= set(found)
    for stage, status in found.items():
        for name in ("CapEff", "CapPrm"):
            assert int(re.search(rf"{name}:\s*(\w+)", status)[1], 16) == RIGHTS.get(stage, 0), stage
        assert re.search(r"NoNewPrivs:\s*1", status) and re.search(r"Seccomp:\s*2", status)
        assert (re.search(r"Uid:\s*(\d+)", status)[1] == "0") == (not user)
