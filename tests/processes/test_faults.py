"""What goes wrong around a router that runs, or that is to run: it says so, and goes on."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
from ipaddress import ip_network
from pathlib import Path

import pytest
import zmq

from common.bgp.attributes import encode_set
from common.bgp.capabilities import Capabilities
from common.bgp.constants import Family, MessageType
from common.bgp.messages import Notification, Open, encode_message
from common.runtime.processes import raise_descriptor_limit
from tests.pipeline.harness import attribute, nlri_of, update
from tests.processes.router import ROOT, Neighbors, RunningRouter, until

POISON = 0xDEADBEEF
POISONED = """
[[neighbor]]
name = "poison"
address = "127.0.0.4"
asn = 64666
passive = true
import = { default = "accept" }
"""
# As `headrace run`, but for a policy that crashes, as a mistake in compiled code would have it, at certain attributes.
FRAGILE = f"""
import os, sys
from common.config.load import load
from common.runtime.stage import run_stage
from common.runtime.supervisor import Supervisor, planned
from stages.policy.evaluation import ImportEvaluation

sound = ImportEvaluation.transform

def fragile(self, batch):
    octets = batch.columns.get("set_octets")
    if octets is not None and {POISON.to_bytes(4, "big")!r} in octets.tobytes():
        os.abort()
    return sound(self, batch)

def run(name, config, instance, recorder):
    if name == "policy":
        ImportEvaluation.transform = fragile
    return run_stage(name, config, instance, recorder)

config = load(sys.argv[1])
sys.exit(Supervisor(config, planned(config), run).run())
"""


def notification_to(peer: socket.socket) -> Notification:
    """Read until the other side ends the session; return why."""
    received = b""
    while True:
        received += peer.recv(65536)
        while len(received) >= 19 and len(received) >= (length := int.from_bytes(received[16:18], "big")):
            if received[18] == MessageType.NOTIFICATION:
                return Notification.decode(received[19:length])
            received = received[length:]


def poison(port: int) -> socket.socket:
    """Open a session from 127.0.0.4 and announce what the fragile policy cannot bear."""
    peer = socket.socket()
    peer.settimeout(60)
    peer.bind(("127.0.0.4", 0))
    peer.connect(("127.0.0.1", port))
    octets = encode_set(as_path=[64666], communities=[POISON])
    hop = attribute(0x40, 3, socket.inet_aton("198.51.100.4"))
    peer.sendall(
        Open(64666, 90, 0x0A000004, Capabilities(families=(Family.IPV4_UNICAST,), asn4=64666)).encode()
        + encode_message(MessageType.KEEPALIVE)
        + update(attributes=octets[1 + octets[0] :] + hop, nlri=nlri_of([ip_network("198.18.0.0/24")]))
    )
    return peer


def test_a_neighbor_whose_routes_make_a_stage_fail_is_quarantined(tmp_path):
    """After three crashes at its routes its session is closed with a Cease that names it; the rest goes on."""
    router = RunningRouter(tmp_path, POISONED, ("-c", FRAGILE))
    neighbors = Neighbors(router.port)
    try:
        neighbors.wait_until_loaded()
        listener = neighbors.player.listeners[0]
        n_updates = listener.n_updates
        with poison(router.port) as peer:
            told = notification_to(peer)
        assert (told.code, told.subcode) == (6, 2)
        assert b"poison: quarantined, its routes make policy fail" in told.data
        until(lambda: router.ask("policy", "status", "state") == "in step", "policy to be in step")
        until(lambda: router.ask("rib", "status", "state") == "in step", "the rib to be in step")
        stages = {row["stage"]: row for row in router.ask("supervisor", "status", "stages")}
        assert stages["policy"]["restarts"] >= 3
        assert "SIGABRT, handling adj-rib-in/ipv4-unicast" in stages["policy"]["reasons"][-1]
        assert stages["policy"]["reasons"][-1].endswith("of poison")
        reason = "stopped by the supervisor: quarantined, its routes make policy.0 fail"
        assert router.call_json("show", "neighbor", "poison")["reason"] == reason
        states = {row["name"]: row["state"] for row in router.call_json("show", "neighbors")}
        assert states["sender"] == states["listener"] == "Established" and states["poison"] != "Established"
        router.call("neighbor", "start", "poison")
        assert "stopped" not in router.call_json("show", "neighbor", "poison")["reason"]
        assert neighbors.failure is None and listener.n_updates == n_updates
    finally:
        neighbors.close()
        router.stop()


def test_a_full_disk_for_logs(tmp_path):
    """A router whose log cannot be written starts, restarts stages, and says how many lines are lost."""
    router = RunningRouter(tmp_path)
    text = router.file.read_text()
    assert router.stop() == 0
    router.file.write_text(text)
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "common.cli.main", "run", str(router.file)], cwd=ROOT, stdout=full, stderr=full
        )
    router.process = process
    try:
        until(router.answers, "all stages to answer")
        former = router.pid_of("rib")
        os.kill(former, signal.SIGKILL)
        until(lambda: router.pid_of("rib") not in (0, former) and router.answers(), "another rib")
        rows = {row["stage"]: row for row in router.call_json("show", "stages")}
        assert "lines could not be logged" in rows["rib"]["problem"]
    finally:
        router.stop()


def test_a_stage_takes_all_descriptors_it_may(tmp_path):
    """The soft limit of descriptors, which is low on many systems, is raised to the hard one."""
    router = RunningRouter(tmp_path)
    try:
        soft, hard = resource.prlimit(router.pid_of("speaker"), resource.RLIMIT_NOFILE)
        assert soft == hard or soft >= 1 << 16
    finally:
        router.stop()


# As `headrace run` where few descriptors are allowed.
FEW_DESCRIPTORS = """
import resource, sys
from common.config.load import load
from common.runtime.supervisor import run_supervisor

resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000))
sys.exit(run_supervisor(load(sys.argv[1])))
"""


def test_out_of_descriptors(tmp_path):
    """Whoever opens connections without end to every socket is kept out and told of; nothing ends, all goes on."""
    raise_descriptor_limit()  # we need as many
    router = RunningRouter(tmp_path, command=("-c", FEW_DESCRIPTORS))
    neighbors = Neighbors(router.port)
    try:
        neighbors.wait_until_loaded()
        before = {row["stage"]: row["pid"] for row in router.ask("supervisor", "status", "stages")}
        places = sorted(router.run_dir.glob("*.0.*"))
        assert {place.name.split(".")[0] for place in places} == {*before, "supervisor"}
        for name in (*before, "supervisor"):
            with contextlib.ExitStack() as connections:
                asker = connections.enter_context(connections.enter_context(zmq.Context()).socket(zmq.DEALER))
                asker.connect(f"ipc://{router.run_dir}/{name}.0.control")
                for place in places:
                    if place.name.startswith(name):
                        flood(place, connections, asker, lambda name=name: says_so(router, name))
                until(lambda name=name: says_so(router, name), f"{name} to say so")
        until(router.answers, "all stages to answer again")
        rows = router.ask("supervisor", "status", "stages")
        assert {row["stage"]: row["pid"] for row in rows} == before
        assert router.ask("rib", "status", "events")["descriptors-short"] >= 1
        assert neighbors.failure is None
    finally:
        neighbors.close()
        assert router.stop() == 0


def says_so(router: RunningRouter, name: str) -> bool:
    return f"{name}.0 descriptors-short" in router.log.read_text()


def flood(place: Path, connections: contextlib.ExitStack, asker, is_enough) -> None:
    """Open connections to a socket until that is said to be enough; the stage has time to take a turn."""
    for n in range(2000):
        if n % 50 == 0:
            asker.send(b"\x81\xa3ask\xa6status")
            while asker.poll(1000) and not asker.recv():
                pass
            if is_enough():
                return
        connection = connections.enter_context(socket.socket(socket.AF_UNIX))
        try:
            connection.connect(str(place))
        except (ConnectionError, FileNotFoundError):
            return
    raise AssertionError(f"{place.name} takes in everybody")


@pytest.fixture
def short_path():
    """A directory whose name is short, as that of a run directory must be."""
    with tempfile.TemporaryDirectory(prefix="hr") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("run_dir", "reason"),
    [
        ("/proc/nowhere/run", "No such file or directory"),
        ("{here}/file", "Not a directory"),
        ("{here}/file/run", "Not a directory"),
        ("{here}/nowhere", "Not a directory"),
        ("{here}/around", "Not a directory"),
    ],
)
@pytest.mark.parametrize("words", [("run",), ("stage", "rib")], ids="-".join)
def test_a_run_directory_that_cannot_be(tmp_path, short_path, run_dir, reason, words):
    """Which directory it cannot have, and why, is said; status 1. A link is as good as where it leads."""
    (short_path / "file").touch()
    (short_path / "nowhere").symlink_to("nothing")
    (short_path / "around").symlink_to("around")
    file = tmp_path / "headrace.toml"
    run_dir = run_dir.format(here=short_path)
    file.write_text(f'[router]\nasn = 65000\nrouter_id = "10.0.0.1"\nrun_dir = "{run_dir}"\n')
    result = subprocess.run(
        [sys.executable, "-m", "common.cli.main", *words, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    place = next(each for each in (run_dir, str(Path(run_dir).parent)) if f"cannot run: {each}: " in result.stderr)
    assert f"cannot run: {place}: {reason}" in result.stderr and "Traceback" not in result.stderr


# The command `headrace` as somebody whom root's directories are closed to; all is imported while they are open.
UNPRIVILEGED = """
import os, sys
from importlib import import_module
import common.bus.zmq_transport, zmq.utils.monitor, zmq.asyncio
from common.cli.main import main
from common.config.load import load
from common.runtime import supervisor
load(sys.argv[-1])
for name in ("speaker", "policy", "rib", "exporter", "status"):
    import_module(f"stages.{name}.stage")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
main(sys.argv[1:])
"""


@pytest.mark.parametrize("words", [("run",), ("stage", "rib"), ("stage", "speaker")], ids="-".join)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_run_directory_that_is_not_ours(short_path, words, is_there):
    """Where the run directory cannot be written, or not be made, that is said with its name, and nothing is left."""
    run_dir = short_path / "run"
    file = short_path / "headrace.toml"
    file.write_text(f'[router]\nasn = 65000\nrouter_id = "10.0.0.1"\nrun_dir = "{run_dir}"\n')
    if is_there:
        run_dir.mkdir(mode=0o555)
    before = sorted(short_path.rglob("*"))
    short_path.chmod(0o555)
    result = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, *words, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    short_path.chmod(0o755)
    assert result.returncode == 1
    assert f"cannot run: {run_dir}" in result.stderr and "Permission denied" in result.stderr
    assert "Traceback" not in result.stderr
    assert sorted(short_path.rglob("*")) == before


def test_sockets_of_a_crash_and_a_double(tmp_path):
    """What a killed router left gives way to the next; a stage that runs does not give way to a double."""
    router = RunningRouter(tmp_path)
    pids = [row["pid"] for row in router.ask("supervisor", "status", "stages")]
    os.killpg(router.process.pid, signal.SIGKILL)
    router.process.wait()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), "the end of all stages")
    assert list(router.run_dir.glob("*.control")), "sockets are left over"
    again = RunningRouter(tmp_path)
    try:
        pid = again.pid_of("rib")
        double = again.call("stage", "rib", str(again.file))
        assert double.returncode == 1
        assert "another process serves here" in double.stderr and "Traceback" not in double.stderr
        assert again.answers() and again.pid_of("rib") == pid
    finally:
        assert again.stop() == 0


def test_garbage_on_every_socket(tmp_path):
    """Octets that mean nothing, on bus and control sockets, are counted and dropped, and all goes on."""
    router = RunningRouter(tmp_path)
    try:
        with zmq.Context() as context:
            for path in sorted(router.run_dir.glob("*.0.*")):
                with context.socket(zmq.DEALER) as dealer:
                    dealer.set(zmq.LINGER, 200)
                    dealer.connect(f"ipc://{path}")
                    for frames in ([b""], [b"\xc1" * 50], [b"x"] * 90, [b"\x81\xa1t\xa4read"], [bytes(70_000)]):
                        dealer.send_multipart(frames)
                    with socket.socket(socket.AF_UNIX) as plain:
                        plain.connect(str(path))
                        plain.sendall(os.urandom(4096))
        for stage in ("policy", "rib", "exporter", "speaker"):
            counts = until(lambda stage=stage: garbage_at(router, stage), f"garbage counted by {stage}")
            assert counts == {"bus-garbage", "control-garbage"}
        assert all(row["restarts"] == 0 for row in router.ask("supervisor", "status", "stages"))
    finally:
        assert router.stop() == 0


def garbage_at(router: RunningRouter, stage: str) -> set[str]:
    """Return the kinds of garbage a stage has counted, once there are both."""
    found = {"bus-garbage", "control-garbage"} & set(router.ask(stage, "status", "events") or ())
    return found if len(found) == 2 else set()
