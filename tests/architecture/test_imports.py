"""Who may import whom: the rules of ARCHITECTURE.md, read from the sources."""

import ast
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
