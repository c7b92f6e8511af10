"""What an export table is, in dictionaries."""


class Table:
    """Routes by row: (set, source), and the rows marked unconfirmed."""

    def __init__(self):
        self.routes: dict[int, tuple[int, int]] = {}
        self.unconfirmed: set[int] = set()

    def apply(self, changes):
        """Write (row, set, source) and return the rows that changed."""
        changed = []
        for row, number, source in changes:
            self.unconfirmed.discard(row)
            new = (number, source) if number else None
            if self.routes.get(row) != new:
                changed.append(row)
                self.routes.pop(row, None)
                if new:
                    self.routes[row] = new
        return changed

    def mark(self):
        self.unconfirmed = set(self.routes)

    def sweep(self):
        gone = sorted(self.unconfirmed)
        for row in gone:
            del self.routes[row]
        self.unconfirmed.clear()
        return gone

    def select(self, rows, told: set[int], own: int):
        """RFC 4271 §9.2: tell what is there and is not the peer's own; withdraw only what the peer holds."""
        announce = [row for row in rows if row in self.routes and self.routes[row][1] != own]
        withdraw = [row for row in rows if row not in announce and row in told]
        told |= set(announce)
        told -= set(withdraw)
        return announce, withdraw

    def references(self, n_sets):
        return [sum(number == each for number, _ in self.routes.values()) for each in range(n_sets)]
