"""Which prefixes the kernel has a route for, as the fib tells: for neighbors that are told of a route no sooner.

Owns that set of prefixes, of one family. Never knows by which way: a route that is led elsewhere is in the kernel all
the while. What the fib does not install by its nature, a prefix originated here, does not wait for it.
"""

from collections.abc import Callable

import numpy as np

from common.bus.batch import Batch
from common.config.sharing import WHOLE, Share
from common.kernels.prefixes import PrefixTable
from common.kernels.shares import is_in_share

Prefixes = tuple[np.ndarray, np.ndarray, np.ndarray]


class Installed:
    """Prefixes of one family in the kernel."""

    def __init__(self, is_wide: bool, seed: int, on_change: Callable[[Prefixes], None], share: Share = WHOLE):
        self.is_complete = False  # the fib has told all of its table, once at least
        self._is_wide = is_wide
        self._seed = seed
        self._on_change = on_change
        self._share = share
        self._table = self._empty()
        self._incoming: PrefixTable | None = None

    def __len__(self) -> int:
        return self._table.n_prefixes

    def handle(self, batch: Batch) -> None:
        """Take in what the fib tells; a snapshot replaces all at its end."""
        columns = self._of_share(batch.columns)
        prefixes = columns["hi"], columns["lo"], columns["length"]
        if batch.begins_snapshot:
            self._incoming = self._empty()
        if self._incoming is None:
            _write(self._table, prefixes, columns["installed"])
            self._on_change(prefixes)
            return
        _write(self._incoming, prefixes, columns["installed"])
        if batch.ends_snapshot:
            before, self._table, self._incoming = self._table, self._incoming, None
            self.is_complete = True
            for table in (before, self._table):
                self._on_change(_all(table, self._is_wide))

    def has(self, prefixes: Prefixes) -> np.ndarray:
        """Tell for each prefix whether the kernel has a route for it."""
        return self._table.find(*prefixes) != 0

    def _of_share(self, columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the rows of this rib's prefixes."""
        if self._share.count == 1:
            return columns
        is_mine = is_in_share(*self._share, columns["hi"], self._is_wide)
        return {name: column[is_mine] if len(column) else column for name, column in columns.items()}

    def _empty(self) -> PrefixTable:
        return PrefixTable(self._is_wide, self._seed, 1024)


def _write(table: PrefixTable, prefixes: Prefixes, is_there: np.ndarray) -> None:
    """Apply changes in their order: of several about one prefix the last counts."""
    hi, lo, length = prefixes
    # From the last to the first, each prefix once.
    order = np.arange(len(hi))[::-1]
    keys = np.stack([hi[order], lo[order] if len(lo) else np.zeros(len(hi), np.uint64), length[order]], axis=1)
    _, first = np.unique(keys, axis=0, return_index=True)
    chosen = np.sort(order[first])
    rows = table.intern(hi[chosen], lo[chosen] if len(lo) else lo, length[chosen], is_there[chosen].astype(np.uint32))
    gone = rows[(is_there[chosen] == 0) & (rows != 0)]
    if len(gone):
        table.release(gone)


def _all(table: PrefixTable, is_wide: bool) -> Prefixes:
    """Return all prefixes of a table; rows that hold none have a length beyond 128."""
    rows = np.arange(1, table.row_limit, dtype=np.uint32)
    rows = rows[table.length(rows) <= 128]
    return table.hi(rows), table.lo(rows) if is_wide else np.empty(0, np.uint64), table.length(rows)
