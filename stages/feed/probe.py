"""Probes: single prefixes that change while the clock runs, to measure how long a change takes to reach a listener.

Owns the times of what is under way. A probe prefix is an IPv4 /25 of 223.255.0.0/16, which no table here contains; each
change has an AS path of its own, so that a router must pass it on.
"""

import time

import numpy as np

from common.bgp.attributes import encode_set
from common.bgp.constants import Family
from common.kernels.pack import pack_announcements
from stages.feed.source import next_hops
from stages.feed.synthetic import Table

BASE_HI = 0xDFFF << 48
N_PREFIXES = 512
LENGTH = 25


class Probes:
    """Sends probes one after the other, or at an interval, and notes the delay of each."""

    def __init__(self, sender, interval_s: float, count: int):
        self.sender = sender
        self.interval_s = interval_s
        self.count = count
        self.n_sent = 0
        self.next_at = 0.0
        self.sent_at: dict[int, float] = {}
        self.sets: dict[int, bytes] = {}  # the last set sent, by prefix
        self.delays_s: list[float] = []

    @property
    def is_done(self) -> bool:
        return self.n_sent >= self.count and not self.sent_at

    def send_due(self, now: float) -> None:
        """Send the next probe if its time has come and its prefix is not still under way."""
        hi = BASE_HI | (self.n_sent % N_PREFIXES) << 39
        if self.n_sent >= self.count or now < self.next_at or hi in self.sent_at:
            return
        if self.interval_s == 0 and self.sent_at:
            return
        update = self._update(hi)
        # The clock starts at the socket: what it took to make the UPDATE is no delay of the router's.
        self.sent_at[hi] = time.monotonic()
        self.sender.send(update)
        self.n_sent += 1
        self.next_at = now + self.interval_s

    def _update(self, hi: int) -> bytes:
        plan = self.sender.plan
        next_hop = next_hops(plan)[Family.IPV4_UNICAST]
        octets = encode_set(next_hop=next_hop, origin=0, as_path=[plan.asn, 100000 + self.n_sent])
        self.sets[hi] = octets
        out = np.empty(4096, np.uint8)
        packed = pack_announcements(
            np.array([hi], np.uint64), np.empty(0, np.uint64), np.array([LENGTH], np.uint8), np.empty(0, np.uint32),
            np.zeros(1, np.uint32), np.array([0, len(octets)], np.uint32), np.frombuffer(octets, np.uint8),
            Family.IPV4_UNICAST.is_wide, 4096, False, out,
        )  # fmt: skip
        return out[: packed.n_octets].tobytes()

    def table(self) -> Table:
        """Return what the probes have left announced."""
        offset = np.cumsum([0, *map(len, self.sets.values())]).astype(np.uint32)
        n = len(self.sets)
        return Table(
            Family.IPV4_UNICAST, np.array(list(self.sets), np.uint64), np.empty(0, np.uint64),
            np.full(n, LENGTH, np.uint8), np.arange(n, dtype=np.uint32), offset,
            np.frombuffer(b"".join(self.sets.values()), np.uint8),
        )  # fmt: skip

    def on_routes(self, family: Family, routes, now: float) -> None:
        """Note the probes among the announcements a listener has just been told."""
        if family is not Family.IPV4_UNICAST or not self.sent_at:
            return
        for index in np.flatnonzero(routes.length == LENGTH):
            sent = self.sent_at.pop(int(routes.hi[index]), None)
            if sent is not None:
                self.delays_s.append(now - sent)

    def summary(self) -> dict:
        """Count and percentiles of the delays, milliseconds."""
        if not self.delays_s:
            return {"count": 0, "lost": len(self.sent_at)}
        delays = np.array(self.delays_s) * 1e3
        return {
            "count": len(delays),
            "lost": len(self.sent_at),
            **{f"p{point}_ms": round(float(np.percentile(delays, point)), 3) for point in (50, 90, 99)},
            "max_ms": round(float(delays.max()), 3),
        }
