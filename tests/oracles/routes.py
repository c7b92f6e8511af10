"""The route table, slow and obvious: an oracle. Routes are known as (prefix row, source) and have no row numbers."""

from collections import Counter


class RouteTable:
    """Three collections: set by live route, tombstones, and the live routes that are unconfirmed."""

    def __init__(self):
        self.live = {}
        self.tombstones = set()
        self.unconfirmed = set()

    def apply(self, routes) -> list:
        """Apply (prefix row, source, set id or 0) in order; return the routes that changed, as often as they did."""
        changed = []
        for prefix, source, id in routes:
            route = (prefix, source)
            if prefix == 0:
                continue
            self.unconfirmed.discard(route)
            if self.live.get(route, 0) == id:
                continue
            changed.append(route)
            if id == 0:
                self._withdraw(route)
            else:
                self.live[route] = id
                self.tombstones.discard(route)
        return changed

    def purge(self, sources) -> set:
        return self._withdraw_all({route for route in self.live if route[1] in sources})

    def mark_unconfirmed(self, sources) -> None:
        self.unconfirmed |= {route for route in self.live if route[1] in sources}

    def sweep_unconfirmed(self, sources) -> set:
        return self._withdraw_all({route for route in self.unconfirmed if route[1] in sources})

    def unlink(self, routes) -> set:
        """Forget the tombstones among routes; return the prefix rows that have no route left."""
        gone = self.tombstones & set(routes)
        self.tombstones -= gone
        left = {prefix for prefix, _ in self.live} | {prefix for prefix, _ in self.tombstones}
        return {prefix for prefix, _ in gone} - left

    def references(self) -> Counter:
        return Counter(self.live.values())

    def n_by_source(self) -> Counter:
        return Counter(source for _, source in self.live)

    def _withdraw_all(self, routes) -> set:
        for route in routes:
            self._withdraw(route)
        return routes

    def _withdraw(self, route) -> None:
        del self.live[route]
        self.unconfirmed.discard(route)
        self.tombstones.add(route)
