"""Cases of the benchmark: attribute sets rewritten."""

import random

import numpy as np

from common.bgp.rules import Edits, NextHopRule
from common.kernels import dress


def table_of_sets(n_sets: int):
    """Return the set columns of a full table: paths of 2 to 7 ASes, 0 to 8 communities, some with more."""
    rng = random.Random(1)
    distinct = [_random_set(rng) for _ in range(min(n_sets, 5000))]
    sets = [distinct[i % len(distinct)] for i in range(n_sets)]
    offset = np.cumsum([0, *map(len, sets)], dtype=np.uint32)
    return offset, np.frombuffer(b"".join(sets), np.uint8).copy()


def _random_set(rng: random.Random) -> bytes:
    asns = [
        64601,
        *(rng.choice([rng.randint(1, 64000), rng.randint(131072, 400000)]) for _ in range(rng.randint(1, 6))),
    ]
    path = bytes([2, len(asns)]) + b"".join(asn.to_bytes(4, "big") for asn in asns)
    communities = b"".join((64601 << 16 | rng.randint(1, 999)).to_bytes(4, "big") for _ in range(rng.randint(0, 8)))
    octets = b"\x04" + bytes([10, 77, 0, 10]) + b"\x40\x01\x01\x00" + bytes([0x40, 2, len(path)]) + path
    if rng.random() < 0.3:
        octets += b"\x80\x04\x04" + rng.randbytes(4)
    return octets + (bytes([0xC0, 8, len(communities)]) + communities if communities else b"")


def cases(scale: float = 1.0, module=dress) -> list:
    """Return (label, number of items, callable) for a table of 241 k sets times `scale`."""
    n_sets = int(241_000 * scale)
    offset, octets = table_of_sets(n_sets)
    every, no_refusal = np.arange(n_sets, dtype=np.uint32), np.zeros(n_sets, np.uint8)
    external = {
        "next_hop": bytes([10, 77, 0, 1]),
        "next_hop_rule": NextHopRule.REPLACE,
        "strip": frozenset({4, 5, 9, 10, 26}),
        "strips_non_transitive": True,
        "prepend_asn": 65000,
        "prepend_count": 1,
    }
    kinds = {
        "unchanged": Edits(),
        "import: local_pref, communities": Edits(
            local_pref=120,
            add_communities=(65000 << 16 | 100,),
            remove_communities=((65000 << 16, 0xFFFF0000),),
            add_large_communities=((65000, 1, 1),),
        ),
        "export to external": Edits(**external),
        "export to external, two-octet": Edits(**external, is_two_octet=True),
    }
    result = []
    for label, edits in kinds.items():
        dresser = module.Dresser()
        rules = np.full(n_sets, dresser.add(edits), np.uint32)
        result.append(
            (
                f"dress, {label}, per set",
                n_sets,
                lambda dresser=dresser, rules=rules: dresser.dress(rules, every, no_refusal, offset, octets),
            )
        )
    return result
