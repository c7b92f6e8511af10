"""Export policy and dressing on single batches."""

from dataclasses import replace

import numpy as np
import pytest

from common.bgp.constants import Family
from common.bgp.reasons import ExportRefusal
from common.bus.batch import Batch, decode, encode
from common.bus.schema import NONE, BestChanges
from common.config.digest import policy_digest
from common.config.load import loads
from stages.exporter.evaluation import ExportEvaluation, first_paths, version
from stages.exporter.group import Group, decode_group
from tests.oracles import dress as sets

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
[[neighbor]]
name = "peer"
address = "10.77.0.20"
asn = 64700
{external}
[[neighbor]]
name = "core"
address = "10.77.0.30"
asn = 65000
{internal}
"""
OWN = bytes([10, 77, 0, 1])
TRANSIT = {"name": "transit", "asn": 64601, "local_asn": 65000, "router_id": 7, "external": True, "rr_client": False}
INTERNAL = {**TRANSIT, "name": "core2", "asn": 65000, "external": False}
CLIENT = {**INTERNAL, "name": "client", "rr_client": True, "router_id": 8}
LOCAL = {**INTERNAL, "name": "", "router_id": 1}
EVERYTHING = "export = {}"


def config_of(external: str = EVERYTHING, internal: str = ""):
    return loads(CONFIG.format(external=external, internal=internal))


def group_of(name="peer", is_external=True, four=True, client=False, next_hop=OWN, local_asn=65000) -> Group:
    return Group(Family.IPV4_UNICAST, (name,), "", is_external, four, local_asn, next_hop, client)


def bound(group: Group, config) -> Group:
    """Return a group with the policy that its neighbor has in a configuration."""
    return replace(group, policy_name=policy_digest(config.neighbors[group.neighbors[0]].export))


def core(**more) -> Group:
    return group_of("core", False, **more)


def attribute_set(path=(64601, 3356), next_hop=b"\x0a\x4d\x00\x0a", **more) -> bytes:
    """Encode a set; `more` holds attributes as `a8=b"..."`."""
    flags = {4: 0x80, 5: 0x40, 7: 0xC0, 8: 0xC0, 9: 0x80, 10: 0x80, 16: 0xC0, 26: 0x80}
    attributes = {1: (0x40, b"\0"), 2: (0x40, sets.path_of([(2, list(path))] if path else [], 4))}
    attributes |= {int(name[1:]): (flags[int(name[1:])], value) for name, value in more.items()}
    return sets.encode(next_hop, attributes)


def exported(config, group: Group, source: dict, octets: bytes):
    """Return (next hop, attributes) that a group is told, or why it is not told."""
    evaluation = ExportEvaluation(config, bound(group, config))
    row = np.zeros(1, np.uint32)
    offset, column = np.array([0, len(octets)], np.uint32), np.frombuffer(octets, np.uint8)
    number, reason, offset, column = evaluation.evaluate([source], row, row, offset, column)
    if reason[0]:
        assert number[0] == NONE
        return ExportRefusal(int(reason[0]))
    return sets.decode(column[offset[number[0]] : offset[number[0] + 1]].tobytes())


def test_external_neighbors_get_what_may_leave_the_as():
    """RFC 4271 §5.1: own AS first, own next hop; nothing that stays inside the AS, no MED of another AS."""
    octets = attribute_set(
        a4=sets.put(5),
        a5=sets.put(120),
        a8=sets.put(1 << 16 | 1),
        a9=sets.put(9),
        a10=sets.put(9),
        a16=bytes([0x40]) + bytes(7) + bytes([0]) + bytes(7),
        a26=b"\x01\x00\x0b" + bytes(8),
    )
    next_hop, attributes = exported(config_of(), group_of(), TRANSIT, octets)
    assert next_hop == OWN
    assert attributes == {
        1: (0x40, b"\0"),
        2: (0x40, sets.path_of([(2, [65000, 64601, 3356])], 4)),
        8: (0xC0, sets.put(1 << 16 | 1)),
        16: (0xC0, bytes(8)),
    }


def test_the_prepend_of_the_export_block_is_on_top_of_the_one_own_as():
    """as_path_prepend = 2 makes the own AS stand there three times; the session's local AS is the one used."""
    _, attributes = exported(
        config_of("export = { as_path_prepend = 2 }"), group_of(local_asn=64999), TRANSIT, attribute_set()
    )
    assert attributes[2][1] == sets.path_of([(2, [64999] * 3 + [64601, 3356])], 4)


def test_an_originated_route_keeps_its_med():
    """RFC 4271 §5.1.4 keeps back a neighbor's MED, not our own; an empty path gets its first segment."""
    _, attributes = exported(config_of(), group_of(), LOCAL, attribute_set((), b"", a4=sets.put(5)))
    assert attributes[4] == (0x80, sets.put(5))
    assert attributes[2][1] == sets.path_of([(2, [65000])], 4)


def test_internal_neighbors_get_the_route_as_it_is_chosen():
    """RFC 4271 §5.1: path, MED and next hop unchanged; LOCAL_PREF always there."""
    octets = attribute_set(a4=sets.put(5), a8=sets.put(1 << 16 | 1))
    next_hop, attributes = exported(config_of(), core(), TRANSIT, octets)
    assert next_hop == b"\x0a\x4d\x00\x0a"
    before = sets.decode(octets)[1]
    assert attributes == before | {5: (0x40, sets.put(100))}
    _, attributes = exported(config_of(), core(), TRANSIT, attribute_set(a5=sets.put(7)))
    assert attributes[5] == (0x40, sets.put(7))


def test_next_hop_self_is_for_routes_learned_outside():
    """An internal neighbor is told this router as next hop if so configured, or where there is no other."""
    config = config_of(internal="export = { next_hop_self = true }")
    assert exported(config, core(), TRANSIT, attribute_set())[0] == OWN
    assert exported(config, core(), CLIENT, attribute_set())[0] == b"\x0a\x4d\x00\x0a"
    assert exported(config_of(), core(), LOCAL, attribute_set((), b""))[0] == OWN


def test_link_local_addresses_stay_on_their_link():
    """RFC 2545 §3: an internal neighbor is told the global address alone, or this router's where there is none."""
    glob, link = b"\x20\x01" + bytes(14), b"\xfe\x80" + bytes(14)
    own = b"\x20\x02" + bytes(14)
    group = core(next_hop=own)
    assert exported(config_of(), group, TRANSIT, attribute_set(next_hop=glob + link))[0] == glob
    assert exported(config_of(), group, TRANSIT, attribute_set(next_hop=link))[0] == own


def test_a_client_s_route_is_reflected_with_its_originator():
    """RFC 4456: between internal peers only where one is a client; ORIGINATOR_ID and CLUSTER_LIST say the way."""
    assert exported(config_of(), core(), INTERNAL, attribute_set()) is ExportRefusal.INTERNAL
    _, attributes = exported(config_of(), core(), CLIENT, attribute_set())
    assert attributes[9] == (0x80, sets.put(8)) and attributes[10] == (0x80, OWN)
    _, attributes = exported(config_of(), core(client=True), INTERNAL, attribute_set(a9=sets.put(3), a10=sets.put(4)))
    assert attributes[9] == (0x80, sets.put(3)) and attributes[10] == (0x80, OWN + sets.put(4))


def test_old_peers_are_written_to_in_two_octets():
    """RFC 6793 §4.2.2: AS_TRANS in the path and the aggregator, the true numbers in AS4_PATH and AS4_AGGREGATOR."""
    octets = attribute_set((64601, 70000), a7=sets.put(70000, 9))
    _, attributes = exported(config_of(), group_of(four=False), TRANSIT, octets)
    assert attributes[2][1] == sets.path_of([(2, [65000, 64601, 23456])], 2)
    assert attributes[17] == (0xC0, sets.path_of([(2, [65000, 64601, 70000])], 4))
    assert attributes[7][1] == (23456).to_bytes(2, "big") + sets.put(9)
    assert attributes[18] == (0xC0, sets.put(70000, 9))
    _, attributes = exported(config_of(), group_of(four=False), TRANSIT, attribute_set())
    assert 17 not in attributes and 18 not in attributes


@pytest.mark.parametrize(
    ("external", "group", "source", "wanted"),
    [
        ("", group_of(), TRANSIT, ExportRefusal.NO_POLICY),
        ('export = { default = "reject" }', group_of(), LOCAL, ExportRefusal.REJECTED),
        ("export = { learned_routes = false }", group_of(), TRANSIT, ExportRefusal.LEARNED),
        ("export = { originated_routes = false }", group_of(), LOCAL, ExportRefusal.ORIGINATED),
        (EVERYTHING, group_of(next_hop=b""), TRANSIT, ExportRefusal.NO_NEXT_HOP),
    ],
)
def test_a_route_that_is_not_to_be_told_has_a_reason(external, group, source, wanted):
    """Each rule of the export block, and RFC 8212, keep back what they are for."""
    assert exported(config_of(external), group, source, attribute_set()) is wanted


@pytest.mark.parametrize(
    ("community", "outside", "inside"),
    [
        (0xFFFFFF01, ExportRefusal.NO_EXPORT, None),
        (0xFFFFFF02, ExportRefusal.NO_ADVERTISE, ExportRefusal.NO_ADVERTISE),
        (0xFFFFFF03, ExportRefusal.NO_EXPORT_SUBCONFED, None),
        (0xFFFFFF04, None, None),
    ],
)
def test_well_known_communities_keep_routes_back(community, outside, inside):
    """RFC 1997; what the export block adds or removes does not change who is told."""
    octets = attribute_set(a8=sets.put(1, community))
    config = config_of('export = { remove_communities = ["*:*"], add_communities = ["no-export"] }')
    for group, wanted in ((group_of(), outside), (core(), inside)):
        got = exported(config, group, TRANSIT, octets)
        assert got is wanted if wanted else isinstance(got, tuple)


def test_a_batch_keeps_its_rows_and_names_whom_not_to_tell():
    """Rows keep their place: the best path of each, gone where there is none; the sources go on for the speaker."""
    one, two = attribute_set((64601,)), attribute_set((64601, 9), a8=sets.put(0xFFFFFF01))
    columns = {
        "hi": np.array([1, 2, 3, 4], np.uint64) << np.uint64(40),
        "length": np.full(4, 24, np.uint8),
        "n_paths": np.array([1, 0, 2, 1], np.uint8),
        "path_source": np.array([0, 1, 0, 0], np.uint32),
        "path_set": np.array([0, 0, 1, 1], np.uint32),
        "path_reason": np.zeros(4, np.uint8),
        "set_offset": np.array([0, len(one), len(one) + len(two)], np.uint32),
        "set_octets": np.frombuffer(one + two, np.uint8),
    }
    meta = {"family": "ipv4-unicast", "sources": [TRANSIT, LOCAL], "view": "best"}
    batch = decode(encode(Batch(BestChanges, columns, meta), 1))[1]
    evaluation = ExportEvaluation(config_of(), bound(group_of(), config_of()))
    made = decode(encode(evaluation.transform(batch), 1))[1]
    assert made.columns["hi"].tolist() == columns["hi"].tolist()
    assert made.columns["set"].tolist() == [0, NONE, 1, NONE]
    assert made.columns["source"].tolist() == [0, NONE, 1, 0]
    assert made.meta["sources"] == [TRANSIT, LOCAL]
    # Both sources have the first set, but only one is a neighbor: two dressings, of which the second is row 2's.
    assert evaluation.n_sets == 3 and len(made.columns["set_offset"]) == 3


def test_an_internal_source_is_never_taken_for_an_external_one():
    """A router id of 1 is a number, not a yes: the rules of two kinds of source never share a place."""
    evaluation = ExportEvaluation(config_of(), bound(core(), config_of()))
    sources = [TRANSIT, {**INTERNAL, "router_id": 1}, LOCAL, {**INTERNAL, "router_id": 0}]
    octets = attribute_set()
    _, reason, _, _ = evaluation.evaluate(
        sources,
        np.arange(4, dtype=np.uint32),
        np.zeros(4, np.uint32),
        np.array([0, len(octets)], np.uint32),
        np.frombuffer(octets, np.uint8),
    )
    assert reason.tolist() == [0, ExportRefusal.INTERNAL, 0, ExportRefusal.INTERNAL]


def test_first_paths_are_those_of_their_rows():
    """With one path a row the columns are taken as they are; else the first of each row's paths counts."""
    source, chosen = np.array([3, 4], np.uint32), np.array([1, 2], np.uint32)
    assert first_paths(np.array([1, 1], np.uint8), source, chosen) == (source, chosen)
    source, chosen = first_paths(np.array([0, 2, 0], np.uint8), source, chosen)
    assert source.tolist() == [NONE, 3, NONE] and chosen.tolist() == [NONE, 1, NONE]


def test_a_group_is_read_from_its_parameters():
    """What the speaker says of a group arrives as it is; parameters that say nothing usable are refused."""
    params = {
        "group": 1,
        "neighbors": ["peer"],
        "external": True,
        "asn4": False,
        "local_asn": 65000,
        "next_hop": OWN,
        "rr_client": False,
    }
    assert decode_group("ipv4-unicast", params, config_of()) == bound(group_of(four=False), config_of())
    for broken in ({"next_hop": b"12345"}, {"next_hop": 7}, {"local_asn": 0}, {"neighbors": [1]}, {"neighbors": None}):
        with pytest.raises(ValueError):
            decode_group("ipv4-unicast", {**params, **broken}, config_of())
    with pytest.raises(ValueError):
        decode_group("ipv4-unicast", {}, config_of())


def test_a_tap_may_ask_for_a_neighbor_by_name():
    """The group of one neighbor is made from the configuration."""
    config = config_of('local_address = "10.77.0.1"\nexport = {}')
    assert decode_group("ipv4-unicast", {"neighbor": "peer", "tap": True}, config) == bound(group_of(), config)
    with pytest.raises(ValueError, match="no neighbor"):
        decode_group("ipv4-unicast", {"neighbor": "nobody"}, config)


def test_the_version_tells_what_exports_are_evaluated_with():
    """Another export block is another version, and nothing else of the configuration is."""

    def version_with(external: str, internal: str = "") -> str:
        config = config_of(external, internal)
        return version(config, bound(group_of(), config))

    assert version_with(EVERYTHING) == version_with(EVERYTHING, "export = { next_hop_self = true }")
    assert version_with(EVERYTHING) != version_with("export = { as_path_prepend = 1 }")


@pytest.mark.parametrize("policy", ['export = { default = "reject" }', ""])
def test_a_group_that_is_told_nothing_gets_positions_without_rows(policy):
    """Where policy refuses every route, a batch becomes one without rows, and the refused routes are counted."""
    octets = np.frombuffer(attribute_set(), np.uint8)
    columns = {
        "hi": np.array([203 << 56], np.uint64),
        "lo": np.empty(0, np.uint64),
        "length": np.array([24], np.uint8),
        "n_paths": np.ones(1, np.uint8),
        "path_source": np.zeros(1, np.uint32),
        "path_set": np.zeros(1, np.uint32),
        "path_reason": np.zeros(1, np.uint8),
        "set_offset": np.array([0, len(octets)], np.uint32),
        "set_octets": octets,
    }
    config = config_of(external=policy)
    evaluation = ExportEvaluation(config, bound(group_of(), config))
    made = evaluation.transform(Batch(BestChanges, columns, {"family": "ipv4-unicast", "sources": [TRANSIT]}))
    assert made.n_rows == 0
    assert evaluation.n_refused.sum() == evaluation.n_routes == 1
    assert decode([bytes(frame) for frame in encode(made, 1)])[1].n_rows == 0
