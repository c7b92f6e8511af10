"""Scenarios: what a load test does, as a TOML file or one of those that are shipped.

Owns the keys of the file and their checks. Every error says where it is and, for an unknown name, the nearest
known one. What the steps do is `steps.py`'s.
"""

import difflib
import ipaddress
import itertools
import tomllib
from dataclasses import MISSING, dataclass, field, fields
from importlib import resources
from pathlib import Path
from typing import Any

from common.bgp.constants import Family
from stages.feed.mrt import HOW, MrtSource
from stages.feed.neighbor import Plan
from stages.feed.recording import RecordedTap
from stages.feed.source import PrefixList, Ready, Source, Synthetic
from stages.feed.steps import STEPS

SHIPPED = resources.files("stages.feed") / "scenarios"


class ScenarioError(ValueError):
    """A scenario that cannot be played; the text says where and why."""


@dataclass(slots=True, kw_only=True)
class Target:
    """The speaker under test."""

    name: str = ""
    address: str
    port: int = 179


@dataclass(slots=True, kw_only=True)
class TableKeys:
    """A table that neighbors announce. `size` and `pool`: prefixes; `path`: of a file, from the scenario's folder."""

    source: str = "synthetic"
    size: int = 0
    pool: int = 0
    seed: int = 1
    same_paths: bool = False  # else each neighbor has paths of its own to the same prefixes, or plays another peer
    path: str = ""
    peer: str = ""  # of an MRT file; empty: those with the most routes
    first_as: str = "replace"
    keeps_as_sets: bool = False


@dataclass(slots=True, kw_only=True)
class NeighborKeys:
    """A neighbor that is played, or `count` of them, with addresses and AS numbers one after the other."""

    name: str
    address: str
    asn: int
    count: int = 1
    target: str = ""
    sends: str = ""
    listens: bool = True
    hears: list[str] | None = None
    families: list[str] = field(default_factory=lambda: [family.label for family in Family])
    is_late: bool = False  # comes up when a step says so
    is_internal: bool = False  # one AS number for all of `count`
    hold_time_s: int = 90
    receive_buffer_octets: int = 0
    next_hop: str = ""
    next_hop_6: str = ""


@dataclass(slots=True)
class Scenario:
    """A scenario that has been checked: plans with what they announce, and steps as (name, arguments)."""

    name: str
    summary: str
    time_limit_s: float
    targets: list[Target]
    players: list[tuple[Plan, Source]]
    late: set[str]
    steps: list[tuple[str, dict[str, Any]]]


def names() -> list[str]:
    """Return the names of the shipped scenarios."""
    return sorted(entry.name[:-5] for entry in SHIPPED.iterdir() if entry.name.endswith(".toml"))


def text_of(name: str) -> str:
    """Return the text of a shipped scenario."""
    return (SHIPPED / f"{name}.toml").read_text()


def load(what: str, **overrides) -> Scenario:
    """Load a scenario by the name of a shipped one, or from a file. Raises ScenarioError."""
    path = Path(what)
    if what in names():
        return parse(what, text_of(what), Path("."), **overrides)
    if not path.suffix and not path.exists():
        raise ScenarioError(f"no scenario is called {what!r}{_nearest(what, names())}; there are {', '.join(names())}")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text file"
        raise ScenarioError(f"{path}: {reason}") from None
    return parse(path.stem, text, path.parent, **overrides)


def parse(
    name: str, text: str, folder: Path, *, target: str = "", port: int = 0, size: int = 0, time_limit_s: float = 0
) -> Scenario:
    """Check a scenario's text and make what it says. `target`, `port` (of all targets) and `size` take precedence."""
    try:
        keys = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: {error}") from None
    _known(name, keys, ("summary", "time_limit_s", "target", "table", "neighbor", "step"))
    targets = _targets(name, keys.get("target", []), target, port)
    tables = {key: _made(f"{name}: table.{key}", TableKeys, value) for key, value in keys.get("table", {}).items()}
    entries = [_made(f"{name}: neighbor {n}", NeighborKeys, each) for n, each in enumerate(keys.get("neighbor", []), 1)]
    if not entries:
        raise ScenarioError(f"{name}: has no neighbor")
    makers = {key: _checked_table(f"{name}: table.{key}", table, folder, size) for key, table in tables.items()}
    players: list[tuple[Plan, Source]] = []
    for entry in entries:
        players += _players(f"{name}: neighbor {entry.name}", entry, targets, makers, len(players))
    plans = [plan for plan, _ in players]
    steps = [_step(f"{name}: step {n}", each, plans, folder) for n, each in enumerate(keys.get("step", []), 1)]
    late = {plan.name for entry in entries if entry.is_late for plan in plans if plan.name in _names_of(entry)}
    limit_s = time_limit_s or keys.get("time_limit_s", 120)
    return Scenario(name, keys.get("summary", ""), limit_s, targets, players, late, steps)


def _targets(name: str, keys, address: str, port: int) -> list[Target]:
    if address and not keys:
        keys = [{"address": address}]
    targets = [_made(f"{name}: target", Target, each) for each in (keys if isinstance(keys, list) else [keys])]
    if not targets:
        raise ScenarioError(f"{name}: has no target: the address of the speaker under test")
    if address and len(targets) == 1:
        targets[0].address = address
    for each in targets:
        each.port = port or each.port
        _address(f"{name}: target", each.address)
    return targets


def _checked_table(where: str, keys: TableKeys, folder: Path, size: int):
    """Return what makes the source of the n-th neighbor with this table."""
    sources = ("synthetic", "prefixes", "mrt", "tap")
    _one_of(f"{where}: source", keys.source, sources)
    _one_of(f"{where}: first_as", keys.first_as, HOW)
    path = Path() if keys.source == "synthetic" else _file(where, folder, keys.path)
    ranks = itertools.count()  # of the peers of a file: each neighbor plays another
    if size and keys.size:
        keys.pool = keys.pool * size // keys.size
    if size:
        keys.size = size

    def make(number: int) -> Source:
        variant = 0 if keys.same_paths else number
        if keys.source == "prefixes":
            return PrefixList(path, keys.size or None, keys.seed, variant)
        if keys.source == "mrt":
            rank = 0 if keys.same_paths or keys.peer else next(ranks)
            return MrtSource(path, keys.peer, keys.first_as, keys.keeps_as_sets, rank)
        if keys.source == "tap":
            return RecordedTap(path, keys.peer, keys.first_as)
        return Synthetic(keys.size or Synthetic().size, keys.seed, variant, keys.pool)

    return make


def _names_of(entry: NeighborKeys) -> list[str]:
    if entry.count == 1:
        return [entry.name]
    return [f"{entry.name}-{number + 1}" for number in range(entry.count)]


def _players(where: str, entry: NeighborKeys, targets: list[Target], makers: dict, first: int) -> list:
    address = _address(where, entry.address)
    target = next((each for each in targets if each.name == entry.target), None)
    if target is None:
        raise ScenarioError(f"{where}: target {entry.target!r}{_nearest(entry.target, [t.name for t in targets])}")
    if entry.sends and entry.sends not in makers:
        raise ScenarioError(f"{where}: sends {entry.sends!r}: there is no such table{_nearest(entry.sends, makers)}")
    try:
        families = tuple(Family.named(label) for label in entry.families)
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from None
    if not 0 < entry.asn < 1 << 32:
        raise ScenarioError(f"{where}: asn {entry.asn} is no AS number")
    made = []
    for number, name in enumerate(_names_of(entry)):
        own = str(address + number)
        asn = entry.asn + (0 if entry.is_internal else number)
        plan = Plan(
            name, own, asn, router_id_at(address + number, first + number), families, entry.hold_time_s,
            None if entry.listens else 0, None if entry.hears is None else tuple(entry.hears),
            (target.address, target.port), entry.receive_buffer_octets, entry.next_hop, entry.next_hop_6,
        )  # fmt: skip
        source = makers[entry.sends](first + number) if entry.sends else Ready()
        made.append((plan, source))
    return made


def router_id_at(address, number: int) -> str:
    """Return the router id of the n-th neighbor: its IPv4 address, or one that is made up."""
    return str(address) if address.version == 4 else str(ipaddress.IPv4Address(0x0A4D0000 + number + 1))


def _step(where: str, keys: dict, plans: list[Plan], folder: Path) -> tuple[str, dict[str, Any]]:
    keys = dict(keys)
    name = keys.pop("do", None)
    if name not in STEPS:
        raise ScenarioError(f"{where}: do = {name!r} is unknown{_nearest(str(name), STEPS)}")
    known = STEPS[name].__kwdefaults__ or {}
    _known(where, keys, known)
    for key, value in keys.items():
        if known[key] is not None and not isinstance(value, type(known[key]) | int):
            raise ScenarioError(f"{where}: {key} = {value!r}: expected {type(known[key]).__name__}")
    chosen = keys.get("neighbors")
    if chosen is not None:
        keys["neighbors"] = _matching(where, chosen, [plan.name for plan in plans])
    if name == "replay":
        keys["path"] = str(_file(where, folder, keys.get("path", "")))
        _one_of(f"{where}: first_as", keys.get("first_as", "replace"), HOW)
        if keys.get("speed", 1) <= 0:
            raise ScenarioError(f"{where}: speed = {keys['speed']!r}: expected more than 0")
    return name, keys


def _matching(where: str, chosen: list[str], known: list[str]) -> list[str]:
    """Return the names meant: each a neighbor's, or that of an entry with `count`."""
    found = []
    for name in chosen:
        own = [each for each in known if each == name or each.rpartition("-")[0] == name]
        if not own:
            raise ScenarioError(f"{where}: no neighbor is called {name!r}{_nearest(name, known)}")
        found += own
    return found


# ---- checks ---------------------------------------------------------------------------------------------------------


def _made(where: str, kind: type, keys: Any):
    if not isinstance(keys, dict):
        raise ScenarioError(f"{where}: expected keys and values")
    known = {each.name: each for each in fields(kind)}
    _known(where, keys, known)
    for name, each in known.items():
        is_needed = each.default is MISSING and each.default_factory is MISSING
        if is_needed and name not in keys:
            raise ScenarioError(f"{where}: {name} is missing")
        if name in keys and not _is_of(keys[name], str(each.type)):
            raise ScenarioError(f"{where}: {name} = {keys[name]!r}: expected {_kind(each.type)}")
    return kind(**keys)


def _kind(kind) -> str:
    words = {"str": "a text", "int": "a whole number", "bool": "true or false", "float": "a number"}
    return words.get(getattr(kind, "__name__", str(kind)), "a list of texts")


def _is_of(value: Any, kind: str) -> bool:
    if "list" in kind:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    wanted = {"str": str, "int": int, "bool": bool}[kind.removeprefix("<class '").removesuffix("'>")]
    return isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool))


def _known(where: str, keys: dict, known) -> None:
    for key in keys:
        if key not in known:
            raise ScenarioError(f"{where}: unknown key {key!r}{_nearest(key, known)}")


def _one_of(where: str, name: str, known) -> None:
    if name not in known:
        raise ScenarioError(f"{where} {name!r} is unknown{_nearest(name, known)}: one of {', '.join(known)}")


def _file(where: str, folder: Path, path: str) -> Path:
    if not (folder / path).is_file():
        raise ScenarioError(f"{where}: path {path!r}: there is no such file")
    return folder / path


def _nearest(name: str, known) -> str:
    found = difflib.get_close_matches(name, [str(each) for each in known], 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _address(where: str, text: str):
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        raise ScenarioError(f"{where}: address {text!r} is no IP address") from None
