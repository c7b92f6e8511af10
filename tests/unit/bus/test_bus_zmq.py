"""The transport between processes: real sockets, and real processes that are killed."""

import contextlib
import io
import itertools
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

import msgpack
import pytest
import zmq

from common.bus.batch import GAP, SNAPSHOT_BEGIN
from common.bus.bus import Bus
from common.bus.control import MAX_UNREAD_ANSWERS, ControlError, ask
from common.bus.question import Absent
from common.bus.zmq_transport import COPY_BELOW_OCTETS, EndpointBusy, ZmqTransport, context
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from tests.waiting import wait_until

CHANNEL = "adj-rib-in/ipv4-unicast"
DEADLINE_S = 20


class Station:
    """A stage's loop and bus over ipc."""

    def __init__(self, run_dir, stage):
        self.loop = Loop()
        self.log = Log(stage, stream=io.StringIO())
        self.bus = Bus(run_dir, stage, "0", self.loop, ZmqTransport(self.loop), self.log)
        self.loop.add_turn(self.bus.pump)

    def run_until(self, condition) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "not in time"
            self.loop.turn(0.05)

    def close(self) -> None:
        self.bus.close()
        self.loop.close()


@pytest.fixture
def stations(run_dir):
    with contextlib.ExitStack() as stack:

        def make(stage: str) -> Station:
            station = Station(run_dir, stage)
            stack.callback(station.close)
            return station

        yield make


@pytest.fixture
def processes():
    """Run functions in processes of their own, and end them afterwards."""
    started = []

    def start(function) -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                function()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        started.append(pid)
        return pid

    yield start
    for pid in started:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def serve_table(run_dir, make_owner, epoch: str, rows: range, value: int = 0):
    """Be an owner until killed; each control question "put" changes one row."""
    station = Station(run_dir, "speaker")
    owner = make_owner(station.bus, epoch=epoch)
    for row in rows:
        owner.put(row, value or row)

    def put(question):
        owner.put(question["row"], question["value"])
        return {}

    station.bus.control({"put": put, "readers": lambda question: {"readers": owner.server.readers()}})
    station.loop.run()


def relay_table(run_dir):
    """Be a relay until killed."""
    station = Station(run_dir, "policy")
    bus = station.bus
    bus.relay(
        "adj-rib-in/*",
        lambda request: (bus.endpoint("speaker"), request.channel, {}),
        "v1",
        lambda request: lambda batch: [batch],
    )
    station.loop.run()


def test_a_table_crosses_two_hops_and_survives_every_death(run_dir, stations, processes, make_owner, make_copy):
    """Owner, relay and reader in three processes: snapshot, change, relay killed, owner killed."""
    speaker = processes(lambda: serve_table(run_dir, make_owner, "e1", range(1, 30_001), 7))
    policy = processes(lambda: relay_table(run_dir))
    copy, rib = make_copy(), stations("rib")
    follower = rib.bus.follow("policy", "0", CHANNEL, copy.handle)
    rib.run_until(lambda: copy.events[-1:] == [3])
    assert len(copy.values) == 30_000
    ask(run_dir, "speaker", "0", "put", 10, row=1, value=99)
    rib.run_until(lambda: copy.values[1] == 99)

    kill(policy)
    ask(run_dir, "speaker", "0", "put", 10, row=2, value=98)
    n_before = len(copy.batches)
    processes(lambda: relay_table(run_dir))
    rib.run_until(lambda: copy.values[2] == 98)
    assert not any(batch.flags & (SNAPSHOT_BEGIN | GAP) for batch in copy.batches[n_before:]), "resumed"

    kill(speaker)
    processes(lambda: serve_table(run_dir, make_owner, "e2", range(5, 1001), 7))
    rib.run_until(lambda: follower.position.epoch == "e2~v1" and not follower.is_in_snapshot)
    assert copy.values == dict.fromkeys(range(5, 1001), 7)


def test_large_frames_cross_unharmed(stations, make_owner, make_copy):
    """Columns beyond the limit below which ZeroMQ copies arrive as they were."""
    speaker, rib = stations("speaker"), stations("rib")
    owner = make_owner(speaker.bus)
    for row in range(1, 60_001):
        owner.values[row] = row
    owner.limit = 60_001
    copy = make_copy()
    rib.bus.follow("speaker", "0", CHANNEL, copy.handle)

    def turn_both() -> bool:
        speaker.loop.turn(0)
        return copy.events[-1:] == [3]

    rib.run_until(turn_both)
    assert any(array.nbytes > COPY_BELOW_OCTETS for batch in copy.batches for array in batch.columns.values())
    assert copy.values == {row: row for row in range(1, 60_001)}


def test_a_killed_reader_is_forgotten(run_dir, stations, processes, make_owner, make_copy):
    """A reader that died holds nothing back, though nothing is being sent to it."""
    speaker = stations("speaker")
    owner = make_owner(speaker.bus)

    def read() -> None:
        station = Station(run_dir, "rib")
        station.bus.follow("speaker", "0", CHANNEL, make_copy().handle)
        station.loop.run()

    pid = processes(read)
    speaker.run_until(lambda: owner.server.min_position(CHANNEL) is not None)
    kill(pid)
    speaker.run_until(lambda: owner.server.readers() == [])
    assert owner.server.min_position(CHANNEL) is None


def test_garbage_is_counted_and_dropped(run_dir, stations, make_owner, make_copy):
    """A stranger that speaks ZeroMQ, or does not, disturbs nobody."""
    speaker, rib = stations("speaker"), stations("rib")
    owner = make_owner(speaker.bus)
    endpoint = speaker.bus.endpoint("speaker")
    stranger = context().socket(zmq.DEALER)
    stranger.set(zmq.LINGER, 0)
    stranger.connect(endpoint)
    stranger.send_multipart([b"\xff"] * 200)
    stranger.send(b"")
    raw = socket.socket(socket.AF_UNIX)
    raw.connect(endpoint.removeprefix("ipc://"))
    raw.sendall(b"GET / HTTP/1.0\r\n\r\n" * 10)
    speaker.run_until(lambda: speaker.log.counts.get("bus-garbage", 0) == 2)
    stranger.close()
    raw.close()
    copy = make_copy()
    rib.bus.follow("speaker", "0", CHANNEL, copy.handle)
    owner.put(1, 1)
    rib.run_until(lambda: speaker.loop.turn(0) is None or copy.values == {1: 1})


def test_sockets_are_for_this_user_alone(run_dir, stations, make_owner):
    """Nobody else can connect to a stage."""
    station = stations("speaker")
    make_owner(station.bus)
    mode = stat.S_IMODE(os.stat(f"{run_dir}/speaker.0.bus").st_mode)
    assert mode & 0o077 == 0
    assert stat.S_IMODE(os.stat(run_dir).st_mode) == 0o700


def test_a_second_owner_is_turned_away_and_a_stale_socket_is_not_in_the_way(run_dir, stations, make_owner):
    """An endpoint that answers is left alone; a file left by a dead process gives way."""
    path = f"{run_dir}/speaker.0.bus"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    make_owner(stations("speaker").bus)
    with pytest.raises(EndpointBusy):
        stations("speaker").bus.serve()


def test_questions_are_answered(run_dir, processes):
    """Control questions get answers, and reasons where there is none."""

    def answer() -> None:
        station = Station(run_dir, "rib")

        def fail(question):
            raise ControlError("not now")

        station.bus.control({"double": lambda question: {"n": question["n"] * 2}, "fail": fail})
        station.loop.run()

    processes(answer)
    assert ask(run_dir, "rib", "0", "double", 10, n=21)["n"] == 42
    with pytest.raises(ControlError, match="not now"):
        ask(run_dir, "rib", "0", "fail", 10)
    with pytest.raises(ControlError, match="no question 'what'"):
        ask(run_dir, "rib", "0", "what", 10)
    with pytest.raises(ControlError, match="KeyError"):
        ask(run_dir, "rib", "0", "double", 10)


def test_nobody_there_is_a_timeout(run_dir):
    """A question to a stage that is not there ends in time."""
    with pytest.raises(TimeoutError):
        ask(run_dir, "rib", "0", "status", 0.05)


def test_the_socket_of_a_dead_stage_does_not_keep_a_command_waiting(run_dir, processes):
    """Who asks a stage that was killed learns soon that nobody is there; one that ends in order leaves no socket."""

    def live():
        station = Station(run_dir, "rib")
        station.bus.control({"end": lambda question: station.loop.stop() or {}})
        station.loop.run()
        station.close()

    socket_file = Path(run_dir) / "rib.0.control"
    pid = processes(live)
    deadline = time.monotonic() + DEADLINE_S
    wait_until(socket_file.exists, "the stage's socket", DEADLINE_S)
    kill(pid)
    assert socket_file.exists()
    with pytest.raises(Absent, match=r"rib\.0 does not run"):
        ask(run_dir, "rib", timeout_s=DEADLINE_S)
    assert time.monotonic() < deadline
    pid = processes(live)
    while socket_file.exists():
        assert time.monotonic() < deadline
        with contextlib.suppress(TimeoutError):  # its answer may end with it
            ask(run_dir, "rib", question="end", timeout_s=1.0)
    os.waitpid(pid, 0)


def test_a_reader_may_start_before_its_owner(stations, make_owner, make_copy):
    """The order in which stages start does not matter."""
    rib = stations("rib")
    copy = make_copy()
    rib.bus.follow("speaker", "0", CHANNEL, copy.handle)
    rib.loop.turn(0.01)
    speaker = stations("speaker")
    make_owner(speaker.bus).put(1, 1)

    def turn_both() -> bool:
        speaker.loop.turn(0)
        return copy.values == {1: 1}

    rib.run_until(turn_both)


def test_slow_questions_do_not_add_up_in_one_turn(run_dir):
    """Questions that take their time are answered over many turns of the loop, so that all else goes on."""
    clock = ManualClock()
    loop = Loop(clock)
    bus = Bus(run_dir, "rib", "0", loop, ZmqTransport(loop), Log("rib", stream=io.StringIO()))
    answered = []
    bus.control({"slow": lambda question: clock.advance(0.005) or answered.append(loop.n_turns) or {}})
    with zmq.Context() as zmq_context, zmq_context.socket(zmq.DEALER) as asker:
        asker.set(zmq.LINGER, 0)
        asker.connect(f"ipc://{run_dir}/rib.0.control")
        for _ in range(20):
            asker.send(msgpack.packb({"ask": "slow"}))
        deadline = time.monotonic() + DEADLINE_S
        while len(answered) < 20:
            assert time.monotonic() < deadline
            loop.turn(0.05)
    bus.close()
    loop.close()
    assert max(Counter(answered).values()) <= 2


def test_answers_that_nobody_reads_do_not_pile_up(run_dir, stations):
    """An asker that reads no answer has few waiting for it; others are answered meanwhile, and it too once it reads."""
    station = stations("speaker")
    station.bus.control({"page": lambda question: {"text": "x" * 200_000}, "ping": lambda question: {}})
    deaf, other = (context().socket(zmq.DEALER) for _ in range(2))
    try:
        deaf.set(zmq.RCVHWM, 1)
        for each in (deaf, other):
            each.set(zmq.LINGER, 0)
            each.connect(f"ipc://{run_dir}/speaker.0.control")
        for _ in range(3 * MAX_UNREAD_ANSWERS):
            deaf.send(msgpack.packb({"ask": "page"}))
        station.run_until(lambda: station.log.counts.get("answer-dropped", 0) >= MAX_UNREAD_ANSWERS)
        other.send(msgpack.packb({"ask": "ping"}))
        station.run_until(lambda: other.poll(0))
        n_read = 0
        while deaf.poll(200):
            deaf.recv()
            n_read += 1
        assert MAX_UNREAD_ANSWERS <= n_read <= 2 * MAX_UNREAD_ANSWERS
        deaf.send(msgpack.packb({"ask": "ping"}))
        station.run_until(lambda: deaf.poll(0))
    finally:
        deaf.close(), other.close()


def test_a_stopped_tap_is_not_taken_for_gone(run_dir, stations, processes, make_owner, make_copy, monkeypatch):
    """A tap that is stopped while others come and go goes on where it was, without a gap, however little is kept."""
    monkeypatch.setattr("common.bus.bus.MAX_UNREAD_BATCHES", 4)
    speaker = stations("speaker")
    owner = make_owner(speaker.bus)

    def tap():
        station, copy = Station(run_dir, "tap"), make_copy()
        station.bus.follow("speaker", "0", CHANNEL, copy.handle, params={"tap": True})
        station.bus.control({"values": lambda question: {"n": len(copy.values), "gaps": max(copy.flags) & GAP}})
        station.loop.run()

    pid = processes(tap)
    speaker.run_until(lambda: len(owner.server.readers()) == 1)
    os.kill(pid, signal.SIGSTOP)
    for number in range(1, 60):
        guest = context().socket(zmq.DEALER)
        guest.set(zmq.LINGER, 0)
        guest.connect(f"ipc://{run_dir}/speaker.0.bus")
        guest.send(b"nothing")
        n_before = speaker.log.counts.get("bus-garbage", 0)
        speaker.run_until(lambda n=n_before: speaker.log.counts.get("bus-garbage", 0) > n)
        guest.close()
        owner.put(number, number)
        speaker.loop.turn(0.0)
    assert len(owner.server.readers()) == 1
    os.kill(pid, signal.SIGCONT)
    answers = []

    def ask_tap():
        speaker.loop.turn(0.01)
        answers.append(ask(run_dir, "tap", "0", "values", 5))
        return answers[-1]["n"] == 59

    speaker.run_until(ask_tap)
    assert not answers[-1]["gaps"]


def start_tap(run_dir, *options: str) -> subprocess.Popen:
    """Tap the owner in the run directory with the command."""
    command = [sys.executable, "-m", "common.cli.main", "tap", CHANNEL, "--json", "--run-dir", run_dir, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def prefixes_of_snapshot(tap: subprocess.Popen) -> list[str]:
    """Return the prefixes that come until a snapshot ends."""
    rows = iter(lambda: json.loads(tap.stdout.readline()), None)
    return [row["prefix"] for row in itertools.takewhile(lambda row: row.get("mark") != "snapshot-end", rows)
            if "prefix" in row]  # fmt: skip


def test_the_command_tap_says_that_its_stage_is_away_and_goes_on_when_it_is_back(run_dir, processes, make_owner):
    """A tap whose stage is killed says so once, and has the table of the next one; with a timeout it ends."""
    pid = processes(lambda: serve_table(run_dir, make_owner, "e1", range(1, 4)))
    wait_until((Path(run_dir) / "speaker.0.control").exists, "an owner")
    tap, impatient = start_tap(run_dir), start_tap(run_dir, "--timeout", "0.2")
    try:
        assert len(prefixes_of_snapshot(tap)) == len(prefixes_of_snapshot(impatient)) == 3
        kill(pid)
        assert tap.stderr.readline() == "headrace: speaker.0 is away, and waited for\n"
        assert impatient.wait(DEADLINE_S) == 1
        assert impatient.stderr.read().endswith("headrace: speaker.0 has been away for 0.2 s\n")
        processes(lambda: serve_table(run_dir, make_owner, "e2", range(1, 5)))
        assert tap.stderr.readline() == "headrace: speaker.0 is back\n"
        assert len(prefixes_of_snapshot(tap)) == 4
        tap.terminate()
        assert tap.wait(DEADLINE_S) == 0
    finally:
        for each in (tap, impatient):
            each.kill()
            each.communicate()


def test_the_command_tap_of_a_stage_that_died_earlier_says_so(run_dir):
    """A tap of a router that was killed does not wait silently."""
    (Path(run_dir) / "speaker.0.control").touch()
    tap = start_tap(run_dir, "--timeout", "1.5")
    _, said = tap.communicate(timeout=DEADLINE_S)
    assert tap.returncode == 1
    assert said.splitlines() == [
        "headrace: speaker.0 is away, and waited for",
        "headrace: speaker.0 has been away for 1.5 s",
    ]
