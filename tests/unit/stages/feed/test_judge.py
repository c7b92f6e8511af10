"""The judge finds what is missing, too much or wrong in what a listener holds, and nothing else."""

import numpy as np
import pytest

from common.bgp.constants import NONE, Family
from common.kernels.ledger import Ledger, digest_sets
from common.kernels.mrt import PREPEND, rewrite_sets
from stages.feed.judge import Judge
from stages.feed.synthetic import Table, synthesize

FAMILY = Family.IPV4_UNICAST
HOP = b"\x0a\x4d\x00\x0a"


def table(variant: int = 0, size: int = 200) -> Table:
    return synthesize(FAMILY, size, seed=1, asn=64601 + variant, next_hop=HOP, variant=variant)


def told(judge: Judge, ledger: Ledger, sent: Table, rows=slice(None)) -> None:
    """Let a listener be told rows of a table as a router in AS 65000 passes them on."""
    some = sent.chosen(rows)
    offset, octets = rewrite_sets(some.set_offset, some.set_octets, b"\x0a\x4d\x00\x01", 65000, PREPEND)
    prefix_rows = judge.prefixes[FAMILY].intern(some.hi, some.lo, some.length)
    ledger.ensure(judge.prefixes[FAMILY].capacity)
    ledger.apply(prefix_rows, some.set, digest_sets(offset, octets, 1)[0])


@pytest.fixture
def judge() -> Judge:
    judge = Judge()
    judge.note("sender", table())
    return judge


def verdict(judge: Judge, ledger: Ledger, senders=("sender",)):
    return judge.judge("listener", {FAMILY: ledger}, senders)


def test_exactly_what_was_sent_is_good(judge):
    """A listener told all, with the router's AS prepended and its next hop, holds exactly what it must."""
    ledger = Ledger()
    told(judge, ledger, table())
    assert verdict(judge, ledger).is_good
    assert judge.n_expected("listener", ["sender"], [FAMILY]) == (200, 0)


def test_what_is_missing_is_counted_and_named(judge):
    """Prefixes that were not told are missing, with examples."""
    ledger = Ledger()
    told(judge, ledger, table(), slice(0, 190))
    found = verdict(judge, ledger)
    assert (found.missing, found.extra, found.wrong) == (10, 0, 0)
    assert len(found.examples["missing"]) == 5 and found.examples["missing"][0].count("/") == 1


def test_what_nobody_announced_is_too_much(judge):
    """Prefixes that no sender announces are too many, those that are withdrawn too."""
    ledger = Ledger()
    told(judge, ledger, table())
    told(judge, ledger, table(size=210), slice(200, 210))
    gone = table().chosen(slice(0, 3))
    gone.set = np.full(3, NONE, np.uint32)
    judge.note("sender", gone)
    assert verdict(judge, ledger).as_dict()["extra"] == 13


def test_other_attributes_are_wrong(judge):
    """Routes with paths that no sender gave are wrong; those of a second sender are not, once it counts."""
    ledger = Ledger()
    told(judge, ledger, table())
    told(judge, ledger, table(variant=1), slice(0, 50))
    assert (verdict(judge, ledger).wrong, verdict(judge, ledger).missing) == (50, 0)
    judge.note("other", table(variant=1))
    assert verdict(judge, ledger, ("sender", "other")).is_good
    judge.forget("other")
    assert verdict(judge, ledger, ("sender", "other")).wrong == 50


def test_what_the_listener_sends_itself_it_may_hold_or_not(judge):
    """Of a prefix that the listener announces too, it may be told the other's route: neither is a fault."""
    judge.note("listener", table(variant=1).chosen(slice(0, 100)))
    ledger = Ledger()
    told(judge, ledger, table(), slice(40, 200))
    assert judge.n_expected("listener", ["sender", "listener"], [FAMILY]) == (100, 100)
    assert verdict(judge, ledger, ("sender", "listener")).is_good


def test_what_is_told_to_whom_it_came_from_is_counted(judge):
    """A router that tells a neighbor its own routes does no harm, and that is said; other paths are wrong."""
    judge.note("listener", table(variant=1, size=210).chosen(slice(200, 210)))
    ledger = Ledger()
    told(judge, ledger, table())
    told(judge, ledger, table(variant=1, size=210), slice(200, 206))
    found = verdict(judge, ledger, ("sender", "listener"))
    assert found.is_good and found.returned == 6
    told(judge, ledger, table(variant=2, size=210), slice(206, 208))
    assert verdict(judge, ledger, ("sender", "listener")).wrong == 2


def test_an_empty_listener_misses_all(judge):
    """A listener that was told nothing misses every prefix."""
    assert verdict(judge, Ledger()).missing == 200
