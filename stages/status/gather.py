"""Asks the stages, in a thread of its own, and keeps the last picture.

Owns the thread, the pace and the last picture. Never asks because somebody looks at the page: the pace is its own, so
load on HTTP is no load on the stages. A stage that does not answer is shown as silent and costs the others nothing
but the time limit.
"""

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from common.bus.question import ControlError, ask
from common.config.sharing import longest_route
from common.runtime.processes import memory_octets
from stages.status.picture import Answer, Pictures

PACE_S = 1.0
IDLE_PACE_S = 5.0
IDLE_AFTER_S = 30.0  # seconds since anybody looked
MEMORY_EVERY_S = 30.0  # the kernel walks all pages of each stage for it
ANSWER_TIME_S = 1.0
STOP_TIME_S = 0.2
LISTS = {"speaker": ("neighbors",), "fib": ("nexthops",)}  # questions beside "status", by stage

Ask = Callable[..., dict[str, Any]]


class Gatherer:
    """Makes pictures at its own pace until stopped."""

    def __init__(
        self,
        run_dir: Path,
        pictures: Pictures,
        ask: Ask = ask,
        monotonic: Callable[[], float] = time.monotonic,
        declared: Iterable[tuple[str, str]] = (),
    ):
        """Ask whoever has a control socket in `run_dir`, and `declared`: (stage, instance) of those elsewhere."""
        self.run_dir = Path(run_dir)
        self.pictures = pictures
        self._declared = frozenset(declared)
        self.picture: dict[str, Any] = {}
        self._ask = ask
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._memory: dict[int, int] = {}
        self._memory_at = float("-inf")
        self._texts: tuple[float, list[tuple[str, str, str]]] = (float("-inf"), [])
        self._texts_lock = threading.Lock()
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def know(self, ask: Ask, declared: Iterable[tuple[str, str]]) -> None:
        """Ask in another way, and others elsewhere, from now on."""
        self._ask, self._declared = ask, frozenset(declared)

    def start(self) -> None:
        """Begin to gather."""
        self._thread = threading.Thread(target=self._run, name="gather", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, without waiting for an answer that may never come: the other stages are stopping, too."""
        self._is_stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(STOP_TIME_S)

    def look(self) -> dict[str, Any]:
        """Return the last picture, and note that somebody looks."""
        now = self._monotonic()
        was_idle = now - self._looked_at > IDLE_AFTER_S
        self._looked_at = now
        if was_idle:
            self._wake.set()
        return self.picture

    def gather(self) -> dict[str, Any]:
        """Ask all stages once and return the new picture."""
        answers = [self._answer(stage, instance) for stage, instance in self.stages()]
        now = self._monotonic()
        if now - self._memory_at >= MEMORY_EVERY_S:
            self._memory_at = now
            found = ((answer.status.get("pid"), self._memory_of(answer)) for answer in answers)
            self._memory = {pid: octets for pid, octets in found if pid and octets is not None}
        self.picture = self.pictures.compose(now, time.time(), answers, self._supervised(), self._memory)
        return self.picture

    def metrics(self) -> list[tuple[str, str, str]]:
        """Return (stage, instance, exposition) of every stage that answers; asked at most once a pace."""
        with self._texts_lock:
            if self._monotonic() - self._texts[0] >= PACE_S:
                texts = []
                for stage, instance in self.stages():
                    answer = self._try(stage, instance, "metrics")
                    if isinstance(answer, dict):
                        texts.append((stage, instance, str(answer.get("text", ""))))
                self._texts = (self._monotonic(), texts)
            return self._texts[1]

    def route(self, prefix: str) -> dict[str, Any]:
        """Ask the ribs about one prefix; raise ControlError with the reason of one that does not answer."""
        ribs = [instance for stage, instance in self.stages() if stage == "rib"] or ["0"]
        answers = [self._try("rib", instance, "route", prefix=prefix) for instance in ribs]
        for answer in answers:
            if isinstance(answer, str):
                raise ControlError(answer)
        answer = longest_route(answers)
        answer.pop("ok", None)
        return answer

    def stages(self) -> list[tuple[str, str]]:
        """Return (stage, instance) of whoever is to be asked, but the supervisor."""
        names = (path.name.removesuffix(".control").split(".", 1) for path in self.run_dir.glob("*.control"))
        local = {(name[0], name[1]) for name in names if len(name) == 2 and name[0] != "supervisor"}
        return sorted(local | self._declared)

    def _answer(self, stage: str, instance: str) -> Answer:
        status = self._try(stage, instance, "status")
        if isinstance(status, str):
            return Answer(stage, instance, trouble=status)
        lists: dict[str, list] = {"neighbors": [], "nexthops": []}
        for question in LISTS.get(stage, ()):
            answer = self._try(stage, instance, question)
            if isinstance(answer, dict):
                lists[question] = answer.get(question, [])
        return Answer(stage, instance, status, lists["neighbors"], lists["nexthops"])

    def _memory_of(self, answer: Answer) -> int | None:
        """Return what the kernel tells of a stage; of a process with other rights than ours it tells only that one."""
        octets = memory_octets(answer.status.get("pid"))
        if octets is None and not answer.trouble:
            told = self._try(answer.stage, answer.instance, "memory")
            octets = told.get("octets") if isinstance(told, dict) else None
        return octets

    def _supervised(self) -> list[dict]:
        if not (self.run_dir / "supervisor.0.control").exists():
            return []
        answer = self._try("supervisor", "0", "status")
        return answer.get("stages", []) if isinstance(answer, dict) else []

    def _try(self, stage: str, instance: str, question: str, **arguments: Any) -> dict[str, Any] | str:
        """Ask; return the answer, or in words why there is none."""
        try:
            return self._ask(self.run_dir, stage, instance, question, timeout_s=ANSWER_TIME_S, **arguments)
        except (ControlError, TimeoutError, OSError) as error:
            return str(error) or type(error).__name__

    def _run(self) -> None:
        while not self._is_stopped:
            self.gather()
            is_idle = self._monotonic() - self._looked_at > IDLE_AFTER_S
            self._wake.wait(IDLE_PACE_S if is_idle else PACE_S)
            self._wake.clear()
