"""Finds the line of each key of a TOML text and of each value of a list, which the standard library does not tell.

Owns: the walk over a text that `tomllib` has already accepted, so it may be forgiving. Never: reads values.
"""

import re

_HEADER = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_TOKEN = re.compile(r'"""|' + r"'''" + r"""|"(?:\\.|[^"\\])*"|'[^']*'|#.*|[\[\]{},]|[^\s"'#\[\]{},]+""")

Path = tuple[str | int, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Return the line (from 1) of each table and key; an array of tables begins at its first entry.

    Entries of an array of tables have their index in the path, and so have the values of a key that is a list.
    """
    lines: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    value = _Value()
    for number, line in enumerate(text.splitlines(), 1):
        start = 0
        if value.is_whole:
            if header := _HEADER.match(line):
                table = _enter(_parts(header[2]), header[1] == "[[", counts)
                lines.setdefault(table, number)
                if header[1] == "[[":
                    lines.setdefault(table[:-1], number)
                continue
            if found := _KEY.match(line):
                value = _Value(table + _parts(found[1]))
                start = found.end()
                lines.setdefault(value.owner, number)
        if value.owner:
            for name in re.finditer(r"(?:^|[{,])\s*([A-Za-z0-9_-]+)\s*=", line[start:]):
                lines.setdefault((*value.owner, name[1]), number)
        for index in value.take(line[start:]):
            lines.setdefault((*value.owner, index), number)
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


class _Value:
    """The value of the key `owner`, line by line: what of it is open, and where the values of a list begin."""

    def __init__(self, owner: Path = ()):
        self.owner = owner
        self._open = ""  # brackets
        self._quote = ""  # of a multi-line string
        self._index = 0
        self._is_awaited = False  # a value of the list is to begin

    @property
    def is_whole(self) -> bool:
        return not self._open and not self._quote

    def take(self, line: str) -> list[int]:
        """Go on to the end of `line`; return the indices of the values of a list that begin on it."""
        begun: list[int] = []
        place = 0
        while place < len(line):
            if self._quote:
                end = line.find(self._quote, place)
                if end < 0:
                    break
                place, self._quote = end + 3, ""
                continue
            token = _TOKEN.search(line, place)
            if not token:
                break
            place = token.end()
            if not token[0].startswith("#"):
                self._take_token(token[0], begun)
        return begun

    def _take_token(self, token: str, begun: list[int]) -> None:
        if token in "]}":
            self._open = self._open[:-1]
        elif token == ",":
            if self._open == "[":
                self._index, self._is_awaited = self._index + 1, True
        else:
            if self._open == "[" and self._is_awaited:
                begun.append(self._index)
                self._is_awaited = False
            if token in ('"""', "'''"):
                self._quote = token
            elif token in "[{":
                self._open += token
                self._is_awaited = self._open == "["
