"""Tables that were full and are nearly empty give memory back, and are as good as new."""

import io

import numpy as np
import pytest

from common.arrays import give_back
from common.bgp.constants import Family
from common.kernels import attributes, uncompiled
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.shrinking import LOOK_S, N_LOOKS, Shrinking
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.prefixes import SharedPrefixes
from stages.speaker.sources import Source, Sources

N = 100_000


class World:
    """An Adj-RIB-In of two neighbors with a clock turned by hand."""

    def __init__(self, is_wide: bool):
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.log = Log(stream=io.StringIO(), clock=self.clock)
        sources = Sources()
        self.numbers = [sources.describe(Source(name, 1, 2, 3, b"", True)) for name in ("large", "small")]
        self.is_wide = is_wide
        family = Family.IPV6_UNICAST if is_wide else Family.IPV4_UNICAST
        self.prefixes = SharedPrefixes(family, 5)
        self.table = AdjRibIn(family, 5, sources, self.prefixes)
        Shrinking(self.loop, self.log, lambda: [self.table, self.prefixes])

    def announce(self, source: int, first: int, n: int, is_gone: bool = False) -> None:
        """Announce prefixes, each ten with a set of their own, or withdraw them."""
        numbers = np.arange(first, first + n, dtype=np.uint64)
        sets = (numbers // np.uint64(10)).astype(np.uint32) - np.uint32(first // 10)
        n_sets = int(sets[-1]) + 1
        octets = np.zeros((n_sets, 40), np.uint8)
        octets[:, 4:8] = (np.arange(n_sets, dtype=">u4") + source * N).astype(">u4").view(np.uint8).reshape(-1, 4)
        self.table.apply(
            self.numbers[source],
            numbers << np.uint64(32),
            numbers if self.is_wide else np.empty(0, np.uint64),
            np.full(n, 32, np.uint8),
            None,
            np.full(n, 0xFFFFFFFF, np.uint32) if is_gone else sets,
            np.arange(n_sets + 1, dtype=np.uint32) * np.uint32(40),
            octets.reshape(-1),
        )

    def lose(self, name: str) -> None:
        """Withdraw all routes of a neighbor and forget them."""
        self.table.purge(name)
        while self.table.has_garbage:
            self.table.collect(self.table.journal.head)

    def wait(self, n_looks: int) -> None:
        for _ in range(n_looks):
            self.clock.advance(LOOK_S)
            while self.loop.turn():
                pass

    @property
    def n_given(self) -> int:
        return self.log.counts.get("memory-given-back", 0)


@pytest.fixture(params=[False, True], ids=["ipv4", "ipv6"])
def world(request):
    world = World(request.param)
    yield world
    world.loop.close()


def routes_of(world: World) -> list[tuple]:
    """Return all routes: prefix, source, set."""
    table = world.table
    rows = np.flatnonzero(table.routes.attributes[: table.routes.row_limit]).astype(np.uint32)
    prefix_rows, sources, ids = table.routes.columns_of(rows)
    hi, _, length = table.prefixes.columns_of(prefix_rows)
    sets = [table.attributes.octets_of(id) for id in ids.tolist()]
    return sorted(zip(hi.tolist(), length.tolist(), sources.tolist(), sets, strict=True))


def test_a_table_that_was_full_gives_most_of_its_memory_back(world):
    """After a while all but the columns of flags is given back; what is left and what comes later is unharmed."""
    world.announce(0, 0, N)
    world.announce(1, N, 500)
    left = routes_of(world)[N:]
    world.lose("large")
    world.wait(N_LOOKS - 1)
    assert not world.n_given
    world.wait(1)
    assert world.n_given == 1
    assert routes_of(world) == left
    columns = [*world.table.tidy(), *world.prefixes.tidy()]
    assert sum(column.nbytes - give_back(column) for column in columns) < sum(column.nbytes for column in columns) / 3
    world.announce(0, 7, N)
    fresh = World(world.is_wide)
    fresh.announce(1, N, 500)
    fresh.announce(0, 7, N)
    assert routes_of(world) == routes_of(fresh)
    assert world.table.routes.row_limit <= N + 502
    fresh.loop.close()


def test_a_neighbor_that_is_soon_back_finds_the_memory_there(world):
    """A session that is lost and comes back gives nothing back between."""
    world.announce(0, 0, N)
    world.wait(2)
    world.lose("large")
    world.wait(N_LOOKS - 1)
    world.announce(0, 0, N)
    world.wait(N_LOOKS)
    world.lose("large")
    world.wait(N_LOOKS - 1)
    assert world.n_given == 0


@pytest.mark.parametrize("kernel", [attributes, uncompiled("attributes")], ids=["compiled", "uncompiled"])
def test_ids_of_sets_are_given_again(kernel):
    """A tidy attribute table gives its free ids out in order."""
    table = kernel.AttributeTable(1)
    offsets = np.arange(51, dtype=np.uint32) * np.uint32(4)
    octets = np.arange(50, dtype=">u4").view(np.uint8)
    ids = table.intern(offsets, octets)
    table.references[ids[::5]] = 1
    table.sweep()
    table.tidy()
    again = table.intern(offsets, octets)
    assert sorted(again.tolist()) == sorted(ids.tolist())
    assert [table.octets_of(id) for id in again.tolist()] == [octets[i * 4 : i * 4 + 4].tobytes() for i in range(50)]
