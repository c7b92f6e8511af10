"""The kernel's routes that others made, by prefix row: kept as dumps and notifications tell them.

Owns the chain of routes of each prefix row (one a table, metric and way). Never owns the prefixes (the caller has a
prefix table and gives rows), never resolves anything: it answers with the routes of a row.

A route another program replaced is told by the new one alone, with NLM_F_REPLACE; so that flag removes what was of
the same table and metric. linux/net/ipv4/fib_trie.c, linux/net/ipv6/ip6_fib.c.
"""

import cython
import numpy as np

from common.arrays import allocate, grown

DEL_ROUTE = cython.declare(cython.uchar, 25)  # RTM_DELROUTE
FLAG_REPLACE = cython.declare(cython.uint, 0x100)  # NLM_F_REPLACE

# The columns of 32 bits, one after the other for each route.
FIELDS = cython.declare(cython.Py_ssize_t, 8)
NEXT = cython.declare(cython.Py_ssize_t, 0)
ROW = cython.declare(cython.Py_ssize_t, 1)  # prefix row, 0: the place is free
TABLE = cython.declare(cython.Py_ssize_t, 2)
METRIC = cython.declare(cython.Py_ssize_t, 3)
OIF = cython.declare(cython.Py_ssize_t, 4)
NEXTHOP_ID = cython.declare(cython.Py_ssize_t, 5)
TYPE = cython.declare(cython.Py_ssize_t, 6)
GATEWAY_FAMILY = cython.declare(cython.Py_ssize_t, 7)


@cython.cclass
class OtherRoutes:
    """Routes of one family, chained by prefix row."""

    n_routes: cython.Py_ssize_t
    _top: cython.uint
    _free: cython.uint
    head_column: object
    field_column: object
    gateway_column: object
    _head: cython.uint[::1]
    _field: cython.uint[::1]
    _gateway: cython.ulonglong[::1]

    def __init__(self, capacity: int = 256):
        self.n_routes = 0
        self._top = 1
        self._free = 0
        self.head_column = allocate(0, np.uint32)
        self.field_column = allocate(0, np.uint32)
        self.gateway_column = allocate(0, np.uint64)
        self._reserve(max(capacity, 16))
        self.ensure_prefixes(16)

    @property
    def n(self) -> int:
        """Routes kept."""
        return self.n_routes

    def ensure_prefixes(self, capacity: cython.Py_ssize_t):
        """Make room for prefix rows below `capacity`."""
        if capacity > len(self.head_column):
            self.head_column = grown(self.head_column, capacity)
        self._head = memoryview(self.head_column)

    def apply(
        self,
        rows: cython.const[cython.uint][::1],
        message: cython.const[cython.uchar][::1],
        header_flags: cython.const[cython.uint][::1],
        table: cython.const[cython.uint][::1],
        metric: cython.const[cython.uint][::1],
        oif: cython.const[cython.uint][::1],
        nexthop_id: cython.const[cython.uint][::1],
        kind: cython.const[cython.uchar][::1],
        gateway_family: cython.const[cython.uchar][::1],
        gateway_hi: cython.const[cython.ulonglong][::1],
        gateway_lo: cython.const[cython.ulonglong][::1],
    ):
        """Take in messages about routes, in their order; return the prefix rows without a route (uint32).

        rows: the prefix row of each message; 0 (a removal of what is not known) is passed over. The other columns
        are those of `netlink.RouteScan`. A row may be returned twice, or have got a route again: see `is_empty`.
        """
        n: cython.Py_ssize_t = rows.shape[0]
        if self._top + n >= self._field.shape[0] // FIELDS:
            self._reserve(max(self._top + n + 1, self._field.shape[0] // FIELDS * 3 // 2))
        result = np.empty(n, np.uint32)
        emptied: cython.uint[::1] = memoryview(result)
        n_emptied: cython.Py_ssize_t = 0
        i: cython.Py_ssize_t
        row: cython.uint
        route: cython.uint
        at: cython.Py_ssize_t
        with cython.nogil:
            for i in range(n):
                row = rows[i]
                if row == 0:
                    continue
                if message[i] != DEL_ROUTE and header_flags[i] & FLAG_REPLACE:
                    self._remove_replaced(row, table[i], metric[i])
                route = self._find(row, table[i], metric[i], oif[i], nexthop_id[i], gateway_hi[i], gateway_lo[i])
                if message[i] == DEL_ROUTE:
                    if route != 0:
                        self._unlink(route)
                    if self._head[row] == 0:
                        emptied[n_emptied] = row
                        n_emptied += 1
                    continue
                if route == 0:
                    route = self._insert(row)
                at = route * FIELDS
                self._field[at + TABLE] = table[i]
                self._field[at + METRIC] = metric[i]
                self._field[at + OIF] = oif[i]
                self._field[at + NEXTHOP_ID] = nexthop_id[i]
                self._field[at + TYPE] = kind[i]
                self._field[at + GATEWAY_FAMILY] = gateway_family[i]
                self._gateway[route * 2] = gateway_hi[i]
                self._gateway[route * 2 + 1] = gateway_lo[i]
        return result[:n_emptied]

    def forget_interface(self, oif: cython.uint):
        """Forget all routes over an interface; return the prefix rows without a route (uint32)."""
        result = np.empty(self.n_routes, np.uint32)
        emptied: cython.uint[::1] = memoryview(result)
        n_emptied: cython.Py_ssize_t = 0
        route: cython.uint
        row: cython.uint
        with cython.nogil:
            for route in range(1, self._top):
                row = self._field[route * FIELDS + ROW]
                if row != 0 and self._field[route * FIELDS + OIF] == oif:
                    self._unlink(route)
                    if self._head[row] == 0:
                        emptied[n_emptied] = row
                        n_emptied += 1
        return result[:n_emptied]

    def is_empty(self, rows):
        """Tell for each prefix row whether it has no route."""
        return self.head_column[rows] == 0

    def routes(self, row: cython.uint) -> list:
        """Return the routes of a prefix row: (table, metric, type, oif, nexthop id, gateway's family, hi, lo)."""
        found = []
        route: cython.uint = self._head[row]
        at: cython.Py_ssize_t
        while route != 0:
            at = route * FIELDS
            found.append(
                (
                    self._field[at + TABLE],
                    self._field[at + METRIC],
                    self._field[at + TYPE],
                    self._field[at + OIF],
                    self._field[at + NEXTHOP_ID],
                    self._field[at + GATEWAY_FAMILY],
                    self._gateway[route * 2],
                    self._gateway[route * 2 + 1],
                )
            )
            route = self._field[at + NEXT]
        return found

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _find(
        self,
        row: cython.uint,
        table: cython.uint,
        metric: cython.uint,
        oif: cython.uint,
        nexthop_id: cython.uint,
        gateway_hi: cython.ulonglong,
        gateway_lo: cython.ulonglong,
    ) -> cython.uint:
        """Return the route of this table, metric and way; 0 if there is none.

        A route on a nexthop object is known by the object: the gateway it is told with is the object's at that time.
        """
        route: cython.uint = self._head[row]
        at: cython.Py_ssize_t
        while route != 0:
            at = route * FIELDS
            if (
                self._field[at + TABLE] == table
                and self._field[at + METRIC] == metric
                and self._field[at + NEXTHOP_ID] == nexthop_id
                and (
                    nexthop_id != 0
                    or (
                        self._field[at + OIF] == oif
                        and self._gateway[route * 2] == gateway_hi
                        and self._gateway[route * 2 + 1] == gateway_lo
                    )
                )
            ):
                return route
            route = self._field[at + NEXT]
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _remove_replaced(self, row: cython.uint, table: cython.uint, metric: cython.uint) -> cython.void:
        route: cython.uint = self._head[row]
        following: cython.uint
        while route != 0:
            following = self._field[route * FIELDS + NEXT]
            if self._field[route * FIELDS + TABLE] == table and self._field[route * FIELDS + METRIC] == metric:
                self._unlink(route)
            route = following

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _insert(self, row: cython.uint) -> cython.uint:
        route: cython.uint = self._free
        if route != 0:
            self._free = self._field[route * FIELDS + NEXT]
        else:
            route = self._top
            self._top += 1
        self._field[route * FIELDS + NEXT] = self._head[row]
        self._field[route * FIELDS + ROW] = row
        self._head[row] = route
        self.n_routes += 1
        return route

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def _unlink(self, route: cython.uint) -> cython.void:
        row: cython.uint = self._field[route * FIELDS + ROW]
        before: cython.uint = self._head[row]
        if before == route:
            self._head[row] = self._field[route * FIELDS + NEXT]
        else:
            while self._field[before * FIELDS + NEXT] != route:
                before = self._field[before * FIELDS + NEXT]
            self._field[before * FIELDS + NEXT] = self._field[route * FIELDS + NEXT]
        self._field[route * FIELDS + ROW] = 0
        self._field[route * FIELDS + NEXT] = self._free
        self._free = route
        self.n_routes -= 1

    @cython.cfunc
    def _reserve(self, capacity: cython.Py_ssize_t):
        self.field_column = grown(self.field_column, capacity * FIELDS)
        self._field = memoryview(self.field_column)
        self.gateway_column = grown(self.gateway_column, capacity * 2)
        self._gateway = memoryview(self.gateway_column)


if not cython.compiled:
    from common.kernels import view_arguments

    view_arguments(globals())
