"""The columns of a small batch, slow and obvious: an oracle that takes every number out of the frame."""

from common.kernels.columns import ANY, LONGEST, NOTHING, OCTET, PATH, ROW, SET, SETS, SOURCES, TWO

NONE = 0xFFFFFFFF


def split(columns, paths_column, offset_column, octets_column, octets, counts, longest, n_sources):
    """Return where each column begins, None unless all is good."""
    if len(counts) != len(columns) or any(type(count) is not int or count < 0 for count in counts):
        return None
    starts, values, at = [], [], 0
    for (size, *_), count in zip(columns, counts, strict=True):
        part = octets[at : at + size * count]
        if len(part) < size * count:
            return None
        starts.append(at)
        values.append([int.from_bytes(part[i : i + size], "little") for i in range(0, len(part), size)])
        at += -(-size * count // 8) * 8
    if at != len(octets):
        return None
    n_rows = counts[0]
    n_paths = sum(values[paths_column]) if paths_column >= 0 else 0
    offsets = values[offset_column] if offset_column >= 0 else [0]
    sets = values[octets_column] if octets_column >= 0 else []
    if not are_sets(offsets, sets):
        return None
    limits = {
        ANY: 1 << 64,
        LONGEST: longest + 1,
        SOURCES: n_sources,
        SETS: len(offsets) - 1,
        TWO: 2,
    }
    for (_, per, limit, may_be_none), items in zip(columns, values, strict=True):
        n = len(items)
        wanted = {ROW: n_rows, PATH: n_paths, NOTHING: 0 if longest == 32 else n_rows, SET: n, OCTET: n}[per]
        if n != wanted:
            return None
        if not all(item < limits[limit] or (may_be_none and item == NONE) for item in items):
            return None
    return starts


def are_sets(offsets, octets) -> bool:
    """Tell whether offsets cut octets into sets that have a next hop each."""
    if not offsets or offsets[0] != 0 or offsets[-1] != len(octets) or sorted(set(offsets)) != offsets:
        return False
    parts = [octets[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False)]
    return all(part[0] in (0, 4, 16, 32) and len(part) > part[0] for part in parts)
