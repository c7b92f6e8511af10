"""The command: bad input is answered with a clear message and the exit status that says whose fault it was."""

import bz2
import gzip
import json
import lzma
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

from common.bgp.attributes import encode_set, format_community
from common.bgp.capabilities import Capabilities
from common.bgp.constants import Family, WellKnownCommunity
from common.bgp.messages import KEEPALIVE, Notification, Open, RouteRefresh
from common.kernels.pack import end_of_rib
from stages.feed import churn, garbage, load, picture, plot, synthetic
from stages.feed.command import feed
from stages.feed.mrt import MrtSource, summarize
from stages.feed.neighbor import Plan
from stages.feed.recording import RecordedTap
from stages.feed.unpack import FileError


def run(*words: str):
    return CliRunner().invoke(feed, list(words))


PAIR = ("--target", "127.0.0.1", "--sender", "a=127.0.0.2,1", "--listener", "b=127.0.0.3,2")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "name a scenario"),
        (("full-tabel",), "did you mean 'full-table'?"),
        (("--target", "127.0.0.1", "--sender", "x"), "write NAME=ADDRESS,ASN"),
        (("no/such.toml",), "No such file"),
        (("full-table", "--sender", "a=127.0.0.2,64601"), "without a scenario"),
        (("full-table", "--replay", __file__), "--replay: for tests without a scenario"),
        (("full-table", "--target", "router"), "'router' is no IP address"),
        (("--target", "127.0.0.1"), "nobody is to be played"),
        (("--target", "127.0.0.1", "--sender", "a=127.0.0.2,0"), "write NAME=ADDRESS,ASN"),
        ((*PAIR, "--speed", "0"), "--speed"),
        (("--bus", "/tmp"), "--bus needs a --sender"),
        (("--bus", "/no/such", "--sender", "a=10.0.0.1,1"), "there is no such directory"),
        (("--bus", "/tmp", "--target", "10.0.0.1", "--sender", "a=10.0.0.1,1"), "there are no sessions"),
        ((*PAIR, "--port", "70000"), "--port"),
        ((*PAIR, "--size", "-5"), "--size"),
        ((*PAIR, "--seed", "-1"), "--seed"),
        ((*PAIR, "--speed", "2"), "--speed is that of --replay"),
        ((*PAIR, "--time-limit", "nan"), "is no number of use"),
        ((*PAIR, "--time-limit", "-1"), "--time-limit"),
        ((*PAIR, "--peer", "AS3"), "--peer is a peer of the file"),
        ((*PAIR, "--mrt", __file__, "--prefixes", __file__), "--mrt and --prefixes: a table comes from one"),
        ((*PAIR, "--mrt", __file__, "--size", "9"), "--size and --mrt"),
        ((*PAIR, "--probes-while-loading"), "--probes says how many"),
        ((*PAIR, "--probes", "3", "--probes-while-loading"), "needs two --sender"),
        ((*PAIR[:4], "--probes", "3"), "--probes needs a --sender and a --listener"),
        ((*PAIR, "--sender", "a=127.0.0.4,3"), "two neighbors are called 'a'"),
        ((*PAIR, "--sender", "c=127.0.0.2,3"), "127.0.0.2 is already the address of a"),
        ((*PAIR, "--sender", "c=fd77::1,3"), "of different IP versions"),
        ((*PAIR, "--json", "/no/such/report.json"), "there is no directory '/no/such'"),
        ((*PAIR, "--plot", "/no/such/plot.svg"), "there is no directory '/no/such'"),
        ((*PAIR, "--plot", "plot.pdf"), "a plot is SVG or PNG"),
    ],
)  # fmt: skip
def test_wrong_usage(words, complaint):
    """Wrong usage ends with status 2 and a sentence, before anything is sent."""
    result = run(*words)
    assert result.exit_code == 2 and complaint in result.output


def test_a_file_that_is_no_mrt(tmp_path):
    """A neighbor's file of the wrong kind ends the command with status 1 and a sentence, before anything is sent."""
    result = run("--target", "127.0.0.1", "--sender", "a=127.0.0.2,64601", "--mrt", __file__)
    assert result.exit_code == 1 and f"{__file__}: is no MRT file" in result.output


def test_a_report_is_written_of_a_file_that_is_no_table(tmp_path):
    """What is wrong with a file stands in the report too, so that no older one is taken for this test's."""
    report = tmp_path / "report.json"
    for name, text in (("list", "# nothing"), ("recording", '{"mark": "position"}')):
        path = tmp_path / name
        path.write_text(text)
        result = run(*PAIR, "--prefixes" if name == "list" else "--tap", str(path), "--json", str(report))
        assert result.exit_code == 1 and "holds no" in result.output
        assert not json.loads(report.read_text())["is_good"] and str(path) in json.loads(report.read_text())["failure"]
    result = run(*PAIR, "--replay", __file__)
    assert result.exit_code == 1 and "is no MRT file" in result.output and "connect" not in result.output


def test_an_address_that_is_not_here():
    """A neighbor whose address this machine does not have is told what to do."""
    result = run("--target", "127.0.0.1", "--sender", "a=192.0.2.77,1", "--size", "3")
    assert result.exit_code == 1 and "192.0.2.77 is no address of this machine: add it" in result.output


def test_more_neighbors_than_descriptors(monkeypatch):
    """The limit of descriptors is raised as far as it goes, and said where it does not reach."""
    limits = [(64, 1000)]
    monkeypatch.setattr(load.resource, "getrlimit", lambda which: limits[-1])
    monkeypatch.setattr(load.resource, "setrlimit", lambda which, limit: limits.append(limit))
    load.make_room(500)
    assert limits[-1] == (500 + load.OTHER_DESCRIPTORS, 1000)
    with pytest.raises(load.LoadFailed, match=r"2,000 neighbors need 2,064 descriptors.*limit is 1,000.*ulimit -n"):
        load.make_room(2000)


def test_a_target_that_refuses(tmp_path):
    """When nobody listens at the target the report says so, and is written all the same."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    report = tmp_path / "report.json"
    scenario = tmp_path / "short.toml"
    scenario.write_text(
        f'[target]\naddress = "127.0.0.1"\nport = {port}\n'
        '[[neighbor]]\nname = "a"\naddress = "127.0.0.2"\nasn = 64601\n'
        '[[step]]\ndo = "connect"\nlimit_s = 0.3\n'
    )
    result = run(str(scenario), "--json", str(report))
    assert (
        result.exit_code == 1
        and "no session within 0 s: 127.0.0.2 to 127.0.0.1" in result.output
        and "refused" in result.output
    )
    assert "refused" in json.loads(report.read_text())["failure"]


@pytest.mark.parametrize(
    ("answer", "complaint"), [(b"", "closed"), (Notification(2, 2).encode(), "OPEN Message Error")]
)
def test_a_target_that_does_not_want(answer, complaint, tmp_path):
    """A target that closes, or answers with a NOTIFICATION, is reported in those words."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connection.recv(1000)
                connection.sendall(answer)
                connection.close()

        threading.Thread(target=refuse, daemon=True).start()
        scenario = tmp_path / "short.toml"
        scenario.write_text(
            f'[target]\naddress = "127.0.0.1"\nport = {server.getsockname()[1]}\n'
            '[[neighbor]]\nname = "a"\naddress = "127.0.0.2"\nasn = 64601\n[[step]]\ndo = "connect"\nlimit_s = 0.2\n'
        )
        result = run(str(scenario))
        server.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 1 and complaint in result.output


@pytest.mark.parametrize(
    ("octets", "complaint"),
    [
        (b"", "is empty"),
        (b"a list of prefixes, perhaps", "is no MRT file"),
        (b"\x1f\x8b\x08 broken", "cannot be unpacked"),
        (bytes([0, 0, 0, 1, 0, 16, 0, 4, 0, 0, 0, 50, 1, 2]), "ends inside a record at octet 0"),
        (bytes([0, 0, 0, 1, 0, 11, 0, 4, 0, 0, 0, 0]) + b"\xff" * 12, "is corrupt at octet 12, after 1 records"),
    ],
)
def test_files_that_are_no_mrt(octets, complaint, tmp_path):
    """A file that is empty, cut, corrupt or of another kind is named with the place where it goes wrong."""
    path = tmp_path / "file"
    path.write_bytes(octets)
    with pytest.raises(FileError, match=complaint):
        summarize(path)


OPENED = Open(65000, 90, 0x0A4D0001, Capabilities(families=tuple(Family), asn4=65000)).encode()
AN_UPDATE = garbage.KINDS["unknown-optional"].make(65000, bytes([10, 77, 0, 1]))


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        (b"", "connected to 127.0.0.1, but no OPEN has come"),
        (OPENED, "connected to 127.0.0.1, but no KEEPALIVE has come"),
        (bytes(100), "sent a malformed message: Message Header Error: Connection Not Synchronized"),
        (OPENED[:19] + b"\7" + OPENED[20:], "its OPEN is malformed: OPEN Message Error: Unsupported Version Number"),
        (AN_UPDATE, "sent an UPDATE before an OPEN"),
        (OPENED + OPENED, "sent an OPEN again"),
        (OPENED + garbage.KINDS["prefix-cut"].make(1, bytes(4)), "sent a malformed message: UPDATE Message Error"),
    ],
    ids=["nothing", "open", "zeros", "version", "update", "open-twice", "bad-update"],
)
def test_a_target_that_speaks_no_bgp(said, complaint, tmp_path):
    """Whatever a target says instead of what is due, and be it nothing, is the reason given why there is no session."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def play() -> None:
            held = []
            with suppress(OSError):  # the test has ended
                while True:
                    held.append(server.accept()[0])
                    held[-1].sendall(said)

        threading.Thread(target=play, daemon=True).start()
        scenario = tmp_path / "short.toml"
        scenario.write_text(
            f'[target]\naddress = "127.0.0.1"\nport = {server.getsockname()[1]}\n'
            '[[neighbor]]\nname = "a"\naddress = "127.0.0.2"\nasn = 64601\n[[step]]\ndo = "connect"\nlimit_s = 0.5\n'
        )
        result = run(str(scenario))
        server.shutdown(socket.SHUT_RDWR)
    assert result.exit_code == 1 and f" s: {complaint}" in result.output


@pytest.fixture
def heeded():
    """Signals that end a program, heeded as from a terminal: a shell has its background jobs ignore SIGINT."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    former = [signal.signal(number, signal.default_int_handler) for number in numbers]
    yield
    for number, handler in zip(numbers, former, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_test_that_is_stopped(number, tmp_path, heeded):
    """A test that is stopped by a signal writes what there is, and its plot, as one that ends otherwise."""
    report, drawn = tmp_path / "report.json", tmp_path / "plot.svg"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def stop() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)  # an OPEN
                connection.sendall(OPENED)
                connection.recv(1 << 16)  # a KEEPALIVE, which is not answered: it waits
                os.kill(os.getpid(), number)
                connection.recv(1 << 16)

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        words = ("--target", "127.0.0.1", "--port", str(server.getsockname()[1]), "--sender", "a=127.0.0.2,64601")
        result = run(*words, "--size", "9", "--json", str(report), "--plot", str(drawn))
        thread.join(10)
    found = json.loads(report.read_text())
    assert result.exit_code == 1 and found["failure"] == "stopped by a signal" and not found["is_good"]
    assert found["neighbors"]["a"]["octets_sent"] > 19 and found["steps"][0]["do"] == "connect"
    assert drawn.read_text().startswith("<svg")


def test_a_route_refresh_is_answered():
    """A target that asks for a family again is told that part of the table once more (RFC 2918), and no other."""
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def play() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(OPENED + KEEPALIVE)
                asked = False
                while octets := connection.recv(1 << 16):
                    heard.extend(octets)
                    if not asked and heard.count(end_of_rib(Family.IPV6_UNICAST)):
                        asked = True
                        heard.clear()
                        connection.sendall(RouteRefresh(1, 1).encode())
                    elif asked and heard.count(b"\xc6\x33\x64"):
                        connection.sendall(Notification(6, 2).encode())

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        octets = encode_set(as_path=[64601], next_hop=bytes([10, 77, 0, 10]))
        pieces = [
            synthetic.Table(
                Family.IPV4_UNICAST, np.array([0xC6336400 << 32], np.uint64), np.empty(0, np.uint64),
                np.array([24], np.uint8), np.zeros(1, np.uint32), np.array([0, len(octets)], np.uint32),
                np.frombuffer(octets, np.uint8),
            )
        ]  # fmt: skip
        plan = Plan("a", "127.0.0.2", 64601, "127.0.0.2")
        player = load.Player(load.Load(("127.0.0.1", port), [(plan, pieces)], [], time_limit_s=20))
        try:
            player.connect()
            player.send_tables()
            with pytest.raises(load.LoadFailed, match="Administrative Shutdown"):
                player.idle(lambda: False)
        finally:
            player.close()
        thread.join(10)
    assert heard.count(b"\x18\xc6\x33\x64") == 1 and heard.count(end_of_rib(Family.IPV6_UNICAST)) == 0


@pytest.mark.parametrize("offered", [(), (Family.IPV4_UNICAST,)])
def test_a_family_that_is_not_offered(offered):
    """A target that offers fewer families than are to be played is told which; nothing is sent."""
    opened = Open(65000, 90, 0x0A4D0001, Capabilities(families=offered, asn4=65000)).encode()
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def play() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(opened)
                while octets := connection.recv(1 << 16):
                    heard.extend(octets)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        port = str(server.getsockname()[1])
        result = run("--target", "127.0.0.1", "--port", port, "--sender", "a=127.0.0.2,64601", "--size", "9")
        thread.join(10)
    assert result.exit_code == 1 and "a: 127.0.0.1 does not offer" in result.output
    assert "ipv6-unicast to 127.0.0.2: configure it there" in result.output
    assert len(heard) == int.from_bytes(heard[16:18], "big")  # the OPEN alone


def test_a_session_that_is_ended_while_it_loads(tmp_path):
    """When the target ends a session, its words and what was sent until then stand in the report."""
    report = tmp_path / "report.json"
    opened = Open(65000, 90, 0x0A4D0001, Capabilities(families=tuple(Family), asn4=65000)).encode()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def play() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(opened + KEEPALIVE)
                while len(connection.recv(1 << 16)) < 1 << 10:
                    pass
                connection.sendall(Notification(6, 1).encode())
                connection.recv(1 << 16)

        thread = threading.Thread(target=play, daemon=True)
        thread.start()
        port = str(server.getsockname()[1])
        words = ("--target", "127.0.0.1", "--port", port, "--sender", "a=127.0.0.2,64601", "--size", "300000")
        result = run(*words, "--json", str(report))
        thread.join(10)
    found = json.loads(report.read_text())
    assert result.exit_code == 1 and found["failure"] == "a: NOTIFICATION Cease: Maximum Number Of Prefixes Reached"
    assert found["neighbors"]["a"]["octets_sent"] > 1 << 10 and found["steps"][-1]["do"] == "converge"


PACKERS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.compress, "": bytes}
RECORD = bytes([0, 0, 0, 1, 0, 11, 0, 4, 0, 0, 0, 0])


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_files(packing, tmp_path):
    """A file is unpacked as its first octets say, whatever it is called, and when it is cut that is said."""
    path = tmp_path / "file"
    packed = PACKERS[packing](RECORD * 5000)
    path.write_bytes(packed)
    assert summarize(path).n_records == 5000
    path.write_bytes(packed + packed)
    assert summarize(path).n_records == 10_000
    path.write_bytes(packed[:-6])
    with pytest.raises(FileError, match="cannot be unpacked|ends inside a record"):
        summarize(path)


def test_without_what_unpacks_zstd(tmp_path, monkeypatch):
    """Where the package that unpacks zstd is not installed, the message names it."""
    path = tmp_path / "file"
    path.write_bytes(zstandard.compress(RECORD))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(FileError, match="install the package zstandard"):
        summarize(path)


def test_a_file_without_routes(tmp_path):
    """A file that holds no routes can't be a neighbor's table."""
    path = tmp_path / "file"
    path.write_bytes(bytes([0, 0, 0, 1, 0, 11, 0, 4, 0, 0, 0, 0]))
    with pytest.raises(FileError, match="holds no routes"):
        MrtSource(path).peer_number()


def test_update_sizes_are_those_of_the_internet():
    """Of many UPDATEs 72 % have one prefix, and the mean is 3.2."""
    sizes = churn.update_sizes(np.random.default_rng(1), 200_000)
    assert abs((sizes == 1).mean() - 0.72) < 0.01 and abs(sizes.mean() - 3.2) < 0.1


def test_answers_to_garbage_are_judged():
    """An answer is right when the code is one of the kind's; silence is where the session must, or may, stand."""
    marker, origin, unknown = (garbage.KINDS[name] for name in ("bad-marker", "origin-of-7", "unknown-well-known"))
    assert garbage.judged(marker, (1, 1), False) and not garbage.judged(marker, (1, 2), False)
    assert not garbage.judged(marker, None, True)
    assert garbage.judged(origin, None, True) and not garbage.judged(origin, (3, 6), False)
    assert not garbage.judged(origin, None, False)
    assert garbage.judged(unknown, None, True) and garbage.judged(unknown, (3, 2), False)


def test_a_plot_is_written_as_its_name_says(tmp_path, monkeypatch):
    """A PNG has the size and the colors of the SVG; without what draws it, it is refused beforehand."""
    from PIL import Image

    svg = plot.plot("a <test>", [("one", [(0, 0), (1, 10)])], [1.0, 2.0, 9.0])
    picture.write(svg, tmp_path / "plot.svg")
    picture.write(svg, tmp_path / "plot.png")
    assert (tmp_path / "plot.svg").read_text() == svg
    image = Image.open(tmp_path / "plot.png")
    assert image.size == (2 * plot.WIDTH, 4 * plot.HEIGHT)
    colors = {color for _, color in image.getcolors(1 << 20)}
    assert {(255, 255, 255), (0x1B, 0x6C, 0xA8), (0x33, 0x33, 0x33)} <= colors
    monkeypatch.setattr(picture.importlib.util, "find_spec", lambda name: None)
    assert "install it" in picture.why_not(tmp_path / "plot.png") and not picture.why_not(tmp_path / "plot.svg")


def test_the_plot_shows_both_panels():
    """The plot is an SVG with a line for each listener and one for the delays."""
    svg = plot.plot("a <test>", [("one", [(0, 0), (1, 10)]), ("two", [(0, 0), (1, 5)])], [1.0, 2.0, 9.0])
    assert svg.startswith("<svg") and svg.count("<polyline") == 3 and "a &lt;test&gt;" in svg


WRONG_LINES = [
    "[" * 100_000, "[1]", "3", '{"prefix": 3}',
    '{"prefix": "192.0.2.1/24"}', '{"prefix": "192.0.2.0/24", "as_path": "x"}',
    *(f'{{"prefix": "192.0.2.0/24", "as_path": "5", {more}}}' for more in (
        '"med": -1', '"med": "x"', '"as_path": "99999999999"', '"as_path": "1 {2"', '"as_path": "{}"',
        '"communities": "x"', '"communities": [3]', '"communities": ["65536:1"]', '"communities": ["no-such"]',
        '"large_communities": ["1:2"]', '"large_communities": ["1:2:4294967296"]',
    )),
]  # fmt: skip


@pytest.mark.parametrize("line", WRONG_LINES, ids=lambda line: line[:60])
def test_a_line_that_is_none_of_a_tap(line, tmp_path):
    """Whatever is wrong with a line of a recording, it is named by its number."""
    path = tmp_path / "tap.jsonl"
    path.write_text('{"mark": "position"}\n' + line + "\n")
    with pytest.raises(FileError, match="tap.jsonl: line 2 is no line of `headrace tap --json`: "):
        list(RecordedTap(path).tables(Plan("x", "10.77.0.10", 64601, "10.77.0.10")))


def test_a_recording_keeps_all_communities(tmp_path):
    """Well-known communities, which a tap names, are sent as those they are."""
    values = (*WellKnownCommunity, 65000 << 16 | 1)
    path = tmp_path / "tap.jsonl"
    row = {"prefix": "192.0.2.0/24", "as_path": "5", "communities": [format_community(value) for value in values]}
    path.write_text(json.dumps(row))
    (table,) = RecordedTap(path).tables(Plan("x", "10.77.0.10", 64601, "10.77.0.10"))
    assert b"".join(value.to_bytes(4, "big") for value in values) in table.set_octets.tobytes()


def test_a_recorded_tap_is_a_source(tmp_path):
    """The lines of a tap become tables, with withdrawals, and with the neighbor's AS and next hop."""
    rows = [
        {"prefix": "192.0.2.0/24", "is_gone": False, "neighbor": "a", "as_path": "64999 {1,2}", "communities": ["1:2"]},
        {"mark": "position"},
        {"prefix": "2001:db8::/32", "is_gone": False, "neighbor": "a", "as_path": "64999", "origin": "IGP"},
        {"prefix": "198.51.100.0/24", "is_gone": True, "neighbor": "a"},
    ]
    path = tmp_path / "tap.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tables = list(RecordedTap(path).tables(Plan("x", "10.77.0.10", 64601, "10.77.0.10")))
    assert [(table.family, table.n_prefixes) for table in tables] == [
        (Family.IPV4_UNICAST, 2),
        (Family.IPV6_UNICAST, 1),
    ]
    assert tables[0].set.tolist() == [0, 0xFFFFFFFF] and bytes(tables[0].set_octets[:5]) == b"\x04\x0a\x4d\x00\x0a"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="line 1 is no text"):
        list(RecordedTap(path).tables(Plan("x", "10.77.0.10", 64601, "10.77.0.10")))
    path.write_text("not json\n")
    with pytest.raises(FileError, match="line 1"):
        list(RecordedTap(path).tables(Plan("x", "10.77.0.10", 64601, "10.77.0.10")))
