"""The bus between machines: only those with a key and the right to a channel get anything; a cut loses nothing."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest

from common.bus import zmq_transport
from common.bus.follower import CREDIT
from common.bus.keyring import Keyring, KeyTrouble, load_keyring
from common.bus.question import Curve, ask_at, new_keys
from common.bus.threshold import MAX_STRANGERS
from common.bus.zmq_transport import ZmqTransport
from common.runtime.log import Log
from common.runtime.loop import Loop
from tests.deploy.between_machines import DEADLINE_S, SERVER, Board, Machines, Station, bear_little_silence
from tests.unit.bus.conftest import CHANNEL, Copy, Owner
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2")
N_ROWS = 20_000
FINAL = 99_999
ROW_OCTETS = 17  # of RouteChanges, at least
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


def serve(config, board=None, *, n_rows=N_ROWS, is_changing=False):
    """Be the speaker: a table that stays; or one that changes as fast as it can until the board has it final."""
    station, board = Station(config, "speaker"), board or Board()
    owner = Owner(station.bus, capacity_power=16)
    rows = np.arange(1, n_rows + 1, dtype=np.uint32)
    owner.values[rows] = 7
    owner.limit = n_rows + 1
    owner.journal.append(rows)
    counts = station.log.counts
    station.bus.control({"counts": lambda question: {"counts": counts}, "status": lambda question: {}})
    value = 8
    while True:
        station.loop.turn(0.0 if is_changing else 0.02)
        board["turns"] += 1
        if not is_changing:
            continue
        is_changing = not board["is_final"]
        value = value + 1 if is_changing else FINAL
        changed = rows[:: 1 + value % 3].copy() if is_changing else rows
        owner.values[changed] = value
        owner.journal.append(changed)
        board["changes"] += len(changed)
        board.note_memory()


def follow(config, keyring=None, *, until=lambda copy, log: len(copy.values) == N_ROWS, stage="policy"):
    """Be a reader until it has everything."""
    station, copy = Station(config, stage, keyring), Copy()
    station.bus.follow("speaker", "0", CHANNEL, copy.handle)
    station.run_until(lambda: until(copy, station.log))


def follow_in_vain(config, is_refused, *, stage="policy"):
    """Be a reader until `is_refused(follower, events)`, who must be given nothing until then."""
    station, copy = Station(config, stage), Copy()
    follower = station.bus.follow("speaker", "0", CHANNEL, copy.handle)
    station.run_until(lambda: is_refused(follower, station.log.counts))
    assert not copy.batches and not follower.is_in_step


def is_cut_off(follower, events) -> bool:
    """Tell whether a reader has been cut off, not once by chance."""
    return events.get("link-refused", 0) >= 2


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
    assert machines.result(machines.start("b", lambda: follow_in_vain(strange, is_cut_off))) == 0
    assert counts_of(machines, config)["stranger-refused"] >= 2


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
    wait_until(lambda: counts_of(machines, config).get("handshake-failed"), "the failure to be counted")
    assert "bus-garbage" not in counts_of(machines, config)


def test_a_key_without_the_right_is_told_so(machines):
    """A key in the role of exporter does not follow the speaker's channel, and nobody but an operator may stop it."""
    for name in ("exporter", "watcher", "boss"):
        machines.new_key("b", name)
    roles = {"speaker": "speaker", "exporter": "exporter", "watcher": "monitor", "boss": "operator"}
    config, there = machines.configuration("a", **roles), machines.configuration("b", **roles)
    machines.start("a", lambda: serve(config))
    told = "the key exporter (exporter) may not follow"
    in_vain = machines.start(
        "b", lambda: follow_in_vain(there, lambda it, _: told in (it.refused or ""), stage="exporter")
    )
    assert machines.result(in_vain) == 0
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


def refuse(machines, board) -> None:
    """Be the speaker as it was before the key of policy was made known to it."""
    zmq_transport.event = lambda log, name, *more, **fields: board.count_up("downs", name == "stranger-refused")
    serve(machines.configuration("a", speaker="speaker"))


def shout(machines, board) -> None:
    """Be something that answers whoever calls at the speaker's port, in no language of ZeroMQ."""
    with socket.create_server((SERVER, 7700)) as server:
        while True:
            with server.accept()[0] as caller:
                board.count_up("downs")
                caller.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n" * 100)


def serve_plainly(machines, board) -> None:
    """Be somebody at the speaker's port who speaks ZeroMQ and knows nothing of keys."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        monitor = router.get_monitor_socket(zmq.EVENT_ACCEPTED)
        router.bind(BUS)
        while monitor.recv_multipart():
            board.count_up("downs")


@pytest.mark.parametrize("first", [refuse, shout, serve_plainly])
def test_who_was_refused_comes_in_when_it_may(machines, board, first):
    """A key accepted later, or the right one at a port at last, is found by those who had been turned away."""
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}
    former = machines.start("a", lambda: first(machines, board))
    reader = machines.start("b", lambda: follow(machines.configuration("b", **roles)))
    wait_until(lambda: board["downs"] >= 2, "the reader to be turned away, and to come again")
    os.kill(former, signal.SIGKILL)
    machines.result(former)
    machines.start("a", lambda: serve(machines.configuration("a", **roles)))
    assert machines.result(reader) == 0


def key_of(config, name: str) -> dict:
    from common.bus.keyring import named_keyring

    keyring = named_keyring(config, name)
    return {"public": keyring.public, "secret": keyring.secret}


@pytest.fixture
def board():
    return Board()


def start_changing(machines, board) -> int:
    """Start an owner whose table changes and a reader that waits for its final state; return the reader's process."""
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}

    def change():
        bear_little_silence()
        serve(machines.configuration("a", **roles), board, is_changing=True)

    def is_final(copy: Copy, log: Log) -> bool:
        board["batches"] += len(copy.batches)
        copy.batches.clear()
        board["downs"], board["ups"] = log.counts.get("link-down", 0), log.counts.get("link-up", 0)
        return len(copy.values) == N_ROWS and set(copy.values.values()) == {FINAL}

    def read():
        bear_little_silence()
        follow(machines.configuration("b", **roles), until=is_final)

    machines.start("a", change)
    reader = machines.start("b", read)
    wait_until(lambda: board["batches"] >= 20, "20 batches")
    return reader


def test_a_cut_under_load_loses_nothing(machines, board):
    """While the table changes the cable is cut for longer than silence is borne; after it the reader has all."""
    reader = start_changing(machines, board)
    machines.cut()
    wait_until(lambda: board["downs"] >= 1, "the reader to bear the silence no longer")
    n_batches = board["batches"]
    machines.mend()
    wait_until(lambda: board["ups"] >= 2 and board["batches"] > n_batches, "the reader to be told more")
    board["is_final"] = 1
    assert machines.result(reader) == 0


def test_memory_is_bounded_while_a_reader_is_cut_off(machines, board):
    """Before the silence is noticed and after, an owner keeps a position: no more octets than a reader's credit wait.

    What changes meanwhile would be hundreds of times that much, and would fill the machine's memory in a minute.
    """
    reader = start_changing(machines, board)
    machines.cut()
    before, n_before = board["octets"], board["changes"]
    board["most_octets"] = 0
    wait_until(lambda: board["downs"] >= 1, "the reader to bear the silence no longer")
    wait_until(lambda: (board["changes"] - n_before) * ROW_OCTETS > 400 * CREDIT, "many changes")
    assert board["most_octets"] - before < 4 * CREDIT
    machines.mend()
    board["is_final"] = 1
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


def test_strangers_by_the_thousand_take_neither_descriptors_nor_the_way_in(machines, board, tmp_path):
    """Of 2,000 that connect and say nothing a few hundred are let in at a time; who has a key gets the table.

    They come a hundred at a time: those that the kernel took in before the owner had a turn are beside the limit.
    """
    machines.new_key("b", "policy")
    roles = {"speaker": "speaker", "policy": "policy"}
    config, ready = machines.configuration("a", **roles), tmp_path / "ready"

    def impatient():
        zmq_transport.HANDSHAKE_MS = 1000
        serve(config, board)

    def crowd():
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        sockets = [socket.socket() for _ in range(N_STRANGERS)]
        for number, each in enumerate(sockets):
            each.setblocking(False)
            each.connect_ex((SERVER, 7700))
            if number % N_AT_ONCE == 0:
                wanted = board["turns"] + 3
                wait_until(lambda wanted=wanted: board["turns"] >= wanted, "the owner's next turns")
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
