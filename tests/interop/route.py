"""A route as seen from outside: in the same form from Headrace and from every daemon."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What one BGP speaker holds for one prefix."""

    as_path: tuple[int, ...]
    next_hop: str | None = None
    med: int | None = None
    local_pref: int | None = None
    communities: frozenset[str] = frozenset()
    large_communities: frozenset[str] = frozenset()

    @classmethod
    def described(cls, route: dict[str, Any]) -> "Route":
        """Return a route of an answer of Headrace."""
        return cls(
            as_path=path_of(route.get("as_path")),
            # A link-local next hop may follow the global one (RFC 2545 §3).
            next_hop=(route.get("next_hop") or "").split(" ")[0] or None,
            med=route.get("med"),
            local_pref=route.get("local_pref"),
            communities=frozenset(route.get("communities", ())),
            large_communities=frozenset(route.get("large_communities", ())),
        )


def path_of(words: str | Iterable[int] | None) -> tuple[int, ...]:
    """Return an AS path of plain sequences."""
    return tuple(int(word) for word in (words.split() if isinstance(words, str) else words or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a daemon originates."""

    prefix: str
    med: int | None = None
    local_pref: int | None = None
    communities: tuple[str, ...] = ()
    large_communities: tuple[str, ...] = ()
    as_path: tuple[int, ...] = ()  # before the daemon puts its own AS in front

    @property
    def version(self) -> int:
        return 6 if ":" in self.prefix else 4
