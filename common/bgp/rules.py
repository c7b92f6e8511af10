"""What policy does to an attribute set, as plain values: between a configuration's words and the kernel `dress`.

Owns the meaning of community patterns ("65000:*") as value and mask. Never looks at a route.
RFC 1997 and RFC 8092 (communities), RFC 4271 §5.1 (what is told to whom), RFC 4456 §8 (reflection).
"""

from dataclasses import dataclass
from enum import IntEnum

from common.bgp.constants import AttributeType


class NextHopRule(IntEnum):
    """What becomes of a set's next hop."""

    KEEP = 0  # octet for octet
    KEEP_GLOBAL = 1  # without a link-local address (RFC 2545 §3); an own one where there is no other left
    REPLACE = 2  # an own address


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """All that is changed in the attribute sets one rule applies to; the default changes nothing.

    Removal comes before addition. A community is (value, mask) in a pattern, its 32 bits where it is added; a large
    one three of each.
    """

    next_hop: bytes = b""
    next_hop_rule: NextHopRule = NextHopRule.KEEP
    strip: frozenset[int] = frozenset()  # attribute types
    strips_non_transitive: bool = False  # of the extended communities (RFC 4360 §6)
    prepend_asn: int = 0
    prepend_count: int = 0
    is_two_octet: bool = False  # encode for a peer without four-octet AS numbers (RFC 6793)
    med: int | None = None
    local_pref: int | None = None
    default_local_pref: int | None = None  # where the set has none
    originator_id: int = 0  # where the set has none (RFC 4456)
    cluster_id: int = 0  # put before the cluster list
    add_communities: tuple[int, ...] = ()
    remove_communities: tuple[tuple[int, int], ...] = ()
    add_large_communities: tuple[tuple[int, int, int], ...] = ()
    remove_large_communities: tuple[tuple[int, int, int, int, int, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether these edits leave every set as it is."""
        return self == NO_EDITS

    @property
    def added(self) -> frozenset[int]:
        """Types of the attributes a set has afterwards in any case."""
        wanted = {
            AttributeType.AS_PATH: self.prepend_count > 0,
            AttributeType.MULTI_EXIT_DISC: self.med is not None,
            AttributeType.LOCAL_PREF: self.local_pref is not None or self.default_local_pref is not None,
            AttributeType.COMMUNITIES: bool(self.add_communities),
            AttributeType.ORIGINATOR_ID: self.originator_id != 0,
            AttributeType.CLUSTER_LIST: self.cluster_id != 0,
            AttributeType.LARGE_COMMUNITY: bool(self.add_large_communities),
        }
        return frozenset(kind for kind, is_wanted in wanted.items() if is_wanted)

    @property
    def edited(self) -> frozenset[int]:
        """Types of the attributes that are written anew where a set has them."""
        changed = {
            AttributeType.AS_PATH: self.prepend_count > 0 or self.is_two_octet,
            AttributeType.MULTI_EXIT_DISC: self.med is not None,
            AttributeType.LOCAL_PREF: self.local_pref is not None,
            AttributeType.AGGREGATOR: self.is_two_octet,
            AttributeType.COMMUNITIES: bool(self.add_communities or self.remove_communities),
            AttributeType.CLUSTER_LIST: self.cluster_id != 0,
            AttributeType.EXTENDED_COMMUNITIES: self.strips_non_transitive,
            AttributeType.IPV6_EXTENDED_COMMUNITIES: self.strips_non_transitive,
            AttributeType.LARGE_COMMUNITY: bool(self.add_large_communities or self.remove_large_communities),
        }
        return frozenset(kind for kind, is_changed in changed.items() if is_changed)


NO_EDITS = Edits()


def community(parts: tuple[int, int]) -> int:
    """Return the 32 bits of a community written as two numbers."""
    return parts[0] << 16 | parts[1]


def community_pattern(parts: tuple[int | None, int | None]) -> tuple[int, int]:
    """Return (value, mask) of a community pattern; None is "*"."""
    value = (parts[0] or 0) << 16 | (parts[1] or 0)
    mask = (0 if parts[0] is None else 0xFFFF0000) | (0 if parts[1] is None else 0xFFFF)
    return value, mask


def large_community_pattern(parts: tuple[int | None, int | None, int | None]) -> tuple[int, int, int, int, int, int]:
    """Return the values and then the masks of a large community pattern; None is "*"."""
    first, second, third = (part or 0 for part in parts)
    masks = (0 if part is None else 0xFFFFFFFF for part in parts)
    return (first, second, third, *masks)


def community_edits(block) -> dict:
    """Return what an `import` or `export` block of the configuration says about communities, as fields of Edits."""
    return {
        "add_communities": tuple(community(parts) for parts in block.add_communities),
        "remove_communities": tuple(community_pattern(parts) for parts in block.remove_communities),
        "add_large_communities": tuple(block.add_large_communities),
        "remove_large_communities": tuple(map(large_community_pattern, block.remove_large_communities)),
    }
