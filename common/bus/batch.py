"""A batch: columns of changes with a position, and its form on the wire.

Owns the encoding and the checks a received batch must pass. Never touches a socket. After `decode` kernels may trust
every index and length of a batch.

    frame 0     msgpack header {v, kind, sub, channel, epoch, sequence, cursor, first, head, flags, meta, n, later}
    frames 1..  one for each column: `n[i]` little-endian numbers
                or, when all columns together are small, one frame in which they follow each other, each beginning at
                a multiple of eight octets (a frame costs more than the few octets in it)
    `later`     where the kind has columns that were added later: the octets of each, so that a stage that does not know
                them can pass over them

A batch that was handed to the bus must not be written to again: large columns are sent from where they lie.
"""

import sys
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np

from common.bus.schema import (
    FAMILIES,
    FINGERPRINT,
    NEXT_HOP_LENGTHS,
    NONE,
    Check,
    Kind,
    Per,
    SchemaError,
    kind_numbered,
)
from common.kernels import columns as layouts

SNAPSHOT_BEGIN: Final = 1
"""First batch of a snapshot: mark all from this owner as unconfirmed."""
SNAPSHOT: Final = 2
"""Set in every batch that is part of a snapshot."""
SNAPSHOT_END: Final = 4
"""Last batch of a snapshot: remove, after handling it, what was not confirmed."""
GAP: Final = 8
"""The reader's position was no longer held: this snapshot stands in for changes that were not sent one by one."""
UNSENT: Final = 1 << 16
"""Never on the wire: there is nothing for this reader, who is further on now; it is told so later."""
ALL_FLAGS: Final = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END | GAP

HEADER_CHARGE: Final = 256
"""Octets of credit a batch costs beside its columns."""
MAX_HEADER_OCTETS: Final = 1 << 24
JOIN_BELOW_OCTETS: Final = 1 << 13
"""Columns that are smaller together travel in one frame."""


class Position(NamedTuple):
    """How far a reader has come.

    cursor >= 0: inside a snapshot, the next row to send is `cursor`, and the journal goes on from `sequence` when the
    snapshot ends. cursor = -1: following the journal, everything below `sequence` has been received.
    """

    epoch: str
    sequence: int
    cursor: int


START: Final = Position("", 0, -1)
"""The position of a reader that has nothing yet."""


@dataclass(slots=True, eq=False)
class Batch:
    """Changes of one kind on one channel.

    `position` is the position after this batch, to be echoed by the reader. `first` is the sequence of its first
    change, `head` the owner's next sequence when it was gathered, so `head - position.sequence` is the reader's lag.
    Columns that are not given are empty.
    """

    kind: Kind
    columns: dict[str, np.ndarray] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    channel: str = ""
    position: Position = START
    first: int = 0
    head: int = 0
    flags: int = 0
    n_octets_unknown: int = 0
    """Octets that came with it in columns this version does not know, less those of columns that did not come."""
    joined: tuple[dict, bytearray, list[int]] | None = None
    """Where its columns came in one frame: those columns, the frame, and how many items each has. As long as `columns`
    are those, the frame can be sent on as it is."""

    @property
    def n_octets(self) -> int:
        """What the batch costs in credit: its columns and a fixed charge; the same at both ends."""
        return HEADER_CHARGE + self.n_octets_unknown + sum([column.nbytes for column in self.columns.values()])

    @property
    def n_rows(self) -> int:
        """Number of rows (0 for a kind without columns)."""
        columns = self.kind.columns
        if not columns:
            return 0
        column = self.columns.get(columns[0].name)
        return 0 if column is None else len(column)

    @property
    def begins_snapshot(self) -> bool:
        return bool(self.flags & SNAPSHOT_BEGIN)

    @property
    def ends_snapshot(self) -> bool:
        return bool(self.flags & SNAPSHOT_END)


def no_sets() -> dict[str, np.ndarray]:
    """Return the set columns of a batch that carries no attribute set."""
    return {"set_offset": np.zeros(1, np.uint32), "set_octets": np.empty(0, np.uint8)}


def empty_columns(kind: Kind) -> dict[str, np.ndarray]:
    """Return the columns of a batch of this kind without a row."""
    return {column.name: np.zeros(1 if column.per is Per.SET else 0, np.dtype(column.dtype)) for column in kind.columns}


# ---- encode -----------------------------------------------------------------------------------------------------


def encode(batch: Batch, subscription: int) -> list:
    """Return the frames of a batch: header octets, then one contiguous array for each column, or all joined.

    Raises SchemaError where a column has another type than its declaration.
    """
    plan = _plan(batch.kind)
    if batch.joined is not None and batch.joined[0] is batch.columns:
        _, frame, counts = batch.joined
        frames = [frame]
    else:
        frames, counts = _column_frames(batch, plan)
    position = batch.position
    header = {
        "v": FINGERPRINT,
        "kind": batch.kind.number,
        "sub": subscription,
        "channel": batch.channel,
        "epoch": position.epoch,
        "sequence": position.sequence,
        "cursor": position.cursor,
        "first": batch.first,
        "head": batch.head,
        "flags": batch.flags,
        "meta": batch.meta,
        "n": counts,
    }
    if plan.later:
        header["later"] = [counts[index] * size for index, size in plan.later]
    return [_pack(header), *frames]


def _column_frames(batch: Batch, plan: "_Plan") -> tuple[list, list[int]]:
    """Return a frame for each column, or one with all, and how many items each column has."""
    columns = batch.columns
    arrays = []
    counts = []
    n_octets = 0
    for name, dtype, missing in plan.encoding:
        array = columns.get(name, missing)
        if array.dtype is not dtype:
            array = _convert(array, dtype, batch.kind, name)
        arrays.append(array)
        counts.append(len(array))
        n_octets += array.nbytes
    if n_octets < JOIN_BELOW_OCTETS and len(arrays) > 1:
        return [_joined(arrays)], counts
    return [np.ascontiguousarray(array) for array in arrays], counts


def _joined(arrays: list[np.ndarray]) -> bytes:
    parts = []
    for array in arrays:
        octets = array.tobytes()
        parts.append(octets)
        if len(octets) & 7:
            parts.append(_PADDING[len(octets) & 7])
    return b"".join(parts)


_PADDING: Final = [b"\0" * (-size % 8) for size in range(8)]
_pack = msgpack.Packer().pack


def _convert(array: np.ndarray, dtype: np.dtype, kind: Kind, name: str) -> np.ndarray:
    """Make a column little-endian; never change its values."""
    if array.dtype.newbyteorder("<") != dtype:
        raise SchemaError(f"{kind.name}.{name}: is {array.dtype}, not {dtype}")
    return array.astype(dtype, copy=False)


class _Plan:
    """What encoding and decoding need to know of a kind, computed once."""

    __slots__ = ("decoding", "encoding", "kind", "later", "layout", "n_first")

    def __init__(self, kind: Kind):
        self.kind = kind
        # (name, dtype, empty array) of each column
        self.encoding = [
            (column.name, column.wire_dtype, np.zeros(1 if column.per is Per.SET else 0, column.wire_dtype))
            for column in kind.columns
        ]
        # (column, dtype, check) of each
        self.decoding = [(column, column.wire_dtype, _CHECKS.get(column.check)) for column in kind.columns]
        self.n_first = kind.n_first
        # (index, octets of an item) of each that was added later
        self.later = [
            (index, column.wire_dtype.itemsize) for index, column in enumerate(kind.columns) if index >= self.n_first
        ]
        self.layout = _layout(kind)


# What the quick way of decoding knows of the checks: limit, whether NONE is allowed.
_LIMITS: Final = {
    Check.ANY: (layouts.ANY, False),
    Check.LOW_HALF: (layouts.ANY, False),
    Check.SETS: (layouts.ANY, False),
    Check.PREFIX_LENGTH: (layouts.LONGEST, False),
    Check.SOURCE: (layouts.SOURCES, False),
    Check.SOURCE_OR_NONE: (layouts.SOURCES, True),
    Check.SET: (layouts.SETS, False),
    Check.SET_OR_NONE: (layouts.SETS, True),
    Check.FLAG: (layouts.TWO, False),
}
_PERS: Final = {Per.ROW: layouts.ROW, Per.PATH: layouts.PATH, Per.SET: layouts.SET, Per.OCTET: layouts.OCTET}


def _layout(kind: Kind) -> layouts.Layout | None:
    """Return what finds the columns of a small batch, None for kinds that are rare."""
    if len(kind.columns) < 2 or not all(column.check in _LIMITS for column in kind.columns):
        return None
    names = [column.name for column in kind.columns]
    return layouts.Layout(
        [
            (
                column.wire_dtype.itemsize,
                layouts.NOTHING if column.check is Check.LOW_HALF else _PERS[column.per],
                *_LIMITS[column.check],
            )
            for column in kind.columns
        ],
        *(names.index(name) if name in names else -1 for name in ("n_paths", "set_offset", "set_octets")),
    )


_PLANS: dict[Kind, _Plan] = {}


def _plan(kind: Kind) -> _Plan:
    plan = _PLANS.get(kind)
    if plan is None:
        plan = _PLANS[kind] = _Plan(kind)
    return plan


# ---- decode -----------------------------------------------------------------------------------------------------


def decode(frames: list) -> tuple[int, Batch]:
    """Return (subscription, batch) of the frames of one batch.

    The columns are writable, aligned, and lie in the frames where those allow it. Raises SchemaError, which names the
    place, for anything that is not a well-formed batch: frame count or size, offsets that do not ascend or leave the
    octets, indices of sets or sources out of range, prefix lengths beyond the family's.
    """
    if not frames:
        raise SchemaError("no frames")
    return (_decode_small(frames) if len(frames) == 2 else None) or _decode_any(frames)


def _decode_small(frames: list) -> tuple[int, Batch] | None:
    """Decode what is plainly a good batch in one frame; None for all else, which `decode` then looks at slowly."""
    try:
        header_octets = memoryview(frames[0])
        header = msgpack.unpackb(header_octets)
        if header_octets.nbytes > MAX_HEADER_OCTETS or tuple(header)[:12] != _HEADER_KEYS:
            return None
        values = list(header.values())[:12]
        if tuple(map(type, values)) != _HEADER_KINDS:
            return None
        _, number, subscription, channel, epoch, sequence, cursor, first, head, flags, meta, counts = values
        if flags & ~ALL_FLAGS or min(sequence, first, head, subscription, cursor + 1) < 0:
            return None
        kind = kind_numbered(number)
        plan = _plan(kind)
        octets = bytearray(frames[1])  # writable and aligned, which the frame may not be
        starts = plan.layout.split(octets, counts, *_family_and_sources(kind, meta))
    except Exception:  # whatever it is, the slow way says where
        return None
    if starts is None:
        return None
    columns = {}
    for (name, dtype, _), count, start in zip(plan.encoding, counts, starts, strict=True):
        columns[name] = np.ndarray(count, dtype, octets, start)
    position = Position(epoch, sequence, cursor)
    joined = (columns, octets, counts)
    return subscription, Batch(kind, columns, meta, channel, position, first, head, flags, 0, joined)


def _family_and_sources(kind: Kind, meta: dict) -> tuple[int, int]:
    """Return the longest prefix length of a header's family and how many sources there are; SchemaError."""
    for key in kind.meta:
        if key not in meta:
            raise SchemaError(f"{kind.name}: header has no `{key}`")
    longest, n_sources = 128, 0
    if "family" in kind.meta:
        family = meta["family"]
        if type(family) is not str or family not in FAMILIES:
            raise SchemaError(f"{kind.name}: no family {family!r:.60}")
        longest = FAMILIES[family]
    if "sources" in kind.meta:
        sources = meta["sources"]
        if type(sources) is not list or not all([type(source) is dict for source in sources]):
            raise SchemaError(f"{kind.name}: `sources` is not a list of maps")
        n_sources = len(sources)
    return longest, n_sources


def _decode_any(frames: list) -> tuple[int, Batch]:
    header = _decode_header(frames[0])
    kind = kind_numbered(header["kind"])
    made = _plan(kind)
    plan = made.decoding
    counts = header["n"]
    n_columns = len(counts)
    unknown: list[int] = []
    if n_columns != len(plan):
        unknown = _unknown_columns(header, made)
        plan = plan[:n_columns]
    if len(frames) == 2 and n_columns > 1:
        columns = _joined_columns(kind, plan, frames[1], counts, unknown)
    elif len(frames) == n_columns + 1:
        columns = {}
        for (column, dtype, _), frame, count in zip(plan, frames[1:], counts, strict=False):
            columns[column.name] = _column(kind, column, dtype, frame, count)
    else:
        raise SchemaError(f"{kind.name}: {len(frames) - 1} frames for {n_columns} columns")
    n_octets_unknown = sum(unknown)
    try:
        if made.later:
            n_octets_unknown -= _fill(columns, made.decoding[made.n_first :])
        _check_columns(kind, made.decoding, columns, header["meta"])
    except (TypeError, AttributeError, KeyError) as error:
        raise SchemaError(f"{kind.name}: {error!r}") from error
    return header["sub"], Batch(
        kind,
        columns,
        header["meta"],
        header["channel"],
        Position(header["epoch"], header["sequence"], header["cursor"]),
        header["first"],
        header["head"],
        header["flags"],
        n_octets_unknown,
    )


def _unknown_columns(header: dict, plan: _Plan) -> list[int]:
    """Return the octets of each column that a later version has beside ours; [] where the sender's version has fewer.

    Raises SchemaError for a number of columns that no other version can have.
    """
    n_columns = len(header["n"])
    n_more = n_columns - len(plan.decoding)
    if header["v"] == FINGERPRINT or n_columns < plan.n_first:
        raise SchemaError(f"{plan.kind.name}: {n_columns} counts for {len(plan.decoding)} columns")
    sizes = header.get("later", [])
    if n_more <= 0:
        return []
    if type(sizes) is not list or len(sizes) < n_more or not all([type(size) is int and size >= 0 for size in sizes]):
        raise SchemaError(f"header: `later` does not say how long {n_more} columns are")
    return sizes[-n_more:]


def _fill(columns: dict[str, np.ndarray], plan: list) -> int:
    """Add those columns that were not sent, by an earlier version or at all; return how many octets they take."""
    n_octets = 0
    n_rows = len(next(iter(columns.values())))
    for column, dtype, _ in plan:
        if len(columns.get(column.name, ())):
            continue
        n_items = int(columns["n_paths"].sum(dtype=np.uint64)) if column.per is Per.PATH else n_rows
        columns[column.name] = np.full(n_items, column.otherwise, dtype)
        n_octets += columns[column.name].nbytes
    return n_octets


_HEADER_TYPES: Final = (
    ("v", str),
    ("kind", int),
    ("sub", int),
    ("channel", str),
    ("epoch", str),
    ("sequence", int),
    ("cursor", int),
    ("first", int),
    ("head", int),
    ("flags", int),
    ("meta", dict),
    ("n", list),
)

_HEADER_KEYS: Final = tuple(name for name, _ in _HEADER_TYPES)
_HEADER_KINDS: Final = tuple(kind for _, kind in _HEADER_TYPES)


def _decode_header(frame) -> dict:
    try:
        octets = memoryview(frame)
        if octets.nbytes > MAX_HEADER_OCTETS:
            raise SchemaError(f"header: {octets.nbytes} octets")
        header = msgpack.unpackb(octets)
    except SchemaError:
        raise
    except Exception as error:  # msgpack raises its own tree, ValueError, TypeError, RecursionError and more
        raise SchemaError(f"header: not msgpack: {error!r}") from error
    if type(header) is not dict:
        raise SchemaError("header: not a map")
    for name, kind in _HEADER_TYPES:
        if type(header.get(name)) is not kind:
            raise SchemaError(f"header: `{name}` is not {kind.__name__}")
    if header["flags"] & ~ALL_FLAGS or min(header["sequence"], header["first"], header["head"], header["sub"]) < 0:
        raise SchemaError("header: negative number or unknown flag")
    if header["cursor"] < -1:
        raise SchemaError("header: `cursor` below -1")
    return header


def _column(kind: Kind, column, dtype: np.dtype, frame, count) -> np.ndarray:
    try:
        n_octets = memoryview(frame).nbytes
    except TypeError as error:
        raise SchemaError(f"{kind.name}.{column.name}: no octets") from error
    if type(count) is not int or count < 0 or n_octets != count * dtype.itemsize:
        raise SchemaError(f"{kind.name}.{column.name}: {n_octets} octets are not {count!r} items of {dtype.itemsize}")
    if count == 0:
        return np.empty(0, dtype)
    array = np.frombuffer(frame, dtype)
    # Kernels take writable, aligned arrays. Small frames lie inside the receive buffer and may be neither.
    flags = array.flags
    return array if flags.writeable and flags.aligned else array.copy()


def _joined_columns(kind: Kind, plan: list, frame, counts: list, unknown: list[int]) -> dict[str, np.ndarray]:
    try:
        octets = bytearray(frame)  # writable and aligned, which the frame may not be
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{kind.name}: no octets") from error
    columns = {}
    offset, n_octets = 0, len(octets)
    for (column, dtype, _), count in zip(plan, counts, strict=False):
        if type(count) is not int or count < 0 or offset + count * dtype.itemsize > n_octets:
            raise SchemaError(f"{kind.name}.{column.name}: {count!r} items leave the frame")
        columns[column.name] = np.frombuffer(octets, dtype, count, offset) if count else np.empty(0, dtype)
        offset += (count * dtype.itemsize + 7) & ~7
    offset += sum((size + 7) & ~7 for size in unknown)
    if offset != n_octets:
        raise SchemaError(f"{kind.name}: {n_octets} octets, columns take {offset}")
    return columns


def _check_columns(kind: Kind, plan: list, columns: dict, meta: dict) -> None:
    scope = _Scope(kind, columns, meta)
    for column, _, check in plan:
        array = columns[column.name]
        per = column.per
        if per is Per.ROW:
            n_items = 0 if column.check is Check.LOW_HALF and scope.is_narrow else scope.n_rows
            if len(array) != n_items:
                raise SchemaError(f"{kind.name}.{column.name}: {len(array)} items for {n_items} rows")
        elif per is Per.PATH and len(array) != scope.n_paths:
            raise SchemaError(f"{kind.name}.{column.name}: {len(array)} items for {scope.n_paths} paths")
        if check is not None and (len(array) or per is Per.SET):
            problem = check(array, scope)
            if problem:
                raise SchemaError(f"{kind.name}.{column.name}: {problem}")


class _Scope:
    """What the checks of one batch need to know of its other parts."""

    __slots__ = ("columns", "is_narrow", "longest", "n_paths", "n_rows", "n_sets", "n_sources")

    def __init__(self, kind: Kind, columns: dict, meta: dict):
        self.columns = columns
        self.longest, self.n_sources = _family_and_sources(kind, meta)
        self.is_narrow = self.longest == 32
        self.n_rows = len(columns[kind.columns[0].name]) if kind.columns else 0
        self.n_sets = max(0, len(columns["set_offset"]) - 1) if "set_offset" in columns else 0
        self.n_paths = int(columns["n_paths"].sum(dtype=np.uint64)) if "n_paths" in columns else 0


def _check_sets(offset: np.ndarray, scope: _Scope) -> str:
    octets = scope.columns["set_octets"]
    if 0 < len(offset) < FEW:
        return _check_few_sets(offset.tolist(), octets)
    if len(offset) == 0 or offset[0] != 0 or offset[-1] != len(octets):
        return "does not reach from 0 to the end of the octets"
    if len(offset) == 1:
        return ""
    if not (offset[1:] > offset[:-1]).all():
        return "does not ascend"
    next_hop = octets.take(offset[:-1])
    if (_NEXT_HOP_SIZE.take(next_hop) > offset[1:] - offset[:-1]).any():
        return "a set has a next hop of impossible length"
    return ""


def _check_few_sets(offset: list[int], octets: np.ndarray) -> str:
    if offset[0] != 0 or offset[-1] != len(octets):
        return "does not reach from 0 to the end of the octets"
    for first, end in zip(offset, offset[1:], strict=False):
        if end <= first:
            return "does not ascend"
        length = int(octets[first])
        if length not in NEXT_HOP_LENGTHS or end - first <= length:
            return "a set has a next hop of impossible length"
    return ""


# One more than the next hop's length, by the set's first octet; huge where that is no length a next hop can have.
_NEXT_HOP_SIZE: Final = np.full(256, NONE, np.uint32)
_NEXT_HOP_SIZE[list(NEXT_HOP_LENGTHS)] = [1 + length for length in NEXT_HOP_LENGTHS]
_ONE: Final = np.uint32(1)
FEW: Final = 48


def _highest(array: np.ndarray) -> int:
    # numpy takes two microseconds to begin with; alone, a change has a few rows.
    return max(array.tolist()) if len(array) < FEW else int(array.max())


def _below(array: np.ndarray, limit: int) -> str:
    highest = _highest(array)
    return "" if highest < limit else f"{highest} where there are {limit}"


def _below_or_none(array: np.ndarray, limit: int) -> str:
    if len(array) < FEW:
        is_good = all([index < limit or index == NONE for index in array.tolist()])
    else:
        is_good = int((array + _ONE).max()) <= limit  # NONE + 1 wraps to 0, which is always allowed
    return "" if is_good else f"an index is not below {limit}"


_CHECKS: Final = {
    Check.PREFIX_LENGTH: lambda array, scope: _below(array, scope.longest + 1),
    Check.SOURCE: lambda array, scope: _below(array, scope.n_sources),
    Check.SOURCE_OR_NONE: lambda array, scope: _below_or_none(array, scope.n_sources),
    Check.SET: lambda array, scope: _below(array, scope.n_sets),
    Check.SET_OR_NONE: lambda array, scope: _below_or_none(array, scope.n_sets),
    Check.FLAG: lambda array, scope: _below(array, 2),
    Check.EVENT: lambda array, scope: _below(array, 7) or ("" if array.all() else "event 0"),
    Check.ADDRESS_LENGTH: lambda array, scope: "" if ((array == 4) | (array == 16)).all() else "neither 4 nor 16",
    Check.SETS: _check_sets,
}

if sys.byteorder != "little":  # the columns of tables are sent as they lie in memory
    raise ImportError("Headrace needs a little-endian machine")
