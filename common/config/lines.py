"""Finds the line of each key of a TOML text, which the standard library's reader does not tell.

Owns: the walk over a text that `tomllib` has already accepted, so it may be forgiving. Never: reads values.
"""

import re

_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(r'"""|' + r"'''" + r"""|"(?:\\.|[^"\\])*"|'[^']*'|#.*|[\[\]{}]""")

Path = tuple[str | int, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Return the line (from 1) of each table and key; an array of tables begins at its first entry.

    Entries of an array of tables have their index in the path.
    """
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    depth, quote, owner = 0, "", ()
    for number, line in enumerate(text.splitlines(), 1):
        start = 0
        if not depth and not quote:
            if header := _HEADER.match(line):
                table = _enter(_parts(header[2]), header[1] == "[[", counts)
                lines.setdefault(table, number)
                if header[1] == "[[":
                    lines.setdefault(table[:-1], number)
                continue
            if found := _KEY.match(line):
                owner = table + _parts(found[1])
                start = found.end()
                lines.setdefault(owner, number)
        if owner:
            for name in re.finditer(r"(?:^|[{,])\s*([A-Za-z0-9_-]+)\s*=", line[start:]):
                lines.setdefault((*owner, name[1]), number)
        depth, quote = _open_after(line[start:], depth, quote)
    return lines


def _parts(dotted: str) -> Path:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))


def _enter(parts: Path, is_array: bool, counts: dict[Path, int]) -> Path:
    """Return the full path of a header: tables inside an array of tables belong to its latest entry."""
    full: Path = ()
    for part in parts[:-1]:
        full = (*full, part)
        if full in counts:
            full = (*full, counts[full] - 1)
    full = (*full, parts[-1])
    if is_array:
        counts[full] = counts.get(full, 0) + 1
        full = (*full, counts[full] - 1)
    return full


def _open_after(line: str, depth: int, quote: str) -> tuple[int, str]:
    """Return how many brackets, and which multi-line string, are open at the end of `line`."""
    place = 0
    while place < len(line):
        if quote:
            end = line.find(quote, place)
            if end < 0:
                return depth, quote
            place, quote = end + 3, ""
            continue
        token = _TOKEN.search(line, place)
        if not token:
            break
        place = token.end()
        if token[0] in ('"""', "'''"):
            quote = token[0]
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
    return depth, quote
