"""`headrace feed`: a load test from the command line, against Headrace or any other BGP speaker."""

import json
import selectors
import sys
from pathlib import Path

import click

from stages.feed.load import Load, LoadFailed, Player
from stages.feed.neighbor import Plan
from stages.feed.source import PrefixList, Ready, Source, Synthetic


def parse_neighbor(text: str) -> Plan:
    """Parse `NAME=ADDRESS,ASN`; raises click.BadParameter saying what is wrong."""
    try:
        name, rest = text.split("=", 1)
        address, asn = rest.split(",")
        return Plan(name, address, int(asn), router_id=address)
    except ValueError:
        raise click.BadParameter(f"{text!r}: write NAME=ADDRESS,ASN, for example transit=10.77.0.10,64601") from None


def make_source(variant: int, size: int, seed: int, prefixes: Path | None) -> Source:
    """Make what one sender announces: synthetic, or with the prefixes of a list file."""
    if prefixes is not None:
        return PrefixList(prefixes, size or None, seed, variant)
    return Synthetic(size, seed, variant) if size else Synthetic(seed=seed, variant=variant)


PREFIX_LIST = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--target", required=True, help="Address of the BGP speaker under test.")
@click.option("--port", default=179, show_default=True, help="TCP port of the speaker under test.")
@click.option("--sender", "senders", multiple=True, help="A neighbor that sends a table: NAME=ADDRESS,ASN.")
@click.option("--listener", "listeners", multiple=True, help="A neighbor that listens: NAME=ADDRESS,ASN.")
@click.option("--size", default=0, help="Prefixes in the table (default: 1,230,000, or the whole list).")
@click.option("--prefixes", type=PREFIX_LIST, help="Take prefixes from a list, one a line (also .xz, .gz, .bz2).")
@click.option("--seed", default=1, show_default=True, help="Seed of the synthetic table.")
@click.option("--time-limit", default=120.0, show_default=True, help="Stop after this many seconds.")
@click.option("--probes", default=0, help="Send this many single changes and measure their way.")
@click.option("--probe-interval", default=0.0, help="Seconds between probes; 0: the next when one has arrived.")
@click.option("--probes-while-loading", is_flag=True, help="The first sender sends probes only, while the others load.")
@click.option("--hold", is_flag=True, help="After the report keep the sessions up until standard input ends.")
def feed(
    target,
    port,
    senders,
    listeners,
    size,
    prefixes,
    seed,
    time_limit,
    probes,
    probe_interval,
    probes_while_loading,
    hold,
):
    """Play neighbors against a BGP speaker: send tables, listen, and judge what comes back.

    Prints the report as one line of JSON. Exit status 0 when every listener holds exactly what was sent, 1 when not.
    """
    try:
        plans = [parse_neighbor(text) for text in senders]
        listening = [parse_neighbor(text) for text in listeners]
        tables = []
        for variant in range(len(plans)):
            is_prober = probes_while_loading and variant == 0
            tables.append(Ready() if is_prober else make_source(variant, size, seed, prefixes))
        for plan in listening:
            plan.n_expected = None if plans else 0
        load = Load(
            (target, port),
            list(zip(plans, tables, strict=True)),
            listening,
            time_limit_s=time_limit,
            n_probes=probes,
            probe_interval_s=probe_interval,
            probes_while_loading=probes_while_loading,
        )
        player = Player(load)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    try:
        player.connect()
        print(json.dumps({"event": "established"}), flush=True)
        player.send_tables()
        if probes and not probes_while_loading:
            player.send_probes()
        verdict = player.verdict() if not probes else {}
        report = player.report()
        report["verdict"] = {name: each.as_dict() for name, each in verdict.items()}
        print(json.dumps({"event": "converged", **report}), flush=True)
        if hold:
            waiting = selectors.DefaultSelector()
            waiting.register(sys.stdin, selectors.EVENT_READ)
            player.idle(lambda: bool(waiting.select(0)))
            print(json.dumps({"event": "end", **player.report()}), flush=True)
        sys.exit(0 if all(each.is_good for each in verdict.values()) else 1)
    except LoadFailed as failure:
        print(json.dumps({"event": "failed", "reason": str(failure), **failure.report}), flush=True)
        raise click.ClickException(str(failure)) from None
    except OSError as error:
        raise click.ClickException(f"can't connect: {error.strerror or error}") from None
    finally:
        player.close()


if __name__ == "__main__":
    feed()
