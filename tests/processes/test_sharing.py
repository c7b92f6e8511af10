"""Several instances of each stage, as processes: they come and go with a reload, and nobody outside notices."""

import json

import pytest

from tests.processes.router import N_PREFIXES, Neighbors, RunningRouter, until

SEVERAL = """
[rib]
instances = 4

[policy]
instances = 2

[exporter]
instances = ["left", "right"]
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """A router with one of each stage, that holds the sender's table and has told it to the listener."""
    running = RunningRouter(tmp_path_factory.mktemp("sharing"))
    neighbors = Neighbors(running.port)
    try:
        neighbors.wait_until_loaded()
        yield running
    finally:
        neighbors.close()
        running.stop()


def lines_of(router, *words: str) -> list[dict]:
    """Return the rows of a command that writes one JSON object a line, in the order of their prefixes."""
    rows = [json.loads(line) for line in router.call("show", "routes", *words, "--json").stdout.splitlines()]
    return sorted(rows, key=lambda row: row["prefix"])


def seen_outside(router) -> dict:
    """Return what neighbors have been sent, and since when their sessions stand."""
    told = {name: router.call_json("show", "neighbor", name) for name in ("sender", "listener")}
    return {name: (row["n_established"], row["messages_sent"]["UPDATE"]) for name, row in told.items()}


def reload(router, text: str, n_ribs: int) -> list[dict]:
    """Go over to another configuration; return the stages when all are in step."""
    router.file.write_text(text)
    result = router.call("reload")
    assert result.returncode == 0 and "each rib starts anew" in result.stdout, result.stderr

    def stages_in_step() -> list[dict]:
        rows = router.call_json("show", "stages") if router.answers() else []
        n_there = sum(row["stage"] == "rib" for row in rows)
        return rows if n_there == n_ribs and all(row["state"] == "in step" for row in rows) else []

    return until(stages_in_step, "all stages in step")


def test_one_and_several_of_each_are_the_same(router):
    """Four ribs, two policy stages, two exporters have the result of one of each; going over costs no UPDATE."""
    one = router.file.read_text()
    tables = lines_of(router), lines_of(router, "--advertised", "listener")
    assert len(tables[0]) == N_PREFIXES + 1 and len(tables[1]) == N_PREFIXES
    outside = seen_outside(router)
    stages = reload(router, one + SEVERAL, 4)
    owned = {f"{row['stage']}.{row['instance']}": row["owns"] for row in stages}
    assert [owned[f"rib.{n}"] for n in range(4)] == [[f"prefixes, share {n + 1} of 4"] for n in range(4)]
    assert all(owned[name] for name in ("policy.0", "policy.1", "exporter.left", "exporter.right"))
    assert owned["speaker.0"] == ["listener", "sender"] and "exporter.0" not in owned
    assert (lines_of(router), lines_of(router, "--advertised", "listener")) == tables
    assert seen_outside(router) == outside
    prefix = tables[0][0]["prefix"]
    route = router.call_json("show", "route", prefix)
    assert route["prefix"] == prefix and route["candidates"][0]["is_chosen"]
    reload(router, one, 1)
    assert (lines_of(router), lines_of(router, "--advertised", "listener")) == tables
    assert seen_outside(router) == outside
    assert not list(router.run_dir.glob("rib.3.*")), "a stage that ends leaves no socket"
