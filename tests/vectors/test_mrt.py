"""What route collectors recorded, scanned: nothing is refused, and everything is as bgpdump reads it."""

import gzip
from collections import Counter
from ipaddress import ip_address

import pytest

from common.bgp.attributes import describe_set
from common.bgp.constants import MAX_EXTENDED_MESSAGE_OCTETS, NONE, Family
from common.kernels import scan
from tests.vectors import mrt

EXPECTED = ["updates.ris.20071015.1505.gz", "updates.ris-rrc21.20160811.1600.gz", "updates.long_withdrawal.gz"]
OTHERS = ["updates.et-2024.bz2", "updates.routeviews.20130101.0013.gz"]
pytestmark = pytest.mark.skipif(not mrt.FOLDER.exists(), reason="no recorded updates: HEADRACE_DATA is not set")


def options_for(message: mrt.Recorded) -> scan.Options:
    """A collector's session, read as an internal one, so that nothing is discarded."""
    return scan.Options(
        as4=message.has_as4, external=False, accept_as_sets=True, max_message=MAX_EXTENDED_MESSAGE_OCTETS
    )


def lines_of(scanner: scan.Scanner, message: mrt.Recorded):
    """Yield what was scanned in the form of `bgpdump -vm`."""
    for family in Family:
        found = scanner.routes(family.index)
        offset, octets = found.set_offset.tolist(), found.set_octets.tobytes()
        sets = [words(octets[first:last]) for first, last in zip(offset, offset[1:], strict=False)]
        lows = found.lo.tolist() if family.is_wide else [0] * len(found.hi)
        for hi, lo, length, index in zip(
            found.hi.tolist(), lows, found.length.tolist(), found.set.tolist(), strict=True
        ):
            address = ip_address((hi << 64 | lo).to_bytes(16, "big")[: 16 if family.is_wide else 4])
            head = f"BGP4MP|{message.time}|{'W' if index == NONE else 'A'}|{message.peer}|{message.peer_asn}"
            yield f"{head}|{address}/{length}" + ("" if index == NONE else sets[index])


def words(octets: bytes) -> str:
    """Return a set as bgpdump has it, behind the prefix."""
    said = describe_set(octets)
    communities = " ".join(said.get("communities", ()))
    aggregated = "AG" if said.get("atomic_aggregate") else "NAG"
    fields = [
        said["as_path"],
        said["origin"],
        said["next_hop"].split()[0],
        said.get("local_pref", 0),
        said.get("med", 0),
    ]
    return "".join(f"|{field}" for field in [*fields, communities, aggregated, said.get("aggregator", ""), ""])


@pytest.mark.parametrize("name", EXPECTED)
def test_reads_updates_as_bgpdump(name):
    """Every announcement and withdrawal, with every attribute that bgpdump shows."""
    scanner, found = scan.Scanner(), Counter()
    for message in mrt.read(name):
        scanner.scan(message.octets, 0, len(message.octets), options_for(message))
        found.update(lines_of(scanner, message))
    with gzip.open(mrt.FOLDER / "expect" / f"{name}.bgp.gz", "rt") as lines:
        expected = Counter(line.rstrip("\n") for line in lines if "|STATE|" not in line)
    assert (found - expected, expected - found) == (Counter(), Counter())


@pytest.mark.parametrize("name", EXPECTED + OTHERS)
def test_refuses_nothing_that_was_recorded(name):
    """No recorded UPDATE is in error (but for routes with AS 0 or what RFC 9774 withdraws)."""
    scanner = scan.Scanner()
    for message in mrt.read(name):
        stop = scanner.scan(message.octets, 0, len(message.octets), options_for(message))
        assert stop != scan.ERROR and scanner.consumed == len(message.octets)
        assert scanner.n_withdrawn == 0, (scanner.withdrawn_attribute, scanner.withdrawn_reason, message)
