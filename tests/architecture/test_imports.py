"""Who may import whom: the rules of ARCHITECTURE.md, read from the sources."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for top in ("common", "stages") for path in (ROOT / top).rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    """Return the full names of all modules a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def offenders(is_wrong, files=SOURCES) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in sorted(imports_of(path))
        if is_wrong(path.relative_to(ROOT).as_posix(), name)
    ]


def test_no_stage_imports_another():
    """A stage knows no other stage: what they share is in common/."""

    def is_wrong(path: str, name: str) -> bool:
        parts = name.split(".")
        return parts[0] == "stages" and len(parts) > 1 and path.startswith("stages/") and path.split("/")[1] != parts[1]

    assert offenders(is_wrong) == []


def test_common_imports_no_stage():
    """Nothing in common/ depends on a stage; the skeleton finds stages by name."""
    assert offenders(lambda path, name: path.startswith("common/") and name.split(".")[0] == "stages") == []


@pytest.mark.parametrize(
    ("module", "owners"),
    [
        ("zmq", {"common/bus/zmq_transport.py", "common/bus/question.py"}),
        ("pyroute2", {"stages/fib/", "stages/speaker/"}),
        ("flask", {"stages/status/"}),
        ("waitress", {"stages/status/"}),
        ("click", {"common/cli/", "stages/feed/command.py"}),
        ("rich", {"common/cli/"}),
        ("prometheus_client", {"common/runtime/metrics.py", "stages/status/"}),
    ],
)
def test_outside_things_have_one_place(module, owners):
    """Each library for something outside is imported in its own place alone."""

    def is_wrong(path: str, name: str) -> bool:
        return name.split(".")[0] == module and not any(path.startswith(owner) for owner in owners)

    assert offenders(is_wrong) == []


@pytest.mark.parametrize("module", ["socket", "time", "zmq", "threading", "selectors"])
def test_protocol_is_sans_io(module):
    """The protocol and the kernels touch neither a socket nor a clock."""
    pure = [path for path in SOURCES if path.parent.name in ("bgp", "kernels")]
    assert offenders(lambda path, name: name.split(".")[0] == module, pure) == []


def test_no_kernel_imports_another():
    """A kernel calls no other kernel."""
    kernels = [path for path in SOURCES if path.parent.name == "kernels" and path.name != "__init__.py"]
    allowed = {"common.kernels", "common.kernels.view_arguments"}
    assert offenders(lambda path, name: name.startswith("common.kernels") and name not in allowed, kernels) == []


def test_a_kernel_imports_numbers_and_arrays_only():
    """A kernel takes columns and gives columns; of the rest it knows the standard's numbers, which are said once."""
    allowed = {"cython", "numpy", "typing", "common.arrays", "common.kernels"} | {
        f"common.bgp.{name}" for name in ("constants", "decision", "reasons", "rules")
    }
    kernels = [path for path in SOURCES if path.parent.name == "kernels" and path.name != "__init__.py"]

    def is_wrong(path: str, name: str) -> bool:
        return name != "common.bgp" and not any(name == module or name.startswith(f"{module}.") for module in allowed)

    assert kernels and offenders(is_wrong, kernels) == []


def test_the_bus_is_free_of_sockets_but_for_its_transport():
    """What decides on the bus runs in one process for tests."""
    outside = {"socket", "select", "selectors", "threading", "time", "subprocess"}
    edges = {f"common/bus/{name}.py" for name in ("zmq_transport", "question", "threshold")}
    bus = [path for path in SOURCES if path.parent.name == "bus"]
    assert bus and offenders(lambda path, name: name in outside and path not in edges, bus) == []


def test_time_comes_from_the_clock():
    """Nothing that a stage does depends on the system's time, so a run can be turned by hand."""
    in_real_time = ("stages/feed/", "stages/status/", "common/runtime/clock.py", "common/cli/")

    def is_wrong(path: str, name: str) -> bool:
        return name.split(".")[0] == "time" and not path.startswith(in_real_time)

    assert offenders(is_wrong) == []


def test_every_stage_has_the_same_shape():
    """A stage is found by its name, and its package states its contract."""
    from common.runtime.stage import Stage, stage_class

    names = sorted(path.parent.name for path in SOURCES if path.name == "stage.py" and path.parts[-3] == "stages")
    assert {"speaker", "policy", "rib", "exporter", "fib"} <= set(names)
    for name in names:
        found = stage_class(name)
        assert issubclass(found, Stage) and found.name == name
        contract = sys.modules[f"stages.{name}"].__doc__ or ""
        missing = [word for word in ("Reads", "Writes", "Owns", "Never", "When it dies") if word not in contract]
        assert not missing, f"stages/{name}/__init__.py"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_says_what_it_is(path):
    """A module begins with its one job."""
    source = ast.parse(path.read_text(encoding="utf-8"))
    assert not source.body or (ast.get_docstring(source) or "").strip()
