"""Cases of the benchmark: the columns of small batches."""

import numpy as np

from common.bus.batch import Batch, decode, encode, no_sets
from common.bus.schema import RouteChanges
from common.kernels import columns

SET = bytes([4, 192, 0, 2, 1, 0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, *bytes(8)])


def cases(scale: float = 1.0, module=columns) -> list:
    """Return (label, number of items, callable) for batches of one row and of a hundred."""
    return [case(rows, max(int(n * scale), 10), module) for rows, n in ((1, 100_000), (100, 10_000))]


def case(n_rows: int, n: int, module) -> tuple:
    values = {"hi": np.arange(n_rows, dtype=np.uint64) << np.uint64(40), "length": np.full(n_rows, 24, np.uint8)}
    values |= {name: np.zeros(n_rows, np.uint32) for name in ("source", "set")} | no_sets()
    values |= {"reason": np.zeros(n_rows, np.uint8), "set_octets": np.frombuffer(SET, np.uint8)}
    values["set_offset"] = np.array([0, len(SET)], np.uint32)
    batch = Batch(RouteChanges, values, {"family": "ipv4-unicast", "sources": [{}]})
    _, octets, counts = decode(encode(batch, 1))[1].joined
    layout = module.Layout(*COLUMNS)

    def split() -> None:
        for _ in range(n):
            assert layout.split(octets, counts, 32, 1)

    return f"split batches of {n_rows} rows", n * n_rows, split


# As batch.py has it for RouteChanges.
COLUMNS = (
    [
        (8, columns.ROW, columns.ANY, False),
        (8, columns.NOTHING, columns.ANY, False),
        (1, columns.ROW, columns.LONGEST, False),
        (4, columns.ROW, columns.SOURCES, False),
        (4, columns.ROW, columns.SETS, True),
        (1, columns.ROW, columns.ANY, False),
        (4, columns.SET, columns.ANY, False),
        (1, columns.OCTET, columns.ANY, False),
    ],
    -1,
    6,
    7,
)
