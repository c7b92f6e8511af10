"""The Adj-RIB-Out: whatever happens in whatever order, each peer ends up with what it is to hold."""

import socket
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.bgp.attributes import encode_set
from common.bgp.constants import NONE, Family
from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, empty_columns
from common.bus.schema import ExportChanges
from common.kernels.scan import Options, Scanner
from stages.speaker import adj_rib_out
from stages.speaker.adj_rib_out import AdjRibOut
from stages.speaker.prefixes import SharedPrefixes
from tests.unit.stages.speaker.conftest import columns

V4 = Family.IPV4_UNICAST
NAMES = ("a", "b", "c")
SETS = [encode_set(as_path=[65000, n], next_hop=bytes([10, 0, 0, 1])) for n in range(1, 4)]
TOO_LARGE = encode_set(as_path=[65000], next_hop=bytes([10, 0, 0, 1]), communities=[7] * 1100)
PREFIXES = [f"10.0.{n}.0/24" for n in range(12)]


def batch(routes: dict[str, tuple[bytes | None, str]], flags: int = 0) -> Batch:
    """Return an ExportChanges batch of prefixes with (set, source name)."""
    meta = {"family": V4.label, "sources": [{"name": name} for name in ("", *NAMES)]}
    if not routes:
        return Batch(ExportChanges, empty_columns(ExportChanges), meta, flags=flags)
    found = columns({text: octets for text, (octets, _) in routes.items()})
    found["source"] = np.array([("", *NAMES).index(source) for _, source in routes.values()], np.uint32)
    return Batch(ExportChanges, found, meta, flags=flags)


class Peer:
    """What a peer holds after the UPDATEs it was sent."""

    def __init__(self):
        self.held: dict[str, bytes] = {}
        self.n_end_of_rib = 0
        self.n_told_again = 0
        self._scanner = Scanner()

    def take(self, octets: bytes) -> None:
        assert self._scanner.scan(octets, 0, len(octets), Options(external=False)) == 0
        self.n_end_of_rib += self._scanner.end_of_rib == V4.bit
        found = self._scanner.routes(0)
        for hi, length, number in zip(found.hi.tolist(), found.length.tolist(), found.set.tolist(), strict=True):
            text = f"{socket.inet_ntoa((hi >> 32).to_bytes(4, 'big'))}/{length}"
            if number == NONE:
                del self.held[text]  # nothing is withdrawn that was not announced
            else:
                start, end = found.set_offset[number : number + 2]
                self.n_told_again += self.held.get(text) == found.set_octets[start:end].tobytes()
                self.held[text] = found.set_octets[start:end].tobytes()


class World:
    """One group with peers that come, go, and read at their own speed."""

    def __init__(self, journal_power: int = 22, prefixes: SharedPrefixes | None = None):
        self.table = AdjRibOut(V4, 7, prefixes or SharedPrefixes(V4, 7), journal_power=journal_power)
        self.routes: dict[str, tuple[bytes | None, str]] = {}
        self.peers: dict[str, Peer] = {}

    def change(self, routes: dict) -> None:
        self.routes.update(routes)
        self.table.handle(batch(routes))

    def snapshot(self, routes: dict) -> None:
        self.routes = dict(routes)
        self.table.handle(batch(routes, SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END))

    def join(self, name: str) -> None:
        self.leave(name)
        self.peers[name] = Peer()
        self.table.join(name, 4096)

    def leave(self, name: str) -> None:
        self.peers.pop(name, None)
        self.table.leave(name)

    def tell(self, name: str) -> None:
        if name in self.peers:
            for octets in self.table.tell(self.table.members[name]):
                self.peers[name].take(octets)

    def again(self, name: str) -> None:
        if name in self.peers:
            self.table.tell_again(self.table.members[name])

    def group(self, _) -> None:
        self.table.group_changes()

    def tell_all(self) -> None:
        for name in self.peers:
            while not self.table.is_in_step(self.table.members[name]):
                self.tell(name)

    def expected(self, name: str) -> dict[str, bytes]:
        return {
            text: octets
            for text, (octets, source) in self.routes.items()
            if octets not in (None, TOO_LARGE) and source != name
        }


routes = st.dictionaries(
    st.sampled_from(PREFIXES),
    st.tuples(st.sampled_from([None, None, *SETS, TOO_LARGE]), st.sampled_from(["", *NAMES])),
    max_size=8,
)
present = st.dictionaries(
    st.sampled_from(PREFIXES), st.tuples(st.sampled_from(SETS), st.sampled_from(["", *NAMES])), max_size=8
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("change"), routes),
        st.tuples(st.just("change"), routes),
        st.tuples(st.just("snapshot"), present),
        st.tuples(st.sampled_from(["join", "leave", "tell", "tell", "group"]), st.sampled_from(NAMES)),
    ),
    max_size=40,
)


def play(world: World, script: list) -> None:
    world.snapshot({})
    for step, argument in script:
        getattr(world, step)(argument)
        world.table.collect()
    world.tell_all()
    for name, peer in world.peers.items():
        assert peer.held == world.expected(name)
        assert world.table.members[name].n_told == len(peer.held)
        assert peer.n_end_of_rib >= 1
        assert peer.n_end_of_rib == 1 or any(step == "again" for step, _ in script)


@settings(max_examples=200, deadline=None)
@given(script=steps)
def test_peers_hold_what_they_are_to_hold(script):
    """Each peer holds the group's routes but its own, and was never sent a withdrawal of what it did not hold."""
    play(World(), script)


@settings(max_examples=200, deadline=None)
@given(script=steps)
def test_peers_the_journal_left_behind_recover(script):
    """The same when the journal holds only the last sixteen changes, so that slow peers are left behind."""
    play(World(journal_power=4), script)


@settings(max_examples=200, deadline=None)
@given(script=steps)
def test_peers_are_told_large_sets_a_few_at_a_time(script):
    """The same when a turn ends after two sets, wherever in the table or the journal that is."""
    with mock.patch.multiple(adj_rib_out, MAX_SET_OCTETS=2 * len(SETS[0]), MIN_ROWS_PER_TURN=0):
        play(World(), script)


@settings(max_examples=200, deadline=None)
@given(script=steps, asked=st.lists(st.tuples(st.integers(0, 40), st.sampled_from(NAMES)), max_size=12))
def test_peers_that_ask_again_hold_what_they_are_to_hold(script, asked):
    """The same when peers ask for the table again at any time, also while they are told it."""
    script = script[:]
    for place, name in asked:
        script.insert(place, ("again", name))
    play(World(journal_power=4), script)


@pytest.mark.parametrize("journal_power", [22, 4])
@settings(max_examples=200, deadline=None)
@given(script=steps)
def test_a_peer_is_told_nothing_that_it_holds(journal_power, script):
    """However many are in the group and however slow each is, nobody is ever told a route as it holds it."""
    with mock.patch.multiple(adj_rib_out, ROWS_PER_TURN=2, MIN_ROWS_PER_TURN=0):
        world = World(journal_power)
        play(world, script)
    assert all(peer.n_told_again == 0 for peer in world.peers.values())
    assert world.table.exports.n_kept == 0


@pytest.mark.parametrize("n_between", [0, 1, 20000])
def test_there_and_back_is_not_told_to_a_slow_peer(n_between):
    """A route that changed and changed back before a slow peer looked is not told it; a fast one is told both.

    Nor is it after other changes, more than a peer is told in one go.
    """
    world = World()
    world.snapshot({"10.0.1.0/24": (SETS[0], "")})
    for name in ("a", "b"):
        world.join(name)
    world.tell_all()
    others = {f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24": (SETS[2], "") for n in range(n_between)}
    world.change({"10.0.1.0/24": (SETS[1], "")})
    while not world.table.is_in_step(world.table.members["a"]):
        world.tell("a")
    world.change(others)
    world.tell("b")
    world.change({"10.0.1.0/24": (SETS[0], "")})
    world.tell_all()
    assert world.peers["a"].held == world.peers["b"].held
    again = {name: peer.n_told_again for name, peer in world.peers.items()}
    assert again == {"a": 0, "b": 0}


def test_a_restart_while_a_peer_is_far_behind_tells_it_nothing_again():
    """The group's table is told anew, as after a restart of a stage before it: only what differs goes out."""
    world = World()
    first = {f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24": (SETS[0], "") for n in range(30000)}
    second = {prefix: (SETS[1], "") for prefix in first}
    world.snapshot(first)
    for name in ("a", "b"):
        world.join(name)
    world.tell_all()
    world.change(second)
    while not world.table.is_in_step(world.table.members["a"]):
        world.tell("a")
    world.tell("b")
    told = {name: world.table.members[name].n_updates for name in world.peers}
    world.snapshot(first)  # what is restarted chooses otherwise,
    world.snapshot(second)  # and as before
    world.tell_all()
    assert {name: peer.n_told_again for name, peer in world.peers.items()} == {"a": 0, "b": 0}
    assert world.table.members["a"].n_updates == told["a"] and world.peers["b"].held == world.peers["a"].held


def test_a_table_asked_for_many_times_is_ordered_once():
    """A thousand requests in one read cost no more than one; those that come while the table is told, one more."""
    world = World()
    world.snapshot({f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24": (SETS[0], "") for n in range(20000)})
    world.join("a")
    world.tell_all()
    member = world.table.members["a"]
    for _ in range(1000):
        world.again("a")
    assert member.order is None
    world.tell("a")
    order = member.order
    for _ in range(1000):
        world.again("a")
    assert member.order is order
    world.tell_all()
    assert world.peers["a"].n_told_again == 40000


def test_everything_gone_and_told_is_forgotten():
    """When nothing is left and all know, no prefix and no set takes room."""
    world = World()
    world.snapshot({})
    world.join("a")
    world.change({text: (SETS[0], "") for text in PREFIXES})
    world.tell_all()
    world.change({text: (None, "") for text in PREFIXES})
    world.table.collect()
    assert world.table.prefixes.n_prefixes == len(PREFIXES)
    world.tell_all()
    world.table.collect()
    world.table.attributes.sweep()
    assert (world.table.prefixes.n_prefixes, world.table.attributes.n_sets) == (0, 0)


def test_first_table_waits_for_the_whole():
    """A peer is told nothing before the exporter's first snapshot is complete, so that equal sets come together."""
    world = World()
    world.join("a")
    world.table.handle(batch({"10.0.1.0/24": (SETS[0], "")}, SNAPSHOT_BEGIN | SNAPSHOT))
    world.tell("a")
    assert world.peers["a"].held == {}
    world.table.handle(batch({"10.0.2.0/24": (SETS[0], "")}, SNAPSHOT | SNAPSHOT_END))
    world.tell("a")
    assert len(world.peers["a"].held) == 2 and world.table.members["a"].n_updates == 2


def test_late_peer_gets_one_update_a_set():
    """A table told whole goes out in as many UPDATEs as there are sets, however its rows lie."""
    world = World()
    n_sets, n_prefixes = 300, 30000
    many = [encode_set(as_path=[65000, n + 1], next_hop=bytes([10, 0, 0, 1])) for n in range(n_sets)]
    texts = [f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(n_prefixes)]
    world.snapshot({text: (many[n % n_sets], "") for n, text in enumerate(texts)})
    world.join("a")
    world.tell_all()
    assert len(world.peers["a"].held) == n_prefixes
    assert world.table.members["a"].n_updates <= n_sets + 1 + 3


def test_changes_put_in_order_go_in_one_update_a_set():
    """Changes whose equal sets came apart are told together, each prefix once, as it is when it is told."""
    world = World()
    n_sets, n_prefixes = 300, 30000
    many = [encode_set(as_path=[65000, n + 1], next_hop=bytes([10, 0, 0, 1])) for n in range(n_sets)]
    texts = [f"{10 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24" for n in range(n_prefixes)]
    world.snapshot({})
    world.join("a")
    world.tell_all()
    world.change({text: (many[n % n_sets], "") for n, text in enumerate(texts)})
    world.table.group_changes()
    world.tell("a")
    held = dict(world.peers["a"].held)
    gone, other = texts[-1], texts[-2]
    assert 0 < len(held) < n_prefixes and not held.keys() & {gone, other}
    world.change({gone: (None, ""), other: (many[0], "")})
    world.tell_all()
    assert world.peers["a"].held == world.expected("a") and world.peers["a"].n_told_again == 0
    assert world.table.members["a"].n_updates <= n_sets + 1 + 5


def test_a_removal_that_waits_in_the_order_is_not_forgotten():
    """What is gone is kept until the peer was told so, though its changes are put in order already."""
    world = World()
    world.snapshot({text: (SETS[0], "") for text in PREFIXES})
    world.join("a")
    world.tell_all()
    world.change({text: (None, "") for text in PREFIXES})
    world.table.group_changes()
    world.table.collect()
    assert world.table.prefixes.n_prefixes == len(PREFIXES)
    world.again("a")
    world.tell_all()
    assert world.peers["a"].held == {} and world.table.members["a"].n_told == 0
    world.table.collect()
    assert world.table.prefixes.n_prefixes == 0


def test_route_too_large_for_one_peer_is_withdrawn_from_it():
    """Attributes that no message to a peer can hold make the route gone for it (RFC 8654 §5)."""
    world = World()
    world.snapshot({"10.0.1.0/24": (SETS[0], "")})
    world.join("a")
    world.tell_all()
    world.change({"10.0.1.0/24": (TOO_LARGE, "")})
    world.tell_all()
    assert world.peers["a"].held == {}
    assert world.table.members["a"].n_too_long == 1
