"""Policy verdicts, slow and obvious, written from the RFCs: an oracle."""

from ipaddress import IPv4Address, IPv6Address

from common.bgp.reasons import ExportRefusal, ImportRefusal
from tests.oracles.dress import decode, numbers, segments_of


def evaluate_import(rule: dict, own_addresses: list[bytes], octets: bytes) -> int:
    """Return the refusal of a set by a rule (the arguments of ImportChecks.add)."""
    if rule.get("verdict"):
        return rule["verdict"]
    if not rule.get("is_checked", True):
        return 0
    next_hop, attributes = decode(octets)
    refusal = _judge_next_hop(next_hop, own_addresses)
    if refusal:
        return refusal
    segments = segments_of(attributes.get(2, (0, b""))[1])
    expected = rule.get("asn_expected", 0)
    if expected and (not segments or segments[0][0] != 2 or segments[0][1][:1] != [expected]):
        return ImportRefusal.FIRST_AS
    own = {rule.get("own_asn", 0), rule.get("local_asn", 0)}
    if any(asn in own for _, asns in segments for asn in asns):
        return ImportRefusal.OWN_AS
    if rule.get("router_id") and numbers(attributes.get(9, (0, b""))[1]) == [rule["router_id"]]:
        return ImportRefusal.ORIGINATOR_OWN
    if rule.get("cluster_id") and rule["cluster_id"] in numbers(attributes.get(10, (0, b""))[1]):
        return ImportRefusal.CLUSTER_OWN
    return 0


def _judge_next_hop(next_hop: bytes, own_addresses: list[bytes]) -> int:
    if not next_hop:
        return ImportRefusal.NEXT_HOP_UNUSABLE
    address = IPv4Address(next_hop) if len(next_hop) == 4 else IPv6Address(next_hop[:16])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if address.is_multicast or address.is_loopback or address.is_unspecified:
        return ImportRefusal.NEXT_HOP_UNUSABLE
    if address.version == 4 and (address.packed[0] == 0 or address.packed[0] >= 240):
        return ImportRefusal.NEXT_HOP_UNUSABLE
    return ImportRefusal.NEXT_HOP_OWN if address.packed in own_addresses else 0


def evaluate_export(is_external: bool, octets: bytes) -> int:
    """Return why a set must not be told to a neighbor, 0 if it may be (RFC 1997)."""
    communities = numbers(decode(octets)[1].get(8, (0, b""))[1])
    if 0xFFFFFF02 in communities:
        return ExportRefusal.NO_ADVERTISE
    words = {0xFFFFFF01: ExportRefusal.NO_EXPORT, 0xFFFFFF03: ExportRefusal.NO_EXPORT_SUBCONFED}
    found = [words[community] for community in communities if community in words]
    return found[0] if found and is_external else 0


def evaluate_prefix(address: int, length: int, martians: list[tuple[int, int]], maximum_length: int) -> int:
    """Return the refusal of a prefix (the address left-aligned in 128 bits)."""
    for martian, martian_length in martians:
        if length >= martian_length and (address >> (128 - martian_length)) == (martian >> (128 - martian_length)):
            return ImportRefusal.MARTIAN
    return ImportRefusal.TOO_SPECIFIC if length > maximum_length else 0
