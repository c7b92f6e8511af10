"""MRT files as sources: what one peer of the file announced, as the table of a neighbor we play.

Owns the open file. Reads and unpacks it in pieces, so memory is that of a piece however large the file is. Never holds
back what is wrong with a file: FileError says where and what. The records are scanned by common/kernels/mrt.py, the
messages in them by common/kernels/scan.py, as if the peer sent them.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from common.bgp.constants import MAX_EXTENDED_MESSAGE_OCTETS, NONE, Family
from common.kernels import mrt, scan
from common.kernels.attributes import AttributeTable
from common.kernels.prefixes import PrefixTable
from stages.feed.source import next_hops
from stages.feed.synthetic import Table
from stages.feed.unpack import FileError, open_file, unpacking

READ_OCTETS = 1 << 20
PIECE_ROUTES = 65536  # grouped by attribute set in one piece
HOW = {"keep": mrt.KEEP, "replace": mrt.REPLACE, "prepend": mrt.PREPEND}
FOREVER = (1 << 64) - 1


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reading:
    """One pass over a file: give a scanner's results piece by piece."""

    path: Path
    scanner: mrt.MrtScanner
    offset: int = 0  # octets of the unpacked file before the buffer
    buffer: bytearray = field(default_factory=bytearray)
    used: int = 0
    is_at_end: bool = False
    file: BinaryIO | None = None

    def pieces(self, until: int = FOREVER) -> Iterator[mrt.MrtScanner]:
        """Give the scanner each time it has written something, up to the records of time `until` (microseconds).

        Raises FileError where the file is cut, corrupt, empty or no MRT file.
        """
        if self.file is None:
            self.file = open_file(self.path)
        while True:
            why = self.scanner.scan(self.buffer, self.used, len(self.buffer), until)
            self.used = self.scanner.consumed
            if why == mrt.BAD:
                raise FileError(self._bad())
            yield self.scanner
            if why == mrt.FULL and self.scanner.needed > self.scanner.capacity_octets:
                self.scanner.ensure(self.scanner.needed)
            elif why == mrt.UNTIL:
                return
            elif why == mrt.NEED_MORE and not self._read():
                self.is_at_end = True
                self.file.close()
                return

    def _read(self) -> bool:
        """Read on; False at the end of the file, which must be the end of a record."""
        del self.buffer[: self.used]
        self.offset += self.used
        self.used = 0
        with unpacking(self.path, f"octet {self.offset}"):
            octets = self.file.read(READ_OCTETS)
        if octets:
            self.buffer += octets
            return True
        if self.buffer:
            n = self.scanner.n_records
            raise FileError(f"{self.path}: ends inside a record at octet {self.offset}, after {n:,} whole records")
        if not self.scanner.n_records:
            raise FileError(f"{self.path}: is empty")
        return False

    def _bad(self) -> str:
        scanner = self.scanner
        at = self.offset + scanner.bad_offset
        what = f"type {scanner.bad_type}, {scanner.bad_length:,} octets long"
        if not scanner.n_records:
            return f"{self.path}: is no MRT file: its first record would be of {what}"
        return f"{self.path}: is corrupt at octet {at}, after {scanner.n_records:,} records: a record of {what}"


class Messages:
    """Reads the messages a scan of records has written into routes, stream by stream."""

    def __init__(self, *, keeps_as_sets: bool = True, is_external: bool = True):
        self.scanner = scan.Scanner(1 << 20)
        self.options = [
            scan.Options(
                as4=bool(stream & mrt.AS4), add_path=3 if stream & mrt.ADD_PATH else 0, external=is_external,
                accept_as_sets=keeps_as_sets, accept_confederation=True, extended_next_hop=True,
                max_message=MAX_EXTENDED_MESSAGE_OCTETS,
            )
            for stream in range(4)
        ]  # fmt: skip
        self.n_bad_updates = 0
        self.n_invalid = 0

    def routes(self, records: mrt.MrtScanner) -> Iterator[tuple[Family, scan.ScannedRoutes]]:
        """Give what the messages announce and withdraw; the columns are good until the next step."""
        for stream in range(4):
            octets = records.octets(stream)
            start = 0
            while start < len(octets):
                why = self.scanner.scan(octets, start, len(octets), self.options[stream])
                start = self.scanner.consumed
                self.n_invalid += self.scanner.n_withdrawn
                for family in Family:
                    if self.scanner.n_routes(family.index):
                        yield family, self.scanner.routes(family.index)
                if why == scan.ERROR:
                    # An UPDATE that would have ended the session: pass it over.
                    self.n_bad_updates += 1
                    start += max(19, int(octets[start + 16]) << 8 | int(octets[start + 17]))
                elif why == scan.NEED_MORE:
                    break


# ---- a summary ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Peer:
    """A peer of a file, how many entries or UPDATEs it has there, and how often its state changed."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    asn: int
    n_routes: int
    n_states: int


@dataclass(slots=True)
class Summary:
    """What a file holds."""

    n_records: int
    kinds: dict[str, int]
    peers: list[Peer]
    n_entries: int  # of tables, unicast
    n_announced: dict[str, int]  # valid unicast routes, of tables or in UPDATEs
    n_withdrawn: dict[str, int]
    n_prefixes: dict[str, int]
    n_states: int
    n_ignored: int
    n_malformed: int
    n_invalid: int
    duration_s: float


def summarize(path: Path) -> Summary:
    """Read a whole file and count what is in it. Raises FileError."""
    records = mrt.MrtScanner()
    messages = Messages(is_external=False)
    announced, withdrawn = dict.fromkeys(Family, 0), dict.fromkeys(Family, 0)
    prefixes = {family: PrefixTable(family.is_wide, 1, 1024) for family in Family}
    for piece in Reading(path, records).pieces():
        for family, routes in messages.routes(piece):
            n_gone = int(np.count_nonzero(routes.set == NONE))
            announced[family] += len(routes.hi) - n_gone
            withdrawn[family] += n_gone
            prefixes[family].intern(routes.hi, routes.lo, routes.length)
    return Summary(
        n_records=records.n_records,
        kinds={_kind_name(*kind): count for kind, count in sorted(records.kinds.items())},
        peers=[_peer(*columns) for columns in records.peers],
        n_entries=records.n_entries,
        n_announced={family.label: count for family, count in announced.items()},
        n_withdrawn={family.label: count for family, count in withdrawn.items()},
        n_prefixes={family.label: table.n_prefixes for family, table in prefixes.items()},
        n_states=records.n_states,
        n_ignored=records.n_ignored,
        n_malformed=records.n_malformed,
        n_invalid=messages.n_invalid + messages.n_bad_updates,
        duration_s=(records.last_at - records.first_at) / 1e6,
    )


SUBTYPE_NAMES = {
    mrt.TABLE_DUMP: {1: "IPv4", 2: "IPv6"},
    mrt.TABLE_DUMP_V2: {
        1: "PEER_INDEX_TABLE", 2: "RIB_IPV4_UNICAST", 3: "RIB_IPV4_MULTICAST", 4: "RIB_IPV6_UNICAST",
        5: "RIB_IPV6_MULTICAST", 6: "RIB_GENERIC", 8: "RIB_IPV4_UNICAST_ADDPATH", 9: "RIB_IPV4_MULTICAST_ADDPATH",
        10: "RIB_IPV6_UNICAST_ADDPATH", 11: "RIB_IPV6_MULTICAST_ADDPATH", 12: "RIB_GENERIC_ADDPATH",
    },
    mrt.BGP4MP: {
        0: "STATE_CHANGE", 1: "MESSAGE", 2: "ENTRY", 3: "SNAPSHOT", 4: "MESSAGE_AS4", 5: "STATE_CHANGE_AS4",
        6: "MESSAGE_LOCAL", 7: "MESSAGE_AS4_LOCAL", 8: "MESSAGE_ADDPATH", 9: "MESSAGE_AS4_ADDPATH",
        10: "MESSAGE_LOCAL_ADDPATH", 11: "MESSAGE_AS4_LOCAL_ADDPATH",
    },
}  # fmt: skip
SUBTYPE_NAMES[mrt.BGP4MP_ET] = SUBTYPE_NAMES[mrt.BGP4MP]


def _kind_name(kind: int, subtype: int) -> str:
    name = mrt.TYPE_NAMES.get(kind, f"type {kind}")
    return f"{name} {SUBTYPE_NAMES.get(kind, {}).get(subtype, subtype)}"


def _peer(hi: int, lo: int, asn: int, is_wide: bool, n_routes: int, n_states: int) -> Peer:
    address = ipaddress.IPv6Address(hi << 64 | lo) if is_wide else ipaddress.IPv4Address(hi >> 32)
    return Peer(address, asn, n_routes, n_states)


# ---- a source -------------------------------------------------------------------------------------------------------


@lru_cache(16)
def peers_of(path: Path, state) -> tuple[Peer, ...]:
    """Return the peers of a file in the order in which they come; read once while `state`, of the file, is the same."""
    records = mrt.MrtScanner(emits=False)
    for _ in Reading(path, records).pieces():
        pass
    return tuple(_peer(*columns) for columns in records.peers)


@dataclass(slots=True)
class MrtSource:
    """What one peer of a file announced, as the table of a neighbor.

    peer: its address or "AS" and number as in the file; empty: that with the most routes, or the next after `rank`
    others. first_as: whether the
    neighbor's AS number takes the place of the first of each path ("replace"), goes before it ("prepend"), or paths
    stay ("keep"). keeps_as_sets: else routes with an AS_SET are left out, which routers refuse today (RFC 9774).
    A file of UPDATEs is read as the changes it holds, one after the other.
    """

    path: Path
    peer: str = ""
    first_as: str = "replace"
    keeps_as_sets: bool = False
    rank: int = 0

    def peer_number(self) -> int:
        """Return the number of the peer in the file, in the order in which they come. Raises FileError."""
        found = self.path.stat() if self.path.exists() else None
        peers = peers_of(self.path, found and (found.st_mtime_ns, found.st_size))
        if not any(peer.n_routes for peer in peers):
            raise FileError(f"{self.path}: holds no routes")
        return self._named(peers) if self.peer else self._ranked(peers)

    def _ranked(self, peers: tuple[Peer, ...]) -> int:
        order = sorted(
            (number for number in range(len(peers)) if peers[number].n_routes), key=lambda n: -peers[n].n_routes
        )
        if self.rank >= len(order):
            raise FileError(f"{self.path}: has {len(order)} peers with routes, too few for neighbor {self.rank + 1}")
        return order[self.rank]

    def _named(self, peers: tuple[Peer, ...]) -> int:
        found = [number for number, peer in enumerate(peers) if self.peer in (str(peer.address), f"AS{peer.asn}")]
        if not found:
            most = sorted(peers, key=lambda peer: -peer.n_routes)[:5]
            some = ", ".join(f"{peer.address} AS{peer.asn} ({peer.n_routes:,})" for peer in most)
            raise FileError(f"{self.path}: has no peer {self.peer}; those with the most routes: {some}")
        return max(found, key=lambda number: peers[number].n_routes)

    def tables(self, plan) -> Iterator[Table]:
        """Give what the peer announced, piece by piece, with the plan's AS number and next hop."""
        records = mrt.MrtScanner(only=self.peer_number())
        yield from self.rewritten(plan, Reading(self.path, records).pieces())

    def rewritten(self, plan, pieces: Iterator[mrt.MrtScanner]) -> Iterator[Table]:
        """Give pieces of a reading as tables of a neighbor; each prefix once in each, in its last state."""
        messages = Messages(keeps_as_sets=self.keeps_as_sets)
        hops = next_hops(plan)
        gathering = {family: Gathering(family) for family in plan.families}
        for records in pieces:
            for family, routes in messages.routes(records):
                if family not in gathering:
                    continue
                gathering[family].add(routes)
                if gathering[family].n_routes >= PIECE_ROUTES:
                    yield self._rewrite(plan, hops, gathering[family].take())
        for each in gathering.values():
            if each.n_routes:
                yield self._rewrite(plan, hops, each.take())

    def _rewrite(self, plan, hops: dict[Family, bytes], table: Table) -> Table:
        table.set_offset, table.set_octets = mrt.rewrite_sets(
            table.set_offset, table.set_octets, hops[table.family], plan.asn, HOW[self.first_as]
        )
        return table


class Gathering:
    """Routes of one family until there are enough to be grouped by attribute set."""

    def __init__(self, family: Family):
        self.family = family
        self._begin()

    def _begin(self) -> None:
        self.n_routes = 0
        self._prefixes = PrefixTable(self.family.is_wide, 1, PIECE_ROUTES)
        self._sets = AttributeTable(1, 1024)
        self._rows: list[np.ndarray] = []
        self._ids: list[np.ndarray] = []

    def add(self, routes) -> None:
        """Take in one scan's routes."""
        self._ids.append(self._sets.intern_rows(routes.set_offset, routes.set_octets, routes.set))
        self._rows.append(self._prefixes.intern(routes.hi, routes.lo, routes.length))
        self.n_routes += len(routes.hi)

    def take(self) -> Table:
        """Return the last state of each prefix, those with the same set side by side, and begin anew."""
        rows, ids = np.concatenate(self._rows), np.concatenate(self._ids)
        state = np.zeros(self._prefixes.capacity, np.uint32)
        state[rows] = ids  # of rows that come twice, the last one stays
        unique = np.arange(1, self._prefixes.row_limit, dtype=np.uint32)
        order = unique[np.argsort(state[unique], kind="stable")]
        local, set_offset, set_octets = self._sets.extract(state[order])
        lo = self._prefixes.lo(order) if self.family.is_wide else np.empty(0, np.uint64)
        table = Table(
            self.family, self._prefixes.hi(order), lo, self._prefixes.length(order), local, set_offset, set_octets
        )
        self._begin()
        return table
