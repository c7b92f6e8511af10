"""The README's table "Follow one route", held against one UPDATE on its way through the stages."""

import ast
import re
import sys
from pathlib import Path

from tests.pipeline.harness import Pipeline
from tests.pipeline.test_pipeline import CONFIG

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"(?m)^\| \d+ \| `([^`]+)` \| `([^`]+)` \|")


def steps() -> list[tuple[str, str]]:
    """Return (file, function) of each row."""
    section = (ROOT / "README.md").read_text().split("## Follow one route")[1].split("\n## ")[0]
    return ROW.findall(section)


def is_kernel(file: str) -> bool:
    return file.startswith("common/kernels/")


def test_every_function_is_in_its_file():
    """Each row names a function that its file defines."""
    for file, function in steps():
        defined = {
            node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if isinstance(node, ast.FunctionDef)
        }
        assert function in defined, file


def test_a_kernel_is_called_by_the_file_before_it():
    """A row that is a kernel follows the file that imports it (a compiled function leaves no trace)."""
    rows = steps()
    for (before, _), (file, _) in zip(rows, rows[1:], strict=False):
        if is_kernel(file):
            assert re.search(rf"from common\.kernels(\.{Path(file).stem}\b| import .*\b{Path(file).stem}\b)",
                             (ROOT / before).read_text())  # fmt: skip


def test_one_update_goes_the_way_of_the_table():
    """One UPDATE enters the files of the table in its order, from the speaker to the speaker."""
    traced = [step for step in steps() if not is_kernel(step[0]) and not step[0].startswith("stages/fib/")]
    wanted = {(str(ROOT / file), function): (file, function) for file, function in traced}
    entered: list[tuple[str, str]] = []

    def trace(frame, what, argument) -> None:
        step = wanted.get((frame.f_code.co_filename, frame.f_code.co_name)) if what == "call" else None
        if step is not None and step not in entered:
            entered.append(step)

    with Pipeline(CONFIG) as pipeline:
        sender, listener = pipeline.peer("a"), pipeline.peer("listener")
        pipeline.settle()
        sys.setprofile(trace)
        try:
            sender.announce(["198.51.100.0/24"], as_path=[64601])
            pipeline.settle()
        finally:
            sys.setprofile(None)
        assert "198.51.100.0/24" in listener.told
    assert entered == traced
