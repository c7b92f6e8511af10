"""The kernel's route messages as columns: route requests written, replies and route messages read.

Owns the octets of RTM_NEWROUTE and RTM_DELROUTE, written exactly as iproute2 writes them, and of what comes back:
acknowledgements (NLMSG_ERROR) and the routes of dumps and notifications. Never opens a socket, never knows why a
route is wanted. Requests for nexthop objects, links and dumps are few and are made in `stages/fib/messages.py`.

A *way* says where the packets of a route go. Here it is a type (RTN_UNICAST, ...), flags and the octets of attributes
that are appended to the message as they are: RTA_NH_ID, or RTA_GATEWAY and RTA_OIF.

Netlink is in the machine's byte order; this file writes little-endian, as all machines Headrace runs on are.
Sources: rtnetlink(7), netlink(7), include/uapi/linux/rtnetlink.h; RFC 3549 §2.
"""

import cython
import numpy as np

INSTALL, REPLACE, REMOVE = 1, 2, 3  # actions on one route, as in the column `actions`
WAY_OCTETS = 256  # room for the attributes of one way: eight IPv6 gateways in RTA_MULTIPATH

WAY_STRIDE = cython.declare(cython.Py_ssize_t, 256)

ACKNOWLEDGE = cython.declare(cython.uint, 0x04)  # NLM_F_ACK
REQUEST_INSTALL = cython.declare(cython.uint, 0x601)  # NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL
REQUEST_REPLACE = cython.declare(cython.uint, 0x501)  # NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE
REQUEST_REMOVE = cython.declare(cython.uint, 0x001)  # NLM_F_REQUEST
NEW_ROUTE = cython.declare(cython.uint, 24)  # RTM_NEWROUTE
DEL_ROUTE = cython.declare(cython.uint, 25)  # RTM_DELROUTE
NLMSG_ERROR = cython.declare(cython.uint, 2)
NLMSG_DONE = cython.declare(cython.uint, 3)
AF_INET = cython.declare(cython.uint, 2)
AF_INET6 = cython.declare(cython.uint, 10)
SCOPE_NOWHERE = cython.declare(cython.uint, 255)

LOW32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
ALIGNED = cython.declare(cython.uint, 0xFFFFFFFC)  # lengths are rounded up to multiples of four

EXTENDED_COMMUNITIES = cython.declare(cython.uint, 16)  # the path attribute's code

RTA_DST = cython.declare(cython.uint, 1)
RTA_OIF = cython.declare(cython.uint, 4)
RTA_GATEWAY = cython.declare(cython.uint, 5)
RTA_PRIORITY = cython.declare(cython.uint, 6)
RTA_MULTIPATH = cython.declare(cython.uint, 9)
RTA_TABLE = cython.declare(cython.uint, 15)
RTA_VIA = cython.declare(cython.uint, 18)
RTA_NH_ID = cython.declare(cython.uint, 30)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_u16(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    out[at] = value & 255
    out[at + 1] = (value >> 8) & 255


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_u32(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    out[at] = value & 255
    out[at + 1] = (value >> 8) & 255
    out[at + 2] = (value >> 16) & 255
    out[at + 3] = (value >> 24) & 255


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_network_order(
    out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.ulonglong, n_octets: cython.Py_ssize_t
) -> cython.void:
    """Write the first `n_octets` of a left-aligned address half."""
    i: cython.Py_ssize_t
    for i in range(n_octets):
        out[at + i] = cython.cast(cython.uchar, (value >> (56 - 8 * i)) & 255)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_u16(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return cython.cast(cython.uint, octets[at]) | (cython.cast(cython.uint, octets[at + 1]) << 8)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_u32(octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.uint:
    return get_u16(octets, at) | (get_u16(octets, at + 2) << 16)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def get_network_order(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, n_octets: cython.Py_ssize_t
) -> cython.ulonglong:
    """Read `n_octets` (at most 8) as a left-aligned address half."""
    value: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(n_octets):
        value |= cython.cast(cython.ulonglong, octets[at + i]) << (56 - 8 * i)
    return value


def request_limit(n_routes: int, common) -> int:
    """Return how many octets `write_requests` may need for `n_routes`."""
    return n_routes * (16 + 12 + 20 + len(common) + WAY_OCTETS)


def write_requests(
    out: cython.uchar[::1],
    first_sequence: cython.uint,
    is_wide: cython.bint,
    header: cython.const[cython.uchar][::1],
    common: cython.const[cython.uchar][::1],
    actions: cython.const[cython.uchar][::1],
    hi: cython.const[cython.ulonglong][::1],
    lo: cython.const[cython.ulonglong][::1],
    length: cython.const[cython.uchar][::1],
    ways: cython.const[cython.uint][::1],
    way_type: cython.const[cython.uchar][::1],
    way_flags: cython.const[cython.uint][::1],
    way_length: cython.const[cython.uchar][::1],
    way_octets: cython.const[cython.uchar][::1],
) -> int:
    """Write one request a route into `out` and return the number of octets written.

    The request of route `i` has sequence number `first_sequence + i`. Only the last asks for an acknowledgement: the
    kernel works through a datagram in order and answers each request that fails whether asked to or not, so one
    acknowledgement says that all others succeeded.

    header: the 12 octets of struct rtmsg; family, table and protocol are used as they are, the rest is filled in.
    common: attributes of every request that come after the destination (RTA_TABLE, RTA_PRIORITY).
    ways: for each route an index into the columns of ways; not looked at where it is removed.
    way_type, way_flags, way_length, way_octets: for each way the type, the flags and the attributes: `way_length[w]`
        octets from `way_octets[256 * w]`.
    lo: empty for IPv4. out: room for `request_limit` octets.
    """
    n: cython.Py_ssize_t = actions.shape[0]
    i: cython.Py_ssize_t
    j: cython.Py_ssize_t
    start: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    flags: cython.uint
    way: cython.uint
    is_removal: cython.bint
    with cython.nogil:
        for i in range(n):
            start = at
            is_removal = actions[i] == 3
            flags = REQUEST_REMOVE if is_removal else REQUEST_INSTALL if actions[i] == 1 else REQUEST_REPLACE
            if i == n - 1:
                flags |= ACKNOWLEDGE
            put_u16(out, at + 4, DEL_ROUTE if is_removal else NEW_ROUTE)
            put_u16(out, at + 6, flags)
            put_u32(out, at + 8, cython.cast(cython.uint, (first_sequence + i) & LOW32))
            put_u32(out, at + 12, 0)
            for j in range(12):
                out[at + 16 + j] = header[j]
            out[at + 17] = length[i]
            at += 28
            if is_wide:
                put_u16(out, at, 20)
                put_u16(out, at + 2, RTA_DST)
                put_network_order(out, at + 4, hi[i], 8)
                put_network_order(out, at + 12, lo[i], 8)
                at += 20
            else:
                put_u16(out, at, 8)
                put_u16(out, at + 2, RTA_DST)
                put_network_order(out, at + 4, hi[i], 4)
                at += 8
            for j in range(common.shape[0]):
                out[at + j] = common[j]
            at += common.shape[0]
            if is_removal:
                # As iproute2: any scope of an IPv4 route, and any type.
                out[start + 22] = 0 if is_wide else SCOPE_NOWHERE
                out[start + 23] = 0
            else:
                way = ways[i]
                out[start + 22] = 0
                out[start + 23] = way_type[way]
                put_u32(out, start + 24, way_flags[way])
                for j in range(way_length[way]):
                    out[at + j] = way_octets[way * WAY_STRIDE + j]
                at += way_length[way]
            put_u32(out, start, cython.cast(cython.uint, at - start))
    return at


def scan_replies(
    octets: cython.const[cython.uchar][::1],
    slot_octets: cython.Py_ssize_t,
    lengths: cython.const[cython.uint][::1],
    first_sequence: cython.uint,
    errors: cython.int[::1],
) -> int:
    """Read replies to requests `first_sequence` and following, one datagram a slot; return how many were found.

    octets: slots of `slot_octets` each, slot `k` filled with `lengths[k]` octets.
    errors: one item a request; set to the errno of its reply (0: acknowledged). Others keep their value, so a caller
        that writes -1 into the last beforehand sees whether all is answered.
    """
    n_found: cython.Py_ssize_t = 0
    slot: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.uint
    index: cython.uint
    with cython.nogil:
        for slot in range(lengths.shape[0]):
            at = slot * slot_octets
            end = at + lengths[slot]
            while end - at >= 16:
                size = get_u32(octets, at)
                if size < 16 or size > end - at:
                    break
                index = cython.cast(cython.uint, (get_u32(octets, at + 8) - first_sequence) & LOW32)
                if get_u16(octets, at + 4) == NLMSG_ERROR and size >= 20 and index < errors.shape[0]:
                    errors[index] = cython.cast(cython.int, (0 - get_u32(octets, at + 16)) & 0x7FFFFFFF)
                    n_found += 1
                at += (size + 3) & ALIGNED
    return n_found


@cython.cclass
class RouteScan:
    """Routes read from dumps and notifications: one growing set of columns, reused.

    Columns (numpy arrays, the first `n` items count): message (RTM_NEWROUTE or RTM_DELROUTE), family (address family),
    hi, lo, length, table, protocol, type, flags, metric, oif, nexthop_id (0: none), gateway_hi, gateway_lo,
    gateway_family (0: none), n_hops (of RTA_MULTIPATH; its first hop is in the gateway and oif columns), port (the
    netlink port id of the program that caused it), header_flags (NLM_F_REPLACE: the route replaced another).
    """

    n: cython.Py_ssize_t
    _is_ended: cython.bint
    _error: cython.int
    _n_others: cython.Py_ssize_t
    _columns: dict
    _u8: cython.uchar[:, ::1]
    _u32: cython.uint[:, ::1]
    _u64: cython.ulonglong[:, ::1]

    U8 = ("family", "length", "protocol", "type", "gateway_family", "message", "n_hops")
    U32 = ("table", "flags", "metric", "oif", "nexthop_id", "port", "header_flags")
    U64 = ("hi", "lo", "gateway_hi", "gateway_lo")

    def __init__(self, capacity: int = 1024):
        self.n = 0
        self._is_ended = False
        self._error = 0
        self._n_others = 0
        self._reserve(capacity)

    def __getattr__(self, name: str):
        try:
            return self._columns[name][: self.n]
        except KeyError:
            raise AttributeError(name) from None

    def __len__(self) -> int:
        return self.n

    @property
    def is_ended(self) -> bool:
        """Whether the end of a dump was read (NLMSG_DONE), or an error instead of one."""
        return bool(self._is_ended)

    @property
    def error(self) -> int:
        """The errno a dump ended with, 0: complete."""
        return self._error

    @property
    def n_others(self) -> int:
        """Messages about other things than routes that were passed over."""
        return self._n_others

    def clear(self) -> None:
        """Forget what was read so far."""
        self.n = 0
        self._is_ended = False
        self._error = 0
        self._n_others = 0

    def scan(
        self,
        octets: cython.const[cython.uchar][::1],
        slot_octets: cython.Py_ssize_t,
        lengths: cython.const[cython.uint][::1],
    ) -> int:
        """Append the routes of datagrams laid out as for `scan_replies`; return how many there were.

        Other messages, cached routes (RTM_F_CLONED) and whatever is cut short are passed over.
        """
        slot: cython.Py_ssize_t
        total: cython.Py_ssize_t = 0
        for slot in range(lengths.shape[0]):
            total += lengths[slot] // 28
        if self.n + total > self._u8.shape[1]:
            self._reserve(max(self.n + total, 2 * self._u8.shape[1]))
        before: cython.Py_ssize_t = self.n
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        size: cython.uint
        kind: cython.uint
        with cython.nogil:
            for slot in range(lengths.shape[0]):
                at = slot * slot_octets
                end = at + lengths[slot]
                while end - at >= 16:
                    size = get_u32(octets, at)
                    if size < 16 or size > end - at:
                        break
                    kind = get_u16(octets, at + 4)
                    if (kind == NEW_ROUTE or kind == DEL_ROUTE) and size >= 28:
                        self._route(octets, at, at + size)
                    elif kind == NLMSG_DONE or kind == NLMSG_ERROR:
                        self._is_ended = True
                        if size >= 20:
                            self._error = cython.cast(cython.int, (0 - get_u32(octets, at + 16)) & 0x7FFFFFFF)
                    else:
                        self._n_others += 1
                    at += (size + 3) & ALIGNED
        return self.n - before

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _route(
        self, octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.void:
        """Read one message of at least 28 octets."""
        n: cython.Py_ssize_t = self.n
        family: cython.uint = octets[at + 16]
        if (family != AF_INET and family != AF_INET6) or (get_u32(octets, at + 24) & 0x200) != 0:
            return
        if octets[at + 17] > (32 if family == AF_INET else 128):
            return
        i: cython.Py_ssize_t
        for i in range(7):
            self._u32[i, n] = 0
        for i in range(4):
            self._u64[i, n] = 0
        self._u8[0, n] = cython.cast(cython.uchar, family)
        self._u8[1, n] = octets[at + 17]
        self._u8[2, n] = octets[at + 21]
        self._u8[3, n] = octets[at + 23]
        self._u8[4, n] = 0
        self._u8[5, n] = octets[at + 4]
        self._u8[6, n] = 0
        self._u32[0, n] = octets[at + 20]
        self._u32[1, n] = get_u32(octets, at + 24)
        self._u32[5, n] = get_u32(octets, at + 12)
        self._u32[6, n] = get_u16(octets, at + 6)
        self._attributes(octets, at + 28, end, family)
        self.n += 1

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _attributes(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        family: cython.uint,
    ) -> cython.void:
        n: cython.Py_ssize_t = self.n
        size: cython.uint
        kind: cython.uint
        value: cython.Py_ssize_t
        n_octets: cython.Py_ssize_t
        while end - at >= 4:
            size = get_u16(octets, at)
            kind = get_u16(octets, at + 2) & 0x3FFF
            if size < 4 or size > end - at:
                return
            value = at + 4
            n_octets = size - 4
            if kind == RTA_DST:
                self._u64[0, n] = get_network_order(octets, value, min(n_octets, 8))
                if n_octets == 16:
                    self._u64[1, n] = get_network_order(octets, value + 8, 8)
            elif kind == RTA_GATEWAY:
                self._gateway(octets, value, n_octets, family)
            elif kind == RTA_VIA and n_octets >= 2:
                self._gateway(octets, value + 2, n_octets - 2, get_u16(octets, value))
            elif kind == RTA_MULTIPATH:
                self._hops(octets, value, value + n_octets, family)
            elif n_octets == 4:
                if kind == RTA_TABLE:
                    self._u32[0, n] = get_u32(octets, value)
                elif kind == RTA_PRIORITY:
                    self._u32[2, n] = get_u32(octets, value)
                elif kind == RTA_OIF:
                    self._u32[3, n] = get_u32(octets, value)
                elif kind == RTA_NH_ID:
                    self._u32[4, n] = get_u32(octets, value)
            at += (size + 3) & ALIGNED

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _gateway(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        n_octets: cython.Py_ssize_t,
        family: cython.uint,
    ) -> cython.void:
        if (family == AF_INET and n_octets == 4) or (family == AF_INET6 and n_octets == 16):
            self._u8[4, self.n] = cython.cast(cython.uchar, family)
            self._u64[2, self.n] = get_network_order(octets, at, min(n_octets, 8))
            if n_octets == 16:
                self._u64[3, self.n] = get_network_order(octets, at + 8, 8)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _hops(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        family: cython.uint,
    ) -> cython.void:
        """Count the hops of RTA_MULTIPATH (struct rtnexthop: length, flags, weight, interface), read the first."""
        size: cython.uint
        while end - at >= 8:
            size = get_u16(octets, at)
            if size < 8 or size > end - at:
                return
            if self._u8[6, self.n] == 0:
                self._u32[3, self.n] = get_u32(octets, at + 4)
                self._first_hop(octets, at + 8, at + size, family)
            if self._u8[6, self.n] < 255:
                self._u8[6, self.n] += 1
            at += (size + 3) & ALIGNED

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _first_hop(
        self,
        octets: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        family: cython.uint,
    ) -> cython.void:
        size: cython.uint
        kind: cython.uint
        while end - at >= 4:
            size = get_u16(octets, at)
            kind = get_u16(octets, at + 2) & 0x3FFF
            if size < 4 or size > end - at:
                return
            if kind == RTA_GATEWAY:
                self._gateway(octets, at + 4, size - 4, family)
            elif kind == RTA_VIA and size >= 6:
                self._gateway(octets, at + 6, size - 6, get_u16(octets, at + 4))
            at += (size + 3) & ALIGNED

    @cython.cfunc
    def _reserve(self, capacity: cython.Py_ssize_t):
        u8 = np.zeros((len(self.U8), capacity), np.uint8)
        u32 = np.zeros((len(self.U32), capacity), np.uint32)
        u64 = np.zeros((len(self.U64), capacity), np.uint64)
        for names, larger in ((self.U8, u8), (self.U32, u32), (self.U64, u64)):
            for i, name in enumerate(names):
                if self.n:
                    larger[i, : self.n] = self._columns[name][: self.n]
        self._columns = {
            name: column
            for names, columns in ((self.U8, u8), (self.U32, u32), (self.U64, u64))
            for name, column in zip(names, columns, strict=True)
        }
        self._u8 = memoryview(u8)
        self._u32 = memoryview(u32)
        self._u64 = memoryview(u64)


def next_hops(set_offset: cython.const[cython.uint][::1], set_octets: cython.const[cython.uchar][::1]):
    """Return the next hop of each attribute set as (hi, lo, length in bits); length 0 where a set has none.

    A set begins with the number of octets of its next hop and the next hop (0, 4, 16 or 32 octets; of 32, a global
    and a link-local address, RFC 2545 §3, the first counts, unless it is ::). An IPv4-mapped address counts as the
    IPv4 address.
    """
    n: cython.Py_ssize_t = set_offset.shape[0] - 1
    hi_column, lo_column, length_column = np.zeros(n, np.uint64), np.zeros(n, np.uint64), np.zeros(n, np.uint8)
    hi: cython.ulonglong[::1] = memoryview(hi_column)
    lo: cython.ulonglong[::1] = memoryview(lo_column)
    length: cython.uchar[::1] = memoryview(length_column)
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    size: cython.uint
    with cython.nogil:
        for i in range(n):
            at = set_offset[i]
            if at >= set_offset[i + 1]:
                continue
            size = octets_of_next_hop(set_octets[at])
            if size == 0 or at + 1 + size > set_offset[i + 1]:
                continue
            if size == 4:
                hi[i] = get_network_order(set_octets, at + 1, 4)
                length[i] = 32
                continue
            hi[i] = get_network_order(set_octets, at + 1, 8)
            lo[i] = get_network_order(set_octets, at + 9, 8)
            length[i] = 128
            if hi[i] == 0 and lo[i] == 0 and set_octets[at] == 32 and at + 33 <= set_offset[i + 1]:
                hi[i] = get_network_order(set_octets, at + 17, 8)
                lo[i] = get_network_order(set_octets, at + 25, 8)
            if hi[i] == 0 and (lo[i] >> 32) == 0xFFFF:
                hi[i] = (lo[i] & LOW32) << 32
                lo[i] = 0
                length[i] = 32
    return hi_column, lo_column, length_column


def link_bandwidths(set_offset: cython.const[cython.uint][::1], set_octets: cython.const[cython.uchar][::1]):
    """Return the bandwidth each attribute set tells (uint64, in units of 1024 octets a second), 0 where it tells none.

    The Link Bandwidth extended community (draft-ietf-idr-link-bandwidth §2): 0x4004 or 0x0004, an AS number, octets a
    second as an IEEE float of 32 bits. What is told counts as at least 1 and at most 2**32 - 1.
    """
    n: cython.Py_ssize_t = set_offset.shape[0] - 1
    result = np.zeros(n, np.uint64)
    bandwidth: cython.ulonglong[::1] = memoryview(result)
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t
    end: cython.Py_ssize_t
    size: cython.Py_ssize_t
    code: cython.uint
    with cython.nogil:
        for i in range(n):
            at = set_offset[i]
            end = set_offset[i + 1]
            if at >= end:
                continue
            at += 1 + set_octets[at]
            while at + 3 <= end:
                code = set_octets[at + 1]
                if set_octets[at] & 0x10:
                    if at + 4 > end:
                        break
                    size = (cython.cast(cython.Py_ssize_t, set_octets[at + 2]) << 8) | set_octets[at + 3]
                    at += 4
                else:
                    size = set_octets[at + 2]
                    at += 3
                if at + size > end or code > EXTENDED_COMMUNITIES:
                    break
                if code == EXTENDED_COMMUNITIES:
                    bandwidth[i] = bandwidth_among(set_octets, at, at + size)
                at += size
    return result


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def bandwidth_among(
    octets: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.ulonglong:
    """Return the bandwidth that the first community of that kind in a row of eight-octet ones tells, 0 for none."""
    bits: cython.uint
    exponent: cython.uint
    mantissa: cython.ulonglong
    while at + 8 <= end:
        if octets[at] & 0xBF == 0 and octets[at + 1] == 4:
            bits = cython.cast(cython.uint, get_network_order(octets, at + 4, 4) >> 32)
            exponent = (bits >> 23) & 0xFF
            mantissa = (bits & 0x7FFFFF) | 0x800000
            # The value is mantissa * 2**(exponent - 150); negative ones and no numbers are no bandwidth.
            if bits >> 31 or exponent == 0 or exponent == 255:
                return 0
            if exponent >= 169:
                return LOW32
            if exponent < 160:
                mantissa = mantissa >> (160 - exponent) if exponent > 136 else 0
            else:
                mantissa = mantissa << (exponent - 160)
            return 1 if mantissa == 0 else mantissa
        at += 8
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def octets_of_next_hop(length: cython.uint) -> cython.uint:
    """Return how many octets of a next hop field are looked at; 0 for a field of no known form."""
    if length == 4:
        return 4
    if length == 16 or length == 32:
        return 16
    return 0


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
