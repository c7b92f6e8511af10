"""`headrace feed`: load tests from the command line, against Headrace or any other BGP speaker."""

import json
import math
import os
import selectors
import signal
import sys
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path

import click

from common.bgp.constants import Family
from stages.feed import keys, picture
from stages.feed import scenario as scenarios
from stages.feed.display import Display, summary_lines
from stages.feed.flags import Flags
from stages.feed.load import Load, LoadFailed, Player
from stages.feed.mrt import summarize
from stages.feed.neighbor import Plan
from stages.feed.plot import plot
from stages.feed.scenario import Scenario, ScenarioError, router_id_at
from stages.feed.source import Ready, Source
from stages.feed.steps import STEPS, Run, replayed
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
        for name, keys_given in scenario.steps:
            if name == "replay":
                for each in replayed(self.run, keys_given):
                    each.peer_number()  # what is wrong with the file is said before anything is sent

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
            self.failure = error.strerror or str(error)
        except KeyboardInterrupt:
            self.failure = STOPPED
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


def _reference(context: click.Context, option: click.Parameter, is_asked: bool) -> None:
    if not is_asked or context.resilient_parsing:
        return
    for line in keys.reference(STEPS):
        click.echo(line)
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


class Seconds(click.FloatRange):
    """Seconds, or another number that is not negative, not infinite, and a number at all."""

    def convert(self, value, param, context) -> float:
        number = super().convert(value, param, context)
        return number if math.isfinite(number) else self.fail(f"{value!r} is no number of use here.", param, context)


def _can_be_written(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Check before the test what would be a pity to find out after it."""
    if path is None:
        return None
    folder = path.absolute().parent
    if not folder.is_dir():
        raise click.BadParameter(f"there is no directory {str(folder)!r}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise click.BadParameter(f"{str(path)!r} cannot be written")
    if option.name == "plot_path" and (why := picture.why_not(path)):
        raise click.BadParameter(why)
    return path


STOPPED = "stopped by a signal"
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTPUT = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(0, keys.MOST_PREFIXES)


@click.command()
@click.argument("scenario", required=False)
@click.option("--target", default="", help="Address of the BGP speaker under test; before that of the scenario.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="TCP port of the speaker under test (default: 179, or the scenario's).",
)
@click.option("--sender", "senders", multiple=True, help="A neighbor that sends a table: NAME=ADDRESS,ASN.")
@click.option("--listener", "listeners", multiple=True, help="A neighbor that listens: NAME=ADDRESS,ASN.")
@click.option(
    "--family",
    "families",
    multiple=True,
    type=click.Choice([family.label for family in Family]),
    help="What the neighbors speak (default: both).",
)
@click.option(
    "--size", type=COUNT, default=0, help="Prefixes in a table (default: 1,230,000, the scenario's, or the whole list)."
)
@click.option("--prefixes", type=FILE, help="Take prefixes from a list, one a line; the file may be packed.")
@click.option("--mrt", type=FILE, help="Let each sender play a peer of this MRT file, the largest first.")
@click.option("--tap", type=FILE, help="Let each sender send what this recording of `headrace tap --json` holds.")
@click.option(
    "--peer", default="", help="The peer of the file to play: its address, or AS and number; of a tap: its name."
)
@click.option("--replay", type=FILE, help="Then send the UPDATEs of this MRT file at their times.")
@click.option(
    "--speed", type=Seconds(0, min_open=True), default=1.0, show_default=True, help="How many times as fast to replay."
)
@click.option(
    "--seed", type=click.IntRange(0, (1 << 63) - 1), default=1, show_default=True, help="Seed of the synthetic table."
)
@click.option(
    "--time-limit", type=Seconds(0), default=0.0, help="Stop after this many seconds (default: 120, or the scenario's)."
)
@click.option("--probes", type=COUNT, default=0, help="Send this many single changes and measure their way.")
@click.option(
    "--probe-interval", type=Seconds(0), default=0.0, help="Seconds between probes; 0: the next when one has arrived."
)
@click.option("--probes-while-loading", is_flag=True, help="The first sender sends probes only, while the others load.")
@click.option(
    "--bus", type=click.Path(file_okay=False, path_type=Path), help="Be a speaker on the bus in this directory."
)
@click.option("--json", "json_path", type=OUTPUT, callback=_can_be_written, help="Write the report there.")
@click.option(
    "--plot",
    "plot_path",
    type=OUTPUT,
    callback=_can_be_written,
    help="Write a plot of routes over time and of delays there: FILE.svg or FILE.png.",
)
@click.option("--events", is_flag=True, help="Print one JSON object a line instead of the display, for programs.")
@click.option("--hold", is_flag=True, help="After the report keep the sessions up until standard input ends.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the scenarios.")
@click.option(
    "--show", metavar="SCENARIO", is_eager=True, expose_value=False, callback=_show, help="Print one, to be changed."
)
@click.option(
    "--reference",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_reference,
    help="Print all keys of a scenario.",
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
        chosen = _chosen(scenario, told)
    except ScenarioError as error:
        if scenario is None or "\n" not in str(error) and not Path(scenario).exists():
            raise click.UsageError(str(error)) from None
        click.echo(error, err=True)
        sys.exit(2)
    try:
        with _stopped_by_sigterm():
            performance = Performance(chosen, events)
    except (LoadFailed, ValueError, KeyboardInterrupt) as error:
        failure = str(error) or STOPPED
        if json_path:
            json_path.write_text(json.dumps({"scenario": chosen.name, "is_good": False, "failure": failure}) + "\n")
        raise click.ClickException(failure) from None
    with _stopped_by_sigterm():
        _perform(performance, json_path, plot_path, hold)


@contextmanager
def _stopped_by_sigterm():
    """Let SIGTERM do what an interrupt from the keyboard does, so that the report is written."""

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _on_bus(run_dir: Path, told: Flags) -> int:
    from stages.feed.on_bus import NotThere, feed_bus

    if not told.senders:
        raise ScenarioError("--bus needs a --sender")
    if told.target or told.listeners or told.probes or told.replay:
        raise ScenarioError("--bus: there are no sessions, so neither --target, --listener, --probes nor --replay")
    told.check()
    players = [(plan, told.source(number)) for number, plan in enumerate(told.senders)]
    try:
        return feed_bus(run_dir, players, told.time_limit)
    except NotThere as error:
        raise ScenarioError(str(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def _chosen(scenario: str | None, told: Flags) -> Scenario:
    """Return the scenario that is meant."""
    if told.target:
        try:
            ip_address(told.target)
        except ValueError:
            raise click.UsageError(f"--target {told.target!r} is no IP address") from None
    if scenario:
        without = {"--sender": told.senders, "--listener": told.listeners, "--mrt": told.mrt, "--replay": told.replay,
                   "--prefixes": told.prefixes, "--probes": told.probes, "--tap": told.tap, "--peer": told.peer,
                   "--family": told.families}  # fmt: skip
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
    told.check()
    return told.scenario()


def _perform(performance: Performance, json_path: Path | None, plot_path: Path | None, hold: bool) -> None:
    try:
        performance.perform()
        report = performance.report()
        if json_path:
            json_path.write_text(json.dumps(report, indent=2) + "\n")
        if plot_path:
            picture.write(performance.svg(), plot_path)
        if performance.is_events:
            performance.event("failed" if performance.failure else "converged", reason=performance.failure, **report)
        else:
            click.echo("\n".join(summary_lines(report)))
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
