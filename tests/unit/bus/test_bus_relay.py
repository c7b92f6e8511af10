"""Transformations pass positions, flags and credit through, and keep nothing."""

from dataclasses import replace

import numpy as np
import pytest

from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, empty_columns
from common.bus.schema import RouteChanges
from common.bus.server import Refused

CHANNEL = "adj-rib-in/ipv4-unicast"
SPEAKER = "ipc:///run/speaker.0.bus"
POLICY = "ipc:///run/policy.0.bus"


def as_it_is(batch, request):
    return [batch]


def relay(world, transform=as_it_is, version="v1"):
    bus = world.bus("policy")
    return bus.relay(
        "adj-rib-in/*",
        lambda request: (bus.endpoint("speaker"), request.channel, {}),
        version,
        lambda request: lambda batch: transform(batch, request),
    )


def follow(world, copy, **more):
    bus = world.buses.get("rib") or world.bus("rib")
    return bus.follow("policy", "0", CHANNEL, copy.handle, **more)


def test_snapshot_and_changes_pass_through(world, make_owner, make_copy):
    """A reader of a relay sees what a reader of the owner sees, with the version in the epoch."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 1)
    relay(world)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    owner.put(2, 2)
    world.settle()
    assert copy.values == {1: 1, 2: 2} and copy.events == [1, 3]
    assert follower.position.epoch == "e1~v1" and follower.lag == 0
    assert follower.position.sequence == owner.journal.head


def test_a_relay_that_restarts_is_not_noticed_in_the_table(world, make_owner, make_copy):
    """A new relay of the same version goes on from the reader's position: no snapshot, no loss."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 50):
        owner.put(row, row)
    relay(world)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    world.kill("policy")
    owner.put(3, 0)
    world.settle()
    n_before = len(copy.batches)
    relay(world)
    world.settle()
    assert [batch.flags for batch in copy.batches[n_before:]] == [0]
    assert copy.values == {row: row for row in range(1, 50) if row != 3}


def test_a_relay_of_another_version_starts_a_snapshot(world, make_owner, make_copy):
    """A restart with another configuration cannot go unnoticed."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 1)
    relay(world)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    world.kill("policy")
    n_before = len(copy.batches)
    relay(world, version="v2")
    world.settle()
    flags = [batch.flags for batch in copy.batches[n_before:]]
    assert flags[0] & SNAPSHOT_BEGIN and flags[-1] & SNAPSHOT_END and copy.values == {1: 1}


def test_a_new_version_in_a_running_relay_starts_a_snapshot(world, make_owner, make_copy):
    """`set_version` has every route evaluated anew, also for a reader in the middle of something."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 4000):
        owner.put(row, 5)
    dropped = []

    def transform(batch, request):
        if batch.kind is RouteChanges and dropped:
            return [replace(batch, columns={**batch.columns, "set": np.full(batch.n_rows, 0xFFFFFFFF, np.uint32)})]
        return [batch]

    policy = relay(world, transform)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    dropped.append(True)
    policy.set_version("v2")
    world.settle()
    assert copy.values == {} and follower.position.epoch == "e1~v2"


def test_a_restarted_owner_shows_through_the_relay(world, make_owner, make_copy):
    """The owner's new epoch reaches the relay's reader as a snapshot that removes what is gone."""
    owner = make_owner(world.bus("speaker"))
    owner.put(1, 1)
    owner.put(2, 2)
    relay(world)
    copy = make_copy()
    follow(world, copy)
    world.settle()
    world.kill("speaker")
    owner = make_owner(world.bus("speaker"), epoch="e2")
    owner.put(2, 2)
    world.settle()
    assert copy.values == {2: 2} and copy.removed_at_end == [1]


@pytest.mark.parametrize("n_parts", [0, 2, 3])
def test_marks_survive_whatever_a_batch_becomes(world, make_owner, make_copy, n_parts):
    """Each snapshot has one begin and one end, though its batches become several or none."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 5000):
        owner.put(row, row)

    def transform(batch, request):
        if batch.kind is not RouteChanges:
            return [] if n_parts == 0 else [batch]
        return [Batch(RouteChanges, batch.columns, batch.meta) for _ in range(n_parts)]

    relay(world, transform)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    assert sum(bool(flags & SNAPSHOT_BEGIN) for flags in copy.flags) == 1 and copy.flags[0] & SNAPSHOT_BEGIN
    assert sum(bool(flags & SNAPSHOT_END) for flags in copy.flags) == 1 and copy.flags[-1] & SNAPSHOT_END
    assert len(copy.values) == (4999 if n_parts else 0)
    assert follower.position.sequence == owner.journal.head


def test_a_reader_lost_between_two_parts_loses_nothing(world, make_owner, make_copy):
    """The first of several parts does not acknowledge the whole."""
    owner = make_owner(world.bus("speaker"))

    def transform(batch, request):
        if batch.kind is not RouteChanges or not batch.n_rows:
            return [batch]
        half = {**batch.columns}
        for name in ("hi", "length", "source", "set", "reason"):
            half[name] = half[name][: batch.n_rows // 2]
        return [Batch(RouteChanges, half, batch.meta), Batch(RouteChanges, batch.columns, batch.meta)]

    relay(world, transform)
    copy = make_copy()
    follower = follow(world, copy)
    world.settle()
    owner.put(1, 1)
    owner.put(2, 2)
    seen = []
    genuine = copy.handle
    follower._handle = lambda batch: (seen.append(batch), genuine(batch), world.hub.drop(POLICY))
    world.loops["speaker"].turn()
    world.loops["policy"].turn()
    world.loops["rib"].turn()
    assert len(seen) == 1
    follower._handle = genuine
    world.settle()
    assert copy.values == {1: 1, 2: 2}


def test_a_reader_that_stops_stops_the_owner(world, make_owner, make_copy):
    """Credit passes through: a relay piles nothing up for a reader that does not read."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 60_000):
        owner.put(row, row % 1000 + 1)

    def doubled(batch, request):
        return [batch, batch] if batch.kind is RouteChanges else [batch]

    relay(world, doubled)
    copy = make_copy()
    follow(world, copy, credit=200_000)
    world.loops["rib"].turn()
    connector = world.hub.connectors[POLICY][0]
    connector.freeze()
    for _ in range(300):
        world.loops["policy"].turn()
        world.loops["speaker"].turn()
    sent = owner.server.readers()[0]["octets"]
    assert sent < 200_000 + 2 * 65536, "the owner has stopped"
    for _ in range(20):
        world.hub.drop(SPEAKER)
        for _ in range(20):
            world.loops["policy"].turn()
            world.loops["speaker"].turn()
    source = world.buses["policy"].serve()._order[0].source
    assert sum(batch.n_octets for batch in source._pending) < 2 * (200_000 + 2 * 65536), "nor do reconnections add up"
    connector.thaw()
    world.settle()
    assert len(copy.values) == 59_999


def test_what_becomes_next_to_nothing_holds_nothing_up(world, make_owner, make_copy):
    """A table that shrinks to marks and positions on its way is passed on to its end, and changes after it too."""
    owner = make_owner(world.bus("speaker"))
    for row in range(1, 60_000):
        owner.put(row, row)
    relay(world, lambda batch, request: [replace(batch, columns=empty_columns(batch.kind))])
    follower = follow(world, make_copy(), credit=200_000)
    world.settle()
    assert follower.position.sequence == owner.journal.head and not follower.is_in_snapshot
    for value in range(2, 9):
        for row in range(1, 4000):
            owner.put(row, row + value)
        world.settle()
    assert follower.position.sequence == owner.journal.head


def test_a_refusal_passes_through_and_readers_leave_nothing(world, make_owner, make_copy):
    """What the owner refuses the relay refuses, and a reader that leaves ends its subscription upstream."""
    bus = world.bus("speaker")

    def refuse(request):
        raise Refused("no such family")

    bus.serve().add("adj-rib-in/ipv6-unicast", refuse)
    owner = make_owner(bus)
    relay(world)
    told = []
    rib = world.bus("rib")
    refused = rib.follow("policy", "0", "adj-rib-in/ipv6-unicast", make_copy().handle, on_refused=told.append)
    follower = follow(world, make_copy())
    world.settle()
    assert told == ["upstream: no such family"]
    assert owner.server.n_readers(CHANNEL) == 1
    follower.close()
    refused.close()
    world.wait(30)
    assert owner.server.readers() == [] and world.buses["policy"].serve().readers() == []
    assert world.buses["policy"].followers() == []
