"""Headrace as it is run: processes, sockets, commands."""

import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests.processes.router import N_PREFIXES, ROOT, Neighbors, RunningRouter, until


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """A router that holds the sender's table and has told it to the listener."""
    running = RunningRouter(tmp_path_factory.mktemp("router"))
    neighbors = Neighbors(running.port)
    try:
        neighbors.wait_until_loaded()
        running.neighbors = neighbors
        yield running
    finally:
        neighbors.close()
        running.stop()


def test_show_neighbors(router):
    """`show neighbors` tells state and numbers of routes both ways."""
    rows = {row["name"]: row for row in router.call_json("show", "neighbors")}
    assert {row["state"] for row in rows.values()} == {"Established"}
    assert rows["sender"]["n_received"] == N_PREFIXES and rows["sender"]["n_advertised"] == 0
    assert rows["listener"]["n_received"] == 0 and rows["listener"]["n_advertised"] == N_PREFIXES
    assert router.call_json("show", "neighbor", "sender")["asn"] == 64601
    assert router.call("show", "neighbor", "nobody").returncode == 1


def test_show_routes_and_one_of_them(router):
    """`show routes` has all chosen routes; `show route` says of one why it was chosen, with the policy's local pref."""
    rows = [json.loads(line) for line in router.call("show", "routes", "--json").stdout.splitlines()]
    assert len(rows) == N_PREFIXES + 1
    learned = next(row for row in rows if row["neighbor"] == "sender")
    route = router.call_json("show", "route", learned["prefix"])
    assert [(row["neighbor"], row["is_chosen"], row["local_pref"]) for row in route["candidates"]] == [
        ("sender", True, 120)
    ]
    assert route["candidates"][0]["why"]
    assert router.call("show", "route", "198.51.100.255/32").returncode == 1


def test_received_and_advertised(router):
    """`show routes --received` is as the neighbor said it, `--advertised` as the other was told it."""
    received = [
        json.loads(line) for line in router.call("show", "routes", "--received", "sender", "--json").stdout.splitlines()
    ]
    told = [
        json.loads(line)
        for line in router.call("show", "routes", "--advertised", "listener", "--json").stdout.splitlines()
    ]
    assert len(received) == len(told) == N_PREFIXES
    paths = {row["prefix"]: row["as_path"] for row in received}
    assert all(row["as_path"] == f"65000 {paths[row['prefix']]}" for row in told)
    assert not any("local_pref" in row for row in told)


def test_tap_marks_its_snapshot(router):
    """A tap gets a snapshot between marks with every route once, and its lag."""
    tap = subprocess.Popen(
        [sys.executable, "-m", "common.cli.main", "tap", "loc-rib", "--json", "--run-dir", str(router.run_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines, n_ends = [], 0
        while n_ends < 2:
            lines.append(json.loads(tap.stdout.readline()))
            n_ends += lines[-1].get("mark") == "snapshot-end"
    finally:
        tap.terminate()
    assert tap.wait(10) == 0
    assert sum(line.get("mark") == "snapshot-begin" for line in lines) == 2
    prefixes = [line["prefix"] for line in lines if "prefix" in line]
    assert len(prefixes) == len(set(prefixes)) == N_PREFIXES + 1
    assert all(line["lag"] == 0 for line in lines if line.get("mark") == "snapshot-end")


def test_a_dead_stage_is_started_again_and_nobody_notices(router):
    """Policy, exporter and rib are killed in turn: each comes back, no session ends, the listener is told nothing."""
    listener = router.neighbors.player.listeners[0]
    n_updates = listener.n_updates
    for stage in ("policy", "exporter", "rib"):
        pid = router.pid_of(stage)
        os.kill(pid, signal.SIGKILL)
        until(lambda stage=stage, pid=pid: router.pid_of(stage) not in (0, pid) and router.answers(), f"a new {stage}")
    until(lambda: router.ask("rib", "summary", "is_open"), "the rib to be full again")
    sizes = router.ask("rib", "summary", "tables")
    assert sum(each["n_chosen"] for each in sizes.values()) == N_PREFIXES + 1
    assert {row["state"] for row in router.call_json("show", "neighbors")} == {"Established"}
    assert router.neighbors.failure is None
    assert listener.n_updates == n_updates
    stages = {row["stage"]: row for row in router.call_json("show", "stages")}
    assert all(stages[name]["restarts"] == 1 for name in ("policy", "exporter", "rib"))
    assert "SIGKILL" in stages["rib"]["reasons"][-1]


def test_status_page(router):
    """The page, the JSON and the metrics are served."""
    at = f"http://127.0.0.1:{router.status_port}"
    with urllib.request.urlopen(f"{at}/", timeout=10) as page:
        assert b"<html" in page.read()
    with urllib.request.urlopen(f"{at}/api/v1/neighbors", timeout=10) as answer:
        assert {row["name"] for row in json.load(answer)["neighbors"]} == {"sender", "listener"}
    with urllib.request.urlopen(f"{at}/metrics", timeout=10) as metrics:
        assert b"headrace_rib_prefixes_chosen" in metrics.read()


def test_bad_configuration_never_replaces_a_running_one(router):
    """A reload with a wrong file is refused with the errors and the status of `check`, and everything goes on."""
    good = router.file.read_text()
    router.file.write_text(good.replace("asn = 64601", "asn = 0").replace("asn = 64700", "asn = 23456"))
    try:
        checked = router.call("check", str(router.file))
        for command in (("reload", "--check"), ("reload",)):
            done = router.call(*command)
            assert (done.returncode, done.stdout) == (checked.returncode, "") == (2, "")
            assert done.stderr == checked.stderr.replace("2 errors", "2 errors: not reloaded, nothing has changed")
        os.kill(router.process.pid, signal.SIGHUP)
        until(lambda: "reload-refused" in router.log.read_text(), "the refusal in the log")
    finally:
        router.file.write_text(good)
    assert {row["state"] for row in router.call_json("show", "neighbors")} == {"Established"}


def test_reload_says_what_it_changes_and_does_it(router):
    """`reload --check` tells the differences only, `reload` applies them too; no session is lost over a policy."""
    good = router.file.read_text()
    listener = router.neighbors.player.listeners[0]
    told = listener.n_updates
    changed = good.replace("originated_routes = false }", "originated_routes = false, as_path_prepend = 2 }")
    assert changed != good
    router.file.write_text(changed)
    try:
        for command in (("reload", "--check"), ("reload",)):
            done = router.call(*command, "--run-dir", str(router.run_dir))
            assert done.returncode == 0 and "as_path_prepend: 0 -> 2: routes are evaluated again" in done.stdout
        until(lambda: listener.n_updates > told, "the listener told anew")
    finally:
        router.file.write_text(good)
        router.call("reload", "--run-dir", str(router.run_dir))
    assert {row["state"] for row in router.call_json("show", "neighbors")} == {"Established"}
    assert "no differences" in router.call("reload", "--check", "--run-dir", str(router.run_dir)).stdout


def test_stop_in_order(tmp_path):
    """SIGTERM: each peer gets a Cease, the exit status is 0, and nothing is left running."""
    router = RunningRouter(tmp_path)
    neighbors = Neighbors(router.port)
    neighbors.wait_until_loaded()
    pids = [row["pid"] for row in router.ask("supervisor", "status", "stages")]
    assert router.stop() == 0
    neighbors.close()
    assert "NOTIFICATION" in str(neighbors.failure)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_two_routers_in_one_directory(tmp_path):
    """A second `headrace run` in the same run directory is refused, and the first goes on."""
    router = RunningRouter(tmp_path)
    try:
        second = router.call("run", str(router.file))
        assert second.returncode == 1
        assert "already runs" in second.stderr
        assert router.answers()
    finally:
        assert router.stop() == 0


def test_tap_of_what_a_neighbor_is_told(router):
    """`tap adj-rib-out --neighbor` shows what that neighbor has been told, and needs the neighbor's name."""
    command = [sys.executable, "-m", "common.cli.main", "tap", "adj-rib-out/ipv4-unicast", "--json"]
    tap = subprocess.Popen(
        [*command, "--neighbor", "listener", "--run-dir", str(router.run_dir)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        lines = []
        while not lines or lines[-1].get("mark") != "snapshot-end":
            lines.append(json.loads(tap.stdout.readline()))
    finally:
        tap.terminate()
    assert tap.wait(10) == 0
    told = [line for line in lines if "prefix" in line and not line["is_gone"]]
    assert len(told) == N_PREFIXES // 2
    assert all(line["as_path"].startswith("65000 64601") for line in told)
    assert router.call("tap", "adj-rib-out").returncode == 2


def test_neighbor_stop_and_start(router):
    """A stopped session ends and stays so; once started, it waits for its neighbor again. The other is left alone."""

    def states() -> list[str]:
        return [router.call_json("show", "neighbor", name)["state"] for name in ("listener", "sender")]

    assert router.call("neighbor", "stop", "127.0.0.3", "--text", "night falls").returncode == 0
    assert states() == ["Idle", "Established"]
    assert router.call("neighbor", "start", "listener").returncode == 0
    assert states() == ["Active", "Established"]
    assert router.call("neighbor", "stop", "listner").returncode == 1
