"""Where routes come from: a number for each (neighbor, path identifier), and its description on the bus.

Owns the numbers, which stay the same while the process lives. Never knows a route.
"""

from dataclasses import dataclass, replace

import numpy as np

from common.arrays import only_value

LOCAL = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One source as the decision process and the policies need to know it."""

    name: str
    asn: int
    local_asn: int
    router_id: int
    address: bytes
    is_external: bool
    local_address: bytes = b""  # ours on the session, empty where it does not matter
    is_rr_client: bool = False
    path_id: int = 0
    interface: str = ""  # of the session: where the link-local next hops it tells are

    def meta(self) -> dict:
        """Return the source as it is written in the header of a batch."""
        return {
            "name": self.name,
            "asn": self.asn,
            "local_asn": self.local_asn,
            "router_id": self.router_id,
            "address": self.address,
            "local_address": self.local_address,
            "external": self.is_external,
            "rr_client": self.is_rr_client,
            "path_id": self.path_id,
            "interface": self.interface,
        }


class Sources:
    """All sources of a speaker, numbered from 1."""

    def __init__(self):
        self._sources: list[Source | None] = [None]
        self._meta: list[dict | None] = [None]
        self._numbers: dict[tuple[str, int], int] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def describe(self, source: Source) -> int:
        """Return the number of a source, and describe it so from now on, with all its neighbor's path identifiers."""
        number = self._number(source)
        for (name, path_id), other in self._numbers.items():
            if name == source.name:
                self._set(other, replace(source, path_id=path_id))
        return number

    def numbers(self, name: str) -> np.ndarray:
        """Return the numbers of all sources of a neighbor (uint32)."""
        return np.array([number for (owner, _), number in self._numbers.items() if owner == name], np.uint32)

    def with_path_ids(self, number: int, path_ids: np.ndarray) -> np.ndarray:
        """Return the number of a neighbor's source for each path identifier of a column (uint32)."""
        base = self._sources[number]
        distinct, index = np.unique(path_ids, return_inverse=True)
        numbers = [self._number(replace(base, path_id=path_id)) for path_id in distinct.tolist()]
        return np.array(numbers, np.uint32)[index]

    def name(self, number: int) -> str:
        """Return the neighbor's name of a source."""
        return self._sources[number].name

    def path_id(self, number: int) -> int:
        """Return the path identifier of a source."""
        return self._sources[number].path_id

    def localize(self, column: np.ndarray) -> tuple[np.ndarray, list[dict]]:
        """Return (local, sources): the column as indices into the descriptions of the sources that occur in it."""
        only = only_value(column)
        if only is not None:
            return np.zeros(len(column), np.uint32), [self._meta[only]]
        present = np.flatnonzero(np.bincount(column, minlength=len(self._sources)))
        local = np.zeros(len(self._sources), np.uint32)
        local[present] = np.arange(len(present), dtype=np.uint32)
        return local.take(column), [self._meta[number] for number in present.tolist()]

    def _number(self, source: Source) -> int:
        key = (source.name, source.path_id)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._sources)
            self._sources.append(None)
            self._meta.append(None)
            self._set(number, source)
        return number

    def _set(self, number: int, source: Source) -> None:
        self._sources[number] = source
        self._meta[number] = source.meta()
