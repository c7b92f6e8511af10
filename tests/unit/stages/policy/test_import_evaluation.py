"""Import policy on single batches."""

import numpy as np
import pytest

from common.bgp.reasons import ImportRefusal
from common.bus.batch import Batch, decode, encode
from common.bus.schema import NONE, RouteChanges, SessionChanges
from common.config.load import loads
from stages.policy.evaluation import ImportEvaluation
from tests.oracles import dress as sets

ROUTER = '[router]\nasn = 65000\nrouter_id = "10.77.0.1"\nlisten = ["10.77.0.1"]\n'
TRANSIT = '[[neighbor]]\nname = "transit"\naddress = "10.77.0.10"\nasn = 64601\n'
INTERNAL = '[[neighbor]]\nname = "core"\naddress = "10.77.0.30"\nasn = 65000\n'
ACCEPT = 'import = { default = "accept" }\n'


def source(name="transit", asn=64601, external=True, **more) -> dict:
    return {
        "name": name,
        "asn": asn,
        "local_asn": 65000,
        "router_id": 7,
        "address": bytes([10, 77, 0, 10]),
        "external": external,
        "rr_client": False,
        "path_id": 0,
        **more,
    }


def attribute_set(path=(64601, 3356), next_hop="0a4d000a", communities=(), large=(), **more) -> bytes:
    """Encode a set; `more` holds attributes as `a9=b"..."`."""
    attributes = {1: (0x40, b"\0"), 2: (0x40, sets.path_of([(2, list(path))] if path else [], 4))}
    if communities:
        attributes[8] = (0xC0, sets.put(*communities))
    if large:
        attributes[32] = (0xC0, b"".join(sets.put(*item) for item in large))
    attributes |= {int(name[1:]): (0x80, value) for name, value in more.items()}
    return sets.encode(bytes.fromhex(next_hop), attributes)


def batch_of(rows, sources=None, family="ipv4-unicast") -> Batch:
    """Build a batch from rows of (prefix hi, length, source, set octets or None)."""
    distinct = list(dict.fromkeys(octets for *_, octets in rows if octets is not None))
    columns = {
        "hi": np.array([hi for hi, *_ in rows], np.uint64),
        "lo": np.zeros(0 if family == "ipv4-unicast" else len(rows), np.uint64),
        "length": np.array([length for _, length, *_ in rows], np.uint8),
        "source": np.array([number for _, _, number, _ in rows], np.uint32),
        "set": np.array([NONE if item is None else distinct.index(item) for *_, item in rows], np.uint32),
        "reason": np.zeros(len(rows), np.uint8),
        "set_offset": np.cumsum([0, *map(len, distinct)], dtype=np.uint32),
        "set_octets": np.frombuffer(b"".join(distinct), np.uint8),
    }
    return decode(encode(Batch(RouteChanges, columns, {"family": family, "sources": sources or [source()]}), 1))[1]


def routes_of(batch: Batch) -> list:
    """Return the set of each row, or its refusal; the batch must pass the bus."""
    batch = decode(encode(batch, 1))[1]
    columns = batch.columns
    offset, octets = columns["set_offset"], columns["set_octets"]
    return [
        ImportRefusal(reason) if number == NONE else octets[offset[number] : offset[number + 1]].tobytes()
        for number, reason in zip(columns["set"].tolist(), columns["reason"].tolist(), strict=True)
    ]


PREFIX = 0xC6336400 << 32  # 198.51.100.0


def evaluated(config: str, octets: bytes, origin: dict | None = None, hi=PREFIX, length=24):
    batch = batch_of([(hi, length, 0, octets)], [origin or source()])
    return routes_of(ImportEvaluation(loads(config)).transform(batch))[0]


def test_an_accepted_batch_goes_on_as_it_is():
    """Where nothing is refused or changed, the very same batch goes on: no octet is copied."""
    batch = batch_of([(PREFIX, 24, 0, attribute_set()), (PREFIX, 25, 0, None)])
    assert ImportEvaluation(loads(ROUTER + TRANSIT + ACCEPT)).transform(batch) is batch


def test_session_changes_pass():
    """What is said of sessions is no policy's business."""
    batch = Batch(SessionChanges, {}, {"family": "ipv4-unicast", "sources": []})
    assert ImportEvaluation(loads(ROUTER)).transform(batch) is batch


@pytest.mark.parametrize(
    ("config", "octets", "origin", "wanted"),
    [
        (TRANSIT, attribute_set(), source(), ImportRefusal.NO_POLICY),
        (TRANSIT + 'import = { default = "reject" }\n', attribute_set(), source(), ImportRefusal.REJECTED),
        (TRANSIT + ACCEPT, attribute_set(), source(name="stranger"), ImportRefusal.UNKNOWN_NEIGHBOR),
        (TRANSIT + ACCEPT, attribute_set((64601, 65000)), source(), ImportRefusal.OWN_AS),
        (TRANSIT + ACCEPT, attribute_set((64601, 64999)), source(local_asn=64999), ImportRefusal.OWN_AS),
        (TRANSIT + ACCEPT, attribute_set((3356, 64601)), source(), ImportRefusal.FIRST_AS),
        (TRANSIT + ACCEPT, attribute_set(()), source(), ImportRefusal.FIRST_AS),
        (TRANSIT + ACCEPT, attribute_set(next_hop="0a4d0001"), source(), ImportRefusal.NEXT_HOP_OWN),
        (TRANSIT + ACCEPT, attribute_set(next_hop="7f000001"), source(), ImportRefusal.NEXT_HOP_UNUSABLE),
        (TRANSIT + ACCEPT, attribute_set(next_hop="00000000"), source(), ImportRefusal.NEXT_HOP_UNUSABLE),
        (TRANSIT + ACCEPT, attribute_set(next_hop="e0000001"), source(), ImportRefusal.NEXT_HOP_UNUSABLE),
        (TRANSIT + ACCEPT, attribute_set(next_hop=""), source(), ImportRefusal.NEXT_HOP_UNUSABLE),
        (
            INTERNAL,
            attribute_set(a9=bytes([10, 77, 0, 1])),
            source("core", 65000, False),
            ImportRefusal.ORIGINATOR_OWN,
        ),
        (
            INTERNAL,
            attribute_set(a10=bytes([1, 1, 1, 1, 10, 77, 0, 1])),
            source("core", 65000, False),
            ImportRefusal.CLUSTER_OWN,
        ),
    ],
)
def test_a_route_that_must_not_be_used_is_gone_with_its_reason(config, octets, origin, wanted):
    """Each check refuses what it is for, with its own reason."""
    assert evaluated(ROUTER + config, octets, origin) is wanted


def test_internal_neighbors_need_no_import_policy():
    """RFC 8212 is about external neighbors; the first AS of an internal one's paths is anybody's."""
    octets = attribute_set((3356,))
    assert evaluated(ROUTER + INTERNAL, octets, source("core", 65000, False)) == octets


def test_the_first_as_may_be_anybodys_where_so_configured():
    """A neighbor's own setting goes before the general one (route servers do not put themselves into the path)."""
    octets = attribute_set((3356,))
    assert evaluated(ROUTER + TRANSIT + "enforce_first_as = false\n" + ACCEPT, octets) == octets


def test_an_own_address_is_known_from_the_session_too():
    """Where the configuration leaves the local address to the kernel, the session's description has it."""
    octets = attribute_set(next_hop="0a4d0063")
    config = ROUTER + TRANSIT + ACCEPT
    assert evaluated(config, octets) == octets
    assert evaluated(config, octets, source(local_address=bytes([10, 77, 0, 99]))) is ImportRefusal.NEXT_HOP_OWN


def test_originated_routes_are_taken_as_they_are():
    """The router's own routes have no next hop and need no policy, whatever prefix they are for."""
    octets = attribute_set((), "")
    assert evaluated(ROUTER, octets, source("", 65000, False), hi=10 << 56, length=8) == octets


def test_the_import_block_is_applied_removal_first():
    """LOCAL_PREF is set, communities that match a pattern go, and then those to be added come."""
    block = (
        'import = { local_pref = 120, add_communities = ["65000:100", "no-export"], remove_communities = ["65000:*"],'
        ' add_large_communities = ["65000:1:1"], remove_large_communities = ["1:*:*"] }\n'
    )
    octets = attribute_set(communities=(65000 << 16 | 5, 64601 << 16 | 1), large=((1, 2, 3), (2, 2, 2)))
    _, attributes = sets.decode(evaluated(ROUTER + TRANSIT + block, octets))
    assert attributes[5] == (0x40, sets.put(120))
    assert sets.numbers(attributes[8][1]) == [64601 << 16 | 1, 65000 << 16 | 100, 0xFFFFFF01]
    assert sets.numbers(attributes[32][1]) == [2, 2, 2, 65000, 1, 1]


@pytest.mark.parametrize(
    ("hi", "length", "wanted"),
    [
        (127 << 56, 8, ImportRefusal.MARTIAN),
        (0xE0000100 << 32, 24, ImportRefusal.MARTIAN),
        (0, 0, None),
        (PREFIX, 25, ImportRefusal.TOO_SPECIFIC),
        (PREFIX, 24, None),
    ],
)
def test_prefixes_are_looked_at_one_by_one(hi, length, wanted):
    """Martians and prefixes longer than accepted are refused; a default route is neither."""
    config = ROUTER + "[policy]\nmaximum_length_ipv4 = 24\n" + TRANSIT + ACCEPT
    octets = attribute_set()
    assert evaluated(config, octets, hi=hi, length=length) == (wanted or octets)


def test_ipv6_martians_are_known_by_their_whole_address():
    """::ffff:0:0/96 lies in the lower half of the address."""
    config = loads(ROUTER + TRANSIT + ACCEPT)
    octets = attribute_set(next_hop="2001" + "00" * 13 + "09")
    batch = batch_of([(0, 128, 0, octets), (0x2001 << 48, 32, 0, octets)], family="ipv6-unicast")
    batch.columns["lo"][0] = 0xFFFF0A000001
    assert routes_of(ImportEvaluation(config).transform(batch)) == [ImportRefusal.MARTIAN, octets]


def test_one_set_of_two_neighbors_is_judged_for_each():
    """Two neighbors that share a set are two pairs: what one's policy says does not touch the other's route."""
    config = ROUTER + TRANSIT + ACCEPT + TRANSIT.replace('"transit"', '"other"').replace(".10", ".11")
    config = loads(config)
    octets = attribute_set()
    origins = [source(), source("other"), source("")]
    batch = batch_of([(PREFIX, 24, n, octets) for n in (0, 1, 2, 0)], origins)
    evaluation = ImportEvaluation(config)
    assert routes_of(evaluation.transform(batch)) == [octets, ImportRefusal.NO_POLICY, octets, octets]
    assert evaluation.n_sets == 3 and evaluation.n_routes == 4
    counts = {name: counts.nonzero()[0].tolist() for name, counts in evaluation.n_refused.items()}
    assert counts == {"other": [ImportRefusal.NO_POLICY]}


def test_refused_sets_do_not_travel_on():
    """The octets of a set that all its routes lost are not carried downstream."""
    batch = batch_of([(PREFIX, 24, 0, attribute_set((1,))), (PREFIX, 25, 0, attribute_set())])
    made = ImportEvaluation(loads(ROUTER + TRANSIT + ACCEPT)).transform(batch)
    assert len(made.columns["set_offset"]) == 2
    assert made.columns["set_octets"].tobytes() == attribute_set()


def test_the_version_tells_what_is_evaluated_with():
    """Another policy is another version; what policy does not look at is not."""
    base = ImportEvaluation(loads(ROUTER + TRANSIT + ACCEPT)).version
    assert ImportEvaluation(loads(ROUTER + TRANSIT + ACCEPT)).version == base
    assert ImportEvaluation(loads(ROUTER + TRANSIT + "hold_time_s = 30\n" + ACCEPT)).version == base
    assert ImportEvaluation(loads(ROUTER + TRANSIT)).version != base
    assert ImportEvaluation(loads(ROUTER + "[policy]\nmartians = []\n" + TRANSIT + ACCEPT)).version != base
