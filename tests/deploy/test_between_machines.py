"""The bus between machines: only those with a key and the right to a channel get anything; a cut loses nothing."""

import contextlib
import mmap
import os
import resource
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from common.bus import zmq_transport
from common.bus.keyring import Keyring, KeyTrouble, load_keyring
from common.bus.question import Curve, ask_at, new_keys
from common.bus.threshold import MAX_STRANGERS
from common.bus.zmq_transport import ZmqTransport
from common.runtime.log import Log
from common.runtime.loop import Loop
from tests.deploy.between_machines import DEADLINE_S, SERVER, Machines, Station
from tests.unit.bus.conftest import CHANNEL, Copy, Owner
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
N_ROWS = 20_000
N_STRANGERS, N_AT_ONCE = 2000, 100
BUS, CONTROL = f"tcp://{SERVER}:7700", f"tcp://{SERVER}:7701"


@pytest.fixture
def machines():
    directory = Path(tempfile.mkdtemp(prefix="hr"))
    made = Machines(directory)
    made.new_key("a", "speaker")
    yield made
    made.close()
    shutil.rmtree(directory, ignore_errors=True)


def serve(config, n_rows=N_ROWS, churn_s=0.0, on_turn=lambda: None):
    """Be the speaker: a table, which changes for a while, then stays."""
    station = Station(config, "speaker")
    owner = Owner(station.bus, capacity_power=16)
    rows = np.arange(1, n_rows + 1, dtype=np.uint32)
    owner.values[rows] = 7
    owner.limit = n_rows + 1
    owner.journal.append(rows)
    counts = station.log.counts
    station.bus.control({"counts": lambda question: {"counts": counts}, "status": lambda question: {}})
    value, until = 8, time.monotonic() + churn_s
    while True:
        station.loop.turn(0.02)
        on_turn()
        if time.monotonic() < until:
            changed = rows[:: 1 + value % 97].copy()
            owner.values[changed] = value
            owner.journal.append(changed)
            value += 1
        elif churn_s and value > 0:
            owner.values[rows] = 99_999
            owner.journal.append(rows)
            value = churn_s = 0


def follow(config, keyring=None, *, until=lambda copy, log: len(copy.values) == N_ROWS, seconds=0.0, stage="policy"):
    """Be a reader until it has everything; or for some seconds, in which it must be given nothing."""
    station = Station(config, stage, keyring)
    copy = Copy()
    station.bus.follow("speaker", "0", CHANNEL, copy.handle)
    if seconds:
        station.run_for(seconds)
        assert not copy.batches and not station.bus.followers()[0].is_in_step
    else:
        station.run_until(lambda: until(copy, station.log))
    return station


def counts_of(machines, config) -> dict:
    """Ask the speaker on its own machine what it has counted."""
    path = machines.directory / "a" / "run" / "speaker.0.control"
    return ask_at(f"ipc://{path}", "counts")["counts"]


def test_a_reader_with_a_key_and_the_right_gets_the_table(machines):
    """A key in the role of policy follows the speaker's channel, over CURVE."""
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}
    machines.start("a", lambda: serve(machines.configuration("a", **roles)))
    reader = machines.start("b", lambda: follow(machines.configuration("b", **roles)))
    assert machines.result(reader) == 0


def test_a_reader_whose_key_is_not_accepted_gets_nothing(machines):
    """A stranger's key is refused before a word is read, and counted."""
    machines.new_key("b", "policy")
    config = machines.configuration("a", speaker="speaker")
    machines.start("a", lambda: serve(config))
    strange = machines.configuration("b", speaker="speaker", policy="policy")
    assert machines.result(machines.start("b", lambda: follow(strange, seconds=2.0))) == 0
    assert counts_of(machines, config)["stranger-refused"] >= 1


def test_a_reader_without_a_key_gets_nothing(machines):
    """One that speaks plain ZeroMQ, and one that speaks anything else, are cut off and counted."""
    config = machines.configuration("a", speaker="speaker")
    machines.start("a", lambda: serve(config))

    def connected():
        with contextlib.suppress(OSError):
            return socket.create_connection((SERVER, 7700), 5)

    def shout():
        with wait_until(connected, "the speaker's port") as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n" * 1000)
            while connection.recv(4096):
                pass

    def plain():
        import zmq

        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.set(zmq.LINGER, 0)
            dealer.connect(BUS)
            dealer.send(b"hello")
            assert not dealer.poll(1500)

    assert machines.result(machines.start("b", plain)) == 0
    machines.result(machines.start("b", shout))
    assert counts_of(machines, config)["handshake-failed"] >= 1
    assert "bus-garbage" not in counts_of(machines, config)


def test_a_key_without_the_right_is_told_so(machines):
    """A key in the role of exporter does not follow the speaker's channel, and nobody but an operator may stop it."""
    for name in ("exporter", "watcher", "boss"):
        machines.new_key("b", name)
    roles = {"speaker": "speaker", "exporter": "exporter", "watcher": "monitor", "boss": "operator"}
    config, there = machines.configuration("a", **roles), machines.configuration("b", **roles)
    machines.start("a", lambda: serve(config))
    assert machines.result(machines.start("b", lambda: follow(there, seconds=2.0, stage="exporter"))) == 0
    counts = counts_of(machines, config)
    assert counts["reader-refused"] >= 1 and "stranger-refused" not in counts

    def put(name: str, question: str) -> str:
        curve = Curve(**key_of(there, name), server=machines.public["speaker"].encode())
        try:
            return str(ask_at(CONTROL, question, 10, curve)["ok"])
        except Exception as error:
            return str(error)

    def questions():
        assert put("watcher", "status") == "True"
        assert "may not ask" in put("watcher", "counts")
        assert put("boss", "counts") == "True"
        assert "may not ask" in put("exporter", "status")

    assert machines.result(machines.start("b", questions)) == 0


def key_of(config, name: str) -> dict:
    from common.bus.keyring import named_keyring

    keyring = named_keyring(config, name)
    return {"public": keyring.public, "secret": keyring.secret}


def test_a_cut_under_load_loses_nothing(machines, tmp_path):
    """While the table changes the cable is cut for longer than silence is borne; after it the reader has all."""
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}
    progress, silence = tmp_path / "progress", tmp_path / "silence"
    machines.start("a", lambda: serve(machines.configuration("a", **roles), churn_s=14))

    def is_final(copy: Copy, log: Log) -> bool:
        (progress if not log.counts.get("link-down") else silence).write_text(str(len(copy.batches)))
        return len(copy.values) == N_ROWS and set(copy.values.values()) == {99_999}

    def read():
        station = follow(machines.configuration("b", **roles), until=is_final)
        assert station.log.counts["link-down"] >= 1 and station.log.counts["link-up"] >= 2

    reader = machines.start("b", read)
    wait_until(lambda: progress.exists() and int(progress.read_text() or 0) >= 20, "20 batches")
    machines.cut()
    wait_until(silence.exists, "the reader to bear the silence no longer")
    machines.mend()
    assert machines.result(reader) == 0


def test_an_endpoint_beyond_loopback_is_not_opened_without_keys():
    """The transport refuses by itself, whatever the configuration's checks have let pass."""
    transport = ZmqTransport(Loop(), Keyring())
    for act in (
        lambda: transport.listen("tcp://192.0.2.1:7700", None, None, 1),
        lambda: transport.connect("tcp://192.0.2.1:7700", None, None, None),
    ):
        with pytest.raises(OSError, match="not opened without keys"):
            act()


def test_loopback_goes_without_keys(tmp_path):
    """On one machine tcp needs no keys."""
    loop = Loop()
    transport = ZmqTransport(loop, Keyring())
    port = transport.listen("tcp://127.0.0.1:0", lambda *message: None, lambda peer: None, 1)
    assert port.grant_of(b"anybody") is None
    port.close()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "headrace keys new speaker"),
        (lambda path: path.chmod(0o640), "others may read it"),
        (lambda path: path.write_text("short\n"), "is no secret key"),
        (lambda path: path.write_bytes(new_keys()[1] + b"\n"), "is not the secret of"),
    ],
)
def test_a_key_that_cannot_be_used_is_an_error_before_anything_starts(machines, spoil, words):
    """Missing, readable by others, not a key, another's: each is said."""
    spoil(machines.directory / "a" / "keys" / "speaker.secret")
    with pytest.raises(KeyTrouble, match=words):
        load_keyring(machines.configuration("a", speaker="speaker"), "speaker", "0")


def test_a_stage_that_needs_a_key_and_has_none_is_told_how_to_make_one(machines):
    """Policy reads a speaker on another machine, so it needs a key."""
    with pytest.raises(KeyTrouble, match="headrace keys new policy"):
        load_keyring(machines.configuration("a", speaker="speaker"), "policy", "0")


def test_strangers_by_the_thousand_take_neither_descriptors_nor_the_way_in(machines, tmp_path):
    """Of 2,000 that connect and say nothing a few hundred are let in at a time; who has a key gets the table.

    They come a hundred at a time: those that the kernel took in before the owner had a turn are beside the limit.
    """
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}
    config, ready = machines.configuration("a", **roles), tmp_path / "ready"
    turns = np.frombuffer(mmap.mmap(-1, 8), dtype=np.int64)  # shared by the processes

    def take_turn():
        turns[0] += 1

    def impatient():
        zmq_transport.HANDSHAKE_MS = 1000
        serve(config, on_turn=take_turn)

    def crowd():
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        sockets = [socket.socket() for _ in range(N_STRANGERS)]
        for number, each in enumerate(sockets):
            each.setblocking(False)
            each.connect_ex((SERVER, 7700))
            if number % N_AT_ONCE == 0:
                wanted = turns[0] + 3
                wait_until(lambda wanted=wanted: turns[0] >= wanted, "the owner's next turns")
        ready.touch()
        signal.pause()

    owner = machines.start("a", impatient)
    path = machines.directory / "a" / "run" / "speaker.0.bus"
    wait_until(path.exists, "the speaker's sockets")
    n_own = len(os.listdir(f"/proc/{owner}/fd"))
    machines.start("b", crowd)
    most = []

    def is_there() -> bool:
        most.append(len(os.listdir(f"/proc/{owner}/fd")) - n_own)
        return ready.exists()

    wait_until(is_there, "the crowd")
    reader = machines.start("b", lambda: follow(machines.configuration("b", **roles)))

    def is_over() -> bool:
        most.append(len(os.listdir(f"/proc/{owner}/fd")) - n_own)
        return Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(is_over, "the reader to have the table", DEADLINE_S)
    assert machines.result(reader) == 0
    assert MAX_STRANGERS // 2 < max(most) < 2 * MAX_STRANGERS
    assert counts_of(machines, config)["strangers-held-off"] >= 1
