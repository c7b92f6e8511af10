"""The supervisor: `headrace run`, one parent that starts all stages, restarts those that die, and stops them in order.

Owns the children, the pid file and its lock. Never touches a route. It imports what the stages need before it forks, so
that all of them share its pages; what it has is frozen for the garbage collector, which would otherwise write into
every page.

    waiting ──timer──▶ running ──died──▶ waiting (0.1 s, 0.2 s, ... 10 s; from the beginning after 30 s of running)
                          └────SIGTERM──▶ stopping ──exit──▶ stopped

Each child has a page of memory (recorder.py) where it notes that its loop turns and which batch it is handling. A child
that has not turned for too long is killed. One that failed while it was handling a batch is started carefully: it takes
batches apart by neighbor. If it fails at the same neighbor's routes again and again, that neighbor's session is ended.

No child outlives the supervisor: if that is killed, the kernel kills all of them, those that hang too. The next one
goes on as after the loss of every stage.
"""

import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from common.bus.control import ControlError, ask
from common.bus.keyring import KeyTrouble
from common.config.changes import pinned
from common.config.load import load
from common.config.schema import Config
from common.config.schema import Supervisor as SupervisorConfig
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.ports import check_ports
from common.runtime.processes import raise_descriptor_limit
from common.runtime.recorder import Recorder
from common.runtime.stage import (
    describe_changes,
    make_context,
    make_run_dir,
    refusal,
    run_stage,
    set_title,
    stage_class,
    wake_on_signals,
)

PID_FILE: Final = "headrace.pid"
REASONS_KEPT: Final = 10
STOP_ORDER: Final = ("speaker", None, "fib")
"""The speaker first, so that peers get a Cease; the fib last, so that packets find their way until the end."""
SHARED: Final = ("rib", "policy", "exporter", "speaker")
"""Stages whose instances come and go with the configuration, in the order in which they are started."""
PR_SET_PDEATHSIG: Final = 1

START_PATIENCE: Final = 6
"""A stage that has not turned yet may be silent so many times longer: a fib may have a full kernel to read."""
ASK_TIME_S: Final = 2.0
KILLED_SOON_S: Final = 1.0

Run = Callable[[str, Config, str, Recorder], int]
"""Runs one stage in this process: (name, config, instance, recorder) -> exit status."""


class AlreadyRunning(Exception):
    """Another supervisor has this run directory."""


@dataclass(slots=True, eq=False)
class Child:
    """One stage and its process."""

    name: str
    instance: str
    pid: int = 0
    state: str = "waiting"
    started_at: float = 0.0
    delay_s: float = 0.0
    n_restarts: int = 0
    reasons: deque[str] = field(default_factory=lambda: deque(maxlen=REASONS_KEPT))
    timer: Timer | None = None
    is_restart_wanted: bool = False
    recorder: Recorder = field(default_factory=Recorder)
    suspect: str = ""  # the neighbor whose routes it was handling when it failed last,
    n_suspicions: int = 0  # and how many times in a row
    killed_because: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}.{self.instance}"


def planned(config: Config) -> list[tuple[str, str]]:
    """Return (stage, instance) of everything this configuration runs."""
    plan = [(name, instance) for name in SHARED for instance in config.instances(name)]
    if config.fib.enabled:
        plan[:0] = [("fib", instance) for instance in config.fibs]
    if config.status.enabled:
        plan.append(("status", "0"))
    return plan


class Supervisor:
    """Keeps the stages running."""

    def __init__(self, config: Config, plan: Iterable[tuple[str, str]] | None = None, run: Run = run_stage):
        self.config = config
        self.context = make_context(config, "supervisor", "0")
        self.children = [Child(name, instance) for name, instance in (planned(config) if plan is None else plan)]
        self._run = run
        self._loop = self.context.loop
        self._leaving: list[Child] = []  # no longer configured, asked to end
        self._waves: list[list[Child]] | None = None  # when stopping: who is still to be stopped, in order
        self._kill_timer: Timer | None = None
        self._reason = ""
        self._looked_at = 0.0

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit status."""
        set_title("headrace")
        raise_descriptor_limit()
        try:
            with wake_on_signals(self._loop):
                self._install_signals()
                self.context.bus.control(
                    {
                        "status": lambda question: self.status(),
                        "restart": self._on_restart,
                        "stop": lambda question: self.stop("asked to") or {},
                        "reload": self._on_reload,
                        "metrics": lambda question: {"text": self.context.metrics.text()},
                    }
                )
                # Everything the stages will share is imported by now; collections must not write into those pages.
                gc.collect()
                gc.freeze()
                for child in self.children:
                    self._start(child)
                self._look_for_hangs()
                self._loop.run()
        finally:
            self.context.bus.close()
        event(self.context.log, "stopped", reason=self._reason)
        return 0

    def stop(self, reason: str) -> None:
        """Begin to stop everything, in order; a second call ends what is left at once."""
        if self._waves is not None:
            self._kill_wave()
            return
        self._reason = reason
        event(self.context.log, "stopping", reason=reason)
        named = {name for name in STOP_ORDER if name is not None}
        self._waves = [
            [child for child in self.children if child.name == name or (name is None and child.name not in named)]
            for name in STOP_ORDER
        ]
        for child in self.children:
            if child.timer is not None:
                child.timer.cancel()
            if child.state == "waiting":
                child.state = "stopped"
        self._stop_wave()

    def reload(self) -> dict[str, Any]:
        """Read the configuration again; if it is good every stage is told to do so, if not nothing changes."""
        if self.config.path is None:
            raise ControlError("there is no file to read again")
        return self._on_reload({})

    def _on_reload(self, question: dict[str, Any]) -> dict[str, Any]:
        """Say what a reload changes; do it, but with `check`, or where the file has not the `fingerprint` expected."""
        if self.config.path is None:
            raise ControlError("there is no file to read again")
        try:
            config = load(self.config.path)
        except Exception as error:
            event(self.context.log, "reload-refused", "error", problem=error)
            raise refusal(error) from error
        answer = describe_changes(self.config, config)
        if question.get("fingerprint", answer["fingerprint"]) != answer["fingerprint"]:
            raise ControlError("not reloaded: the file has changed since it was looked at")
        if not question.get("check"):
            self._apply(config, answer["changes"])
        return answer

    def _apply(self, config: Config, found: list[dict]) -> None:
        """Go over to another configuration: tell all stages, start instances that are new, end those no more named."""
        for change in found:
            event(self.context.log, "configuration-change", change=change["text"])
        has_other_shares = config.instances("rib") != self.config.instances("rib")
        # What only a start of the router changes stays; a stage's own section counts when that is started again.
        self.config = pinned(self.config, config, ("router", "log"))
        names = {child.name for child in self.children}
        wanted = {each for each in planned(config) if each[0] in SHARED and each[0] in names}
        self._end_instances(wanted)
        for child in self.children:
            if has_other_shares and child.name == "rib":
                self._restart(child)
            elif child.state == "running":
                os.kill(child.pid, signal.SIGHUP)
        for name, instance in sorted(wanted - {(child.name, child.instance) for child in self.children}):
            child = Child(name, instance)
            self.children.append(child)
            # Whoever has asked for this is answered first.
            child.timer = self._loop.call_later(0, lambda child=child: self._start(child))
        self.context.log.set_level(config.log.level)
        event(self.context.log, "reloaded")

    def _end_instances(self, wanted: set[tuple[str, str]]) -> None:
        gone = [each for each in self.children if each.name in SHARED and (each.name, each.instance) not in wanted]
        for child in gone:
            self.children.remove(child)
            if child.timer is not None:
                child.timer.cancel()
            if child.pid:
                self._leaving.append(child)
                os.kill(child.pid, signal.SIGTERM)

    def status(self) -> dict[str, Any]:
        """Return each stage's process, state and restarts."""
        now = self.context.clock.monotonic()
        return {
            "stage": "supervisor",
            "pid": os.getpid(),
            "stages": [
                {
                    "stage": child.name,
                    "instance": child.instance,
                    "pid": child.pid,
                    "state": self._state_of(child),
                    "uptime_s": round(now - child.started_at, 3) if child.state == "running" else 0,
                    "restarts": child.n_restarts,
                    "reasons": list(child.reasons),
                }
                for child in self.children
            ],
        }

    def _state_of(self, child: Child) -> str:
        return "starting" if child.state == "running" and not child.recorder.last_beat else child.state

    # ---- children -----------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        flush_output()
        parent = os.getpid()
        child.recorder.clear()
        child.killed_because = ""
        try:
            pid = os.fork()
        except OSError as error:
            # No memory or no room for a process now: that may pass.
            event(self.context.log, "fork-failed", "error", child=child.label, problem=error)
            child.state = "waiting"
            child.delay_s = self.config.supervisor.restart_delay_maximum_s
            child.timer = self._loop.call_later(child.delay_s, lambda: self._start(child))
            return
        if pid == 0:
            self._become(child, parent)
        child.pid = pid
        child.state = "running"
        child.started_at = self.context.clock.monotonic()
        event(self.context.log, "stage-started", child=child.label, child_pid=pid)

    def _become(self, child: Child, parent: int) -> None:
        """Be the child: leave everything of the parent's alone but its pages, and never return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            # Ctrl-C goes to the whole terminal; the supervisor stops us in order.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.closerange(3, 1 << 16)
            die_with_parent(parent)
            status = self._run(child.name, self.config, child.instance, child.recorder)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException as error:
            with contextlib.suppress(OSError, ValueError):
                self._tell_why(child, error)
        finally:
            flush_output()
            os._exit(status)

    def _tell_why(self, child: Child, error: BaseException) -> None:
        """Say why this child ends: in one line where it could not start for want of something outside."""
        is_outside = isinstance(error, KeyTrouble) or (isinstance(error, OSError) and error.filename)
        if not is_outside or child.recorder.last_beat:
            traceback.print_exc()
            return
        problem = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else error
        event(self.context.log, "start-failed", "error", child=child.label, problem=problem)

    def _reap(self) -> None:
        self._leaving = [child for child in self._leaving if not _has_exited(child.pid)]
        for child in self.children:
            if not child.pid:
                continue
            try:
                pid, status = os.waitpid(child.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = child.pid, 0
            if pid:
                self._on_exit(child, describe_exit(status))

    def _on_exit(self, child: Child, reason: str) -> None:
        config = self.config.supervisor
        ran_s = self.context.clock.monotonic() - child.started_at
        child.pid = 0
        if self._waves is not None:
            child.state = "stopped"
            event(self.context.log, "stage-stopped", child=child.label, reason=reason)
            self._stop_wave()
            return
        if child.killed_because:
            reason = child.killed_because
        is_wanted, child.is_restart_wanted = child.is_restart_wanted, False
        if is_wanted:
            child.delay_s, reason = 0.0, f"{reason}, asked to"
        else:
            child.delay_s = next_delay_s(child.delay_s, ran_s, is_from_outside(reason), config)
            if child.killed_because or not is_from_outside(reason):
                reason += self._suspect(child, ran_s)
        child.state = "waiting"
        child.n_restarts += 1
        child.reasons.append(reason)
        event(
            self.context.log,
            "stage-ended" if is_wanted else "stage-died",
            "info" if is_wanted else "error",
            child=child.label,
            reason=reason,
            ran_s=ran_s,
            delay_s=child.delay_s,
        )
        child.timer = self._loop.call_later(child.delay_s, lambda: self._start(child))

    # ---- hangs and quarantine -----------------------------------------------------------------------------------

    def _look_for_hangs(self) -> None:
        """Kill stages whose loop has not turned for too long."""
        limit_s = self.config.supervisor.hang_time_s
        period_s = min(max(limit_s / 5, 0.1), 1.0)
        now = self.context.clock.monotonic()
        # If we could not look in time ourselves, the machine stood still, and the stages are not to blame.
        has_stood_still = now - self._looked_at > 2 * period_s + 1.0
        self._looked_at = now
        if limit_s and not has_stood_still and self._waves is None:
            for child in self.children:
                self._check(child, now, limit_s)
        self._loop.call_later(period_s, self._look_for_hangs)

    def _check(self, child: Child, now: float, limit_s: float) -> None:
        if child.state != "running" or child.killed_because:
            return
        last = child.recorder.last_beat
        silent_s = now - (last or child.started_at)
        if silent_s <= (limit_s if last else limit_s * START_PATIENCE):
            return
        child.killed_because = f"no sign of life for {silent_s:.0f} s"
        event(self.context.log, "stage-hangs", "error", child=child.label, silent_s=silent_s)
        os.kill(child.pid, signal.SIGKILL)

    def _suspect(self, child: Child, ran_s: float) -> str:
        """Note what a stage was handling when it failed; return that in words, for the reason."""
        note = child.recorder.read()
        if note is None:
            if ran_s >= self.config.supervisor.restart_reset_s:
                child.recorder.is_careful, child.suspect, child.n_suspicions = False, "", 0
            return ""
        child.recorder.is_careful = True
        name = note.get("source", "")
        child.n_suspicions = child.n_suspicions + 1 if name and name == child.suspect else int(bool(name))
        child.suspect = name
        limit = self.config.supervisor.quarantine_failures
        if limit and child.n_suspicions >= limit:
            child.n_suspicions = 0
            self._quarantine(name, child)
        at = f"{note.get('channel')} {note.get('sequence')}"
        return f", handling {at} of {name}" if name else f", handling {at}"

    def _quarantine(self, name: str, child: Child) -> None:
        """End the session of a neighbor whose routes make a stage fail, until an operator starts it again."""
        neighbor = self.config.neighbors.get(name)
        if neighbor is None:
            return
        text = f"{name}: quarantined, its routes make {child.name} fail"
        by = f"the supervisor: quarantined, its routes make {child.label} fail"
        event(self.context.log, "neighbor-quarantined", "error", neighbor=name, child=child.label)
        try:
            ask(
                self.config.router.run_dir, "speaker", neighbor.speaker, "neighbor-stop", ASK_TIME_S,
                name=name, text=text, by=by,
            )  # fmt: skip
        except (ControlError, TimeoutError) as error:
            event(self.context.log, "quarantine-failed", "error", neighbor=name, problem=error)

    def _on_restart(self, question: dict[str, Any]) -> dict[str, Any]:
        """{name: "rib" or "rib.0"} -> {restarted: [label], pids: [former process]}"""
        wanted = str(question.get("name", ""))
        chosen = [child for child in self.children if wanted in (child.name, child.label)]
        if not chosen:
            labels = ", ".join(child.label for child in self.children)
            raise ControlError(f"no stage {wanted!r:.60}; there are {labels}")
        pids = [child.pid for child in chosen]
        for child in chosen:
            self._restart(child)
        return {"restarted": [child.label for child in chosen], "pids": pids}

    def _restart(self, child: Child) -> None:
        """End a stage in order, so that it is started again at once; one that waits for its start waits no longer."""
        if child.state == "waiting":
            child.timer.cancel()
            child.delay_s = 0.0
            self._start(child)
        elif child.state == "running" and not child.is_restart_wanted:
            child.is_restart_wanted = True
            os.kill(child.pid, signal.SIGUSR1)
            pid = child.pid
            self._loop.call_later(self.config.supervisor.stop_time_s, lambda: self._kill_if_still(child, pid))

    def _kill_if_still(self, child: Child, pid: int) -> None:
        if child.pid == pid:
            event(self.context.log, "stage-killed", "error", child=child.label)
            os.kill(pid, signal.SIGKILL)

    # ---- stopping -----------------------------------------------------------------------------------------------

    def _stop_wave(self) -> None:
        """Send SIGTERM to the next who are to stop, once those before them have."""
        if any(child.state == "stopping" for child in self.children):
            return
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        while self._waves:
            wave = [child for child in self._waves.pop(0) if child.pid]
            for child in wave:
                child.state = "stopping"
                os.kill(child.pid, signal.SIGTERM)
            if wave:
                self._kill_timer = self._loop.call_later(self.config.supervisor.stop_time_s, self._kill_wave)
                return
        self._loop.stop()

    def _kill_wave(self) -> None:
        for child in self.children:
            if child.state == "stopping" and child.pid:
                event(self.context.log, "stage-killed", "error", child=child.label)
                os.kill(child.pid, signal.SIGKILL)

    # ---- signals ------------------------------------------------------------------------------------------------

    def _install_signals(self) -> None:
        """Handlers only note the wish; the loop does the work."""
        loop = self._loop
        signal.signal(signal.SIGTERM, lambda number, frame: loop.call_later(0, lambda: self.stop("SIGTERM")))
        signal.signal(signal.SIGINT, lambda number, frame: loop.call_later(0, lambda: self.stop("SIGINT")))
        signal.signal(signal.SIGHUP, lambda number, frame: loop.call_later(0, self._reload_quietly))
        signal.signal(signal.SIGCHLD, lambda number, frame: loop.call_later(0, self._reap))

    def _reload_quietly(self) -> None:
        try:
            self.reload()
        except ControlError:
            pass  # logged already


def run_supervisor(config: Config) -> int:
    """Run all stages of a configuration until SIGTERM; return the exit status.

    Raises AlreadyRunning when the run directory belongs to another supervisor, PortTrouble when the stages could not
    listen where they are to, LookupError for a stage that is not installed.
    """
    plan = planned(config)
    ports = [port for name, instance in plan for port in stage_class(name).places_to_listen(config, instance)]
    run_dir = Path(config.router.run_dir)
    lock = lock_pid_file(run_dir)
    try:
        check_ports(dict.fromkeys(ports), config.router.user)
        return Supervisor(config, plan).run()
    finally:
        release_pid_file(run_dir, lock)


def lock_pid_file(run_dir: Path) -> int:
    """Write this process's number into the run directory and lock it; raise AlreadyRunning if somebody has it."""
    make_run_dir(run_dir)
    # Not through a link: who may make files in the directory must not have us write elsewhere.
    descriptor = os.open(run_dir / PID_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise AlreadyRunning(f"process {holder or '?'} already runs Headrace in {run_dir}") from None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def release_pid_file(run_dir: Path, descriptor: int) -> None:
    """Take the pid file away and give up its lock."""
    (run_dir / PID_FILE).unlink(missing_ok=True)
    os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; exit at once if it has died already.

    Nothing gentler: a stage that hangs would not hear of it, and a speaker that ends in order tells its neighbors to
    keep nothing, where the next supervisor is to find them waiting.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def flush_output() -> None:
    """Write out what is buffered, as far as that is possible: a full disk must not end anything."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def is_from_outside(reason: str) -> bool:
    """Tell whether a process was ended by somebody, not by what it did."""
    return reason in ("signal SIGKILL", "signal SIGTERM", "signal SIGINT", "signal SIGHUP")


def next_delay_s(former_s: float, ran_s: float, is_killed: bool, config: SupervisorConfig) -> float:
    """Return the pause before a stage is started again: it grows where the stage itself fails, or cannot even start.

    Who is killed is not to blame, however often; but one that is killed as soon as it runs may find no memory.
    """
    if not former_s or ran_s >= (KILLED_SOON_S if is_killed else config.restart_reset_s):
        return config.restart_delay_s
    return min(former_s * 2, config.restart_delay_maximum_s)


def _has_exited(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def describe_exit(status: int) -> str:
    """Return in words how a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # Of the real-time signals only the first and the last have names.
        is_named = number in signal.Signals.__members__.values()
        return f"signal {signal.Signals(number).name if is_named else number}"
    return f"exit status {os.WEXITSTATUS(status)}"
