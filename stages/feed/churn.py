"""Changes that go on and on: made up with the shape of the Internet's, or replayed from recorded UPDATEs.

Owns what has been withdrawn for the time being. Each is called in every turn of the loop, sends what is due, and says
when it wants to be called again. The shape: 72 % of UPDATEs have one prefix, the mean is 3.2; they come in bursts.
"""

import time
from collections.abc import Iterator

import numpy as np

from common.arrays import distinct
from common.bgp.constants import NONE, Family
from common.kernels.mrt import MrtScanner
from stages.feed import wire
from stages.feed.mrt import MrtSource, Reading
from stages.feed.source import next_hops
from stages.feed.synthetic import Table, set_maker

SINGLE_SHARE = 0.72
MEAN_PREFIXES = 3.2
SLOT_S = 0.01
BURST_S = 0.1
MOST_IN_SLOT = 2000
BACKLOG_OCTETS = 1 << 20
PARETO_SHAPE = 1.5  # of the bursts: many small, few very large ones
MOST_INTENSE = 20.0  # times the mean
MEAN_INTENSITY = 1 - (1 + MOST_INTENSE / (PARETO_SHAPE - 1)) ** (1 - PARETO_SHAPE)  # of those that are cut there


def update_sizes(rng, n: int) -> np.ndarray:
    """Draw how many prefixes each of n UPDATEs has."""
    others_mean = (MEAN_PREFIXES - SINGLE_SHARE) / (1 - SINGLE_SHARE)
    sizes = 1 + rng.geometric(1 / (others_mean - 1), n)
    return np.where(rng.random(n) < SINGLE_SHARE, 1, sizes)


class Churn:
    """A sender changes paths of its routes, withdraws some and announces them again."""

    def __init__(
        self, player, neighbor, table: Table, *, updates_per_s: float, seconds: float, withdraw_share: float, seed: int
    ):
        self.player, self.neighbor, self.table = player, neighbor, table
        self.rate, self.withdraw_share = updates_per_s, withdraw_share
        self.rng = np.random.default_rng([seed, 7])
        hop = next_hops(neighbor.plan)[table.family]
        self.sets = set_maker(table.family, seed + 1000, neighbor.plan.asn, hop, int(self.rng.integers(1 << 30)))
        self.is_gone = np.zeros(table.n_prefixes, bool)
        self.started_at = time.monotonic()
        self.ends_at = self.started_at + seconds
        self.next_at = self.called_at = self.started_at
        self.burst_ends_at = 0.0
        self.due = 0.0
        self.intensity = 1.0
        self.n_updates = 0
        self.n_prefixes = 0
        self.n_withdrawn = 0
        self.n_held_back = 0  # turns in which the speaker took nothing more

    @property
    def is_done(self) -> bool:
        return time.monotonic() >= self.ends_at

    def __call__(self, now: float) -> float | None:
        """Send what is due."""
        if now < self.next_at or now >= self.ends_at:
            return self.next_at if now < self.next_at else None
        self.next_at = now + SLOT_S
        if now >= self.burst_ends_at:
            self.burst_ends_at = now + BURST_S
            intensity = self.rng.pareto(PARETO_SHAPE) * (PARETO_SHAPE - 1)
            self.intensity = min(MOST_INTENSE, intensity) / MEAN_INTENSITY
        self.due += self.rate * (now - self.called_at) * self.intensity
        self.called_at = now
        if self.neighbor.n_waiting > BACKLOG_OCTETS:
            self.n_held_back += 1
            return self.next_at
        n = min(int(self.due), MOST_IN_SLOT)
        if n:
            self.due -= n
            self._send(n)
        return self.next_at

    def _send(self, n: int) -> None:
        sizes = np.minimum(update_sizes(self.rng, n), self.table.n_prefixes)
        first = self.rng.integers(0, self.table.n_prefixes - sizes + 1)
        number = np.repeat(np.arange(n), sizes)
        rows = np.repeat(first - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
        rows, where = np.unique(rows, return_index=True)  # a prefix changes once in a slot
        number = number[where]
        is_withdrawal = (self.rng.random(n) < self.withdraw_share)[number] & ~self.is_gone[rows]
        self.is_gone[rows] = is_withdrawal
        self._announce(rows, np.where(is_withdrawal, NONE, number).astype(np.uint32), n)

    def _announce(self, rows: np.ndarray, sets: np.ndarray, n_sets: int) -> None:
        order = np.argsort(sets, kind="stable")
        table = self.table.chosen(rows[order])
        table.set = sets[order]
        table.set_offset, table.set_octets = self.sets.make(n_sets)
        self.n_prefixes += len(rows)
        self.n_withdrawn += int(np.count_nonzero(sets == NONE))
        self.n_updates += len(distinct(sets))
        self.player.judge.note(self.neighbor.plan.name, table)
        for block in wire.update(table):
            self.neighbor.send(block)
        self.player.want(self.neighbor)

    def finish(self) -> None:
        """Announce again all that is withdrawn."""
        rows = np.flatnonzero(self.is_gone)
        if len(rows):
            self.is_gone[rows] = False
            self._announce(rows, (np.arange(len(rows)) // 5).astype(np.uint32), len(rows) // 5 + 1)

    def report(self) -> dict:
        """Return what was sent."""
        seconds = max(time.monotonic() - self.started_at, 1e-9)
        return {
            "updates": self.n_updates,
            "prefixes": self.n_prefixes,
            "withdrawn": self.n_withdrawn,
            "updates_per_s": round(self.n_updates / seconds, 1),
            "held_back": self.n_held_back,
        }


class Replay:
    """A sender sends what a peer of a file of UPDATEs sent, at the times of the file, `speed` times as fast.

    When the speaker takes in less than that, the replay falls behind and says by how much.
    """

    def __init__(self, player, neighbor, source: MrtSource, speed: float):
        self.player, self.neighbor, self.source, self.speed = player, neighbor, source, speed
        self.reading = Reading(source.path, MrtScanner(only=source.peer_number()))
        self.started_at = 0.0
        self.began_at = 0  # of the file, microseconds
        self.n_prefixes = 0
        self.n_withdrawn = 0
        self.late_s = 0.0  # the most

    @property
    def is_done(self) -> bool:
        return self.reading.is_at_end

    def __call__(self, now: float) -> float | None:
        """Send what is due."""
        if self.is_done:
            return None
        if not self.began_at:
            for _ in self.reading.pieces(1):
                pass
            self.started_at, self.began_at = now, self.reading.scanner.next_at
        if self.neighbor.n_waiting > BACKLOG_OCTETS:
            return now + SLOT_S
        self.late_s = max(self.late_s, now - self.at(self.reading.scanner.next_at))
        until = self.began_at + int((now - self.started_at) * self.speed * 1e6)
        for table in self.source.rewritten(self.neighbor.plan, self.reading.pieces(until)):
            self.send(table)
        return None if self.is_done else max(now + SLOT_S, self.at(self.reading.scanner.next_at))

    def at(self, time_us: int) -> float:
        """Return when a time of the file comes."""
        return self.started_at + (time_us - self.began_at) / 1e6 / self.speed

    def send(self, table: Table) -> None:
        """Send one piece of changes."""
        self.n_prefixes += table.n_prefixes
        self.n_withdrawn += int(np.count_nonzero(table.set == NONE))
        self.player.judge.note(self.neighbor.plan.name, table)
        for block in wire.update(table):
            self.neighbor.send(block)
        self.player.want(self.neighbor)

    def finish(self) -> None:
        """There is nothing to put right."""

    def report(self) -> dict:
        """Return what was sent."""
        return {
            "prefixes": self.n_prefixes,
            "withdrawn": self.n_withdrawn,
            "speed": self.speed,
            "late_s": round(self.late_s, 3),
        }


def first_piece(tables: Iterator[Table], family: Family | None = None) -> Table | None:
    """Return the first piece of a table, of a family if one is named."""
    return next((table for table in tables if family in (None, table.family)), None)
