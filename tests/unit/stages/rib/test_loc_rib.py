"""The Loc-RIB of one family on batches built by hand."""

import ipaddress

import numpy as np
import pytest

from common.bgp.attributes import encode_set
from common.bgp.constants import NONE, Family
from common.bgp.decision import Step
from common.bgp.prefixes import Prefixes
from common.bus.batch import SNAPSHOT_BEGIN, SNAPSHOT_END, Batch, decode, encode
from common.bus.control import ControlError
from common.bus.schema import BestChanges, NextHopChanges, RouteChanges
from stages.rib.feed import Feed, Work
from stages.rib.loc_rib import LocRib
from stages.rib.lookup import Lookup
from stages.rib.next_hops import NextHops

A, B, CORE = "a", "b", "core"
HOSTS = {A: 10, B: 11, CORE: 12, "": 1}


def source(name: str, router_id: int | None = None, path_id: int = 0) -> dict:
    host = HOSTS[name]
    return {
        "name": name,
        "asn": 64600 + host,
        "local_asn": 65000,
        "router_id": host if router_id is None else router_id,
        "address": bytes([10, 77, 0, host]),
        "external": name in (A, B),
        "rr_client": False,
        "path_id": path_id,
    }


def attributes(*as_path: int, next_hop: str = "10.77.0.10", **more) -> bytes:
    return encode_set(as_path=as_path, next_hop=ipaddress.ip_address(next_hop).packed, **more)


def routes(rows: list[tuple], flags: int = 0, sources: list[dict] | None = None) -> Batch:
    """Build a RouteChanges batch of rows (prefix, neighbor, set octets or None), as it comes from the bus."""
    names = list(dict.fromkeys(name for _, name, _ in rows))
    sets = list(dict.fromkeys(octets for *_, octets in rows if octets is not None))
    networks = [ipaddress.ip_network(prefix) for prefix, *_ in rows]
    addresses = [int(network.network_address) << (128 - network.max_prefixlen) for network in networks]
    family = "ipv6-unicast" if networks and networks[0].version == 6 else "ipv4-unicast"
    columns = {
        "hi": np.array([address >> 64 for address in addresses], np.uint64),
        "lo": np.array([a & (1 << 64) - 1 for a in addresses] if family[3] == "6" else [], np.uint64),
        "length": np.array([network.prefixlen for network in networks], np.uint8),
        "source": np.array([names.index(name) for _, name, _ in rows], np.uint32),
        "set": np.array([NONE if octets is None else sets.index(octets) for *_, octets in rows], np.uint32),
        "reason": np.zeros(len(rows), np.uint8),
        "set_offset": np.cumsum([0, *map(len, sets)], dtype=np.uint32),
        "set_octets": np.frombuffer(b"".join(sets), np.uint8),
    }
    meta = {"family": family, "sources": sources or [source(name) for name in names]}
    return decode(encode(Batch(RouteChanges, columns, meta, flags=flags), 1))[1]


class Table:
    """A Loc-RIB with a reader that takes what is journaled."""

    def __init__(self, family: Family = Family.IPV4_UNICAST):
        self.next_hops = NextHops(1)
        self.loc_rib = LocRib(family, 1, self.next_hops)
        self.work = Work()
        self.feed = Feed("0", self.loc_rib, self.work, lambda: None)
        self.position = 1

    def handle(self, rows, flags=0, sources=None) -> dict:
        """Hand in a batch, do all work, and return what a reader would be sent: prefix -> (neighbor, AS path)."""
        self.feed.handle(routes(rows, flags, sources))
        return self.told()

    def told(self) -> dict:
        while self.work.step():
            pass
        rows, self.position = self.loc_rib.journal.read(self.position, 1000)
        return best_of(self.loc_rib.gather_best(rows, False))

    def snapshot(self) -> dict:
        rows = np.arange(1, self.loc_rib.prefixes.row_limit, dtype=np.uint32)
        return best_of(self.loc_rib.gather_best(rows, True))


def best_of(gathered, view=None) -> dict:
    """Return prefix -> (neighbor, next hop) of a BestChanges batch that must pass the bus; None where it is gone."""
    columns, meta = gathered
    batch = decode(encode(Batch(BestChanges, columns, meta), 1))[1]
    columns, found, at = batch.columns, {}, 0
    for row, n_paths in enumerate(columns["n_paths"].tolist()):
        hi = int(columns["hi"][row])
        lo = int(columns["lo"][row]) if len(columns["lo"]) else 0
        address = ipaddress.IPv6Address(hi << 64 | lo) if len(columns["lo"]) else ipaddress.IPv4Address(hi >> 32)
        paths = []
        for path in range(at, at + n_paths):
            first = int(columns["set_offset"][columns["path_set"][path]])
            size = int(columns["set_octets"][first])
            next_hop = columns["set_octets"][first + 1 : first + 1 + size].tobytes()
            name = meta["sources"][columns["path_source"][path]]["name"]
            paths.append((name, str(ipaddress.ip_address(next_hop)), Step(int(columns["path_reason"][path]))))
        at += n_paths
        found[f"{address}/{columns['length'][row]}"] = paths if view == "all" else (paths[0] if paths else None)
    return found


P, Q = "198.51.100.0/24", "203.0.113.0/24"
SHORT, LONG = attributes(64610), attributes(64611, 3356, next_hop="10.77.0.11")


@pytest.mark.parametrize("n_before", range(6))
def test_changes_while_a_table_is_decided_first(monkeypatch, n_before):
    """Wherever the first decision is when routes come and go, in the end all is chosen as of what there is."""
    monkeypatch.setattr("stages.rib.loc_rib.PREFIXES_PER_SLICE", 1)
    table = Table()
    table.loc_rib.is_deferred = True
    prefixes = [f"10.{n}.0.0/16" for n in range(5)]
    assert (
        table.handle([(prefix, name, octets) for prefix in prefixes for name, octets in ((A, SHORT), (B, LONG))]) == {}
    )
    row = 1
    for _ in range(n_before):
        row = table.loc_rib.decide_all(row)
    table.handle([(prefixes[0], A, None), (prefixes[4], A, None), (prefixes[2], B, None), (prefixes[3], B, None)])
    table.handle([(prefixes[3], A, None), (P, A, LONG)])
    row = row or 1
    while row:
        row = table.loc_rib.decide_all(row)
    chosen = {prefix: told[0] for prefix, told in table.snapshot().items()}
    assert chosen == {prefixes[0]: B, prefixes[1]: A, prefixes[2]: A, prefixes[4]: B, P: A}
    assert table.loc_rib.decision.n_chosen == 5 and table.loc_rib.routes.n_tombstones == 0
    assert table.loc_rib.prefixes.n_prefixes <= 6


@pytest.fixture
def table():
    return Table()


def test_the_best_path_is_told(table):
    """A prefix is told when its chosen path changes, and not when a worse path comes."""
    assert table.handle([(P, B, LONG)]) == {P: ("b", "10.77.0.11", Step.ONLY)}
    assert table.handle([(P, A, SHORT)]) == {P: ("a", "10.77.0.10", Step.AS_PATH)}
    assert table.handle([(P, B, attributes(64611, 1, 2))]) == {}
    assert table.handle([(P, A, None)]) == {P: ("b", "10.77.0.10", Step.ONLY)}
    assert table.handle([(P, B, None)]) == {P: None}


def test_the_same_again_is_no_change(table):
    """What is announced as it stands, and the withdrawal of what is not there, change nothing."""
    table.handle([(P, A, SHORT)])
    assert table.handle([(P, A, SHORT), (Q, A, None)]) == {}
    assert table.loc_rib.prefixes.n_prefixes == 1


def test_other_attributes_of_the_best_path_are_a_change(table):
    """The chosen path with other attributes is told."""
    table.handle([(P, A, SHORT)])
    assert table.handle([(P, A, attributes(64610, next_hop="10.77.0.99"))]) == {P: ("a", "10.77.0.99", Step.ONLY)}


def test_ipv6_prefixes_keep_all_their_bits():
    """Prefixes longer than 64 bits are told apart."""
    table = Table(Family.IPV6_UNICAST)
    rows = [(f"2001:db8::{i}/128", A, attributes(64610, next_hop="2001:db8::a")) for i in (1, 2)]
    assert set(table.handle(rows)) == {"2001:db8::1/128", "2001:db8::2/128"}


def test_a_snapshot_sweeps_what_it_does_not_confirm(table):
    """After a snapshot what it did not name is gone, what it named with equal attributes is no change."""
    table.handle([(P, A, SHORT), (Q, A, SHORT), (Q, B, LONG)])
    assert table.handle([(P, A, SHORT)], SNAPSHOT_BEGIN) == {}
    assert table.snapshot().keys() == {P, Q}
    assert table.handle([(Q, B, LONG)], SNAPSHOT_END) == {Q: ("b", "10.77.0.11", Step.ONLY)}


def test_a_snapshot_within_a_snapshot_begins_anew(table):
    """When the speaker starts over, only its last snapshot counts."""
    table.handle([(P, A, SHORT), (Q, A, SHORT)])
    table.feed.handle(routes([(P, A, SHORT)], SNAPSHOT_BEGIN))
    assert table.handle([(Q, A, SHORT)], SNAPSHOT_BEGIN | SNAPSHOT_END) == {P: None}


def test_a_snapshot_of_one_speaker_leaves_the_others_alone(table):
    """Routes that came from another speaker are not swept."""
    table.handle([(P, A, SHORT)])
    other = Feed("1", table.loc_rib, table.work, lambda: None)
    other.handle(routes([(Q, B, LONG)], SNAPSHOT_BEGIN | SNAPSHOT_END))
    assert table.told() == {Q: ("b", "10.77.0.11", Step.ONLY)}
    assert table.snapshot().keys() == {P, Q}


def test_prefixes_live_until_the_readers_have_passed_their_end(table):
    """A prefix that is gone keeps its row while a reader may still have to be told, and no longer."""
    loc_rib = table.loc_rib
    table.handle([(P, A, SHORT), (Q, A, SHORT)])
    loc_rib.collect(loc_rib.journal.head)
    behind = loc_rib.journal.head
    table.feed.handle(routes([(P, A, None)]))
    loc_rib.collect(behind)
    assert loc_rib.prefixes.n_prefixes == 2
    assert table.told() == {P: None}
    loc_rib.collect(loc_rib.journal.head)
    assert (loc_rib.prefixes.n_prefixes, loc_rib.routes.n_tombstones) == (1, 0)


def test_a_prefix_that_came_back_stays(table):
    """A prefix announced again before its end was passed is not released."""
    loc_rib = table.loc_rib
    table.handle([(P, A, SHORT)])
    table.feed.handle(routes([(P, A, None)]))
    assert table.handle([(P, B, LONG)]) == {P: ("b", "10.77.0.11", Step.ONLY)}
    loc_rib.collect(loc_rib.journal.head)
    assert table.snapshot().keys() == {P}


def test_a_prefix_that_was_never_usable_is_released_at_once(table):
    """Nobody was told of it, so nobody waits for its end."""
    next_hop(table, "10.77.0.10", is_reachable=False)
    assert table.handle([(P, A, SHORT)]) == {}
    table.handle([(P, A, None)])
    assert table.loc_rib.prefixes.n_prefixes == 0


def test_a_prefix_that_became_unusable_and_went_is_released(table):
    """A prefix told as gone when its next hop went away is released after its last candidate goes."""
    loc_rib = table.loc_rib
    table.handle([(P, A, SHORT)])
    next_hop(table, "10.77.0.10", is_reachable=False)
    assert table.told() == {P: None}
    loc_rib.collect(loc_rib.journal.head)
    table.handle([(P, A, None)])
    loc_rib.collect(loc_rib.journal.head)
    assert loc_rib.prefixes.n_prefixes == 0


def answers(metrics: dict[str, int | None]) -> dict[str, np.ndarray]:
    """Return the columns of NextHopChanges for next hop -> metric, None where there is no way to it."""
    packed = [ipaddress.ip_address(address).packed for address in metrics]
    wide = [int.from_bytes(each.ljust(16, b"\0"), "big") for each in packed]
    return {
        "hi": np.array([each >> 64 for each in wide], np.uint64),
        "lo": np.array([each & (1 << 64) - 1 for each in wide], np.uint64),
        "length": np.array([len(each) for each in packed], np.uint8),
        "reachable": np.array([metric is not None for metric in metrics.values()], np.uint8),
        "metric": np.array([metric or 0 for metric in metrics.values()], np.uint32),
    }


def next_hop(table: Table, address: str, is_reachable: bool = True, metric: int = 0, flags: int = 0) -> None:
    """Let the fib say something of a next hop, and choose again where that matters."""
    columns = answers({address: metric if is_reachable else None})
    table.next_hops.handle(Batch(NextHopChanges, columns, flags=flags))
    ways = table.loc_rib.update_metrics()
    table.work.add("next hops", lambda row: table.loc_rib.select_again(np.empty(0, np.uint32), ways, row))


def test_the_metric_to_the_next_hop_decides(table):
    """Of two paths alike the one with the nearer next hop wins, and changes of the metric are followed."""
    next_hop(table, "10.77.0.10", metric=20)
    table.handle([(P, A, SHORT), (P, B, attributes(64611, next_hop="10.77.0.11"))])
    assert table.snapshot() == {P: ("b", "10.77.0.11", Step.METRIC)}
    next_hop(table, "10.77.0.11", metric=30)
    assert table.told() == {P: ("a", "10.77.0.10", Step.METRIC)}
    next_hop(table, "10.77.0.10", is_reachable=False)
    assert table.told() == {P: ("b", "10.77.0.11", Step.ONLY)}
    next_hop(table, "10.77.0.9", flags=SNAPSHOT_BEGIN | SNAPSHOT_END)
    assert table.told() == {}  # what was said last stays true where nothing more is said
    next_hop(table, "10.77.0.10", metric=30)
    assert table.told() == {P: ("a", "10.77.0.10", Step.ROUTER_ID)}


def test_a_source_described_anew_is_compared_and_told_anew(table):
    """When a peer comes back with another router id, its paths are compared by that, and told with it."""
    both = [(P, A, SHORT), (P, B, attributes(64611))]
    assert table.handle(both)[P][0] == "a"
    renewed = [source(A, router_id=99), source(B)]
    assert table.handle(both, sources=renewed) == {P: ("b", "10.77.0.10", Step.ROUTER_ID)}


def test_all_usable_paths_of_a_prefix_can_be_read(table):
    """The view of all paths has the chosen one first, with its reason, then the others."""
    table.loc_rib.has_all_readers = True
    table.handle([(P, B, LONG), (P, A, SHORT)])
    rows, _ = table.loc_rib.journal.read(1, 10)
    assert best_of(table.loc_rib.gather_all(rows, False), "all") == {
        P: [("a", "10.77.0.10", Step.AS_PATH), ("b", "10.77.0.11", Step.NONE)]
    }


def test_sets_and_ways_are_forgotten(table):
    """Attribute sets that no route has any more are swept, and what was known of them with them."""
    loc_rib = table.loc_rib
    many = [(f"10.{i >> 8}.{i & 255}.0/24", A, attributes(64610, i + 1, med=i)) for i in range(9000)]
    table.handle(many)
    table.handle([(prefix, A, SHORT) for prefix, *_ in many])
    loc_rib.collect(loc_rib.journal.head)
    assert loc_rib.attributes.n_sets == 1
    assert loc_rib.facts.n_ways_known == 1
    assert len(table.snapshot()) == len(many)


def test_pages_have_every_route_once():
    """The pages of all chosen routes, one with a set of the largest size among them, have each of them once."""
    table = Table()
    large = attributes(64610, communities=list(range(16000)))
    prefixes = [f"10.{n // 256}.{n % 256}.0/24" for n in range(300)]
    table.handle([(prefix, A, large if n % 70 == 5 else SHORT) for n, prefix in enumerate(prefixes)])
    lookup = Lookup({Family.IPV4_UNICAST: table.loc_rib})
    found, sizes, after = [], [], None
    while True:
        answer = lookup.routes({"after": after, "limit": 1000})
        found += [route["prefix"] for route in answer["routes"]]
        sizes.append(len(answer["routes"]))
        after = answer["next"]
        if after is None:
            break
    assert sorted(found) == sorted(prefixes)
    assert 1 <= min(sizes) and max(sizes) <= 100


@pytest.mark.parametrize("n_rows", [1, 7, 1 << 16])
@pytest.mark.parametrize("within", [None, "10.0.0.0/15", "10.0.9.0/24", "11.0.0.0/8"])
def test_prefixes_a_slice_at_a_time(monkeypatch, n_rows, within):
    """Each prefix that has a chosen path is told once, and nothing that is not within what is asked for."""
    monkeypatch.setattr("stages.rib.lookup.SCAN_ROWS", n_rows)
    table = Table()
    prefixes = [f"10.{n // 16}.{n % 16}.0/24" for n in range(60)]
    table.handle([(prefix, A, SHORT) for prefix in prefixes])
    table.handle([(prefix, A, None) for prefix in prefixes[::7]])
    lookup = Lookup({Family.IPV4_UNICAST: table.loc_rib})
    found, after, n_pages = [], None, 0
    while not n_pages or after is not None:
        page = lookup.prefixes({"family": "ipv4-unicast", "within": within, "after": after})
        columns = Prefixes.unpack(page)
        found += [ipaddress.ip_network((int(h) >> 32, int(n))) for h, n in zip(columns.hi, columns.length, strict=True)]
        after, n_pages = page["next"], n_pages + 1
    wanted = [ipaddress.ip_network(prefix) for n, prefix in enumerate(prefixes) if n % 7]
    wanted = [each for each in wanted if within is None or each.subnet_of(ipaddress.ip_network(within))]
    assert sorted(found) == wanted and n_pages == -(-60 // n_rows)


def test_routes_of_prefixes():
    """Of those that have a chosen path, with the place of each; large sets are left for another answer."""
    table = Table()
    large = attributes(64610, communities=list(range(16000)))
    table.handle([(P, A, SHORT), (Q, B, large), ("10.9.0.0/16", B, LONG)])
    lookup = Lookup({Family.IPV4_UNICAST: table.loc_rib})

    def ask(*wanted: str) -> tuple:
        packed = Prefixes.of(map(ipaddress.ip_network, wanted)).pack()
        answer = lookup.of_prefixes({"family": "ipv4-unicast", "prefixes": packed})
        return [(route["prefix"], route["neighbor"]) for route in answer["routes"]], answer["places"], answer["next"]

    assert ask("10.9.0.0/16", "1.0.0.0/8", P) == ([("10.9.0.0/16", B), (P, A)], [0, 2], None)
    assert ask(P, Q, "10.9.0.0/16") == ([(P, A)], [0], 1)
    assert ask(Q, "10.9.0.0/16") == ([(Q, B)], [0], 1)
    assert ask("1.0.0.0/8") == ([], [], None)
    assert ask(*["1.0.0.0/8"] * 150, P)[2] == 100
    with pytest.raises(ControlError):
        lookup.prefixes({"family": "ipv4-unicast", "within": "2001:db8::/32"})


def test_sizes_of_rows():
    """What a prefix's paths refer to is known before it is gathered: of the chosen one, or of all usable ones."""
    table = Table()
    table.handle([(P, A, SHORT), (P, B, LONG), (Q, B, LONG)])
    table.handle([(Q, B, None)])
    rows = np.array([1, 2], np.uint32)
    assert table.loc_rib.sizes_of_best(rows).tolist() == [len(SHORT), 0]
    assert table.loc_rib.sizes_of_all(rows).tolist() == [len(SHORT) + len(LONG), 0]
