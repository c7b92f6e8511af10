"""Snapshot, live changes, resuming, gaps, credit: an owner and its readers over the memory transport."""

import numpy as np
import pytest

from common.bus.batch import GAP, SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, START, Position
from common.bus.schema import RouteChanges, SessionChanges
from common.bus.server import Refused, Source

CHANNEL = "adj-rib-in/ipv4-unicast"
SPEAKER = "ipc:///run/speaker.0.bus"


def follow(world, copy, stage="policy", **more):
    bus = world.buses.get(stage) or world.bus(stage)
    return bus.follow("speaker", "0", CHANNEL, copy.handle, **more)


def test_an_empty_table_is_one_snapshot_with_both_marks(world, make_owner, make_copy):
    """A reader of an empty table learns at once that there is nothing, and which sessions are up."""
    make_owner(world.bus("speaker"))
    copy = make_copy()
    follow(world, copy)
    world.settle()
    assert copy.flags[0] & SNAPSHOT_BEGIN and copy.flags[-1] & SNAPSHOT_END
    assert copy.events == [1, 3]
    assert copy.values == {}


def test_snapshot_then_changes(world, make_owner, make_copy):
    """What was there before comes as a snapshot, what happens later as changes, and removals too."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 101):
        owner.put(row, row + 7)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    assert copy.values == {row: row + 7 for row in range(1, 101)}
    owner.put(5, 0)
    owner.put(6, 99)
    owner.put(6, 98)
    world.settle()
    assert 5 not in copy.values and copy.values[6] == 98
    assert copy.batches[-1].n_rows == 2, "a row that changed twice is told once"
    assert copy.batches[-1].flags == 0
    assert follower.position == Position("e1", owner.journal.head, -1) and follower.lag == 0


def test_rows_with_large_sets_come_in_small_batches(world, make_owner, make_copy):
    """However small the rows before were, a batch has few rows with large sets, and none of them is left out."""
    owner = make_owner(world.bus("speaker"))
    owner.large_from = 1000
    rng = np.random.default_rng(5)
    copies = [make_copy(), make_copy()]
    follow(world, copies[0])
    for row in range(1, 2001):
        owner.put(row, row % 7 + 1)
    world.settle()
    before = copies[0].batches[:]
    for row in rng.integers(1, 3000, 2500).tolist():
        owner.put(row, int(rng.choice([0, 5, 1000, 1001])))
    follow(world, copies[1], "rib")
    world.settle()
    expected = {row: int(owner.values[row]) for row in np.flatnonzero(owner.values).tolist()}
    assert copies[0].values == copies[1].values == expected
    assert max(batch.n_rows for batch in before) > 500
    later = [*copies[0].batches[len(before) :], *copies[1].batches]
    assert max(owner.sizes(batch.columns["hi"]).sum() for batch in later if batch.kind is RouteChanges) <= 64 << 19


def test_a_change_goes_out_in_the_turn_in_which_it_is_made(world, make_owner, make_copy):
    """Nothing waits for a timer: one turn of the owner sends, one turn of the reader handles."""
    owner = make_owner(world.bus("speaker"))
    copy = make_copy()
    follow(world, copy)
    world.settle()
    owner.put(3, 4)
    world.loops["speaker"].turn()
    world.loops["policy"].turn()
    assert copy.values == {3: 4}


def test_a_position_of_the_same_epoch_is_resumed_without_a_snapshot(world, make_owner, make_copy):
    """After a lost connection a reader is told only what it has missed."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 1)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    n_before = len(copy.batches)
    world.hub.drop(SPEAKER)
    owner.put(2, 2)
    world.settle()
    assert copy.values == {1: 1, 2: 2}
    assert [batch.flags for batch in copy.batches[n_before:]] == [0]


def test_a_snapshot_is_resumed_at_its_cursor(world, make_owner, make_copy):
    """A connection lost inside a snapshot does not begin it again, and changes of handled rows are not lost."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 5001):
        owner.put(row, row)
    copy = make_copy()
    follower = follow(world, copy, credit=1)
    world.loops["policy"].turn()
    world.loops["speaker"].turn()
    world.loops["policy"].turn()
    assert follower.is_in_snapshot
    owner.put(1, 77)
    world.hub.drop(SPEAKER)
    world.settle()
    assert sum(1 for flags in copy.flags if flags & SNAPSHOT_BEGIN) == 1
    assert sum(1 for flags in copy.flags if flags & SNAPSHOT_END) == 1
    assert copy.values == {1: 77} | {row: row for row in range(2, 5001)}
    assert not any(flags & GAP for flags in copy.flags)


def test_a_new_epoch_replaces_what_the_reader_has_and_removes_the_rest(world, make_owner, make_copy):
    """After its owner restarted empty-handed, the reader ends with what the new one has."""
    owner = make_owner(world.bus("speaker"))
    for row in (1, 2, 3):
        owner.put(row, row)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    world.kill("speaker")
    world.settle()
    owner = make_owner(world.bus("speaker"), epoch="e2")
    owner.put(2, 2)
    owner.put(3, 9)
    world.settle()
    assert copy.values == {2: 2, 3: 9}
    assert copy.removed_at_end == [1]


def test_a_position_no_longer_held_gets_a_marked_gap(world, make_owner, make_copy):
    """A reader the journal has overtaken sees a gap and a snapshot, never silent loss."""
    owner = make_owner(world.bus("speaker"), capacity_power=4)
    owner.put(1, 1)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    connector = world.hub.connectors[SPEAKER][0]
    connector.freeze()
    follower.close()
    for value in range(2, 100):
        owner.put(1 + value % 7, value)
    again = make_copy()
    follow(world, again, stage="tap", position=follower.position)
    world.settle()
    assert again.flags[0] == GAP | SNAPSHOT_BEGIN | SNAPSHOT
    assert again.values == {row: int(owner.values[row]) for row in range(1, 8) if owner.values[row]}


def test_nothing_is_served_while_the_gate_is_closed(world, make_owner, make_copy):
    """An owner that is refilling itself sends nothing, then everything."""
    owner = make_owner(world.bus("speaker"))
    owner.is_open = False
    owner.put(1, 1)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    assert copy.batches == []
    assert owner.server.min_position(CHANNEL) is None, "who has got nothing holds nothing back"
    owner.is_open = True
    world.settle()
    assert copy.values == {1: 1}


def test_marks_keep_their_place(world, make_owner, make_copy, session_content):
    """A session event is told after what came before it and before what comes after it."""
    owner = make_owner(world.bus("speaker"))
    copy = make_copy()
    follow(world, copy)
    world.settle()
    del copy.batches[:]
    owner.put(1, 1)
    owner.put(2, 2)
    owner.marks.append(lambda: session_content(4))
    owner.put(1, 5)
    owner.marks.append(lambda: session_content(2))
    world.settle()
    told = [
        batch.columns["event"].tolist() if batch.kind is SessionChanges else batch.columns["hi"].tolist()
        for batch in copy.batches
    ]
    assert told == [[2], [4], [1], [2]]
    assert copy.values == {1: 5, 2: 2}


def test_marks_do_not_outlive_the_journal(make_owner, world):
    """Marks nobody can come to any more are forgotten."""
    owner = make_owner(world.bus("speaker"), capacity_power=4)
    for _ in range(1000):
        owner.marks.append(lambda: None)
    assert len(owner.marks) <= 16


def test_a_reader_that_does_not_read_is_sent_no_more_than_its_credit(world, make_owner, make_copy):
    """What is on its way to a stopped reader is bounded, and it gets the rest when it reads again."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 60_001):
        owner.put(row, row % 1000 + 1)
    copy = make_copy()
    follow(world, copy, credit=200_000)
    world.loops["policy"].turn()
    connector = world.hub.connectors[SPEAKER][0]
    connector.freeze()
    for _ in range(200):
        world.loops["speaker"].turn()
    reader = owner.server.readers()[0]
    assert 200_000 <= reader["octets"] < 200_000 + 2 * 65536
    assert reader["credit"] <= 0
    connector.thaw()
    world.settle()
    assert len(copy.values) == 60_000


@pytest.mark.parametrize("is_relayed", [False, True])
def test_a_reader_of_small_batches_that_does_not_read_loses_nothing(
    world, make_owner, make_copy, monkeypatch, is_relayed
):
    """However small batches are, only so many wait for a reader; none is lost when no more are kept."""
    monkeypatch.setattr("common.bus.bus.MAX_UNREAD_BATCHES", 5)
    owner, copy = make_owner(world.bus("speaker")), make_copy()
    if is_relayed:
        bus = world.bus("policy")
        upstream = (bus.endpoint("speaker"), CHANNEL, {})
        bus.relay("adj-rib-in/*", lambda request: upstream, "v1", lambda request: lambda batch: [batch])
    followed = "policy" if is_relayed else "speaker"
    world.bus("rib").follow(followed, "0", CHANNEL, copy.handle)
    world.settle()
    (connector,) = world.hub.connectors[f"ipc:///run/{followed}.0.bus"]
    connector.freeze()
    for row in range(1, 100):
        owner.put(row, row)
        world.settle()
    assert len(connector.mailbox) == 5
    connector.thaw()
    world.settle()
    assert copy.values == {row: row for row in range(1, 100)}


def test_refusals_that_nobody_reads_do_not_pile_up(world, make_owner, monkeypatch):
    """A reader that asks for what there is not, again and again, and reads no answer, has few waiting."""
    monkeypatch.setattr("common.bus.bus.MAX_UNREAD_BATCHES", 5)
    make_owner(world.bus("speaker"))
    follower = world.bus("tap").follow("speaker", "0", "no/such/channel", print)
    world.settle()
    (connector,) = world.hub.connectors[SPEAKER]
    connector.freeze()
    for _ in range(20):
        follower.ask()
    world.settle()
    assert len(connector.mailbox) == 5
    assert world.logs["speaker"].counts["refusal-dropped"] == 15


def test_a_stopped_reader_does_not_slow_another(world, make_owner, make_copy):
    """Each reader has its own position; a deaf one costs the others nothing."""
    owner = make_owner(world.bus("speaker"))
    deaf, good = make_copy(), make_copy()
    follow(world, deaf, stage="tap", credit=1000, params={"tap": True})
    world.settle()
    world.hub.connectors[SPEAKER][0].freeze()
    follow(world, good)
    for row in range(1, 3000):
        owner.put(row, 1)
    world.settle()
    assert len(good.values) == 2999
    assert owner.server.min_position(CHANNEL) == owner.journal.head, "a tap holds nothing back"


def test_min_position_is_that_of_the_slowest_reader(world, make_owner, make_copy):
    """The owner sees how far its slowest reader that is no tap has come."""
    owner = make_owner(world.bus("speaker"))
    follow(world, make_copy(), stage="slow", credit=1)
    follow(world, make_copy(), stage="quick")
    world.settle()
    at = owner.journal.head
    world.hub.connectors[SPEAKER][0].freeze()
    for row in range(1, 3000):
        owner.put(row, 1)
        if row % 500 == 0:
            world.settle()
    world.settle()
    assert at <= owner.server.min_position(CHANNEL) < owner.journal.head
    assert owner.server.n_readers(CHANNEL) == 2
    world.kill("slow")
    world.settle()
    assert owner.server.min_position(CHANNEL) == owner.journal.head


def test_an_unhandled_batch_is_not_acknowledged(world, make_owner):
    """A reader that dies in the middle of a batch asks again from before it."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 1)

    def fail(batch):
        raise RuntimeError("died")

    follower = world.bus("policy").follow("speaker", "0", CHANNEL, fail)
    with pytest.raises(RuntimeError):
        world.settle()
    assert follower.position == START


def test_a_refusal_is_told_and_asked_again_later(world, make_owner, make_copy):
    """A refused reader knows why, and tries again without being told to."""
    bus = world.bus("speaker")
    owner = make_owner(bus)
    state = {"ready": False}

    def open(request):
        if not state["ready"]:
            raise Refused("not yet")
        return owner.source

    owner.server.add("loc-rib/*", open)
    copy, told = make_copy(), []
    follower = world.bus("fib").follow("speaker", "0", "loc-rib/ipv4-unicast", copy.handle, on_refused=told.append)
    world.settle()
    assert told == ["not yet"] and follower.refused == "not yet" and not follower.is_connected
    state["ready"] = True
    world.wait(1)
    assert copy.events == [1, 3] and follower.is_connected


def test_an_unknown_channel_is_refused(world, make_owner, make_copy):
    """A channel nobody has added is refused by name."""
    make_owner(world.bus("speaker"))
    told = []
    world.bus("fib").follow("speaker", "0", "weather", make_copy().handle, on_refused=told.append)
    world.settle()
    assert told == ["no channel weather"]


def test_another_schema_is_refused_with_both_fingerprints(world, make_owner, make_copy, monkeypatch):
    """Stages of two versions that do not understand each other say so."""
    from common.bus import wire
    from common.bus.schema import FINGERPRINT

    make_owner(world.bus("speaker"))
    told = []
    monkeypatch.setattr(wire, "FINGERPRINT", "f00f00f00f00")
    monkeypatch.setattr(wire, "description", lambda: [])
    world.bus("fib").follow("speaker", "0", CHANNEL, make_copy().handle, on_refused=told.append)
    world.settle()
    assert "f00f00f00f00" in told[0] and FINGERPRINT in told[0]


@pytest.mark.parametrize(
    "frames", [[b""], [b"\xc1"], [b"x", b"y"], [b"\x80"], [b"\x81\xa1t\xa4read"], [], [b"\x93" * 3000]]
)
def test_garbage_for_an_owner_is_counted_and_dropped(world, make_owner, make_copy, frames):
    """A stranger's octets disturb nobody."""
    owner = make_owner(world.bus("speaker"))
    copy = make_copy()
    follow(world, copy)
    world.hub.connectors[SPEAKER][0].send(frames)
    owner.put(1, 1)
    world.settle()
    assert copy.values == {1: 1}
    assert world.logs["speaker"].counts["bus-garbage"] == 1


def test_after_garbage_a_reader_asks_again_from_its_position(world, make_owner, make_copy):
    """What could not be read may have been a batch, so nothing is lost by it."""
    owner = make_owner(world.bus("speaker"))
    copy = make_copy()
    follow(world, copy)
    world.settle()
    listener = world.hub.listeners[SPEAKER]
    genuine = listener.send
    listener.send = lambda peer, frames: genuine(peer, frames[:-1])
    owner.put(1, 1)
    world.settle()
    listener.send = genuine
    assert copy.values == {} and world.logs["policy"].counts["bus-garbage"] == 1
    world.wait(2)
    assert copy.values == {1: 1}


def test_a_source_may_be_a_plain_object(world, make_copy):
    """Any object with `read` and `head` serves, such as the fib's few next hops."""

    class Silent:
        head = 1

        def read(self, position, max_octets):
            return []

    assert Source is not Silent
    server = world.bus("fib").serve()
    server.add("nexthops", lambda request: Silent())
    follower = world.bus("rib").follow("fib", "0", "nexthops", make_copy().handle)
    world.settle()
    assert server.readers()[0]["reader"] == "rib.0"
    follower.close()
    world.settle()
    assert server.readers() == []


def test_snapshot_rows_come_in_chunks_no_larger_than_asked(make_owner, world):
    """A read gives about what it is asked for, whatever the table's size."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 20_001):
        owner.values[row] = row
    owner.limit = 20_001
    position, n_rows = START, []
    while True:
        batches = owner.source.read(position, 65536)
        n_rows += [batch.n_rows for batch in batches if batch.kind is not SessionChanges]
        position = batches[-1].position
        if batches[-1].flags & SNAPSHOT_END:
            break
    assert sum(n_rows) == 20_000
    assert max(n_rows) < 65536 / 22 * 1.5
    assert owner.source.read(position, 65536) == []
    assert np.all(np.array(n_rows[:-1]) > 500)
