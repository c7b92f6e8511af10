"""What all interoperation tests share: where they can run, and the logs of all programs when one fails.

With HEADRACE_SKIP_NOTHING set, as continuous integration has it, a missing daemon is a failure. HEADRACE_KEEP_LOGS
leaves the directory of each network behind, HEADRACE_DEADLINE_S is how long a condition may take (30 s).
"""

import os
import shutil

import pytest

from tests.interop.daemons import ALL
from tests.interop.exchange import Exchange

MUST_RUN = bool(os.environ.get("HEADRACE_SKIP_NOTHING"))
CAN_RUN = os.geteuid() == 0 and shutil.which("ip") is not None


def pytest_collection_modifyitems(items):
    """Leave out what cannot run here: without root or namespaces all, without its daemon each."""
    if MUST_RUN:
        return
    missing = {kind.name for kind in ALL if not kind.is_installed()}
    for item in items:
        if "tests/interop/" not in item.path.as_posix():
            continue
        if not CAN_RUN:
            item.add_marker(pytest.mark.skip(reason="needs root and iproute2"))
        elif missing:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(sorted(missing))}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the last lines of every program's log to the report of a failed test."""
    report = yield
    if report.failed:
        for value in getattr(item, "funcargs", {}).values():
            if isinstance(value, Exchange):
                report.sections.append(("Logs", value.network.logs()))
    return report
