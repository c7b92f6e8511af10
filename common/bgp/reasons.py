"""Why policy kept a route from going on, in numbers for the bus and in words for an operator.

Owns both lists: what import policy says (column `reason` of RouteChanges) and what the exporter says (answers to
`explain`). Zero is "not refused" in both. Numbers are only ever added: a batch recorded once must read the same later.
"""

from enum import IntEnum


class _Reason(IntEnum):
    """A number on the bus with the words an operator reads."""

    words: str

    def __new__(cls, value: int, words: str):
        member = int.__new__(cls, value)
        member._value_ = value
        member.words = words
        return member

    @classmethod
    def words_of(cls, value: int) -> str:
        """Return the words for a number from the bus, also one that this version does not know."""
        return cls(value).words if value in cls._value2member_map_ else f"reason {value}"


class ImportRefusal(_Reason):
    """Why a route received from a neighbor is not offered to the decision process (RFC 4271 §9.1.1)."""

    NONE = 0, "accepted"
    NO_POLICY = 1, "no import policy (RFC 8212)"
    REJECTED = 2, "import policy rejects"
    UNKNOWN_NEIGHBOR = 3, "neighbor is not configured"
    OWN_AS = 4, "own AS in the path"
    FIRST_AS = 5, "path does not start with the neighbor's AS"
    NEXT_HOP_UNUSABLE = 6, "next hop cannot be used"
    NEXT_HOP_OWN = 7, "next hop is an address of this router"
    MARTIAN = 8, "prefix that nobody may announce"
    TOO_SPECIFIC = 9, "prefix is longer than accepted"
    ORIGINATOR_OWN = 10, "ORIGINATOR_ID is this router's (RFC 4456)"
    CLUSTER_OWN = 11, "own cluster in CLUSTER_LIST (RFC 4456)"
    TOO_LARGE = 12, "attributes grow too large"
    MALFORMED = 13, "attribute set cannot be read"


class ExportRefusal(_Reason):
    """Why a route of the Loc-RIB is not told to a neighbor (RFC 4271 §9.1.3)."""

    NONE = 0, "announced"
    NO_POLICY = 1, "no export policy (RFC 8212)"
    REJECTED = 2, "export policy rejects"
    LEARNED = 4, "export policy leaves out learned routes"
    ORIGINATED = 5, "export policy leaves out originated routes"
    INTERNAL = 6, "learned from an internal neighbor (RFC 4271 §9.2)"
    NO_ADVERTISE = 7, "community no-advertise"
    NO_EXPORT = 8, "community no-export"
    NO_EXPORT_SUBCONFED = 9, "community no-export-subconfed"
    NO_NEXT_HOP = 10, "no own address of this family to tell as next hop"
    TOO_LARGE = 12, "attributes grow too large"
    MALFORMED = 13, "attribute set cannot be read"
