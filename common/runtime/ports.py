"""The ports that stages are to listen at: whether they can be had, before anything starts.

Owns nothing: each port is bound and given back at once. Never keeps a stage from starting for an address that may
appear later, where the stage itself tries again (`is_patient`).
"""

import contextlib
import errno
import os
import pwd
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.config.bus import bound
from common.config.schema import Config

LOOK_EVERY_S: Final = 0.05
N_LOOKS: Final = 40
"""How often it is looked whether a port is free: stages of a router that was killed may outlive it for a moment."""
HOLDER_LOOKS: Final = 3
TCP_LISTEN: Final = "0A"  # in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class Port:
    """A port to listen at, and the key of the configuration that says so. Address "" is any, of both families."""

    address: str
    number: int
    key: str
    is_shared: bool = False
    """Whether several stages of one user listen at it."""
    is_patient: bool = False
    """Whether the stage starts without it, and tries again, where it is not to be had but not taken either."""

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address or "*"
        return f"{host}:{self.number}"


class PortTrouble(Exception):
    """Ports cannot be had; each argument says of one which and why."""


def endpoint_ports(config: Config, stage: str, instance: str) -> list[Port]:
    """Return the ports of a stage's endpoint, if it has one."""
    place = config.endpoints.get((stage, instance))
    ports = []
    for what in ("bus", "control") if place is not None else ():
        host, _, number = bound(getattr(place, what)).removeprefix("tcp://").rpartition(":")
        address = "" if host == "*" else host.strip("[]")
        ports.append(Port(address, int(number), f"{what} of the [[endpoint]] of {stage}.{instance}"))
    return ports


def check_ports(ports: Iterable[Port], user: str | None = None) -> None:
    """Raise PortTrouble unless all ports can be had, by `user` if root asks and one is given."""
    wanted, pause = list(ports), threading.Event()
    for _ in range(N_LOOKS):
        refused = _refused(wanted, user)
        if errno.EADDRINUSE not in refused.values():
            break
        pause.wait(LOOK_EVERY_S)
    if refused:
        raise PortTrouble(*(_words(port, reason) for port, reason in refused.items()))


def _refused(ports: list[Port], user: str | None) -> dict[Port, int]:
    """Return which ports cannot be had, beside each other, and why, as numbers of errno."""
    refused = {}
    with contextlib.ExitStack() as held:
        for port in ports:
            try:
                held.enter_context(_bound(port, user))
            except socket.gaierror:
                refused[port] = errno.EADDRNOTAVAIL
            except OSError as error:
                refused[port] = error.errno
    return {port: reason for port, reason in refused.items() if reason == errno.EADDRINUSE or not port.is_patient}


def _bound(port: Port, user: str | None) -> socket.socket:
    """Return a socket that listens at a port."""
    is_any = not port.address
    host = port.address or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")
    family, _, _, _, place = socket.getaddrinfo(host.encode(), port.number, flags=socket.AI_NUMERICHOST)[0]
    probe = _socket_of(family, user if port.is_shared else None)
    try:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port.is_shared:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not is_any)
        probe.bind(place)
        probe.listen(1)
    except OSError:
        probe.close()
        raise
    return probe


def _socket_of(family: int, user: str | None) -> socket.socket:
    """Return a socket; the kernel lets those share a port whose sockets are of one user."""
    if user is None or os.geteuid() != 0:
        return socket.socket(family, socket.SOCK_STREAM)
    os.seteuid(pwd.getpwnam(user).pw_uid)
    try:
        return socket.socket(family, socket.SOCK_STREAM)
    finally:
        os.seteuid(0)


def _words(port: Port, refusal: int) -> str:
    if refusal != errno.EADDRINUSE:
        return f"{port} ({port.key}) cannot be listened at: {os.strerror(refusal)}"
    # The kernel's list may leave one out while others come and go, so an empty one is looked at again.
    found = next((found for _ in range(HOLDER_LOOKS) if (found := list(_holders(port.number)))), [])
    holders = ", ".join(f"process {pid} ({name})" for pid, name in found)
    whoever = "another stage of this configuration, or somebody who cannot be seen from here"
    return f"{port} ({port.key}) is taken by {holders or whoever}"


def _holders(number: int) -> Iterator[tuple[int, str]]:
    """Yield number and name of the processes that listen at a port, as far as we may know them (proc(5))."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(number)}
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        with contextlib.suppress(OSError):
            if any(_link_of(each) in inodes for each in (process / "fd").iterdir()):
                yield int(process.name), (process / "comm").read_text().strip()


def _link_of(descriptor: Path) -> str:
    """Return what a descriptor of a process is of; "" for one that is closed by now, as that of the listing itself."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


def _listening_inodes(number: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                (
                    _,
                    local,
                    _,
                    state,
                    *_,
                ) = words = line.split()
                if state == TCP_LISTEN and int(local.rpartition(":")[2], 16) == number:
                    yield words[9]
