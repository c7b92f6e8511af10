"""Makes the columns of synthetic tables: prefixes that are all different, and attribute sets, one after the other.

Owns two generators of random numbers and a counter for each prefix length, so a table of any size is made a piece at a
time in the same memory. Never looks at what it has made: the n-th network of a length is a function of n (an affine
permutation of blocks of eight neighboring networks), so none comes twice.

Prefixes stay clear of what the IANA IPv4 and IPv6 Special-Purpose Address Registries hold (RFC 6890).
"""

import cython
import numpy as np

from common.arrays import allocate

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
GOLDEN = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
MIX1 = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
MIX2 = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
# IPv4: from 1.0.0.0 on 223 networks of 8 bits. IPv6: from 2400:: on 0x610 networks of 16 bits.
IPV4_FIRST = cython.declare(cython.ulonglong, 1)
IPV4_COUNT = cython.declare(cython.ulonglong, 223)
IPV6_FIRST = cython.declare(cython.ulonglong, 0x2400)
IPV6_COUNT = cython.declare(cython.ulonglong, 0x610)
# Networks of one length stand side by side in blocks of this many.
BLOCK_BITS = cython.declare(cython.ulonglong, 3)
SHORTEST = 19  # of IPv6; IPv4: 11
LONGEST_SET = cython.declare(cython.Py_ssize_t, 17 + 4 + 5 + 4 * 18 + 7 + 3 + 4 * 8)

RESERVED_IPV4 = (
    (0x0A000000, 8), (0x7F000000, 8), (0xA9FE0000, 16), (0xAC100000, 12), (0xC0A80000, 16), (0x64400000, 10),
    (0xC0000000, 22), (0xC6120000, 15), (0xC6336400, 24), (0xCB007100, 24), (0xC0586300, 24), (0xDFFF0000, 16),
)  # fmt: skip


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def mixed(value: cython.ulonglong) -> cython.ulonglong:
    """Scatter a number over 64 bits (the finalizer of splitmix64)."""
    value = ((value ^ (value >> 30)) * MIX1) & MASK64
    value = ((value ^ (value >> 27)) * MIX2) & MASK64
    return value ^ (value >> 31)


@cython.final
@cython.cclass
class PrefixMaker:
    """Makes the prefixes of one family, in runs that are meant to share an attribute set."""

    is_wide: cython.bint
    n_scanned: cython.longlong
    state: cython.ulonglong
    variant: cython.ulonglong
    run: cython.ulonglong
    is_wanted: cython.bint
    run_chance: cython.uint
    longest: cython.uint
    share: cython.uint
    _lengths: cython.const[cython.uchar][::1]
    _next: cython.ulonglong[::1]
    _stride: cython.ulonglong[::1]
    _shift: cython.ulonglong[::1]
    _reserved: cython.ulonglong[::1]
    _reserved_bits: cython.ulonglong[::1]
    _has_reserved: cython.uchar[::1]

    def __init__(
        self,
        is_wide: bool,
        seed: int,
        lengths: cython.const[cython.uchar][::1],
        run_chance: int = 12850,
        share: int = 65536,
        variant: int = 0,
    ):
        """Begin a table.

        lengths: 65536 prefix lengths, from which each prefix draws one (IPv4: 11 to 32, IPv6: 19 to 64).
        run_chance: of 65536, how likely a prefix begins a new run. share: of 65536, how many of the runs belong to
        this table; which ones depends on `variant`.
        """
        if lengths.shape[0] != 65536:
            raise ValueError("65536 lengths are needed")
        self.is_wide = is_wide
        self._lengths = lengths
        self.run_chance = run_chance
        self.share = share
        self.variant = (variant * 0x632BE59BD9B4E019) & 0xFFFFFFFFFFFFFFFF
        self.state = (seed * 0x2545F4914F6CDD1D + 77) & 0xFFFFFFFFFFFFFFFF
        self.run = 0
        self.is_wanted = share == 65536
        self.n_scanned = 0
        self._next = memoryview(allocate(65, np.uint64))
        self._stride = memoryview(allocate(65, np.uint64))
        self._shift = memoryview(allocate(65, np.uint64))
        self.longest = 64 if is_wide else 32
        self._begin_lengths(SHORTEST if is_wide else SHORTEST - 8, 64 if is_wide else 32)
        self._begin_reserved()

    def _begin_lengths(self, shortest: cython.uint, longest: cython.uint) -> None:
        i: cython.Py_ssize_t
        for i in range(65536):
            if not shortest <= self._lengths[i] <= longest:
                raise ValueError(f"no networks of length {self._lengths[i]} are made")
        for length in range(shortest, longest + 1):
            stride: cython.ulonglong = mixed((self.state + length) & MASK64) >> 33 | 1
            # Coprime with the number of blocks, which is 223 or 97 times a power of two.
            while stride % 223 == 0 or stride % 97 == 0:
                stride += 2
            self._stride[length] = stride
            self._shift[length] = mixed((self.state ^ GOLDEN) + length & MASK64) % self._n_blocks(length)

    def _begin_reserved(self) -> None:
        self._reserved = memoryview(allocate(len(RESERVED_IPV4), np.uint64))
        self._reserved_bits = memoryview(allocate(len(RESERVED_IPV4), np.uint64))
        self._has_reserved = memoryview(allocate(256, np.uint8))
        for i, (network, bits) in enumerate(RESERVED_IPV4):
            self._reserved[i] = network << 32
            self._reserved_bits[i] = bits
            self._has_reserved[network >> 24] = 1

    @property
    def scanned(self) -> int:
        """Prefixes made so far, with those of runs that belong to other tables."""
        return self.n_scanned

    def make(self, limit: cython.Py_ssize_t, pool: cython.longlong):
        """Return (hi, length, set, n_sets) of the next `limit` prefixes, fewer when `pool` are scanned in all.

        hi: uint64, the networks; length: uint8; set: uint32, the number of each one's run, from 0.
        """
        hi_column = np.empty(limit, np.uint64)
        length_column = np.empty(limit, np.uint8)
        set_column = np.empty(limit, np.uint32)
        hi: cython.ulonglong[::1] = memoryview(hi_column)
        length: cython.uchar[::1] = memoryview(length_column)
        sets: cython.uint[::1] = memoryview(set_column)
        n: cython.Py_ssize_t = 0
        n_sets: cython.uint = 0
        is_new: cython.bint = True
        bits: cython.uint
        random: cython.ulonglong
        network: cython.ulonglong
        with cython.nogil:
            while n < limit and self.n_scanned < pool:
                self.state = (self.state + GOLDEN) & MASK64
                random = mixed(self.state)
                bits = self._lengths[random & 0xFFFF]
                if ((random >> 16) & 0xFFFF) < self.run_chance:
                    is_new = True
                    self.run += 1
                    self.is_wanted = (
                        self.share > 65535 or (mixed((self.run * GOLDEN ^ self.variant) & MASK64) & 0xFFFF) < self.share
                    )
                bits = self._with_room(bits)
                if bits == 0:
                    break
                network = self._next_network(bits)
                if network == 0:
                    continue
                self.n_scanned += 1
                if not self.is_wanted:
                    continue
                if is_new:
                    n_sets += 1
                    is_new = False
                hi[n] = network
                length[n] = bits
                sets[n] = n_sets - 1
                n += 1
        return hi_column[:n], length_column[:n], set_column[:n], n_sets

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _n_blocks(self, length: cython.uint) -> cython.ulonglong:
        if self.is_wide:
            return IPV6_COUNT << (length - 16 - BLOCK_BITS)
        return IPV4_COUNT << (length - 8 - BLOCK_BITS)

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _next_network(self, length: cython.uint) -> cython.ulonglong:
        """Return the next network of a length, 0 when the last ones were reserved."""
        index: cython.ulonglong
        block: cython.ulonglong
        network: cython.ulonglong
        first: cython.ulonglong = IPV6_FIRST << (length - 16) if self.is_wide else IPV4_FIRST << (length - 8)
        while self._next[length] < self._n_blocks(length) << BLOCK_BITS:
            index = self._next[length]
            self._next[length] = index + 1
            block = ((index >> BLOCK_BITS) * self._stride[length] + self._shift[length]) % self._n_blocks(length)
            network = (first + (block << BLOCK_BITS) + (index & 7)) << (64 - length)
            if self.is_wide or not self._is_reserved(network, length):
                return network
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _with_room(self, length: cython.uint) -> cython.uint:
        """Return a length of which there are networks left, the same or a longer one; 0 when there is none."""
        while self._next[length] >= self._n_blocks(length) << BLOCK_BITS:
            length += 1
            if length > self.longest:
                return 0
        return length

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _is_reserved(self, network: cython.ulonglong, length: cython.uint) -> cython.bint:
        i: cython.Py_ssize_t
        shift: cython.ulonglong
        if self._has_reserved[network >> 56] == 0:
            return False
        for i in range(self._reserved.shape[0]):
            shift = 64 - min(cython.cast(cython.ulonglong, length), self._reserved_bits[i])
            if (network >> shift) == (self._reserved[i] >> shift):
                return True
        return False


@cython.final
@cython.cclass
class SetMaker:
    """Makes attribute sets: ORIGIN, an AS_PATH that begins with the neighbor's AS, MULTI_EXIT_DISC, COMMUNITIES."""

    state: cython.ulonglong
    asn: cython.uint
    head: cython.const[cython.uchar][::1]
    _path_lengths: cython.const[cython.uchar][::1]
    _pool: cython.const[cython.uint][::1]

    def __init__(
        self,
        seed: int,
        asn: int,
        next_hop: cython.const[cython.uchar][::1],
        path_lengths: cython.const[cython.uchar][::1],
        pool: cython.const[cython.uint][::1],
    ):
        """path_lengths: 256 numbers of AS hops to draw from (1 to 15); pool: AS numbers to draw from."""
        if not cython.compiled:
            next_hop = memoryview(next_hop)
        if path_lengths.shape[0] != 256 or pool.shape[0] == 0 or next_hop.shape[0] > 16:
            raise ValueError("256 path lengths, AS numbers and a next hop are needed")
        self.state = (seed * 0x2545F4914F6CDD1D + 99) & 0xFFFFFFFFFFFFFFFF
        self.asn = asn
        self.head = memoryview(next_hop)
        self._path_lengths = path_lengths
        self._pool = pool

    def make(self, n_sets: cython.Py_ssize_t):
        """Return (set_offset, set_octets) of the next sets, each with its next hop in front."""
        offset_column = np.zeros(n_sets + 1, np.uint32)
        octets_column = np.empty(n_sets * LONGEST_SET, np.uint8)
        offset: cython.uint[::1] = memoryview(offset_column)
        octets: cython.uchar[::1] = memoryview(octets_column)
        to: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n_sets):
                to = self._put(octets, to)
                offset[i + 1] = cython.cast(cython.uint, to)
        return offset_column, octets_column[:to].copy()

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(check=False)
    def _draw(self) -> cython.ulonglong:
        self.state = (self.state + GOLDEN) & MASK64
        return mixed(self.state)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _put(self, out: cython.uchar[::1], to: cython.Py_ssize_t) -> cython.Py_ssize_t:
        random: cython.ulonglong = self._draw()
        i: cython.Py_ssize_t
        _: cython.Py_ssize_t
        n_hops: cython.Py_ssize_t = self._path_lengths[random & 0xFF]
        # One path in seven ends with its origin prepended, one to three times.
        n_prepended: cython.Py_ssize_t = 0
        n_communities: cython.Py_ssize_t = (random >> 8) & 7
        if n_hops > 1 and ((random >> 16) & 0xFF) < 37:
            n_prepended = 1 + ((random >> 24) & 0xFF) % 3
        out[to] = cython.cast(cython.uchar, self.head.shape[0])
        to += 1
        for i in range(self.head.shape[0]):
            out[to + i] = self.head[i]
        to += self.head.shape[0]
        out[to] = 0x40
        out[to + 1] = 1
        out[to + 2] = 1
        out[to + 3] = 2 if ((random >> 32) & 0xFF) < 20 else 0  # ORIGIN INCOMPLETE for one in twelve
        out[to + 4] = 0x40
        out[to + 5] = 2
        out[to + 6] = cython.cast(cython.uchar, 2 + 4 * (n_hops + n_prepended))
        out[to + 7] = 2
        out[to + 8] = cython.cast(cython.uchar, n_hops + n_prepended)
        to += 9
        put_u32(out, to, self.asn)
        to += 4
        for _ in range(1, n_hops):
            put_u32(out, to, self._pool[(self._draw() >> 20) % self._pool.shape[0]])
            to += 4
        for _ in range(n_prepended):
            put_u32(out, to, read_u32(out, to - 4))
            to += 4
        if ((random >> 40) & 0xFF) < 38:  # MULTI_EXIT_DISC for 15 %
            out[to] = 0x80
            out[to + 1] = 4
            out[to + 2] = 4
            put_u32(out, to + 3, cython.cast(cython.uint, ((random >> 48) & 3) << 8 | 10))
            to += 7
        if n_communities:
            out[to] = 0xC0
            out[to + 1] = 8
            out[to + 2] = cython.cast(cython.uchar, 4 * n_communities)
            to += 3
            for _ in range(n_communities):
                random = self._draw()
                put_u32(out, to, cython.cast(cython.uint, (1 + (random >> 16) % 63999) << 16 | (random & 0xFFFF)))
                to += 4
        return to


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def put_u32(out: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint) -> cython.void:
    out[at] = cython.cast(cython.uchar, value >> 24)
    out[at + 1] = cython.cast(cython.uchar, (value >> 16) & 0xFF)
    out[at + 2] = cython.cast(cython.uchar, (value >> 8) & 0xFF)
    out[at + 3] = cython.cast(cython.uchar, value & 0xFF)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def read_u32(octets: cython.uchar[::1], at: cython.Py_ssize_t) -> cython.uint:
    return (
        cython.cast(cython.uint, octets[at]) << 24
        | cython.cast(cython.uint, octets[at + 1]) << 16
        | cython.cast(cython.uint, octets[at + 2]) << 8
        | cython.cast(cython.uint, octets[at + 3])
    )


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
