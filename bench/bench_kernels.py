"""The kernels, measured: nanoseconds an item, compiled and from source, on the proportions of a full table.

Each file of bench/kernels has the cases of the kernel it is named after: `cases(scale, module)` returns tuples (label,
number of items, callable). A callable may be called any number of times; it is called once to warm up, then the best
of several calls counts, in CPU time, so that what else runs on the machine weighs little. From source the same cases
run on a much smaller table.

    python bench/bench_kernels.py --kernel routes --json results.json
"""

import inspect
import json
import platform
import sys
import time
from importlib import import_module
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from common import kernels  # noqa: E402

CASES = sorted(path.stem for path in Path(__file__).with_name("kernels").glob("*.py") if path.stem != "__init__")


def measure(call, n_items: int, repeat: int) -> float:
    """Return the CPU time of the best of `repeat` calls, in nanoseconds an item."""
    call()
    best = float("inf")
    for _ in range(repeat):
        start = time.thread_time_ns()
        call()
        best = min(best, time.thread_time_ns() - start)
    return best / max(n_items, 1)


def run(name: str, scale: float, repeat: int, is_compiled: bool) -> dict[str, tuple[float, int]]:
    """Measure the cases of one kernel; return ns an item and the number of items for each label."""
    cases = import_module(f"bench.kernels.{name}").cases
    if is_compiled:
        return {label: (measure(call, n, repeat), n) for label, n, call in cases(scale)}
    if "module" not in inspect.signature(cases).parameters:
        return {}
    return {label: (measure(call, n, 1), n) for label, n, call in cases(scale, kernels.uncompiled(name))}


def compare(name: str, scale: float, source_scale: float, repeat: int) -> list[dict]:
    """Measure one kernel both ways."""
    compiled = run(name, scale, repeat, True)
    source = run(name, source_scale, repeat, False) if source_scale > 0 else {}
    return [
        {
            "kernel": name,
            "label": label,
            "n_items": n_items,
            "compiled_ns": round(ns, 1),
            "uncompiled_ns": round(source[label][0], 1) if label in source else None,
        }
        for label, (ns, n_items) in compiled.items()
    ]


def line(result: dict) -> str:
    source = "-" if result["uncompiled_ns"] is None else f"{result['uncompiled_ns']:,.0f}"
    return f"{result['label']:<58} {result['n_items']:>10,} {result['compiled_ns']:>10,.1f} {source:>12}"


@click.command()
@click.option("--kernel", "names", multiple=True, type=click.Choice(CASES), help="Only this one; may come repeatedly.")
@click.option("--scale", default=1.0, show_default=True, help="Size of the tables; 1 is a full table.")
@click.option("--source-scale", default=0.002, show_default=True, help="Size from source; 0 leaves that out.")
@click.option("--repeat", default=3, show_default=True, help="Calls of which the best counts.")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here, too.")
def main(names: tuple[str, ...], scale: float, source_scale: float, repeat: int, output: Path | None) -> None:
    """Print nanoseconds an item for each kernel, compiled and from source."""
    if not kernels.is_compiled():
        raise click.ClickException("the kernels are not compiled: python setup.py build_ext --inplace")
    results = []
    click.echo(f"{'nanoseconds an item':<58} {'items':>10} {'compiled':>10} {'from source':>12}")
    for name in names or CASES:
        for result in compare(name, scale, source_scale, repeat):
            results.append(result)
            click.echo(line(result))
    for name in sorted(set(kernels.NAMES) - set(CASES)):
        click.echo(f"{name}: no cases in bench/kernels", err=True)
    if output:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "scale": scale}
        output.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
