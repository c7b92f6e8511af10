"""The Adj-RIB-Out of one peer group and family: what its members are to be told, and what each has been told.

Owns the group's routes with their journal, kept once however many members there are, and a record for each member:
its position, and one bit a prefix for what it has been told; shares the prefixes. Never touches a socket: `tell` writes
UPDATEs into a buffer. Never changes an attribute: sets arrive as the members' sessions encode them.

RFC 4271 §3.2 and §9.2, RFC 4724 §2 (End-of-RIB).
"""

from dataclasses import dataclass, field

import numpy as np

from common.arrays import allocate, grown, n_within
from common.bgp.constants import Family
from common.bus.batch import Batch
from common.config.sharing import WHOLE, Share
from common.kernels import pack
from common.kernels.attributes import AttributeTable
from common.kernels.exports import ExportTable
from common.kernels.journal import Journal
from common.kernels.shares import is_in_share
from stages.speaker.prefixes import SharedPrefixes, is_used

# Rows a member is told in one go at most, octets that they are to fill about, and octets packed at a time.
ROWS_PER_TURN = 8192
TURN_OCTETS = 1 << 18
# Sets are typically shared by this many prefixes; sizes the attribute table beforehand.
PREFIXES_PER_SET = 5
CHUNK_OCTETS = 1 << 18
# Fewer rows than this are never worth a turn; and what a row is taken to fill before any was told.
MIN_ROWS_PER_TURN = 32
FIRST_OCTETS_PER_ROW = 512.0
# However the rows before them were, rows told in one go refer to no more octets of attribute sets than this.
MAX_SET_OCTETS = 4 << 20
COLLECT_ENTRIES = 65536
# Changes that are put in the order of their sets in one go.
MAX_GROUPED_ROWS = 1 << 18
# Rows forgotten after which it is worth looking for sets that nobody refers to.
SWEEP_ROWS = 4096
NEVER = 1 << 63

# Rows looked at, and for each the octet of the member's bits it was in before.
Before = tuple[np.ndarray, np.ndarray]


@dataclass(slots=True)
class Member:
    """One session's place in its group's Adj-RIB-Out."""

    name: str
    own_source: int
    number: int
    max_message_octets: int
    sequence: int
    told: np.ndarray
    # The rows of the table as it was when the session came up, equal sets side by side; None once all were told.
    order: np.ndarray | None = None
    cursor: int = 0
    # Where in the journal `order` begins, if it holds changes only, put side by side; None: it is the whole table.
    changed_since: int | None = None
    # The peer has asked for the table again; it is told when the present telling, if there is one, has ended.
    is_table_wanted: bool = False
    # The End-of-RIB is sent when the session has been told everything before this sequence; None: nothing is owed.
    end_of_rib_after: int | None = 0
    # What changed before this sequence is told whatever it holds: it has asked, or what it holds is not known.
    forced_until: int = 0
    # The journal went on without it: what it was told and is gone must not be forgotten before it is told so.
    is_recovering: bool = False
    # On its way to another group (regroup.py): told nothing meanwhile.
    is_paused: bool = False
    # What rows have filled lately: a member that reads slowly is not to have much waiting for its connection.
    octets_per_row: float = FIRST_OCTETS_PER_ROW
    n_updates: int = 0
    n_too_long: int = 0

    @property
    def passed(self) -> int:
        """The sequence below which the peer was told every change."""
        return self.sequence if self.changed_since is None else self.changed_since

    @property
    def n_told(self) -> int:
        """How many prefixes the peer holds from us."""
        return int(np.bitwise_count(self.told).sum())

    def hold(self, rows: np.ndarray, capacity: int) -> None:
        """Note that the peer holds these prefixes already; have room for prefix rows below `capacity`."""
        self.make_room(capacity)
        np.bitwise_or.at(self.told, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))

    def make_room(self, capacity: int) -> None:
        """Have a bit for each prefix row below `capacity`."""
        n_missing = (capacity + 7) // 8 - len(self.told)
        if n_missing > 0:
            self.told = grown(self.told, len(self.told) + n_missing)


@dataclass(slots=True)
class AdjRibOut:
    """One group's routes of one family."""

    family: Family
    seed: int
    prefixes: SharedPrefixes
    expected_prefixes: int = 0
    # Entries of the journal: 2 to this power.
    journal_power: int = 22
    # The exporters' first snapshots are complete, of each share of the prefixes.
    is_complete: bool = False
    # More of what has just come is about to come (gathering.py): what changed is not told for a moment.
    is_gathering: bool = False
    members: dict[str, Member] = field(default_factory=dict)
    attributes: AttributeTable = field(init=False)
    exports: ExportTable = field(init=False)
    journal: Journal = field(init=False)
    # Shares whose first snapshot has not ended.
    _missing: set[int] = field(init=False, default_factory=lambda: {0})
    _n_forgotten: int = field(init=False, default=0)
    _source_numbers: dict[str, int] = field(init=False, default_factory=dict)
    _scratch: np.ndarray = field(init=False)

    def __post_init__(self):
        expected = max(self.expected_prefixes, 1024)
        self.attributes = AttributeTable(self.seed, max(expected // PREFIXES_PER_SET, 1024))
        self.exports = ExportTable(expected)
        self.journal = Journal(self.journal_power)
        self.journal.ensure_rows(expected)
        self._scratch = allocate(CHUNK_OCTETS, np.uint8)
        self.prefixes.join(self)

    def close(self) -> None:
        """Let go of the prefixes; the table is not used any more."""
        self.prefixes.leave(self)

    def needs(self, rows: np.ndarray) -> np.ndarray:
        """Tell of each prefix row whether there is a route, or one whose end not every member has been told."""
        return is_used(self.exports.sets, rows) | is_used(self.journal.last, rows)

    def make_room(self) -> None:
        """Have columns as long as the table of prefixes."""
        self.exports.ensure(self.prefixes.capacity)
        self.journal.ensure_rows(self.prefixes.capacity)

    # ---- from the exporter --------------------------------------------------------------------------------------

    def expect(self, n_shares: int) -> None:
        """Take the prefixes in so many shares from now on."""
        self._missing = set(range(n_shares))

    def handle(self, batch: Batch, share: Share = WHOLE) -> None:
        """Write one ExportChanges batch, of one share of the prefixes, into the table and its journal."""
        if batch.begins_snapshot and self.exports.n_routes:
            self.exports.mark_unconfirmed(self._rows_of(share))
        self._apply(batch.columns, batch.meta)
        if batch.ends_snapshot:
            self.make_room()
            if self.exports.n_unconfirmed:
                self.journal.append(self.exports.sweep_unconfirmed(self.attributes.references, self._rows_of(share)))
            self._missing.discard(share.index)
            if not self.is_complete and not self._missing:
                self.is_complete = True
                for member in self.members.values():
                    self._begin_table(member)
        self._recover_members()
        if self.attributes.needs_sweep:
            self.attributes.sweep()

    def _rows_of(self, share: Share) -> np.ndarray | None:
        """Tell of each prefix row whether it belongs to a share (uint8); None: all do."""
        if share.count == 1:
            return None
        return is_in_share(*share, self.prefixes.hi(slice(None)), self.family.is_wide).view(np.uint8)

    def _recover_members(self) -> None:
        """Have members that the journal has left behind told the table again, and withdraw what they hold and is gone.

        This happens to a peer that does not read for millions of changes.
        """
        for member in self.members.values():
            if self.is_complete and not self.journal.is_held(member.sequence):
                told = np.flatnonzero(np.unpackbits(member.told, bitorder="little")).astype(np.uint32)
                gone = np.union1d(told[self.exports.sets[told] == 0], self.exports.changed_and_gone())
                member.sequence = self.journal.head
                self._set_order(member, np.concatenate((gone, self.exports.ordered(self.attributes.capacity))))
                member.is_recovering = True

    def _apply(self, columns: dict[str, np.ndarray], meta: dict) -> None:
        set_index = columns["set"]
        if not len(set_index):
            return
        ids = self.attributes.intern_rows(columns["set_offset"], columns["set_octets"], set_index)
        rows = self.prefixes.intern(columns["hi"], columns["lo"], columns["length"], ids)
        # NONE, the last index, stands for "nobody": number 0.
        numbers = np.array([*(self.source_number(source["name"]) for source in meta["sources"]), 0], np.uint32)
        sources = numbers.take(columns["source"], mode="clip")
        self.make_room()
        self.journal.append(self.exports.apply(rows, ids, sources, self.attributes.references))

    def _passed(self) -> int:
        """Return the sequence below which every member has passed every change."""
        return min((member.passed for member in self.members.values()), default=self.journal.head)

    def source_number(self, name: str) -> int:
        """Return the number that stands for a neighbor as a source; local routes (no name) have 0."""
        return self._source_numbers.setdefault(name, len(self._source_numbers) + 1) if name else 0

    # ---- members ------------------------------------------------------------------------------------------------

    def join(self, name: str, max_message_octets: int) -> Member:
        """Let a session that has come up take part: it will be told the whole table, then every change."""
        self.leave(name)
        member = self.members[name] = self._member(name, max_message_octets)
        if self.is_complete:
            self._begin_table(member)
        return member

    def leave(self, name: str) -> None:
        """Forget a session that has ended."""
        member = self.members.pop(name, None)
        if member is not None:
            self.exports.leave(member.number, self.attributes.references)

    def _member(self, name: str, max_message_octets: int, **more) -> Member:
        told = allocate(0, np.uint8)
        own_source, number = self.source_number(name), self.exports.join()
        return Member(name, own_source, number, max_message_octets, self.journal.head, told, **more)

    def adopt(self, other: Member) -> Member:
        """Let a member of another group take part, for whom `take_over` will say what it has to be told."""
        member = self._member(
            other.name,
            other.max_message_octets,
            end_of_rib_after=None if other.end_of_rib_after is None else self.journal.head,
            forced_until=NEVER,
            is_recovering=True,
            is_paused=True,
            n_updates=other.n_updates,
            n_too_long=other.n_too_long,
        )
        self.members[other.name] = member
        return member

    def take_over(self, member: Member, due: np.ndarray, gone: np.ndarray) -> None:
        """Tell an adopted member the rows that are `due`, in this order, and that those `gone` are so."""
        self.journal.append(gone)
        self._set_order(member, due)
        member.is_paused = False

    def is_passed(self, member: Member, rows: np.ndarray) -> np.ndarray:
        """Tell of each row the member was told whether it was told it as it is now."""
        if member.forced_until > member.sequence:
            return np.zeros(len(rows), bool)
        return self.exports.holds_as_now(rows, member.number)

    def tell_again(self, member: Member) -> None:
        """Tell a member the whole table once more (RFC 2918).

        However often a peer asks while the table is told, it is told once more: ordering it costs too much to be done
        for each of many requests in one read.
        """
        is_about_to_be_told = member.order is not None and member.cursor == 0 and member.changed_since is None
        member.is_table_wanted = self.is_complete and not is_about_to_be_told

    def _begin_again(self, member: Member) -> None:
        member.is_table_wanted = False
        self._set_order(member, self.exports.ordered(self.attributes.capacity))
        member.forced_until = NEVER
        member.end_of_rib_after = self.journal.head

    def is_in_step(self, member: Member) -> bool:
        """Tell whether a member has been told everything."""
        if not self.is_complete or member.is_paused:
            return True
        is_told = member.order is None and not member.is_table_wanted
        return is_told and member.sequence == self.journal.head and member.end_of_rib_after is None

    def has_to_tell(self, member: Member) -> bool:
        """Tell whether there is something for a member that is not waiting for more."""
        is_waiting = self.is_gathering and member.order is None and not member.is_table_wanted
        return not is_waiting and not self.is_in_step(member)

    def collect(self) -> None:
        """Forget prefixes that are gone and every member has been told so."""
        if any(member.is_recovering for member in self.members.values()):
            return
        rows = self.journal.removable(self._passed(), self.exports.sets, COLLECT_ENTRIES)
        if len(rows):
            self.prefixes.release(rows)
            self._n_forgotten += len(rows)
        if self._n_forgotten > SWEEP_ROWS and not self.has_garbage:
            self._n_forgotten = 0
            self.attributes.sweep()

    def _age(self, rows: np.ndarray) -> np.ndarray:
        """Return how far back the latest change of each row lies in the journal (uint32)."""
        return np.uint32(self.journal.head & 0xFFFFFFFF) - self.journal.last[rows]

    @property
    def n_used(self) -> int:
        """Rows in use."""
        return self.exports.n_routes

    @property
    def n_ever(self) -> int:
        """Rows that have ever been in use, about."""
        return self.prefixes.row_limit

    def tidy(self) -> list[np.ndarray]:
        """Put free rows in order and return the columns, without those of the prefixes."""
        columns = [*self.attributes.tidy(), *self.exports.columns, self.journal.last]
        return columns + [member.told for member in self.members.values()]

    @property
    def has_garbage(self) -> bool:
        """Whether `collect` has not looked at everything yet."""
        return not self.journal.is_swept(self.journal.head)

    def _begin_table(self, member: Member) -> None:
        member.sequence = self.journal.head
        self._set_order(member, self.exports.ordered(self.attributes.capacity))
        member.end_of_rib_after = self.journal.head

    def _set_order(self, member: Member, rows: np.ndarray, changed_since: int | None = None) -> None:
        member.order, member.cursor, member.changed_since = rows, 0, changed_since

    def group_changes(self) -> None:
        """Have members told what has changed in the order of its attribute sets, not in that of its coming."""
        found: dict[int, tuple[np.ndarray, int]] = {}  # by where it begins: most members have come as far
        for member in self.members.values():
            before = member.sequence
            if member.order is not None or member.is_paused or member.forced_until > before or not self.is_complete:
                continue
            if before not in found:
                rows, after = self.journal.read(before, MAX_GROUPED_ROWS)
                found[before] = self.exports.grouped(rows, self.attributes.capacity), after
            order, member.sequence = found[before]
            self._set_order(member, order, changed_since=before)

    # ---- to the peers -------------------------------------------------------------------------------------------

    def tell(self, member: Member) -> list[bytes]:
        """Return UPDATEs with the next of what a member has not been told, empty when it is in step."""
        if not self.is_complete or member.is_paused:
            return []
        if member.is_table_wanted and member.order is None:
            self._begin_again(member)
        is_forced = member.forced_until > member.sequence
        rows = self._next_rows(member)
        member.make_room(self.prefixes.capacity)
        told_before = member.told.take(rows >> 3)
        announce, withdraw = self.exports.select(
            rows, member.told, member.own_source, member.number, self.attributes.references, is_forced
        )
        chunks = self._pack_withdrawals(member, withdraw) if len(withdraw) else []
        if len(announce):
            chunks += self._pack_announcements(member, announce, (rows, told_before))
        if len(rows):
            member.octets_per_row = (member.octets_per_row + sum(map(len, chunks)) / len(rows) + 1) / 2
        if self._owes_end_of_rib(member):
            member.end_of_rib_after = None
            member.n_updates += 1
            chunks.append(pack.end_of_rib(self.family))
        return chunks

    def _next_rows(self, member: Member) -> np.ndarray:
        n_rows = max(MIN_ROWS_PER_TURN, min(ROWS_PER_TURN, int(TURN_OCTETS / member.octets_per_row)))
        if member.order is None:
            before = member.sequence
            rows, member.sequence = self.journal.read(before, n_rows)
            if before < member.forced_until < member.sequence:
                member.sequence = member.forced_until
                rows = rows[self._age(rows) > self.journal.head - member.sequence]
            n_fitting = self._n_fitting(rows)
            if n_fitting < len(rows):
                # An entry that counts is the last of its row.
                member.sequence = before + (int(self.journal.last[rows[n_fitting]]) - before & 0xFFFFFFFF)
            return rows[:n_fitting]
        end = self._end_of_set(member.order, member.cursor + n_rows, n_rows // 2)
        end = member.cursor + self._n_fitting(member.order[member.cursor : end])
        rows = member.order[member.cursor : end]
        # What has changed since the session came up comes with the changes.
        rows = rows[self._age(rows) > self.journal.head - member.sequence]
        member.cursor = end
        if end == len(member.order):
            member.order = member.changed_since = None
            member.is_recovering = False
            if member.forced_until == NEVER:
                member.forced_until = self.journal.head
        return rows

    def _n_fitting(self, rows: np.ndarray) -> int:
        """Return how many rows, from the first on, are told in one go, if each is in an UPDATE of its own."""
        if len(rows) <= MIN_ROWS_PER_TURN:
            return len(rows)
        return n_within(self.attributes.sizes.take(self.exports.sets.take(rows)), MAX_SET_OCTETS)

    def _end_of_set(self, order: np.ndarray, end: int, n_near: int) -> int:
        """Return where the set at `end` begins, if that is near: no set is cut in two without need."""
        if end >= len(order):
            return len(order)
        near = self.exports.sets[order[end - n_near : end + 1]]
        borders = np.flatnonzero(near[1:] != near[:-1])
        return end - n_near + int(borders[-1]) + 1 if len(borders) else end

    def _owes_end_of_rib(self, member: Member) -> bool:
        after = member.end_of_rib_after
        return after is not None and member.order is None and member.sequence >= after

    def _pack_withdrawals(self, member: Member, rows: np.ndarray) -> list[bytes]:
        chunks: list[bytes] = []
        hi, lo, length = self.prefix_columns(rows)
        while len(hi):
            n_rows, n_octets, n_messages = pack.pack_withdrawals(
                hi, lo, length, _NO_PATH_IDS, self.family.is_wide, member.max_message_octets, False, self._scratch
            )
            chunks.append(self._scratch[:n_octets].tobytes())
            member.n_updates += n_messages
            hi, lo, length = hi[n_rows:], lo[n_rows:], length[n_rows:]
        return chunks

    def _pack_announcements(self, member: Member, rows: np.ndarray, before: Before) -> list[bytes]:
        local, set_offset, set_octets = self.attributes.extract(self.exports.sets.take(rows))
        if len(rows) > 1 and np.count_nonzero(local[1:] != local[:-1]) + 1 > len(set_offset) - 1:
            by_set = np.argsort(local, kind="stable")
            rows, local = rows[by_set], local[by_set]
        hi, lo, length = self.prefix_columns(rows)
        is_wide, longest = self.family.is_wide, member.max_message_octets
        unsendable = pack.find_unsendable(length, local, set_offset, set_octets, is_wide, longest, False)
        chunks = self._withhold(member, rows[unsendable], before) if len(unsendable) else []
        start = 0
        while start < len(rows):
            n_rows, n_octets, n_messages = pack.pack_announcements(
                hi[start:],
                lo[start:],
                length[start:],
                _NO_PATH_IDS,
                local[start:],
                set_offset,
                set_octets,
                is_wide,
                longest,
                False,
                self._scratch,
            )
            chunks.append(self._scratch[:n_octets].tobytes())
            member.n_updates += n_messages
            start += n_rows
        return chunks

    def _withhold(self, member: Member, rows: np.ndarray, before: Before) -> list[bytes]:
        """Do not tell prefixes whose attributes no message to this peer can carry; withdraw those it holds.

        RFC 4271 §9.2, RFC 8654 §5.
        """
        member.n_too_long += len(rows)
        np.subtract.at(member.told, rows >> 3, np.left_shift(1, rows & 7).astype(np.uint8))
        looked_at, told = before
        held = looked_at[(told >> (looked_at & 7).astype(np.uint8) & 1).astype(bool)]
        return self._pack_withdrawals(member, rows[np.isin(rows, held)])

    def prefix_columns(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the prefixes of rows as columns (hi, lo, length)."""
        return self.prefixes.columns_of(rows)


_NO_PATH_IDS = np.empty(0, np.uint32)
