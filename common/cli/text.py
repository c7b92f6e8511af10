"""Plain text for people: aligned tables, durations, sizes; and JSON for programs.

Never: needs a library; a command that shows ten lines starts in a tenth of a second.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

WORDS_SHOWN = 4
OWN = "(own)"  # the neighbor of a route that is originated here


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], right: str = "") -> str:
    """Return rows as aligned columns; `right` has an "r" for each column that is aligned to the right."""
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(headers))]
    aligned = [
        "  ".join(
            text.rjust(width) if right[column : column + 1] == "r" else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
    if sys.stdout.isatty():
        aligned[0] = f"\x1b[1m{aligned[0]}\x1b[0m"
    return "\n".join(aligned)


def pairs(values: dict[str, Any]) -> str:
    """Return names and values, one pair a line."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(f"{name.ljust(width)}  {_cell(value)}".rstrip() for name, value in values.items())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value)
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "-"
    return str(value)


def number(value: int) -> str:
    """Return a whole number with its thousands set apart."""
    return f"{value:,}".replace(",", " ")


def duration(seconds: float | None) -> str:
    """Return a duration in its two greatest units."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if hours == 0:
        return f"{minutes}m{int(seconds % 60):02}s"
    return f"{hours}h{minutes % 60:02}m" if days == 0 else f"{days}d{hours % 24:02}h"


def as_json(value: Any) -> str:
    """Return a value as JSON, addresses and octets as text."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=_plain)


def as_json_line(value: Any) -> str:
    """Return a value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)


def some(words: list[str]) -> str:
    """Return the first of many words, and how many more there are."""
    more = [f"{len(words) - WORDS_SHOWN} more"] if len(words) > WORDS_SHOWN else []
    return ", ".join(words[:WORDS_SHOWN] + more)
