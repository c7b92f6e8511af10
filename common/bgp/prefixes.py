"""Prefixes as two columns of 64 bits and a length, as octets in questions and answers, and as text.

Owns how they are ordered: by address, then the shorter one first. Never knows a table. Addresses are left-aligned in
128 bits, `lo` is empty for a narrow family (see common/bus/schema.py).
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, NamedTuple

import numpy as np

Network = IPv4Network | IPv6Network
MASK64 = (1 << 64) - 1


class Prefixes(NamedTuple):
    """Prefixes of one family: upper and lower halves (uint64), and lengths in bits (uint8)."""

    hi: np.ndarray
    lo: np.ndarray
    length: np.ndarray

    @classmethod
    def of(cls, networks: Iterable[Network]) -> "Prefixes":
        """Return networks of one family as columns."""
        networks = list(networks)
        addresses = [int(each.network_address) << (128 - each.max_prefixlen) for each in networks]
        is_wide = any(each.version == 6 for each in networks)
        return cls(
            np.array([address >> 64 for address in addresses], np.uint64),
            np.array([address & MASK64 for address in addresses] if is_wide else [], np.uint64),
            np.array([each.prefixlen for each in networks], np.uint8),
        )

    @classmethod
    def unpack(cls, octets: dict[str, bytes]) -> "Prefixes":
        """Return what `pack` has made; raise ValueError if it has not, for a prefix that is none is not looked up."""
        found = cls(
            *(np.frombuffer(octets[name], dtype) for name, dtype in (("hi", "<u8"), ("lo", "<u8"), ("length", "u1")))
        )
        if len(found.hi) != len(found.length) or len(found.lo) not in (0, len(found.hi)):
            raise ValueError("columns of prefixes are not of one length")
        return found

    def pack(self) -> dict[str, bytes]:
        """Return the columns as little-endian octets."""
        return {name: column.tobytes() for name, column in self._asdict().items()}

    def take(self, places: Any) -> "Prefixes":
        """Return those at some places, or where a mask is set."""
        return Prefixes(self.hi[places], self.lo[places] if len(self.lo) else self.lo, self.length[places])

    def in_order(self) -> np.ndarray:
        """Return the places of all, sorted."""
        return np.lexsort((self.length, self.lo, self.hi) if len(self.lo) else (self.length, self.hi))

    def within(self, network: Network | None) -> "Prefixes":
        """Return those that are `network` or more specific; all for None."""
        if network is None or not len(self.hi):
            return self
        wanted = Prefixes.of([network])
        n_high = min(network.prefixlen, 64)
        is_within = (self.hi & _mask(n_high)) == wanted.hi[0]
        is_within &= self.length >= network.prefixlen
        if network.prefixlen > 64:
            is_within &= (self.lo & _mask(network.prefixlen - 64)) == wanted.lo[0]
        return self.take(is_within)


def _mask(n_bits: int) -> np.uint64:
    return np.uint64(MASK64 & ~((1 << (64 - n_bits)) - 1))


def covering(network: Network) -> list[Network]:
    """Return a network and all that cover it, the shortest first."""
    return [network.supernet(new_prefix=length) for length in range(network.prefixlen + 1)]


def prefix_text(hi: int, lo: int, length: int, is_wide: bool) -> str:
    """Return a prefix as text."""
    return f"{IPv6Address(hi << 64 | lo)}/{length}" if is_wide else f"{IPv4Address(hi >> 32)}/{length}"


def text_at(prefixes: Any, row: int, is_wide: bool) -> str:
    """Return the prefix in a row of a table of prefixes (kernels.prefixes) as text."""
    hi, lo, length = prefixes.columns_of(np.array([row], np.uint32))
    return prefix_text(int(hi[0]), int(lo[0]) if is_wide else 0, int(length[0]), is_wide)
