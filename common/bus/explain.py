"""Answers "what would become of this route, and why": single routes put through a stage's own evaluation as a batch.

Owns the form of question and answer on the control socket. Never evaluates by itself: an operator reads what the
routes got, not what a second implementation thinks.

    {family, sources: [as in a batch], routes: [{source: index, set: octets, prefix: "192.0.2.0/24"}, ...]}
    -> [{refusal: number, reason: words, set: octets or None}, ...]
"""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any, Final

import numpy as np

from common.bus.batch import Batch, decode, encode
from common.bus.control import ControlError
from common.bus.schema import FAMILIES, RouteChanges, SchemaError

MAX_ROUTES: Final = 1024

Evaluate = Callable[[Batch], tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]
"""For a RouteChanges batch: (set of each row, refusal of each row, set_offset, set_octets)."""


def explain(question: dict[str, Any], evaluate: Evaluate, words_of: Callable[[int], str]) -> list[dict[str, Any]]:
    """Return the verdict on each route of a question; raise ControlError where it cannot be understood."""
    sets, refusals, offset, octets = evaluate(_batch(question))
    return [
        {
            "refusal": refusal,
            "reason": words_of(refusal),
            "set": None if refusal else octets[offset[number] : offset[number + 1]].tobytes(),
        }
        for number, refusal in zip(sets.tolist(), refusals.tolist(), strict=True)
    ]


def _batch(question: dict[str, Any]) -> Batch:
    """Return the routes of a question as a batch, checked as if it had come over the bus."""
    try:
        family, routes = question["family"], question["routes"]
        if len(routes) > MAX_ROUTES:
            raise ControlError(f"at most {MAX_ROUTES} routes in one question")
        prefixes = [ip_network(route["prefix"], strict=False) for route in routes]
        addresses = [int(prefix.network_address) << (128 - prefix.max_prefixlen) for prefix in prefixes]
        if any(prefix.max_prefixlen != FAMILIES[family] for prefix in prefixes):
            raise ControlError(f"a prefix is not of {family}")
        lows = [] if FAMILIES[family] == 32 else [address & 0xFFFFFFFFFFFFFFFF for address in addresses]
        octets = b"".join(route["set"] for route in routes)
        columns = {
            "hi": np.array([address >> 64 for address in addresses], np.uint64),
            "lo": np.array(lows, np.uint64),
            "length": np.array([prefix.prefixlen for prefix in prefixes], np.uint8),
            "source": np.array([route["source"] for route in routes], np.uint32),
            "set": np.arange(len(routes), dtype=np.uint32),
            "reason": np.zeros(len(routes), np.uint8),
            "set_offset": np.cumsum([0, *(len(route["set"]) for route in routes)], dtype=np.uint32),
            "set_octets": np.frombuffer(octets, np.uint8),
        }
        batch = Batch(RouteChanges, columns, {"family": family, "sources": question["sources"]})
        return decode(encode(batch, 0))[1]
    except (KeyError, TypeError, ValueError, OverflowError, SchemaError) as error:
        raise ControlError(f"not a question about routes: {error!r}") from error
