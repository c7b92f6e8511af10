"""The supervisor: `headrace run`, one parent that starts all stages, restarts those that die, and stops them in order.

Owns the children, the pid file and its lock. Never touches a route. It imports what the stages need before it forks, so
that all of them share its pages; what it has is frozen for the garbage collector, which would otherwise write into
every page.

    waiting ──timer──▶ running ──died──▶ waiting (0.1 s, 0.2 s, ... 10 s; from the beginning after 30 s of running)
                          └────SIGTERM──▶ stopping ──exit──▶ stopped
"""

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

from common.bus.control import ControlError
from common.config.load import load
from common.config.schema import Config
from common.runtime.log import event
from common.runtime.loop import Timer
from common.runtime.stage import make_context, run_stage, set_title, stage_class, wake_on_signals

PID_FILE: Final = "headrace.pid"
REASONS_KEPT: Final = 10
STOP_ORDER: Final = ("speaker", None, "fib")
"""The speaker first, so that peers get a Cease; the fib last, so that packets find their way until the end."""
PR_SET_PDEATHSIG: Final = 1

Run = Callable[[str, Config, str], int]
"""Runs one stage in this process: (name, config, instance) -> exit status."""


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

    @property
    def label(self) -> str:
        return f"{self.name}.{self.instance}"


def planned(config: Config) -> list[tuple[str, str]]:
    """Return (stage, instance) of everything this configuration runs."""
    speakers = sorted({"0", *(neighbor.speaker for neighbor in config.neighbors.values())})
    plan = [("rib", "0"), ("policy", "0"), ("exporter", "0"), *(("speaker", instance) for instance in speakers)]
    if config.fib.enabled:
        plan.insert(0, ("fib", "0"))
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
        self._waves: list[list[Child]] | None = None  # when stopping: who is still to be stopped, in order
        self._kill_timer: Timer | None = None
        self._reason = ""

    def run(self) -> int:
        """Run until SIGTERM or SIGINT; return the exit status."""
        set_title("headrace")
        lock = lock_pid_file(Path(self.config.router.run_dir))
        try:
            with wake_on_signals(self._loop):
                self._install_signals()
                self.context.bus.control(
                    {
                        "status": lambda question: self.status(),
                        "restart": self._on_restart,
                        "stop": lambda question: self.stop("asked to") or {},
                        "reload": lambda question: self.reload(),
                        "metrics": lambda question: {"text": self.context.metrics.text()},
                    }
                )
                # Everything the stages will share is imported by now; collections must not write into those pages.
                gc.collect()
                gc.freeze()
                for child in self.children:
                    self._start(child)
                self._loop.run()
        finally:
            self.context.bus.close()
            release_pid_file(Path(self.config.router.run_dir), lock)
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
        try:
            config = load(self.config.path)
        except Exception as error:
            event(self.context.log, "reload-refused", "error", problem=error)
            raise ControlError(f"not reloaded: {error}") from error
        self.config = config
        for child in self.children:
            if child.state == "running":
                os.kill(child.pid, signal.SIGHUP)
        event(self.context.log, "reloaded")
        return {}

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
                    "state": child.state,
                    "uptime_s": round(now - child.started_at, 3) if child.state == "running" else 0,
                    "restarts": child.n_restarts,
                    "reasons": list(child.reasons),
                }
                for child in self.children
            ],
        }

    # ---- children -----------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        pid = os.fork()
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
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            # Ctrl-C goes to the whole terminal; the supervisor stops us in order.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            os.closerange(3, 1 << 16)
            die_with_parent(parent)
            status = self._run(child.name, self.config, child.instance)
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _reap(self) -> None:
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
        if child.is_restart_wanted:
            child.is_restart_wanted = False
            child.delay_s, reason = 0.0, f"{reason}, asked to"
        elif ran_s >= config.restart_reset_s or not child.delay_s:
            child.delay_s = config.restart_delay_s
        else:
            child.delay_s = min(child.delay_s * 2, config.restart_delay_maximum_s)
        child.state = "waiting"
        child.n_restarts += 1
        child.reasons.append(reason)
        event(
            self.context.log,
            "stage-died",
            "error",
            child=child.label,
            reason=reason,
            ran_s=ran_s,
            delay_s=child.delay_s,
        )
        child.timer = self._loop.call_later(child.delay_s, lambda: self._start(child))

    def _on_restart(self, question: dict[str, Any]) -> dict[str, Any]:
        wanted = str(question.get("name", ""))
        chosen = [child for child in self.children if wanted in (child.name, child.label)]
        if not chosen:
            raise ControlError(f"no stage {wanted!r:.60}")
        for child in chosen:
            if child.state == "running":
                child.is_restart_wanted = True
                os.kill(child.pid, signal.SIGTERM)
        return {"restarted": [child.label for child in chosen]}

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

    Raises AlreadyRunning when the run directory belongs to another supervisor, LookupError for a stage that is not
    installed.
    """
    plan = planned(config)
    for name, _ in plan:
        stage_class(name)
    try:
        return Supervisor(config, plan).run()
    except AlreadyRunning as error:
        print(error, file=sys.stderr)
        return 1


def lock_pid_file(run_dir: Path) -> int:
    """Write this process's number into the run directory and lock it; raise AlreadyRunning if somebody has it."""
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(run_dir / PID_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Have the kernel send this process SIGTERM when its parent dies; exit at once if it has died already."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def describe_exit(status: int) -> str:
    """Return in words how a process ended, from its wait status."""
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit status {os.WEXITSTATUS(status)}"
