"""A load test: neighbors that send their tables, one that listens, and the report of what came of it.

Owns the neighbors it plays and the clock of the test. Sockets are waited for here and used in `neighbor.py`. It stops
by itself at its time limit, and never sends to any address but its target.
"""

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from common.kernels.scan import Scanner
from stages.feed import wire
from stages.feed.neighbor import Neighbor, Plan
from stages.feed.probe import Probes
from stages.feed.synthetic import Table

TURN_S = 0.05


class LoadFailed(Exception):
    """The test could not be carried through; the report made so far is in `report`."""

    def __init__(self, reason: str, report: dict):
        super().__init__(reason)
        self.report = report


@dataclass(slots=True)
class Load:
    """What to do: the target, the senders with their tables, the listeners."""

    target: tuple[str, int]
    senders: list[tuple[Plan, list[Table]]]
    listeners: list[Plan]
    time_limit_s: float = 120
    n_probes: int = 0
    probe_interval_s: float = 0.0
    probes_while_loading: bool = False
    progress: Callable[[dict], None] | None = None
    neighbors: list[Neighbor] = field(default_factory=list)


class Player:
    """Carries a `Load` through, step by step; `close()` ends the connections."""

    def __init__(self, load: Load):
        self.load = load
        self.selector = selectors.DefaultSelector()
        self.scanner = Scanner(1 << 20)
        self.senders = [Neighbor(plan, load.target) for plan, _ in load.senders]
        self.listeners = [Neighbor(plan, load.target) for plan in load.listeners]
        self.encoded = [[block for table in tables for block in wire.encode_table(table)] for _, tables in load.senders]
        self.started_at = 0.0
        self.deadline = 0.0
        self.probes: Probes | None = None
        self.next_progress_at = 0.0

    @property
    def neighbors(self) -> list[Neighbor]:
        return self.senders + self.listeners

    # ---- the steps --------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Bring every session up. Raises OSError or LoadFailed saying which neighbor could not."""
        self.deadline = time.monotonic() + self.load.time_limit_s
        for neighbor in self.neighbors:
            connection = neighbor.connect(time.monotonic())
            self.selector.register(connection, selectors.EVENT_READ, neighbor)
        self._until(lambda: all(neighbor.is_established for neighbor in self.neighbors), "sessions to come up")

    def send_tables(self) -> None:
        """Send all tables, and return when every listener holds what it expects."""
        self.started_at = time.monotonic()
        first_loader = 0
        if self.load.probes_while_loading:
            first_loader = 1
            self.start_probes()
        for neighbor, blocks in list(zip(self.senders, self.encoded, strict=True))[first_loader:]:
            neighbor.outgoing.extend(memoryview(block) for block in blocks)
            neighbor.flush()
        self._until(
            lambda: all(each.complete_at for each in self.listeners if each.plan.n_expected), "routes to arrive"
        )
        if self.load.probes_while_loading:
            self.probes.count = self.probes.n_sent
            self._until(lambda: self.probes.is_done, "probes to arrive")

    def start_probes(self) -> None:
        """Let the first sender send probes, and the first listener look for them."""
        self.probes = Probes(self.senders[0], self.load.probe_interval_s, self.load.n_probes)
        self.listeners[0].probes = self.probes

    def send_probes(self) -> None:
        """Send probes with nothing else going on, until all have arrived."""
        self.start_probes()
        self._until(lambda: self.probes.is_done, "probes to arrive")

    def idle(self, until: Callable[[], bool]) -> None:
        """Keep the sessions up until `until` says that it is enough."""
        self.deadline = float("inf")
        self._until(until, "the end")

    def close(self) -> None:
        for neighbor in self.neighbors:
            if neighbor.connection is not None:
                neighbor.connection.close()
        self.selector.close()

    # ---- the loop ---------------------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition():
            now = time.monotonic()
            if now > self.deadline:
                raise LoadFailed(f"stopped at the time limit while waiting for {what}", self.report())
            for neighbor in self.neighbors:
                if neighbor.failure:
                    raise LoadFailed(f"{neighbor.plan.name}: {neighbor.failure}", self.report())
            self._turn(now)

    def _turn(self, now: float) -> None:
        if self.probes is not None:
            self.probes.send_due(now)
        for neighbor in self.senders:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if neighbor.outgoing else 0)
            if neighbor.connection is not None and self.selector.get_key(neighbor.connection).events != wanted:
                self.selector.modify(neighbor.connection, wanted, neighbor)
        wait_s = TURN_S
        if self.probes is not None and self.probes.interval_s:
            wait_s = min(wait_s, self.probes.interval_s / 2)
        for key, events in self.selector.select(wait_s):
            if events & selectors.EVENT_READ:
                key.data.receive(self.scanner, time.monotonic())
            if events & selectors.EVENT_WRITE:
                key.data.flush()
        self._keep_alive(now)
        if self.load.progress is not None and now >= self.next_progress_at:
            self.next_progress_at = now + 0.1
            self.load.progress(self.report())

    def _keep_alive(self, now: float) -> None:
        for neighbor in self.neighbors:
            if now >= neighbor.next_keepalive_at and not neighbor.outgoing:
                neighbor.send(wire.KEEPALIVE)
                neighbor.next_keepalive_at = now + neighbor.plan.hold_time_s / 3

    # ---- the report -------------------------------------------------------------------------------------------

    def report(self) -> dict:
        """Return what has been seen so far: times in seconds since the first octet of a table was sent."""

        def since(at: float) -> float | None:
            return round(at - self.started_at, 4) if at and self.started_at else None

        return {
            "elapsed_s": since(time.monotonic()),
            "converged_s": max((since(each.complete_at) or 0 for each in self.listeners), default=0) or None,
            "probes": self.probes.summary() if self.probes is not None else None,
            "neighbors": {
                neighbor.plan.name: {
                    "is_established": neighbor.is_established,
                    "failure": neighbor.failure,
                    "octets_sent": neighbor.n_octets_sent,
                    "octets_received": neighbor.n_octets_received,
                    "updates_received": neighbor.n_updates,
                    "invalid_updates": neighbor.n_invalid,
                    "expected": neighbor.plan.n_expected,
                    "first_update_s": since(neighbor.first_update_at),
                    "complete_s": since(neighbor.complete_at),
                    "longest_silence_s": round(neighbor.longest_silence_s, 3),
                    "end_of_rib": {str(family): told.end_of_rib for family, told in neighbor.told.items()},
                    **neighbor.counts(),
                }
                for neighbor in self.neighbors
            },
        }

    def verdict(self) -> dict[str, tuple[int, int]]:
        """For each listener: how many prefixes are missing, and how many are too much."""
        tables = [table for _, tables in self.load.senders for table in tables]
        return {neighbor.plan.name: neighbor.holds_exactly(tables) for neighbor in self.listeners}
