"""The whole router, slow and obvious: what each neighbor is to be told, worked out anew from what each has announced.

Written from RFC 4271 §9, RFC 1997 and RFC 8212 for the configuration of tests/pipeline/test_model.py: no policy beyond
accepting everything and adding communities.
"""

from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

from common.bgp.attributes import decode_set, encode_set
from common.bgp.decision import Step
from tests.oracles import decide

NO_EXPORT, NO_ADVERTISE = 0xFFFFFF01, 0xFFFFFF02


def comparable(next_hop: bytes, attributes: bytes) -> tuple:
    """Return next hop and all attribute values in a form to compare: communities are a set (RFC 1997)."""
    values = decode_set(b"\0" + attributes)
    return str(ip_address(next_hop)), replace(values, communities=tuple(sorted(values.communities)))


@dataclass(frozen=True)
class Route:
    """What was announced for a prefix."""

    next_hop: str = ""
    as_path: tuple[int, ...] = ()
    origin: int = 0
    med: int | None = None
    local_pref: int | None = None
    communities: tuple[int, ...] = ()

    def attributes(self) -> dict:
        """Return the attributes as `encode_set` takes them."""
        return {name: getattr(self, name) for name in ("as_path", "origin", "med", "local_pref", "communities")}

    def told(self) -> tuple:
        """Return it in a form to compare."""
        octets = encode_set(**self.attributes())
        return comparable(ip_address(self.next_hop).packed, octets[1 + octets[0] :])


@dataclass
class Router:
    """The router under test, and what it has heard."""

    asn: int
    router_id: str
    next_hops: dict[int, str]  # by IP version
    neighbors: dict  # name -> configuration
    router_ids: dict[str, int]  # by neighbor
    originated: list[str] = field(default_factory=list)
    received: dict[str, dict[str, Route]] = field(default_factory=dict)

    def is_external(self, name: str) -> bool:
        return self.neighbors[name].asn != self.asn

    def accepted(self, name: str, route: Route) -> Route | None:
        """Import: accepted as it is, or with communities; §9.1.2: a route with our AS in its path is excluded."""
        block = self.neighbors[name].import_
        if self.asn in route.as_path or (block is None and self.is_external(name)):
            return None
        if block is None:
            return route
        added = tuple(high << 16 | low for high, low in block.add_communities)
        kept = tuple(value for value in route.communities if value not in added)
        return replace(route, communities=kept + added)

    def candidates(self, prefix: str) -> list[tuple[str, Route]]:
        """Return (neighbor or "", route after import) of a prefix."""
        found = [("", Route())] if prefix in self.originated else []
        for name, routes in self.received.items():
            if prefix in routes:
                route = self.accepted(name, routes[prefix])
                if route is not None:
                    found.append((name, route))
        return found

    def chosen(self, prefix: str) -> tuple[str, Route, Step] | None:
        """Return (neighbor, route, deciding step) of the best path."""
        candidates = self.candidates(prefix)
        best, _, step = decide.choose([self._path(*candidate) for candidate in candidates])
        return None if best is None else (*candidates[best], step)

    def loc_rib(self) -> dict[str, tuple[str, Route, Step]]:
        """Return the best path of each prefix that has one."""
        prefixes = {prefix for routes in self.received.values() for prefix in routes} | set(self.originated)
        chosen = {prefix: self.chosen(prefix) for prefix in prefixes}
        return {prefix: best for prefix, best in chosen.items() if best is not None}

    def told(self, name: str) -> dict[str, tuple]:
        """Return what a neighbor is to have been told."""
        told = {}
        for prefix, (source, route, _) in self.loc_rib().items():
            made = self._exported(name, prefix, source, route)
            if made is not None:
                told[prefix] = made.told()
        return told

    def _exported(self, name: str, prefix: str, source: str, route: Route) -> Route | None:
        is_external = self.is_external(name)
        own = self.next_hops[ip_network(prefix).version]
        if source == name or NO_ADVERTISE in route.communities:
            return None
        if is_external:
            if NO_EXPORT in route.communities or self.neighbors[name].export is None:
                return None
            med = route.med if not source else None
            return replace(route, as_path=(self.asn, *route.as_path), next_hop=own, local_pref=None, med=med)
        if source and not self.is_external(source):
            return None
        local_pref = 100 if route.local_pref is None else route.local_pref
        return replace(route, local_pref=local_pref, next_hop=route.next_hop or own)

    def _path(self, name: str, route: Route) -> decide.Path:
        neighbor = self.neighbors.get(name)
        return decide.Path(
            next_hop=route.next_hop,
            local_pref=route.local_pref,
            as_path=((decide.AS_SEQUENCE, route.as_path),) if route.as_path else (),
            origin=route.origin,
            med=route.med,
            is_originated=not name,
            is_external=bool(name) and self.is_external(name),
            router_id=self.router_ids[name] if neighbor else int(ip_address(self.router_id)),
            address=neighbor.address if neighbor else "0.0.0.0",
        )
