"""The octets a played neighbor speaks: its OPEN, its table as UPDATEs, and what it makes of what it hears.

Never touches a socket. Encoding and scanning are the kernels' (common/kernels/pack.py, scan.py).
"""

from collections.abc import Iterable, Iterator

import numpy as np

from common.bgp.capabilities import Capabilities, GracefulRestart
from common.bgp.constants import HEADER_OCTETS, MAX_MESSAGE_OCTETS, NONE, Family
from common.bgp.messages import KEEPALIVE, Notification, Open
from common.kernels import scan
from common.kernels.pack import end_of_rib, pack_announcements, pack_withdrawals
from stages.feed.synthetic import Table

__all__ = ["KEEPALIVE", "announce", "decode_open", "describe_notification", "encode_stream", "open_message", "update"]

NO_PATH_IDS = np.empty(0, np.uint32)
PACK_OCTETS = 1 << 20


def open_message(plan) -> bytes:
    """Encode the OPEN of a played neighbor: its families, four-octet AS numbers, route refresh, graceful restart."""
    router_id = int.from_bytes(bytes(int(octet) for octet in plan.router_id.split(".")), "big")
    kept = tuple((family, True) for family in plan.families)
    restart = GracefulRestart(plan.restart_time_s, has_notification=True, families=kept)
    capabilities = Capabilities(
        families=tuple(plan.families),
        asn4=plan.asn,
        route_refresh=True,
        graceful_restart=restart if plan.restart_time_s else None,
    )
    return Open(asn=plan.asn, hold_time_s=plan.hold_time_s, router_id=router_id, capabilities=capabilities).encode()


def announce(table: Table, max_message: int = MAX_MESSAGE_OCTETS) -> Iterator[np.ndarray]:
    """Encode a table as UPDATEs; gives blocks of octets to send in order."""
    first = 0
    lo = table.lo if table.family.is_wide else NO_LOWER
    while first < table.n_prefixes:
        out = np.empty(PACK_OCTETS, np.uint8)
        rows = slice(first, None)
        packed = pack_announcements(
            table.hi[rows], lo[rows], table.length[rows], NO_PATH_IDS, table.set[rows], table.set_offset,
            table.set_octets, table.family.is_wide, max_message, False, out,
        )  # fmt: skip
        yield out[: packed.n_octets].copy() if packed.n_octets < PACK_OCTETS // 2 else out[: packed.n_octets]
        first += packed.n_rows


NO_LOWER = np.empty(0, np.uint64)


def withdraw(table: Table, max_message: int = MAX_MESSAGE_OCTETS) -> Iterator[np.ndarray]:
    """Encode the withdrawal of a table's prefixes."""
    first = 0
    lo = table.lo if table.family.is_wide else NO_LOWER
    while first < table.n_prefixes:
        out = np.empty(min(PACK_OCTETS, max_message * (2 + table.n_prefixes * 18 // max_message)), np.uint8)
        rows = slice(first, None)
        packed = pack_withdrawals(
            table.hi[rows], lo[rows], table.length[rows], NO_PATH_IDS, table.family.is_wide, max_message, False, out
        )
        yield out[: packed.n_octets]
        first += packed.n_rows


def update(table: Table) -> Iterator[np.ndarray]:
    """Encode changes: first the rows that are withdrawn (set NONE), then those announced."""
    is_gone = table.set == NONE
    if is_gone.any():
        yield from withdraw(table.chosen(is_gone))
        table = table.chosen(~is_gone)
    yield from announce(table)


def encode_stream(tables: Iterable[Table], families: Iterable[Family]) -> Iterator[np.ndarray]:
    """Encode tables piece by piece as they come, End-of-RIB of each family behind them."""
    for table in tables:
        if table.family in families:
            yield from update(table)
    for family in families:
        yield np.frombuffer(end_of_rib(family), np.uint8)


def encode_changes(tables: Iterable[Table]) -> Iterator[np.ndarray]:
    """Encode changes piece by piece as they come."""
    for table in tables:
        yield from update(table)


def take_messages(neighbor, scanner, buffer, end: int, now: float) -> int:
    """Enter the whole messages of buffer[:end], and return how many octets they were."""
    start = 0
    while not neighbor.failure:
        why = scanner.scan(buffer, start, end, neighbor.options)
        start = scanner.consumed
        neighbor.n_updates += scanner.n_updates
        if scanner.n_updates and neighbor.opened is None:
            neighbor.fail("sent an UPDATE before an OPEN")
            break
        if scanner.n_keepalives:
            neighbor.on_keepalive(now)
        for family in Family:
            if family not in neighbor.ledgers:
                continue
            if scanner.n_routes(family.index):
                neighbor.on_routes(family, scanner.routes(family.index), now)
            if scanner.end_of_rib & family.bit:
                neighbor.on_end_of_rib(family, now)
        neighbor.n_invalid += scanner.n_withdrawn
        neighbor.n_discarded += scanner.n_discarded
        if why == scan.MESSAGE:
            offset, length = scanner.message_offset, scanner.message_length
            neighbor.on_message(scanner.message_type, bytes(buffer[offset + HEADER_OCTETS : offset + length]), now)
            start = offset + length
        elif why == scan.ERROR:
            neighbor.fail(f"sent a malformed message: {Notification(scanner.error_code, scanner.error_subcode)}")
        elif why == scan.NEED_MORE:
            break
    return start


def decode_open(body: bytes) -> Open:
    """Return an OPEN's values; ValueError of ours if it is malformed."""
    return Open.decode(body)


def describe_notification(body: bytes) -> str:
    """Return what a NOTIFICATION says, for a person."""
    return str(Notification.decode(body))
