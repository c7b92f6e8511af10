"""Two network namespaces joined by a veth pair: one for the router under test, one for the neighbors.

All traffic of a benchmark stays inside them. Needs root and iproute2.
"""

import ctypes
import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

NAME = "headrace-bench"
ROUTER = f"{NAME}-router-{os.getpid()}"
PEERS = f"{NAME}-peers-{os.getpid()}"
ROUTER_ADDRESS = "10.77.0.1"
ROUTER_ADDRESS_6 = "fd77::1"
LISTENER_ADDRESS = "10.77.0.20"
LISTENER_ASN = 64700
CLONE_NEWNET = 0x40000000


def sender_address(index: int) -> str:
    """Address of the n-th sending neighbor."""
    return f"10.77.0.{10 + index}"


def sender_asn(index: int) -> int:
    return 64601 + index


def run(*command: str) -> None:
    """Run one command; raise CalledProcessError with its output when it fails."""
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def namespaces(n_senders: int = 4, peers: list[str] | None = None):
    """Make the topology, with the addresses of so many senders and a listener or those of `peers` (in 10.77.0.0/24),
    and take it away at the end.
    """
    remove()
    try:
        for name in (ROUTER, PEERS):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", ROUTER, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", PEERS)
        peers = peers or [sender_address(index) for index in range(n_senders)] + [LISTENER_ADDRESS]
        for name, addresses in ((ROUTER, [ROUTER_ADDRESS]), (PEERS, peers)):
            for address in addresses:
                run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "veth0")
                last = int(address.rsplit(".", 1)[1])
                run("ip", "-n", name, "address", "add", f"fd77::{last:x}/64", "dev", "veth0", "nodad")
            run("ip", "-n", name, "link", "set", "veth0", "up")
        yield
    finally:
        remove()


def remove() -> None:
    """Delete the namespaces if they exist, and those of runs whose process has gone."""
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout
    for name, pid in re.findall(rf"(?m)^({NAME}-\w+-(\d+))", shown):
        if int(pid) == os.getpid() or not Path(f"/proc/{pid}").exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextmanager
def joined(namespace: str):
    """Have this thread live in a namespace; sockets made here stay in it."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as away:
        _set_namespace(libc, away.fileno())
        try:
            yield
        finally:
            _set_namespace(libc, home.fileno())


def _set_namespace(libc: ctypes.CDLL, descriptor: int) -> None:
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def inside(namespace: str, *command: str) -> list[str]:
    """Return the command line that runs `command` in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]
