"""Writes the schema down: the example file, and the reference in Markdown.

Owns: their form. Never: says anything about a key that the key's declaration does not say.
"""

import textwrap
from dataclasses import MISSING
from typing import Any

from common.config.keys import Key, keys_of
from common.config.schema import BLOCKS, LISTS, SECTIONS

_WIDTH = 100


def example() -> str:
    """Return a configuration that loads, with every key: those not needed commented out, at their defaults."""
    parts = ["# Headrace: every section and key. What is commented out stands at its default.\n"]
    for name, section in SECTIONS.items():
        header = f"[[{name}]]" if name in LISTS else f"[{name}]"
        is_wanted = name == "neighbor" or name not in LISTS
        parts.append(_example_section(header, section, is_wanted))
        if name == "neighbor":
            parts += [_example_section(f"[neighbor.{block}]", kind) for block, kind in BLOCKS.items()]
    return "\n".join(parts)


def reference() -> str:
    """Return the reference of all sections and keys as Markdown."""
    parts = [
        "# Configuration reference\n\nOne TOML file; a key without a default is required. What a change costs a router "
        "that runs: `live` nothing,\n`evaluate` routes are evaluated again, differences told, `session` the session, "
        "`share` a restart of each rib,\n`restart`: it counts from the next start.\n"
    ]
    for name, section in SECTIONS.items():
        header = f"`[[{name}]]`, once for each {name}" if name in LISTS else f"`[{name}]`"
        parts.append(_reference_section(header, section))
        if name == "neighbor":
            parts += [_reference_section(f"`{block}` of a neighbor", kind) for block, kind in BLOCKS.items()]
    return "\n".join(parts)


def _example_section(header: str, section: type, is_wanted: bool = True) -> str:
    """Return a section with all its keys; one that nobody needs to have stands there as a comment."""
    lines = [*_comment(section.__doc__ or ""), header if is_wanted else f"# {header}"]
    for name, (_, entry) in keys_of(section).items():
        lines += _comment(_sentence(entry))
        assignment = _assignment(name, entry)
        lines += assignment if is_wanted else [f"# {line.removeprefix('# ')}" for line in assignment]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, _WIDTH - 2, break_on_hyphens=False)]


def _sentence(entry: Key) -> str:
    limits = f" ({entry.kind.limits}{' ' + entry.unit if entry.unit else ''})" if entry.kind.limits else ""
    return entry.sentence + limits


def _assignment(name: str, entry: Key) -> list[str]:
    is_active = entry.is_required or (entry.default is not None and entry.example is not None)
    value = entry.default if entry.example is None else entry.example
    text = f"{name} = {_toml(value)}"
    if len(text) > _WIDTH and isinstance(value, list):
        text = f"{name} = [\n" + "".join(f"    {_toml(item)},\n" for item in value) + "]"
    return text.splitlines() if is_active else [f"# {line}" for line in text.splitlines()]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def _reference_section(header: str, section: type) -> str:
    rows = ["| key | type | default | limits | unit | a change | |", "|---|---|---|---|---|---|---|"]
    for name, (_, entry) in keys_of(section).items():
        cells = (f"`{name}`", entry.kind.name, _default(entry), _cell(entry.kind.limits), entry.unit, entry.change)
        rows.append(f"| {' | '.join(cells)} | {_cell(entry.sentence)} |")
    return "\n".join([f"## {header}\n\n{section.__doc__}\n", *rows, ""])


def _default(entry: Key) -> str:
    if entry.default is MISSING:
        return "required"
    return "not set" if entry.default is None else f"`{_toml(entry.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
