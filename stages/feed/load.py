"""A load: the neighbors that are played, the loop that plays them, and the report of what came of it.

Owns the neighbors and the clock of the test. Sockets are waited for here and used in `neighbor.py`; what is done with
the neighbors, step by step, is `steps.py`'s. It stops by itself at its time limit, and never sends to any address but
those it was given as targets.
"""

import heapq
import resource
import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from common.bgp.constants import Family
from common.kernels.scan import Scanner
from stages.feed import wire
from stages.feed.judge import Judge, Verdict
from stages.feed.neighbor import RECEIVE_OCTETS, Neighbor, Plan
from stages.feed.probe import Probes
from stages.feed.source import Ready, Source

TURN_S = 0.05
CONNECT_S = 10.0
RETRY_S = 0.2
PATIENCE_S = 5.0  # until an OPEN comes
MOST_DIALLING = 32
OTHER_DESCRIPTORS = 64  # of this process, beside a socket for each neighbor
PROGRESS_S = 0.1
SETTLED_S = 1.0
QUIET_S = 0.15  # nothing heard for so long: a good time to judge
PREPARED_OCTETS = 1 << 28  # of tables encoded before the clock starts; what is beyond is encoded while it runs
MOST_SAMPLES = 36000
MOST_SAMPLED = 8  # listeners, for the plot
IN, OUT = select.EPOLLIN, select.EPOLLOUT


class LoadFailed(Exception):
    """The test could not be carried through; `found` is what the step that failed has found all the same."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.found: dict = {}


@dataclass(slots=True)
class Load:
    """What to do: the target, the senders with what they announce (a Source, or tables), the listeners.

    A neighbor that sends and listens is a sender whose plan expects something.
    """

    target: tuple[str, int]
    senders: list[tuple[Plan, Source | list]]
    listeners: list[Plan]
    time_limit_s: float = 120
    retry_s: float = RETRY_S  # before a neighbor that was refused calls again
    n_probes: int = 0
    probe_interval_s: float = 0.0
    probes_while_loading: bool = False
    progress: Callable[[dict], None] | None = None  # is given the report, ten times a second
    watch: Callable[["Player", float], None] | None = None  # is given the player and the time, as often
    prepared_octets: int = PREPARED_OCTETS
    late: frozenset[str] = frozenset()  # senders whose tables nobody expects before they are sent


@dataclass(slots=True)
class Sending:
    """What a sender has ready: blocks encoded beforehand, and the rest of its tables."""

    blocks: list = field(default_factory=list)
    rest: Iterable = ()

    def __iter__(self):
        yield from self.blocks
        yield from self.rest


class Dialling:
    """Neighbors that are to get sessions: a few dial at once, and those that are refused dial again after a pause.

    A router's queue of connections it has not accepted can be short: what does not fit looks connected from here, and
    never is. So one whom nobody answers dials again, too.
    """

    def __init__(self, player: "Player", wanted: list[Neighbor]):
        self.player = player
        self.wanted = wanted
        self.waiting = deque(wanted)
        self.under_way: list[Neighbor] = []
        self.retry_at: dict[str, float] = {}
        self.reasons: dict[str, str] = {}  # why there is no session yet
        self.told: dict[str, str] = {}  # the last NOTIFICATION
        for neighbor in wanted:
            neighbor.failure = ""

    def go_on(self, now: float) -> None:
        """Dial whose turn it is."""
        for neighbor in self.under_way:
            if neighbor.opened is None and now - neighbor.heard_at > PATIENCE_S:
                neighbor.fail(f"no OPEN within {PATIENCE_S:.0f} s")
        for neighbor in self.wanted:
            if neighbor.failure:
                self._retry(neighbor, now)
        self.under_way = [each for each in self.under_way if each.opened is None and not each.failure]
        while self.waiting and len(self.under_way) < MOST_DIALLING:
            neighbor = self.waiting.popleft()
            self.player.dial(neighbor)
            self.under_way.append(neighbor)

    def _retry(self, neighbor: Neighbor, now: float) -> None:
        name = neighbor.plan.name
        if neighbor.unmet:
            raise LoadFailed(f"{name}: {neighbor.unmet}: configure it there, or play without (--family, families)")
        if neighbor.notification is not None:
            self.told[name] = neighbor.failure
        told = self.told.get(name, neighbor.failure)  # that it is not let in again says less than why
        self.reasons[name] = told if told == neighbor.failure else f"{told}; since then {neighbor.failure}"
        if name not in self.retry_at:
            self.retry_at[name] = now + RETRY_S
        elif now >= self.retry_at[name]:
            del self.retry_at[name]
            neighbor.failure = ""
            self.waiting.append(neighbor)


class Player:
    """Carries a `Load` through, step by step; `close()` ends the connections."""

    def __init__(self, load: Load):
        self.load = load
        make_room(len(load.senders) + len(load.listeners))
        self.epoll = select.epoll()
        self.scanner = Scanner(1 << 20)
        self.buffer = bytearray(RECEIVE_OCTETS + (1 << 17))
        self.judge = Judge()
        self.sources = {
            plan.name: source if isinstance(source, Source) else Ready(source) for plan, source in load.senders
        }
        self.senders = [self._neighbor(plan) for plan, _ in load.senders]
        self.listeners = [self._neighbor(plan) for plan in load.listeners]
        self.neighbors = self.senders + self.listeners
        self.by_name = {neighbor.plan.name: neighbor for neighbor in self.neighbors}
        self.by_fd: dict[int, Neighbor] = {}
        self.interest: dict[int, int] = {}
        self.keepalives: list[tuple[float, int, Neighbor]] = []
        self.sending: dict[str, Sending] = {}
        self.noted: set[str] = set()
        self.started_at = 0.0
        self.deadline = 0.0
        self.probes: Probes | None = None
        self.next_progress_at = 0.0
        self.samples: list[tuple[float, dict[str, int]]] = []
        self.on_turn: list[Callable[[float], float | None]] = []  # each says when it wants to be called again
        self.ignored: set[str] = set()  # names of neighbors whose end is no failure
        self._prepare()

    def _neighbor(self, plan: Plan) -> Neighbor:
        return Neighbor(plan, plan.target or self.load.target, self.judge)

    def _prepare(self) -> None:
        """Encode what fits into memory set aside for it, and tell the judge what all senders will announce."""
        room = self.load.prepared_octets
        for neighbor in self.senders:
            name, plan = neighbor.plan.name, neighbor.plan
            source = self.sources[name]
            if name not in self.load.late:
                self.note_all(neighbor)
            if room <= 0:
                continue
            self.sending[name] = Sending()
            rest = wire.encode_stream(source.tables(plan), plan.families)
            for block in rest:
                self.sending[name].blocks.append(block)
                room -= len(block)
                if room <= 0:
                    break
            self.sending[name].rest = rest
        for neighbor in self.neighbors:
            if neighbor.plan.n_expected is None and neighbor in self.listeners:
                n_must, n_may = self.judge.n_expected(
                    neighbor.plan.name, self.heard_by(neighbor), neighbor.plan.families
                )
                neighbor.plan.n_expected = n_must if n_must and not n_may else None

    def note_all(self, neighbor: Neighbor) -> None:
        """Tell the judge, if there is anybody to be judged, what a sender announces when it sends its tables."""
        self.noted.add(neighbor.plan.name)
        if any(each.plan.n_expected != 0 for each in self.neighbors):
            for table in self.sources[neighbor.plan.name].tables(neighbor.plan):
                if table.family in neighbor.plan.families:
                    self.judge.note(neighbor.plan.name, table)

    def heard_by(self, neighbor: Neighbor) -> list[str]:
        """Return the names of the senders whose routes a neighbor must be told."""
        if neighbor.plan.hears is not None:
            return list(neighbor.plan.hears)
        return [each.plan.name for each in self.senders]

    # ---- the steps --------------------------------------------------------------------------------------------

    def connect(self, neighbors: list[Neighbor] | None = None, limit_s: float = CONNECT_S) -> None:
        """Bring sessions up that are not. Raises LoadFailed saying which neighbor could not."""
        wanted = [each for each in (self.neighbors if neighbors is None else neighbors) if not each.is_established]
        began_at = time.monotonic()
        self.deadline = self.deadline or began_at + self.load.time_limit_s
        end = min(began_at + limit_s, self.deadline)
        dialling = Dialling(self, wanted)
        ignored, self.ignored = self.ignored, self.ignored | {neighbor.plan.name for neighbor in wanted}
        try:
            while not all(neighbor.is_established for neighbor in wanted):
                now = time.monotonic()
                dialling.go_on(now)
                if now > end:
                    down = [neighbor.plan.name for neighbor in wanted if not neighbor.is_established]
                    why = next((dialling.reasons[name] for name in down if name in dialling.reasons), "")
                    why = why or self.by_name[down[0]].waits_for
                    self._fail(f"{_names(down)}: no session within {now - began_at:.0f} s: {why}")
                self._turn(now)
        finally:
            self.ignored = ignored

    def dial(self, neighbor: Neighbor) -> None:
        """Begin to connect a neighbor."""
        self.disconnect(neighbor)
        try:
            connection = neighbor.connect(time.monotonic())
        except OSError as error:
            self._fail(error.strerror)
        self.by_fd[connection.fileno()] = neighbor
        self.interest[connection.fileno()] = OUT
        self.epoll.register(connection.fileno(), OUT)

    def disconnect(self, neighbor: Neighbor, is_orderly: bool = True) -> None:
        """End a neighbor's session."""
        if neighbor.connection is not None:
            self._unregister(neighbor)
            neighbor.close(is_orderly)

    def _unregister(self, neighbor: Neighbor) -> None:
        fd = neighbor.connection.fileno()
        if self.by_fd.pop(fd, None) is not None:
            self.epoll.unregister(fd)
            del self.interest[fd]

    def start_clock(self) -> None:
        """Let time be counted from now."""
        self.started_at = time.monotonic()

    def start_sending(self, neighbor: Neighbor) -> None:
        """Let a sender send its tables; returns at once."""
        if neighbor.plan.name not in self.noted:
            self.note_all(neighbor)
            self.expect_anew()
        neighbor.source = iter(self.sending.pop(neighbor.plan.name, None) or self._encoded_again(neighbor))
        self.want(neighbor)

    def _encoded_again(self, neighbor: Neighbor):
        return wire.encode_stream(self.sources[neighbor.plan.name].tables(neighbor.plan), neighbor.plan.families)

    def _tell_again(self, neighbor: Neighbor) -> None:
        """Send the families of a table again that were asked for (RFC 2918 §4), as it was before it was changed."""
        families, neighbor.refreshes = neighbor.refreshes, set()
        if neighbor.plan.name in self.sources and (neighbor.sent_at or neighbor.source is not None):
            self.note_all(neighbor)
            tables = self.sources[neighbor.plan.name].tables(neighbor.plan)
            again = wire.encode_changes(table for table in tables if table.family in families)
            neighbor.source = chain(neighbor.source or (), again)

    def send_tables(self) -> None:
        """Send all tables, and return when every listener holds what it expects."""
        self.start_clock()
        loaders = self.senders
        if self.load.probes_while_loading:
            loaders = self.senders[1:]
            self.start_probes()
        for neighbor in loaders:
            self.start_sending(neighbor)
        self.wait_for_routes()
        if self.load.probes_while_loading:
            self.end_probes(is_cut=True)

    def wait_for_routes(self, neighbors: list[Neighbor] | None = None) -> None:
        """Return when all senders have sent all, and every listener holds what it expects."""
        listeners = [each for each in neighbors or self.neighbors if each.plan.n_expected != 0]
        judged: dict[str, tuple[float, Verdict]] = {}

        def is_done() -> bool:
            if any(each.wants_to_send for each in self.senders):
                return False
            return all(each.complete_at or self._is_complete(each, judged) for each in listeners)

        self.until(is_done, "routes to arrive")

    def _is_complete(self, listener: Neighbor, judged: dict[str, tuple[float, Verdict]]) -> bool:
        """Judge a listener whose number of routes is not known beforehand, when it has been quiet for a moment."""
        now = time.monotonic()
        if listener.plan.n_expected is not None or now - listener.last_update_at < QUIET_S:
            return False
        at, verdict = judged.get(listener.plan.name, (-1.0, None))
        if at != listener.last_update_at:
            verdict = self.judge_one(listener)
            judged[listener.plan.name] = listener.last_update_at, verdict
        # Attributes that stay wrong are for the verdict to tell, not to wait for.
        is_settled = verdict.is_good or now - listener.last_update_at > SETTLED_S
        if verdict.missing or verdict.extra or not is_settled:
            return False
        listener.complete_at = listener.last_update_at or now
        return True

    def expect_anew(self) -> None:
        """Let listeners converge again: what senders announce has changed."""
        for neighbor in self.neighbors:
            if neighbor.plan.n_expected != 0:
                neighbor.plan.n_expected = None
                neighbor.complete_at = 0.0

    def start_probes(self, sender: Neighbor | None = None) -> None:
        """Let a sender (the first) send probes, and the first listener look for them."""
        sender = sender or next(iter(self.senders), None)
        if sender is None or not sender.is_established or Family.IPV4_UNICAST not in sender.plan.families:
            self._fail("there is no sender of IPv4 routes, as probes are, with a session")
        self.probes = Probes(sender, self.load.probe_interval_s, self.load.n_probes)
        others = [each for each in self.listeners + self.senders if each is not self.probes.sender]
        listening = [each for each in others if each.plan.n_expected != 0 and each.is_established]
        if not listening:
            self._fail("there is no listener to look for probes")
        listening[0].probes = self.probes

    def end_probes(self, is_cut: bool) -> None:
        """Return when all probes have arrived; `is_cut`: no more are sent."""
        if is_cut:
            self.probes.count = self.probes.n_sent
        self.until(lambda: self.probes.is_done, "probes to arrive")
        if self.probes.n_sent:
            self.judge.note(self.probes.sender.plan.name, self.probes.table())

    def idle(self, until: Callable[[], bool]) -> None:
        """Keep the sessions up until `until` says that it is enough."""
        self.deadline = float("inf")
        self.until(until, "the end")

    def run_for(self, seconds: float) -> None:
        """Go on for some time."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, "time to pass")

    def close(self) -> None:
        for neighbor in self.neighbors:
            self.disconnect(neighbor)
        self.epoll.close()

    # ---- the loop ---------------------------------------------------------------------------------------------

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Go on until `condition` holds; LoadFailed at the time limit, or when a session ends that should not."""
        while not condition():
            now = time.monotonic()
            if now > self.deadline:
                self._fail(f"stopped at the time limit while waiting for {what}")
            self._turn(now)

    def _fail(self, reason: str) -> None:
        raise LoadFailed(reason)

    def want(self, neighbor: Neighbor) -> None:
        """Watch a neighbor's socket for what there is to do."""
        if neighbor.connection is None or neighbor.connection.fileno() not in self.by_fd:
            return
        fd = neighbor.connection.fileno()
        wanted = OUT if neighbor.is_connecting or neighbor.wants_to_send else 0
        if not neighbor.is_connecting and not neighbor.is_paused:
            wanted |= IN
        if self.interest[fd] != wanted:
            self.interest[fd] = wanted
            self.epoll.modify(fd, wanted)

    def _turn(self, now: float) -> None:
        wait_s = TURN_S
        if self.probes is not None:
            self.probes.send_due(now)
            self.want(self.probes.sender)
            if self.probes.interval_s:
                wait_s = min(wait_s, self.probes.interval_s / 2)
        for call in self.on_turn:
            at = call(now)
            if at is not None:
                wait_s = min(wait_s, max(0.0, at - now))
        for fd, events in self.epoll.poll(wait_s):
            self._on_event(self.by_fd.get(fd), events)
        self._keep_alive(now)
        if now >= self.next_progress_at:
            self.next_progress_at = now + PROGRESS_S
            self._sample(now)
            if self.load.progress is not None:
                self.load.progress(self.report())
            if self.load.watch is not None:
                self.load.watch(self, now)

    def _on_event(self, neighbor: Neighbor | None, events: int) -> None:
        if neighbor is None:
            return
        now = time.monotonic()
        if neighbor.is_connecting:
            neighbor.on_connected()
        else:
            was_established = neighbor.is_established
            if events & ~OUT and not neighbor.is_paused:
                neighbor.receive(self.scanner, self.buffer, now)
            elif events & ~(IN | OUT):
                neighbor.fail("connection reset")
            if events & OUT:
                neighbor.flush(now)
            if neighbor.is_established and not was_established:
                self._schedule(neighbor)
                if neighbor.plan.restart_time_s and neighbor.plan.name not in self.sources:
                    # RFC 4724 §2: also one with nothing to tell says that this was all.
                    neighbor.send(b"".join(wire.encode_stream((), neighbor.plan.families)))
        if neighbor.refreshes:
            self._tell_again(neighbor)
        if neighbor.failure:
            self._unregister(neighbor)
            if neighbor.plan.name not in self.ignored:
                self._fail(f"{neighbor.plan.name}: {neighbor.failure}")
        else:
            self.want(neighbor)

    def _schedule(self, neighbor: Neighbor) -> None:
        heapq.heappush(self.keepalives, (neighbor.next_keepalive_at, id(neighbor), neighbor))

    def _keep_alive(self, now: float) -> None:
        while self.keepalives and self.keepalives[0][0] <= now:
            at, _, neighbor = heapq.heappop(self.keepalives)
            if not neighbor.is_established or neighbor.next_keepalive_at != at:
                continue
            if not neighbor.outgoing:
                neighbor.send(wire.KEEPALIVE)
                self.want(neighbor)
            neighbor.next_keepalive_at = neighbor.keepalive_after(now)
            self._schedule(neighbor)

    # ---- the report -------------------------------------------------------------------------------------------

    def since(self, at: float) -> float | None:
        """Return a time as seconds since the clock was started; None for what has not happened."""
        return round(at - self.started_at, 4) if at and self.started_at else None

    def _sample(self, now: float) -> None:
        if self.started_at and len(self.samples) < MOST_SAMPLES:
            listeners = (each for each in self.neighbors if each.plan.n_expected != 0)
            held = {each.plan.name: each.n_held for each in islice(listeners, MOST_SAMPLED)}
            self.samples.append((round(now - self.started_at, 3), held))

    def report(self) -> dict:
        """Return what has been seen so far: times in seconds since the first octet of a table was sent."""
        listeners = [each for each in self.neighbors if each.plan.n_expected != 0]
        complete = [each.complete_at for each in listeners]
        return {
            "elapsed_s": self.since(time.monotonic()),
            "converged_s": self.since(max(complete)) if complete and all(complete) else None,
            "probes": self.probes.summary() if self.probes is not None else None,
            "neighbors": {neighbor.plan.name: neighbor.report(self.since) for neighbor in self.neighbors},
        }

    def judge_one(self, listener: Neighbor) -> Verdict:
        """Return what is wrong with what one listener holds."""
        return self.judge.judge(listener.plan.name, listener.ledgers, self.heard_by(listener))

    def verdict(self) -> dict[str, Verdict]:
        """For each listener: what is missing, too much, or has attributes that nobody announced."""
        listeners = [each for each in self.neighbors if each.plan.n_expected != 0 or each in self.listeners]
        return {neighbor.plan.name: self.judge_one(neighbor) for neighbor in listeners}


def make_room(n_neighbors: int) -> None:
    """Raise this process's limit of descriptors to what so many neighbors need. Raises LoadFailed where it can't be."""
    needed = n_neighbors + OTHER_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        if hard != resource.RLIM_INFINITY and hard < needed:
            raise LoadFailed(
                f"{n_neighbors:,} neighbors need {needed:,} descriptors, and the limit is {hard:,}: "
                f"raise it (ulimit -n {needed})"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
