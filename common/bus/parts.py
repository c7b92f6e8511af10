"""A batch in several parts: which position and flags each has; batches split by source, or by the shares of prefixes.

Owns nothing. All that a batch says is absolute state, and no row is in it twice, so the order of the parts means
nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from common.arrays import distinct
from common.bus.batch import GAP, SNAPSHOT_BEGIN, SNAPSHOT_END, START, Batch, Position
from common.bus.schema import FAMILIES, NONE, BestChanges, ExportChanges, Per, RouteChanges
from common.kernels import shares

SOURCE_COLUMNS = {
    RouteChanges.number: ("source", "set"),
    BestChanges.number: ("path_source", "path_set"),
    ExportChanges.number: ("source", "set"),
}


def part_flags(batch: Batch, is_first: bool, is_last: bool) -> int:
    """Return the flags of one of the parts of a batch: a snapshot begins with the first and ends with the last."""
    flags = batch.flags
    if not is_first:
        flags &= ~(SNAPSHOT_BEGIN | GAP)
    if not is_last:
        flags &= ~SNAPSHOT_END
    return flags


def part_position(batch: Batch, before: Position) -> Position:
    """Return the position of a reader that has only a first part of a batch that follows `before`.

    A reader lost between two parts asks for the whole again: all is absolute state.
    """
    if batch.flags & SNAPSHOT_BEGIN or before.epoch != batch.position.epoch:
        return START
    return before


def by_source(batch: Batch, before: Position) -> list[Batch]:
    """Split a batch of routes so that each part has routes of one source; others are returned as they are."""
    if batch.kind.number not in SOURCE_COLUMNS or len(batch.meta["sources"]) < 2 or not batch.n_rows:
        return [batch]
    keys = _row_sources(batch)
    parts = [_part(batch, keys == key) for key in distinct(keys)]
    last = len(parts) - 1
    for index, part in enumerate(parts):
        part.flags = part_flags(batch, index == 0, index == last)
        part.position = batch.position if index == last else part_position(batch, before)
    return parts


def by_share(batches: Sequence[Batch], count: int) -> list[Batch]:
    """Return a batch for each share of the prefixes, with its rows of all these batches of RouteChanges, in order."""
    columns, meta = (batches[0].columns, batches[0].meta) if len(batches) == 1 else _joined(batches)
    is_wide = FAMILIES[meta["family"]] == 128
    parts = shares.split(count, is_wide, *[columns[column.name] for column in RouteChanges.columns])
    names = [column.name for column in RouteChanges.columns]
    return [Batch(RouteChanges, dict(zip(names, part, strict=True)), meta) for part in parts]


def _joined(batches: Sequence[Batch]) -> tuple[dict[str, np.ndarray], dict]:
    """Return the columns of several batches of RouteChanges as those of one, and its meta."""
    sources: list[dict] = []
    pieces: list[dict[str, np.ndarray]] = []
    n_sets = n_octets = 0
    for batch in batches:
        columns = dict(batch.columns)
        if batch.meta["sources"] != sources:
            sources += [source for source in batch.meta["sources"] if source not in sources]
            numbers = np.array([sources.index(source) for source in batch.meta["sources"]], np.uint32)
            columns["source"] = numbers.take(columns["source"]) if len(numbers) else columns["source"]
        offset, sets = columns["set_offset"], columns["set"]
        columns["set"] = np.where(sets == NONE, sets, sets + np.uint32(n_sets))
        columns["set_offset"] = offset[:-1] + np.uint32(n_octets)
        n_sets += len(offset) - 1
        n_octets += len(columns["set_octets"])
        pieces.append(columns)
    joined = {name: np.concatenate([each[name] for each in pieces]) for name in pieces[0]}
    joined["set_offset"] = np.append(joined["set_offset"], np.uint32(n_octets))
    return joined, batches[0].meta | {"sources": sources}


def _row_sources(batch: Batch) -> np.ndarray:
    """Return the source of each row's first path, NONE for a row without any."""
    columns = batch.columns
    if batch.kind is not BestChanges:
        return columns["source"]
    n_paths = columns["n_paths"].astype(np.int64)
    keys = np.full(len(n_paths), NONE, np.uint32)
    has_path = n_paths > 0
    keys[has_path] = columns["path_source"][(np.cumsum(n_paths) - n_paths)[has_path]]
    return keys


def _part(batch: Batch, is_in: np.ndarray) -> Batch:
    """Return the rows chosen, with only their sets and sources."""
    columns = dict(batch.columns)
    is_path_in = np.repeat(is_in, columns["n_paths"]) if "n_paths" in columns else is_in
    for column in batch.kind.columns:
        values = columns.get(column.name)
        if values is not None and len(values) and column.per in (Per.ROW, Per.PATH):
            columns[column.name] = values[is_path_in if column.per is Per.PATH else is_in]
    source_name, set_name = SOURCE_COLUMNS[batch.kind.number]
    columns[set_name], columns["set_offset"], columns["set_octets"] = _sets(columns, set_name)
    used, columns[source_name] = _compacted(columns[source_name])
    sources = [batch.meta["sources"][number] for number in used.tolist()]
    return replace(batch, columns=columns, meta=batch.meta | {"sources": sources})


def _sets(columns: dict[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a column of sets, with the offsets and octets of those it refers to."""
    used, local = _compacted(columns[name])
    begin, end = columns["set_offset"][used], columns["set_offset"][used + 1]
    length = (end - begin).astype(np.int64)
    offset = np.zeros(len(used) + 1, np.uint32)
    offset[1:] = np.cumsum(length)
    places = np.repeat(begin.astype(np.int64) - offset[:-1], length) + np.arange(int(offset[-1]))
    return local, offset, columns["set_octets"][places]


def _compacted(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct numbers of a column (NONE is none) and the column as indices of them."""
    used = distinct(numbers[numbers != NONE])
    local = np.where(numbers == NONE, NONE, np.searchsorted(used, numbers)).astype(np.uint32)
    return used, local
