"""A member's way from one Adj-RIB-Out to another, when its export policy has changed: it is told the differences only.

Owns the comparison of what the member holds with what the other table has, done in slices, since a table can be long.
Never tells anything: the differences are left as the new member's order. Until the other table is complete the member
goes on being told from its old one; while the slices are done it is told nothing.

    held in the old table, and as it is in the new one ──▶ nothing
    held, but otherwise or not at all in the new one   ──▶ announced again, withdrawn
    not held, but in the new one                       ──▶ announced
"""

import numpy as np

from stages.speaker.adj_rib_out import AdjRibOut, Member

ROWS_PER_SLICE = 16384


class Regroup:
    """One member on its way."""

    def __init__(self, old: AdjRibOut, member: Member, new: AdjRibOut):
        self.old = old
        self.member = member
        self.new = new
        self.joined: Member | None = None
        self._row = 1
        self._begun_at = 0
        self._is_due = np.zeros(0, bool)

    def step(self) -> bool:
        """Do a slice; return True when the member's place is in the new table, as `joined`."""
        if self.joined is None:
            if not self.new.is_complete:
                return False
            self._begin()
        first, self._row = self._row, min(self._row + ROWS_PER_SLICE, len(self.member.told) * 8)
        self._compare(np.arange(first, self._row, dtype=np.uint32))
        if self._row < len(self.member.told) * 8:
            return False
        self._end()
        return True

    def cancel(self) -> None:
        """Leave everything as it was."""
        self.member.is_paused = False
        if self.joined is not None:
            self.new.leave(self.joined.name)

    def _begin(self) -> None:
        self.member.is_paused = True
        self.joined = self.new.adopt(self.member)
        self._begun_at = self.joined.sequence

    def _compare(self, rows: np.ndarray) -> None:
        """Look at what the member holds among some rows, which are those of the same prefixes in both tables."""
        old, new, joined = self.old, self.new, self.joined
        held = rows[(self.member.told[rows >> 3] >> (rows & 7) & 1).astype(bool)]
        if not len(held):
            return
        # What was told since it last changed is held as it is.
        is_known = old.is_passed(self.member, held)
        local, set_offset, set_octets = old.attributes.extract(old.exports.sets[held])
        ids = new.attributes.intern_rows(set_offset, set_octets, local)
        new.make_room()
        joined.hold(held, new.prefixes.capacity)
        is_same = is_known & (new.exports.sets[held] == ids) & (new.exports.sources[held] != joined.own_source)
        self._mark_due(held[~is_same])

    def _mark_due(self, rows: np.ndarray) -> None:
        if self.new.prefixes.capacity > len(self._is_due):
            self._is_due = np.concatenate(
                [self._is_due, np.zeros(self.new.prefixes.capacity - len(self._is_due), bool)]
            )
        self._is_due[rows] = True

    def _end(self) -> None:
        """Leave the member what it has to be told: what differs, and what it does not hold yet."""
        new, joined = self.new, self.joined
        self._mark_due(np.empty(0, np.uint32))
        joined.make_room(new.prefixes.capacity)
        if joined.sequence != self._begun_at:
            # The journal went on without it: what changed since the comparison is not known any more.
            self._is_due[:] = np.unpackbits(joined.told, bitorder="little")[: len(self._is_due)]
        there = new.exports.ordered(new.attributes.capacity)
        is_held = (joined.told[there >> 3] >> (there & 7) & 1).astype(bool)
        is_own = new.exports.sources[there] == joined.own_source
        new.take_over(joined, there[self._is_due[there] | ~(is_held | is_own)], self._gone())
        self.old.leave(self.member.name)

    def _gone(self) -> np.ndarray:
        """Return the rows that the member holds and that have no route in the new table."""
        due = np.flatnonzero(self._is_due).astype(np.uint32)
        return due[self.new.exports.sets[due] == 0]
