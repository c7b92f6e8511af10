"""Readers of shares that a relay joins: each gets its rows, in few batches, and waits for no other."""

import numpy as np
import pytest

from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END
from common.bus.journal import JournalSource
from common.bus.schema import RouteChanges, SessionChanges
from common.bus.trunk import FEW_ROWS, ROUND_ROWS, ROUND_S
from common.config.sharing import Share, decode_share
from common.kernels.shares import is_in_share

CHANNEL = "adj-rib-in/ipv4-unicast"
POLICY = "ipc:///run/policy.0.bus"
N_SHARES = 3


class Shared:
    """An owner with readers of three shares behind a relay that joins them."""

    def __init__(self, world, make_owner, make_copy):
        self.world, self.make_copy = world, make_copy
        self.make_owner = make_owner
        self.evaluated: list[int] = []  # rows of each batch
        self.own("e1")
        bus = world.bus("policy")
        self.relay = bus.relay(
            "adj-rib-in/*",
            lambda request: (bus.endpoint("speaker"), request.channel, request.params),
            "v1",
            lambda request: self.transform,
            joins_shares=True,
        )
        self.copies: dict[int, object] = {}
        self.followers: dict[int, object] = {}
        for index in range(N_SHARES):
            self.start(index)

    def own(self, epoch: str) -> None:
        """Start the owner, which serves all rows or those of a share."""
        owner = self.owner = self.make_owner(self.world.bus("speaker"), epoch=epoch, capacity_power=17)
        whole = owner.source

        def source(request):
            share = decode_share(request.params)
            if share.count == 1:
                return whole
            return JournalSource(
                owner.journal, RouteChanges, owner.gather, lambda: owner.limit, epoch=share.epoch_of(epoch),
                marks=owner.marks, preamble=whole._preamble, epilogue=whole._epilogue,
                choose=lambda rows: rows[is_in_share(*share, rows.astype(np.uint64) << np.uint64(44), False)],
                share=share.count,
            )  # fmt: skip

        owner.server._patterns.clear()
        owner.server.add("adj-rib-in/*", source)
        gather = owner.gather
        owner.gather = lambda rows, is_snapshot: with_prefixes(gather(rows, is_snapshot))
        whole._gather = owner.gather

    def start(self, index: int, position=None) -> None:
        """Start a reader."""
        copy = self.copies[index] = self.make_copy()
        bus = self.world.bus(f"rib{index}")
        more = {} if position is None else {"position": position}
        self.followers[index] = bus.follow(
            "policy", "0", CHANNEL, copy.handle, params=Share(index, N_SHARES).params, **more
        )
        self.world.settle()

    def put(self, rows, value: int) -> None:
        rows = np.array(rows, np.uint32)
        self.owner.values[rows] = value
        self.owner.limit = max(self.owner.limit, int(rows.max()) + 1)
        self.owner.journal.append(rows)

    def transform(self, batch):
        if batch.kind is RouteChanges and batch.n_rows:
            self.evaluated.append(batch.n_rows)
        return [batch]

    @property
    def upstream(self) -> list[dict]:
        """The parameters of the subscriptions at the owner."""
        return [reader.request.params for reader in self.owner.server._order]

    def expected(self, index: int) -> dict[int, int]:
        """Return what a reader must hold: {hi: value}."""
        rows = np.flatnonzero(self.owner.values)
        hi = rows.astype(np.uint64) << np.uint64(44)
        is_in = is_in_share(index, N_SHARES, hi, False)
        return dict(zip(hi[is_in].tolist(), self.owner.values[rows[is_in]].tolist(), strict=True))

    def check(self) -> None:
        for index, copy in self.copies.items():
            assert copy.values == self.expected(index)


def with_prefixes(gathered):
    """Have the row's number in the upper bits of the prefix, by which shares are made."""
    columns, meta = gathered
    return columns | {"hi": columns["hi"] << np.uint64(44)}, meta


@pytest.fixture
def shared(world, make_owner, make_copy):
    return Shared(world, make_owner, make_copy)


def test_readers_in_step_share_one_subscription(shared):
    """What changes is fetched and evaluated once, and each reader gets its own rows."""
    assert shared.upstream == [{}]
    shared.put(range(1, 500), 7)
    shared.world.settle()
    assert shared.evaluated == [499]
    shared.put([3, 4, 5], 0)
    shared.put([5], 9)
    shared.world.settle()
    shared.check()
    assert [follower.position.epoch for follower in shared.followers.values()] == [
        f"e1-{index}.{N_SHARES}~v1" for index in range(N_SHARES)
    ]


def test_a_single_change_waits_for_nothing(shared):
    """Few rows are passed on at once, and only to the reader whose they are."""
    n_before = {index: len(copy.batches) for index, copy in shared.copies.items()}
    shared.put([2], 5)
    shared.world.settle()
    n_new = [len(copy.batches) - n_before[index] for index, copy in shared.copies.items()]
    assert sorted(n_new) == [0, 0, 1]
    shared.check()


def test_much_is_gathered_for_a_moment(shared):
    """Large batches are joined until there are many rows or time is up; the order of one row's changes stays."""
    n_before = sum(len(copy.batches) for copy in shared.copies.values())
    for value in range(1, 5):
        shared.put(range(1, FEW_ROWS + 100), value)
        shared.world.settle()
    shared.put([9], 0)
    shared.world.settle()
    assert sum(len(copy.batches) for copy in shared.copies.values()) == n_before
    shared.world.wait(ROUND_S)
    assert sum(len(copy.batches) for copy in shared.copies.values()) == n_before + N_SHARES
    shared.check()
    for value in range(5, 9):
        shared.put(range(1, ROUND_ROWS // 4 + 1), value)
        shared.world.settle()
    assert sum(len(copy.batches) for copy in shared.copies.values()) == n_before + 2 * N_SHARES
    shared.check()


def test_a_mark_keeps_its_place(shared, session_content):
    """A session's event comes after the changes before it, to all, and what is gathered does not pass it."""
    shared.put(range(1, FEW_ROWS + 100), 3)
    shared.owner.marks.append(lambda: session_content(4))
    shared.put([1], 6)
    shared.world.settle()
    shared.check()
    for copy in shared.copies.values():
        assert copy.events[-1] == 4
        is_down = [batch.kind is SessionChanges and 4 in batch.columns["event"] for batch in copy.batches]
        at = is_down.index(True)
        assert copy.batches[at - 1].n_rows > FEW_ROWS // 4 and len(copy.batches) - at <= 2


def test_a_reader_that_begins_holds_nobody_up(shared):
    """One that starts with nothing gets its snapshot by itself, meanwhile the others get changes; then it joins."""
    shared.put(range(1, 20_000), 7)
    shared.world.wait(ROUND_S)
    shared.world.kill("rib1")
    shared.world.settle()
    assert shared.upstream == [{}]
    n_before = len(shared.evaluated)
    flags_before = {index: len(shared.copies[index].batches) for index in (0, 2)}
    bus, copy = shared.world.bus("rib1"), shared.make_copy()
    shared.copies[1] = copy
    shared.followers[1] = bus.follow("policy", "0", CHANNEL, copy.handle, params=Share(1, N_SHARES).params)
    for value in range(1, 30):
        shared.put([value, value + 5000], value)
        for loop in shared.world.loops.values():
            loop.turn()
    shared.world.settle()
    assert len(shared.evaluated) > n_before
    shared.check()
    for index in (0, 2):
        assert not any(batch.flags for batch in shared.copies[index].batches[flags_before[index] :])
    flags = [batch.flags for batch in copy.batches]
    assert sum(bool(each & SNAPSHOT_BEGIN) for each in flags) == sum(bool(each & SNAPSHOT_END) for each in flags) == 1
    assert shared.upstream == [{}]


def test_a_reader_goes_on_from_its_position(shared):
    """A relay that was started again, and a connection that broke: no snapshot, nothing missing."""
    shared.put(range(1, 2000), 7)
    shared.world.wait(ROUND_S)
    n_before = {index: len(copy.batches) for index, copy in shared.copies.items()}
    shared.world.hub.drop(POLICY)
    shared.put([8, 9, 10, 11], 3)
    shared.world.settle()
    shared.check()
    for index, copy in shared.copies.items():
        assert not any(batch.flags for batch in copy.batches[n_before[index] :])
    assert shared.upstream == [{}]


def test_the_owners_new_epoch_is_a_snapshot_for_each(shared):
    """An owner that was started again is noticed by each reader once, and what is gone goes."""
    shared.put(range(1, 3000), 7)
    shared.world.wait(ROUND_S)
    shared.world.kill("speaker")
    shared.own("e2")
    shared.put(range(1, 2900), 7)
    shared.world.settle()
    shared.world.wait(ROUND_S)
    shared.check()
    for copy in shared.copies.values():
        assert sum(bool(batch.flags & SNAPSHOT_BEGIN) for batch in copy.batches) == 2
        assert copy.removed_at_end and min(copy.removed_at_end) >= 2900 << 44


def test_another_version_begins_anew_for_each(shared):
    """With another configuration all is evaluated again, and then the readers are joined again."""
    shared.put(range(1, 3000), 7)
    shared.world.wait(ROUND_S)
    shared.relay.set_version("v2")
    shared.world.settle()
    shared.world.wait(ROUND_S)
    shared.check()
    assert shared.upstream == [{}]
    assert all(follower.position.epoch.endswith("~v2") for follower in shared.followers.values())


def test_a_reader_that_stops_does_not_stop_the_others(shared):
    """While one reads nothing the others get everything; what is kept for it is bounded; then it gets all as well."""
    connector = shared.world.hub.connectors[POLICY][1]
    connector.freeze()
    (trunk,) = shared.relay.trunks()
    most = 0
    for turn in range(30):
        shared.put(range(1, 40_000), turn + 1)
        shared.world.wait(ROUND_S)
        most = max(most, trunk.n_octets)
    shared.world.wait(ROUND_S)
    assert [copy.values == shared.expected(index) for index, copy in shared.copies.items()] == [True, False, True]
    assert most < 6 << 20
    assert sorted(map(len, shared.upstream)) == [0, 2], "it has a subscription of its own now"
    connector.thaw()
    shared.world.wait(ROUND_S)
    shared.check()
    assert shared.upstream == [{}]


def test_readers_that_leave_end_the_subscription(shared):
    """Nothing is followed for nobody."""
    for index in range(N_SHARES):
        shared.world.kill(f"rib{index}")
        shared.world.settle()
    assert shared.upstream == [] and shared.relay.requests() == []
