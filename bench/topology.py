"""Two network namespaces joined by a veth pair: one for the router under test, one for the neighbors.

All traffic of a benchmark stays inside them. Needs root and iproute2.
"""

import subprocess
from contextlib import contextmanager

ROUTER = "headrace-bench-router"
PEERS = "headrace-bench-peers"
ROUTER_ADDRESS = "10.77.0.1"
ROUTER_ADDRESS_6 = "fd77::1"
LISTENER_ADDRESS = "10.77.0.20"
LISTENER_ASN = 64700


def sender_address(index: int) -> str:
    """Address of the n-th sending neighbor."""
    return f"10.77.0.{10 + index}"


def sender_asn(index: int) -> int:
    return 64601 + index


def run(*command: str) -> None:
    """Run one command; raise CalledProcessError with its output when it fails."""
    subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def namespaces(n_senders: int = 4):
    """Make the topology, and take it away at the end."""
    remove()
    try:
        for name in (ROUTER, PEERS):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", ROUTER, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", PEERS)
        peers = [sender_address(index) for index in range(n_senders)] + [LISTENER_ADDRESS]
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
    """Delete the namespaces if they exist."""
    for name in (ROUTER, PEERS):
        subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def inside(namespace: str, *command: str) -> list[str]:
    """Return the command line that runs `command` in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]
