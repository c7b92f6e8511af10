"""The routes of others as a list a prefix row, one message at a time."""

DEL_ROUTE, FLAG_REPLACE = 25, 0x100


class OtherRoutes:
    """row -> routes, as (table, metric, type, oif, nexthop id, gateway's family, hi, lo)."""

    def __init__(self):
        self.rows: dict[int, list[tuple]] = {}

    def apply(self, row: int, message: int, flags: int, route: tuple) -> None:
        """Take in one message about one route."""
        found = self.rows.setdefault(row, [])
        if message != DEL_ROUTE and flags & FLAG_REPLACE:
            found[:] = [one for one in found if one[:2] != route[:2]]
        same = [one for one in found if _key(one) == _key(route)]
        for one in same:
            found.remove(one)
        if message != DEL_ROUTE:
            found.append(route)

    def forget_interface(self, oif: int) -> None:
        """Forget all routes over an interface."""
        for found in self.rows.values():
            found[:] = [one for one in found if one[3] != oif]


def _key(route: tuple) -> tuple:
    table, metric, _, oif, nexthop_id, _, hi, lo = route
    return (table, metric, nexthop_id) if nexthop_id else (table, metric, 0, oif, hi, lo)
