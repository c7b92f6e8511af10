"""Real messages with some octets changed: no scan crashes, and both twins see what the oracle sees.

HEADRACE_FUZZ_ROUNDS sets how many are tried.
"""

import os
from random import Random

import pytest

from tests.oracles import scan as oracle
from tests.twins.test_scan import expected_of, found_by
from tests.vectors.test_bgp_messages import VECTORS

ROUNDS = int(os.environ.get("HEADRACE_FUZZ_ROUNDS", 400))
SEEDS = [octets for name, octets in VECTORS.items() if name.startswith("update")]
# Octets that mean something: types, flags, lengths.
TELLING = bytes([0, 1, 2, 3, 4, 5, 7, 8, 9, 14, 15, 16, 17, 18, 24, 32, 35, 64, 128, 192, 0x50, 0xD0, 255])


def spoiled(random: Random, octets: bytes) -> bytes:
    """Change, drop or double a few octets behind the header; mend the lengths, mostly."""
    body = bytearray(octets[19:])
    for _ in range(random.choice([1, 1, 1, 2, 3, 8])):
        at = random.randrange(len(body))
        change = random.randrange(4)
        if change < 2:
            body[at] = random.choice(TELLING) if change else random.randrange(256)
        elif change == 2:
            del body[at : at + random.randrange(1, 4)]
        else:
            body[at:at] = body[at : at + random.randrange(1, 12)]
        body = body or bytearray(4)
    if random.random() < 0.7 and len(body) > 4:
        n_withdrawn = int.from_bytes(body[:2], "big")
        n_nlri = random.choice([0, 4, 5])
        room = len(body) - 4 - n_withdrawn
        if room >= 0:
            body[2 + n_withdrawn : 4 + n_withdrawn] = max(0, room - n_nlri).to_bytes(2, "big")
    return octets[:16] + (19 + len(body)).to_bytes(2, "big") + b"\2" + body


def session_of(random: Random) -> oracle.Settings:
    """A session that negotiated anything."""
    return oracle.Settings(
        as4=random.random() < 0.6,
        external=random.random() < 0.5,
        families=random.choice([3, 3, 3, 1, 2]),
        add_path=random.choice([0, 0, 0, 1, 3]),
        accept_as_sets=random.random() < 0.5,
        accept_confederation=random.random() < 0.5,
        extended_next_hop=random.random() < 0.5,
    )


@pytest.mark.parametrize("start", range(5))
def test_scan_agrees_on_spoiled_messages(start):
    """A stream of a real message, a spoiled one and perhaps a real one again."""
    random = Random(start)
    for _ in range(ROUNDS // 5):
        real = random.choice(SEEDS)
        # At the buffer's end the uncompiled twin would raise if it looked further.
        octets = real + spoiled(random, random.choice(SEEDS)) + (real if random.random() < 0.5 else b"")
        if random.random() < 0.3:
            octets = octets[: random.randrange(len(octets))]
        session = session_of(random)
        expected = expected_of(octets, session)
        for twin in ("compiled", "uncompiled"):
            assert found_by(twin, octets, session) == expected, octets.hex()
