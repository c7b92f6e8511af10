"""Where candidates come from: a number for each (speaker, neighbor, path identifier), and what the decision needs.

Owns the numbers, which stay the same while the process lives, and the columns by source that the decision kernel
reads. Never knows a route.
"""

from collections.abc import Collection

import numpy as np

from common.arrays import only_value

EXTERNAL = 1
ORIGINATED = 2
_NO_NUMBERS = np.empty(0, np.uint32)


class Sources:
    """All sources of one family, numbered from 1."""

    def __init__(self):
        self._meta: list[dict] = [{"name": "", "address": b"", "router_id": 0, "external": False, "path_id": 0}]
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._by_speaker: dict[str, list[int]] = {}
        # What was numbered last, and how: batch after batch is from the same.
        self._last: tuple[str, list[dict]] | None = None
        self._last_numbers = _NO_NUMBERS

    def __len__(self) -> int:
        return len(self._meta)

    def number(self, speaker: str, sources: list[dict]) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each source of a batch, and the numbers of those that are new or described anew."""
        if self._last == (speaker, sources):
            return self._last_numbers, _NO_NUMBERS
        numbers = np.empty(len(sources), np.uint32)
        renewed = []
        for index, meta in enumerate(sources):
            key = (speaker, meta["name"], meta["path_id"])
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._meta)
                self._meta.append(meta)
                self._by_speaker.setdefault(speaker, []).append(number)
                renewed.append(number)
            elif self._meta[number] != meta:
                self._meta[number] = meta
                renewed.append(number)
            numbers[index] = number
        self._last, self._last_numbers = (speaker, sources), numbers
        return numbers, np.array(renewed, np.uint32)

    def of_speaker(self, speaker: str, but: Collection[str] = ()) -> np.ndarray:
        """Return the numbers of all sources of one speaker (uint32), without those of the neighbors `but`."""
        numbers = self._by_speaker.get(speaker, ())
        return np.array([number for number in numbers if self._meta[number]["name"] not in but], np.uint32)

    def of_neighbors(self, speaker: str, names: Collection[str]) -> np.ndarray:
        """Return the numbers of those sources of a speaker that are these neighbors' (uint32)."""
        numbers = self._by_speaker.get(speaker, ())
        return np.array([number for number in numbers if self._meta[number]["name"] in names], np.uint32)

    def neighbors(self) -> list[str]:
        """Return the neighbor of each source, by number; "" for what is originated here."""
        return [meta["name"] for meta in self._meta]

    def meta(self, number: int) -> dict:
        """Return a source as batches describe it."""
        return self._meta[number]

    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return kind (uint8), router id, rank of the peer's address and path identifier (uint32) by source number."""
        addresses = [int.from_bytes(meta["address"], "big") for meta in self._meta]
        ranks = {address: rank for rank, address in enumerate(sorted(set(addresses)))}
        return (
            np.array([_kind(meta) for meta in self._meta], np.uint8),
            np.array([meta["router_id"] for meta in self._meta], np.uint32),
            np.array([ranks[address] for address in addresses], np.uint32),
            np.array([meta["path_id"] for meta in self._meta], np.uint32),
        )

    def is_originated(self) -> np.ndarray:
        """Tell for each source, by number, whether it is this router itself."""
        return np.array([_kind(meta) & ORIGINATED != 0 for meta in self._meta])

    def localize(self, column: np.ndarray) -> tuple[np.ndarray, list[dict]]:
        """Return (local, sources): the column as indices into the descriptions of the sources that occur in it."""
        only = only_value(column)
        if only is not None:
            return np.zeros(len(column), np.uint32), [self._meta[only]]
        present = np.flatnonzero(np.bincount(column, minlength=len(self._meta)))
        local = np.zeros(len(self._meta), np.uint32)
        local[present] = np.arange(len(present), dtype=np.uint32)
        return local.take(column), [self._meta[number] for number in present.tolist()]


def _kind(meta: dict) -> int:
    return (EXTERNAL if meta["external"] else 0) | (0 if meta["name"] else ORIGINATED)
