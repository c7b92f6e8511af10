"""The prefixes this router announces as its own: routes of the Adj-RIB-In that no peer sent.

Owns nothing: what is originated stands in the configuration, the routes stand in the tables. RFC 4271 §5.1 and §9.4.
"""

from collections.abc import Iterable

import numpy as np

from common.bgp.attributes import encode_set
from common.bgp.constants import NONE, Family
from common.config import Config
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.sources import LOCAL, Source, Sources

# No next hop (it is this router), ORIGIN IGP, an empty AS_PATH.
ATTRIBUTE_SET = encode_set()


def local_source(config: Config, sources: Sources, router_id: int) -> int:
    """Return the number of the source that stands for this router."""
    asn = config.router.asn
    return sources.describe(Source(LOCAL, asn, asn, router_id, router_id.to_bytes(4, "big"), is_external=False))


def originate(table: AdjRibIn, source: int, prefixes: Iterable, is_gone: bool = False) -> None:
    """Announce prefixes of the table's family as our own, or withdraw them."""
    version = 6 if table.family.is_wide else 4
    chosen = [prefix for prefix in prefixes if prefix.version == version]
    if not chosen:
        return
    high, low = halves([int(prefix.network_address) for prefix in chosen], table.family)
    table.apply(
        source,
        high,
        low,
        np.array([prefix.prefixlen for prefix in chosen], np.uint8),
        None,
        np.full(len(chosen), NONE if is_gone else 0, np.uint32),
        np.array([0, len(ATTRIBUTE_SET)], np.uint32),
        np.frombuffer(ATTRIBUTE_SET, np.uint8),
    )


def halves(addresses: list[int], family: Family) -> tuple[np.ndarray, np.ndarray]:
    """Return addresses as the two columns of a prefix, left-aligned in 128 bits; the lower is empty for IPv4."""
    if not family.is_wide:
        return np.array([address << 32 for address in addresses], np.uint64), np.empty(0, np.uint64)
    mask = (1 << 64) - 1
    return (
        np.array([address >> 64 for address in addresses], np.uint64),
        np.array([address & mask for address in addresses], np.uint64),
    )
