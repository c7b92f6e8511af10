"""The judge: what every listener should hold, from what the senders announce, and the verdict on what it does hold.

Owns the prefix rows that all neighbors of a load share, and for each sender the core of what it announces (see
common/kernels/ledger.py) by row. What some senders announce together is put together once, for all who listen to
them, so a thousand neighbors that hear each other cost little more than each one's own table. Never sees a socket: it
is told what is sent, and given ledgers.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from common.arrays import distinct
from common.bgp.constants import NONE, Family
from common.kernels.ledger import Ledger, digest_sets
from common.kernels.prefixes import PrefixTable
from stages.feed.synthetic import Table

EXAMPLES = 5


@dataclass(slots=True)
class Verdict:
    """What is wrong with what a listener holds; `examples` names a few prefixes of each fault."""

    missing: int = 0
    extra: int = 0
    wrong: int = 0  # held with attributes that no sender's announcement leads to
    returned: int = 0  # the listener's own, told it again: needless, but no fault
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.extra or self.wrong)

    def as_dict(self) -> dict:
        """Return it for the report."""
        faults = {"missing": self.missing, "extra": self.extra, "wrong": self.wrong, "returned": self.returned}
        return faults | ({"examples": self.examples} if self.examples else {})


class Announced:
    """What one sender announces now, of one family: cores by prefix row, 0 where nothing."""

    def __init__(self, capacity: int = 1024):
        self.cores = np.zeros(capacity, np.uint32)

    def set(self, rows: np.ndarray, cores: np.ndarray) -> None:
        """Note what stands at these rows from now on; core 0: withdrawn."""
        highest = int(rows.max(initial=0))
        if highest >= len(self.cores):
            grown = np.zeros(max(highest + 1, len(self.cores) * 3 // 2), np.uint32)
            grown[: len(self.cores)] = self.cores
            self.cores = grown
        self.cores[rows] = cores

    def upto(self, n_rows: int) -> np.ndarray:
        """Return the cores of rows below `n_rows`."""
        if len(self.cores) >= n_rows:
            return self.cores[:n_rows]
        return np.concatenate([self.cores, np.zeros(n_rows - len(self.cores), np.uint32)])


class Together:
    """What some senders announce together, of one family.

    count: by row, how many of them announce it; keys: row << 32 | core of each of their routes, in order.
    """

    def __init__(self, announced: list[Announced], n_rows: int):
        rows = [np.flatnonzero(each.cores[:n_rows]) for each in announced]
        keys = [_keys(chosen, each.cores[chosen]) for chosen, each in zip(rows, announced, strict=True)]
        nothing = np.empty(0, np.uint64)
        self.count = np.bincount(np.concatenate([*rows, nothing]).astype(np.intp), minlength=n_rows)
        self.keys = distinct(np.concatenate([*keys, nothing]))

    def has(self, rows: np.ndarray, cores: np.ndarray) -> np.ndarray:
        """Tell for each of these routes whether one of the senders announces it so."""
        keys = _keys(rows, cores)
        at = np.searchsorted(self.keys, keys)
        found = np.zeros(len(keys), bool)
        within = at < len(self.keys)
        found[within] = self.keys[at[within]] == keys[within]
        return found


def _keys(rows: np.ndarray, cores: np.ndarray) -> np.ndarray:
    return rows.astype(np.uint64) << np.uint64(32) | cores


class Judge:
    """Knows what is announced, and judges ledgers by it."""

    def __init__(self):
        self.prefixes = {family: PrefixTable(family.is_wide, 1, 1024) for family in Family}
        self._announced: dict[str, dict[Family, Announced]] = {}
        self._together: dict[tuple, Together] = {}  # until what is announced changes

    def note(self, sender: str, table: Table) -> None:
        """Take in what a sender announces, a piece at a time; rows with set NONE are withdrawn."""
        rows = self.prefixes[table.family].intern(table.hi, table.lo, table.length)
        states, _ = digest_sets(table.set_offset, table.set_octets)
        cores = np.append((states >> np.uint64(32)).astype(np.uint32), np.uint32(0))
        of_row = np.where(table.set == NONE, len(cores) - 1, table.set)
        announced = self._announced.setdefault(sender, {}).setdefault(table.family, Announced())
        announced.set(rows, cores[of_row])
        self._together.clear()

    def forget(self, sender: str) -> None:
        """Note that a sender's session has gone, and with it all it announced."""
        self._announced.pop(sender, None)
        self._together.clear()

    def n_announced(self, sender: str) -> int:
        """Return how many prefixes a sender announces now."""
        return sum(int(np.count_nonzero(each.cores)) for each in self._announced.get(sender, {}).values())

    def n_expected(self, listener: str, senders: Iterable[str], families: Iterable[Family]) -> tuple[int, int]:
        """Return how many prefixes a listener must hold, and how many more it may."""
        n_must = n_may = 0
        senders = tuple(senders)
        for family in families:
            must, own = self._expected(listener, senders, family)
            n_must += int(must.sum())
            n_may += int(np.count_nonzero(own))
        return n_must, n_may

    def _together_of(self, senders: tuple[str, ...], family: Family) -> Together:
        key = family, senders
        n_rows = self.prefixes[family].row_limit
        if key not in self._together or len(self._together[key].count) != n_rows:
            announced = [self._announced[each] for each in senders if each in self._announced]
            self._together[key] = Together([each[family] for each in announced if family in each], n_rows)
        return self._together[key]

    def _expected(self, listener: str, senders: tuple[str, ...], family: Family) -> tuple[np.ndarray, np.ndarray]:
        """Return by row what a listener must hold, and the cores of what it announces itself.

        What it announces itself it may be told or not, as another's or as its own: that depends on whose the router
        finds best, and whether it leaves out what the listener would discard as a loop (RFC 4271 §9.1.2).
        """
        together = self._together_of(senders, family)
        own = np.zeros(len(together.count), np.uint32)
        if family in self._announced.get(listener, {}):
            own = self._announced[listener][family].upto(len(own))
        return (together.count > 0) & (own == 0), own

    def judge(self, listener: str, ledgers: dict[Family, Ledger], senders: Iterable[str]) -> Verdict:
        """Compare what a listener holds with what these senders announce."""
        verdict = Verdict()
        senders = tuple(senders)
        for family, ledger in ledgers.items():
            must, own = self._expected(listener, senders, family)
            held = np.zeros(len(must), np.uint32)
            cores = ledger.cores[: len(must)]
            held[: len(cores)] = cores
            is_held, is_own = held != 0, own != 0
            is_returned = is_own & (held == own)
            verdict.returned += int(is_returned.sum())
            judged = np.flatnonzero(is_held & (must | is_own) & ~is_returned)
            wrong = judged[~self._together_of(senders, family).has(judged, held[judged])]
            self._enter(verdict, "missing", family, np.flatnonzero(must & ~is_held))
            self._enter(verdict, "extra", family, np.flatnonzero(is_held & ~must & ~is_own))
            self._enter(verdict, "wrong", family, wrong)
        return verdict

    def _enter(self, verdict: Verdict, name: str, family: Family, rows: np.ndarray) -> None:
        if not len(rows):
            return
        setattr(verdict, name, getattr(verdict, name) + len(rows))
        table, some = self.prefixes[family], rows[:EXAMPLES].astype(np.uint32)
        columns = (table.hi(some).tolist(), table.lo(some).tolist(), table.length(some).tolist())
        names = [_format(family, *prefix) for prefix in zip(*columns, strict=True)]
        verdict.examples.setdefault(name, []).extend(names[: EXAMPLES - len(verdict.examples.get(name, []))])


def _format(family: Family, hi: int, lo: int, length: int) -> str:
    address = ipaddress.IPv6Address(hi << 64 | lo) if family.is_wide else ipaddress.IPv4Address(hi >> 32)
    return f"{address}/{length}"
