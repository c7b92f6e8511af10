"""The command `tap`: follows a channel of the bus live, as any outside program may, and goes on when its stage is back.

Owns: one follower for each channel, and the rows' form as text or JSON. Never: slows anything; the stage counts it as a
tap, and what it has not taken yet is merged, or marked as a gap and sent as a snapshot.
"""

import ipaddress
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from common.cli.asking import Router, asks_router, find_router, say_and_exit
from common.cli.text import OWN, as_json_line
from common.config.schema import FAMILIES

if TYPE_CHECKING:
    from common.bus.batch import Batch
    from common.runtime.loop import Loop

SERVERS = {"adj-rib-in": "speaker", "loc-rib": "rib", "adj-rib-out": "speaker", "nexthops": "fib", "vrps": "rpki"}
RELAYS = ("policy", "exporter")  # any instance of these serves everything

AWAY_S = 1.0
"""A stage that cannot be reached within this time is said to be away."""


@click.command()
@click.argument("channel")
@click.option("--neighbor", help="Only routes of this neighbor (adj-rib-out: what this neighbor is told).")
@click.option("--prefix", help="Only this prefix and what is more specific.")
@click.option("--stage", help="Tap this stage: policy shows adj-rib-in after the import policy.")
@click.option("--instance", help="Instance of the stage; not given: all of them.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="End with status 1 when the stage has been away for so long; otherwise it is waited for.",
)
@asks_router
def tap(run_dir, file, channel, neighbor, prefix, stage, instance, is_json, timeout_s) -> None:
    """Follow CHANNEL live, until Ctrl-C: snapshot marks, changes, sequence and lag.

    Channels: adj-rib-in/FAMILY, loc-rib/FAMILY, adj-rib-out/FAMILY with --neighbor, nexthops. Without /FAMILY: both.
    """
    router = find_router(run_dir, file)
    name, _, rest = channel.partition("/")
    server = stage or SERVERS.get(name)
    if server is None:
        raise click.BadParameter(f"no channel {channel}; there are {', '.join(SERVERS)}", param_hint="CHANNEL")
    if name == "adj-rib-out" and not neighbor and rest.count("/") == 0:
        raise click.UsageError("adj-rib-out needs --neighbor")
    known = router.instances(server)
    if instance is not None and instance not in known:
        say_and_exit(f"no {server}.{instance} answers in {router.run_dir}")
    view = View(is_json, _network(prefix), None if name == "adj-rib-out" else neighbor)
    tapped = [instance] if instance else known[:1] if server in RELAYS else known
    follow(router, server, tapped, _channels(name, rest, neighbor), view, timeout_s)


def _channels(name: str, rest: str, neighbor: str | None) -> list[str]:
    if name in ("nexthops", "vrps"):
        return [name]
    channels = [f"{name}/{rest}"] if rest else [f"{name}/{family}" for family in FAMILIES]
    if name == "adj-rib-out" and neighbor:
        channels = [f"{each}/{neighbor}" for each in channels]
    return channels


def _network(text: str | None):
    try:
        return None if text is None else ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise click.BadParameter(f"{text} is no prefix", param_hint="--prefix") from None


def follow(
    router: Router, stage: str, instances: list[str], channels: list[str], view: "View", timeout_s: float | None = None
) -> None:
    """Show what comes on the channels until a signal ends it, or a stage has been away for `timeout_s`."""
    from common.bus.bus import Bus
    from common.bus.places import Places, places_of
    from common.bus.zmq_transport import ZmqTransport
    from common.runtime.log import Log
    from common.runtime.loop import Loop
    from common.runtime.stage import wake_on_signals

    loop = Loop()
    log = Log("tap", level="error")
    keyring, places = None, Places(router.run_dir)
    is_far = not all((router.run_dir / f"{stage}.{each}.bus").exists() for each in instances)
    if router.config is not None and is_far:
        keyring = router.keyring() if router.config.public_keys else None
        places = places_of(router.config)
    bus = Bus(router.run_dir, "tap", str(os.getpid()), loop, ZmqTransport(loop, keyring, log), log, places=places)
    signal.signal(signal.SIGTERM, lambda number, frame: loop.stop())

    refusing: set[str] = set()

    def on_refused(instance: str, reason: str) -> None:
        refusing.add(instance)
        if len(refusing) == len(instances):  # a neighbor is held by one of the speakers
            say_and_exit(f"{stage} refuses: {reason}")

    for instance, channel in itertools.product(instances, channels):
        refused = partial(on_refused, instance)
        bus.follow(stage, instance, channel, view.show, params={"tap": True}, on_refused=refused)
    for instance in instances:
        bus.watch(stage, instance, Presence(loop, f"{stage}.{instance}", timeout_s).on_change)
    try:
        with wake_on_signals(loop):
            loop.run()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on, e.g. `tap ... | head`
    finally:
        bus.close()


class Presence:
    """Says, once each time, that the stage is away and that it is back."""

    def __init__(self, loop: "Loop", name: str, timeout_s: float | None):
        self._loop = loop
        self._name = name
        self._timeout_s = timeout_s
        self._is_said = False
        self._timers = [loop.call_later(AWAY_S, self._say)]
        self._limit()

    def on_change(self, is_there: bool) -> None:
        """Take note that the stage can be reached, or no longer."""
        for timer in self._timers:
            timer.cancel()
        if not is_there:
            self._say()
            self._limit()
        elif self._is_said:
            self._is_said = False
            click.echo(f"headrace: {self._name} is back", err=True)

    def _say(self) -> None:
        self._is_said = True
        click.echo(f"headrace: {self._name} is away, and waited for", err=True)

    def _limit(self) -> None:
        if self._timeout_s is not None:
            self._timers.append(self._loop.call_later(self._timeout_s, self._give_up))

    def _give_up(self) -> None:
        say_and_exit(f"{self._name} has been away for {self._timeout_s:g} s")


class View:
    """Writes batches as lines, those rows that are asked for."""

    def __init__(self, is_json: bool, within=None, neighbor: str | None = None, write=None):
        self.is_json = is_json
        self.within = within
        self.neighbor = neighbor
        self.write = write or self._write

    def show(self, batch: "Batch") -> None:
        """Write one batch: its marks, its rows, where it leaves the reader."""
        for mark in self._marks_before(batch):
            self._mark(batch, mark)
        for row in rows_of(batch):
            if self._is_wanted(row):
                self.write(as_json_line({"channel": batch.channel, **row}) if self.is_json else _row_text(row))
        if batch.ends_snapshot:
            self._mark(batch, "snapshot-end")
        self._mark(batch, "position")

    def _marks_before(self, batch: "Batch") -> Iterator[str]:
        from common.bus.batch import GAP

        if batch.flags & GAP:
            yield "gap"
        if batch.begins_snapshot:
            yield "snapshot-begin"

    def _mark(self, batch: "Batch", mark: str) -> None:
        position = batch.position
        lag = max(0, batch.head - position.sequence)
        where = {"channel": batch.channel, "epoch": position.epoch, "sequence": position.sequence, "lag": lag}
        if self.is_json:
            self.write(as_json_line({"mark": mark, **where}))
        else:
            self.write(f"-- {mark} {batch.channel} epoch {position.epoch} sequence {position.sequence} lag {lag}")

    def _is_wanted(self, row: dict[str, Any]) -> bool:
        if self.neighbor is not None and "neighbor" in row and row["neighbor"] != self.neighbor:
            return False
        if self.within is None or "prefix" not in row:
            return True
        network = ipaddress.ip_network(row["prefix"])
        return network.version == self.within.version and network.subnet_of(self.within)

    @staticmethod
    def _write(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _row_text(row: dict[str, Any]) -> str:
    if row.get("neighbor") == "":
        row = row | {"neighbor": OWN}
    if "event" in row:
        return f"== {row['event']} {row['neighbor']}"
    if "prefix" not in row:
        return " ".join(f"{name} {value}" for name, value in row.items())
    sign = "-" if row.get("is_gone") else "+"
    words = [f"{name} {_word(value)}" for name, value in row.items() if name not in ("prefix", "is_gone")]
    return f"{sign} {row['prefix']} {'  '.join(words)}".rstrip()


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# ---- rows ---------------------------------------------------------------------------------------------------------


def rows_of(batch: "Batch") -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch as maps, for people: one route at a time is what they look at."""
    yield from _READERS.get(batch.kind.name, _plain_rows)(batch)


def _route_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    from common.bgp.reasons import ImportRefusal

    columns, sets, sources = batch.columns, _Sets(batch), batch.meta["sources"]
    reasons = columns["reason"].tolist() if "reason" in columns else [0] * batch.n_rows
    for prefix, number, source, reason in zip(
        _prefixes(batch), columns["set"].tolist(), columns["source"].tolist(), reasons, strict=True
    ):
        row = {"prefix": prefix, "is_gone": number not in sets, "neighbor": _name(sources, source)}
        if reason:
            row["refused"] = ImportRefusal.words_of(reason)
        yield row | sets.describe(number)


def _export_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    sets = _Sets(batch)
    for prefix, number in zip(_prefixes(batch), batch.columns["set"].tolist(), strict=True):
        yield {"prefix": prefix, "is_gone": number not in sets} | sets.describe(number)


def _best_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    from common.bgp.decision import CHOSEN_WORDS, Step

    columns, sets, sources = batch.columns, _Sets(batch), batch.meta["sources"]
    paths = zip(
        columns["path_source"].tolist(), columns["path_set"].tolist(), columns["path_reason"].tolist(), strict=True
    )
    for prefix, n_paths in zip(_prefixes(batch), columns["n_paths"].tolist(), strict=True):
        if n_paths == 0:
            yield {"prefix": prefix, "is_gone": True}
        for _ in range(n_paths):
            source, number, reason = next(paths)
            row = {"prefix": prefix, "is_gone": False, "neighbor": _name(sources, source)}
            yield row | sets.describe(number) | {"why": CHOSEN_WORDS[Step(reason)]}


def _session_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    from common.bus.schema import SessionEvent

    for source, number in zip(batch.columns["source"].tolist(), batch.columns["event"].tolist(), strict=True):
        event = SessionEvent(number).name.lower().replace("_", "-")
        yield {"event": f"session-{event}", "neighbor": _name(batch.meta["sources"], source)}


def _next_hop_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    columns = batch.columns
    for high, low, length, reachable, metric in zip(
        *(columns[name].tolist() for name in ("hi", "lo", "length", "reachable", "metric")), strict=True
    ):
        octets = ((high << 64) | low).to_bytes(16, "big")[:length]
        yield {"next_hop": str(ipaddress.ip_address(octets)), "is_reachable": bool(reachable), "metric": metric}


def _plain_rows(batch: "Batch") -> Iterator[dict[str, Any]]:
    for index in range(batch.n_rows):
        yield {name: column[index].item() for name, column in batch.columns.items() if len(column) == batch.n_rows}


_READERS = {
    "RouteChanges": _route_rows,
    "SessionChanges": _session_rows,
    "BestChanges": _best_rows,
    "ExportChanges": _export_rows,
    "NextHopChanges": _next_hop_rows,
}


def _prefixes(batch: "Batch") -> Iterator[str]:
    columns = batch.columns
    if batch.meta["family"] == "ipv4-unicast":
        for high, length in zip(columns["hi"].tolist(), columns["length"].tolist(), strict=True):
            yield f"{ipaddress.IPv4Address(high >> 32)}/{length}"
    else:
        for high, low, length in zip(*(columns[name].tolist() for name in ("hi", "lo", "length")), strict=True):
            yield f"{ipaddress.IPv6Address(high << 64 | low)}/{length}"


def _name(sources: list[dict], index: int) -> str | None:
    return sources[index]["name"] if index < len(sources) else None


class _Sets:
    """The attribute sets of a batch, each described once."""

    def __init__(self, batch: "Batch"):
        self._offset = batch.columns["set_offset"].tolist()
        self._octets = batch.columns["set_octets"].tobytes()
        self._described: dict[int, dict] = {}

    def __contains__(self, number: int) -> bool:
        return number < len(self._offset) - 1

    def describe(self, number: int) -> dict[str, Any]:
        """Return the attributes of a set; nothing for "gone"."""
        from common.bgp.attributes import describe_set

        if number not in self:
            return {}
        if number not in self._described:
            self._described[number] = describe_set(self._octets[self._offset[number] : self._offset[number + 1]])
        return self._described[number]
