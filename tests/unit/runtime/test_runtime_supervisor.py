"""The supervisor, with real processes: restarts, their reasons, order of stopping, shared pages."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from common.bus.control import ask
from common.config.load import loads
from common.runtime.supervisor import (
    AlreadyRunning,
    describe_exit,
    lock_pid_file,
    next_delay_s,
    planned,
    release_pid_file,
)

DEADLINE_S = 30

PROGRAM = """
import os, signal, sys
from pathlib import Path
from common.config.load import load
from common.runtime.loop import Loop
from common.runtime.stage import wake_on_signals
from common.runtime.supervisor import Supervisor

run_dir = Path({run_dir!r})

def run(name, config, instance, recorder):
    with open(run_dir / "order", "a") as order:
        order.write(f"start {{name}} {{os.getpid()}}\\n")
    if name == "policy" and not (run_dir / "second").exists():
        (run_dir / "second").touch()
        raise RuntimeError("a mistake in policy")
    loop = Loop()
    def beat():
        recorder.beat(loop.clock.monotonic())
        loop.call_later(0.1, beat)
    beat()
    signal.signal(signal.SIGTERM, lambda number, frame: loop.stop())
    signal.signal(signal.SIGHUP, lambda number, frame: (run_dir / f"hup-{{name}}").touch())
    with wake_on_signals(loop):
        loop.run()
    with open(run_dir / "order", "a") as order:
        order.write(f"stop {{name}}\\n")
    return 0

plan = [("fib", "0"), ("rib", "0"), ("policy", "0"), ("speaker", "0")]
sys.exit(Supervisor(load(run_dir / "headrace.toml"), plan, run).run())
"""


ONE_MORE = '\n[[neighbor]]\nname = "x"\naddress = "10.0.0.9"\nasn = 64601\n'


@pytest.fixture
def run_dir():
    path = Path(tempfile.mkdtemp(prefix="hr"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def supervisor(run_dir):
    """A supervisor of four little stages in a process of its own."""
    (run_dir / "headrace.toml").write_text(
        f'[router]\nasn = 65000\nrouter_id = "10.0.0.1"\nrun_dir = "{run_dir}"\n'
        "[supervisor]\nrestart_delay_s = 0.02\nhang_time_s = 2\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM).format(run_dir=str(run_dir))],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    yield process
    process.kill()
    process.communicate()


def wait_for(condition):
    """Return what `condition` gives once it gives something."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError, OSError):
            if result := condition():
                return result
        os.sched_yield()
    raise AssertionError("not in time")


def stages(run_dir) -> dict[str, dict]:
    return {stage["stage"]: stage for stage in ask(run_dir, "supervisor", "0", "status", 1)["stages"]}


def all_running(run_dir):
    found = stages(run_dir)
    started = (run_dir / "order").read_text().count("start")
    is_ready = all(stage["state"] == "running" for stage in found.values())
    return found if is_ready and started >= 5 else None


def test_a_stage_that_dies_is_started_again_and_the_reason_is_kept(run_dir, supervisor):
    """Death by exception and death by signal are both told, and others do not notice."""
    found = wait_for(lambda: all_running(run_dir))
    assert found["policy"]["reasons"] == ["exit status 1"] and found["policy"]["restarts"] == 1
    rib = found["rib"]["pid"]
    os.kill(rib, signal.SIGKILL)
    again = wait_for(lambda: (new := all_running(run_dir)) and new["rib"]["pid"] != rib and new)
    assert again["rib"]["reasons"] == ["signal SIGKILL"]
    assert again["speaker"]["pid"] == found["speaker"]["pid"]
    assert ask(run_dir, "supervisor", "0", "restart", 5, name="speaker.0")["restarted"] == ["speaker.0"]
    wait_for(lambda: (new := stages(run_dir)["speaker"])["restarts"] == 1 and new["state"] == "running")
    told = next(line for line in supervisor.stderr if "asked to" in line)
    assert told.split()[1:4] == ["INFO", "supervisor.0", "stage-ended"]  # no error: somebody wanted it


def test_the_pause_grows_only_where_a_stage_fails():
    """One that fails again and again waits ever longer; one that is killed, however often, does not."""
    config = loads("[router]\nasn = 65000\nrouter_id = '10.0.0.1'\n").supervisor
    first, longest, reset_s = config.restart_delay_s, config.restart_delay_maximum_s, config.restart_reset_s

    def pauses(ran_s: float, is_killed: bool) -> list[float]:
        found = [0.0]
        for _ in range(12):
            found.append(next_delay_s(found[-1], ran_s, is_killed, config))
        return found[1:]

    assert pauses(5, is_killed=True) == pauses(reset_s, is_killed=False) == [first] * 12
    for failing in (pauses(5, is_killed=False), pauses(0.1, is_killed=True)):
        assert failing[:3] == [first, 2 * first, 4 * first] and failing[-1] == longest


def test_a_stage_that_hangs_is_killed_and_started_again(run_dir, supervisor):
    """A process that is stopped is noticed by its silence, and that is the reason given."""
    found = wait_for(lambda: all_running(run_dir))
    os.kill(found["rib"]["pid"], signal.SIGSTOP)
    again = wait_for(lambda: (new := all_running(run_dir)) and new["rib"]["pid"] != found["rib"]["pid"] and new)
    assert again["rib"]["reasons"][-1].startswith("no sign of life for")
    assert {name: stage["restarts"] for name, stage in again.items()} == {"fib": 0, "rib": 1, "policy": 1, "speaker": 0}


def test_sigterm_stops_the_speaker_first_and_the_fib_last(run_dir, supervisor):
    """Everything stops in order, and nothing is left behind."""
    found = wait_for(lambda: all_running(run_dir))
    supervisor.terminate()
    _, errors = supervisor.communicate(timeout=DEADLINE_S)
    assert supervisor.returncode == 0, errors
    stopped = [line.split()[1] for line in (run_dir / "order").read_text().splitlines() if line.startswith("stop")]
    assert stopped[0] == "speaker" and stopped[-1] == "fib" and sorted(stopped[1:3]) == ["policy", "rib"]
    assert not (run_dir / "headrace.pid").exists()
    assert "a mistake in policy" in errors
    for stage in found.values():
        with pytest.raises(ProcessLookupError):
            os.kill(stage["pid"], 0)


def test_children_do_not_outlive_a_killed_supervisor(run_dir, supervisor):
    """When the supervisor is killed outright all stages are gone, also one that hangs; another can start at once."""
    pids = [stage["pid"] for stage in wait_for(lambda: all_running(run_dir)).values()]
    os.kill(pids[1], signal.SIGSTOP)
    supervisor.kill()
    supervisor.wait()
    wait_for(lambda: not any(is_alive(pid) for pid in pids))
    assert "stop" not in (run_dir / "order").read_text()
    release_pid_file(run_dir, lock_pid_file(run_dir))


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_sighup_reaches_the_stages_only_with_a_good_file(run_dir, supervisor):
    """A bad file is refused as a whole; a good one is passed on."""
    wait_for(lambda: all_running(run_dir))
    good = (run_dir / "headrace.toml").read_text()
    (run_dir / "headrace.toml").write_text("nonsense")
    with pytest.raises(Exception, match="not reloaded"):
        ask(run_dir, "supervisor", "0", "reload", 5)
    (run_dir / "headrace.toml").write_text(good)
    assert not (run_dir / "hup-rib").exists()
    os.kill(supervisor.pid, signal.SIGHUP)
    wait_for(lambda: all((run_dir / f"hup-{name}").exists() for name in ("rib", "fib", "policy", "speaker")))


def test_check_only_says_what_would_change(run_dir, supervisor):
    """With `check` the differences are told and nobody is; a file that changed since then is not applied unseen."""
    wait_for(lambda: all_running(run_dir))
    file = run_dir / "headrace.toml"
    file.write_text(file.read_text() + ONE_MORE)
    answer = ask(run_dir, "supervisor", "0", "reload", 5, check=True)
    assert [change["text"] for change in answer["changes"]] == ["neighbor.x: none -> AS 64601, 10.0.0.9: applied live"]
    assert not (run_dir / "hup-rib").exists() and len(stages(run_dir)) == 4
    with pytest.raises(Exception, match="has changed since"):
        ask(run_dir, "supervisor", "0", "reload", 5, fingerprint="another")
    assert ask(run_dir, "supervisor", "0", "reload", 5, fingerprint=answer["fingerprint"])["changes"]
    wait_for(lambda: (run_dir / "hup-rib").exists())


def test_speakers_come_and_go_with_the_configuration(run_dir, supervisor):
    """A reload starts a speaker that a neighbor names first, and ends one that none names any more."""
    wait_for(lambda: all_running(run_dir))
    file = run_dir / "headrace.toml"
    text = file.read_text()

    def instances() -> dict[str, str]:
        answer = ask(run_dir, "supervisor", "0", "status", 5)["stages"]
        return {row["instance"]: row["state"] for row in answer if row["stage"] == "speaker"}

    file.write_text(text + ONE_MORE + 'speaker = "west"\n')
    ask(run_dir, "supervisor", "0", "reload", 5)
    wait_for(lambda: instances() == {"0": "running", "west": "running"})
    file.write_text(text)
    ask(run_dir, "supervisor", "0", "reload", 5)
    assert instances() == {"0": "running"}
    wait_for(lambda: "stop speaker" in (run_dir / "order").read_text())


def test_children_share_the_parents_pages(run_dir, supervisor):
    """A child's own memory is a small part of what it has mapped."""
    found = wait_for(lambda: all_running(run_dir))
    rollup = Path(f"/proc/{found['rib']['pid']}/smaps_rollup").read_text()
    size = {line.split()[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    assert size["Private_Dirty:"] < size["Rss:"] / 2


def test_a_second_supervisor_is_turned_away(run_dir):
    """One run directory has one supervisor; a stale pid file is not in the way."""
    (run_dir / "headrace.pid").write_text("12345\n")
    lock = lock_pid_file(run_dir)
    assert (run_dir / "headrace.pid").read_text() == f"{os.getpid()}\n"
    with pytest.raises(AlreadyRunning, match=str(os.getpid())):
        lock_pid_file(run_dir)
    release_pid_file(run_dir, lock)
    release_pid_file(run_dir, lock_pid_file(run_dir))


def test_the_plan_follows_the_configuration():
    """A route server runs no fib."""
    text = '[router]\nasn = 65000\nrouter_id = "10.0.0.1"\n'
    names = [name for name, _ in planned(loads(text + "[fib]\nenabled = false\n[status]\nenabled = false\n"))]
    assert sorted(names) == ["exporter", "policy", "rib", "speaker"]
    names = [name for name, _ in planned(loads(text + "[fib]\nenabled = true\n"))]
    assert "fib" in names and "status" in names


def test_exits_in_words():
    """A wait status says how a process ended."""
    assert describe_exit(signal.SIGSEGV) == "signal SIGSEGV"
    assert describe_exit(3 << 8) == "exit status 3"


@pytest.mark.parametrize("number", range(1, 65))
def test_every_signal_has_words(number):
    """No signal, also none without a name, can end a child so that its supervisor does not know what to say."""
    assert describe_exit(number).startswith("signal ")
