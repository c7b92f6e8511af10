"""The numbers of BGP-4, named as IANA's registries name them.

Owns every code point that is written on or read from the wire; no other module spells one as a digit. Never holds
behaviour: what follows from a number stands where it is used. RFC 4271, 4760, 5492 and the registries they opened.
"""

from enum import Enum, IntEnum, IntFlag

MARKER = b"\xff" * 16
HEADER_OCTETS = 19
MAX_MESSAGE_OCTETS = 4096
# RFC 8654 §3
MAX_EXTENDED_MESSAGE_OCTETS = 65535
BGP_VERSION = 4
# RFC 6793 §9
AS_TRANS = 23456
# In a `set` column of a batch: no attribute set, the route is gone.
NONE = 0xFFFFFFFF


class Afi(IntEnum):
    """Address Family Numbers."""

    IPV4 = 1
    IPV6 = 2


class Safi(IntEnum):
    """Subsequent Address Family Identifiers."""

    UNICAST = 1
    MULTICAST = 2


class Family(Enum):
    """An address family that Headrace routes; everything is held for each family apart."""

    __hash__ = object.__hash__  # tables are looked up by family all the time; Enum's own is a call of Python

    IPV4_UNICAST = (0, "ipv4-unicast", Afi.IPV4, Safi.UNICAST, False)
    IPV6_UNICAST = (1, "ipv6-unicast", Afi.IPV6, Safi.UNICAST, True)

    def __init__(self, index: int, label: str, afi: int, safi: int, is_wide: bool):
        self.index = index
        self.label = label
        self.afi = afi
        self.safi = safi
        self.is_wide = is_wide
        self.bit = 1 << index
        self.max_length = 128 if is_wide else 32

    def __str__(self) -> str:
        return self.label

    @classmethod
    def named(cls, label: str) -> "Family":
        """Return the family called `label`; ValueError if there is none."""
        for family in cls:
            if family.label == label:
                return family
        raise ValueError(f"unknown family {label!r}")

    @classmethod
    def of(cls, afi: int, safi: int) -> "Family | None":
        """Return the family of an AFI/SAFI pair, None if Headrace does not route it."""
        for family in cls:
            if (family.afi, family.safi) == (afi, safi):
                return family
        return None


class MessageType(IntEnum):
    """BGP Message Types."""

    __hash__ = int.__hash__

    OPEN = 1
    UPDATE = 2
    NOTIFICATION = 3
    KEEPALIVE = 4
    ROUTE_REFRESH = 5


# A message's fixed part, header included; a KEEPALIVE has no other. RFC 4271 §4, RFC 2918 §3
SHORTEST_MESSAGE_OCTETS = {
    MessageType.OPEN: 29,
    MessageType.UPDATE: 23,
    MessageType.NOTIFICATION: 21,
    MessageType.KEEPALIVE: 19,
    MessageType.ROUTE_REFRESH: 23,
}


class AttributeFlag(IntFlag):
    """The high bits of an attribute's first octet. RFC 4271 §4.3."""

    OPTIONAL = 0x80
    TRANSITIVE = 0x40
    PARTIAL = 0x20
    EXTENDED_LENGTH = 0x10


class AttributeType(IntEnum):
    """BGP Path Attributes."""

    ORIGIN = 1
    AS_PATH = 2
    NEXT_HOP = 3
    MULTI_EXIT_DISC = 4
    LOCAL_PREF = 5
    ATOMIC_AGGREGATE = 6
    AGGREGATOR = 7
    COMMUNITIES = 8
    ORIGINATOR_ID = 9
    CLUSTER_LIST = 10
    MP_REACH_NLRI = 14
    MP_UNREACH_NLRI = 15
    EXTENDED_COMMUNITIES = 16
    AS4_PATH = 17
    AS4_AGGREGATOR = 18
    PMSI_TUNNEL = 22
    TUNNEL_ENCAPSULATION = 23
    TRAFFIC_ENGINEERING = 24
    IPV6_EXTENDED_COMMUNITIES = 25
    AIGP = 26
    PE_DISTINGUISHER_LABELS = 27
    BGP_LS = 29
    LARGE_COMMUNITY = 32
    BGPSEC_PATH = 33
    ONLY_TO_CUSTOMER = 35
    SFP = 37
    BFD_DISCRIMINATOR = 38
    BGP_PREFIX_SID = 40
    ATTR_SET = 128


class Origin(IntEnum):
    """Values of ORIGIN. RFC 4271 §5.1.1."""

    IGP = 0
    EGP = 1
    INCOMPLETE = 2


class SegmentType(IntEnum):
    """AS_PATH segment types. RFC 4271 §4.3, RFC 5065 §3."""

    AS_SET = 1
    AS_SEQUENCE = 2
    AS_CONFED_SEQUENCE = 3
    AS_CONFED_SET = 4


class WellKnownCommunity(IntEnum):
    """BGP Well-known Communities."""

    GRACEFUL_SHUTDOWN = 0xFFFF0000
    ACCEPT_OWN = 0xFFFF0001
    LLGR_STALE = 0xFFFF0006
    NO_LLGR = 0xFFFF0007
    BLACKHOLE = 0xFFFF029A
    NO_EXPORT = 0xFFFFFF01
    NO_ADVERTISE = 0xFFFFFF02
    NO_EXPORT_SUBCONFED = 0xFFFFFF03
    NO_PEER = 0xFFFFFF04


class CapabilityCode(IntEnum):
    """Capability Codes."""

    MULTIPROTOCOL = 1
    ROUTE_REFRESH = 2
    OUTBOUND_ROUTE_FILTERING = 3
    EXTENDED_NEXT_HOP = 5
    EXTENDED_MESSAGE = 6
    BGPSEC = 7
    MULTIPLE_LABELS = 8
    ROLE = 9
    GRACEFUL_RESTART = 64
    FOUR_OCTET_AS = 65
    DYNAMIC = 67
    MULTISESSION = 68
    ADD_PATH = 69
    ENHANCED_ROUTE_REFRESH = 70
    LONG_LIVED_GRACEFUL_RESTART = 71
    FQDN = 73
    BFD_STRICT = 74
    SOFTWARE_VERSION = 75
    PATHS_LIMIT = 76
    ROUTE_REFRESH_CISCO = 128


class OptionalParameter(IntEnum):
    """OPEN Optional Parameter Types."""

    CAPABILITIES = 2
    # RFC 9072 §2: not a parameter; what follows has lengths of two octets.
    EXTENDED_LENGTH = 255


class AddPathMode(IntFlag):
    """Send/Receive of the ADD-PATH capability. RFC 7911 §4."""

    RECEIVE = 1
    SEND = 2


class RouteRefreshSubtype(IntEnum):
    """ROUTE-REFRESH message subtypes. RFC 7313 §3.2."""

    REQUEST = 0
    BEGIN = 1
    END = 2


class ErrorCode(IntEnum):
    """BGP Error (Notification) Codes."""

    MESSAGE_HEADER_ERROR = 1
    OPEN_MESSAGE_ERROR = 2
    UPDATE_MESSAGE_ERROR = 3
    HOLD_TIMER_EXPIRED = 4
    FINITE_STATE_MACHINE_ERROR = 5
    CEASE = 6
    ROUTE_REFRESH_MESSAGE_ERROR = 7
    SEND_HOLD_TIMER_EXPIRED = 8


class MessageHeaderSubcode(IntEnum):
    """Message Header Error subcodes. RFC 4271 §6.1."""

    CONNECTION_NOT_SYNCHRONIZED = 1
    BAD_MESSAGE_LENGTH = 2
    BAD_MESSAGE_TYPE = 3


class OpenSubcode(IntEnum):
    """OPEN Message Error subcodes. RFC 4271 §6.2, RFC 5492 §5, RFC 9234 §4.2."""

    UNSPECIFIC = 0
    UNSUPPORTED_VERSION_NUMBER = 1
    BAD_PEER_AS = 2
    BAD_BGP_IDENTIFIER = 3
    UNSUPPORTED_OPTIONAL_PARAMETER = 4
    UNACCEPTABLE_HOLD_TIME = 6
    UNSUPPORTED_CAPABILITY = 7
    ROLE_MISMATCH = 11


class UpdateSubcode(IntEnum):
    """UPDATE Message Error subcodes; also the reason code of a route treated as withdrawn. RFC 4271 §6.3."""

    MALFORMED_ATTRIBUTE_LIST = 1
    UNRECOGNIZED_WELL_KNOWN_ATTRIBUTE = 2
    MISSING_WELL_KNOWN_ATTRIBUTE = 3
    ATTRIBUTE_FLAGS_ERROR = 4
    ATTRIBUTE_LENGTH_ERROR = 5
    INVALID_ORIGIN_ATTRIBUTE = 6
    INVALID_NEXT_HOP_ATTRIBUTE = 8
    OPTIONAL_ATTRIBUTE_ERROR = 9
    INVALID_NETWORK_FIELD = 10
    MALFORMED_AS_PATH = 11


class FiniteStateMachineSubcode(IntEnum):
    """Finite State Machine Error subcodes. RFC 6608 §3."""

    UNSPECIFIED = 0
    UNEXPECTED_MESSAGE_IN_OPEN_SENT = 1
    UNEXPECTED_MESSAGE_IN_OPEN_CONFIRM = 2
    UNEXPECTED_MESSAGE_IN_ESTABLISHED = 3


class CeaseSubcode(IntEnum):
    """Cease subcodes. RFC 4486 §3, RFC 8538 §3, RFC 9384 §3."""

    UNSPECIFIED = 0
    MAXIMUM_NUMBER_OF_PREFIXES_REACHED = 1
    ADMINISTRATIVE_SHUTDOWN = 2
    PEER_DE_CONFIGURED = 3
    ADMINISTRATIVE_RESET = 4
    CONNECTION_REJECTED = 5
    OTHER_CONFIGURATION_CHANGE = 6
    CONNECTION_COLLISION_RESOLUTION = 7
    OUT_OF_RESOURCES = 8
    HARD_RESET = 9
    BFD_DOWN = 10


class RouteRefreshSubcode(IntEnum):
    """ROUTE-REFRESH Message Error subcodes. RFC 7313 §5."""

    INVALID_MESSAGE_LENGTH = 1


SUBCODES: dict[ErrorCode, type[IntEnum]] = {
    ErrorCode.MESSAGE_HEADER_ERROR: MessageHeaderSubcode,
    ErrorCode.OPEN_MESSAGE_ERROR: OpenSubcode,
    ErrorCode.UPDATE_MESSAGE_ERROR: UpdateSubcode,
    ErrorCode.FINITE_STATE_MACHINE_ERROR: FiniteStateMachineSubcode,
    ErrorCode.CEASE: CeaseSubcode,
    ErrorCode.ROUTE_REFRESH_MESSAGE_ERROR: RouteRefreshSubcode,
}


def format_error(code: int, subcode: int) -> str:
    """Return an error's name in words, such as "Cease: Administrative Shutdown"."""
    if code not in ErrorCode.__members__.values():
        return f"error {code}/{subcode}"
    name = _words(ErrorCode(code).name)
    subcodes = SUBCODES.get(ErrorCode(code))
    if subcodes is not None and subcode in subcodes.__members__.values():
        return f"{name}: {_words(subcodes(subcode).name)}"
    return f"{name}: subcode {subcode}" if subcode else name


def format_attribute_type(code: int) -> str:
    """Return an attribute type's name as IANA writes it, or "attribute 99"."""
    return AttributeType(code).name if code in AttributeType.__members__.values() else f"attribute {code}"


def _words(name: str) -> str:
    return " ".join(
        word if word in ("OPEN", "UPDATE", "AS", "BGP", "BFD") else word.capitalize() for word in name.split("_")
    )
