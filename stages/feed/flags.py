"""What the command is told without a scenario file, and the scenario it makes of it.

Owns the checks of options that do not go together. Raises ScenarioError, whose words name the options.
"""

from dataclasses import dataclass, field
from pathlib import Path

from common.bgp.constants import Family
from stages.feed.mrt import MrtSource
from stages.feed.neighbor import Plan
from stages.feed.recording import RecordedTap
from stages.feed.scenario import Scenario, ScenarioError, Target, clashes
from stages.feed.source import PrefixList, Ready, Source, Synthetic


@dataclass(slots=True, kw_only=True)
class Flags:
    """The options by name."""

    target: str = ""
    port: int = 0
    senders: list[Plan] = field(default_factory=list)
    listeners: list[Plan] = field(default_factory=list)
    families: tuple[str, ...] = ()
    size: int = 0
    seed: int = 1
    prefixes: Path | None = None
    mrt: Path | None = None
    tap: Path | None = None
    peer: str = ""
    replay: Path | None = None
    speed: float = 1.0
    time_limit: float = 0.0
    probes: int = 0
    probe_interval: float = 0.0
    probes_while_loading: bool = False

    def check(self) -> None:
        """Raise ScenarioError for options that contradict each other, or do nothing where they stand."""
        files = {"--mrt": self.mrt, "--prefixes": self.prefixes, "--tap": self.tap}
        given = [name for name, path in files.items() if path is not None]
        if len(given) > 1:
            raise ScenarioError(f"{' and '.join(given)}: a table comes from one of them")
        if self.size and self.mrt is not None or self.size and self.tap is not None:
            raise ScenarioError(f"--size and {given[0]}: what the file holds is sent whole")
        if self.peer and self.mrt is None and self.replay is None and self.tap is None:
            raise ScenarioError("--peer is a peer of the file of --mrt, --replay or --tap: give one of them")
        if self.speed != 1 and self.replay is None:
            raise ScenarioError("--speed is that of --replay: give a file")
        if (self.probes_while_loading or self.probe_interval) and not self.probes:
            raise ScenarioError("--probes says how many probes are sent: it is missing")
        if self.probes and not (self.senders and self.listeners):
            raise ScenarioError(
                "--probes needs a --sender and a --listener: they are sent by the one, awaited by the other"
            )
        if self.probes_while_loading and len(self.senders) < 2:
            raise ScenarioError("--probes-while-loading needs two --sender: the first sends probes, the others load")
        if self.replay is not None and not self.senders:
            raise ScenarioError("--replay needs a --sender")
        for plan in self.senders + self.listeners:
            plan.target = (self.target, self.port or 179) if self.target else None
            plan.families = tuple(map(Family.named, self.families)) or plan.families
        for _, message in clashes(self.senders + self.listeners):
            raise ScenarioError(message)

    def source(self, number: int) -> Source:
        """Make what the n-th sender announces: from files, or synthetic."""
        if self.mrt is not None:
            return MrtSource(self.mrt, self.peer, rank=0 if self.peer else number)
        if self.prefixes is not None:
            return PrefixList(self.prefixes, self.size or None, self.seed, number)
        if self.tap is not None:
            return RecordedTap(self.tap, self.peer)
        if self.replay is not None and not self.size:
            return Ready()
        return Synthetic(self.size or Synthetic().size, self.seed, number)

    def scenario(self) -> Scenario:
        """Make a scenario: senders send, listeners must come to hold it all; probes before or after, then a replay."""
        players: list[tuple[Plan, Source]] = []
        for number, plan in enumerate(self.senders):
            is_prober = self.probes_while_loading and number == 0
            players.append((plan, Ready() if is_prober else self.source(number)))
        for plan in self.listeners:
            plan.n_expected = None if self.senders else 0
            players.append((plan, Ready()))
        target = Target(address=self.target, port=self.port or 179)
        return Scenario("flags", "", self.time_limit or 120, [target], players, set(), self._steps())

    def _steps(self) -> list[tuple[str, dict]]:
        steps: list[tuple[str, dict]] = [("connect", {}), ("send", {}), ("converge", {})]
        probing = {"count": self.probes, "interval_s": self.probe_interval}
        if self.probes_while_loading:
            steps = [steps[0], ("probe", {**probing, "background": True}), *steps[1:], ("probe-end", {})]
        elif self.probes:
            steps.append(("probe", probing))
        if self.replay is not None:
            names = [plan.name for plan in self.senders]
            what = {"path": str(self.replay), "neighbors": names[:1] if self.peer else names, "peer": self.peer}
            steps += [("replay", {**what, "speed": self.speed}), ("converge", {})]
        return steps
