"""The attribute table, slow and obvious: an oracle. Sets are `bytes`."""


class AttributeTable:
    """From octets to id, from id to references, and the ids that are free, the latest first in use again."""

    def __init__(self):
        self.id_of = {}
        self.references = {}
        self.free = []
        self.id_limit = 1

    def intern(self, sets) -> list[int]:
        for octets in sets:
            if octets not in self.id_of:
                if self.free:
                    self.id_of[octets] = self.free.pop()
                else:
                    self.id_of[octets] = self.id_limit
                    self.id_limit += 1
                self.references[self.id_of[octets]] = 0
        return [self.id_of[octets] for octets in sets]

    def extract(self, ids):
        """Return (local, sets): the distinct sets in order of first use; None for id 0."""
        octets_of = {id: octets for octets, id in self.id_of.items()}
        distinct = list(dict.fromkeys(id for id in ids if id != 0))
        return [distinct.index(id) if id != 0 else None for id in ids], [octets_of[id] for id in distinct]

    def sweep(self) -> int:
        garbage = sorted(id for id in self.id_of.values() if self.references[id] == 0)
        self.id_of = {octets: id for octets, id in self.id_of.items() if id not in garbage}
        self.free += garbage
        return len(garbage)
