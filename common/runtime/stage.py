"""The skeleton all stages run on: what a stage is, and the one way to run it.

Owns the start-up and the end of a process. Never knows what a stage does.

    title, log, metrics, bus ─▶ start ─▶ loop { sockets; timers; step; pump; tidy } ─▶ SIGTERM ─▶ drain ─▶ exit 0
"""

import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from common import VERSION
from common.bus.bus import Bus
from common.bus.control import ControlError, Handler
from common.bus.keyring import Keyring, load_keyring, renewed_keyring
from common.bus.places import places_of
from common.bus.schema import FINGERPRINT, description
from common.config.changes import changes, fingerprint, pinned
from common.config.schema import Config
from common.kernels import is_compiled
from common.runtime.clock import Clock, SystemClock
from common.runtime.confinement import allow_sockets, become, write_only_in
from common.runtime.log import LEVELS, Log, event
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.notify import Notifier
from common.runtime.ports import Port, endpoint_ports
from common.runtime.processes import keep_freed_memory, memory_octets, raise_descriptor_limit, take_precedence
from common.runtime.recorder import Recorder
from common.runtime.rights import keep_only

BEAT_S = 0.5
"""How often a stage says that it lives."""
PRUNE_S = 5.0
"""How long after a reload connections are kept that nobody uses; others may not have read the configuration yet."""


class State(StrEnum):
    """How far a stage is."""

    STARTING = "starting"
    SYNCING = "syncing"
    IN_STEP = "in step"


@dataclass(slots=True)
class Context:
    """Everything a stage gets from outside."""

    clock: Clock
    loop: Loop
    bus: Bus
    metrics: Metrics
    log: Log
    seed: int
    """For hashes of data from peers: random in production, fixed in tests."""
    request_stop: Callable[[str], None] = lambda reason: None
    """Ends the process in order."""
    recorder: Recorder | None = None
    """Where the supervisor looks for what this stage was doing."""
    keyring: Keyring = field(default_factory=Keyring)
    """By which key it goes where it asks other machines."""


class Stage:
    """What every stage is. All methods are called from the loop."""

    name: ClassVar[str] = ""
    RIGHTS: ClassVar[tuple[int, ...] | None] = ()
    """Capabilities needed after the start; in a process of its own all others are given up. None: keeps what it has."""
    SOCKETS: ClassVar[tuple[int, ...]] = (socket.AF_UNIX,)
    """Address families of the sockets it opens; no others are left to a process of its own that root starts."""
    NICE: ClassVar[int] = 0
    """Its nice value, if the process may choose: below 0, it comes first where stages compete for a processor."""

    def __init__(self, config: Config, instance: str, context: Context):
        self.config = config
        self.instance = instance
        self.context = context
        # Whether the process ends only to be started again.
        self.is_to_return = False

    @classmethod
    def rights_to_start(cls, config: Config) -> tuple[int, ...] | None:
        """Return the capabilities needed until the stage has started."""
        return cls.RIGHTS

    @classmethod
    def places_to_write(cls, config: Config) -> list[Path]:
        """Return the directories and files it writes in, which must exist."""
        return [Path(config.router.run_dir)]

    @classmethod
    def places_to_listen(cls, config: Config, instance: str) -> list[Port]:
        """Return the ports an instance listens at."""
        return endpoint_ports(config, cls.name, instance)

    def start(self) -> None:
        """Open what the stage works with: channels to serve and follow, sockets, timers."""

    def step(self) -> bool:
        """Do one bounded slice (at most about 10 ms) of pending work; return True if more is pending."""
        return False

    def tidy(self) -> None:
        """Do what nobody waits for: called in each turn when everything has been sent."""

    def status(self) -> dict[str, Any]:
        """Return what `headrace show stages` and the status page say of this stage."""
        return {}

    def owns(self) -> list[str]:
        """Return in words what this instance owns or does, where the work is shared out among several."""
        return []

    def is_in_step(self) -> bool:
        """Tell whether the stage has taken in all that its owners have told, beside what its followers know of it."""
        return True

    def missing(self) -> list[str]:
        """Return what it waits for (owner:channel) beside what its followers know of, to be in step."""
        return []

    def controls(self) -> dict[str, Handler]:
        """Return the questions this stage answers, beside the skeleton's."""
        return {}

    def reload(self, config: Config) -> None:
        """Go over to another configuration, already validated; raise ValueError if that needs a restart."""
        raise ValueError(f"{self.name} takes a new configuration only at its start")

    def drain(self) -> None:
        """Say farewell before the process ends; the bus is still open."""


def stage_class(name: str) -> type[Stage]:
    """Return the class of a stage by its name; raise LookupError if there is none."""
    try:
        return import_module(f"stages.{name}.stage").STAGE
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("stages"):
            raise
        raise LookupError(f"no stage {name!r}") from None


class Skeleton:
    """A stage on its loop; the same for a process of its own and for tests."""

    def __init__(
        self,
        stage: Stage,
        context: Context,
        load_config: Callable[[], Config] | None = None,
        notifier: Notifier | None = None,
    ):
        self.stage = stage
        self.context = context
        self.reason = ""
        self.state = State.STARTING
        self._load_config = load_config
        self._notifier = notifier
        self._state_since = self._started_at = context.clock.monotonic()
        context.request_stop = self.stop
        context.bus.control(
            {
                "status": lambda question: self.status(),
                "health": lambda question: self.health(),
                "metrics": lambda question: {"text": context.metrics.text()},
                "schema": lambda question: {"fingerprint": FINGERPRINT, "kinds": description(), "version": VERSION},
                "memory": lambda question: {"octets": memory_octets(os.getpid())},
                "log-level": self._set_log_level,
                "reload": self._on_reload,
                "stop": self._on_stop,
            }
        )
        context.bus.control(stage.controls())
        context.loop.add_turn(stage.step)
        context.loop.add_turn(context.bus.pump)
        context.loop.add_turn(stage.tidy)
        self._add_metrics()

    def start(self) -> None:
        """Start the stage."""
        self.stage.start()
        event(self.context.log, "started", kernels="compiled" if is_compiled() else "uncompiled", pid=os.getpid())
        self._beat()

    def run(self) -> None:
        """Turn until stopped, then drain."""
        self.context.loop.run()
        self.drain()

    def drain(self) -> None:
        """Let the stage say farewell and close the bus."""
        if self._notifier is not None:
            self._notifier.stopping()
        self.stage.drain()
        self.context.bus.pump()
        event(self.context.log, "stopped", reason=self.reason)
        self.context.bus.close()

    def stop(self, reason: str, is_to_return: bool = False) -> None:
        """End `run` after this turn."""
        self.stage.is_to_return = is_to_return
        self.reason = reason
        self.context.loop.stop()

    def reload(self) -> dict[str, Any]:
        """Read the configuration again; one that is bad never replaces the one that runs.

        What counts only from the start of a process stays as it is in this one.
        """
        try:
            former, config = self.stage.config, self._read_again()
            wanted = pinned(former, config)
            self._meet(wanted)
            try:
                self.stage.reload(wanted)
            except Exception:
                self._meet(former)
                raise
        except ControlError:
            raise
        except Exception as error:
            event(self.context.log, "reload-refused", "error", problem=error)
            raise refusal(error) from error
        self.context.log.set_level(config.log.level)
        self.context.loop.call_later(PRUNE_S, lambda: self.context.bus.prune(self.stage.config))
        event(self.context.log, "reloaded")
        return {}

    def _meet(self, config: Config) -> None:
        """Call other stages where a configuration says they are, and let in whom it knows."""
        former = self.context.keyring
        self.context.keyring = renewed_keyring(former, config, self.stage.name, self.stage.instance)
        self.context.bus.renew(places_of(config), former, self.context.keyring)

    def _on_reload(self, question: dict) -> dict:
        """Reload; with `check` only say what that would change, for this stage."""
        if not question.get("check"):
            return self.reload()
        try:
            return describe_changes(self.stage.config, self._read_again())
        except Exception as error:
            raise refusal(error) from error

    def _read_again(self) -> Config:
        if self._load_config is None:
            raise ControlError("there is no file to read again")
        return self._load_config()

    def _beat(self) -> None:
        """Say that the loop turns, and look how far the stage is."""
        if self.context.recorder is not None:
            self.context.recorder.beat(self.context.clock.monotonic())
        self._look()
        if self._notifier is not None:
            missing = " ".join(self._missing())
            text = f"{self.state}: waits for {missing}" if missing else str(self.state)
            text += "".join(f"; refused: {reason}" for reason in self._refusals())
            self._notifier.beat(self.state is State.IN_STEP, text)
        self.context.loop.call_later(BEAT_S, self._beat)

    def _look(self) -> None:
        """Note, and log, when the stage has come into step or has fallen out of it."""
        missing = self._missing()
        state = State.IN_STEP if not missing and self.stage.is_in_step() else State.SYNCING
        if state is self.state:
            return
        now = self.context.clock.monotonic()
        if state is State.IN_STEP:
            event(self.context.log, "in-step", after_s=now - self._state_since)
        else:
            event(self.context.log, "syncing", missing=" ".join(missing))
        self.state, self._state_since = state, now

    def _missing(self) -> list[str]:
        """Return the channels whose whole table this stage does not have."""
        followers = self.context.bus.followers()
        missing = (f"{follower.owner}:{follower.channel}" for follower in followers if not follower.is_in_step)
        return list(dict.fromkeys((*missing, *self.stage.missing())))

    def _refusals(self) -> list[str]:
        """Return why others will not serve this stage."""
        reasons = (follower.refused for follower in self.context.bus.followers() if follower.refused)
        return list(dict.fromkeys(reasons))

    def health(self) -> dict[str, Any]:
        """Return how far the stage is: what probes ask for, who ask often."""
        self._look()
        return {
            "state": self.state,
            "state_since_s": round(self.context.clock.monotonic() - self._state_since, 3),
            "missing": self._missing(),
            "refused": self._refusals(),
        }

    def status(self) -> dict[str, Any]:
        """Return the stage's own status and what the skeleton knows."""
        context = self.context
        return {
            **self.stage.status(),
            **self.health(),
            "owns": self.stage.owns(),
            "version": VERSION,
            "stage": self.stage.name,
            "instance": self.stage.instance,
            "pid": os.getpid(),
            "uptime_s": round(context.clock.monotonic() - self._started_at, 3),
            "compiled": is_compiled(),
            "loop": {"turns": context.loop.n_turns, "phase_s": dict(context.loop.phase_s)},
            "events": dict(context.log.counts),
            "bus": context.bus.status(),
        }

    def _set_log_level(self, question: dict) -> dict:
        if question.get("level") not in LEVELS:
            raise ControlError(f"a level is one of {', '.join(LEVELS)}")
        self.context.log.set_level(question["level"])
        return {}

    def _on_stop(self, question: dict) -> dict:
        self.stop("asked to")
        return {}

    def _add_metrics(self) -> None:
        context = self.context
        phases = context.metrics.gauge("loop_phase_seconds", "Time spent in each phase of the loop.", ["phase"])
        lag = context.metrics.gauge("bus_reader_lag_changes", "Changes a reader has yet to get.", ["reader", "channel"])
        compiled = context.metrics.gauge("kernels_compiled_flag", "1 if every kernel runs compiled.")
        compiled.set(1 if is_compiled() else 0)

        def refresh() -> None:
            for phase, seconds in context.loop.phase_s.items():
                phases.labels(phase).set(seconds)
            lag.clear()
            for reader in context.bus.status()["readers"]:
                lag.labels(reader["reader"], reader["channel"]).set(reader["lag"])

        context.metrics.before_scrape(refresh)


def make_context(
    config: Config, name: str, instance: str, recorder: Recorder | None = None, keyring: Keyring | None = None
) -> Context:
    """Return the context of a stage in a process of its own."""
    from common.bus.zmq_transport import ZmqTransport

    clock = SystemClock()
    loop = Loop(clock)
    metrics = Metrics(name, instance)
    events = metrics.counter("events", "Events, by name.", ["event"])
    log = Log(
        f"{name}.{instance}",
        form=config.log.format,
        level=config.log.level,
        clock=clock,
        count=lambda event_name: events.labels(event_name).inc(),
    )
    keyring = keyring or Keyring()
    transport = ZmqTransport(loop, keyring, log)
    bus = Bus(config.router.run_dir, name, instance, loop, transport, log, recorder, places_of(config))
    seed = int.from_bytes(os.urandom(8), "little")
    return Context(clock, loop, bus, metrics, log, seed, recorder=recorder, keyring=keyring)


def run_stage(name: str, config: Config, instance: str = "0", recorder: Recorder | None = None) -> int:
    """Run one stage in this process until SIGTERM or SIGINT; return the exit status.

    On SIGHUP the file the configuration came from is read again. SIGUSR1 ends the process as SIGTERM does, but tells
    the stage that it will be started again, so that a speaker's neighbors keep what they can.
    """
    set_title(f"hr-{name}.{instance}")
    raise_descriptor_limit()
    keep_freed_memory()
    take_precedence(stage_class(name).NICE)
    keyring = load_keyring(config, name, instance)  # while this process may still read what root may
    missing = confine(stage_class(name), config) if os.geteuid() == 0 else []
    context = make_context(config, name, instance, recorder, keyring)
    if missing:
        event(context.log, "not-confined", "warning", missing=" ".join(missing))
    stage = stage_class(name)(config, instance, context)
    skeleton = Skeleton(stage, context, _loader(config.path), Notifier())
    with wake_on_signals(context.loop):
        signal.signal(signal.SIGTERM, lambda number, frame: skeleton.stop("SIGTERM"))
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, lambda number, frame: skeleton.stop("SIGINT"))
        signal.signal(signal.SIGUSR1, lambda number, frame: skeleton.stop("restart", is_to_return=True))
        signal.signal(
            signal.SIGHUP, lambda number, frame: context.loop.call_later(0, lambda: _reload_quietly(skeleton))
        )
        skeleton.start()
        if stage.RIGHTS is not None:
            keep_only(stage.RIGHTS)
        skeleton.run()
    return 0


def confine(cls: type[Stage], config: Config) -> list[str]:
    """Give up, in a process that root has started, what the stage does not need; return what the kernel cannot do.

    Before anything is opened and any thread runs: what is left to one thread is left to all.
    """
    run_dir = Path(config.router.run_dir)
    make_run_dir(run_dir)
    if config.router.user:
        become(config.router.user, run_dir)
    rights = cls.rights_to_start(config)
    if rights is not None:
        keep_only(rights)
    done = {
        "socket-families": allow_sockets((*cls.SOCKETS, *bus_families(config))),
        "writing": write_only_in(cls.places_to_write(config)),
    }
    return [name for name, is_done in done.items() if not is_done]


def bus_families(config: Config) -> tuple[int, ...]:
    """Return the address families the bus needs beside its sockets in the run directory.

    Netlink, because ZeroMQ lists the interfaces before it binds, and aborts where it cannot.
    """
    return (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK) if config.endpoints else ()


def make_run_dir(run_dir: Path) -> None:
    """Make the run directory, for one user alone; one that exists is left as it is.

    Raises NotADirectoryError where something else is in its place, be it a link that leads nowhere.
    """
    with contextlib.suppress(FileExistsError):
        run_dir.mkdir(mode=0o700, parents=True)
    if not run_dir.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(run_dir))


def _loader(path: Path | None) -> Callable[[], Config] | None:
    if path is None:
        return None
    from common.config.load import load

    return lambda: load(path)


def describe_changes(old: Config, new: Config) -> dict[str, Any]:
    """Return what a reload changes, as an answer to a question."""
    found = [
        {"text": str(each), "cost": each.cost, "sessions": list(each.sessions), "path": each.path}
        for each in changes(old, new)
    ]
    return {"changes": found, "fingerprint": fingerprint(new)}


def refusal(error: Exception) -> ControlError:
    """Return why a configuration is not taken, with each error of its own where it is wrong."""
    return ControlError(f"not reloaded: {error}", getattr(error, "lines", ()))


def _reload_quietly(skeleton: Skeleton) -> None:
    with contextlib.suppress(ControlError):  # logged already
        skeleton.reload()


def set_title(title: str) -> None:
    """Give this process a name that `ps` and `top` show (15 characters)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(title[:15])


@contextlib.contextmanager
def wake_on_signals(loop: Loop):
    """Make a signal end the loop's wait, so that its handler's wish is seen at once."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)

    def on_wake() -> None:
        with contextlib.suppress(BlockingIOError):
            while reader.recv(256):
                pass

    former = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    loop.add_reader(reader.fileno(), on_wake)
    try:
        yield
    finally:
        signal.set_wakeup_fd(former)
        loop.remove(reader.fileno())
        reader.close()
        writer.close()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
