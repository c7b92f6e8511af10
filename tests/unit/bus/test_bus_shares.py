"""Sharing out the prefixes among ribs: which share is whose, and that a reader of one share misses nothing."""

import numpy as np
import pytest

from common.bgp.constants import Family
from common.bus.batch import START, UNSENT
from common.config.sharing import Share
from common.kernels.shares import is_in_share
from stages.feed.synthetic import make_prefixes

CHANNEL = "adj-rib-in/ipv4-unicast"


def hi_of(*addresses: str) -> np.ndarray:
    values = [int.from_bytes(bytes(map(int, address.split("."))), "big") << 32 for address in addresses]
    return np.array(values, np.uint64)


def test_shares_never_change():
    """Processes of any age, on any machine, come to the same share."""
    hi = hi_of("0.0.0.0", "10.0.0.0", "192.0.2.0", "198.51.100.0", "203.0.113.0", "8.8.8.0")
    shares = [is_in_share(*Share(index, 4), hi, False).tolist() for index in range(4)]
    assert [each.index(True) for each in zip(*shares, strict=True)] == [0, 3, 3, 3, 2, 1]


@pytest.mark.parametrize("family", Family)
@pytest.mark.parametrize("n_shares", [2, 4, 7])
def test_each_prefix_is_in_one_share_and_shares_are_alike(family, n_shares):
    """The shares of a table are disjoint, are all of it, and none is a tenth larger than it should be."""
    hi, _, _ = make_prefixes(family, 100_000, seed=5)
    shares = np.stack([is_in_share(*Share(index, n_shares), hi, family.is_wide) for index in range(n_shares)])
    assert (shares.sum(axis=0) == 1).all()
    assert shares.sum(axis=1).max() < 1.1 * 100_000 / n_shares


def test_neighboring_prefixes_are_in_one_share():
    """Prefixes that agree in their upper bits are together, whatever their length."""
    hi = hi_of(*(f"10.1.{n}.0" for n in range(16)))
    assert is_in_share(*Share(0, 2), hi, False).sum() in (0, 16)


class Sharing:
    """An owner whose rows are shared out by their numbers, with a reader for each of two shares."""

    def __init__(self, world, make_owner, make_copy):
        self.world = world
        self.owner = make_owner(world.bus("speaker"), capacity_power=6)
        source = self.owner.source
        source._share = 2
        self.sources = {}
        for share in range(2):
            made = self.sources[share] = type(source)(
                source._journal, source._kind, source._gather, source._row_limit, epoch=f"e1-{share}",
                marks=source._marks, sizes=source._sizes, choose=lambda rows, share=share: rows[rows % 2 == share],
                share=2,
            )  # fmt: skip
            assert made.head == source.head
        self.owner.server._patterns.clear()
        self.owner.server.add("adj-rib-in/*", lambda request: self.sources[request.params["share"]])
        self.copies = [make_copy(), make_copy()]
        bus = world.bus("policy")
        self.followers = [
            bus.follow("speaker", "0", CHANNEL, copy.handle, params={"share": share}, position=START)
            for share, copy in enumerate(self.copies)
        ]
        world.settle()


@pytest.fixture
def sharing(world, make_owner, make_copy):
    return Sharing(world, make_owner, make_copy)


def test_each_reader_gets_its_rows_and_no_others(sharing):
    """Changes, removals and what a slow reader missed: each share is complete."""
    rng = np.random.default_rng(3)
    expected: dict[int, int] = {}
    for row, value in zip(rng.integers(1, 400, 3000).tolist(), rng.integers(0, 4, 3000).tolist(), strict=True):
        sharing.owner.put(row, value)
        expected[row] = value
        if row % 7 == 0:
            sharing.world.settle()
    sharing.world.settle()
    for share, copy in enumerate(sharing.copies):
        assert copy.values == {row: value for row, value in expected.items() if value and row % 2 == share}


def test_a_change_of_one_share_is_no_message_to_the_other(sharing):
    """A reader for whom there was nothing is not disturbed; it is told where it is when its owner says so."""
    n_before = [len(copy.batches) for copy in sharing.copies]
    for value in range(1, 4):
        sharing.owner.put(2, value)
        sharing.world.settle()
    assert [len(copy.batches) - n for copy, n in zip(sharing.copies, n_before, strict=True)] == [3, 0]
    server, journal = sharing.owner.server, sharing.owner.journal
    assert server.min_position(CHANNEL) == journal.head - 3, "it goes on from where it knows"
    server.tell_positions(CHANNEL)
    sharing.world.settle()
    assert len(sharing.copies[1].batches) == n_before[1] + 1
    assert sharing.copies[1].batches[-1].flags == 0 != UNSENT
    assert server.min_position(CHANNEL) == journal.head == sharing.followers[1].position.sequence


def test_a_reader_that_is_not_told_goes_on_after_its_connection_broke(sharing):
    """Its position is older than the owner's record of it: it is served from there."""
    for value in range(1, 40):
        sharing.owner.put(2, value)
        sharing.world.settle()
    sharing.owner.put(3, 5)
    sharing.world.hub.drop("ipc:///run/speaker.0.bus")
    sharing.world.settle()
    assert sharing.copies[1].values == {3: 5} and sharing.copies[0].values == {2: 39}


def test_readers_of_a_shared_table_take_turns(sharing):
    """What a table brings while it is busy is sent in as many batches as to one reader, in turns, and all of it."""
    n_before = [len(copy.batches) for copy in sharing.copies]
    server = sharing.owner.server
    for turn in range(6):
        for row in (2, 3):
            sharing.owner.put(row, turn + 1)
        server.pump()
    sharing.world.loops["policy"].turn(0)
    n_sent = [len(copy.batches) - n for copy, n in zip(sharing.copies, n_before, strict=True)]
    assert n_sent == [3, 3]
    sharing.world.settle()
    assert sharing.copies[0].values == {2: 6} and sharing.copies[1].values == {3: 6}
