"""The plan of one family: which route the kernel should have for each prefix, which it has, and what to do next.

Owns the columns by prefix row and the queue of rows where the two differ. A row is queued at most once, so the queue
is bounded by the table, however fast changes come and however slow the kernel is. Never speaks to the kernel.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from errno import EEXIST
from socket import AF_INET6

import numpy as np

from common.arrays import allocate, distinct, grown
from common.bus.batch import Batch
from common.bus.schema import BestChanges
from common.config.sharing import WHOLE, Share
from common.kernels import netlink
from common.kernels import plan as steps
from common.kernels.prefixes import PrefixTable
from common.kernels.shares import is_in_share
from stages.fib.messages import Gateway
from stages.fib.sender import UNANSWERED
from stages.fib.ways import Consequence, Ways

EIO = 5  # what a row without an answer is in trouble with
LINK_LOCAL = 0xFE80 >> 6  # fe80::/10


@dataclass(slots=True)
class Work:
    """Rows taken from the queue, with what is to be done about each."""

    rows: np.ndarray
    actions: np.ndarray
    targets: np.ndarray


@dataclass(slots=True)
class Counts:
    """What was done since the start; refused counts attempts."""

    installed: int = 0
    replaced: int = 0
    removed: int = 0
    refused: int = 0


class Filter:
    """Tells which prefixes are within some, whatever their length."""

    def __init__(self, within: tuple, is_wide: bool):
        self._nets = []
        for net in within:
            if (net.version == 6) == is_wide:
                mask = int(net.netmask) << (128 - net.max_prefixlen)
                value = int(net.network_address) << (128 - net.max_prefixlen)
                halves = (mask >> 64, mask & (2**64 - 1), value >> 64, value & (2**64 - 1))
                self._nets.append((*(np.uint64(half) for half in halves), net.prefixlen))

    def __call__(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> np.ndarray:
        found = np.zeros(len(hi), bool)
        for mask_hi, mask_lo, value_hi, value_lo, prefix_length in self._nets:
            is_in = (hi & mask_hi == value_hi) & (length >= prefix_length)
            if len(lo):
                is_in &= lo & mask_lo == value_lo
            found |= is_in
        return found


class Plan:
    """The plan of one family (an address family of the kernel)."""

    def __init__(self, family: int, ways: Ways, seed: int = 0, capacity: int = 1024):
        self.family = family
        self.is_wide = family == AF_INET6
        self.on_flip: Callable[[np.ndarray, np.ndarray], None] | None = None
        """Told of rows whose route has come into the kernel or left it, and which of the two."""
        self.ways = ways
        self.prefixes = PrefixTable(family == AF_INET6, seed, capacity)
        self.wanted = allocate(0, np.uint32)
        self.installed = allocate(0, np.uint32)
        self.flags = allocate(0, np.uint8)
        self.trouble = allocate(0, np.uint8)
        self.tally = np.zeros(steps.TALLY, np.int64)
        self.counts = Counts()
        self.is_chosen: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray] | None = None
        """Tells for each prefix whether it is to be installed; None: all are."""
        self.n_installed = 0
        self.n_queued = 0
        self.is_confirmed = False  # whole snapshots have been seen, so what is installed is what is wanted
        self._missing = {0}  # shares of the prefixes whose first snapshot has not ended
        self._queue: deque[np.ndarray] = deque()
        self._repairs: list[np.ndarray] = []
        self._fit()

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return self.prefixes.n_prefixes

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use, about."""
        return self.prefixes.row_limit

    def tidy(self) -> list[np.ndarray]:
        """Put free rows in order and return the columns."""
        return [*self.prefixes.tidy(), self.wanted, self.installed, self.flags, self.trouble]

    # ---- what is wanted -----------------------------------------------------------------------------------------

    def expect(self, n_shares: int) -> None:
        """Take the prefixes in so many shares from now on."""
        self._missing = set(range(n_shares))

    def handle(self, batch: Batch, interfaces: list[int] | None = None, share: Share = WHOLE) -> None:
        """Take in the routes of a batch of BestChanges, and the marks of a snapshot on any batch.

        interfaces: for each source of the batch the number of the interface its link-local next hops are on.
        share: which of all prefixes the sender has.
        """
        if batch.begins_snapshot:
            self.mark_unconfirmed(share)
        if batch.kind is BestChanges and batch.n_rows:
            self._want_paths(batch.columns, np.array(interfaces or [0], np.uint64))
        if batch.ends_snapshot:
            self.remove_unconfirmed(share)
            self._missing.discard(share.index)
            self.is_confirmed |= not self._missing

    def _want_paths(self, columns: dict[str, np.ndarray], interfaces: np.ndarray) -> None:
        n_paths = columns["n_paths"]
        ways = np.zeros(len(n_paths), np.uint32)
        has_path = np.flatnonzero(n_paths)
        if len(has_path):
            path_ways, weights = self._path_ways(columns, interfaces)
            first = np.cumsum(n_paths, dtype=np.int64) - n_paths
            ways[has_path] = path_ways[first[has_path]]
            several = np.flatnonzero(n_paths > 1)
            if len(several):
                codes = path_ways.astype(np.uint64) << np.uint64(32) | weights
                ways[several] = self._groups(codes, first[several], n_paths[several])
        hi, lo, length = columns["hi"], columns["lo"], columns["length"]
        if self.is_chosen is not None:
            ways[~self.is_chosen(hi, lo, length)] = 0
        self._want(self.prefixes.intern(hi, lo, length, ways), ways)

    def _path_ways(self, columns: dict[str, np.ndarray], interfaces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return way (uint32) and bandwidth (uint64, below 2**32, 0: not told) of each path."""
        hi, lo, length = netlink.next_hops(columns["set_offset"], columns["set_octets"])
        sets = columns["path_set"]
        weights = netlink.link_bandwidths(columns["set_offset"], columns["set_octets"])[sets]
        is_link_local = (length == 128) & (hi >> np.uint64(54) == LINK_LOCAL)
        if not is_link_local.any():
            return self.ways.intern(hi, lo, length)[sets], weights
        # Next hop and source together say where it is: a link-local address means something on one interface only.
        path_hi = hi[sets] | np.where(is_link_local[sets], interfaces[columns["path_source"]], np.uint64(0))
        return self.ways.intern(path_hi, lo[sets], length[sets]), weights

    def _groups(self, codes: np.ndarray, first: np.ndarray, n_paths: np.ndarray) -> np.ndarray:
        """Return the way of each row that has several paths: code i is a way (upper bits) and its bandwidth."""
        matrix = np.zeros((len(first), int(n_paths.max())), np.uint64)
        for k in range(matrix.shape[1]):
            has_more = n_paths > k
            matrix[has_more, k] = codes[first[has_more] + k]
        matrix.sort(axis=1)
        distinct, index = np.unique(matrix, axis=0, return_inverse=True)
        ways = [self._group(combination) for combination in distinct.tolist()]
        return np.array(ways, np.uint32)[index.reshape(-1)]

    def _group(self, combination: list[int]) -> int:
        bandwidth = {code >> 32: code & 0xFFFFFFFF for code in combination if code >> 32}
        if len(bandwidth) < 2:
            return next(iter(bandwidth), 0)
        # Weights, in percent, only where each path says what it can carry.
        whole = sum(bandwidth.values()) if all(bandwidth.values()) else 0
        shares = {way: max(1, round(100 * one / whole)) if whole else 1 for way, one in bandwidth.items()}
        return self.ways.intern_group(tuple(sorted(shares.items())))

    def _want(self, rows: np.ndarray, ways: np.ndarray) -> None:
        self._fit()
        columns = (self.wanted, self.installed, self.flags, self.trouble, self.ways.is_usable, self.ways.n_wanted)
        self._push(steps.want(rows, ways, *columns, self.tally))

    def mark_unconfirmed(self, share: Share = WHOLE) -> None:
        """Note that all there is of a share must be named again before the snapshot ends, or go."""
        limit = self.prefixes.row_limit
        there = ((self.wanted[:limit] != 0) | (self.installed[:limit] != 0)) & self._is_of(share, limit)
        self.flags[:limit][there] |= steps.UNCONFIRMED
        self.tally[steps.N_UNCONFIRMED] = np.count_nonzero(self.flags[:limit] & steps.UNCONFIRMED)

    def remove_unconfirmed(self, share: Share = WHOLE) -> None:
        """Let go of what the snapshot of a share did not name."""
        limit = self.prefixes.row_limit
        is_gone = (self.flags[:limit] & steps.UNCONFIRMED != 0) & self._is_of(share, limit)
        rows = np.flatnonzero(is_gone).astype(np.uint32)
        self._want(rows, np.zeros(len(rows), np.uint32))

    def _is_of(self, share: Share, limit: int) -> np.ndarray | np.bool_:
        """Tell of each row below a limit whether its prefix belongs to a share."""
        return np.True_ if share.count == 1 else is_in_share(*share, self.prefixes.hi(slice(limit)), self.is_wide)

    # ---- what the kernel is found to have -----------------------------------------------------------------------

    def adopt(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, ways: np.ndarray) -> None:
        """Take over routes of an earlier run (way ELSEWHERE: leading somewhere not known), before there is a reader."""
        rows = self.prefixes.intern(hi, lo, length)
        self._fit()
        self.n_installed += steps.adopt(rows, ways, self.installed, self.flags, self.ways.n_installed, self.tally)

    def _found(
        self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, ways: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows, each once, and ways of routes of ours that the kernel has; several of one prefix: ELSEWHERE."""
        every = self.prefixes.intern(hi, lo, length)
        self._fit()
        rows, first, n_routes = np.unique(every, return_index=True, return_counts=True)
        self.flags[rows[n_routes > 1]] |= steps.UNSURE
        return rows, np.where(n_routes > 1, np.uint32(steps.ELSEWHERE), ways[first])

    def compare(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, ways: np.ndarray) -> tuple[int, int]:
        """Compare with all the kernel has of ours; return (lost, altered), which wait for `repair` from now on."""
        rows, ways = self._found(hi, lo, length, ways)
        found = np.zeros(self.prefixes.row_limit, np.uint32)
        found[rows] = ways
        installed = self.installed[: len(found)]
        lost = np.flatnonzero((installed != 0) & (found == 0)).astype(np.uint32)
        altered = np.flatnonzero((found != 0) & (installed != found)).astype(np.uint32)
        self._set_gone(lost)
        self._set_installed(altered, found[altered])
        self._repairs += [lost, altered]
        return len(lost), len(altered)

    def apply(self, consequence: Consequence) -> None:
        """Do what a change of a way means for its routes."""
        limit = self.prefixes.row_limit
        if consequence.is_lost or consequence.is_changed:
            rows = np.flatnonzero(self.installed[:limit] == consequence.way).astype(np.uint32)
            self._set_installed(rows, np.full(len(rows), 0 if consequence.is_lost else steps.ELSEWHERE, np.uint32))
            if consequence.is_lost and not self.ways.has_objects:
                self.flags[rows] |= steps.UNSURE  # a plain route may have gone in after the interface came back
            self._enqueue(rows)
        if consequence.is_usable or consequence.is_lost:
            self._enqueue(np.flatnonzero(self.wanted[:limit] == consequence.way).astype(np.uint32))

    def note_deleted(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> int:
        """Note that others deleted routes of ours, which wait for `repair`. Return how many were ours."""
        rows = self.prefixes.find(hi, lo, length)
        rows = distinct(rows[self.installed[rows] != 0])
        self._set_gone(rows)
        self._repairs.append(rows)
        return len(rows)

    def note_altered(
        self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, ways: np.ndarray, is_replaced: np.ndarray
    ) -> int:
        """Note what others wrote in our name (protocol and metric), which waits for `repair`. Return how many.

        What is not in the place of ours stands beside it, and so may ours beside what took the place of others.
        """
        rows = self.prefixes.intern(hi, lo, length)
        self._fit()
        self.flags[rows[~is_replaced | (self.flags[rows] & steps.BESIDE != 0)]] |= steps.UNSURE
        rows = distinct(rows[~is_replaced | (self.installed[rows] != ways)])
        self._set_installed(rows, np.full(len(rows), steps.ELSEWHERE, np.uint32))
        self._repairs.append(rows)
        return len(rows)

    def note_others(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray, is_replaced: np.ndarray) -> int:
        """Note routes of others where ours is or was: in its place, or beside it. Return how many of ours are gone.

        Ours are not put back over them: they are in trouble (EEXIST) until there is room.
        """
        rows = self.prefixes.find(hi, lo, length)
        is_ours = self.installed[rows] != 0
        # Unsure, too: our last change may have hit theirs before we were told of it, and left our former one behind.
        self.flags[rows[is_ours & ~is_replaced]] |= steps.BESIDE | steps.UNSURE
        gone = distinct(rows[is_ours & is_replaced])
        self._set_gone(gone)
        self._set_trouble(gone, EEXIST)
        return len(gone)

    def note_beside(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> None:
        """Note that others have routes where ours is or may be, before or behind it."""
        rows = self.prefixes.find(hi, lo, length)
        self.flags[rows[rows != 0]] |= steps.BESIDE

    def note_room(self, hi: np.ndarray, lo: np.ndarray, length: np.ndarray) -> None:
        """Note that others deleted routes of their own: what they kept out can be tried again."""
        rows = self.prefixes.find(hi, lo, length)
        self.flags[rows] &= ~steps.BESIDE & 0xFF
        self._enqueue(distinct(rows[self.trouble[rows] != 0]))

    def own_route(self, address: bytes) -> tuple[int, Gateway] | None:
        """Return (length, gateway) of the longest of our own routes to an address whose way can be used."""
        n_bits = 8 * len(address)
        value = int.from_bytes(address.ljust(16, b"\0"), "big")
        masked = [value >> (128 - n) << (128 - n) for n in range(n_bits, -1, -1)]
        hi = np.array([one >> 64 for one in masked], np.uint64)
        lo = np.array([one & (2**64 - 1) for one in masked] if self.family == AF_INET6 else [], np.uint64)
        rows = self.prefixes.find(hi, lo, np.arange(n_bits, -1, -1).astype(np.uint8))
        for at in np.flatnonzero(rows).tolist():
            way = self.ways.by_number.get(int(self.wanted[rows[at]]))
            # One that goes by the very address it leads to would resolve through itself.
            if way is not None and self.ways.is_usable[way.number] and way.address != address:
                gateway = way.resolution.gateway
                return None if gateway is None else (n_bits - at, gateway)
        return None

    def repair(self) -> int:
        """Queue what others have spoiled; return how many rows that is."""
        rows = np.concatenate(self._repairs) if self._repairs else np.empty(0, np.uint32)
        self._repairs = []
        self._enqueue(rows)
        return len(rows)

    @property
    def needs_repair(self) -> bool:
        """Whether `repair` has something to do."""
        return any(len(rows) for rows in self._repairs)

    def retry(self) -> int:
        """Queue again what the kernel has refused; return how many rows that is."""
        if not self.n_refused:
            return 0
        rows = np.flatnonzero(self.trouble[: self.prefixes.row_limit]).astype(np.uint32)
        self._enqueue(rows)
        return len(rows)

    def _set_gone(self, rows: np.ndarray) -> None:
        """Note that others took our routes, each once. Not for sure: it may have been told before our last change."""
        self._set_installed(rows, np.zeros(len(rows), np.uint32))
        self.flags[rows] |= steps.UNSURE

    def _set_installed(self, rows: np.ndarray, ways: np.ndarray) -> None:
        """Write what the kernel has in `rows`, each once, with all that is counted."""
        before = self.installed[rows]
        size = len(self.ways.n_installed)
        for column, sign in ((before, -1), (ways, 1)):
            known = column[(column != 0) & (column != steps.ELSEWHERE)]
            if len(known):
                self.ways.n_installed[:] += (sign * np.bincount(known, minlength=size)).astype(np.uint32)
            self.n_installed += sign * int(np.count_nonzero(column))
        self.installed[rows] = ways
        if self.on_flip is not None:
            is_flip = (before != 0) != (ways != 0)
            self.on_flip(rows[is_flip], ways[is_flip] != 0)

    def _set_trouble(self, rows: np.ndarray, code: int) -> None:
        before = self.trouble[rows]
        self.tally[:256] -= np.bincount(before[before != 0], minlength=256)
        self.trouble[rows] = code
        self.tally[code] += len(rows)

    # ---- what is to be done -------------------------------------------------------------------------------------

    def take(self, limit: int) -> Work | None:
        """Take at most `limit` rows from the queue; None if nothing is to be done for them."""
        queue = self._pop(limit)
        rows, actions, targets, idle, later = steps.take(
            queue, self.wanted, self.installed, self.flags, self.trouble, self.ways.is_usable, self.tally
        )
        if len(idle):
            self.prefixes.release(idle)
        self._push(later)
        return Work(rows, actions, targets) if len(rows) else None

    def settle(self, work: Work, errors: np.ndarray) -> np.ndarray:
        """Account the kernel's answers; return the indices of what it refused."""
        unanswered = errors == UNANSWERED
        if unanswered.any():
            self._settle_unanswered(work, errors, unanswered)
        done = np.bincount(work.actions[errors == 0], minlength=4)
        is_removed = (work.actions == netlink.REMOVE) & (self.installed[work.rows] != 0)
        refused, idle, again = steps.settle(
            work.rows, work.actions, work.targets, errors, self.wanted, self.installed, self.flags, self.trouble,
            self.ways.n_installed, self.tally,
        )  # fmt: skip
        is_removed[refused] = False
        n_removed = int(np.count_nonzero(is_removed))
        self.n_installed += int(done[netlink.INSTALL]) - n_removed
        if self.on_flip is not None:
            flips = np.flatnonzero(is_removed | ((work.actions == netlink.INSTALL) & (errors == 0)))
            self.on_flip(work.rows[flips], work.actions[flips] == netlink.INSTALL)
        self.counts.installed += int(done[netlink.INSTALL])
        self.counts.replaced += int(done[netlink.REPLACE])
        self.counts.removed += n_removed
        self.counts.refused += len(refused)
        if len(idle):
            self.prefixes.release(idle)
        self._enqueue(again)
        return refused

    def put_back(self, rows: np.ndarray) -> None:
        """Queue rows that were taken, and not settled or to be tried once more."""
        self._enqueue(rows)

    def _settle_unanswered(self, work: Work, errors: np.ndarray, unanswered: np.ndarray) -> None:
        """Where an answer was lost the kernel may have the route or not: count it as there, and try again.

        One that is new is removed first, as others may have been in its way, whom a replacement would hit.
        """
        rows = work.rows[unanswered]
        self.flags[rows[work.actions[unanswered] == netlink.INSTALL]] |= steps.UNSURE
        self._set_installed(rows, np.full(len(rows), steps.ELSEWHERE, np.uint32))
        errors[unanswered] = EIO

    # ---- what others read ---------------------------------------------------------------------------------------

    @property
    def n_wanted(self) -> int:
        """Prefixes for which a route is wanted."""
        return int(self.tally[steps.N_WANTED])

    @property
    def n_unconfirmed(self) -> int:
        """Prefixes that the rib's snapshot has not named yet."""
        return int(self.tally[steps.N_UNCONFIRMED])

    @property
    def n_refused(self) -> int:
        """Routes the kernel refuses now."""
        return int(self.tally[:256].sum())

    def troubles(self) -> dict[int, int]:
        """Return how many routes each errno keeps out of the kernel."""
        return {code: int(self.tally[code]) for code in np.flatnonzero(self.tally[:256]).tolist()}

    # ---- the queue ----------------------------------------------------------------------------------------------

    def _enqueue(self, rows: np.ndarray) -> None:
        self._push(steps.enqueue(rows, self.flags))

    def _push(self, rows: np.ndarray) -> None:
        if len(rows):
            self._queue.append(rows)
            self.n_queued += len(rows)

    def _pop(self, limit: int) -> np.ndarray:
        parts = []
        n = 0
        while self._queue and n < limit:
            part = self._queue.popleft()
            if len(part) > limit - n:
                self._queue.appendleft(part[limit - n :])
                part = part[: limit - n]
            parts.append(part)
            n += len(part)
        self.n_queued -= n
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def _fit(self) -> None:
        """Give the columns room for all rows of the prefix table."""
        capacity = self.prefixes.capacity
        if capacity > len(self.wanted):
            for name in ("wanted", "installed", "flags", "trouble"):
                setattr(self, name, grown(getattr(self, name), capacity))
