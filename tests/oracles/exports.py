"""What an export table is, in dictionaries and lists."""


class Table:
    """Routes by row: (set, source), the rows marked unconfirmed, and changes that not every member has passed."""

    def __init__(self):
        self.routes: dict[int, tuple[int, int]] = {}
        self.unconfirmed: set[int] = set()
        self.head = 1
        # By row: [sequence of the oldest change not passed by all, set before it, latest change, told to some member]
        self.open_changes: dict[int, list] = {}

    def apply(self, changes, passed: int):
        """Write (row, set, source) and return the rows that changed."""
        changed = []
        head = self.head
        for row, number, source in changes:
            self.unconfirmed.discard(row)
            new = (number, source) if number else None
            if self.routes.get(row) != new:
                self._note(row, head + len(changed), passed)
                changed.append(row)
                self.routes.pop(row, None)
                if new:
                    self.routes[row] = new
        self.head += len(changed)
        return changed

    def _note(self, row: int, sequence: int, passed: int):
        known = self.open_changes.get(row)
        if known and known[2] >= passed:
            known[2] = sequence
            if not known[3]:
                known[0] = sequence
        else:
            self.open_changes[row] = [sequence, self.routes.get(row, (0, 0))[0], sequence, False]

    def settle(self, passed: int):
        """Forget the changes that all members have passed; return their rows."""
        settled = [row for row, known in self.open_changes.items() if known[2] < passed]
        for row in settled:
            del self.open_changes[row]
        return settled

    def mark(self):
        self.unconfirmed = set(self.routes)

    def sweep(self, passed: int):
        gone = sorted(self.unconfirmed)
        self.apply([(row, 0, 0) for row in gone], passed)
        return gone

    def select(self, rows, told: set[int], own: int, position: int):
        """RFC 4271 §9.2: tell what is there, is not the peer's own and not what it holds; withdraw what it holds."""
        wanted = [row for row in rows if row in self.routes and self.routes[row][1] != own]
        announce = [row for row in wanted if not (row in told and self._is_held(row, position))]
        withdraw = [row for row in rows if row not in wanted and row in told]
        told |= set(announce)
        told -= set(withdraw)
        for row in announce + withdraw:
            if row in self.open_changes:
                self.open_changes[row][3] = True
        return announce, withdraw

    def _is_held(self, row: int, position: int) -> bool:
        """Tell whether a member at `position`, that was told the row, was told what it is now."""
        known = self.open_changes.get(row)
        return bool(position and known and position <= known[0] and known[1] == self.routes[row][0])

    def references(self, n_sets):
        uses = [number for number, _ in self.routes.values()] + [known[1] for known in self.open_changes.values()]
        return [sum(number == each for number in uses) for each in range(n_sets)]
