"""Recorded MRT files are read to the counts that bgpdump 1.6.2 and an independent reader gave for them.

The files are not part of the project: see tests/vectors/mrt.py. Of IPv4 and IPv6 multicast, which bgpdump counts and
Headrace does not route, there are some routes in one file.
"""

import bz2
import gzip
import ipaddress
import tracemalloc

import pytest

from common.bgp.constants import Family
from stages.feed.mrt import MrtSource, Reading, summarize
from stages.feed.neighbor import Plan
from tests.oracles import mrt as oracle
from tests.vectors.mrt import FOLDER

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="no MRT files: HEADRACE_DATA is not set")

# name: records, kinds, announced, withdrawn or entries of tables, prefixes IPv4 and IPv6, peers, multicast
UPDATES = {
    "updates.ris.20190101.0000.gz": (
        54514, {"BGP4MP MESSAGE_AS4": 54471, "BGP4MP STATE_CHANGE_AS4": 43}, 159948, 2626, 18251, 249, 76, (0, 0)),
    "updates.ris-rrc21.20160811.1600.gz": (
        17406, {"BGP4MP MESSAGE_AS4": 17384, "BGP4MP STATE_CHANGE_AS4": 22}, 39256, 1956, 1623, 94, 40, (0, 0)),
    "updates.ris.20071015.1505.gz": (
        4297, {"BGP4MP MESSAGE": 4256, "BGP4MP MESSAGE_AS4": 41}, 10111, 385, 1844, 7, 14, (0, 0)),
    "updates.routeviews.20130101.0013.gz": (
        18088, {"BGP4MP MESSAGE": 7827, "BGP4MP MESSAGE_AS4": 10261}, 42997, 4465, 3392, 0, 35, (198, 82)),
    "updates.et-2024.bz2": (85, {"BGP4MP_ET MESSAGE_AS4": 85}, 159, 109, 21, 15, 4, (0, 0)),
    "updates.long_withdrawal.gz": (1, {"BGP4MP MESSAGE_AS4": 1}, 0, 4096, 0, 4096, 1, (0, 0)),
}  # fmt: skip
V2 = "TABLE_DUMP_V2 "
TABLES = {
    "rib.routeviews-jinx.20140530.2200.bz2": (
        497408, {f"{V2}PEER_INDEX_TABLE": 1, f"{V2}RIB_IPV4_UNICAST": 497323, f"{V2}RIB_IPV6_UNICAST": 84},
        503590, 497323, 84, 14),
    "rib6.routeviews6.20151101.0600.first.gz": (
        6867, {f"{V2}PEER_INDEX_TABLE": 1, f"{V2}RIB_IPV6_UNICAST": 6866}, 149486, 0, 6866, 27),
    "bview.ipv4_unicast_add_path.gz": (
        32, {f"{V2}PEER_INDEX_TABLE": 1, f"{V2}RIB_IPV4_UNICAST_ADDPATH": 31}, 62, 31, 0, 3),
    "bview.ipv6_unicast_add_path.gz": (
        32, {f"{V2}PEER_INDEX_TABLE": 1, f"{V2}RIB_IPV6_UNICAST_ADDPATH": 31}, 62, 0, 31, 3),
}  # fmt: skip
SAMPLES = sorted((FOLDER / "mrtparse-samples").glob("*")) if FOLDER.exists() else []


def n_peers(summary) -> int:
    return sum(1 for peer in summary.peers if peer.n_routes or peer.n_states)


@pytest.mark.parametrize("name", UPDATES)
def test_recorded_updates(name):
    """Records, kinds, routes, prefixes and peers of a file of UPDATEs are those that bgpdump finds."""
    records, kinds, announced, withdrawn, n4, n6, peers, (multicast, multicast_gone) = UPDATES[name]
    found = summarize(FOLDER / name)
    assert (found.n_records, found.kinds) == (records, kinds)
    assert sum(found.n_announced.values()) == announced - multicast
    assert sum(found.n_withdrawn.values()) == withdrawn - multicast_gone
    assert n_peers(found) == peers
    assert (found.n_malformed, found.n_ignored, found.n_invalid) == (0, 0, 0)
    if not multicast:
        assert tuple(found.n_prefixes.values()) == (n4, n6)


@pytest.mark.parametrize("name", TABLES)
def test_recorded_tables(name):
    """Records, kinds, entries, prefixes and peers of a table are those that bgpdump finds."""
    records, kinds, entries, n4, n6, peers = TABLES[name]
    found = summarize(FOLDER / name)
    assert (found.n_records, found.kinds, found.n_entries) == (records, kinds, entries)
    assert tuple(found.n_prefixes.values()) == (n4, n6)
    assert (n_peers(found), found.n_malformed) == (peers, 0)


@pytest.mark.parametrize("name", ["updates.routeviews.20130101.0013.gz", "updates.et-2024.bz2"])
def test_the_oracle_finds_the_multicast_routes_too(name):
    """An independent plain reader comes to bgpdump's counts, and to ours but for multicast."""
    _, _, announced, withdrawn, n4, n6, peers, multicast = UPDATES[name]
    plain = oracle.count((bz2 if name.endswith("bz2") else gzip).decompress((FOLDER / name).read_bytes()))
    assert (plain.announced.total(), plain.withdrawn.total()) == (announced, withdrawn)
    assert (plain.announced[1, 2], plain.withdrawn[1, 2]) == multicast
    assert (plain.n_prefixes(1, (1, 2)), plain.n_prefixes(2, (1, 2)), len(plain.peers)) == (n4, n6, peers)
    found = summarize(FOLDER / name)
    assert found.n_announced == {"ipv4-unicast": plain.announced[1, 1], "ipv6-unicast": plain.announced[2, 1]}
    assert found.n_prefixes == {"ipv4-unicast": plain.n_prefixes(1), "ipv6-unicast": plain.n_prefixes(2)}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_samples_of_other_daemons(path):
    """What BIRD, Quagga and OpenBGPD write is read to the end, with the oracle's counts of records and entries."""
    plain, found = oracle.count(path.read_bytes()), summarize(path)
    assert (found.n_records, found.n_states, found.n_malformed) == (plain.records, plain.states, 0)
    assert found.n_entries == plain.entries[1, 1] + plain.entries[2, 1]
    if path.name not in ("bird_bgp", "bird6_bgp"):  # ADD-PATH messages that the file does not mark as such
        # Entries that lack what an UPDATE needs count as withdrawn.
        n_routes = sum(found.n_announced.values()) + sum(found.n_withdrawn.values())
        assert n_routes == plain.announced.total() + plain.withdrawn.total() + found.n_entries


def test_a_peer_of_a_table_becomes_a_neighbor():
    """The full feed of a table is told with the neighbor's own AS first and its own next hop, each prefix once."""
    source = MrtSource(FOLDER / "rib.routeviews-jinx.20140530.2200.bz2", peer="196.223.14.55", keeps_as_sets=True)
    plan = Plan("transit", "10.77.0.10", 64601, "10.77.0.10", families=(Family.IPV4_UNICAST,))
    n = 0
    for table in source.tables(plan):
        n += table.n_prefixes
        first = table.set_octets[table.set_offset[:-1][:100].astype(int)[:, None] + range(5)]
        assert (first == [4, 10, 77, 0, 10]).all()
        head = bytes(table.set_octets[table.set_offset[0] : table.set_offset[1]])
        assert (2, b"\2") == (head[10], head[12:13]) and head[14:18] == (64601).to_bytes(4, "big")
    assert n == 497321


def test_memory_does_not_grow_with_the_file():
    """A file of 33 MB is read in a few, as long as its prefixes are not counted."""
    from common.kernels import mrt

    tracemalloc.start()
    for _ in Reading(FOLDER / "rib.routeviews-jinx.20140530.2200.bz2", mrt.MrtScanner()).pieces():
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20


def test_an_unknown_peer_is_answered_with_those_there_are():
    """Asked for a peer that is not in the file, the source names those with the most routes."""
    source = MrtSource(FOLDER / "updates.et-2024.bz2", peer=str(ipaddress.ip_address("192.0.2.99")))
    with pytest.raises(ValueError, match=r"has no peer 192\.0\.2\.99; those with the most routes: .* AS\d+"):
        source.peer_number()
