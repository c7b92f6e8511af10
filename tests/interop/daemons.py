"""The other BGP daemons of Debian, each started in a namespace with a small configuration and asked what it holds.

All have the same face: `start(network, n, tmp_path)`; `announce` is what it originates; `paths()` is what it has learned:
{prefix: AS path as a list of integers}; `attributes(prefix)` where the daemon shows more; `withdraw(prefix)`; `stop()`.
"""

import json
import shutil
from pathlib import Path

from tests.interop.network import Network, Program, json_inside, run_inside

ROUTER_ASN = 65000


class Daemon:
    """A neighbor of the router: number n on the segment, AS 64600 + n."""

    packages: tuple[str, ...] = ()

    def __init__(self, network: Network, n: int, directory: Path, announce4: list[str], announce6: list[str]):
        self.n = n
        self.asn = 64600 + n
        self.address = f"10.99.0.{n}"
        self.announce4 = announce4
        self.announce6 = announce6
        self.directory = directory / f"{type(self).__name__.lower()}{n}"
        self.directory.mkdir(parents=True)
        self.directory.chmod(0o777)
        self.namespace = network.add(n)
        self.program = self.launch()

    def launch(self) -> Program:
        raise NotImplementedError

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.write_text(text)
        return str(path)

    def run(self, command: list[str], env: dict[str, str] | None = None) -> Program:
        return Program(self.namespace, command, self.directory / "log", env)

    def stop(self) -> None:
        self.program.stop()

    def restart(self) -> None:
        self.program = self.launch()

    def paths(self) -> dict[str, list[int]]:
        raise NotImplementedError

    def withdraw(self, prefix: str) -> None:
        raise NotImplementedError


class Bird(Daemon):
    """BIRD 2."""

    def launch(self) -> Program:
        return self.run(["bird", "-f", "-c", self._configure(), "-s", self._control, "-P", str(self.directory / "pid")])

    def _configure(self) -> str:
        self._control = str(self.directory / "ctl")
        routes4 = "".join(f"route {prefix} blackhole; " for prefix in self.announce4)
        routes6 = "".join(f"route {prefix} blackhole; " for prefix in self.announce6)
        return self.write(
            "bird.conf",
            f"""router id {self.address};
protocol device {{}}
protocol static {{ ipv4; {routes4} }}
protocol static {{ ipv6; {routes6} }}
protocol bgp headrace {{
  local {self.address} as {self.asn}; neighbor 10.99.0.1 as {ROUTER_ASN}; connect retry time 1; connect delay time 1; error wait time 1, 2;
  ipv4 {{ import all; export filter {{ bgp_community.add((64600, {self.n})); bgp_large_community.add((64600, 1, {self.n})); accept; }}; }};
  ipv6 {{ import all; export all; next hop address fd99::{self.n:x}; }};
}}
""",
        )

    def paths(self) -> dict[str, list[int]]:
        shown = run_inside(self.namespace, "birdc", "-s", self._control, "show route all protocol headrace")
        found: dict[str, list[int]] = {}
        prefix = None
        for line in shown.splitlines():
            words = line.split()
            if words and "/" in words[0]:
                prefix = words[0]
            if "BGP.as_path:" in line and prefix:
                found[prefix] = [int(word) for word in line.split(":", 1)[1].split()]
        return found

    def attributes(self, prefix: str) -> str:
        return run_inside(self.namespace, "birdc", "-s", self._control, f"show route all {prefix}")

    def withdraw(self, prefix: str) -> None:
        (self.announce6 if ":" in prefix else self.announce4).remove(prefix)
        self._configure()
        run_inside(self.namespace, "birdc", "-s", self._control, "configure")


class Frr(Daemon):
    """FRR's bgpd with its zebra."""

    def launch(self) -> Program:
        networks4 = "".join(f"  network {prefix}\n" for prefix in self.announce4)
        networks6 = "".join(f"  network {prefix}\n" for prefix in self.announce6)
        config = self.write(
            "bgpd.conf",
            f"""router bgp {self.asn}
 bgp router-id {self.address}
 no bgp ebgp-requires-policy
 no bgp network import-check
 no bgp default ipv4-unicast
 neighbor 10.99.0.1 remote-as {ROUTER_ASN}
 neighbor 10.99.0.1 timers connect 1
 address-family ipv4 unicast
  neighbor 10.99.0.1 activate
{networks4} exit-address-family
 address-family ipv6 unicast
  neighbor 10.99.0.1 activate
{networks6} exit-address-family
""",
        )
        # Without zebra bgpd holds every next hop for reachable, which is what a test of BGP alone wants.
        return self.run(
            [
                "/usr/lib/frr/bgpd", "-f", config, "-i", str(self.directory / "pid"), "-S", "-Z", "-l", self.address,
                "--vty_socket", str(self.directory), "-P", "0",
            ]
        )  # fmt: skip

    def _vtysh(self, command: str):
        return json_inside(self.namespace, "vtysh", "--vty_socket", str(self.directory), "-d", "bgpd", "-c", command)

    def paths(self) -> dict[str, list[int]]:
        found = {}
        for family in ("ipv4", "ipv6"):
            shown = self._vtysh(f"show bgp {family} unicast json") or {}
            for prefix, routes in (shown.get("routes") or {}).items():
                for route in routes:
                    if route.get("path"):
                        found[prefix] = [int(word) for word in route["path"].split()]
        return found

    def attributes(self, prefix: str):
        family = "ipv6" if ":" in prefix else "ipv4"
        return self._vtysh(f"show bgp {family} unicast {prefix} json")

    def withdraw(self, prefix: str) -> None:
        family = "ipv6" if ":" in prefix else "ipv4"
        (self.announce6 if ":" in prefix else self.announce4).remove(prefix)
        run_inside(
            self.namespace, "vtysh", "--vty_socket", str(self.directory), "-d", "bgpd", "-c", "configure terminal",
            "-c", f"router bgp {self.asn}", "-c", f"address-family {family} unicast", "-c", f"no network {prefix}",
        )  # fmt: skip


class GoBgp(Daemon):
    """GoBGP 3."""

    def launch(self) -> Program:
        config = self.write(
            "gobgpd.toml",
            f"""[global.config]
  as = {self.asn}
  router-id = "{self.address}"
  local-address-list = ["{self.address}"]
[[neighbors]]
  [neighbors.config]
    neighbor-address = "10.99.0.1"
    peer-as = {ROUTER_ASN}
  [neighbors.timers.config]
    connect-retry = 5
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv4-unicast"
  [[neighbors.afi-safis]]
    [neighbors.afi-safis.config]
      afi-safi-name = "ipv6-unicast"
""",
        )
        self._announced = False
        return self.run(["gobgpd", "-f", config, "--api-hosts", "127.0.0.1:50051"])

    def _ask(self, *words: str) -> str:
        return run_inside(self.namespace, "gobgp", *words)

    def _announce_once(self) -> None:
        """Routes are given over its API, which is there a little after the start."""
        if self._announced or not self._ask("global"):
            return
        for prefix in self.announce4:
            self._ask("global", "rib", "add", prefix, "-a", "ipv4", "nexthop", self.address)
        for prefix in self.announce6:
            self._ask("global", "rib", "add", prefix, "-a", "ipv6", "nexthop", f"fd99::{self.n:x}")
        self._announced = True

    def paths(self) -> dict[str, list[int]]:
        self._announce_once()
        found = {}
        for family in ("ipv4", "ipv6"):
            try:
                shown = json.loads(self._ask("global", "rib", "-a", family, "-j") or "{}")
            except json.JSONDecodeError:
                continue
            for prefix, routes in shown.items():
                for route in routes:
                    for attribute in route.get("attrs", []):
                        if attribute.get("type") == 2 and attribute.get("as_paths"):
                            found[prefix] = [asn for segment in attribute["as_paths"] for asn in segment["asns"]]
        return found

    def withdraw(self, prefix: str) -> None:
        self._ask("global", "rib", "del", prefix, "-a", "ipv6" if ":" in prefix else "ipv4")


class OpenBgpd(Daemon):
    """OpenBGPD (portable)."""

    def launch(self) -> Program:
        self._control = str(self.directory / "ctl")
        Path("/run/openbgpd").mkdir(mode=0o755, exist_ok=True)  # its unit's RuntimeDirectory, to which it changes root
        return self.run(["/usr/sbin/bgpd", "-d", "-f", self._configure()])

    def _configure(self) -> str:
        networks = "".join(f"network {prefix}\n" for prefix in self.announce4 + self.announce6)
        path = self.write(
            "bgpd.conf",
            f"""AS {self.asn}
router-id {self.address}
listen on {self.address}
fib-update no
socket "{self._control}"
{networks}neighbor 10.99.0.1 {{
  remote-as {ROUTER_ASN}
  announce IPv4 unicast
  announce IPv6 unicast
}}
allow from any
allow to any
""",
        )
        Path(path).chmod(0o600)
        return path

    def paths(self) -> dict[str, list[int]]:
        shown = json_inside(self.namespace, "bgpctl", "-s", self._control, "-j", "show", "rib") or {}
        return {
            route["prefix"]: [int(word) for word in route.get("aspath", "").split()]
            for route in shown.get("rib", [])
            if route.get("aspath")
        }

    def withdraw(self, prefix: str) -> None:
        (self.announce6 if ":" in prefix else self.announce4).remove(prefix)
        self._configure()
        run_inside(self.namespace, "bgpctl", "-s", self._control, "reload")


class ExaBgp(Daemon):
    """ExaBGP 4: it keeps no table; what it is told is read from the JSON it gives to a process of its own."""

    def launch(self) -> Program:
        self._heard = self.directory / "heard"
        self._orders = self.directory / "orders"
        self._heard.write_text("")
        self._orders.write_text("")
        script = self.write(
            "api.sh", f"#!/bin/sh\ntail -n +1 -f {self._orders} &\nexec cat >> {self._heard}\n"
        )  # fmt: skip
        Path(script).chmod(0o755)
        routes4 = "".join(f"      unicast {prefix} next-hop {self.address};\n" for prefix in self.announce4)
        routes6 = "".join(f"      unicast {prefix} next-hop fd99::{self.n:x};\n" for prefix in self.announce6)
        config = self.write(
            "exabgp.conf",
            f"""process api {{
  run {script};
  encoder json;
}}
neighbor 10.99.0.1 {{
  router-id {self.address};
  local-address {self.address};
  local-as {self.asn};
  peer-as {ROUTER_ASN};
  family {{
    ipv4 unicast;
    ipv6 unicast;
  }}
  api {{
    processes [ api ];
    receive {{
      parsed;
      update;
    }}
  }}
  announce {{
    ipv4 {{
{routes4}    }}
    ipv6 {{
{routes6}    }}
  }}
}}
""",
        )
        return self.run(
            [shutil.which("exabgp") or "exabgp", config],
            {"exabgp.daemon.user": "root", "exabgp.api.ack": "false", "exabgp.api.cli": "false", "exabgp.log.destination": "stdout"},
        )

    def paths(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for line in self._heard.read_text().splitlines():
            try:
                update = json.loads(line)["neighbor"]["message"]["update"]
            except (json.JSONDecodeError, KeyError, TypeError):
                continue
            path = [asn for asn in update.get("attribute", {}).get("as-path", []) if isinstance(asn, int)]
            for by_hop in update.get("announce", {}).values():
                for routes in by_hop.values():
                    for route in routes:
                        if "nlri" in route:
                            found[route["nlri"]] = path
            for routes in update.get("withdraw", {}).values():
                for route in routes:
                    found.pop(route.get("nlri"), None)
        return found

    def withdraw(self, prefix: str) -> None:
        hop = f"fd99::{self.n:x}" if ":" in prefix else self.address
        with open(self._orders, "a") as orders:
            orders.write(f"withdraw route {prefix} next-hop {hop}\n")


ALL = (Bird, Frr, GoBgp, OpenBgpd, ExaBgp)
