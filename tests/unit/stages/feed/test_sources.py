"""Sources stream, whatever their size; each neighbor plays another peer of a file; a replay keeps the file's times."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest

from common.bgp.constants import NONE, Family
from stages.feed import wire
from stages.feed.churn import BACKLOG_OCTETS, Churn, Replay
from stages.feed.judge import Judge
from stages.feed.mrt import MrtSource
from stages.feed.neighbor import Plan
from stages.feed.source import Source, Synthetic
from stages.feed.unpack import FileError
from tests.oracles import updates
from tests.twins.test_mrt import UPDATE, V4_ATTRIBUTES, recorded

PLAN = Plan("a", "10.77.0.10", 64601, "10.77.0.10", families=(Family.IPV4_UNICAST,))


def announcement(number: int) -> bytes:
    return updates.update(b"", V4_ATTRIBUTES, bytes([24]) + (0x010000 + number).to_bytes(3, "big"))


# ---- streaming ------------------------------------------------------------------------------------------------------


def peak_octets(source: Source) -> int:
    """Return the most memory that is in use while a source is made and encoded."""
    tracemalloc.start()
    for _ in wire.encode_stream(source.tables(PLAN), PLAN.families):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_synthetic_table_streams():
    """A table of four times the size takes no more memory to send."""
    small, large = (peak_octets(Synthetic(size=size)) for size in (200_000, 800_000))
    assert large < small * 1.2


def test_an_mrt_file_streams(tmp_path):
    """A file of five times the size takes no more memory to send."""
    record = b"".join(recorded(4, announcement(number), when=1000) for number in range(4096))
    peaks = []
    for times in (20, 100):  # 6 MB, 29 MB
        path = tmp_path / f"{times}.mrt"
        path.write_bytes(record * times)
        peaks.append(peak_octets(MrtSource(path)))
    assert peaks[1] < peaks[0] * 1.2


# ---- peers of a file ------------------------------------------------------------------------------------------------


@pytest.fixture
def of_two_peers(tmp_path):
    """A file in which the second peer has announced more than the first."""
    path = tmp_path / "two.mrt"
    path.write_bytes(
        recorded(4, announcement(1), 0) + b"".join(recorded(4, announcement(number), 1) for number in (2, 3))
    )
    return path


def prefixes(source: MrtSource) -> list[int]:
    return sorted(int(hi) >> 40 & 0xFFFF for table in source.tables(PLAN) for hi in table.hi)


def test_each_neighbor_plays_another_peer(of_two_peers):
    """The first plays the peer with the most routes, the second the next; for a third there is none."""
    assert prefixes(MrtSource(of_two_peers)) == [2, 3]
    assert prefixes(MrtSource(of_two_peers, rank=1)) == [1]
    assert prefixes(MrtSource(of_two_peers, peer="AS64501")) == [1]
    with pytest.raises(FileError, match="has 2 peers with routes, too few for neighbor 3"):
        MrtSource(of_two_peers, rank=2).peer_number()


# ---- churn ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turn_s", [0.01, 0.2])
def test_churn_has_its_rate_however_seldom_it_is_called(turn_s):
    """Over a minute as many UPDATEs are sent as were asked for, give or take its bursts, on a busy machine too."""
    (table,) = Synthetic(size=5000).tables(PLAN)
    player = SimpleNamespace(judge=Judge(), want=lambda neighbor: None)
    churn = Churn(player, Sent(), table, updates_per_s=50, seconds=1e6, withdraw_share=0.1, seed=3)
    for turn in range(int(60 / turn_s)):
        churn(churn.started_at + turn * turn_s)
    assert 2000 < churn.n_updates < 4500 and churn.n_prefixes > 2 * churn.n_updates


# ---- replays --------------------------------------------------------------------------------------------------------

TIMES_S = (0.0, 0.5, 2.0, 2.0, 10.0)


class Sent:
    """A neighbor that keeps how many prefixes it was to send."""

    def __init__(self):
        self.plan, self.n_waiting, self.n_sent = PLAN, 0, 0

    def send(self, block) -> None:
        self.n_sent += len(block)


@pytest.fixture
def replay_at(tmp_path):
    """Return what starts the replay of five UPDATEs at a speed, and the neighbor that sends them."""
    path = tmp_path / "updates.mrt"
    path.write_bytes(
        b"".join(
            recorded(4, announcement(number), when=1000 + int(at), micros=round(at % 1 * 1e6))
            for number, at in enumerate(TIMES_S)
        )
    )

    def start(speed: float) -> Replay:
        player = SimpleNamespace(judge=Judge(), want=lambda neighbor: None)
        return Replay(player, Sent(), MrtSource(path), speed)

    return start


@pytest.mark.parametrize("speed", [0.25, 1.0, 10.0])
def test_a_replay_keeps_the_times_of_the_file(replay_at, speed):
    """Each UPDATE is sent when its time has come, sped up or slowed down, and none before."""
    replay, began = replay_at(speed), 5000.0
    replay(began)
    assert replay.n_prefixes == 1
    for at in (0.5, 2.0, 10.0):
        due = began + at / speed
        replay(due - 0.001)
        assert replay.n_prefixes == sum(each < at for each in TIMES_S)
        replay(due + 0.001)
        assert replay.n_prefixes == sum(each <= at for each in TIMES_S)
    assert replay.is_done and replay.report()["late_s"] < 0.1


def test_a_replay_asks_to_be_called_when_the_next_is_due(replay_at):
    """Between two UPDATEs nothing happens: the replay says when it wants to be called."""
    replay = replay_at(2.0)
    replay(100.0)
    assert replay(100.1) == pytest.approx(100.25)
    assert replay(100.3) == pytest.approx(101.0)


def test_a_replay_waits_for_a_slow_speaker(replay_at):
    """While the speaker takes nothing, no more is read; how late that makes it stands in the report."""
    replay = replay_at(1.0)
    replay(100.0)
    replay.neighbor.n_waiting = BACKLOG_OCTETS + 1
    replay(105.0)
    assert replay.n_prefixes == 1
    replay.neighbor.n_waiting = 0
    replay(106.0)
    assert replay.n_prefixes == 4 and replay.report()["late_s"] == 5.5


def test_the_judge_is_told_what_is_replayed(replay_at, tmp_path):
    """What the UPDATEs announce and withdraw is what the sender announces then."""
    replay = replay_at(1.0)
    for now in (0.0, 100.0):
        replay(now)
    assert replay.player.judge.n_announced("a") == 5
    assert replay.neighbor.n_sent > len(UPDATE)
    path = tmp_path / "withdrawn.mrt"
    path.write_bytes(recorded(4, announcement(1)) + recorded(4, updates.update(bytes([24, 1, 0, 1]), b"", b"")))
    tables = list(MrtSource(path).tables(PLAN))
    assert np.concatenate([table.set for table in tables]).tolist() == [NONE]
