"""Which share a prefix belongs to, where ribs share out the prefixes.

Owns the hash. It is part of what stages agree on, so it has no seed: a speaker, a rib that was started again and a fib
come to the same share. Only the upper bits of a prefix count, so that neighboring prefixes, which often are of one
origin and share an attribute set, are in one share, and that set is evaluated once.
"""

from typing import Final

import numpy as np

from common.config.sharing import Share

BITS_IPV4: Final = 20
BITS_IPV6: Final = 40

_HALF: Final = np.uint64(32)
_FACTORS: Final = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def is_in_share(share: Share, hi: np.ndarray, is_wide: bool) -> np.ndarray:
    """Tell of each prefix, by the upper half of its 128 bits, whether it belongs to a share."""
    mixed = hi >> np.uint64(64 - (BITS_IPV6 if is_wide else BITS_IPV4))
    for factor in _FACTORS:
        mixed *= factor
        mixed ^= mixed >> _HALF
    return (mixed >> _HALF) * np.uint64(share.count) >> _HALF == share.index
