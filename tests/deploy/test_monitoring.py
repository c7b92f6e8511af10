"""Alert rules and dashboard: that they are well formed, and speak of metrics there are."""

import ast
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from common.config.schema import STAGES

ROOT = Path(__file__).parents[2]
PROMETHEUS, DASHBOARD = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana" / "headrace.json"
MAKERS = {"gauge": "", "counter": "_total", "histogram": "_bucket"}

needs_promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs promtool")


def declared(path: Path) -> set[str]:
    """Return the names of the metrics a source declares, without what stands before them."""
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return {
        call.args[0].value + MAKERS[call.func.attr]
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in MAKERS
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def known_metrics() -> set[str]:
    """Return the full names of all metrics of the code."""
    of_all = declared(ROOT / "common" / "runtime" / "stage.py")
    names = {"headrace_status_answering_flag"}
    for stage in STAGES:
        own = set().union(*(declared(path) for path in (ROOT / "stages" / stage).glob("*.py")))
        names |= {f"headrace_{stage}_{name}" for name in own | of_all}
    return names


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\bheadrace_[a-z0-9_]+", text))


def test_metrics_are_found_in_the_code():
    """The search that the other tests rest on finds what is known to be there."""
    assert {"headrace_rib_events_total", "headrace_speaker_session_state"} <= known_metrics()


def test_the_dashboard_shows_metrics_there_are():
    """Every expression of a panel names metrics of the code, and each panel has a title and a place."""
    board = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    unknown = set().union(*map(metrics_in, expressions)) - known_metrics()
    assert len(expressions) > 20 and not unknown
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) and all(panel["title"] for panel in board["panels"])


def test_the_alerts_are_about_metrics_there_are():
    """Every rule names metrics of the code, and says why it is there and where to look."""
    text = (PROMETHEUS / "headrace.rules.yml").read_text()
    assert not metrics_in("\n".join(re.findall(r"expr: (.*)", text))) - known_metrics()
    rules = text.count("- alert:")
    assert rules and rules == text.count("reason:") == text.count("look:") == text.count("summary:")


@needs_promtool
@pytest.mark.parametrize(
    "words", [("check", "config", "prometheus.yml"), ("test", "rules", "headrace.tests.yml")], ids=lambda each: each[0]
)
def test_promtool(words):
    """Prometheus takes the configuration, and the alerts fire when they should."""
    result = subprocess.run(["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
