"""Cases of the benchmark: records of an MRT file."""

import struct

from common.bgp.constants import Family
from common.kernels import mrt
from stages.feed.synthetic import Table, synthesize


def recorded(table: Table) -> bytes:
    """Return BGP4MP records, each an UPDATE with one of the table's attribute sets."""
    peer = struct.pack(">IIHH", 64601, 65000, 0, 1) + bytes([10, 77, 0, 10, 10, 77, 0, 1])
    parts = []
    for number in range(table.n_sets):
        attributes = table.set_octets[table.set_offset[number] + 5 : table.set_offset[number + 1]].tobytes()
        body = struct.pack(">HH", 0, len(attributes)) + attributes + bytes([24, 198, 51, number & 0xFF])
        message = peer + b"\xff" * 16 + struct.pack(">HB", 19 + len(body), 2) + body
        parts.append(struct.pack(">IHHI", 1, 16, 4, len(message)) + message)
    return b"".join(parts)


def cases(scale: float = 1.0, module=mrt) -> list:
    """Return (label, number of items, callable) for 50 k recorded UPDATEs times `scale`."""
    table = synthesize(Family.IPV4_UNICAST, int(250_000 * scale), seed=1, asn=64601, next_hop=bytes(4))
    octets = recorded(table)

    def scan() -> None:
        scanner, at = module.MrtScanner(), 0
        while at < len(octets):
            scanner.scan(octets, at, len(octets))
            at = scanner.consumed

    def rewrite() -> None:
        module.rewrite_sets(table.set_offset, table.set_octets, b"\x0a\x4d\x00\x0a", 64700, mrt.REPLACE)

    return [("MRT, scan, per record", table.n_sets, scan), ("MRT, rewrite, per set", table.n_sets, rewrite)]
