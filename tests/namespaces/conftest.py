"""Network namespaces for tests against the real kernel: made with ip(8), entered with setns(2)."""

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess

import pytest

CLONE_NEWNET = 0x40000000
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items):
    """Mark everything here, and leave it out where it cannot run."""
    can_run = os.geteuid() == 0 and shutil.which("ip")
    for item in items:
        if "tests/namespaces/" in str(item.path):
            item.add_marker(pytest.mark.namespaces)
            if not can_run:
                item.add_marker(pytest.mark.skip(reason="needs root and iproute2"))


class Namespace:
    """A namespace with an interface d0 (192.0.2.1/24, 2001:db8::1/64) whose other end is in a second one."""

    def __init__(self):
        self.name = f"hrfib-{os.getpid()}-{next(_numbers)}"
        self.far = f"{self.name}f"
        for name in (self.name, self.far):
            subprocess.run(["ip", "netns", "add", name], check=True)
        self.ip("link set lo up")
        self.add_interface("d0", "192.0.2.1/24", "2001:db8::1/64")

    def add_interface(self, name: str, *addresses: str) -> None:
        """Make one more interface, up, with a carrier."""
        self.ip(f"link add {name} type veth peer name {name} netns {self.far}")
        for address in addresses:
            self.ip(f"address add {address} dev {name}{' nodad' if ':' in address else ''}")
        self.ip(f"link set {name} up")
        self.ip(f"link set {name} up", self.far)

    def ip(self, words: str, name: str = "") -> str:
        """Run ip(8) inside and return what it prints."""
        command = ["ip", "-n", name or self.name, *words.split()]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def entered(self):
        """Be inside: sockets opened here stay inside."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/self/ns/net") as before, open(f"/run/netns/{self.name}") as inside:
            assert libc.setns(inside.fileno(), CLONE_NEWNET) == 0
            try:
                yield
            finally:
                assert libc.setns(before.fileno(), CLONE_NEWNET) == 0

    def close(self) -> None:
        for name in (self.name, self.far):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.fixture
def namespace():
    made = Namespace()
    yield made
    made.close()
