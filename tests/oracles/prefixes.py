"""The prefix table, slow and obvious: an oracle. Prefixes are tuples (hi, lo, length)."""


class PrefixTable:
    """A dictionary, and the row numbers that have been released, the latest first in use again."""

    def __init__(self):
        self.row_of = {}
        self.released = []
        self.row_limit = 1

    def intern(self, prefixes, wanted) -> list[int]:
        for prefix, is_wanted in zip(prefixes, wanted, strict=True):
            if is_wanted and prefix not in self.row_of:
                if self.released:
                    self.row_of[prefix] = self.released.pop()
                else:
                    self.row_of[prefix] = self.row_limit
                    self.row_limit += 1
            yield self.row_of.get(prefix, 0)

    def release(self, rows) -> None:
        for row in rows:
            self.row_of = {prefix: other for prefix, other in self.row_of.items() if other != row}
            self.released.append(row)

    def tidy(self) -> None:
        self.released.sort(reverse=True)
