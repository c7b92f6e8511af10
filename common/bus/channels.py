"""The names of channels and endpoints.

Owns how a channel is called and where a stage's sockets lie. Never opens anything.
"""

from dataclasses import dataclass
from pathlib import Path

from common.bus.schema import (
    BestChanges,
    ExportChanges,
    InstalledChanges,
    Kind,
    NextHopChanges,
    RouteChanges,
    SessionChanges,
    VrpChanges,
)


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel, or a pattern of channels: "*" stands for one segment."""

    pattern: str
    kinds: tuple[Kind, ...]
    writer: str
    readers: str
    meaning: str


CHANNELS = (
    Channel(
        "adj-rib-in/*",
        (RouteChanges, SessionChanges),
        "speaker, policy",
        "policy, rib, taps",
        "routes as received (speaker) or after import policy (policy), by family",
    ),
    Channel("loc-rib/*", (BestChanges, SessionChanges), "rib", "exporter, fib, taps", "chosen paths, by family"),
    Channel(
        "adj-rib-out/*",
        (ExportChanges, SessionChanges),
        "exporter",
        "speaker, taps",
        "what a group of neighbors is to be told, by family; the group is in the parameters",
    ),
    Channel(
        "adj-rib-out/*/*", (ExportChanges,), "speaker", "taps", "what one neighbor was told, by family and neighbor"
    ),
    Channel("nexthops", (NextHopChanges,), "fib", "rib, taps", "reachability and cost of next hops"),
    Channel(
        "nexthops/wanted", (NextHopChanges,), "rib", "fib, taps", "the next hops of all candidates, to be resolved"
    ),
    Channel(
        "installed/*", (InstalledChanges,), "fib", "rib, taps", "prefixes the kernel has a route of ours for, by family"
    ),
    Channel("vrps", (VrpChanges,), "rpki", "policy, taps", "validated payloads"),
)


def adj_rib_in(family: str) -> str:
    """Return the channel of routes received, before or after import policy, by who serves it."""
    return f"adj-rib-in/{family}"


def loc_rib(family: str) -> str:
    """Return the channel of chosen paths."""
    return f"loc-rib/{family}"


def adj_rib_out(family: str, neighbor: str = "") -> str:
    """Return the channel of routes to tell (by group, in the parameters), or of what one neighbor was told."""
    return f"adj-rib-out/{family}/{neighbor}" if neighbor else f"adj-rib-out/{family}"


NEXTHOPS = "nexthops"
WANTED_NEXTHOPS = "nexthops/wanted"


def installed(family: str) -> str:
    """Return the channel of prefixes that are in the kernel."""
    return f"installed/{family}"


VRPS = "vrps"


def is_match(pattern: str, channel: str) -> bool:
    """Tell whether a channel's name fits a pattern, segment by segment."""
    wanted, found = pattern.split("/"), channel.split("/")
    return len(wanted) == len(found) and all(
        want in ("*", segment) for want, segment in zip(wanted, found, strict=True)
    )


def kinds_of(channel: str) -> tuple[Kind, ...]:
    """Return the kinds of batches that travel on a channel; of one that is not declared, none."""
    return next((entry.kinds for entry in CHANNELS if is_match(entry.pattern, channel)), ())


def family_of(channel: str) -> str:
    """Return the family in a channel's name, "" if it has none."""
    segments = channel.split("/")
    return segments[1] if len(segments) > 1 else ""


def endpoint(run_dir: str | Path, stage: str, instance: str = "0") -> str:
    """Return where a stage serves its channels."""
    return f"ipc://{run_dir}/{stage}.{instance}.bus"


def control_endpoint(run_dir: str | Path, stage: str, instance: str = "0") -> str:
    """Return where a stage answers questions."""
    return f"ipc://{run_dir}/{stage}.{instance}.control"
