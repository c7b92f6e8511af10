"""Declares the kinds of batches that travel on the bus: each with a number, its columns and its header keys.

Owns the one declaration from which encoder, decoder, documentation and fingerprint come. Never touches a socket.

Columns are only ever added: at the end, with the value that stands for them where a stage of an earlier version does
not send them. Another meaning is another number. Stages compare their schemas when they connect (`disagreement`): those
that differ by added columns work together, a reader passing over what it does not know; all others refuse.
"""

import enum
import hashlib
from dataclasses import dataclass
from typing import Final

import numpy as np

NONE: Final = 0xFFFFFFFF
"""In a column of indices: no set (gone, withdrawn) or no source."""

FAMILIES: Final = {"ipv4-unicast": 32, "ipv6-unicast": 128}
"""Longest prefix length of each family."""

NEXT_HOP_LENGTHS: Final = (0, 4, 16, 32)
"""Lengths an attribute set may give its next hop, in octets."""


class SchemaError(ValueError):
    """Octets that are no batch of this schema; the text names the place."""


class SessionEvent(enum.IntEnum):
    """What happened to a session, or is known of it (column `event` of SessionChanges)."""

    UP = 1
    # It was lost, and what it told is kept until it is back, or until DOWN (RFC 4724 §4.2).
    STALE = 2
    END_OF_RIB = 3
    DOWN = 4
    # Graceful restart was agreed: when the speaker dies its routes stay until the next speaker has them again.
    GRACEFUL = 5
    # Its End-of-RIB was promised and is awaited: what was had of it from an earlier speaker stays until then.
    AWAITED = 6


class Per(enum.Enum):
    """What a column has one item for: this decides how long it must be."""

    ROW = "row"
    PATH = "path"  # n_paths of them a row
    SET = "set boundary"  # n sets + 1
    OCTET = "octet"  # any number


class Check(enum.Enum):
    """What the decoder proves about the values, so that kernels may trust them."""

    ANY = "any value"
    LOW_HALF = "empty for ipv4-unicast"
    PREFIX_LENGTH = "at most 32 for ipv4-unicast, 128 for ipv6-unicast"
    SOURCE = "an index into `sources`"
    SOURCE_OR_NONE = "an index into `sources`, or NONE"
    SET = "an index of a set"
    SET_OR_NONE = "an index of a set, or NONE: gone"
    FLAG = "0 or 1"
    EVENT = "1 to 6"
    ADDRESS_LENGTH = "4 or 16"
    SETS = "set boundaries: from 0, ascending, to the end of the octets"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: little-endian numbers, one frame on the wire."""

    name: str
    dtype: str
    meaning: str
    unit: str = ""
    per: Per = Per.ROW
    check: Check = Check.ANY
    otherwise: int | None = None
    """Of a column of rows or paths that was added later: its value where the sender does not know it."""

    @property
    def wire_dtype(self) -> np.dtype:
        """The dtype on the wire: little-endian, as the machine has to be (batch.py)."""
        return np.dtype(self.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One kind of batch."""

    number: int
    name: str
    meaning: str
    columns: tuple[Column, ...]
    meta: tuple[str, ...] = ()

    @property
    def n_first(self) -> int:
        """How many columns every version has."""
        return sum(column.otherwise is None for column in self.columns)

    def __reduce__(self):
        return (kind_numbered, (self.number,))


_HI = Column("hi", "u8", "upper 64 bits of the address, left-aligned", "bits")
_LO = Column("lo", "u8", "lower 64 bits of the address", "bits", check=Check.LOW_HALF)
_LENGTH = Column("length", "u1", "prefix length", "bits", check=Check.PREFIX_LENGTH)
_SET_OFFSET = Column("set_offset", "u4", "where each set begins in `set_octets`", "octets", Per.SET, Check.SETS)
_SET_OCTETS = Column(
    "set_octets", "u1", "attribute sets: next hop length, next hop, attributes in canonical form", "octets", Per.OCTET
)

RouteChanges = Kind(
    1,
    "RouteChanges",
    "A route of the Adj-RIB-In has these attributes now, or is gone.",
    (
        _HI,
        _LO,
        _LENGTH,
        Column("source", "u4", "where the route came from", "index", check=Check.SOURCE),
        Column("set", "u4", "its attribute set, NONE: gone", "index", check=Check.SET_OR_NONE),
        Column("reason", "u1", "0, or why the import policy refused it", "code"),
        _SET_OFFSET,
        _SET_OCTETS,
    ),
    ("family", "sources"),
)

SessionChanges = Kind(
    2,
    "SessionChanges",
    "A session came up, became stale, has sent all its routes, or went down.",
    (
        Column("source", "u4", "whose session", "index", check=Check.SOURCE),
        Column("event", "u1", "1 up, 2 stale, 3 End-of-RIB, 4 down, 5 graceful, 6 awaited", "code", check=Check.EVENT),
    ),
    ("family", "sources"),
)

BestChanges = Kind(
    3,
    "BestChanges",
    "A prefix has these chosen paths now, all of them, or none.",
    (
        _HI,
        _LO,
        _LENGTH,
        Column("n_paths", "u1", "how many paths follow for this prefix, 0: gone", "paths"),
        Column("path_source", "u4", "where the path came from", "index", Per.PATH, Check.SOURCE),
        Column("path_set", "u4", "its attribute set", "index", Per.PATH, Check.SET),
        Column("path_reason", "u1", "the decision step that chose it", "code", Per.PATH),
        _SET_OFFSET,
        _SET_OCTETS,
    ),
    ("family", "sources", "view"),
)

ExportChanges = Kind(
    4,
    "ExportChanges",
    "A group of neighbors is to be told these attributes for a prefix, or that it is gone.",
    (
        _HI,
        _LO,
        _LENGTH,
        Column(
            "set",
            "u4",
            "attributes as the group's sessions encode them, NONE: withdraw",
            "index",
            check=Check.SET_OR_NONE,
        ),
        Column("source", "u4", "whom not to tell, NONE: nobody", "index", check=Check.SOURCE_OR_NONE),
        _SET_OFFSET,
        _SET_OCTETS,
    ),
    ("family", "sources"),
)

VrpChanges = Kind(
    5,
    "VrpChanges",
    "A validated payload is announced or withdrawn.",
    (
        _HI,
        _LO,
        _LENGTH,
        Column("max_length", "u1", "longest prefix it allows", "bits", check=Check.PREFIX_LENGTH),
        Column("asn", "u4", "the origin it allows", "AS number"),
        Column("announced", "u1", "1 announced, 0 withdrawn", "flag", check=Check.FLAG),
    ),
    ("family", "cache"),
)

NextHopChanges = Kind(
    6,
    "NextHopChanges",
    "A next hop can be reached at this cost, or cannot; a link-local one, over any of the interfaces it is used on.",
    (
        _HI,
        Column("lo", "u8", "lower 64 bits of the address", "bits"),
        Column("length", "u1", "length of the address, 4 or 16", "octets", check=Check.ADDRESS_LENGTH),
        Column("reachable", "u1", "1 reachable, 0 not", "flag", check=Check.FLAG),
        Column("metric", "u4", "cost of the way to it", "metric"),
    ),
)

InstalledChanges = Kind(
    8,
    "InstalledChanges",
    "The kernel has a route for a prefix now, or has none.",
    (_HI, _LO, _LENGTH, Column("installed", "u1", "1 there, 0 not", "flag", check=Check.FLAG)),
    ("family",),
)

Status = Kind(7, "Status", "What a stage says of itself; everything is in the header.", ())

KINDS: Final = (
    RouteChanges,
    SessionChanges,
    BestChanges,
    ExportChanges,
    VrpChanges,
    NextHopChanges,
    Status,
    InstalledChanges,
)
_BY_NUMBER: Final = {kind.number: kind for kind in KINDS}


def kind_numbered(number: int) -> Kind:
    """Return the kind with this number; raise SchemaError when there is none."""
    kind = _BY_NUMBER.get(number) if isinstance(number, int) else None
    if kind is None:
        raise SchemaError(f"header: no kind has number {number!r}")
    return kind


def fingerprint(kinds: tuple[Kind, ...] = KINDS) -> str:
    """Return a short digest of the whole declaration: equal only where two stages understand each other."""
    text = repr(
        [
            (kind.number, kind.name, kind.meta, [(c.name, c.dtype, c.per.name, c.check.name) for c in kind.columns])
            for kind in kinds
        ]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


FINGERPRINT: Final = fingerprint()


def description(kinds: tuple[Kind, ...] = KINDS) -> list[list]:
    """Return the declaration as a reader tells it to an owner: [number, name, header keys, columns] of each kind."""
    return [[kind.number, kind.name, list(kind.meta), [_described(each) for each in kind.columns]] for kind in kinds]


def _described(column: Column) -> str:
    later = "" if column.otherwise is None else _LATER
    return f"{column.name} {column.dtype} {column.per.name} {column.check.name}{later}"


_LATER: Final = " later"


def disagreement(theirs: object, kinds: tuple[Kind, ...]) -> str:
    """Return why a reader with another schema cannot be sent batches of these kinds, "" if it can.

    `theirs` is the reader's `description()`, whatever has arrived in its place.
    """
    if type(theirs) is not list:
        return "the reader does not say which columns it knows"
    known = {each[0]: each for each in theirs if type(each) is list and len(each) == 4 and type(each[0]) is int}
    return next((text for text in (_kind_disagreement(known.get(kind.number), kind) for kind in kinds) if text), "")


def _kind_disagreement(their: list | None, kind: Kind) -> str:
    if their is None:
        return f"the reader knows no {kind.name}"
    _, name, meta, columns = their
    if type(meta) is not list or type(columns) is not list:
        return f"the reader does not say which columns {kind.name} has"
    if name != kind.name:
        return f"number {kind.number} is {name!r:.40} to the reader, {kind.name} to the owner"
    missing = [key for key in meta if key not in kind.meta]
    if missing:
        return f"{kind.name}: the reader needs the header key {missing[0]!r:.40}"
    ours = [_described(column) for column in kind.columns]
    n_common = min(len(ours), len(columns))
    for number in range(n_common):
        if columns[number] != ours[number]:
            theirs = f"{columns[number]!r:.60}"
            return f"{kind.name}: column {number + 1} is {theirs} to the reader, {ours[number]!r} to the owner"
    for column in (*ours[n_common:], *columns[n_common:]):
        if type(column) is not str or not column.endswith(_LATER):
            return f"{kind.name}: only one of both knows the column {column!r:.60}"
    return ""
