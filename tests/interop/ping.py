"""Sends an ICMP echo request every few milliseconds, and says after SIGTERM which were not answered.

However early the signal comes, FEWEST requests are sent.

python -m tests.interop.ping ADDRESS      prints {"sent": n, "lost": [sequence, ...]}
"""

import json
import os
import select
import signal
import socket
import struct
import sys
import time

INTERVAL_S = 0.01
PATIENCE_S = 1.0
FEWEST = 64
ECHO_REQUEST, ECHO_REPLY = 8, 0


def checksum(octets: bytes) -> int:
    """RFC 1071."""
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def request(identifier: int, sequence: int) -> bytes:
    """Return an echo request (RFC 792); its number of 32 bits is in its data."""
    rest = struct.pack(">HHI", identifier, sequence & 0xFFFF, sequence)
    return struct.pack(">BBH", ECHO_REQUEST, 0, checksum(struct.pack(">BBH", ECHO_REQUEST, 0, 0) + rest)) + rest


def main(address: str) -> None:
    """Send until SIGTERM, wait for what is under way, print."""
    plain = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    identifier = os.getpid() & 0xFFFF
    waiting: set[int] = set()
    n_sent, ends_at = 0, float("inf")
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    next_at = time.monotonic()
    is_over = False
    while time.monotonic() < ends_at and not (is_over and not waiting):
        now = time.monotonic()
        if not is_over and stopped and n_sent >= FEWEST:
            is_over, ends_at = True, now + PATIENCE_S
        if not is_over and now >= next_at:
            next_at = max(next_at + INTERVAL_S, now)
            waiting.add(n_sent)
            try:
                plain.sendto(request(identifier, n_sent), (address, 0))
            except OSError:
                pass  # no route: as good as lost
            n_sent += 1
        if select.select([plain], [], [], INTERVAL_S / 2)[0]:
            octets = plain.recv(2048)
            header = (octets[0] & 15) * 4
            kind, _, _, found, _, sequence = struct.unpack_from(">BBHHHI", octets.ljust(header + 12, b"\0"), header)
            if kind == ECHO_REPLY and found == identifier:
                waiting.discard(sequence)
    print(json.dumps({"sent": n_sent, "lost": sorted(waiting)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
