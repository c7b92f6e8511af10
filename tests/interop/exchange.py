"""One router and its neighbors, of any kinds and in any roles, and what each of them ought to hold.

Owns the expectation, written from the configuration and the standard alone: RFC 4271 §5.1 and §9.2 (who is told which
attribute), and the policies that the roles have.
"""

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from tests.interop.daemons import Daemon
from tests.interop.network import Network, address
from tests.interop.route import Announcement, Route
from tests.interop.router import ASN, Router
from tests.waiting import wait_until

PEER_DEADLINE_S = 45  # GoBGP takes up to ten seconds before it dials, OpenBGPD thirty after a session has failed


@dataclass(frozen=True, slots=True)
class Role:
    """How a daemon and the router meet: options of the daemon, keys of its neighbor in the router's configuration."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def is_internal(self) -> bool:
        return self.options.get("is_internal", False)

    def policy(self, which: str) -> dict[str, Any]:
        return self.keys.get(which) or {}


def marked(n: int, *, local_pref: int | None = None, more: tuple[str, ...] = ()) -> list[Announcement]:
    """Return what daemon n announces from the start: a prefix of each family with every attribute a test looks at."""
    return [
        Announcement(
            prefix=prefix,
            med=50 + n,
            local_pref=local_pref,
            communities=(f"64600:{n}", *more),
            large_communities=(f"64600:1:{n}",),
        )
        for prefix in (f"198.18.{n}.0/24", f"2001:db8:{n:x}::/48")
    ]


def plain(n: int) -> list[Announcement]:
    """Return what daemon n announces for a while: a prefix of each family, with a MED, as FRR leaves out none."""
    return [Announcement(prefix=prefix, med=7) for prefix in (f"198.19.{n}.0/24", f"2001:db8:1{n:02x}::/48")]


class Exchange:
    """The router with all its neighbors."""

    def __init__(self, asn: int = ASN, **sections: dict[str, Any]):
        self.network = Network()
        self.router = Router(self.network, asn, **sections)
        self.daemons: dict[str, Daemon] = {}
        self.roles: dict[str, Role] = {}
        self._next = 2

    def add(self, name: str, kind: type[Daemon], role: Role, announced=marked, **options: Any) -> Daemon:
        """Add a daemon that announces what `announced(n)` returns."""
        n, self._next = self._next, self._next + 1
        daemon = kind(self.network, n, announced(n), **role.options, **options)
        self.router.add(name, n, daemon.asn, daemon.over, **role.keys)
        self.daemons[name], self.roles[name] = daemon, role
        return daemon

    def start(self) -> None:
        """Start everything, the router first, and wait until all sessions are up; the logs say why if they are not."""
        try:
            self._start()
        except Exception as error:
            error.add_note(self.network.logs())
            raise

    def _start(self) -> None:
        self.router.start()
        for daemon in self.daemons.values():
            daemon.start()
        for daemon in self.daemons.values():
            daemon.get_ready()
        self.wait_for_sessions(*self.daemons)

    def close(self) -> None:
        self.network.close()

    def wait_for_sessions(self, *names: str) -> None:
        """Wait until both sides of each of these sessions hold it for established."""

        def missing() -> list[str]:
            for name in names:
                daemon = self.daemons[name]
                assert daemon.program.is_running, f"{name} has ended: {daemon.program.output()[-2000:]}"
            states = self.router.states()
            is_up = {name: states.get(name) == "Established" for name in names}
            return [name for name in names if not (is_up[name] and self.daemons[name].is_established())]

        wait_until(lambda: not missing(), lambda: f"sessions with {missing()}\n{self.router.states()}", PEER_DEADLINE_S)

    def wait_for_end(self, name: str) -> None:
        """Wait until both sides hold a session for ended."""
        wait_until(lambda: not self.router.is_established(name), f"{name} is down for the router")
        wait_until(lambda: not self.daemons[name].is_established(), f"{name} is down for itself")

    # ---- what everybody ought to hold -----------------------------------------------------------------------------

    def expected_received(self, name: str) -> dict[str, Route]:
        """Return what the router ought to have received from a daemon."""
        daemon = self.daemons[name]
        return {
            prefix: received(daemon, each)
            for prefix, each in daemon.announced.items()
            if each.version in daemon.versions
        }

    def expected_told(self, name: str) -> dict[str, Route]:
        """Return what a daemon ought to have been told."""
        role = self.roles[name]
        return {
            prefix: self._told(role, self.roles[other], imported(self.roles[other], received(daemon, each)), each)
            for other, daemon in self.daemons.items()
            if other != name and not (role.is_internal and self.roles[other].is_internal)
            for prefix, each in daemon.announced.items()
            if each.version in daemon.versions and each.version in self.daemons[name].versions
        }

    def _told(self, role: Role, origin: Role, route: Route, announcement: Announcement) -> Route:
        policy = role.policy("export")
        route = replace(
            route,
            communities=edited(route.communities, policy, "communities"),
            large_communities=edited(route.large_communities, policy, "large_communities"),
        )
        if role.is_internal:
            return route  # RFC 4271 §5.1.2, §5.1.3, §5.1.4: path, next hop and MED stay as they are inside the AS
        return replace(
            route,
            as_path=(self.router.asn,) * (1 + policy.get("as_path_prepend", 0)) + route.as_path,
            next_hop=address(1, announcement.version),
            med=None,
            local_pref=None,
        )

    def held(self, name: str) -> dict[str, Route]:
        """Return what a daemon holds, without the local preference that some give to external routes themselves."""
        routes = self.daemons[name].routes()
        if self.roles[name].is_internal:
            return routes
        return {prefix: replace(route, local_pref=None) for prefix, route in routes.items()}

    def wait_for_routes(self, name: str) -> None:
        """Wait until a daemon holds exactly what it ought to."""
        expected = self.expected_told(name)
        wait_until(lambda: self.held(name) == expected, lambda: differences(self.held(name), expected))

    def wait_for_received(self, name: str) -> None:
        """Wait until the router has received exactly what a daemon announces."""
        expected = self.expected_received(name)
        wait_until(
            lambda: self.router.received(name) == expected,
            lambda: differences(self.router.received(name), expected),
        )


def received(daemon: Daemon, announcement: Announcement) -> Route:
    """Return the route that a daemon makes of an announcement."""
    return Route(
        as_path=(() if daemon.is_internal else (daemon.asn,)) + announcement.as_path,
        next_hop=daemon.addresses[announcement.version],
        med=announcement.med,
        local_pref=(announcement.local_pref or 100) if daemon.is_internal else None,
        communities=frozenset(announcement.communities),
        large_communities=frozenset(announcement.large_communities),
    )


def imported(role: Role, route: Route) -> Route:
    """Return what import policy makes of a route."""
    policy = role.policy("import")
    return replace(
        route,
        local_pref=policy.get("local_pref") or route.local_pref or 100,
        communities=edited(route.communities, policy, "communities"),
        large_communities=edited(route.large_communities, policy, "large_communities"),
    )


def edited(communities: frozenset[str], policy: dict[str, Any], kind: str) -> frozenset[str]:
    """Return communities after a policy has removed some (of an AS: "65000:*") and added others."""
    removed = {
        value for value in communities for pattern in policy.get(f"remove_{kind}", ()) if fnmatchcase(value, pattern)
    }
    return (communities - removed) | frozenset(policy.get(f"add_{kind}", ()))


def differences(found: dict[str, Route], expected: dict[str, Route]) -> str:
    """Say in which routes two tables differ."""
    return "\n".join(
        f"{prefix}: {found.get(prefix)}, expected {expected.get(prefix)}"
        for prefix in sorted(found.keys() | expected.keys())
        if found.get(prefix) != expected.get(prefix)
    )
