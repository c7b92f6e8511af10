"""What a machine cannot give is said before anything starts: ports that are taken, keys that are of no use."""

import os
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from common.bus.keyring import write_secret
from common.bus.question import new_keys
from common.cli.main import main
from common.runtime import ports
from common.runtime.ports import Port, PortTrouble, check_ports
from common.runtime.supervisor import lock_pid_file, release_pid_file
from tests.processes.router import ROOT, free_port
from tests.processes.test_faults import UNPRIVILEGED

PLACES = ("bgp", "status", "bus", "control")
CONFIGURATION = """
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "{run_dir}"
port = {bgp}
listen = {listen}
[status]
listen = "{host}:{status}"
[keys]
directory = "{directory}/keys"
[[endpoint]]
stage = "rib"
bus = "tcp://{host}:{bus}"
control = "tcp://{host}:{control}"
"""
KEYS = {"bgp": "router.", "status": "status.listen", "bus": "bus of the [[endpoint]] of rib.0"}
STAGES = {"bgp": "speaker", "status": "status", "bus": "rib", "control": "rib"}


class Machine:
    """A directory with a configuration whose ports are free and whose key is well kept."""

    def __init__(self, directory: Path):
        directory.chmod(0o755)
        self.directory, self.run_dir, self.file = directory, directory / "run", directory / "headrace.toml"
        self._keys = ""
        for stage in ("speaker", "policy", "exporter", "status", "rib"):
            public, secret = new_keys()
            self.secret = write_secret(directory / "keys", stage, secret)
            self._keys += f'[[key]]\nname = "{stage}"\npublic = "{public.decode()}"\nrole = "{stage}"\n'
        self.secret.parent.chmod(0o755)
        self.ports = {name: free_port() for name in PLACES}
        self.configure()

    def configure(self, host: str = "127.0.0.1", listen: str = '["127.0.0.1"]') -> None:
        places = {"run_dir": self.run_dir, "directory": self.directory, "host": host, "listen": listen}
        self.file.write_text(CONFIGURATION.format(**places, **self.ports) + self._keys)

    def call(self, *words: str):
        return CliRunner().invoke(main, [*words, str(self.file)])

    def is_untouched(self) -> bool:
        return not self.run_dir.exists() or not any(self.run_dir.iterdir())


@pytest.fixture
def machine(monkeypatch):
    monkeypatch.setattr(ports, "N_LOOKS", 1)
    with tempfile.TemporaryDirectory(prefix="hr") as name:
        yield Machine(Path(name))


@contextmanager
def taken(address: str, number: int):
    """Have somebody listen at a port."""
    with socket.create_server((address, number), family=socket.AF_INET6 if ":" in address else socket.AF_INET) as held:
        yield held


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("command", ["run", "stage"])
def test_a_port_that_is_taken(machine, place, command):
    """The whole router, and the one stage, are not started; the place, its key and who has it are said."""
    with taken("127.0.0.1", machine.ports[place]):
        result = machine.call(command, *([STAGES[place]] if command == "stage" else ()))
    assert result.exit_code == 1
    words = f"cannot run: 127.0.0.1:{machine.ports[place]} ({KEYS.get(place, 'control of')}"
    assert words in result.output and f"is taken by process {os.getpid()} (" in result.output, result.output
    assert "Traceback" not in result.output and machine.is_untouched()


def test_who_has_a_port_is_found_whatever_else_that_process_closes(machine):
    """A descriptor that is gone when it is looked at, such as that of the list itself, hides no other."""
    lower = [os.open(os.devnull, os.O_RDONLY) for _ in range(8)]
    with taken("127.0.0.1", machine.ports["bgp"]):
        for descriptor in lower:  # the list of this process's descriptors takes the number of one
            os.close(descriptor)
        result = machine.call("run")
    assert f"is taken by process {os.getpid()} (" in result.output, result.output


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_a_port_taken_at_one_address_is_not_free_at_all(machine, address):
    """Without router.listen the port is wanted at all addresses of both families."""
    machine.configure(listen="[]")
    with taken("127.0.0.1" if address == "0.0.0.0" else "::1", machine.ports["bgp"]):
        result = machine.call("stage", "speaker")
    place = f"[{address}]" if ":" in address else address
    assert result.exit_code == 1 and f"{place}:{machine.ports['bgp']} (router.port) is taken" in result.output


def test_all_ports_that_are_taken_are_said_at_once(machine):
    """Nobody has to start it four times to learn of four ports."""
    with taken("127.0.0.1", machine.ports["bgp"]), taken("127.0.0.1", machine.ports["control"]):
        result = machine.call("run")
    assert result.exit_code == 1 and result.output.count("is taken by") == 2


def test_an_address_this_machine_has_not(machine):
    """The bus and the page cannot be served there; a speaker waits for its address, which may come up later."""
    machine.configure(host="192.0.2.77", listen='["192.0.2.77"]')
    result = machine.call("run")
    assert result.exit_code == 1 and machine.is_untouched()
    assert result.output.count("cannot be listened at: Cannot assign requested address") == 3
    assert "router." not in result.output


def test_a_router_that_runs_already_is_told_as_such(machine):
    """Its ports are taken by itself: that is not the point."""
    lock = lock_pid_file(machine.run_dir)
    try:
        with taken("127.0.0.1", machine.ports["bgp"]):
            result = machine.call("run")
    finally:
        release_pid_file(machine.run_dir, lock)
    assert result.exit_code == 1 and f"process {os.getpid()} already runs Headrace" in result.output
    assert "is taken" not in result.output


def test_a_port_that_is_soon_free_again_is_waited_for():
    """A router that was killed may be outlived by its stages for a moment."""
    with taken("127.0.0.1", 0) as held:
        address, number = held.getsockname()
        threading.Timer(0.2, lambda: held.shutdown(socket.SHUT_RDWR)).start()  # listens no longer
        check_ports([Port(address, number, "router.port")])


def test_speakers_share_their_port(monkeypatch):
    """With several of them the port of one that runs is not taken, for those of the same user."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        held.listen()
        address, number = held.getsockname()
        check_ports([Port(address, number, "router.port", is_shared=True)])
        monkeypatch.setattr(ports, "N_LOOKS", 1)
        with pytest.raises(PortTrouble, match="is taken"):
            check_ports([Port(address, number, "router.port")])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_speakers_of_another_user_share_their_port():
    """Root asks on behalf of the user its stages become."""
    os.seteuid(65534)
    try:
        held = socket.socket()
    finally:
        os.seteuid(0)
    with held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        held.listen()
        check_ports([Port(*held.getsockname(), "router.port", is_shared=True)], "nobody")
    assert os.geteuid() == 0


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "there is none: `headrace keys new rib` makes one"),
        (lambda path: path.chmod(0o604), "others may read it (mode 0604): chmod 600"),
        (lambda path: path.chmod(0o640), "others may read it (mode 0640): chmod 600"),
        (lambda path: path.write_text("no key\n"), "is no secret key"),
        (lambda path: path.write_bytes(new_keys()[1]), "is not the secret of"),
        (lambda path: path.unlink() or path.mkdir(), "cannot be read: Is a directory"),
    ],
    ids=["missing", "world-readable", "group-readable", "garbage", "another", "directory"],
)
@pytest.mark.parametrize("command", [("run",), ("stage", "rib")], ids="-".join)
def test_a_key_that_cannot_be_used(machine, spoil, words, command):
    """The file is named, and what to do; status 2, as this does not become right by itself."""
    spoil(machine.secret)
    result = machine.call(*command)
    assert result.exit_code == 2 and f"{machine.secret}: {words}" in result.output
    assert "Traceback" not in result.output and machine.is_untouched()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
@pytest.mark.parametrize("command", [("run",), ("stage", "rib")], ids="-".join)
def test_a_key_that_may_not_be_read(machine, command):
    """Another user's secret is not ours to read."""
    result = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, *command, str(machine.file)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 2 and f"{machine.secret}: cannot be read: Permission denied" in result.stderr
    assert "Traceback" not in result.stderr and machine.is_untouched()


def test_a_stage_without_a_key_among_some_that_have_one(machine):
    """Who has a key lets nobody in without one, on loopback too: better said than waited for without end."""
    lines = machine.file.read_text().split("[[key]]\n")
    machine.file.write_text("[[key]]\n".join(each for each in lines if 'name = "policy"' not in each))
    result = machine.call("stage", "policy")
    assert result.exit_code == 2
    assert "rib.0 is at tcp://127.0.0.1:" in result.output and "so policy.0 needs a key" in result.output


def test_two_stages_that_want_one_port(monkeypatch):
    """Each alone could have it, at names that may mean one machine; together they cannot."""
    monkeypatch.setattr(ports, "N_LOOKS", 1)
    number = free_port()
    with pytest.raises(PortTrouble, match=f"{number} .*policy.0.* is taken by another stage"):
        check_ports([Port("", number, "bus of rib.0"), Port("", number, "bus of policy.0")])
