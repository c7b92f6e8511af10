"""GoBGP 3."""

import json
from typing import Any

from tests.interop.daemons.daemon import Daemon
from tests.interop.network import Program
from tests.interop.route import Announcement, Route
from tests.waiting import wait_until

FAMILIES = {4: "ipv4", 6: "ipv6"}
ESTABLISHED = 6


class GoBgp(Daemon):
    """GoBGP, whose routes are given over its API, once that is there."""

    name = "gobgp"
    program_name = "gobgpd"
    can_refresh = False
    has_extended_messages = False

    def launch(self) -> Program:
        families = "".join(
            f'  [[neighbors.afi-safis]]\n    config = {{ afi-safi-name = "{name}-unicast" }}\n'
            for name in FAMILIES.values()
        )
        config = self.write(
            "gobgpd.toml",
            f"""[global.config]
  as = {self.asn}
  router-id = "{self.addresses[4]}"
  local-address-list = ["{self.local}"]
[[neighbors]]
  [neighbors.config]
    neighbor-address = "{self.peer}"
    peer-as = {self.router_asn}
  [neighbors.transport.config]
    local-address = "{self.local}"
    passive-mode = {str(self.is_passive).lower()}
  [neighbors.timers.config]
    connect-retry = 1
    idle-hold-time-after-reset = 1
{families}""",
        )
        return self.run(["gobgpd", "-f", config, "--api-hosts", "127.0.0.1:50051", "--log-plain"])

    def get_ready(self) -> None:
        wait_until(lambda: self._gobgp("global"), f"API of {self.label}")
        for each in self.announced.values():
            self._add(each)

    def _gobgp(self, *words: str) -> str:
        return self.ask("gobgp", *words)

    def _json(self, *words: str) -> Any:
        try:
            return json.loads(self._gobgp(*words, "-j"))
        except json.JSONDecodeError:
            return {}

    def _add(self, each: Announcement) -> None:
        words = [each.prefix, "nexthop", self.addresses[each.version]]
        words += ["med", str(each.med)] if each.med is not None else []
        words += ["local-pref", str(each.local_pref)] if each.local_pref is not None else []
        words += ["community", ",".join(each.communities)] if each.communities else []
        words += ["large-community", ",".join(each.large_communities)] if each.large_communities else []
        self._gobgp("global", "rib", "add", *words, "-a", FAMILIES[each.version])

    def is_established(self) -> bool:
        return self._json("neighbor", self.peer).get("state", {}).get("session_state") == ESTABLISHED

    def routes(self) -> dict[str, Route]:
        return {
            prefix: route
            for family in FAMILIES.values()
            for prefix, routes in self._json("neighbor", self.peer, "adj-in", "-a", family).items()
            for route in map(_route, routes)
        }

    def n_routes(self) -> int:
        # Of each IPv6 route it shows all others that came in the same UPDATE, so showing many takes it forever.
        families = self._json("neighbor", self.peer).get("afi_safis", [])
        return sum(each["state"].get("received", 0) for each in families)

    def has_end_of_rib(self) -> bool:
        families = self._json("neighbor", self.peer).get("afi_safis", [])
        return [each["mp_graceful_restart"]["state"].get("end_of_rib_received") for each in families] == [True, True]

    def announce(self, announcement: Announcement) -> None:
        self.announced[announcement.prefix] = announcement
        self._add(announcement)

    def withdraw(self, prefix: str) -> None:
        announcement = self.announced.pop(prefix)
        self._gobgp("global", "rib", "del", prefix, "-a", FAMILIES[announcement.version])

    def shut_down(self, text: str) -> None:
        self._gobgp("neighbor", self.peer, "shutdown", "--reason", text)  # `disable` leaves the text out

    def bring_up(self) -> None:
        self._gobgp("neighbor", self.peer, "enable")

    def last_notification(self) -> str:
        return self.program.output()


def _route(route: dict[str, Any]) -> Route:
    values: dict[int, dict] = {attribute["type"]: attribute for attribute in route["attrs"]}
    segments = values.get(2, {}).get("as_paths") or []
    hop = values.get(3) or values.get(14) or {}
    return Route(
        as_path=tuple(asn for segment in segments for asn in segment["asns"]),
        next_hop=hop.get("nexthop"),
        med=values.get(4, {}).get("metric"),
        local_pref=values.get(5, {}).get("value"),
        communities=frozenset(f"{value >> 16}:{value & 0xFFFF}" for value in values.get(8, {}).get("communities", [])),
        large_communities=frozenset(map(_large_community, values.get(32, {}).get("value", []))),
    )


def _large_community(parts: dict[str, int]) -> str:
    return f"{parts['ASN']}:{parts['LocalData1']}:{parts['LocalData2']}"
