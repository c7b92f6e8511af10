"""`headrace feed`: load tests from the command line, against Headrace or any other BGP speaker."""

import json
import selectors
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import click

from stages.feed import scenario as scenarios
from stages.feed.display import Display, summary_lines
from stages.feed.load import Load, LoadFailed, Player
from stages.feed.mrt import MrtSource, summarize
from stages.feed.neighbor import Plan
from stages.feed.plot import plot
from stages.feed.scenario import Scenario, ScenarioError, Target, router_id_at
from stages.feed.source import PrefixList, Ready, Source, Synthetic
from stages.feed.steps import Run
from stages.feed.unpack import FileError


def parse_neighbor(text: str) -> Plan:
    """Parse `NAME=ADDRESS,ASN`; raises click.BadParameter saying what is wrong."""
    try:
        name, rest = text.split("=", 1)
        address, asn = rest.split(",")
        own = ip_address(address)
        if not 0 < int(asn) < 1 << 32:
            raise ValueError
        return Plan(name, str(own), int(asn), router_id_at(own, 0))
    except ValueError:
        raise click.BadParameter(f"{text!r}: write NAME=ADDRESS,ASN, for example transit=10.77.0.10,64601") from None


@dataclass(slots=True, kw_only=True)
class Flags:
    """What the command was told without a scenario."""

    target: str = ""
    port: int = 0
    senders: list[Plan] = field(default_factory=list)
    listeners: list[Plan] = field(default_factory=list)
    size: int = 0
    seed: int = 1
    prefixes: Path | None = None
    mrt: Path | None = None
    peer: str = ""
    replay: Path | None = None
    speed: float = 1.0
    time_limit: float = 0.0
    probes: int = 0
    probe_interval: float = 0.0
    probes_while_loading: bool = False

    def source(self, number: int) -> Source:
        """Make what the n-th sender announces: from files, or synthetic."""
        if self.mrt is not None:
            return MrtSource(self.mrt, self.peer, rank=0 if self.peer else number)
        if self.prefixes is not None:
            return PrefixList(self.prefixes, self.size or None, self.seed, number)
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


class Performance:
    """A scenario being carried through, with all that is shown and written of it."""

    def __init__(self, scenario: Scenario, is_events: bool):
        self.scenario = scenario
        self.is_events = is_events
        self.display = None if is_events else Display()
        target = scenario.targets[0]
        if self.display:
            self.display.on_prepare(sum(not _only_listens(source, plan) for plan, source in scenario.players))
        self.player = Player(
            Load(
                (target.address, target.port),
                [(plan, source) for plan, source in scenario.players if not _only_listens(source, plan)],
                [plan for plan, source in scenario.players if _only_listens(source, plan)],
                time_limit_s=scenario.time_limit_s,
                watch=self.display.watch if self.display else None,
                late=frozenset(scenario.late),
            )
        )
        self.run = Run(self.player, set(scenario.late))
        self.failure = ""

    def event(self, name: str, **more) -> None:
        """Tell a program that reads along what has happened."""
        if self.is_events:
            print(json.dumps({"event": name, **more}), flush=True)

    def perform(self) -> None:
        """Do all steps; what goes wrong is in `failure`."""
        steps = self.scenario.steps
        if not any(name == "connect" for name, _ in steps[:1]):
            steps = [("connect", {}), *steps]
        try:
            for name, keys in steps:
                if self.display:
                    self.display.on_step(name)
                self.run.perform([(name, keys)])
                if name == "connect":
                    self.event("established")
        except (LoadFailed, ValueError) as error:
            self.failure = str(error)
        except OSError as error:
            self.failure = f"can't connect: {error.strerror or error}"
        except KeyboardInterrupt:
            self.failure = "stopped from the keyboard"
        if self.display:
            self.display.end()

    @property
    def is_good(self) -> bool:
        return self.run.is_good and not self.failure

    def report(self) -> dict:
        """Return all that was found."""
        report = self.player.report()
        verdicts = [step["verdict"] for step in self.run.report if "verdict" in step]
        return {
            "scenario": self.scenario.name,
            "is_good": self.is_good,
            "failure": self.failure,
            **report,
            "verdict": verdicts[-1] if verdicts else {},
            "steps": self.run.report,
        }

    def svg(self) -> str:
        """Return the plot of what was held, and of the delays."""
        names = list(self.player.samples[-1][1]) if self.player.samples else []
        held = [(name, [(at, counts.get(name, 0)) for at, counts in self.player.samples]) for name in names]
        delays = [] if self.player.probes is None else [each * 1e3 for each in self.player.probes.delays_s]
        return plot(self.scenario.name, held, delays)

    def hold(self) -> None:
        """Keep the sessions up until standard input ends."""
        waiting = selectors.DefaultSelector()
        waiting.register(sys.stdin, selectors.EVENT_READ)
        with suppress(LoadFailed, KeyboardInterrupt):
            self.player.idle(lambda: bool(waiting.select(0)))
        self.event("end", **self.report())


def _only_listens(source: Source, plan: Plan) -> bool:
    return isinstance(source, Ready) and not source.pieces and plan.n_expected != 0


def _show(context: click.Context, option: click.Parameter, name: str | None) -> None:
    if name is None or context.resilient_parsing:
        return
    if name not in scenarios.names():
        raise click.UsageError(f"no scenario is called {name!r}; there are {', '.join(scenarios.names())}")
    click.echo(scenarios.text_of(name), nl=False)
    context.exit()


def _list(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    for name in scenarios.names():
        click.echo(f"{name:<14} {scenarios.load(name).summary}")
    context.exit()


def _mrt_summary(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    if path is None or context.resilient_parsing:
        return
    try:
        found = summarize(path)
    except FileError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{found.n_records:,} records over {found.duration_s:,.0f} s; {found.n_malformed:,} malformed")
    for kind, count in found.kinds.items():
        click.echo(f"  {count:>10,}  {kind}")
    for family, count in found.n_prefixes.items():
        routes = f"{found.n_announced[family]:,} announced, {found.n_withdrawn[family]:,} withdrawn"
        click.echo(f"{family}: {count:,} prefixes, {routes}")
    click.echo("peers, by UPDATEs or entries:")
    for peer in sorted(found.peers, key=lambda peer: -peer.n_routes)[:40]:
        click.echo(f"  {peer.n_routes:>10,}  {peer.address} AS{peer.asn}")
    context.exit()


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("scenario", required=False)
@click.option("--target", default="", help="Address of the BGP speaker under test; before that of the scenario.")
@click.option("--port", default=0, help="TCP port of the speaker under test (default: 179, or the scenario's).")
@click.option("--sender", "senders", multiple=True, help="A neighbor that sends a table: NAME=ADDRESS,ASN.")
@click.option("--listener", "listeners", multiple=True, help="A neighbor that listens: NAME=ADDRESS,ASN.")
@click.option("--size", default=0, help="Prefixes in a table (default: 1,230,000, the scenario's, or the whole list).")
@click.option("--prefixes", type=FILE, help="Take prefixes from a list, one a line; the file may be packed.")
@click.option("--mrt", type=FILE, help="Let each sender play a peer of this MRT file, the largest first.")
@click.option("--peer", default="", help="The peer of the MRT file to play: its address, or AS and number.")
@click.option("--replay", type=FILE, help="Then send the UPDATEs of this MRT file at their times.")
@click.option("--speed", default=1.0, show_default=True, help="How many times as fast to replay.")
@click.option("--seed", default=1, show_default=True, help="Seed of the synthetic table.")
@click.option("--time-limit", default=0.0, help="Stop after this many seconds (default: 120, or the scenario's).")
@click.option("--probes", default=0, help="Send this many single changes and measure their way.")
@click.option("--probe-interval", default=0.0, help="Seconds between probes; 0: the next when one has arrived.")
@click.option("--probes-while-loading", is_flag=True, help="The first sender sends probes only, while the others load.")
@click.option(
    "--bus", type=click.Path(file_okay=False, path_type=Path), help="Be a speaker on the bus in this directory."
)
@click.option("--json", "json_path", type=OUTPUT, help="Write the report there.")
@click.option("--plot", "plot_path", type=OUTPUT, help="Write a plot (SVG) of routes over time and delays there.")
@click.option("--events", is_flag=True, help="Print one JSON object a line instead of the display, for programs.")
@click.option("--hold", is_flag=True, help="After the report keep the sessions up until standard input ends.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the scenarios.")
@click.option(
    "--show", metavar="SCENARIO", is_eager=True, expose_value=False, callback=_show, help="Print one, to be changed."
)
@click.option(
    "--mrt-summary",
    type=FILE,
    is_eager=True,
    expose_value=False,
    callback=_mrt_summary,
    help="Print what an MRT file has.",
)
def feed(scenario, bus, json_path, plot_path, events, hold, senders, listeners, **flags):
    """Play neighbors against a BGP speaker: send tables, listen, and judge what comes back.

    SCENARIO is a file or the name of a shipped one (--list); or say with --target, --sender and --listener who does
    what. Exit status 0 when every listener holds exactly what it must, 1 when not or when the test failed, 2 for
    wrong usage.

    \b
    headrace feed full-table --target 192.0.2.1
    headrace feed --target 192.0.2.1 --sender a=192.0.2.10,64601 --listener b=192.0.2.20,64602 --size 100000
    headrace feed --show churn > mine.toml; headrace feed mine.toml --json report.json --plot plot.svg
    """
    told = Flags(senders=list(map(parse_neighbor, senders)), listeners=list(map(parse_neighbor, listeners)), **flags)
    try:
        if bus is not None:
            sys.exit(_on_bus(bus, told))
        performance = Performance(_chosen(scenario, told), events)
    except ScenarioError as error:
        raise click.UsageError(str(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    _perform(performance, json_path, plot_path, hold)


def _on_bus(run_dir: Path, told: Flags) -> int:
    from stages.feed.on_bus import feed_bus

    if not told.senders:
        raise click.UsageError("--bus needs a --sender")
    players = [(plan, told.source(number)) for number, plan in enumerate(told.senders)]
    return feed_bus(run_dir, players, told.time_limit)


def _chosen(scenario: str | None, told: Flags) -> Scenario:
    """Return the scenario that is meant."""
    if told.target:
        try:
            ip_address(told.target)
        except ValueError:
            raise click.UsageError(f"--target {told.target!r} is no IP address") from None
    if scenario:
        without = {"--sender": told.senders, "--listener": told.listeners, "--mrt": told.mrt, "--replay": told.replay,
                   "--prefixes": told.prefixes, "--probes": told.probes}  # fmt: skip
        given = [name for name, value in without.items() if value]
        if given:
            raise click.UsageError(f"{', '.join(given)}: for tests without a scenario; change the scenario (--show)")
        return scenarios.load(
            scenario, target=told.target, port=told.port, size=told.size, time_limit_s=told.time_limit
        )  # fmt: skip
    if not told.target:
        raise click.UsageError("name a scenario (see --list), or give --target")
    if not told.senders and not told.listeners:
        raise click.UsageError("nobody is to be played: give --sender, --listener or both")
    if told.speed <= 0:
        raise click.UsageError("--speed: expected more than 0")
    return told.scenario()


def _perform(performance: Performance, json_path: Path | None, plot_path: Path | None, hold: bool) -> None:
    try:
        performance.perform()
        report = performance.report()
        if performance.is_events:
            performance.event("failed" if performance.failure else "converged", reason=performance.failure, **report)
        else:
            click.echo("\n".join(summary_lines(report)))
        if json_path:
            json_path.write_text(json.dumps(report, indent=2) + "\n")
        if plot_path:
            plot_path.write_text(performance.svg())
        if hold and not performance.failure:
            performance.hold()
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    finally:
        performance.player.close()
    if performance.failure and performance.is_events:
        click.echo(f"Error: {performance.failure}", err=True)
    sys.exit(0 if performance.is_good else 1)


if __name__ == "__main__":
    feed()
