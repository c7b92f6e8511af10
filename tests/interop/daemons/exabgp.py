"""ExaBGP 4: it keeps no table; what it is told is read from the JSON it gives to a process of its own."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.interop.daemons.daemon import Daemon
from tests.interop.network import Program
from tests.interop.route import Announcement, Route, path_of

FAMILIES = ("ipv4 unicast", "ipv6 unicast")


class ExaBgp(Daemon):
    """ExaBGP 4, told what to do through a file that its API process follows.

    It goes wrong with IPv6 prefixes of 32 bits in its configuration, and with shutdown texts that it receives.
    """

    name = "exabgp"
    program_name = "exabgp"
    has_shutdown_text = False

    def launch(self) -> Program:
        self._heard = Path(self.write("heard", ""))
        self._orders = Path(self.write("orders", ""))
        lines = ["#!/bin/sh", f"tail -n +1 -f --pid $$ {self._orders} &", f"exec cat >> {self._heard}", ""]
        script = self.write("api.sh", "\n".join(lines))
        Path(script).chmod(0o755)
        for each in self.announced.values():
            self.order(f"announce {self._route(each)}")
        session = [f"router-id {self.addresses[4]}", f"local-address {self.local}", f"local-as {self.asn}"]
        session += [f"peer-as {self.router_asn}", *(["passive true", "listen 179"] if self.is_passive else [])]
        lines = "".join(f"  {line};\n" for line in session)
        config = self.write(
            "exabgp.conf",
            f"""process api {{
  run {script};
  encoder json;
}}
neighbor {self.peer} {{
{lines}  family {{ ipv4 unicast; ipv6 unicast; }}
  capability {{ route-refresh enable; asn4 {"enable" if self.has_asn4 else "disable"}; extended-message enable; }}
  api {{ processes [ api ]; neighbor-changes; receive {{ parsed; update; }} }}
}}
""",
        )
        env = {
            "exabgp.daemon.user": "root",
            "exabgp.api.ack": "false",
            "exabgp.api.cli": "false",
            "exabgp.log.destination": "stdout",
        }
        return self.run([shutil.which(self.program_name), config], env)

    def _route(self, each: Announcement) -> str:
        words = [f"route {each.prefix} next-hop {self.addresses[each.version]}"]
        words += [f"med {each.med}"] if each.med is not None else []
        words += [f"local-preference {each.local_pref}"] if each.local_pref is not None else []
        # A path given is told as it stands.
        path = each.as_path if self.is_internal else (self.asn, *each.as_path)
        words += [f"as-path [{' '.join(map(str, path))}]"] if each.as_path else []
        words += [f"community [{' '.join(each.communities)}]"] if each.communities else []
        words += [f"large-community [{' '.join(each.large_communities)}]"] if each.large_communities else []
        return " ".join(words)

    def order(self, line: str) -> None:
        with open(self._orders, "a") as orders:
            orders.write(line + "\n")

    def _events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (type, neighbor) of all that ExaBGP has reported."""
        for line in self._heard.read_text().splitlines():
            try:
                heard = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line, written half
            if "neighbor" in heard:
                yield heard["type"], heard["neighbor"]

    def _updates(self) -> Iterator[dict[str, Any] | None]:
        """Yield the UPDATEs of the session that is up now; None where it began."""
        for kind, neighbor in self._events():
            if kind == "state" and neighbor["state"] == "up":
                yield None
            elif kind == "update":
                yield neighbor["message"]

    def is_established(self) -> bool:
        # "connected" is said of a second connection too, which then loses the collision.
        states = [neighbor["state"] for kind, neighbor in self._events() if kind == "state"]
        states = [state for state in states if state != "connected"]
        return states[-1:] == ["up"]

    def routes(self) -> dict[str, Route]:
        found: dict[str, Route] = {}
        for message in self._updates():
            if message is None:
                found.clear()
                continue
            update = message.get("update", {})
            attributes = update.get("attribute", {})
            for by_hop in update.get("announce", {}).values():
                for hop, routes in by_hop.items():
                    found |= {route["nlri"]: _route(attributes, hop) for route in routes if "nlri" in route}
            for routes in update.get("withdraw", {}).values():
                for route in routes:
                    found.pop(route["nlri"], None)
        return found

    def has_end_of_rib(self) -> bool:
        ended = set()
        for message in self._updates():
            if message is None:
                ended.clear()
            elif "eor" in message:
                ended.add("{afi} {safi}".format(**message["eor"]))
        return ended == set(FAMILIES)

    def n_updates(self) -> int:
        """Return how many UPDATEs it has heard of."""
        return sum(kind == "update" for kind, _ in self._events())

    def announce(self, announcement: Announcement) -> None:
        self.announced[announcement.prefix] = announcement
        self.order(f"announce {self._route(announcement)}")

    def withdraw(self, prefix: str) -> None:
        self.order(f"withdraw {self._route(self.announced.pop(prefix))}")

    def refresh(self) -> None:
        for family in FAMILIES:
            self.order(f"announce route-refresh {family}")

    def shut_down(self, text: str) -> None:
        """It can end a session with a subcode, but with no text of ours, and comes back at once."""
        self.order(f"neighbor {self.peer} teardown 2")

    def bring_up(self) -> None:
        """It does so itself."""

    def last_notification(self) -> str:
        reasons = [neighbor["reason"] for kind, neighbor in self._events() if "reason" in neighbor]
        return " ".join(reasons[-1:])


def _route(attributes: dict[str, Any], next_hop: str) -> Route:
    return Route(
        as_path=path_of(asn for asn in attributes.get("as-path", []) if isinstance(asn, int)),
        next_hop=next_hop,
        med=attributes.get("med"),
        local_pref=attributes.get("local-preference"),
        communities=frozenset(":".join(map(str, value)) for value in attributes.get("community", [])),
        large_communities=frozenset(":".join(map(str, value)) for value in attributes.get("large-community", [])),
    )
