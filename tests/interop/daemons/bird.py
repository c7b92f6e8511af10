"""BIRD 2."""

import re

from tests.interop.daemons.daemon import Daemon
from tests.interop.network import Program
from tests.interop.route import Announcement, Route, path_of

FIELDS = {"BGP.as_path": "as_path", "BGP.next_hop": "next_hop", "BGP.med": "med", "BGP.local_pref": "local_pref"}


class Bird(Daemon):
    """BIRD 2, configured anew for each change."""

    name = "bird"
    program_name = "bird"

    def launch(self) -> Program:
        self._control = self.path("ctl")
        recovers = ["-R"] if self.has_graceful_restart and self.program is not None else []
        return self.run(["bird", "-f", *recovers, "-c", self._configure(), "-s", self._control, "-P", self.path("pid")])

    def _configure(self) -> str:
        return self.write(
            "bird.conf",
            f"""router id {self.addresses[4]};
log "{self.path("log")}" all;
{"graceful restart wait 30;" if self.has_graceful_restart else ""}
protocol device {{}}
protocol direct {{ ipv4; ipv6; interface "eth0"; }}
protocol static {{ ipv4; {self._static(4)} }}
protocol static {{ ipv6; {self._static(6)} }}
filter told {{ if source != RTS_STATIC then reject; {self._edits()} accept; }}
protocol bgp headrace {{
  local {self.local} as {self.asn}; neighbor {self.peer} {self._neighbor_as()}; direct;
  {"passive on;" if self.is_passive else ""} {"" if self.has_asn4 else "enable as4 off;"} enable extended messages on;
  {"graceful restart on; graceful restart time 30;" if self.has_graceful_restart else ""}
  debug {{ packets, states }};
  connect retry time 1; connect delay time 1; error wait time 1, 2;
  ipv4 {{ import all; export filter told; next hop address {self.addresses[4]}; }};
  ipv6 {{ import all; export filter told; next hop address {self.addresses[6]}; }};
}}
""",
        )

    def _neighbor_as(self) -> str:
        # Without 4-octet numbers of its own it takes neither a number that needs them, nor AS_TRANS from a peer that
        # has shown another one in its capability.
        return f"as {self.router_asn}" if self.has_asn4 else "external"

    def _static(self, version: int) -> str:
        return " ".join(
            f"route {each.prefix} blackhole;" for each in self.announced.values() if each.version == version
        )

    def _edits(self) -> str:
        return " ".join(
            f"if net = {each.prefix} then {{ {edits} }}" for each in self.announced.values() if (edits := _edits(each))
        )

    def _birdc(self, command: str) -> str:
        return self.ask("birdc", "-s", self._control, command)

    def is_established(self) -> bool:
        return "Established" in self._birdc("show protocols headrace")

    def routes(self) -> dict[str, Route]:
        found: dict[str, dict] = {}
        prefix, values = None, {}
        for line in self._birdc("show route all protocol headrace").splitlines():
            words = line.split()
            if words and "/" in words[0]:
                prefix = words[0]
                values = found[prefix] = {"as_path": ()}
            name, _, text = line.strip().partition(": ")
            if name in FIELDS:
                values[FIELDS[name]] = path_of(text) if name == "BGP.as_path" else text.split()[0]
            elif name in ("BGP.community", "BGP.large_community"):
                parts = re.findall(r"\(([^)]*)\)", text)
                values[name[4:].replace("community", "communities")] = frozenset(
                    part.replace(" ", "").replace(",", ":") for part in parts
                )
        for each in found.values():
            each |= {name: int(each[name]) for name in ("med", "local_pref") if name in each}
        return {prefix: Route(**values) for prefix, values in found.items()}

    def show(self, prefix: str) -> str:
        """Return all BIRD says of the routes for one prefix."""
        return self._birdc(f"show route all {prefix}")

    def has_end_of_rib(self) -> bool:
        return self.program.output().rpartition("Sending OPEN")[2].count("Got END-OF-RIB") == 2

    def announce(self, announcement: Announcement) -> None:
        self.announced[announcement.prefix] = announcement
        self._reconfigure()

    def withdraw(self, prefix: str) -> None:
        del self.announced[prefix]
        self._reconfigure()

    def _reconfigure(self) -> None:
        self._configure()
        self._birdc("configure")

    def refresh(self) -> None:
        self._birdc("reload in headrace")

    def shut_down(self, text: str) -> None:
        self._birdc(f'disable headrace "{text}"')

    def bring_up(self) -> None:
        self._birdc("enable headrace")

    def last_notification(self) -> str:
        return self._birdc("show protocols all headrace")


def _edits(each: Announcement) -> str:
    """Return the statements of an export filter that give a route its attributes."""
    lines = [f"bgp_path.prepend({asn});" for asn in reversed(each.as_path)]
    lines += [f"bgp_med = {each.med};"] if each.med is not None else []
    lines += [f"bgp_local_pref = {each.local_pref};"] if each.local_pref is not None else []
    lines += [f"bgp_community.add(({_words(value)}));" for value in each.communities]
    lines += [f"bgp_large_community.add(({_words(value)}));" for value in each.large_communities]
    return " ".join(lines)


def _words(community: str) -> str:
    return community.replace(":", ", ")
