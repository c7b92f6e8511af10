"""What an export table is, in dictionaries and sets."""


class Table:
    """Routes by row: (set, source), the rows marked unconfirmed, and what each member holds and was told."""

    def __init__(self):
        self.routes: dict[int, tuple[int, int]] = {}
        self.unconfirmed: set[int] = set()
        self.told: dict[int, dict[int, int]] = {}  # member -> row -> set
        # By row and former set: the members that have not looked at the row since it was replaced.
        self.former: dict[int, dict[int, set[int]]] = {}

    def join(self) -> int:
        """Return the lowest number that is free."""
        member = next(number for number in range(len(self.told) + 1) if number not in self.told)
        self.told[member] = {}
        return member

    def leave(self, member: int):
        del self.told[member]
        for row in list(self.former):
            self._look(row, member)

    def apply(self, changes):
        """Write (row, set, source) and return the rows that changed."""
        changed = []
        for row, number, source in changes:
            self.unconfirmed.discard(row)
            new = (number, source) if number else None
            if self.routes.get(row) != new:
                self._replace(row)
                changed.append(row)
                self.routes.pop(row, None)
                if new:
                    self.routes[row] = new
        return changed

    def _replace(self, row: int):
        if row in self.routes:
            waiting = set().union(*self.former.get(row, {}).values())
            holders = set(self.told) - waiting
            if holders:
                self.former.setdefault(row, {}).setdefault(self.routes[row][0], set()).update(holders)

    def _look(self, row: int, member: int):
        former = {number: members - {member} for number, members in self.former.pop(row, {}).items()}
        former = {number: members for number, members in former.items() if members}
        if former:
            self.former[row] = former

    def mark(self):
        self.unconfirmed = set(self.routes)

    def sweep(self):
        gone = sorted(self.unconfirmed)
        self.apply([(row, 0, 0) for row in gone])
        return gone

    def select(self, rows, member: int, own: int, is_forced: bool):
        """RFC 4271 §9.2: tell what is there, is not the peer's own and not what it holds; withdraw what it holds."""
        told = self.told[member]
        wanted = [row for row in rows if row in self.routes and self.routes[row][1] != own]
        announce = [row for row in wanted if is_forced or told.get(row) != self.routes[row][0]]
        withdraw = [row for row in rows if row not in wanted and row in told]
        for row in announce:
            told[row] = self.routes[row][0]
        for row in withdraw:
            del told[row]
        for row in rows:
            self._look(row, member)
        return announce, withdraw

    def holds_as_now(self, row: int, member: int) -> bool:
        """Tell whether a member that was told a row has looked at it since it was replaced."""
        return not any(member in members for members in self.former.get(row, {}).values())

    def references(self, n_sets):
        uses = [number for number, _ in self.routes.values()]
        uses += [number for former in self.former.values() for number in former]
        return [sum(number == each for number in uses) for each in range(n_sets)]
