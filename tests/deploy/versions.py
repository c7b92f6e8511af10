"""Other versions of Headrace, made of its wheel by changing single lines."""

import re
import zipfile
from pathlib import Path

SCHEMA, VERSIONED = "common/bus/schema.py", "common/__init__.py"
LAST_COLUMN = '        Column("reason", "u1", "0, or why the import policy refused it", "code"),\n'
AFTER_LAST = "        _SET_OFFSET,\n        _SET_OCTETS,\n"


def with_a_column_more(schema: str) -> str:
    """RouteChanges gains a column."""
    before, _, after = schema.partition(LAST_COLUMN + AFTER_LAST)
    assert after
    added = '        Column("weight", "u4", "a preference", otherwise=7),\n'
    return before + LAST_COLUMN + AFTER_LAST + added + after


def with_another_meaning(schema: str) -> str:
    """A column of RouteChanges becomes another one."""
    assert LAST_COLUMN in schema
    return schema.replace(LAST_COLUMN, '        Column("verdict", "u2", "another thing", "code"),\n')


def make_wheel(original: Path, directory: Path, version: str, change) -> Path:
    """Write a wheel as `original`, of another version, with its schema changed."""
    old = original.name.split("-")[1]
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / original.name.replace(f"-{old}-", f"-{version}-")
    with zipfile.ZipFile(original) as wheel, zipfile.ZipFile(path, "w") as made:
        for entry in wheel.infolist():
            octets = wheel.read(entry)
            name = entry.filename.replace(f"headrace-{old}.dist-info", f"headrace-{version}.dist-info")
            if name == SCHEMA:
                octets = change(octets.decode()).encode()
            elif name == VERSIONED:
                octets = octets.replace(old.encode(), version.encode())
            elif name.endswith("/METADATA"):
                octets = re.sub(rb"(?m)^Version: .*$", f"Version: {version}".encode(), octets)
            elif name.endswith("/RECORD"):  # without digests, which are optional but for those that are there
                lines = octets.decode().replace(f"headrace-{old}.", f"headrace-{version}.").splitlines()
                octets = "".join(f"{line.split(',')[0]},,\n" for line in lines).encode()
            made.writestr(name, octets)
    return path
