"""The octets a played neighbor speaks: its OPEN, its table as UPDATEs, and what it makes of what it hears.

Never touches a socket. Encoding and scanning are the kernels' (common/kernels/pack.py, scan.py).
"""

import numpy as np

from common.bgp.capabilities import Capabilities
from common.bgp.constants import HEADER_OCTETS, MAX_MESSAGE_OCTETS, Family
from common.bgp.messages import Notification, Open
from common.kernels import scan
from common.kernels.pack import end_of_rib, pack_announcements
from stages.feed.synthetic import Table

NO_PATH_IDS = np.empty(0, np.uint32)
PACK_OCTETS = 1 << 22


def open_message(plan) -> bytes:
    """Encode the OPEN of a played neighbor: its families, four-octet AS numbers, route refresh."""
    router_id = int.from_bytes(bytes(int(octet) for octet in plan.router_id.split(".")), "big")
    capabilities = Capabilities(families=tuple(plan.families), asn4=plan.asn, route_refresh=True)
    return Open(asn=plan.asn, hold_time_s=plan.hold_time_s, router_id=router_id, capabilities=capabilities).encode()


def encode_table(table: Table, max_message: int = MAX_MESSAGE_OCTETS) -> list[np.ndarray]:
    """Encode a table as UPDATEs, ended by End-of-RIB; returns blocks of octets to send in order."""
    blocks = []
    first = 0
    while first < table.n_prefixes:
        out = np.empty(PACK_OCTETS, np.uint8)
        rows = slice(first, None)
        packed = pack_announcements(
            table.hi[rows], table.lo[rows] if table.family.is_wide else table.lo, table.length[rows], NO_PATH_IDS,
            table.set[rows], table.set_offset, table.set_octets, table.family.is_wide, max_message, False, out,
        )  # fmt: skip
        blocks.append(out[: packed.n_octets])
        first += packed.n_rows
    blocks.append(np.frombuffer(end_of_rib(table.family), np.uint8))
    return blocks


def take_messages(neighbor, scanner, end: int, now: float) -> int:
    """Enter the whole messages of the neighbor's buffer up to `end`; return how many octets they were."""
    start = 0
    while not neighbor.failure:
        why = scanner.scan(neighbor.buffer, start, end, neighbor.options)
        start = scanner.consumed
        neighbor.n_updates += scanner.n_updates
        if scanner.n_keepalives:
            neighbor.on_keepalive(now)
        for family in Family:
            if scanner.n_routes(family.index) and family in neighbor.told:
                neighbor.on_routes(family, scanner.routes(family.index), now)
            if scanner.end_of_rib & family.bit and family in neighbor.told:
                neighbor.told[family].end_of_rib = True
        if scanner.n_withdrawn:
            neighbor.n_invalid += scanner.n_withdrawn
        if why == scan.MESSAGE:
            offset, length = scanner.message_offset, scanner.message_length
            body = bytes(neighbor.buffer[offset + HEADER_OCTETS : offset + length])
            neighbor.on_message(scanner.message_type, body, now)
            start = offset + length
        elif why == scan.ERROR:
            neighbor.fail(f"sent a malformed message: error {scanner.error_code}/{scanner.error_subcode}")
        elif why == scan.NEED_MORE:
            break
    return start


def hold_time_of(body: bytes) -> int:
    """Return the hold time of an OPEN, seconds."""
    return Open.decode(body).hold_time_s


def describe_notification(body: bytes) -> str:
    """Return what a NOTIFICATION says, for a person."""
    return str(Notification.decode(body))
