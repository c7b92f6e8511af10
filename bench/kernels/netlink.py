"""Cases of the benchmark: route messages for the kernel."""

from socket import AF_INET, AF_INET6

import numpy as np

from bench.kernels.prefixes import full_table
from common.bgp.constants import Family
from common.kernels import netlink
from stages.fib import messages

BATCH = 2048  # as the fib stage sends them
REPLY_OCTETS = 36  # struct nlmsghdr, errno, struct nlmsghdr


def cases(scale: float = 1.0, module=netlink) -> list:
    """Return (label, number of items, callable): requests written, routes of a dump and replies read, next hops."""
    return [case for family in Family for case in _cases_of(family, scale, module)] + _replies(scale, module)


def _cases_of(family: Family, scale: float, module) -> list:
    table = full_table(family, scale)
    n = table.n_prefixes
    written = {kind: _writer(family, table, module, octets) for kind, octets in _ways(family).items()}
    dump = written["object"](collect=True)
    cases = [(f"write requests, {kind}, {family.label}", n, write) for kind, write in written.items()]
    scan = module.RouteScan(n + BATCH)

    def read_dump() -> None:
        scan.clear()
        for octets in dump:
            scan.scan(octets, len(octets), np.array([len(octets)], np.uint32))

    return [*cases, (f"read a dump, {family.label}", n, read_dump)]


def _ways(family: Family) -> dict[str, bytes]:
    number = AF_INET6 if family.is_wide else AF_INET
    gateway = messages.Gateway(number, bytes(16 if family.is_wide else 4), 2)
    return {"object": messages.way_by_object(1), "gateway": messages.way_by_gateway(number, gateway)}


def _writer(family: Family, table, module, attributes: bytes):
    number = AF_INET6 if family.is_wide else AF_INET
    common = np.frombuffer(messages.common_attributes(254, 20), np.uint8)
    header = np.frombuffer(messages.route_header(number, 254), np.uint8)
    out = np.zeros(netlink.request_limit(BATCH, common), np.uint8)
    ways = (
        np.ones(2, np.uint8),
        np.zeros(2, np.uint32),
        np.full(2, len(attributes), np.uint8),
        np.frombuffer(attributes.ljust(netlink.WAY_OCTETS, b"\0") * 2, np.uint8),
    )

    def write(collect: bool = False) -> list:
        collected = []
        for at in range(0, table.n_prefixes, BATCH):
            rows = slice(at, at + BATCH)
            n = len(table.hi[rows])
            lo = table.lo[rows] if family.is_wide else table.lo
            which, actions = np.ones(n, np.uint32), np.full(n, netlink.INSTALL, np.uint8)
            size = module.write_requests(
                out, at, family.is_wide, header, common, actions, table.hi[rows], lo, table.length[rows], which, *ways
            )
            if collect:
                collected.append(out[:size].copy())
        return collected

    return write


def _replies(scale: float, module) -> list:
    n = max(int(1_230_000 * scale), 100)
    one = messages.message(messages.Kind.ERROR, messages.CAPPED, 0, bytes(20))
    octets = np.frombuffer(one * n, np.uint8).copy()
    octets.reshape(n, REPLY_OCTETS)[:, 8:12] = np.arange(n, dtype=np.uint32).view(np.uint8).reshape(n, 4)
    lengths, errors = np.array([len(octets)], np.uint32), np.zeros(n, np.int32)
    return [("read replies", n, lambda: module.scan_replies(octets, len(octets), lengths, 0, errors))]
