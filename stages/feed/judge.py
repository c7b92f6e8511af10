"""The judge: what every listener should hold, from what the senders announce, and the verdict on what it does hold.

Owns the prefix rows that all neighbors of a load share, and for each sender the core of what it announces (see
common/kernels/ledger.py) by row. Never sees a socket: it is told what is sent, and given ledgers.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

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


class Judge:
    """Knows what is announced, and judges ledgers by it."""

    def __init__(self):
        self.prefixes = {family: PrefixTable(family.is_wide, 1, 1024) for family in Family}
        self._announced: dict[str, dict[Family, Announced]] = {}

    def note(self, sender: str, table: Table) -> None:
        """Take in what a sender announces, a piece at a time; rows with set NONE are withdrawn."""
        rows = self.prefixes[table.family].intern(table.hi, table.lo, table.length)
        states, _ = digest_sets(table.set_offset, table.set_octets)
        cores = np.append((states >> np.uint64(32)).astype(np.uint32), np.uint32(0))
        of_row = np.where(table.set == NONE, len(cores) - 1, table.set)
        self._of(sender, table.family).set(rows, cores[of_row])

    def forget(self, sender: str) -> None:
        """Note that a sender's session has gone, and with it all it announced."""
        self._announced.pop(sender, None)

    def n_announced(self, sender: str) -> int:
        """Return how many prefixes a sender announces now."""
        return sum(int(np.count_nonzero(each.cores)) for each in self._announced.get(sender, {}).values())

    def _of(self, sender: str, family: Family) -> Announced:
        return self._announced.setdefault(sender, {}).setdefault(family, Announced())

    def n_expected(self, listener: str, senders: Iterable[str], families: Iterable[Family]) -> tuple[int, int]:
        """Return how many prefixes a listener must hold, and how many more it may."""
        n_must = n_may = 0
        for family in families:
            must, may = self._expected(listener, senders, family)
            n_must += int(must.sum())
            n_may += int(may.sum())
        return n_must, n_may

    def _expected(self, listener: str, senders: Iterable[str], family: Family) -> tuple[np.ndarray, np.ndarray]:
        """Return by row what a listener must hold, and what it may.

        What the listener announces itself it may be told or not, as another's or as its own: that depends on whose
        the router finds best, and whether it leaves out what the listener would discard as a loop (RFC 4271 §9.1.2).
        """
        n_rows = self.prefixes[family].row_limit
        others = np.zeros(n_rows, bool)
        for sender in senders:
            if sender != listener and family in self._announced.get(sender, {}):
                others |= self._announced[sender][family].upto(n_rows) != 0
        own = self._own(listener, family, n_rows) != 0
        return others & ~own, own

    def _own(self, sender: str, family: Family, n_rows: int) -> np.ndarray:
        """Return the cores of what a neighbor announces itself, by row."""
        if family in self._announced.get(sender, {}):
            return self._announced[sender][family].upto(n_rows)
        return np.zeros(n_rows, np.uint32)

    def judge(self, listener: str, ledgers: dict[Family, Ledger], senders: Iterable[str]) -> Verdict:
        """Compare what a listener holds with what these senders announce."""
        verdict = Verdict()
        senders = [sender for sender in senders if sender != listener]
        for family, ledger in ledgers.items():
            must, may = self._expected(listener, senders, family)
            held = np.zeros(len(must), np.uint32)
            cores = ledger.cores[: len(must)]
            held[: len(cores)] = cores
            is_held = held != 0
            is_returned = is_held & (held == self._own(listener, family, len(must)))
            wrong = is_held & (must | may) & ~is_returned
            for sender in senders:
                if family in self._announced.get(sender, {}) and wrong.any():
                    wrong &= self._announced[sender][family].upto(len(must)) != held
            verdict.returned += int(is_returned.sum())
            faults = {"missing": must & ~is_held, "extra": is_held & ~must & ~may, "wrong": wrong}
            for name, rows in faults.items():
                self._enter(verdict, name, family, np.flatnonzero(rows))
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
