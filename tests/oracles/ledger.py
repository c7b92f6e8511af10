"""The ledger of a listener, slow and obvious: an oracle."""

from tests.oracles.mrt import attributes

NOT_CORE = {3, 4, 5, 9, 10}
ITEM_OCTETS = {8: 4, 16: 8, 25: 20, 32: 12}


class Ledger:
    """A dictionary of what is held: the attribute set by row."""

    def __init__(self):
        self.held: dict[int, bytes] = {}
        self.counts = {"announced": 0, "withdrawn": 0, "repeated": 0, "spurious_withdrawals": 0}

    def apply(self, changes: list[tuple[int, bytes | None]]) -> None:
        for row, octets in changes:
            if octets is None:
                self.counts["withdrawn"] += 1
                self.counts["spurious_withdrawals"] += row not in self.held
                self.held.pop(row, None)
            else:
                self.counts["announced"] += 1
                self.counts["repeated"] += self.held.get(row) == octets
                self.held[row] = octets


def core(octets: bytes, n_own: int) -> list:
    """Return what a router passes on, as a value that can be compared: flags and order of communities left out."""
    parts = []
    for code, value in attributes(octets[1 + octets[0] :]):
        if code in NOT_CORE:
            continue
        if code == 2:
            parts.append((code, path(value)[n_own:]))
        elif code in ITEM_OCTETS:
            size = ITEM_OCTETS[code]
            parts.append((code, {value[at : at + size] for at in range(0, len(value) - size + 1, size)}))
        else:
            parts.append((code, value))
    return parts


def path(value: bytes) -> list[tuple[int, bytes]]:
    """Return the AS numbers of a path, each with the type of its segment."""
    found, at = [], 0
    while at + 2 <= len(value):
        found += [(value[at], value[at + 2 + 4 * i : at + 6 + 4 * i]) for i in range(value[at + 1])]
        at += 2 + 4 * value[at + 1]
    return found


def first(octets: bytes) -> int:
    """Return the first AS number of a path that begins with a sequence, else 0."""
    for code, value in attributes(octets[1 + octets[0] :]):
        if code == 2:
            return int.from_bytes(value[2:6], "big") if value[:1] == b"\2" and value[1] else 0
    return 0
