"""What the fib says of itself: status, answers to questions, metrics.

Owns the words and the names of the metrics. Never changes anything.
"""

import errno
import ipaddress
import os
from socket import AF_INET
from typing import TYPE_CHECKING, Any

import numpy as np

from common.bgp.prefixes import text_at
from common.kernels.plan import ELSEWHERE
from common.runtime.metrics import Metrics
from stages.fib.messages import Gateway
from stages.fib.plan import Plan

if TYPE_CHECKING:
    from stages.fib.stage import FibStage

MEANINGS = {
    errno.EEXIST: "a route of another program has this prefix and metric",
    errno.EIO: "the kernel's answer was lost",
    errno.ENOMEM: "the kernel has no memory",
    errno.ENOBUFS: "the kernel has no buffers",
    errno.ENETUNREACH: "the kernel finds no way to the gateway",
    errno.EHOSTUNREACH: "the kernel finds no way to the gateway",
    errno.ENETDOWN: "the interface is down",
    errno.ENODEV: "the interface is gone",
    errno.EINVAL: "the kernel takes the route for invalid: its nexthop object may be gone",
}


def status(stage: "FibStage") -> dict[str, Any]:
    """Return the numbers of the stage."""
    if stage.kernel is None:
        return {"enabled": False}
    return {
        "enabled": True,
        "table": stage.settings.table,
        "metric": stage.settings.metric,
        "protocol": stage.settings.protocol,
        "namespace": stage.settings.namespace,
        "nexthop_objects": stage.ways.has_objects,
        "nexthop_compat_mode": stage.compat_mode,
        "blackhole": stage.ways.n_blackhole(),
        "repaired": stage.n_repaired,
        "dumps": stage.kernel.n_dumps,
        "families": {family.label: _plan_status(plan) for family, plan in stage.plans.items()},
        "next_hops": len(stage.ways.by_number),
        "next_hops_unusable": sum(1 for way in stage.ways.by_number.values() if not stage.ways.is_usable[way.number]),
        "routes_of_others": stage.resolver.n_routes,
    }


def _plan_status(plan: Plan) -> dict[str, Any]:
    return {
        "wanted": plan.n_wanted,
        "installed": plan.n_installed,
        "unconfirmed": plan.n_unconfirmed,
        "queued": plan.n_queued,
        "confirmed": plan.is_confirmed,
        "refused": {errno.errorcode.get(code, str(code)): n for code, n in plan.troubles().items()},
        "changes": {
            "installed": plan.counts.installed,
            "replaced": plan.counts.replaced,
            "removed": plan.counts.removed,
            "refused": plan.counts.refused,
        },
    }


def next_hops(stage: "FibStage") -> list[dict[str, Any]]:
    """Return every next hop with its way."""
    if stage.kernel is None:
        return []
    return [_next_hop(stage, number) for number in sorted(stage.ways.by_number)]


def _next_hop(stage: "FibStage", number: int) -> dict[str, Any]:
    ways = stage.ways
    way = ways.by_number[number]
    gateway = way.installed if isinstance(way.installed, Gateway) else None
    has_gateway = gateway is not None and not gateway.is_blackhole
    members = ", ".join(f"{ways.by_number[one].text} ({weight})" for one, weight in way.members)
    return {
        "address": members or way.text,
        "usable": bool(ways.is_usable[number]),
        "gateway": str(ipaddress.ip_address(gateway.address)) if has_gateway else "blackhole" if gateway else "",
        "interface": stage.resolver.name_of(gateway.interface) if has_gateway else "",
        "metric": way.metric if way.metric is not None else "",
        "object": way.identifier,
        "reason": way.reason,
        "routes_wanted": int(ways.n_wanted[number]),
        "routes_installed": int(ways.n_installed[number]),
    }


def refused(stage: "FibStage", limit: int) -> list[dict[str, Any]]:
    """Return routes the kernel refuses, at most `limit`, each with the reason."""
    found = []
    for plan in stage.plans.values():
        if plan.n_refused:
            for row in np.flatnonzero(plan.trouble[: plan.prefixes.row_limit])[: limit - len(found)].tolist():
                found.append(
                    {"prefix": text_at(plan.prefixes, row, plan.is_wide), "reason": why(int(plan.trouble[row]))}
                )
    return found


def why(code: int) -> str:
    """Return for people what an errno of a route means."""
    return MEANINGS.get(code, os.strerror(code))


def route(stage: "FibStage", text: str) -> dict[str, Any]:
    """Return what is planned and known of one prefix; raise ValueError for text that is no prefix."""
    network = ipaddress.ip_network(text, strict=False)
    plan = next(plan for plan in stage.plans.values() if (plan.family == AF_INET) == (network.version == 4))
    value = int(network.network_address) << (128 - network.max_prefixlen)
    hi, lo = np.array([value >> 64], np.uint64), np.array([value & (2**64 - 1)], np.uint64)
    row = int(plan.prefixes.find(hi, lo, np.array([network.prefixlen], np.uint8))[0])
    wanted, installed, trouble = int(plan.wanted[row]), int(plan.installed[row]), int(plan.trouble[row])
    return {
        "prefix": str(network),
        "wanted": _next_hop(stage, wanted) if row and wanted else None,
        "installed": bool(row and installed),
        "next_hop": stage.ways.by_number[installed].text if row and installed not in (0, ELSEWHERE) else "",
        "refused": why(trouble) if row and trouble else "",
    }


def add_metrics(stage: "FibStage", metrics: Metrics) -> None:
    """Make the metrics of the stage; they are read from the plans when asked for."""
    labels = ["family"]
    installed = metrics.gauge("installed_routes", "Routes of ours in the kernel.", labels)
    queued = metrics.gauge("queued_routes", "Prefixes that wait for the kernel.", labels)
    refused = metrics.gauge("refused_routes", "Routes the kernel refuses now, by error.", [*labels, "error"])
    changes = metrics.gauge("changed_routes", "Changes made in the kernel since the start.", [*labels, "action"])
    next_hops = metrics.gauge("next_hops", "Next hops known, by whether they can be used.", ["usable"])
    unconfirmed = metrics.gauge("unconfirmed_routes", "Routes that the rib has not named since it began anew.", labels)
    blackhole = metrics.gauge("blackhole_routes", "Routes of ours that lead nowhere, on purpose.")
    repaired = metrics.gauge("repaired_routes", "Routes repaired after others spoiled them, since the start.")

    def refresh() -> None:
        refused.clear()
        for family, plan in stage.plans.items():
            installed.labels(family.label).set(plan.n_installed)
            queued.labels(family.label).set(plan.n_queued)
            unconfirmed.labels(family.label).set(plan.n_unconfirmed)
            for code, n in plan.troubles().items():
                refused.labels(family.label, errno.errorcode.get(code, str(code))).set(n)
            for action in ("installed", "replaced", "removed", "refused"):
                changes.labels(family.label, action).set(getattr(plan.counts, action))
        blackhole.set(stage.ways.n_blackhole())
        repaired.set(stage.n_repaired)
        n_usable = sum(1 for number in stage.ways.by_number if stage.ways.is_usable[number])
        next_hops.labels("yes").set(n_usable)
        next_hops.labels("no").set(len(stage.ways.by_number) - n_usable)

    metrics.before_scrape(refresh)
