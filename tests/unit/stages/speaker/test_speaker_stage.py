"""The speaker with real sockets: sessions, routes in, routes out, limits, faults."""

import socket
from dataclasses import replace
from ipaddress import ip_network

import pytest

from common.bgp.capabilities import Capabilities
from common.bgp.constants import NONE, CeaseSubcode, Family
from common.bgp.messages import KEEPALIVE, Open, RouteRefresh, encode_message
from common.bgp.prefixes import Prefixes, prefix_text
from common.bgp.session import SEND_HOLD_TIME_S, State
from common.kernels import pack
from stages.speaker.intake import MESSAGES_PER_TURN
from stages.speaker.limits import maximum_attribute_octets
from stages.speaker.neighbors import Neighbor
from tests.unit.stages.speaker.conftest import attribute_set, update

PATH_A = attribute_set([64601, 1])
PATH_B = attribute_set([64602, 2])
UP, END_OF_RIB, DOWN = 1, 3, 4


def update_of(peer) -> bytes:
    """Return the next UPDATE that is not an End-of-RIB."""
    while not (body := peer.take(2)).strip(b"\0"):
        pass
    return body


def n_waiting(peer) -> int:
    """Return how many UPDATEs wait, once nothing more comes."""
    peer.router.run_until_quiet()
    peer.read()
    return sum(kind == 2 for kind, _ in peer.messages)


def nlri_of(*texts: str) -> bytes:
    """Return /24 prefixes as on the wire."""
    return b"".join(b"\x18" + socket.inet_aton(text.partition("/")[0])[:3] for text in texts)


def test_session_and_routes_reach_the_bus(router):
    """A peer's session, routes and End-of-RIB are seen on the bus in their order."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A, "10.2.0.0/24": PATH_A}) + pack.end_of_rib(Family.IPV4_UNICAST))
    router.run_until(lambda: ("a", END_OF_RIB) in router.reader.events)
    assert router.reader.events == [("a", UP), ("a", END_OF_RIB)]
    assert router.reader.prefixes("a") == {"10.1.0.0/24", "10.2.0.0/24"}
    assert router.reader.routes["a", "10.1.0.0/24"] == PATH_A


def test_originated_prefix_is_a_local_route(router):
    """The configured prefixes are in the Adj-RIB-In, from nobody, without next hop."""
    router.run_until(lambda: router.reader.prefixes(""))
    assert router.reader.routes["", "192.0.2.0/24"] == bytes.fromhex("0040010100400200")


def test_withdrawal_and_implicit_withdrawal(router):
    """A withdrawal takes the route away; another announcement replaces it."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A, "10.2.0.0/24": PATH_A}))
    peer.send(update({"10.1.0.0/24": None, "10.2.0.0/24": PATH_B}))
    router.run_until(lambda: router.reader.routes.get(("a", "10.2.0.0/24")) == PATH_B)
    assert router.reader.prefixes("a") == {"10.2.0.0/24"}


def test_lost_session_withdraws_its_routes(router):
    """The routes of a session that is lost go, those of others stay."""
    a, b = router.peer("a").open(), router.peer("b").open()
    a.send(update({"10.1.0.0/24": PATH_A}))
    b.send(update({"10.1.0.0/24": PATH_B}))
    router.run_until(lambda: router.reader.prefixes("a") and router.reader.prefixes("b"))
    a.close()
    router.run_until(lambda: ("a", DOWN) in router.reader.events)
    assert router.reader.prefixes("a") == set() and router.reader.prefixes("b") == {"10.1.0.0/24"}


def test_tombstones_are_forgotten(router):
    """Prefixes withdrawn and read by all leave no row behind."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A}) + update({"10.1.0.0/24": None}))
    router.run_until_quiet()
    router.clock.advance(1.0)
    router.run_until_quiet()
    table = router.speaker.tables[Family.IPV4_UNICAST]
    assert (table.prefixes.n_prefixes, table.routes.n_tombstones) == (1, 0)


def test_unknown_address_is_refused(router):
    """A connection from an address that is no neighbor's is reset without a word."""
    stranger = router.peer("a")
    stranger.sock.close()
    stranger.sock = socket.socket()
    stranger.sock.bind(("127.0.0.99", 0))
    stranger.sock.setblocking(False)
    stranger.sock.connect_ex(("127.0.0.1", router.port))

    def is_closed():
        stranger.read()
        return stranger.is_closed

    router.run_until(is_closed)
    assert stranger.messages == []


def test_third_connection_of_one_peer_is_refused(router):
    """A peer may have a session and one connection that collides with it, not more: the oldest gives way."""
    peers = [router.peer("a") for _ in range(3)]
    router.run_until_quiet()

    def n_closed():
        for peer in peers:
            peer.read()
        return sum(peer.is_closed for peer in peers)

    router.run_until(lambda: n_closed() == 1)
    router.run_until_quiet()
    assert n_closed() == 1


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_peer_whose_connections_died_without_a_word_comes_back_at_once(router, is_opened):
    """Connections on which no OPEN has come keep no newer one out, beside an established session neither."""
    first = router.peer("a")
    if is_opened:
        first.open()
    for _ in range(4):
        silent = router.peer("a")
        silent.take(1)
        router.clock.advance(1.0)
    late = router.peer("a")
    if is_opened:
        late.send(Open(64601, 30, 9, Capabilities(asn4=64601)).encode())
        assert late.take(3)[:2] == bytes((6, CeaseSubcode.CONNECTION_COLLISION_RESOLUTION))
    else:
        late.open()
    neighbor = router.speaker.neighbors.get("a")
    assert neighbor.is_established and neighbor.contender is None


def test_a_connection_is_not_held_open_for_an_open_that_does_not_come(router):
    """After the configured time a connection without OPEN is closed."""
    peer = router.peer("a")
    peer.take(1)
    router.clock.advance(59.0)
    router.run_until_quiet()
    assert router.speaker.neighbors.get("a").peering.session.state is State.OPEN_SENT
    router.clock.advance(1.0)
    assert peer.take(3)[0] == 4


def test_second_connection_to_an_established_peer_loses(router):
    """An established session is kept; the second connection is told of the collision."""
    first = router.peer("a").open()
    second = router.peer("a")
    router.run_until_quiet()
    second.send(Open(64601, 30, 9, Capabilities(asn4=64601)).encode())
    assert second.take(3)[:2] == bytes((6, CeaseSubcode.CONNECTION_COLLISION_RESOLUTION))
    first.send(update({"10.1.0.0/24": PATH_A}))
    router.run_until(lambda: router.reader.prefixes("a"))


def test_peer_that_resets_can_come_back_at_once(router):
    """After a lost session the same peer can have another."""
    router.peer("a").open().close()
    router.run_until(lambda: ("a", DOWN) in router.reader.events)
    router.peer("a").open()
    assert router.speaker.neighbors.get("a").is_established


def test_malformed_update_ends_the_session(router):
    """An error that leaves no other way is answered with its NOTIFICATION, logged with the octets."""
    peer = router.peer("a").open()
    peer.send(encode_message(2, b"\xff\xff\x00\x00"))
    assert peer.take(3)[:2] == b"\x03\x01"
    router.run_until(lambda: ("a", DOWN) in router.reader.events)
    assert "message-error" in router.log_lines.getvalue() and "ffff0000" in router.log_lines.getvalue()


def test_routes_before_an_error_and_of_others_are_handled(router):
    """What another peer sent is not touched by the error of one."""
    a, b = router.peer("a").open(), router.peer("b").open()
    b.send(update({"10.9.0.0/24": PATH_B}))
    a.send(b"\0" * 19)
    a.take(3)
    b.send(KEEPALIVE)
    router.run_until(lambda: router.reader.prefixes("b") == {"10.9.0.0/24"})
    assert router.speaker.neighbors.get("b").is_established


def test_treat_as_withdraw_withdraws(router):
    """An announcement with a wrong attribute takes away what was announced before (RFC 7606 §2)."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A}))
    router.run_until(lambda: router.reader.prefixes("a"))
    good = update({"10.1.0.0/24": PATH_A})
    origin = good.index(bytes.fromhex("40010100"))
    peer.send(good[: origin + 3] + b"\x09" + good[origin + 4 :])
    router.run_until(lambda: not router.reader.prefixes("a"))
    assert router.speaker.neighbors.get("a").is_established
    assert router.speaker.neighbors.get("a").n_treated_as_withdraw == 1


def test_exception_in_handling_ends_one_session(router, monkeypatch):
    """A fault of our own while handling a peer's octets costs that peer's session alone, and says with which octets."""
    a, b = router.peer("a").open(), router.peer("b").open()
    table = router.speaker.tables[Family.IPV4_UNICAST]

    def fail(*arguments):
        raise ZeroDivisionError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(table, "apply", fail)
        a.send(update({"10.1.0.0/24": PATH_A}))
        assert a.take(3)[:2] == bytes((6, CeaseSubcode.OUT_OF_RESOURCES))
    b.send(update({"10.1.0.0/24": PATH_B}))
    router.run_until(lambda: router.reader.prefixes("b"))
    assert "peer-input-exception" in router.log_lines.getvalue() and "180a0100" in router.log_lines.getvalue()


def test_maximum_prefixes(router):
    """Too many prefixes end the session with the Cease for it; it may come back after the configured time."""
    peer = router.peer("a").open()
    peer.send(update({f"10.{i // 250}.{i % 250}.0/24": PATH_A for i in range(900)}))
    router.run_until(lambda: len(router.reader.prefixes("a")) == 900)
    assert "maximum-prefixes-near" in router.log_lines.getvalue()
    peer.send(update({f"11.{i // 250}.{i % 250}.0/24": PATH_A for i in range(101)}))
    assert peer.take(3)[:2] == bytes((6, CeaseSubcode.MAXIMUM_NUMBER_OF_PREFIXES_REACHED))
    neighbor = router.speaker.neighbors.get("a")
    assert neighbor.peering.session.state is State.IDLE
    router.clock.advance(60.0)
    router.run_until_quiet()
    assert neighbor.peering.session.state is State.ACTIVE


@pytest.mark.parametrize("restart_s", [0, 300])
def test_a_limit_that_is_raised_lets_the_session_come_up_again(router, restart_s):
    """Who went beyond a limit waits for its time, or for a configuration with another limit, which counts at once."""
    few = {"maximum_prefixes": 5, "maximum_prefixes_restart_s": restart_s}

    def reload(**values):
        changed = replace(router.config.neighbors["a"], **values)
        router.speaker.reload(replace(router.config, neighbors={**router.config.neighbors, "a": changed}))
        router.run_until_quiet()
        return router.speaker.neighbors.get("a").peering.session.state

    reload(**few)
    peer = router.peer("a").open()
    peer.send(update({f"10.1.{i}.0/24": PATH_A for i in range(6)}))
    assert peer.take(3)[:2] == bytes((6, CeaseSubcode.MAXIMUM_NUMBER_OF_PREFIXES_REACHED))
    assert reload(**few) is State.IDLE
    assert reload(**{**few, "maximum_prefixes": 6}) is State.ACTIVE


def test_a_limit_that_is_lowered_counts_at_once(router):
    """A session that is beyond the new limit ends, and waits as after any other limit."""
    peer = router.peer("a").open()
    peer.send(update({f"10.1.{i}.0/24": PATH_A for i in range(6)}))
    router.run_until(lambda: len(router.reader.prefixes("a")) == 6)
    lowered = replace(router.config.neighbors["a"], maximum_prefixes=5)
    router.speaker.reload(replace(router.config, neighbors={**router.config.neighbors, "a": lowered}))
    router.run_until_quiet()
    told = router.ask("neighbor", name="a")
    assert (told["state"], told["retry_s"]) == ("Idle", lowered.maximum_prefixes_restart_s)
    assert told["reason"] == "went beyond maximum_prefixes: 6, limit 5"


def with_octets(router, n_octets: int | None, **values) -> Neighbor:
    """Let neighbor b have us hold so many octets of attribute sets."""
    neighbors = dict(router.config.neighbors)
    neighbors["b"] = replace(neighbors["b"], maximum_attribute_octets=n_octets, **values)
    router.speaker.reload(replace(router.config, neighbors=neighbors))
    return router.speaker.neighbors.get("b")


def large_sets(first: int, n: int) -> dict[str, bytes]:
    """Return prefixes with a set of 825 octets each."""
    return {f"10.1.{i}.0/24": attribute_set([64602, *range(70_000 + i, 70_200 + i)]) for i in range(first, first + n)}


def test_maximum_attribute_octets(router, monkeypatch):
    """Too many octets of attribute sets end the session with a Cease; what is announced again counts once."""
    monkeypatch.setattr("stages.speaker.limits.COUNT_OCTETS", 2000)
    neighbor = with_octets(router, 20_000)
    peer = router.peer("b").open()
    for _ in range(5):
        peer.send(update(large_sets(0, 20)) + update(dict.fromkeys(large_sets(0, 20))))
    peer.send(update(large_sets(0, 20)))
    router.run_until(lambda: len(router.reader.prefixes("b")) == 20)
    told = router.ask("neighbor", name="b")
    assert told["n_attribute_octets"] == sum(map(len, large_sets(0, 20).values()))
    assert told["maximum_attribute_octets"] == 20_000
    assert "maximum-attribute-octets-near" in router.log_lines.getvalue()
    peer.send(update(large_sets(20, 30)))
    assert peer.take(3)[:2] == bytes((6, CeaseSubcode.OUT_OF_RESOURCES))
    router.run_until(lambda: not router.reader.prefixes("b"))
    assert neighbor.n_attribute_octets == 0 and neighbor.peering.session.state is State.IDLE
    router.clock.advance(300.0)
    router.run_until_quiet()
    router.peer("b").open()


def test_a_limit_of_octets_that_is_lowered_counts_at_once(router, monkeypatch):
    """A session that is beyond a limit that comes with a reload ends; without a limit it stands."""
    with_octets(router, 0)
    peer = router.peer("b").open()
    peer.send(update(large_sets(0, 20)))
    router.run_until(lambda: len(router.reader.prefixes("b")) == 20)
    with_octets(router, 10_000)
    assert peer.take(3)[:2] == bytes((6, CeaseSubcode.OUT_OF_RESOURCES))


@pytest.mark.parametrize(
    ("values", "n_octets"),
    [
        ({}, 256 * 2_000_000),
        ({"maximum_prefixes": 1000}, 64 << 20),
        ({"maximum_prefixes": 1_000_000, "expected_routes": 900_000}, 256 * 1_000_000),
        ({"expected_routes": 1_230_000}, 256 * 2_460_000),
        ({"maximum_attribute_octets": 1 << 26}, 1 << 26),
        ({"maximum_attribute_octets": 0}, None),
    ],
)
def test_how_many_octets_may_be_held(router, values, n_octets):
    """The limit follows from how many prefixes are allowed or expected, unless it is given."""
    assert maximum_attribute_octets(replace(router.config.neighbors["b"], **values)) == n_octets


def test_keepalives_keep_time(router):
    """KEEPALIVEs go out in each third of the hold time, and silence ends the session."""
    peer = router.peer("a").open()
    for _ in range(3):
        router.clock.advance(9.6)
        peer.take(4)
    router.clock.advance(5.0)
    assert peer.take(3)[0] == 4


def test_a_clock_that_jumps_costs_no_session_that_has_kept_time(router):
    """After this process was stopped for minutes, what peers sent meanwhile counts before what has run out."""
    kept, silent = router.peer("a").open(), router.peer("b").open()
    router.run_until_quiet()
    kept.sock.sendall(KEEPALIVE + update({"10.1.0.0/24": PATH_A}))
    router.clock.advance(400.0)
    assert silent.take(3)[0] == 4
    router.run_until(lambda: router.reader.prefixes("a"))
    assert router.speaker.neighbors.get("a").is_established


def test_reading_stops_while_the_bus_is_behind(router, monkeypatch):
    """When nobody reads the bus the peers are read no more; sessions live on, and reading goes on afterwards."""
    monkeypatch.setattr("stages.speaker.stage.MAX_BACKLOG", 50)
    monkeypatch.setattr("stages.speaker.stage.RESUME_BACKLOG", 20)
    peer = router.peer("a").open()
    router.reader.follower.close()
    peer.send(update({f"10.0.{i}.0/24": PATH_A for i in range(100)}))
    router.run_until(lambda: router.speaker.is_reading_paused)
    peer.send(update({"10.9.9.0/24": PATH_A}))
    router.run_until_quiet()
    assert router.ask("neighbor", name="a")["n_received"] == 100
    router.clock.advance(29.0)
    peer.take(4)
    router.clock.advance(29.0)
    router.run_until_quiet()
    assert router.speaker.neighbors.get("a").is_established
    router.reader = type(router.reader)(router.reader_bus)
    router.run_until(lambda: "10.9.9.0/24" in router.reader.prefixes("a"))
    assert not router.speaker.is_reading_paused


def test_tells_a_peer_and_sends_end_of_rib(router):
    """A peer that comes up is told the table, equal attributes in one UPDATE, then the End-of-RIB."""
    router.exporter.put("10.1.0.0/24", PATH_B, source="b")
    router.exporter.put("10.2.0.0/24", PATH_A)
    router.exporter.put("10.3.0.0/24", PATH_B, source="b")
    peer = router.peer("a").open()
    bodies = [peer.take(2) for _ in range(3)]
    assert bodies[2] == b"\0\0\0\0"
    assert {body[-8:] for body in bodies[:2]} >= {nlri_of("10.1.0.0", "10.3.0.0")}
    assert n_waiting(peer) == 0


def test_own_routes_are_not_told(router):
    """What came from a peer is not told to it, also when a route told before becomes its own: then it is withdrawn."""
    router.exporter.put("10.1.0.0/24", PATH_A, source="a")
    peer = router.peer("a").open()
    assert peer.take(2) == b"\0\0\0\0"
    router.exporter.put("10.1.0.0/24", PATH_B, source="b")
    assert update_of(peer).endswith(nlri_of("10.1.0.0"))
    router.exporter.put("10.1.0.0/24", PATH_A, source="a")
    assert update_of(peer) == b"\0\x04" + nlri_of("10.1.0.0") + b"\0\0"
    router.exporter.put("10.1.0.0/24", None)
    assert n_waiting(peer) == 0


def test_groups_of_equal_sessions_are_shared(router):
    """Peers that are told the same have one table, also when their AS numbers differ; the exporter is asked once."""
    router.exporter.put("10.1.0.0/24", PATH_A, source="c")
    peers = [router.peer(name).open() for name in ("a", "b")]
    assert all(update_of(peer).endswith(nlri_of("10.1.0.0")) for peer in peers)
    assert [request.params["next_hop"] for request in router.exporter.requests] == [socket.inet_aton("127.0.0.1")]
    assert [group["members"] for group in router.speaker.status()["groups"]] == [["a", "b"]]


def test_route_refresh_tells_again(router):
    """A ROUTE-REFRESH is answered with the whole table (RFC 2918)."""
    router.exporter.put("10.1.0.0/24", PATH_B)
    peer = router.peer("a").open()
    assert update_of(peer).endswith(nlri_of("10.1.0.0"))
    assert n_waiting(peer) == 1
    peer.take(2)
    peer.send(RouteRefresh(1, 1).encode())
    assert update_of(peer).endswith(nlri_of("10.1.0.0"))


def test_a_flood_of_small_messages_leaves_time_for_others(router):
    """Of messages that are handled one by one few are in each turn, all are in the end, and in order."""
    flooding, other = router.peer("a").open(), router.peer("b").open()
    received = router.speaker.neighbors.get("a").peering.session.record.received
    refresh = RouteRefresh(1, 1).encode()
    flooding.sock.sendall(refresh * 1000 + update({"10.1.0.0/24": PATH_A}) + refresh + update({"10.2.0.0/24": PATH_A}))
    other.sock.sendall(update({"10.3.0.0/24": PATH_B}))
    counts, is_heard = [0], 0
    while not router.reader.prefixes("a"):
        router.turn()
        counts.append(received[5])
        if router.reader.prefixes("b") and not is_heard:
            is_heard = counts[-1]
    assert max(after - before for before, after in zip(counts, counts[1:], strict=False)) <= 2 * MESSAGES_PER_TURN
    router.run_until(lambda: len(router.reader.prefixes("a")) == 2)
    assert received[5] == 1001 and is_heard < 500


def test_a_session_that_ends_takes_what_waited_of_it(router):
    """What a peer sent before it broke the session's rules is not handled in its next session."""
    flooding = router.peer("a").open()
    flooding.sock.sendall(RouteRefresh(1, 1).encode() * 1000)
    router.turn()
    router.speaker.neighbors.stop(router.speaker.neighbors.get("a"), CeaseSubcode.ADMINISTRATIVE_RESET, restart_s=0.0)
    router.run_until_quiet()
    router.peer("a").open()
    router.run_until_quiet()
    assert router.speaker.neighbors.get("a").is_established


def test_restarted_exporter_costs_no_update(router):
    """A new epoch of the exporter with the same routes tells nobody anything; what is gone is withdrawn."""
    router.exporter.put("10.1.0.0/24", PATH_B)
    router.exporter.put("10.2.0.0/24", PATH_B)
    peer = router.peer("a").open()
    update_of(peer)
    peer.take(2)
    router.exporter.put("10.2.0.0/24", None)
    router.exporter.epoch = "x2"
    router.hub.drop("ipc:///run/exporter.0.bus")
    body = update_of(peer)
    assert body == b"\0\x04" + nlri_of("10.2.0.0") + b"\0\0"
    assert n_waiting(peer) == 0


def test_shutdown_says_farewell(router):
    """Draining sends every peer a Cease with the subcode for it."""
    peer = router.peer("a").open()
    router.speaker.drain()
    assert peer.take(3)[:2] == bytes((6, CeaseSubcode.ADMINISTRATIVE_SHUTDOWN))


def test_shutdown_withdraws_nothing(router):
    """What this process knew is left to its readers, so that the kernel's routes outlive an orderly stop."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A}))
    router.run_until(lambda: router.reader.prefixes("a"))
    router.speaker.drain()
    router.run_until_quiet()
    assert router.reader.prefixes("a") == {"10.1.0.0/24"} and ("a", DOWN) not in router.reader.events


def test_reload_ends_and_begins_sessions(router):
    """A neighbor that is removed gets a Cease; one that changed too, and may come back."""
    a, b = router.peer("a").open(), router.peer("b").open()
    neighbors = dict(router.config.neighbors)
    del neighbors["a"]
    neighbors["b"] = replace(neighbors["b"], hold_time_s=60)
    router.speaker.reload(replace(router.config, neighbors=neighbors))
    assert a.take(3)[:2] == bytes((6, CeaseSubcode.PEER_DE_CONFIGURED))
    assert b.take(3)[:2] == bytes((6, CeaseSubcode.OTHER_CONFIGURATION_CHANGE))
    assert [neighbor.name for neighbor in router.speaker.neighbors] == ["b"]
    router.peer("b").open()


def test_answers_about_neighbors_and_routes(router):
    """The control questions tell sessions, what was received and what was told, page by page."""
    router.exporter.put("10.5.0.0/24", PATH_B, source="b")
    peer = router.peer("a").open()
    peer.send(update({f"10.1.{i}.0/24": PATH_A for i in range(5)}))
    router.run_until(lambda: len(router.reader.prefixes("a")) == 5)
    update_of(peer)
    (row,) = [row for row in router.ask("neighbors")["neighbors"] if row["name"] == "a"]
    assert (row["state"], row["n_received"], row["n_advertised"]) == ("Established", 5, 1)
    page = router.ask("received", neighbor="a", family="ipv4-unicast", limit=3)
    rest = router.ask("received", neighbor="a", family="ipv4-unicast", limit=3, after=page["next"])
    assert [row["prefix"] for row in page["routes"] + rest["routes"]] == [f"10.1.{i}.0/24" for i in range(5)]
    assert rest["next"] is None and page["routes"][0]["as_path"] == "64601 1"
    told = router.ask("advertised", neighbor="a")
    assert [row["prefix"] for row in told["routes"]] == ["10.5.0.0/24"]
    assert [row["neighbor"] for row in router.ask("lookup", prefix="10.1.4.0/24")["routes"]] == ["a"]
    assert "no neighbor" in router.ask("neighbor", name="nobody")["error"]
    assert router.ask("neighbor", name="a")["tables"]["ipv4-unicast"]["in_step"]


@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.77", "another BGP daemon may be there"), ("203.0.113.7", "no interface has this address yet")],
)
def test_where_it_cannot_listen(router, address, words):
    """The log says what may be done; it is tried again, and sessions elsewhere go on."""
    with socket.create_server(("127.0.0.77", router.port)):
        router.speaker.reload(
            replace(router.config, router=replace(router.config.router, listen=("127.0.0.1", address)))
        )
        line = next(line for line in router.log_lines.getvalue().splitlines() if "listen-failed" in line)
    assert f"address={address}" in line and words in line
    router.peer("a").open()


def prefixes_of(router, table: str, **more) -> list[str]:
    """Return the prefixes that are told of a table of neighbor a, of all slices, in order."""
    pages, after = [], None
    question = {"neighbor": "a", "table": table, "family": "ipv4-unicast", **more}
    while not pages or after is not None:
        pages.append(router.ask("prefixes", after=after, **question))
        after = pages[-1]["next"]
    columns = (row for page in map(Prefixes.unpack, pages) for row in zip(page.hi, page.length, strict=True))
    return [prefix_text(int(high), 0, int(length), is_wide=False) for high, length in sorted(columns)]


@pytest.mark.parametrize("n_rows", [1, 2, 1000])
def test_prefixes_and_their_routes(router, monkeypatch, n_rows):
    """Which prefixes there are, a slice at a time, all or within one, and the routes of some: received, and told."""
    monkeypatch.setattr("stages.speaker.lookup.SCAN_ROWS", n_rows)
    told = {f"11.{i}.0.0/16": PATH_B for i in range(4)}
    for prefix, octets in told.items():
        router.exporter.put(prefix, octets, source="b")
    peer, other = router.peer("a").open(), router.peer("b").open()
    other.send(update({"10.1.3.0/24": PATH_B, "12.0.0.0/8": PATH_B}))
    peer.send(update({f"10.1.{i}.0/24": PATH_A for i in range(5)}))
    peer.send(update({"10.1.4.0/24": None}))
    router.run_until(lambda: len(router.reader.prefixes("a")) == 4 and len(router.reader.prefixes("b")) == 2)
    update_of(peer)
    router.run_until_quiet()
    assert prefixes_of(router, "received") == [f"10.1.{i}.0/24" for i in range(4)]
    assert prefixes_of(router, "received", within="10.1.2.0/23") == ["10.1.2.0/24", "10.1.3.0/24"]
    assert prefixes_of(router, "advertised") == list(told)
    assert prefixes_of(router, "advertised", within="11.2.0.0/15") == ["11.2.0.0/16", "11.3.0.0/16"]
    wanted = ["10.1.4.0/24", "10.1.3.0/24", "11.1.0.0/16", "12.0.0.0/8", "10.1.0.0/24"]
    question = {"neighbor": "a", "family": "ipv4-unicast", "prefixes": Prefixes.of(map(ip_network, wanted)).pack()}
    answer = router.ask("routes-of", table="received", **question)
    assert [(route["prefix"], route["neighbor"]) for route in answer["routes"]] == [(wanted[1], "a"), (wanted[4], "a")]
    assert answer["places"] == [1, 4] and answer["next"] is None and answer["routes"][0]["as_path"] == "64601 1"
    answer = router.ask("routes-of", table="advertised", **question)
    assert [route["prefix"] for route in answer["routes"]] == ["11.1.0.0/16"] and answer["places"] == [2]
    router.exporter.put("11.1.0.0/16", None)
    router.run_until(lambda: "11.1.0.0/16" not in prefixes_of(router, "advertised"))
    assert router.ask("routes-of", table="advertised", **question)["routes"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"table": "x"},
        {"within": "2001:db8::/32"},
        {"within": "x"},
        {"family": "x"},
        {"neighbor": "x"},
        {"prefixes": {"hi": b"1", "lo": b"", "length": b""}},
        {"prefixes": {"hi": bytes(8), "lo": b"", "length": b""}},
    ],
)
def test_questions_about_prefixes_that_make_no_sense(router, wrong):
    """Each is answered with an error, and the stage goes on."""
    question = {"table": "received", "neighbor": "a", "family": "ipv4-unicast", "ask": ""} | wrong
    del question["ask"]
    assert router.ask("routes-of" if "prefixes" in wrong else "prefixes", **question)["error"]


def test_metrics_are_read_from_the_tables(router):
    """The metrics say what the tables hold."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A}))
    router.run_until(lambda: router.reader.prefixes("a"))
    text = router.context.metrics.text()
    assert 'headrace_speaker_received_routes{neighbor="a"} 1.0' in text
    assert 'headrace_speaker_session_state{neighbor="a"} 6.0' in text


def test_tap_of_one_neighbor(router):
    """What one neighbor is told can be followed on the bus, without its own routes; it ends with the session."""
    refusals, seen = [], {}

    def handle(batch):
        for hi, number in zip(batch.columns["hi"].tolist(), batch.columns["set"].tolist(), strict=True):
            seen[socket.inet_ntoa((hi >> 32).to_bytes(4, "big"))] = number != NONE

    router.exporter.put("10.1.0.0/24", PATH_A, source="a")
    router.exporter.put("10.2.0.0/24", PATH_B, source="b")
    peer = router.peer("a").open()
    bus = router.make_bus("tap")
    bus.follow("speaker", "0", "adj-rib-out/ipv4-unicast/a", handle, params={"tap": True}, on_refused=refusals.append)
    router.run_until(lambda: seen == {"10.2.0.0": True})
    router.exporter.put("10.2.0.0/24", None)
    router.exporter.put("10.3.0.0/24", PATH_B, source="b")
    router.run_until(lambda: seen == {"10.2.0.0": False, "10.3.0.0": True})
    peer.close()
    router.run_until(lambda: refusals)
    assert "down" in refusals[0]


def test_reload_of_policy_keeps_sessions(router):
    """A change that a session does not depend on leaves it up, and counts from now on."""
    router.peer("a").open()
    neighbors = dict(router.config.neighbors)
    neighbors["a"] = replace(neighbors["a"], maximum_prefixes=5, import_=None)
    router.speaker.reload(replace(router.config, neighbors=neighbors))
    neighbor = router.speaker.neighbors.get("a")
    assert neighbor.is_established and neighbor.config.maximum_prefixes == 5


def test_reload_changes_what_is_originated(router):
    """Prefixes originated follow the configuration."""
    router.run_until(lambda: router.reader.prefixes(""))
    wanted = (ip_network("198.51.100.0/24"),)
    router.speaker.reload(replace(router.config, router=replace(router.config.router, originate=wanted)))
    router.run_until(lambda: router.reader.prefixes("") == {"198.51.100.0/24"})


def test_new_reader_gets_sessions_routes_and_end_of_rib(router):
    """A reader that comes later gets a snapshot that begins with the sessions and ends with who is complete."""
    peer = router.peer("a").open()
    peer.send(update({"10.1.0.0/24": PATH_A}) + pack.end_of_rib(Family.IPV4_UNICAST))
    router.run_until(lambda: ("a", END_OF_RIB) in router.reader.events)
    later = type(router.reader)(router.make_bus("rib"))
    router.run_until(lambda: later.events == [("a", UP), ("a", END_OF_RIB)])
    assert later.routes == router.reader.routes


def test_a_peer_that_stops_reading_delays_nobody_and_is_closed(router):
    """It is sent no more than its connection takes, others get all; after the send-hold time it goes (RFC 9687).

    Its own KEEPALIVEs keep coming all the while, so the hold timer has nothing to complain of.
    """
    a, b = router.peer("a").open(), router.peer("b").open()
    n_routes = 3000
    for n in range(n_routes):
        octets = attribute_set([65000, n + 1], communities=[n * 1000 + i for i in range(900)])
        router.exporter.put(f"10.{n // 256}.{n % 256}.0/24", octets)
    held = set()

    def b_has_all() -> bool:
        b.read()
        held.update(body[-3:] for kind, body in b.messages if kind == 2)
        b.messages.clear()
        return len(held) >= n_routes

    router.run_until(b_has_all)
    stuck = router.speaker.neighbors.get("a")
    assert 0 < stuck.peering.connection.n_queued < 1 << 20
    assert router.ask("neighbor", name="a")["tables"]["ipv4-unicast"]["lag"] > 0
    for _ in range(int(SEND_HOLD_TIME_S / 10) - 1):
        router.clock.advance(10)
        for peer in (a, b):
            peer.send(KEEPALIVE)
        router.run_until_quiet()
        b.read()
    assert stuck.is_established
    router.clock.advance(20)
    for peer in (a, b):
        peer.send(KEEPALIVE)
    router.run_until_quiet()
    assert not stuck.is_established and router.speaker.neighbors.get("b").is_established
    assert "Send Hold Timer Expired" in stuck.peering.session.record.last_error
    router.exporter.put("10.200.0.0/16", attribute_set([65000, 1]))
    router.run_until(lambda: b.read() or any(body[-2:] == bytes([10, 200]) for kind, body in b.messages if kind == 2))
