"""Cases of the benchmark: the table behind an Adj-RIB-Out."""

import numpy as np

from common.kernels import exports


def cases(scale: float = 1.0, module=exports) -> list:
    """Return (label, number of items, callable) for a table of 1 M rows and 200 k sets times `scale`."""
    n_rows, n_sets = int(1_000_000 * scale), int(200_000 * scale) + 1
    rng = np.random.default_rng(1)
    rows = np.arange(1, n_rows + 1, dtype=np.uint32)
    sets = (np.sort(rng.integers(0, n_sets - 1, n_rows)) + 1).astype(np.uint32)
    sources = np.ones(n_rows, np.uint32)
    table = module.ExportTable(n_rows + 1)
    references = np.zeros(n_sets, np.uint32)
    told = np.zeros(n_rows // 8 + 1, np.uint8)
    nobody = np.zeros(n_rows, np.uint32)

    def fill_and_empty() -> None:
        table.apply(rows, sets, sources, references)
        table.apply(rows, nobody, sources, references)

    filled = module.ExportTable(n_rows + 1)
    uses = np.zeros(n_sets, np.uint32)
    filled.apply(rows, sets, sources, uses)
    member = filled.join()
    others = [filled.join() for _ in range(3)]
    turned = np.roll(sets, 1)

    def change_and_look() -> None:
        for columns in (turned, sets):
            filled.apply(rows, columns, sources, uses)
            for each in (member, *others):
                filled.select(rows, told, 2, each, uses)

    return [
        ("export table, write, per row", 2 * n_rows, fill_and_empty),
        ("export table, select, per row", n_rows, lambda: filled.select(rows, told, 2, member, uses, True)),
        ("export table, change and select by four, per row", 2 * n_rows, change_and_look),
        ("export table, order by set, per row", n_rows, lambda: filled.ordered(n_sets)),
    ]
