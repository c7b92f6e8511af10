"""Network namespaces: one for the neighbors, one for the router under test, joined by a veth pair.

Several routers have one each, and are ports of a bridge in that of the neighbors. All traffic of a benchmark stays
inside them. Needs root and iproute2.
"""

import ctypes
import os
import re
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

NAME = "headrace-bench"
ROUTER = f"{NAME}-router-{os.getpid()}"
PEERS = f"{NAME}-peers-{os.getpid()}"
ROUTER_ADDRESS = "10.77.0.1"
LISTENER_ADDRESS = "10.77.0.20"
LISTENER_ASN = 64700
CLONE_NEWNET = 0x40000000


@dataclass(frozen=True, slots=True)
class Site:
    """Where a router under test lives."""

    namespace: str
    address: str
    address_6: str


def site(number: int) -> Site:
    """Return where the n-th router lives, counted from 0."""
    namespace = f"{NAME}-router{number + 1}-{os.getpid()}" if number else ROUTER
    return Site(namespace, f"10.77.0.{number + 1}", f"fd77::{number + 1:x}")


def sender_address(index: int) -> str:
    """Address of the n-th sending neighbor."""
    return f"10.77.0.{10 + index}"


def sender_asn(index: int) -> int:
    return 64601 + index


def run(*command: str) -> None:
    """Run one command; raise CalledProcessError with its output when it fails."""
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def namespaces(n_senders: int = 4, peers: list[str] | None = None, n_routers: int = 1):
    """Make the topology, with the addresses of so many senders and a listener or those of `peers` (in 10.77.0.0/16),
    and take it away at the end.
    """
    peers = peers or [sender_address(index) for index in range(n_senders)] + [LISTENER_ADDRESS]
    sites = [site(number) for number in range(n_routers)]
    remove()
    try:
        for name in (PEERS, *(each.namespace for each in sites)):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        _join([each.namespace for each in sites])
        _address(PEERS, peers)
        for each in sites:
            _address(each.namespace, [each.address])
        yield
    finally:
        remove()


def _join(routers: list[str]) -> None:
    """Join the routers' namespaces to the neighbors'; what carries the traffic is called veth0 in all."""
    if len(routers) > 1:
        run("ip", "-n", PEERS, "link", "add", "veth0", "type", "bridge")
    for number, name in enumerate(routers):
        port = f"port{number}" if len(routers) > 1 else "veth0"
        run("ip", "-n", name, "link", "add", "veth0", "type", "veth", "peer", "name", port, "netns", PEERS)
        if len(routers) > 1:
            run("ip", "-n", PEERS, "link", "set", port, "master", "veth0", "up")


def _address(namespace: str, addresses: list[str]) -> None:
    """Give a namespace addresses, and the IPv6 addresses with the same last two octets, all at once."""
    words = []
    for address in addresses:
        last = int(IPv4Address(address)) & 0xFFFF
        words += [f"address add {address}/16 dev veth0", f"address add fd77::{last:x}/64 dev veth0 nodad"]
    words.append("link set veth0 up")
    subprocess.run(
        ["ip", "-n", namespace, "-batch", "-"], input="\n".join(words), check=True, capture_output=True, text=True
    )


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
