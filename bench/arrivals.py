"""Sees a whole table arrive in the kernel without costing anybody anything.

The kernel keeps no count of IPv4 routes: /proc/net/fib_triestat walks all of them, and holds up who changes them
meanwhile. So the kernel is asked for some of the prefixes, one after another, and walks once, when those are all there.
"""

import struct
from pathlib import Path
from socket import AF_INET, AF_NETLINK, SOCK_RAW, socket

import numpy as np

from common.bgp.constants import Family
from stages.feed.source import shared_out
from stages.feed.synthetic import make_prefixes
from stages.fib.messages import Kind, Request, RouteAttribute, attribute, message, messages_of
from stages.fib.netlink_socket import inside

N_ASKED = 1000  # prefixes: of those that come after the last of them there are as many as one asked for stands for
FIB_MATCH = 0x2000  # RTM_F_FIB_MATCH: answer with the route, not with what was made of it


class Arrivals:
    """The synthetic table of `headrace feed --size`, on its way into the kernel of a namespace."""

    def __init__(self, namespace: str, pid: int, size: int):
        """Begin with what is there now. pid: of a process inside."""
        self._net = Path(f"/proc/{pid}/net")
        counts = shared_out(size)
        self._waiting = _spread(*make_prefixes(Family.IPV4_UNICAST, counts[Family.IPV4_UNICAST], 1))
        self._all = self._n_there() + size
        self._all_ipv6 = self._n_ipv6() + counts[Family.IPV6_UNICAST]
        with inside(namespace):
            self._asker = socket(AF_NETLINK, SOCK_RAW, 0)

    def are_complete(self) -> bool:
        """Tell whether all have arrived."""
        while self._waiting and self._has(*self._waiting[-1]):
            self._waiting.pop()
        return not self._waiting and self._n_ipv6() >= self._all_ipv6 and self.n_missing() <= 0

    def n_missing(self) -> int:
        """Return how many have not arrived, by walking the table."""
        return self._all - self._n_there()

    def close(self) -> None:
        self._asker.close()

    def _n_there(self) -> int:
        trie = (self._net / "fib_triestat").read_text()
        counts = [int(line.split()[1]) for line in trie.splitlines() if line.strip().startswith("Prefixes:")]
        return max(counts) + self._n_ipv6()

    def _n_ipv6(self) -> int:
        return int((self._net / "rt6_stats").read_text().split()[3], 16)

    def _has(self, address: bytes, length: int) -> bool:
        """Ask the kernel which route it has for an address."""
        body = struct.pack("=BBBBBBBBI", AF_INET, 32, 0, 0, 0, 0, 0, 0, FIB_MATCH)
        self._asker.send(message(Kind.GET_ROUTE, Request.REQUEST, 1, body + attribute(RouteAttribute.DST, address)))
        ((kind, _, _, answer),) = messages_of(self._asker.recv(4096))
        return kind == Kind.NEW_ROUTE and answer[1] == length


def _spread(hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> list[tuple[bytes, int]]:
    """Return prefixes from all over a table, the first of it last, each the longest at its address."""
    order = np.lexsort((length, hi))
    is_longest = np.append(hi[order[1:]] != hi[order[:-1]], True)
    rows = np.sort(order[is_longest])[::-1]
    rows = rows[:: max(1, len(rows) // N_ASKED)]
    return [((int(hi[row]) >> 32).to_bytes(4, "big"), int(length[row])) for row in rows]
