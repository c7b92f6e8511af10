"""Remembers, beyond the death of the process, which nexthop object is the way to which next hop.

Owns one small file in the run directory, a line a nexthop object, written before the object is made. The kernel keeps
an object's gateway, but not the BGP next hop it was resolved from; with this file a new process takes over every
route as it is, and without it rewrites once those whose next hop was not directly connected. Never touches the kernel.

The first line says which boot and which network namespace the rest is about: of another, nothing is believed.
"""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Remembered:
    """The next hop of an object; `interface` is that of a link-local one, 0 otherwise."""

    family: int
    address: bytes
    interface: int


class Memory:
    """Next hops by identifier of their object. Without a path nothing outlives the process."""

    def __init__(self, path: Path | None = None, world: str = ""):
        self.path = path
        self.by_identifier: dict[int, Remembered] = {}
        self._head = world
        self._file = None
        if path is not None:
            self._read()

    def note(self, identifier: int, hop: Remembered) -> None:
        """Remember an object that is about to be made."""
        if self.path is not None and self._file is None:
            self._begin_file()
        self.by_identifier[identifier] = hop
        if self._file is not None:
            self._file.write(_line(identifier, hop))
            self._file.flush()

    def keep_only(self, identifiers: set[int]) -> None:
        """Forget objects that are no more."""
        if self.by_identifier.keys() <= identifiers:
            return
        self.by_identifier = {number: hop for number, hop in self.by_identifier.items() if number in identifiers}
        self.close()

    def close(self) -> None:
        """Close the file; the next note begins it anew, with what is remembered."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin_file(self) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(f"{self._head}\n" + "".join(_line(*item) for item in self.by_identifier.items()))
        os.replace(beside, self.path)
        self._file = self.path.open("a")

    def _read(self) -> None:
        try:
            head, *lines = self.path.read_text().splitlines()
        except (OSError, ValueError):
            return
        if head != self._head:
            return
        for line in lines:
            words = line.split()
            try:
                identifier, family, interface = (int(word) for word in words[:3])
                self.by_identifier[identifier] = Remembered(family, bytes.fromhex(words[3]), interface)
            except (ValueError, IndexError):
                continue  # a line cut short by the end of the process that wrote it


def _line(identifier: int, hop: Remembered) -> str:
    return f"{identifier} {hop.family} {hop.interface} {hop.address.hex()}\n"


def this_world() -> str:
    """Name this boot of the machine and this network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.stat('/proc/self/ns/net').st_ino}"
