"""Why a neighbor has no session, and when one is tried again, in words for an operator.

Owns the words. Never changes anything: the session's record and the neighbor's say it all.
"""

from typing import NamedTuple

from common.bgp.fsm import State
from common.bgp.session import NEVER
from stages.speaker.neighbors import Neighbor


class Standing(NamedTuple):
    """How a neighbor without a session stands."""

    reason: str | None
    """None where it has a session."""
    is_held: bool
    """Somebody has stopped it, or a limit holds it back; else it is what ended the last session that matters."""
    retry_s: float | None
    """Seconds until it is called or may call again, None: that is up to the neighbor, or to an operator."""


def standing(neighbor: Neighbor, now: float) -> Standing:
    """Return why a neighbor has no session; `now` is the time of the clock of its session's timers."""
    record = neighbor.peering.session.record
    if record.state is State.ESTABLISHED:
        return Standing(None, False, None)
    retry_at = min(record.idle_hold_at, record.connect_retry_at)
    is_held = record.state is State.IDLE and bool(neighbor.stopped_by or neighbor.held_back_by)
    return Standing(_reason(neighbor), is_held, None if retry_at == NEVER else round(max(retry_at - now, 0.0), 3))


def _reason(neighbor: Neighbor) -> str:
    record = neighbor.peering.session.record
    if record.state is State.IDLE:
        if neighbor.stopped_by:
            return f"stopped by {neighbor.stopped_by}"
        return f"went beyond {neighbor.held_back_by}" if neighbor.held_back_by else "waits after an error"
    if record.state is State.ACTIVE:
        return "waits to be called (passive)" if neighbor.config.passive else "waits to be called, or to call again"
    return {
        State.CONNECT: "is being called, no answer yet",
        State.OPEN_SENT: "is connected, its OPEN is awaited",
        State.OPEN_CONFIRM: "has sent its OPEN, its KEEPALIVE is awaited",
    }[record.state]
