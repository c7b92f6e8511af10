"""Capabilities: what each side of a session says it can do, and what follows for both.

Owns the encoding of the Capabilities Optional Parameter's value and the negotiation. Never rejects a capability it
does not know, and ignores one whose value is malformed: the session then goes without it (RFC 5492 §4, §6).

RFC 5492, 4760 §8, 2918, 6793, 7911 §4, 4724 §3, 8538 §2, 8654 §3, 8950 §4, 7313, 9234 §4.1.
"""

from dataclasses import dataclass, replace

from common.bgp.constants import (
    MAX_EXTENDED_MESSAGE_OCTETS,
    MAX_MESSAGE_OCTETS,
    AddPathMode,
    Afi,
    CapabilityCode,
    Family,
)


@dataclass(frozen=True, slots=True)
class GracefulRestart:
    """RFC 4724 §3; `has_notification` is the N bit of RFC 8538."""

    restart_time_s: int
    is_restarting: bool = False
    has_notification: bool = False
    # For each family: whether its forwarding state was preserved.
    families: tuple[tuple[Family, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What one side can do; `families` of a peer that sent no Multiprotocol capability is IPv4 unicast alone."""

    families: tuple[Family, ...] = (Family.IPV4_UNICAST,)
    asn4: int | None = None
    route_refresh: bool = False
    enhanced_route_refresh: bool = False
    extended_message: bool = False
    add_path: tuple[tuple[Family, AddPathMode], ...] = ()
    # Families whose next hop may be an IPv6 address though they are IPv4.
    extended_next_hop: tuple[Family, ...] = ()
    graceful_restart: GracefulRestart | None = None
    role: int | None = None
    host_name: str = ""
    domain_name: str = ""
    # Those Headrace does not know, and families it does not route.
    others: tuple[tuple[int, bytes], ...] = ()

    def encode(self) -> bytes:
        """Return the value of a Capabilities Optional Parameter."""
        octets = self.encode_families()
        if self.extended_next_hop:
            value = b"".join(_afi_safi2(family) + Afi.IPV6.to_bytes(2, "big") for family in self.extended_next_hop)
            octets += _encode(CapabilityCode.EXTENDED_NEXT_HOP, value)
        for is_set, code in (
            (self.route_refresh, CapabilityCode.ROUTE_REFRESH),
            (self.enhanced_route_refresh, CapabilityCode.ENHANCED_ROUTE_REFRESH),
            (self.extended_message, CapabilityCode.EXTENDED_MESSAGE),
        ):
            octets += _encode(code) if is_set else b""
        if self.role is not None:
            octets += _encode(CapabilityCode.ROLE, bytes([self.role]))
        if self.graceful_restart is not None:
            octets += _encode(CapabilityCode.GRACEFUL_RESTART, _encode_graceful_restart(self.graceful_restart))
        if self.asn4 is not None:
            octets += _encode(CapabilityCode.FOUR_OCTET_AS, self.asn4.to_bytes(4, "big"))
        if self.add_path:
            value = b"".join(_afi_safi(family) + bytes([mode]) for family, mode in self.add_path)
            octets += _encode(CapabilityCode.ADD_PATH, value)
        if self.host_name:
            value = b"".join(bytes([len(name)]) + name for name in map(_short_name, (self.host_name, self.domain_name)))
            octets += _encode(CapabilityCode.FQDN, value)
        return octets + b"".join(_encode(code, value) for code, value in self.others)

    def encode_families(self) -> bytes:
        """Return the Multiprotocol capabilities alone: what a NOTIFICATION says is missing (RFC 5492 §5)."""
        return b"".join(
            _encode(CapabilityCode.MULTIPROTOCOL, family.afi.to_bytes(2, "big") + bytes([0, family.safi]))
            for family in self.families
        )

    @classmethod
    def of(cls, items: list[tuple[int, bytes]]) -> "Capabilities":
        """Return what a peer's capabilities, each code and value, say."""
        said: dict = {}
        others = []
        families = []
        for code, value in items:
            if code == CapabilityCode.MULTIPROTOCOL and len(value) == 4:
                family = Family.of(int.from_bytes(value[:2], "big"), value[3])
                if family is None:
                    others.append((code, value))
                elif family not in families:
                    families.append(family)
            elif code in _DECODERS:
                said.update(_DECODERS[code](value))
            else:
                others.append((code, value))
        if any(code == CapabilityCode.MULTIPROTOCOL for code, _ in items):
            said["families"] = tuple(families)
        return cls(others=tuple(others), **said)


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What both sides of a session can do."""

    families: tuple[Family, ...]
    as4: bool = False
    max_message_octets: int = MAX_MESSAGE_OCTETS
    route_refresh: bool = False
    enhanced_route_refresh: bool = False
    # Families with path identifiers in what the peer sends, and in what it is sent.
    add_path_receive: tuple[Family, ...] = ()
    add_path_send: tuple[Family, ...] = ()
    extended_next_hop: bool = False
    # The peer's, where both sides offer it; `has_notification` is set where both do (RFC 8538 §2).
    graceful_restart: GracefulRestart | None = None

    def words(self) -> list[str]:
        """Return what both can do beside their families, by the names of the capabilities."""
        restart = self.graceful_restart
        found = {
            "4-octet AS numbers": self.as4,
            "route refresh": self.route_refresh and not self.enhanced_route_refresh,
            "enhanced route refresh": self.enhanced_route_refresh,
            "extended messages": self.max_message_octets > MAX_MESSAGE_OCTETS,
            "extended next hop": self.extended_next_hop,
            "ADD-PATH from it": bool(self.add_path_receive),
            "ADD-PATH to it": bool(self.add_path_send),
            f"graceful restart within {restart.restart_time_s if restart else 0} s": restart is not None,
        }
        return [word for word, is_agreed in found.items() if is_agreed]


def negotiate(local: Capabilities, remote: Capabilities) -> Negotiated:
    """Return what follows from both sides' capabilities."""
    families = tuple(family for family in Family if family in local.families and family in remote.families)
    is_extended = local.extended_message and remote.extended_message
    ours, theirs = dict(local.add_path), dict(remote.add_path)
    none = AddPathMode(0)
    return Negotiated(
        families=families,
        as4=local.asn4 is not None and remote.asn4 is not None,
        max_message_octets=MAX_EXTENDED_MESSAGE_OCTETS if is_extended else MAX_MESSAGE_OCTETS,
        route_refresh=local.route_refresh and remote.route_refresh,
        enhanced_route_refresh=local.enhanced_route_refresh and remote.enhanced_route_refresh,
        add_path_receive=tuple(
            family
            for family in families
            if ours.get(family, none) & AddPathMode.RECEIVE and theirs.get(family, none) & AddPathMode.SEND
        ),
        add_path_send=tuple(
            family
            for family in families
            if ours.get(family, none) & AddPathMode.SEND and theirs.get(family, none) & AddPathMode.RECEIVE
        ),
        extended_next_hop=bool(set(local.extended_next_hop) & set(remote.extended_next_hop)),
        graceful_restart=_negotiate_restart(local.graceful_restart, remote.graceful_restart),
    )


def _negotiate_restart(local: GracefulRestart | None, remote: GracefulRestart | None) -> GracefulRestart | None:
    if local is None or remote is None:
        return None
    return replace(remote, has_notification=local.has_notification and remote.has_notification)


# ---- values ---------------------------------------------------------------------------------------------------------


def _encode(code: int, value: bytes = b"") -> bytes:
    return bytes([code, len(value)]) + value


def _afi_safi(family: Family) -> bytes:
    return family.afi.to_bytes(2, "big") + bytes([family.safi])


def _afi_safi2(family: Family) -> bytes:
    """AFI and SAFI with two octets each, as only RFC 8950 has them."""
    return family.afi.to_bytes(2, "big") + family.safi.to_bytes(2, "big")


def _short_name(name: str) -> bytes:
    return name.encode()[:64]


def _encode_graceful_restart(restart: GracefulRestart) -> bytes:
    flags = restart.is_restarting << 15 | restart.has_notification << 14
    octets = (flags | min(restart.restart_time_s, 0xFFF)).to_bytes(2, "big")
    return octets + b"".join(_afi_safi(family) + bytes([is_kept << 7]) for family, is_kept in restart.families)


def _items(value: bytes, size: int) -> list[bytes]:
    """Cut a value into items of equal size; none if it can't be."""
    return [value[at : at + size] for at in range(0, len(value), size)] if len(value) % size == 0 else []


def _family(octets: bytes) -> Family | None:
    return Family.of(int.from_bytes(octets[:-1], "big"), octets[-1])


def _decode_asn4(value: bytes) -> dict:
    return {"asn4": int.from_bytes(value, "big")} if len(value) == 4 else {}


def _decode_extended_next_hop(value: bytes) -> dict:
    families = []
    for item in _items(value, 6):
        family = Family.of(int.from_bytes(item[:2], "big"), int.from_bytes(item[2:4], "big"))
        if family is Family.IPV4_UNICAST and int.from_bytes(item[4:], "big") == Afi.IPV6 and family not in families:
            families.append(family)
    return {"extended_next_hop": tuple(families)}


def _decode_graceful_restart(value: bytes) -> dict:
    if len(value) < 2 or (len(value) - 2) % 4:
        return {}
    head = int.from_bytes(value[:2], "big")
    families = [(_family(item[:3]), bool(item[3] & 0x80)) for item in _items(value[2:], 4)]
    known = tuple((family, is_kept) for family, is_kept in families if family is not None)
    return {"graceful_restart": GracefulRestart(head & 0xFFF, bool(head & 0x8000), bool(head & 0x4000), known)}


def _decode_add_path(value: bytes) -> dict:
    # RFC 7911 §4: an entry with another Send/Receive value is ignored; of several for a family the last counts.
    modes = {}
    for item in _items(value, 4):
        family = _family(item[:3])
        if family is not None and 1 <= item[3] <= 3:
            modes[family] = AddPathMode(item[3])
    return {"add_path": tuple(modes.items())}


def _decode_role(value: bytes) -> dict:
    return {"role": value[0]} if len(value) == 1 else {}


def _decode_fqdn(value: bytes) -> dict:
    names = []
    for _ in range(2):
        size = value[0] if value else 0
        names.append(value[1 : 1 + size].decode(errors="replace"))
        value = value[1 + size :]
    return {"host_name": names[0], "domain_name": names[1]}


_DECODERS = {
    CapabilityCode.ROUTE_REFRESH: lambda value: {"route_refresh": True},
    CapabilityCode.EXTENDED_NEXT_HOP: _decode_extended_next_hop,
    CapabilityCode.EXTENDED_MESSAGE: lambda value: {"extended_message": True},
    CapabilityCode.ROLE: _decode_role,
    CapabilityCode.GRACEFUL_RESTART: _decode_graceful_restart,
    CapabilityCode.FOUR_OCTET_AS: _decode_asn4,
    CapabilityCode.ADD_PATH: _decode_add_path,
    CapabilityCode.ENHANCED_ROUTE_REFRESH: lambda value: {"enhanced_route_refresh": True},
    CapabilityCode.FQDN: _decode_fqdn,
}
