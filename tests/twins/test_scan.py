"""The scan: compiled, uncompiled and the oracle agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from common.kernels import scan as compiled
from common.kernels import uncompiled
from tests.oracles import scan as oracle
from tests.oracles import updates

MODULES = {"compiled": compiled, "uncompiled": uncompiled("scan")}
SCANNERS = {name: module.Scanner() for name, module in MODULES.items()}

sessions = st.builds(
    oracle.Settings,
    as4=st.booleans(),
    external=st.booleans(),
    families=st.sampled_from([3, 3, 3, 1, 2]),
    add_path=st.sampled_from([0, 0, 0, 1, 2, 3]),
    accept_as_sets=st.booleans(),
    accept_confederation=st.booleans(),
    extended_next_hop=st.booleans(),
)


def rows_of(scanner, family: int) -> list:
    """Return a family's routes as the oracle has them, each with the octets of its set."""
    columns = scanner.routes(family)
    octets, offset = columns.set_octets.tobytes(), columns.set_offset.tolist()
    sets = [octets[first:last] for first, last in zip(offset, offset[1:], strict=False)]
    lows = columns.lo.tolist() if family == 1 else [0] * len(columns.hi)
    return [
        (hi << 64 | lo, length, path_id, None if index == 0xFFFFFFFF else sets[index])
        for hi, lo, length, path_id, index in zip(
            columns.hi.tolist(),
            lows,
            columns.length.tolist(),
            columns.path_id.tolist(),
            columns.set.tolist(),
            strict=True,
        )
    ]


def found_by(name: str, octets: bytes, session: oracle.Settings) -> dict:
    """Scan with one of the twins; return all it found."""
    scanner = SCANNERS[name]
    stop = scanner.scan(octets, 0, len(octets), MODULES[name].Options(**vars(session)))
    error = scanner.error_code, scanner.error_subcode
    data = octets[scanner.error_offset : scanner.error_offset + scanner.error_length]
    return {
        "stop": stop,
        "consumed": scanner.consumed,
        "n_updates": scanner.n_updates,
        "n_keepalives": scanner.n_keepalives,
        "end_of_rib": scanner.end_of_rib,
        "routes": (rows_of(scanner, 0), rows_of(scanner, 1)),
        "message": (scanner.message_type, scanner.message_offset, scanner.message_length) if stop else None,
        "error": (*error, data) if stop == compiled.ERROR else None,
        "withdrawn": (scanner.n_withdrawn, scanner.withdrawn_offset if scanner.n_withdrawn else 0),
        "first_withdrawn": (scanner.withdrawn_attribute, scanner.withdrawn_reason) if scanner.n_withdrawn else None,
        "n_as_sets": scanner.n_as_sets,
    }


def expected_of(octets: bytes, session: oracle.Settings) -> dict:
    """Return what the oracle finds, in the same form."""
    found = oracle.scan(octets, session)
    return {
        "stop": found.stop,
        "consumed": found.consumed,
        "n_updates": found.n_updates,
        "n_keepalives": found.n_keepalives,
        "end_of_rib": found.end_of_rib,
        "routes": found.routes,
        "message": found.message,
        "error": found.error,
        "withdrawn": (len(found.withdrawn), found.withdrawn[0][0] if found.withdrawn else 0),
        "first_withdrawn": found.withdrawn[0][1:] if found.withdrawn else None,
        "n_as_sets": found.n_as_sets,
    }


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_finds_what_the_oracle_finds(data):
    """Whatever comes, well-formed or hostile, a scan finds what the RFCs, written down slowly, say."""
    session = data.draw(sessions)
    octets = data.draw(updates.streams(session))
    expected = expected_of(octets, session)
    for twin in MODULES:
        assert found_by(twin, octets, session) == expected


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_discards_what_the_oracle_discards(data):
    """Discarded attributes of delivered UPDATEs are counted, and the first of them is told."""
    session = data.draw(sessions)
    octets = data.draw(updates.updates(session))
    found = oracle.scan(octets, session)
    for twin, module in MODULES.items():
        scanner = SCANNERS[twin]
        if scanner.scan(octets, 0, len(octets), module.Options(**vars(session))) == compiled.NEED_MORE:
            assert scanner.n_discarded == len(found.discarded)
            first = scanner.discarded_offset, scanner.discarded_attribute, scanner.discarded_reason
            assert not found.discarded or first == found.discarded[0]


@settings(max_examples=100, deadline=None)
@given(octets=updates.two_octet_updates(), accept_confederation=st.booleans(), accept_as_sets=st.booleans())
def test_merges_as4_attributes_as_the_oracle(octets, accept_confederation, accept_as_sets):
    """AS4_PATH and AS4_AGGREGATOR of a two-octet peer end up in AS_PATH and AGGREGATOR (RFC 6793)."""
    session = oracle.Settings(as4=False, accept_confederation=accept_confederation, accept_as_sets=accept_as_sets)
    expected = expected_of(octets, session)
    for twin in MODULES:
        assert found_by(twin, octets, session) == expected


@settings(max_examples=100, deadline=None)
@given(octets=st.binary(max_size=120), start=st.integers(0, 5))
def test_survives_arbitrary_octets_behind_a_header(octets, start):
    """Octets that only look like an UPDATE never crash a scan or make it read past the end (the twin would raise)."""
    stream = updates.message(2, octets) + updates.message(4)
    session = oracle.Settings()
    for twin, module in MODULES.items():
        scanner = SCANNERS[twin]
        scanner.scan(bytes(start) + stream, start, start + len(stream), module.Options(**vars(session)))
        assert scanner.consumed - start == oracle.scan(stream, session).consumed
