"""OpenBGPD, its portable version."""

import json
from pathlib import Path
from typing import Any

from tests.interop.daemons.daemon import Daemon
from tests.interop.network import Program
from tests.interop.route import Announcement, Route, path_of
from tests.waiting import wait_until

AS_TRANS = 23456
# Its unit's RuntimeDirectory, to which it changes root.
CHROOT = Path("/run/openbgpd")


class OpenBgpd(Daemon):
    """OpenBGPD, configured anew for each change."""

    name = "openbgpd"
    program_name = "bgpctl"
    has_extended_messages = False

    def launch(self) -> Program:
        self._control = self.path("ctl")
        CHROOT.mkdir(mode=0o755, exist_ok=True)
        return self.run(["/usr/sbin/bgpd", "-d", "-f", self._configure()])

    def _configure(self) -> str:
        networks = "".join(f"network {each.prefix} set {{ {self._set(each)} }}\n" for each in self.announced.values())
        # It takes AS_TRANS for nobody's number, but lets a group of addresses have any.
        is_nameless = self.router_asn == AS_TRANS
        neighbor = "10.99.0.0/31" if is_nameless else self.peer
        session = [f"local-address {self.local}"]
        session += [] if is_nameless else [f"remote-as {self.router_asn}"]
        session += ["announce IPv4 unicast", "announce IPv6 unicast"]
        # Of the family that the session does not run over it takes an address of the loopback interface, and the next
        # hop configured for a route only where the neighbor is not directly connected.
        session += [] if self.is_internal else ["multihop 2", "set nexthop no-modify"]
        session += ["passive"] if self.is_passive else []
        session += [] if self.has_asn4 else ["announce as-4byte no"]
        lines = "\n  ".join(session)
        path = self.write(
            "bgpd.conf",
            f"""AS {self.asn}
router-id {self.addresses[4]}
listen on {self.local}
fib-update no
socket "{self._control}"
{networks}neighbor {neighbor} {{
  {lines}
}}
allow from any
allow to any
""",
        )
        Path(path).chmod(0o600)
        return path

    def _set(self, each: Announcement) -> str:
        parts = [f"nexthop {self.addresses[each.version]}"]
        parts += [f"med {each.med}"] if each.med is not None else []
        parts += [f"localpref {each.local_pref}"] if each.local_pref is not None else []
        parts += [f"community {value}" for value in each.communities]
        parts += [f"large-community {value}" for value in each.large_communities]
        return " ".join(parts)

    def _bgpctl(self, *words: str) -> str:
        return self.ask("bgpctl", "-s", self._control, *words)

    def _json(self, *words: str) -> dict[str, Any]:
        try:
            return json.loads(self._bgpctl("-j", *words))
        except json.JSONDecodeError:
            return {}

    def _neighbor(self) -> dict[str, Any]:
        return (self._json("show", "neighbor", self.peer).get("neighbors") or [{}])[0]

    def is_established(self) -> bool:
        return self._neighbor().get("state") == "Established"

    def routes(self) -> dict[str, Route]:
        shown = self._json("show", "rib", "neighbor", self.peer, "detail").get("rib", [])
        return {route["prefix"]: _route(route) for route in shown}

    def has_end_of_rib(self) -> bool:
        return self._neighbor().get("stats", {}).get("update", {}).get("received", {}).get("eor") == 2

    def announce(self, announcement: Announcement) -> None:
        self.announced[announcement.prefix] = announcement
        self._reconfigure()

    def withdraw(self, prefix: str) -> None:
        del self.announced[prefix]
        self._reconfigure()

    def _reconfigure(self) -> None:
        self._configure()
        # It refuses while it is still busy with the last one.
        wait_until(lambda: "request processed" in self._bgpctl("reload"), f"reload of {self.label}")

    def refresh(self) -> None:
        self._bgpctl("neighbor", self.peer, "refresh")

    def shut_down(self, text: str) -> None:
        self._bgpctl("neighbor", self.peer, "down", text)

    def bring_up(self) -> None:
        self._bgpctl("neighbor", self.peer, "up")

    def last_notification(self) -> str:
        return f"{self._bgpctl('show', 'neighbor', self.peer)}\n{self.program.output()}"


def _route(route: dict[str, Any]) -> Route:
    return Route(
        as_path=path_of(route.get("aspath", "")),
        next_hop=route.get("exit_nexthop"),
        med=route.get("metric") or None,  # it shows 0 where there is none
        local_pref=route.get("localpref"),
        communities=frozenset(route.get("communities", [])),
        large_communities=frozenset(route.get("large_communities", [])),
    )
