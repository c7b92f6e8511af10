"""Cases of the benchmark: the plan of the kernel's routes."""

import numpy as np

from common.kernels import plan

BATCH = 2048
WAYS = 8


def cases(scale: float = 1.0, module=plan) -> list:
    """Return (label, number of items, callable): a table wanted, taken and settled, and wanted again unchanged."""
    n = max(int(1_230_000 * scale), 100)
    rows = np.random.default_rng(1).permutation(n).astype(np.uint32) + np.uint32(1)
    ways = (rows % WAYS + 1).astype(np.uint32)
    usable, n_wanted, n_installed = (
        np.ones(WAYS + 1, np.uint8),
        np.zeros(WAYS + 1, np.uint32),
        np.zeros(WAYS + 1, np.uint32),
    )
    errors, tally = np.zeros(BATCH, np.int32), np.zeros(plan.TALLY, np.int64)
    wanted, installed = np.zeros(n + 1, np.uint32), np.zeros(n + 1, np.uint32)
    flags, trouble = np.zeros(n + 1, np.uint8), np.zeros(n + 1, np.uint8)
    columns = (wanted, installed, flags, trouble, usable, n_wanted, tally)

    def install() -> None:
        for column in (wanted, installed, flags, n_wanted, n_installed, tally):
            column[:] = 0
        for at in range(0, n, BATCH):
            queue = module.want(rows[at : at + BATCH], ways[at : at + BATCH], *columns)
            taken, actions, targets, *_ = module.take(queue, wanted, installed, flags, trouble, usable, tally)
            module.settle(
                taken, actions, targets, errors[: len(taken)], wanted, installed, flags, trouble, n_installed, tally
            )  # fmt: skip

    def confirm() -> None:
        for at in range(0, n, BATCH):
            module.want(rows[at : at + BATCH], ways[at : at + BATCH], *columns)

    install()
    return [("want, take, settle", n, install), ("want what is installed", n, confirm)]
