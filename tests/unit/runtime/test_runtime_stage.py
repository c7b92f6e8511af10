"""The skeleton of a stage, in one process and in a process of its own."""

import io
import os
import signal
import time
from pathlib import Path

import pytest

from common.bus.bus import Bus
from common.bus.control import ControlError
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.config.load import loads
from common.runtime.clock import ManualClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.stage import Context, Skeleton, Stage, stage_class

TEXT = '[router]\nasn = 65000\nrouter_id = "10.0.0.1"\nrun_dir = "{}"\n[log]\nlevel = "{}"\n'
OLD, NEW = loads(TEXT.format("/run/a", "info")), loads(TEXT.format("/run/b", "debug"))


class Counting(Stage):
    """A stage that counts what happens to it."""

    name = "counting"

    def __init__(self, config, instance, context):
        super().__init__(config, instance, context)
        self.calls = []
        self.n_pending = 0

    def start(self):
        self.calls.append("start")

    def step(self):
        if self.n_pending:
            self.n_pending -= 1
        return self.n_pending > 0

    def status(self):
        return {"n_pending": self.n_pending}

    def controls(self):
        return {"double": lambda question: {"n": question["n"] * 2}}

    def reload(self, config):
        self.config = config

    def drain(self):
        self.calls.append("drain")


@pytest.fixture
def skeleton():
    clock = ManualClock()
    loop = Loop(clock)
    log = Log("counting.0", stream=io.StringIO(), clock=clock)
    bus = Bus("/run", "counting", "0", loop, MemoryTransport(MemoryHub(), loop), log)
    context = Context(clock, loop, bus, Metrics("counting"), log, 1)
    return Skeleton(Counting(OLD, "0", context), context, lambda: NEW)


def ask(skeleton, question, **arguments):
    return skeleton.context.bus.control({}).answer({"ask": question, **arguments})


def test_status_is_the_stages_own_and_the_skeletons(skeleton):
    """What the stage says stands beside what the skeleton knows."""
    skeleton.start()
    skeleton.context.loop.turn()
    answer = ask(skeleton, "status")
    assert answer["ok"] and answer["n_pending"] == 0 and answer["stage"] == "counting"
    assert answer["loop"]["turns"] == 1 and answer["events"]["started"] == 1 and answer["pid"] == os.getpid()


def test_steps_are_taken_until_nothing_is_pending(skeleton):
    """The loop is busy as long as the stage has work."""
    skeleton.stage.n_pending = 3
    turns = 0
    while skeleton.context.loop.turn():
        turns += 1
    assert turns == 2 and skeleton.stage.n_pending == 0


def test_questions_of_stage_and_skeleton(skeleton):
    """A stage's own questions stand beside metrics, log-level and reload."""
    assert ask(skeleton, "double", n=4)["n"] == 8
    assert "headrace_counting_loop_phase_seconds" in ask(skeleton, "metrics")["text"]
    assert ask(skeleton, "log-level", level="error")["ok"] and skeleton.context.log.level == "error"
    assert "a level is one of" in ask(skeleton, "log-level", level="loud")["error"]
    texts = [change["text"] for change in ask(skeleton, "reload", check=True)["changes"]]
    assert texts == [
        "router.run_dir: /run/a -> /run/b: only at the next start of the router",
        "log.level: info -> debug: applied live",
    ]
    assert skeleton.stage.config is OLD
    assert ask(skeleton, "reload")["ok"] and skeleton.context.log.level == "debug"


def test_what_counts_from_the_start_stays_in_a_running_process(skeleton):
    """A key that takes a restart is not changed by a reload, the others are."""
    skeleton.reload()
    assert skeleton.stage.config.router.run_dir == OLD.router.run_dir and skeleton.stage.config.log.level == "debug"


def test_a_bad_configuration_never_replaces_the_one_that_runs(skeleton):
    """What cannot be loaded is refused, logged, and changes nothing."""

    def fail():
        raise ValueError("line 3: nonsense")

    skeleton._load_config = fail
    assert "line 3: nonsense" in ask(skeleton, "reload")["error"]
    with pytest.raises(ControlError):
        skeleton.reload()
    assert skeleton.stage.config is OLD and skeleton.context.log.counts["reload-refused"] == 2


@pytest.mark.parametrize("question", [{}, {"check": True}])
def test_each_error_of_a_wrong_configuration_is_told(skeleton, question):
    """As a list, too, so that a command can print them as `headrace check` does."""
    skeleton._load_config = lambda: loads('[router]\nasn = 0\nrouter_id = "x"\n', Path("/etc/h.toml"))
    errors = ask(skeleton, "reload", **question)["errors"]
    assert [error.partition(" must")[0] for error in errors] == [
        "/etc/h.toml: line 2: router.asn:",
        "/etc/h.toml: line 3: router.router_id:",
    ]


def test_stop_drains_before_it_ends(skeleton):
    """The stage says farewell while the bus is still open."""
    skeleton.start()
    ask(skeleton, "stop")
    skeleton.run()
    assert skeleton.stage.calls == ["start", "drain"] and skeleton.reason == "asked to"


def test_a_stage_that_is_not_there_is_named():
    """A wrong name is told as such."""
    with pytest.raises(LookupError, match="no stage 'weather'"):
        stage_class("weather")


def test_sigterm_wakes_a_sleeping_stage(skeleton):
    """A signal ends the loop's wait at once."""
    from common.runtime.stage import wake_on_signals

    loop = Loop()
    former = signal.signal(signal.SIGUSR1, lambda number, frame: loop.stop())
    try:
        with wake_on_signals(loop):
            loop.call_later(0, lambda: os.kill(os.getpid(), signal.SIGUSR1))
            before = time.monotonic()
            loop.run()
            assert time.monotonic() - before < 30, "it did not sleep its minute out"
    finally:
        signal.signal(signal.SIGUSR1, former)
        loop.close()
