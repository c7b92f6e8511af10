"""Two machines: network namespaces joined by a cable that can be cut, and processes of the bus in each."""

import contextlib
import ctypes
import io
import itertools
import mmap
import os
import resource
import signal
import subprocess
import time
import traceback
from pathlib import Path

import numpy as np

from common.bus import zmq_transport
from common.bus.bus import Bus
from common.bus.keyring import load_keyring, write_secret
from common.bus.places import places_of
from common.bus.question import new_keys
from common.bus.zmq_transport import ZmqTransport
from common.config import loads
from common.runtime.log import Log
from common.runtime.loop import Loop

CLONE_NEWNET = 0x40000000
DEADLINE_S = 30
SERVER, READER = "10.99.0.1", "10.99.0.2"
_numbers = itertools.count(1)

CONFIGURATION = """
[router]
asn = 65000
router_id = "10.99.0.1"
run_dir = "{run_dir}"

[keys]
directory = "{keys}"

[[endpoint]]
stage = "speaker"
bus = "tcp://10.99.0.1:7700"
control = "tcp://10.99.0.1:7701"
"""


class Board:
    """Numbers that all processes of a test see and may change."""

    NAMES = ("turns", "changes", "octets", "most_octets", "is_final", "batches", "downs", "ups")

    def __init__(self):
        self._numbers = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), dtype=np.int64)

    def __getitem__(self, name: str) -> int:
        return int(self._numbers[self.NAMES.index(name)])

    def __setitem__(self, name: str, number: int) -> None:
        self._numbers[self.NAMES.index(name)] = number

    def count_up(self, name: str, by: int = 1) -> None:
        self[name] += by

    def note_memory(self) -> None:
        """Note the memory this process has, and the most it has had."""
        self["octets"] = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        self["most_octets"] = max(self["most_octets"], self["octets"])


def bear_little_silence() -> None:
    """Have this process take a connection for cut sooner than is usual."""
    zmq_transport.HEARTBEAT_MS, zmq_transport.SILENCE_MS = 200, 1000


class Machines:
    """The two namespaces, and the keys each has."""

    def __init__(self, directory: Path):
        number = next(_numbers)
        self.names = [f"hrbus-{os.getpid()}-{number}{side}" for side in "ab"]
        self.directory = directory
        self._children: list[int] = []
        self.public: dict[str, str] = {}
        for name, machine in zip(self.names, "ab", strict=True):
            subprocess.run(["ip", "netns", "add", name], check=True)
            self._ip(name, "link set lo up")
            (directory / machine / "keys").mkdir(parents=True)
        self._ip(self.names[0], f"link add d0 type veth peer name d0 netns {self.names[1]}")
        for name, address in zip(self.names, (SERVER, READER), strict=True):
            self._ip(name, f"address add {address}/24 dev d0")
            self._ip(name, "link set d0 up")

    def _ip(self, name: str, words: str) -> None:
        subprocess.run(["ip", "-n", name, *words.split()], check=True, capture_output=True)

    def cut(self) -> None:
        """Pull the cable: packets are lost, and neither end's connections are told."""
        self._ip(self.names[1], "link set d0 down")

    def mend(self) -> None:
        self._ip(self.names[1], "link set d0 up")

    def new_key(self, machine: str, name: str) -> None:
        """Make a key whose secret lies on one machine."""
        public, secret = new_keys()
        write_secret(self.directory / machine / "keys", name, secret)
        self.public[name] = public.decode()

    def configuration(self, machine: str, **roles: str):
        """Return the configuration of a machine, with keys accepted in these roles."""
        run_dir = self.directory / machine / "run"
        text = CONFIGURATION.format(run_dir=run_dir, keys=self.directory / machine / "keys")
        for name, role in roles.items():
            text += f'[[key]]\nname = "{name}"\npublic = "{self.public[name]}"\nrole = "{role}"\n'
        return loads(text)

    def start(self, machine: str, function) -> int:
        """Run a function in a process of its own on a machine."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                enter(self.names["ab".index(machine)])
                function()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        self._children.append(pid)
        return pid

    def result(self, pid: int) -> int:
        """Wait for a process; return its exit status."""
        self._children.remove(pid)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def close(self) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def enter(name: str) -> None:
    """Go over to a network namespace for good."""
    with open(f"/run/netns/{name}") as wanted:
        assert ctypes.CDLL(None, use_errno=True).setns(wanted.fileno(), CLONE_NEWNET) == 0


class Station:
    """One stage's bus, as its process has it."""

    def __init__(self, config, stage: str, keyring=None):
        self.loop = Loop()
        self.stream = io.StringIO()
        self.log = Log(stage, stream=self.stream)
        keyring = keyring or load_keyring(config, stage, "0")
        transport = ZmqTransport(self.loop, keyring, self.log)
        self.bus = Bus(config.router.run_dir, stage, "0", self.loop, transport, self.log, places=places_of(config))
        self.loop.add_turn(self.bus.pump)

    def run_until(self, condition) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not in time; log:\n{self.stream.getvalue()}"
            self.loop.turn(0.05)
