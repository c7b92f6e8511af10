"""What a new configuration means for a router that runs: each difference, and what it costs.

Owns: the comparison of two configurations, key by key; what a change of a key costs is declared with the key
(schema.py). Never: applies a change.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from common.config.keys import EVALUATE, LIVE, RESTART, SESSION, SHARE, keys_of
from common.config.schema import BLOCKS, LISTS, SECTIONS, Config, Fib, Neighbor

OWN = "own"
WORDS = {
    OWN: "others go by it at once",
    LIVE: "applied live",
    EVALUATE: "routes are evaluated again, the differences told",
    SESSION: "costs a session",
    SHARE: "each rib starts anew with its share; sessions and routes stay",
    RESTART: "only at the next start",
}
SHARED_SHOWN = 4  # of what two lists have in common
PLACES = {"endpoint": "endpoints", "key": "public_keys"}  # fields of what says where the stages meet, by section
# Which stage takes a key of a section only at its start; of the others the whole router.
RESTARTED = {"fib": "fib", "status": "status"}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: the key as a dotted path, both values as text, what it costs, and the sessions it costs."""

    path: str
    before: str
    after: str
    cost: str
    sessions: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = WORDS[self.cost]
        if self.cost == SESSION:
            words = f"costs the session{'s' if len(self.sessions) > 1 else ''} of {', '.join(self.sessions)}"
        elif self.cost == RESTART:
            stage = RESTARTED.get(self.path.partition(".")[0])
            words += f" of {f'the {stage} stage' if stage else 'the router'}"
        elif self.cost == OWN:
            words += f"; {self.path.partition('.')[2]} itself has it from its next start"
        return f"{self.path}: {self.before} -> {self.after}: {words}"


def changes(old: Config, new: Config) -> list[Change]:
    """Return every difference between two configurations."""
    everybody = tuple(sorted(old.neighbors.keys() & new.neighbors.keys()))
    found: list[Change] = []
    for name, section in SECTIONS.items():
        if name == "neighbor":
            found += _of_neighbors(old, new)
        elif name in PLACES:
            found += _of_places(name, getattr(old, PLACES[name]), getattr(new, PLACES[name]), old)
        else:
            found += _between(section, getattr(old, name), getattr(new, name), name, everybody)
    for name in [name for name in old.fibs.keys() | new.fibs.keys() if name != "0"]:
        found += _of_block(Fib, old.fibs.get(name), new.fibs.get(name), f"fib.{name}", RESTART)
    return found


def pinned(old: Config, new: Config, sections: tuple[str, ...] | None = None) -> Config:
    """Return a new configuration whose keys that count from a start only, of these sections or all, are as before."""
    kept = {}
    for name in sections or [name for name in SECTIONS if name not in LISTS]:
        before, after = getattr(old, name), getattr(new, name)
        values = {
            item.name: getattr(before, item.name)
            for item, entry in keys_of(SECTIONS[name]).values()
            if entry.change == RESTART
        }
        kept[name] = replace(after, **values)
    if sections is None or "fib" in sections:
        kept["fibs"] = old.fibs
    if old.endpoints:
        kept["endpoints"] = {each: place for each, place in new.endpoints.items() if not _is_late(each, old)}
    else:  # stages that were started without any have no right to open such sockets
        kept |= {field: getattr(old, field) for field in PLACES.values()}
    return replace(new, **kept)


def fingerprint(config: Config) -> str:
    """Return what tells a configuration from another one, wherever it was read."""
    return hashlib.sha256(repr(replace(config, path=None)).encode()).hexdigest()[:16]


def costs_session(old: Neighbor, new: Neighbor) -> bool:
    """Tell whether a neighbor's session cannot go on with its new configuration."""
    return any(
        entry.change == SESSION and getattr(old, item.name) != getattr(new, item.name)
        for item, entry in keys_of(Neighbor).values()
    )


def _of_neighbors(old: Config, new: Config) -> Iterator[Change]:
    for name in sorted(old.neighbors.keys() | new.neighbors.keys()):
        before, after = old.neighbors.get(name), new.neighbors.get(name)
        path = f"neighbor.{name}"
        if before is None:
            yield Change(path, "none", f"AS {after.asn}, {after.address}", LIVE)
        elif after is None:
            yield Change(path, f"AS {before.asn}, {before.address}", "none", SESSION, (name,))
        else:
            yield from _between(Neighbor, before, after, path, (name,))
            for block, section in BLOCKS.items():
                field = "import_" if block == "import" else block
                yield from _of_block(section, getattr(before, field), getattr(after, field), f"{path}.{block}")


def _of_places(name: str, before: dict, after: dict, old: Config) -> Iterator[Change]:
    """What is new or gone others know at once; whose own place or key has changed has it from its next start."""
    for each in sorted(before.keys() | after.keys()):
        if before.get(each) != after.get(each):
            words = ["none" if side is None else "set" for side in (before.get(each), after.get(each))]
            is_late = not old.endpoints or (name == "endpoint" and each in after and _is_late(each, old))
            cost = RESTART if is_late else OWN if each in before and each in after else LIVE
            yield Change(f"{name}.{each if isinstance(each, str) else '.'.join(each)}", *words, cost)


def _is_late(each: tuple[str, str], old: Config) -> bool:
    """Tell whether an endpoint is new to an instance that is not: nobody will be there until that is started again."""
    return each not in old.endpoints and each[1] in old.instances(each[0])


def _of_block(section: type, before: Any, after: Any, path: str, cost: str = EVALUATE) -> Iterator[Change]:
    if (before is None) != (after is None):
        yield Change(path, "none" if before is None else "set", "none" if after is None else "set", cost)
    elif before is not None:
        yield from _between(section, before, after, path, ())


def _between(section: type, before: Any, after: Any, path: str, sessions: tuple[str, ...]) -> Iterator[Change]:
    for name, (item, entry) in keys_of(section).items():
        values = getattr(before, item.name), getattr(after, item.name)
        if values[0] == values[1]:
            continue
        cost = LIVE if entry.change == SESSION and not sessions else entry.change
        told = sessions if cost == SESSION else ()
        yield Change(f"{path}.{name}", *_texts(*values), cost, told)


def _texts(before: Any, after: Any) -> tuple[str, str]:
    """Return two values as text; of long lists what both have is counted, not told."""
    if not (isinstance(before, tuple) and isinstance(after, tuple)):
        return _text(before), _text(after)
    shared = set(before) & set(after)
    if len(shared) <= SHARED_SHOWN:
        return _text(before), _text(after)
    texts = ([*map(_text_of_item, (each for each in side if each not in shared))] for side in (before, after))
    before_text, after_text = (f"[{', '.join((f'{len(shared)} in both', *each))}]" for each in texts)
    if before_text == after_text:  # only the order is another
        return _text(before), _text(after)
    return before_text, after_text


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text_of_item, value))}]"
    return str(value)


def _text_of_item(value: Any) -> str:
    return ":".join("*" if part is None else str(part) for part in value) if isinstance(value, tuple) else str(value)
