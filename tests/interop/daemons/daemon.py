"""The one face of all daemons. Each module here says in a daemon's own words what the methods of `Daemon` promise."""

import shutil
import signal
from pathlib import Path
from typing import ClassVar

from tests.interop.network import Network, Program, address, run_inside
from tests.interop.route import Announcement, Route
from tests.interop.router import ASN


class Daemon:
    """Neighbor n of the router: AS 64600 + n, or the router's own for an internal one.

    `over` is the IP version its session runs over, `is_passive` has it wait to be called, `has_asn4` offers 4-octet AS
    numbers (RFC 6793), `has_graceful_restart` has it keep its forwarding state (RFC 4724), `router_asn` is the AS it
    takes the router's to be.
    """

    name: ClassVar[str]
    program_name: ClassVar[str]
    can_refresh: ClassVar[bool] = True
    has_shutdown_text: ClassVar[bool] = True  # RFC 9003
    has_extended_messages: ClassVar[bool] = True

    def __init__(
        self,
        network: Network,
        n: int,
        announced: list[Announcement] | None = None,
        *,
        over: int = 4,
        is_internal: bool = False,
        is_passive: bool = False,
        has_asn4: bool = True,
        has_graceful_restart: bool = False,
        router_asn: int = ASN,
        asn: int | None = None,
    ):
        self.network = network
        self.n = n
        self.is_internal = is_internal
        self.asn = asn or (router_asn if is_internal else 64600 + n)
        self.router_asn = router_asn
        self.over = over
        self.is_passive = is_passive
        self.has_asn4 = has_asn4
        self.has_graceful_restart = has_graceful_restart
        self.announced = {each.prefix: each for each in announced or []}
        self.local, self.peer = address(n, over), address(1, over)
        self.addresses = {4: address(n), 6: address(n, 6)}
        self.label = f"{self.name}-{n}"
        self.directory = network.directory / self.label
        self.directory.mkdir()
        self.directory.chmod(0o777)  # some give up root
        self.namespace = network.add(n)
        self.program: Program | None = None

    @classmethod
    def is_installed(cls) -> bool:
        """Tell whether the daemon is on this machine."""
        return shutil.which(cls.program_name) is not None

    @property
    def versions(self) -> tuple[int, ...]:
        """The IP versions whose routes its session carries."""
        return (4, 6)

    # ---- its life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it; its sessions come up by themselves."""
        self.program = self.launch()

    def get_ready(self) -> None:
        """Do what can be done only once it runs."""

    def launch(self) -> Program:
        raise NotImplementedError

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop it, in order unless `how` is SIGKILL."""
        self.program.stop(how)

    def write(self, name: str, text: str) -> str:
        """Write a file of its own; return its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def run(self, command: list[str], env: dict[str, str] | None = None) -> Program:
        """Start a program in its namespace."""
        return self.network.run(self.namespace, command, self.directory / "log", env)

    def ask(self, *command: str) -> str:
        """Return what a command in its namespace prints; empty when it fails."""
        return run_inside(self.namespace, *command)

    def path(self, name: str) -> str:
        return str(Path(self.directory) / name)

    # ---- what it knows and does -----------------------------------------------------------------------------------

    def is_established(self) -> bool:
        """Tell whether its session with the router is up."""
        raise NotImplementedError

    def routes(self) -> dict[str, Route]:
        """Return what it has learned from the router, by prefix."""
        raise NotImplementedError

    def n_routes(self) -> int:
        """Return how many routes it has learned from the router."""
        return len(self.routes())

    def has_end_of_rib(self) -> bool:
        """Tell whether the router has sent the End-of-RIB of both families (RFC 4724 §2)."""
        raise NotImplementedError

    def announce(self, announcement: Announcement) -> None:
        """Announce one more route."""
        raise NotImplementedError

    def withdraw(self, prefix: str) -> None:
        """Announce a route no longer."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Ask the router for its routes again (RFC 2918); only where `can_refresh`."""
        raise NotImplementedError

    def shut_down(self, text: str) -> None:
        """End the session with a Cease that carries a text, where it can, and leave it so."""
        raise NotImplementedError

    def bring_up(self) -> None:
        """Have a session again after `shut_down`."""
        raise NotImplementedError

    def last_notification(self) -> str:
        """Return what the daemon says of the last NOTIFICATION it received."""
        raise NotImplementedError
