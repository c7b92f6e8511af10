"""Routes of neighbors whose session was lost and that have promised to come back: kept, and marked stale.

Owns what is stale and the timers that end it. Never touches a session: it is told when one ends, begins and has sent
its End-of-RIB. RFC 4724 §4.2 (procedures for the receiving speaker).

    lost ──▶ away ──restart time──▶ withdrawn
               └──up──▶ refilling ──End-of-RIB, or stale time──▶ what was not announced again is withdrawn
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from common.bgp.capabilities import GracefulRestart
from common.bgp.constants import Family
from common.runtime.log import Log, event
from common.runtime.loop import Loop, Timer
from stages.speaker.adj_rib_in import AdjRibIn


@dataclass(slots=True)
class Stale:
    """Stale routes of one neighbor: in which families, from which source, until when."""

    families: set[Family]
    source: int
    timer: Timer
    is_away: bool = True


class Retention:
    """Stale routes by neighbor."""

    def __init__(
        self, loop: Loop, log: Log, tables: dict[Family, AdjRibIn], on_given_up: Callable[[str, int, Family], None]
    ):
        """`on_given_up(name, source, family)` is called when a neighbor has not come back in time."""
        self._loop = loop
        self._log = log
        self._tables = tables
        self._on_given_up = on_given_up
        self._by_name: dict[str, Stale] = {}

    def lose(self, name: str, source: int, families: Iterable[Family], restart_time_s: float) -> None:
        """Keep a neighbor's routes in these families for as long as it said it needs to come back."""
        families = set(families)
        former = self._by_name.pop(name, None)
        if former is not None:
            former.timer.cancel()
            # RFC 4724 §4.2: what is stale from an earlier restart goes now.
            for family in former.families:
                self._tables[family].sweep_stale(name)
        if not families:
            return
        for family in families:
            self._tables[family].mark_stale(name)
        timer = self._loop.call_later(restart_time_s, lambda: self._give_up(name))
        self._by_name[name] = Stale(families, source, timer)
        event(
            self._log,
            "routes-stale",
            neighbor=name,
            families=",".join(sorted(family.label for family in families)),
            restart_time_s=restart_time_s,
        )

    def resume(self, name: str, families: Iterable[Family], said: GracefulRestart | None, stale_time_s: float) -> None:
        """Go on with a neighbor that is back, in the families in which it has kept its forwarding state (§4.2)."""
        stale = self._by_name.get(name)
        if stale is None:
            return
        stale.timer.cancel()
        kept = {family for family, is_kept in said.families if is_kept} if said is not None else set()
        for family in stale.families - (kept & set(families)):
            self._drop(name, stale, family)
        if stale.families:
            stale.is_away = False
            stale.timer = self._loop.call_later(stale_time_s, lambda: self._overdue(name))

    def end_of_rib(self, name: str, family: Family) -> None:
        """Withdraw what a neighbor has not announced again."""
        stale = self._by_name.get(name)
        if stale is not None and family in stale.families:
            self._drop(name, stale, family)

    def forget(self, name: str) -> None:
        """Withdraw what is stale of a neighbor that is no more."""
        stale = self._by_name.get(name)
        if stale is not None:
            for family in list(stale.families):
                self._drop(name, stale, family)

    def away(self, family: Family) -> list[int]:
        """Return the sources whose routes are stale while no session is up."""
        return [stale.source for stale in self._by_name.values() if stale.is_away and family in stale.families]

    def families_of(self, name: str) -> set[Family]:
        """Return the families in which a neighbor has stale routes."""
        stale = self._by_name.get(name)
        return set(stale.families) if stale is not None else set()

    def _drop(self, name: str, stale: Stale, family: Family) -> None:
        n_withdrawn = self._tables[family].sweep_stale(name)
        stale.families.discard(family)
        if stale.is_away:
            self._on_given_up(name, stale.source, family)
        if not stale.families:
            stale.timer.cancel()
            self._by_name.pop(name, None)
        event(self._log, "stale-routes-gone", neighbor=name, family=family.label, n_routes=n_withdrawn)

    def _give_up(self, name: str) -> None:
        event(self._log, "restart-time-over", "warning", neighbor=name)
        self.forget(name)

    def _overdue(self, name: str) -> None:
        event(self._log, "end-of-rib-overdue", "warning", neighbor=name)
        self.forget(name)
