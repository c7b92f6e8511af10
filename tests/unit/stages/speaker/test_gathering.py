"""What several ribs bring comes together for a moment before peers are told, and nobody waits for longer."""

import numpy as np
import pytest

from common.bgp.attributes import encode_set
from common.bgp.constants import NONE, Family
from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, empty_columns
from common.bus.schema import ExportChanges
from common.config.sharing import WHOLE, Share
from common.kernels.shares import is_in_share
from common.runtime.clock import ManualClock
from common.runtime.loop import Loop
from stages.speaker.adj_rib_out import AdjRibOut
from stages.speaker.gathering import FEW_ROWS, GATHER_S, MANY_ROWS, Gathering
from stages.speaker.prefixes import SharedPrefixes

V4 = Family.IPV4_UNICAST
SETS = [encode_set(as_path=[65000, n + 1], next_hop=bytes([10, 0, 0, 1])) for n in range(200)]
SHARES = [Share(index, 3) for index in range(3)]


class World:
    """A table with one member, that is told what three ribs bring."""

    def __init__(self, shares: list[Share]):
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.table = AdjRibOut(V4, 7, SharedPrefixes(V4, 7))
        self.table.expect(len(shares))
        self.gathering = Gathering(self.loop, self.table)
        for share in shares:
            flags = SNAPSHOT_BEGIN | SNAPSHOT | SNAPSHOT_END
            self.gathering.handle(Batch(ExportChanges, empty_columns(ExportChanges), META, flags=flags), share)
        self.member = self.table.join("a", 4096)
        self.tell()
        self.n_updates_before = self.member.n_updates

    def bring(self, share: Share, first: int, n: int, shift: int = 0) -> int:
        """Have one rib's changes of `n` prefixes come; a prefix has the set of its number. Return how many they are."""
        numbers = np.arange(first, first + n, dtype=np.uint64)
        hi = (numbers << np.uint64(44)) & np.uint64(0xFFFFFFFF00000000)
        is_in = is_in_share(*share, hi, False)
        hi, sets = hi[is_in], ((numbers[is_in] + np.uint64(shift)) % np.uint64(len(SETS))).astype(np.uint32)
        offset = np.cumsum([0, *map(len, SETS)]).astype(np.uint32)
        columns = {
            "hi": hi, "lo": np.empty(0, np.uint64), "length": np.full(len(hi), 20, np.uint8), "set": sets,
            "source": np.zeros(len(hi), np.uint32), "set_offset": offset,
            "set_octets": np.frombuffer(b"".join(SETS), np.uint8),
        }  # fmt: skip
        self.gathering.handle(Batch(ExportChanges, columns, META), share)
        return len(hi)

    def withdraw(self, share: Share, first: int, n: int) -> None:
        numbers = np.arange(first, first + n, dtype=np.uint64)
        hi = numbers << np.uint64(44)
        hi = hi[is_in_share(*share, hi, False)]
        columns = {"hi": hi, "length": np.full(len(hi), 20, np.uint8)}
        gone = {"set": np.full(len(hi), NONE, np.uint32), "source": np.full(len(hi), NONE, np.uint32)}
        batch = Batch(ExportChanges, {**empty_columns(ExportChanges), **columns, **gone}, META)
        self.gathering.handle(batch, share)

    def tell(self) -> None:
        while self.table.has_to_tell(self.member):
            self.table.tell(self.member)

    def wait(self) -> None:
        self.clock.advance(GATHER_S)
        self.loop.turn()

    @property
    def n_updates(self) -> int:
        return self.member.n_updates - self.n_updates_before


META = {"family": V4.label, "sources": [{"name": ""}]}


@pytest.fixture
def world():
    return World(SHARES)


def test_shares_that_come_one_after_the_other_are_told_together(world):
    """Prefixes of one set that are in several shares go in one UPDATE: as many as with one rib."""
    n = 3 * FEW_ROWS + 2000
    for share in SHARES[:2]:
        world.bring(share, 0, n)
        assert not world.table.has_to_tell(world.member) and not world.table.is_in_step(world.member)
    world.bring(SHARES[2], 0, n)
    world.tell()
    assert world.member.n_told == n and world.n_updates == len(SETS)


def test_one_rib_is_waited_for_by_nobody():
    """Without shares nothing waits, however much comes."""
    world = World([WHOLE])
    world.bring(WHOLE, 0, 5000)
    assert world.table.has_to_tell(world.member)


def test_few_changes_are_told_at_once(world):
    """A single change, a withdrawal too, waits for no other share."""
    world.bring(SHARES[0], 0, 100)
    world.tell()
    assert 0 < world.member.n_told < 100
    world.withdraw(SHARES[0], 0, 100)
    world.tell()
    assert world.member.n_told == 0


def test_a_share_that_brings_nothing_holds_the_others_up_for_a_moment_only(world):
    """While one rib is being restarted, what the others bring is told when the time is up."""
    n = world.bring(SHARES[0], 0, 4 * FEW_ROWS) + world.bring(SHARES[2], 0, 4 * FEW_ROWS)
    assert not world.table.has_to_tell(world.member)
    world.wait()
    world.tell()
    assert world.member.n_told == n and world.table.is_in_step(world.member)


def test_very_much_does_not_wait(world):
    """So many changes are told though a share has brought nothing."""
    n = 0
    for turn in range(MANY_ROWS):
        assert n < MANY_ROWS + 4 * 60_000
        n += world.bring(SHARES[turn % 2], 0, 60_000, shift=turn)
        if world.table.has_to_tell(world.member):
            break
    assert n >= MANY_ROWS


def test_the_last_word_on_a_prefix_counts(world):
    """Announced, withdrawn and announced again while it waits: told once, as it is in the end."""
    n = 4 * FEW_ROWS
    world.bring(SHARES[0], 0, n)
    world.withdraw(SHARES[0], 0, n // 2)
    world.bring(SHARES[1], 0, n)
    world.withdraw(SHARES[1], n // 2, n)
    world.bring(SHARES[0], 0, 16, shift=1)
    world.bring(SHARES[2], 0, 1)
    world.tell()
    told = np.flatnonzero(np.unpackbits(world.member.told, bitorder="little"))
    assert told.tolist() == np.flatnonzero(world.table.exports.sets).tolist()
    assert world.member.n_told == world.table.exports.n_routes > 0


def test_a_member_that_comes_up_meanwhile_is_told_the_table(world):
    """Its first table does not wait for what is being gathered."""
    world.bring(SHARES[0], 0, 4 * FEW_ROWS)
    other = world.table.join("b", 4096)
    assert world.table.has_to_tell(other)
    while world.table.has_to_tell(other):
        world.table.tell(other)
    assert other.n_told == world.table.exports.n_routes
