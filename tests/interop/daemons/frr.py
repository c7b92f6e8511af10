"""FRR's bgpd, without zebra: then it holds every next hop for reachable, which is what a test of BGP alone wants."""

import json
from pathlib import Path
from typing import Any

from tests.interop.daemons.daemon import Daemon
from tests.interop.network import Program
from tests.interop.route import Announcement, Route, path_of

BGPD = "/usr/lib/frr/bgpd"
AS_TRANS = 23456
FAMILIES = {4: "ipv4", 6: "ipv6"}


class Frr(Daemon):
    """FRR's bgpd, told and asked through vtysh."""

    name = "frr"
    program_name = "vtysh"

    @classmethod
    def is_installed(cls) -> bool:
        return super().is_installed() and Path(BGPD).exists()

    @property
    def versions(self) -> tuple[int, ...]:
        # It leaves out 4-octet AS numbers only together with all other capabilities.
        return (4, 6) if self.has_asn4 else (4,)

    def launch(self) -> Program:
        return self.run(
            [
                BGPD, "-f", self._configure(), "-i", self.path("pid"), "-S", "-Z", "-l", self.local,
                "--vty_socket", str(self.directory), "-P", "0", "--log", "stdout",
            ]
        )  # fmt: skip

    def _configure(self) -> str:
        activated = f"neighbor {self.peer} activate\n  neighbor {self.peer} route-map out out"
        families = "".join(
            f" address-family {name} unicast\n  {activated}\n"
            + "".join(f"  {self._network(each)}\n" for each in self._of(version))
            + " exit-address-family\n"
            for version, name in FAMILIES.items()
            if version in self.versions
        )
        maps = "\n".join(self._route_map(each) for each in self.announced.values() if each != self._bare(each))
        lines = [f"neighbor {self.peer} remote-as {self.router_asn}", f"neighbor {self.peer} timers connect 1"]
        lines += [f"neighbor {self.peer} advertisement-interval 0"]
        lines += [f"neighbor {self.peer} passive"] if self.is_passive else []
        lines += [] if self.has_asn4 else [f"neighbor {self.peer} dont-capability-negotiate"]
        if self.has_graceful_restart:
            lines += ["bgp graceful-restart", "bgp graceful-restart preserve-fw-state"]
            lines += ["bgp graceful-restart restart-time 30", "bgp graceful-restart select-defer-time 30"]
        session = "\n ".join(lines)
        return self.write(
            "bgpd.conf",
            f"""debug bgp neighbor-events
bgp route-map delay-timer 1
{maps}
router bgp {self.asn}
 bgp router-id {self.addresses[4]}
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 {session}
{families}
bgp as-path access-list own deny ^({self.router_asn}|{AS_TRANS})_
bgp as-path access-list own permit .*
route-map out permit 10
 match as-path own
 set ip next-hop {self.addresses[4]}
 set ipv6 next-hop global {self.addresses[6]}
""",
        )

    @staticmethod
    def _bare(each: Announcement) -> Announcement:
        """Return what FRR makes of a network by itself; thousands of route maps would take it minutes."""
        return Announcement(prefix=each.prefix, med=0)

    def _network(self, each: Announcement) -> str:
        return f"network {each.prefix}" + ("" if each == self._bare(each) else f" route-map {self._map(each)}")

    def _of(self, version: int) -> list[Announcement]:
        return [each for each in self.announced.values() if each.version == version]

    @staticmethod
    def _map(each: Announcement) -> str:
        return "set-" + each.prefix.replace("/", "-").replace(":", ".")

    def _route_map(self, each: Announcement) -> str:
        lines = [f"route-map {self._map(each)} permit 10"]
        lines += [f" set metric {each.med}"] if each.med is not None else []
        lines += [f" set local-preference {each.local_pref}"] if each.local_pref is not None else []
        lines += [f" set community {' '.join(each.communities)}"] if each.communities else []
        lines += [f" set large-community {' '.join(each.large_communities)}"] if each.large_communities else []
        lines += [f" set as-path prepend {' '.join(map(str, each.as_path))}"] if each.as_path else []
        return "\n".join(lines)

    def _vtysh(self, *commands: str) -> str:
        words = [word for command in commands for word in ("-c", command)]
        return self.ask("vtysh", "--vty_socket", str(self.directory), "-d", "bgpd", *words)

    def _json(self, command: str, form: str = "json") -> dict[str, Any]:
        try:
            return json.loads(self._vtysh(f"{command} {form}"))
        except json.JSONDecodeError:
            return {}

    def _neighbor(self) -> dict[str, Any]:
        return self._json(f"show bgp neighbors {self.peer}").get(self.peer, {})

    def is_established(self) -> bool:
        return self._neighbor().get("bgpState") == "Established"

    def routes(self) -> dict[str, Route]:
        return {
            prefix: _route(path)
            for family in FAMILIES.values()
            for prefix, paths in self._json(f"show bgp {family} unicast", "json detail").get("routes", {}).items()
            for path in paths
            if path.get("peer", {}).get("peerId") == self.peer
        }

    def has_end_of_rib(self) -> bool:
        heard = self.program.output().rpartition("went from OpenConfirm to Established")[2]
        return heard.count("rcvd End-of-RIB for") == 2

    def announce(self, announcement: Announcement) -> None:
        self.announced[announcement.prefix] = announcement
        self._vtysh("configure terminal", *self._route_map(announcement).split("\n"))
        self._family(announcement.version, self._network(announcement))

    def withdraw(self, prefix: str) -> None:
        announcement = self.announced.pop(prefix)
        self._family(announcement.version, f"no network {prefix}")

    def _family(self, version: int, command: str) -> None:
        self._bgp(f"address-family {FAMILIES[version]} unicast", command)

    def _bgp(self, *commands: str) -> None:
        self._vtysh("configure terminal", f"router bgp {self.asn}", *commands)

    def refresh(self) -> None:
        self._vtysh(f"clear bgp {self.peer} soft in")

    def shut_down(self, text: str) -> None:
        self._bgp(f"neighbor {self.peer} shutdown message {text}")

    def bring_up(self) -> None:
        self._bgp(f"no neighbor {self.peer} shutdown")

    def last_notification(self) -> str:
        neighbor = self._neighbor()
        return f"{neighbor.get('lastNotificationReason')} {neighbor.get('lastShutdownDescription')}"


def _route(path: dict[str, Any]) -> Route:
    hops = [hop["ip"] for hop in path.get("nexthops", []) if hop.get("scope", "global") == "global"]
    return Route(
        as_path=path_of(path["aspath"]["string"] if path["aspath"]["string"] != "Local" else ""),
        next_hop=hops[0] if hops else None,
        med=path.get("metric"),
        local_pref=path.get("locPrf"),
        communities=frozenset(path.get("community", {}).get("list", [])),
        large_communities=frozenset(path.get("largeCommunity", {}).get("list", [])),
    )
