"""A group of neighbors as a request on the bus describes it.

Owns the reading of a request's parameters. Never looks at a route. All members of a group have equal export policies
and sessions that agree in what is read here, so one dressed set is good for all of them.
"""

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from common.bgp.constants import Family
from common.config.digest import policy_digest
from common.config.schema import Config, ExportPolicy


@dataclass(frozen=True, slots=True)
class Group:
    """What decides which routes a group is told and how they are written."""

    family: Family
    neighbors: tuple[str, ...] = field(compare=False, repr=False)
    policy_name: str  # digest of the members' export block
    is_external: bool
    has_four_octet_asn: bool
    local_asn: int
    next_hop: bytes  # own address to tell, empty if there is none of the family
    is_rr_client: bool

    def policy(self, config: Config) -> ExportPolicy | None:
        """Return the members' export block, None if they have none; raise ValueError if nobody has it (any more)."""
        for neighbor in config.neighbors.values():
            if policy_digest(neighbor.export) == self.policy_name:
                return neighbor.export
        raise ValueError("no neighbor has this export policy: one of us has not read the configuration again yet")


def decode_group(family: str, params: dict[str, Any], config: Config) -> Group:
    """Return the group of a request; raise ValueError where its parameters do not describe one.

    A tap may name one neighbor ({"neighbor": NAME}) instead: it is told what a group of that neighbor alone would be.
    """
    if "group" not in params and isinstance(params.get("neighbor"), str):
        params = _params_of(params["neighbor"], Family.named(family), config)
    try:
        names = tuple(sorted(params["neighbors"]))
        group = Group(
            family=Family.named(family),
            neighbors=names,
            policy_name=str(params["policy"]) if "policy" in params else _policy_of(names, config),
            is_external=bool(params["external"]),
            has_four_octet_asn=bool(params["asn4"]),
            local_asn=params["local_asn"],
            next_hop=params["next_hop"],
            is_rr_client=bool(params.get("rr_client", False)),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the group is not described: {error!r}") from error
    if type(group.local_asn) is not int or not 0 < group.local_asn < 1 << 32:
        raise ValueError(f"local_asn: {group.local_asn!r}")
    if type(group.next_hop) is not bytes or len(group.next_hop) not in (0, 4, 16, 32):
        raise ValueError(f"next_hop: {group.next_hop!r:.60}")
    if not all(isinstance(name, str) for name in group.neighbors):
        raise ValueError("neighbors: not all of them are names")
    return group


def _policy_of(names: tuple[str, ...], config: Config) -> str:
    """Return the name of the policy of neighbors that are named only; nothing is told where none is configured."""
    known = [config.neighbors[name] for name in names if name in config.neighbors]
    if not known:
        raise ValueError(f"none of the neighbors {', '.join(map(str, names)):.60} is configured")
    return policy_digest(known[0].export)


def _params_of(name: str, family: Family, config: Config) -> dict[str, Any]:
    neighbor = config.neighbors.get(name)
    if neighbor is None:
        raise ValueError(f"no neighbor {name!r}")
    own = "next_hop_ipv6" if family.is_wide else "next_hop_ipv4"
    candidates = (neighbor.local_address, getattr(neighbor, own), getattr(config.router, own), *config.router.listen)
    packed = [ip_address(address).packed for address in candidates if address]
    size = 16 if family.is_wide else 4
    return {
        "neighbors": [name],
        "external": config.is_external(neighbor),
        "asn4": True,
        "local_asn": config.router.asn,
        "next_hop": next((address for address in packed if len(address) == size), b""),
    }
