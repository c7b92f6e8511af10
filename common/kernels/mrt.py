"""Scans the records of an MRT file, and gives what they hold as the BGP messages a peer would have sent.

Owns the octets that a scan writes and the next scan overwrites, the list of the file's peers, and counts of what came.
Never checks an UPDATE beyond its header: that is common/kernels/scan.py's. Every length of a record is checked; a
record that contradicts itself is counted and passed over, one whose frame makes no sense ends the scan (BAD).

    TABLE_DUMP, TABLE_DUMP_V2    one UPDATE for each entry of a peer, its NLRI behind its attributes
    BGP4MP, BGP4MP_ET            the message as it was recorded

The messages come in four streams, by what a scanner must know to read them: whether AS numbers have four octets, and
whether prefixes have path identifiers. RFC 6396; RFC 8050 (ADD-PATH); RFC 6397 has nothing we need.
"""

import cython
import numpy as np

from common.arrays import allocate

# Why a scan ended.
NEED_MORE = 0  # what is left is not a whole record
FULL = 1  # a stream has no room for the next record: take the octets and scan again (see `ensure`)
UNTIL = 2  # the next record is later than asked for
BAD = 3  # the next record's frame makes no sense: `bad_offset`, `bad_type`, `bad_length`

_NEED_MORE = cython.declare(cython.uint, NEED_MORE)
_FULL = cython.declare(cython.uint, FULL)
_UNTIL = cython.declare(cython.uint, UNTIL)
_BAD = cython.declare(cython.uint, BAD)

HEADER_OCTETS = cython.declare(cython.Py_ssize_t, 12)
LONGEST_RECORD = cython.declare(cython.Py_ssize_t, 1 << 24)
MICROSECONDS = cython.declare(cython.ulonglong, 1_000_000)
N_PEERS = cython.declare(cython.Py_ssize_t, 65536)
# Octets an UPDATE needs beside its attributes: header, lengths, MP_REACH_NLRI, path identifier, prefix.
MESSAGE_EXTRA = cython.declare(cython.Py_ssize_t, 96)

# Types. RFC 6396 §4
OSPFV2 = 11
TABLE_DUMP = 12
TABLE_DUMP_V2 = 13
BGP4MP = 16
BGP4MP_ET = 17
KNOWN_TYPES = (OSPFV2, TABLE_DUMP, TABLE_DUMP_V2, BGP4MP, BGP4MP_ET, 32, 33, 48, 49)
TYPE_NAMES = {TABLE_DUMP: "TABLE_DUMP", TABLE_DUMP_V2: "TABLE_DUMP_V2", BGP4MP: "BGP4MP", BGP4MP_ET: "BGP4MP_ET"}
_TABLE_DUMP = cython.declare(cython.uint, TABLE_DUMP)
_TABLE_DUMP_V2 = cython.declare(cython.uint, TABLE_DUMP_V2)
_BGP4MP = cython.declare(cython.uint, BGP4MP)
_BGP4MP_ET = cython.declare(cython.uint, BGP4MP_ET)

# Streams
AS4 = 1
ADD_PATH = 2
_AS4 = cython.declare(cython.uint, AS4)
_ADD_PATH = cython.declare(cython.uint, ADD_PATH)

# How the first AS number of a path is rewritten.
KEEP = 0
REPLACE = 1
PREPEND = 2
_REPLACE = cython.declare(cython.uint, REPLACE)
_PREPEND = cython.declare(cython.uint, PREPEND)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def u16(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return cython.cast(cython.uint, octets[at]) << 8 | octets[at + 1]


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def u32(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return u16(octets, at) << 16 | u16(octets, at + 2)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def u64(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.ulonglong:
    return cython.cast(cython.ulonglong, u32(octets, at)) << 32 | u32(octets, at + 4)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_u16(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.Py_ssize_t) -> cython.void:
    out[at] = cython.cast(cython.uchar, (value >> 8) & 0xFF)
    out[at + 1] = cython.cast(cython.uchar, value & 0xFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def copy_octets(
    source: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(n):
        out[to + i] = source[at + i]


@cython.final
@cython.cclass
class MrtScanner:
    """Scans one file's records in order; `only` limits what is written to one peer (its number; -1: all)."""

    # ---- results of the last scan -------------------------------------------------------------------------------
    consumed = cython.declare(cython.Py_ssize_t, visibility="readonly")
    bad_offset = cython.declare(cython.Py_ssize_t, visibility="readonly")
    bad_type = cython.declare(cython.uint, visibility="readonly")
    bad_length = cython.declare(cython.Py_ssize_t, visibility="readonly")
    needed = cython.declare(cython.Py_ssize_t, visibility="readonly")  # FULL: room the next record needs
    # ---- of the whole file --------------------------------------------------------------------------------------
    n_records = cython.declare(cython.longlong, visibility="readonly")
    n_entries = cython.declare(cython.longlong, visibility="readonly")  # of tables, unicast
    n_messages = cython.declare(cython.longlong, visibility="readonly")  # UPDATEs recorded
    n_others = cython.declare(cython.longlong, visibility="readonly")  # messages of other types recorded
    n_states = cython.declare(cython.longlong, visibility="readonly")
    n_ignored = cython.declare(cython.longlong, visibility="readonly")  # records of kinds that hold nothing for us
    n_malformed = cython.declare(cython.longlong, visibility="readonly")  # records passed over
    first_malformed = cython.declare(cython.longlong, visibility="readonly")  # number of the first of them, from 1
    first_at = cython.declare(cython.ulonglong, visibility="readonly")  # microseconds since 1970
    last_at = cython.declare(cython.ulonglong, visibility="readonly")
    next_at = cython.declare(cython.ulonglong, visibility="readonly")  # of the record an UNTIL stopped at

    only: cython.longlong
    emits: cython.bint
    capacity: cython.Py_ssize_t
    octets_column: object
    _octets: cython.uchar[::1]
    _used: cython.Py_ssize_t[::1]
    _in: cython.const[cython.uchar][::1]
    _kinds: cython.longlong[::1]
    _known: cython.uchar[::1]
    # peers
    n_peers: cython.Py_ssize_t
    n_indexed: cython.Py_ssize_t
    peer_hi_column: object
    peer_lo_column: object
    peer_asn_column: object
    peer_wide_column: object
    peer_routes_column: object
    peer_states_column: object
    _peer_hi: cython.ulonglong[::1]
    _peer_lo: cython.ulonglong[::1]
    _peer_asn: cython.uint[::1]
    _peer_wide: cython.uchar[::1]
    _peer_routes: cython.longlong[::1]
    _peer_states: cython.longlong[::1]
    _slots: cython.uint[::1]
    _index: cython.uint[::1]

    def __init__(self, capacity_octets: int = 1 << 20, only: int = -1, emits: bool = True):
        self.only = only
        self.emits = emits
        self.n_records = 0
        self.n_entries = 0
        self.n_messages = 0
        self.n_others = 0
        self.n_states = 0
        self.n_ignored = 0
        self.n_malformed = 0
        self.first_malformed = 0
        self.first_at = 0
        self.last_at = 0
        self.next_at = 0
        self.needed = 0
        self.n_peers = 0
        self.n_indexed = 0
        self.capacity = 0
        self.ensure(max(capacity_octets, 1 << 17))
        self._in = memoryview(b"")
        self._used = memoryview(allocate(4, np.intp))
        self._kinds = memoryview(allocate(64 * 16, np.int64))
        self._known = memoryview(allocate(64, np.uint8))
        for kind in KNOWN_TYPES:
            self._known[kind] = 1
        self.peer_hi_column = allocate(N_PEERS, np.uint64)
        self.peer_lo_column = allocate(N_PEERS, np.uint64)
        self.peer_asn_column = allocate(N_PEERS, np.uint32)
        self.peer_wide_column = allocate(N_PEERS, np.uint8)
        self.peer_routes_column = allocate(N_PEERS, np.int64)
        self.peer_states_column = allocate(N_PEERS, np.int64)
        self._peer_hi = memoryview(self.peer_hi_column)
        self._peer_lo = memoryview(self.peer_lo_column)
        self._peer_asn = memoryview(self.peer_asn_column)
        self._peer_wide = memoryview(self.peer_wide_column)
        self._peer_routes = memoryview(self.peer_routes_column)
        self._peer_states = memoryview(self.peer_states_column)
        self._slots = memoryview(allocate(4 * N_PEERS, np.uint32))
        self._index = memoryview(allocate(N_PEERS, np.uint32))

    # ---- what others read -----------------------------------------------------------------------------------------

    def ensure(self, capacity_octets: int) -> None:
        """Make room for at least so many octets in each stream; what was written is gone."""
        if capacity_octets > self.capacity:
            self.capacity = capacity_octets
            self.octets_column = np.empty(4 * self.capacity, np.uint8)
            self._octets = memoryview(self.octets_column)

    @property
    def capacity_octets(self) -> int:
        """Room in each stream."""
        return self.capacity

    def octets(self, stream: cython.Py_ssize_t):
        """Return the messages the last scan wrote to a stream (AS4 | ADD_PATH): a view, good until the next scan."""
        return self.octets_column[stream * self.capacity : stream * self.capacity + self._used[stream]]

    @property
    def kinds(self) -> dict[tuple[int, int], int]:
        """How many records of each (type, subtype) there were; subtypes above 15 are counted as 15."""
        return {(index // 16, index % 16): self._kinds[index] for index in range(64 * 16) if self._kinds[index]}

    @property
    def peers(self) -> list[tuple[int, int, int, bool, int, int]]:
        """The peers as they came: (hi, lo, AS number, is IPv6, number of UPDATEs and entries, of state changes)."""
        n = self.n_peers
        columns = (
            self.peer_hi_column, self.peer_lo_column, self.peer_asn_column, self.peer_wide_column,
            self.peer_routes_column, self.peer_states_column,
        )  # fmt: skip
        return list(zip(*(column[:n].tolist() for column in columns), strict=True))

    # ---- the scan -------------------------------------------------------------------------------------------------

    def scan(
        self,
        buffer: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        until: cython.ulonglong = 0xFFFFFFFFFFFFFFFF,
    ):
        """Take in whole records of buffer[start:end] that are no later than `until`; return why it stopped."""
        if not cython.compiled:
            buffer = memoryview(buffer)
        if not 0 <= start <= end <= buffer.shape[0]:
            raise ValueError("scan range outside the buffer")
        self._in = buffer
        stop: cython.uint = _NEED_MORE
        with cython.nogil:
            self.consumed = start
            self._used[0] = 0
            self._used[1] = 0
            self._used[2] = 0
            self._used[3] = 0
            while True:
                stop = self._scan_record(end, until)
                if stop != 100:
                    break
        self._in = memoryview(b"")
        return stop

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_record(self, end: cython.Py_ssize_t, until: cython.ulonglong) -> cython.uint:
        """Take in one record; 100: and there may be more."""
        at: cython.Py_ssize_t = self.consumed
        if end - at < HEADER_OCTETS:
            return _NEED_MORE
        kind: cython.uint = u16(self._in, at + 4)
        subtype: cython.uint = u16(self._in, at + 6)
        length: cython.Py_ssize_t = u32(self._in, at + 8)
        when: cython.ulonglong = u32(self._in, at) * MICROSECONDS
        if kind >= 64 or self._known[kind] == 0 or length > LONGEST_RECORD:
            self.bad_offset = at
            self.bad_type = kind
            self.bad_length = length
            return _BAD
        if end - at - HEADER_OCTETS < length:
            return _NEED_MORE
        record_end: cython.Py_ssize_t = at + HEADER_OCTETS + length
        at += HEADER_OCTETS
        if kind == _BGP4MP_ET and length >= 4:
            when += u32(self._in, at)
            at += 4
        if when > until:
            self.next_at = when
            return _UNTIL
        stream: cython.Py_ssize_t = self._stream_of(kind, subtype)
        self.needed = 2 * length + MESSAGE_EXTRA
        if kind == _TABLE_DUMP_V2:
            # Each entry has at least eight octets, and becomes a message of its own.
            self.needed = length + (length >> 3) * MESSAGE_EXTRA
        if self.emits and self._used[stream] > 0 and self.capacity - self._used[stream] < self.needed:
            return _FULL
        if self.emits and self.capacity < self.needed:
            return _FULL
        is_good: cython.bint = True
        if kind == _BGP4MP or kind == _BGP4MP_ET:
            is_good = self._scan_message(at, record_end, subtype, stream)
        elif kind == _TABLE_DUMP_V2:
            is_good = self._scan_table_v2(at, record_end, subtype, stream)
        elif kind == _TABLE_DUMP:
            is_good = self._scan_table(at, record_end, subtype)
        else:
            self.n_ignored += 1
        self.n_records += 1
        self._kinds[kind * 16 + min(subtype, 15)] += 1
        if not is_good:
            self.n_malformed += 1
            if self.first_malformed == 0:
                self.first_malformed = self.n_records
        if self.first_at == 0:
            self.first_at = when
        self.last_at = when
        self.consumed = record_end
        return 100

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _stream_of(self, kind: cython.uint, subtype: cython.uint) -> cython.Py_ssize_t:
        """Return where a record's messages go. RFC 6396 §4.2, §4.3.4, §4.4; RFC 8050 §3, §4"""
        stream: cython.uint = 0
        if kind == _TABLE_DUMP_V2:
            stream = _AS4
            if subtype == 8 or subtype == 10:
                stream |= _ADD_PATH
        elif kind == _BGP4MP or kind == _BGP4MP_ET:
            if subtype == 4 or subtype == 7 or subtype == 9 or subtype == 11:
                stream = _AS4
            if subtype >= 8:
                stream |= _ADD_PATH
        return stream

    # ---- recorded messages: RFC 6396 §4.4 -------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_message(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, subtype: cython.uint, stream: cython.Py_ssize_t
    ) -> cython.bint:
        is_state: cython.bint = subtype == 0 or subtype == 5
        asn_octets: cython.Py_ssize_t = 4 if stream & _AS4 or subtype == 5 else 2
        if subtype == 2 or subtype == 3 or subtype > 11:
            # BGP4MP_ENTRY and BGP4MP_SNAPSHOT are of RFC 6396's drafts.
            self.n_ignored += 1
            return True
        if end - at < 2 * asn_octets + 4:
            return False
        asn: cython.uint = u32(self._in, at) if asn_octets == 4 else u16(self._in, at)
        at += 2 * asn_octets + 2
        afi: cython.uint = u16(self._in, at)
        at += 2
        address_octets: cython.Py_ssize_t = 16 if afi == 2 else 4
        if (afi != 1 and afi != 2) or end - at < 2 * address_octets:
            return False
        peer: cython.Py_ssize_t = self._peer_at(at, afi == 2, asn)
        at += 2 * address_octets
        if is_state:
            self.n_states += 1
            if peer >= 0:
                self._peer_states[peer] += 1
            return end - at >= 4
        if end - at < 19:
            return False
        size: cython.Py_ssize_t = u16(self._in, at + 16)
        if size < 19 or size > end - at:
            return False
        if self._in[at + 18] != 2:
            self.n_others += 1
            return True
        self.n_messages += 1
        if peer >= 0:
            self._peer_routes[peer] += 1
        if self.emits and (self.only < 0 or self.only == peer):
            copy_octets(self._in, at, self._octets, stream * self.capacity + self._used[stream], size)
            self._used[stream] += size
        return True

    # ---- tables: RFC 6396 §4.2, §4.3 ------------------------------------------------------------------------------

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_table(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, afi: cython.uint) -> cython.bint:
        """TABLE_DUMP: one prefix from one peer, AS numbers of two octets."""
        address_octets: cython.Py_ssize_t = 16 if afi == 2 else 4
        if (afi != 1 and afi != 2) or end - at < 14 + 2 * address_octets:
            return False
        prefix_at: cython.Py_ssize_t = at + 4
        length: cython.uint = self._in[prefix_at + address_octets]
        at = prefix_at + address_octets + 6
        peer: cython.Py_ssize_t = self._peer_at(at, afi == 2, u16(self._in, at + address_octets))
        at += address_octets + 4
        size: cython.Py_ssize_t = u16(self._in, at - 2)
        if size > end - at or length > 8 * cython.cast(cython.uint, address_octets):
            return False
        self.n_entries += 1
        return self._put_entry(peer, at, at + size, afi == 2, prefix_at, length, 0, 0)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_table_v2(
        self, at: cython.Py_ssize_t, end: cython.Py_ssize_t, subtype: cython.uint, stream: cython.Py_ssize_t
    ) -> cython.bint:
        if subtype == 1:
            return self._scan_peer_index(at, end)
        if subtype != 2 and subtype != 4 and subtype != 8 and subtype != 10:
            # Multicast, RIB_GENERIC, GEO_PEER_TABLE
            self.n_ignored += 1
            return True
        is_wide: cython.bint = subtype == 4 or subtype == 10
        if end - at < 7:
            return False
        length: cython.uint = self._in[at + 4]
        prefix_at: cython.Py_ssize_t = at + 5
        at = prefix_at + ((length + 7) >> 3)
        if length > cython.cast(cython.uint, 128 if is_wide else 32) or end - at < 2:
            return False
        n: cython.Py_ssize_t = u16(self._in, at)
        at += 2
        _: cython.Py_ssize_t
        index: cython.Py_ssize_t
        size: cython.Py_ssize_t
        fixed: cython.Py_ssize_t = 12 if stream & _ADD_PATH else 8
        path_id: cython.uint = 0
        is_good: cython.bint = True
        for _ in range(n):
            if end - at < fixed:
                return False
            index = u16(self._in, at)
            if stream & _ADD_PATH:
                path_id = u32(self._in, at + 6)
            at += fixed
            size = u16(self._in, at - 2)
            if size > end - at:
                return False
            if index >= self.n_indexed:
                is_good = False
            else:
                self.n_entries += 1
                if not self._put_entry(self._index[index], at, at + size, is_wide, prefix_at, length, path_id, stream):
                    is_good = False
            at += size
        return is_good

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _scan_peer_index(self, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """RFC 6396 §4.3.1"""
        if end - at < 8:
            return False
        at += 4
        at += 2 + u16(self._in, at)
        if end - at < 2:
            return False
        n: cython.Py_ssize_t = u16(self._in, at)
        at += 2
        i: cython.Py_ssize_t
        peer: cython.Py_ssize_t
        kind: cython.uint
        address_octets: cython.Py_ssize_t
        asn_octets: cython.Py_ssize_t
        self.n_indexed = 0
        for i in range(n):
            if end - at < 5:
                return False
            kind = self._in[at]
            at += 5
            address_octets = 16 if kind & 1 else 4
            asn_octets = 4 if kind & 2 else 2
            if end - at < address_octets + asn_octets:
                return False
            peer = self._peer_at(
                at, (kind & 1) != 0,
                u32(self._in, at + address_octets) if asn_octets == 4 else u16(self._in, at + address_octets),
            )  # fmt: skip
            at += address_octets + asn_octets
            self._index[i] = cython.cast(cython.uint, max(peer, 0))
            self.n_indexed = i + 1
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _peer_at(self, at: cython.Py_ssize_t, is_wide: cython.bint, asn: cython.uint) -> cython.Py_ssize_t:
        """Return the number of a peer, a new one if need be; -1 when there are too many."""
        hi: cython.ulonglong = u64(self._in, at) if is_wide else cython.cast(cython.ulonglong, u32(self._in, at)) << 32
        lo: cython.ulonglong = u64(self._in, at + 8) if is_wide else 0
        n_slots: cython.Py_ssize_t = self._slots.shape[0]
        slot: cython.Py_ssize_t = (
            (hi >> 32) ^ hi ^ (lo >> 11) ^ lo ^ asn * cython.cast(cython.ulonglong, 31)
        ) % n_slots
        number: cython.Py_ssize_t
        while self._slots[slot] != 0:
            number = self._slots[slot] - 1
            if (
                self._peer_hi[number] == hi
                and self._peer_lo[number] == lo
                and self._peer_asn[number] == asn
                and (self._peer_wide[number] != 0) == is_wide
            ):
                return number
            slot = (slot + 1) % n_slots
        number = self.n_peers
        if number >= N_PEERS:
            return -1
        self._slots[slot] = cython.cast(cython.uint, number + 1)
        self._peer_hi[number] = hi
        self._peer_lo[number] = lo
        self._peer_asn[number] = asn
        self._peer_wide[number] = 1 if is_wide else 0
        self.n_peers = number + 1
        return number

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_entry(
        self,
        peer: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        is_wide: cython.bint,
        prefix_at: cython.Py_ssize_t,
        length: cython.uint,
        path_id: cython.uint,
        stream: cython.Py_ssize_t,
    ) -> cython.bint:
        """Write one entry of a table as an UPDATE; False where its attributes do not fit together."""
        if peer >= 0:
            self._peer_routes[peer] += 1
        if not self.emits or (self.only >= 0 and self.only != peer):
            return True
        start: cython.Py_ssize_t = stream * self.capacity + self._used[stream]
        to: cython.Py_ssize_t = start + 23
        size: cython.Py_ssize_t
        value_at: cython.Py_ssize_t
        has_reach: cython.bint = False
        while at < end:
            if end - at < 3:
                return False
            if self._in[at] & 0x10:
                if end - at < 4:
                    return False
                value_at = at + 4
                size = u16(self._in, at + 2)
            else:
                value_at = at + 3
                size = self._in[at + 2]
            if size > end - value_at:
                return False
            if self._in[at + 1] == 14 and is_wide and not has_reach:
                to = self._put_reach(to, value_at, size, prefix_at, length, path_id, stream)
                if to < 0:
                    return False
                has_reach = True
            elif self._in[at + 1] != 14 or not is_wide:
                copy_octets(self._in, at, self._octets, to, value_at + size - at)
                to += value_at + size - at
            at = value_at + size
        if is_wide and not has_reach:
            to = self._put_placeholder(to, prefix_at, length, path_id, stream)
        size = to - start - 23
        put_u16(self._octets, start + 19, 0)
        put_u16(self._octets, start + 21, size)
        if not is_wide:
            to = self._put_prefix(to, prefix_at, length, path_id, stream)
        if to - start > 65535:
            return False
        for value_at in range(16):
            self._octets[start + value_at] = 0xFF
        put_u16(self._octets, start + 16, to - start)
        self._octets[start + 18] = 2
        self._used[stream] += to - start
        return True

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_reach(
        self,
        to: cython.Py_ssize_t,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        prefix_at: cython.Py_ssize_t,
        length: cython.uint,
        path_id: cython.uint,
        stream: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write MP_REACH_NLRI with the entry's prefix; return where it ends, -1 where it has no next hop.

        RFC 6396 §4.3.4: the attribute holds the next hop's length and the next hop alone; some collectors write the
        whole attribute, which begins with a zero.
        """
        next_hop_at: cython.Py_ssize_t = at
        if size > 4 and self._in[at] == 0:
            next_hop_at = at + 3
        if size < 1 or next_hop_at + 1 + self._in[next_hop_at] > at + size:
            return -1
        next_hop_octets: cython.Py_ssize_t = self._in[next_hop_at]
        start: cython.Py_ssize_t = to
        self._octets[to] = 0x90
        self._octets[to + 1] = 14
        put_u16(self._octets, to + 4, 2)
        self._octets[to + 6] = 1
        copy_octets(self._in, next_hop_at, self._octets, to + 7, 1 + next_hop_octets)
        to += 8 + next_hop_octets
        self._octets[to] = 0
        to = self._put_prefix(to + 1, prefix_at, length, path_id, stream)
        put_u16(self._octets, start + 2, to - start - 4)
        return to

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_placeholder(
        self,
        to: cython.Py_ssize_t,
        prefix_at: cython.Py_ssize_t,
        length: cython.uint,
        path_id: cython.uint,
        stream: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Write MP_REACH_NLRI with next hop 100::1 (RFC 6666) for an entry without: some collectors leave it out."""
        start: cython.Py_ssize_t = to
        i: cython.Py_ssize_t
        self._octets[to] = 0x90
        self._octets[to + 1] = 14
        put_u16(self._octets, to + 4, 2)
        self._octets[to + 6] = 1
        self._octets[to + 7] = 16
        for i in range(17):
            self._octets[to + 8 + i] = 0
        self._octets[to + 8] = 1
        self._octets[to + 23] = 1
        to = self._put_prefix(to + 25, prefix_at, length, path_id, stream)
        put_u16(self._octets, start + 2, to - start - 4)
        return to

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put_prefix(
        self,
        to: cython.Py_ssize_t,
        prefix_at: cython.Py_ssize_t,
        length: cython.uint,
        path_id: cython.uint,
        stream: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        if stream & _ADD_PATH:
            put_u16(self._octets, to, path_id >> 16)
            put_u16(self._octets, to + 2, path_id & 0xFFFF)
            to += 4
        self._octets[to] = cython.cast(cython.uchar, length)
        copy_octets(self._in, prefix_at, self._octets, to + 1, (length + 7) >> 3)
        return to + 1 + ((length + 7) >> 3)


def rewrite_sets(
    set_offset: cython.const[cython.uint][::1],
    set_octets: cython.const[cython.uchar][::1],
    next_hop: cython.const[cython.uchar][::1],
    asn: cython.uint,
    how: cython.uint,
):
    """Return (set_offset, set_octets) with another next hop, and with AS number `asn` first in every path.

    how: REPLACE the first AS number by it (where the path begins with a set, put it before), PREPEND it, or KEEP paths.
    """
    if not cython.compiled:
        next_hop = memoryview(next_hop)
    n: cython.Py_ssize_t = set_offset.shape[0] - 1
    offset_column = np.zeros(n + 1, np.uint32)
    # A path grows by six octets at most, and its length by one; a next hop by its own.
    octets_column = np.empty(set_octets.shape[0] + n * (8 + next_hop.shape[0]) + 1, np.uint8)
    offset: cython.uint[::1] = memoryview(offset_column)
    out: cython.uchar[::1] = memoryview(octets_column)
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.Py_ssize_t
    header: cython.Py_ssize_t
    to: cython.Py_ssize_t = 0
    with cython.nogil:
        for i in range(n):
            at = set_offset[i]
            end = set_offset[i + 1]
            out[to] = cython.cast(cython.uchar, next_hop.shape[0])
            copy_octets(next_hop, 0, out, to + 1, next_hop.shape[0])
            to += 1 + next_hop.shape[0]
            if at < end:
                at += 1 + set_octets[at]
            while at + 3 <= end:
                header = 4 if set_octets[at] & 0x10 else 3
                size = u16(set_octets, at + 2) if header == 4 else set_octets[at + 2]
                if at + header + size > end:
                    break
                if set_octets[at + 1] == 2 and how != 0:
                    to = put_path(set_octets, at + header, at + header + size, out, to, asn, how)
                else:
                    copy_octets(set_octets, at, out, to, header + size)
                    to += header + size
                at += header + size
            offset[i + 1] = cython.cast(cython.uint, to)
    return offset_column, octets_column[:to].copy()


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def put_path(
    octets: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    out: cython.uchar[::1],
    to: cython.Py_ssize_t,
    asn: cython.uint,
    how: cython.uint,
) -> cython.Py_ssize_t:
    """Write AS_PATH with another first AS number; return where it ends."""
    is_sequence: cython.bint = end - at >= 6 and octets[at] == 2 and octets[at + 1] > 0
    size: cython.Py_ssize_t = end - at
    rest: cython.Py_ssize_t = at
    n: cython.Py_ssize_t = 1
    if is_sequence and how == _REPLACE:
        n = octets[at + 1]
        rest = at + 6
    elif is_sequence and octets[at + 1] < 255:
        n = octets[at + 1] + 1
        rest = at + 2
        size += 4
    else:
        size += 6
    if size > 255:
        out[to] = 0x50
        out[to + 1] = 2
        put_u16(out, to + 2, size)
        to += 4
    else:
        out[to] = 0x40
        out[to + 1] = 2
        out[to + 2] = cython.cast(cython.uchar, size)
        to += 3
    out[to] = 2
    out[to + 1] = cython.cast(cython.uchar, n)
    put_u16(out, to + 2, asn >> 16)
    put_u16(out, to + 4, asn & 0xFFFF)
    copy_octets(octets, rest, out, to + 6, end - rest)
    return to + 6 + end - rest


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
