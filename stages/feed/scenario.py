"""Scenarios: what a load test does, as a TOML file or one of those that are shipped.

Owns the reading of the file and the checks that look at more than one key; all errors are reported at once, each with
its line and, for an unknown name, the nearest known one. The keys are declared in keys.py; what the steps do is
steps.py's.
"""

import difflib
import ipaddress
import itertools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from common.bgp.constants import Family
from common.config.keys import Key, Unfit, keys_of
from common.config.lines import lines_of
from common.config.load import ConfigError, syntax_error
from stages.feed.keys import MOST_NEIGHBORS, STEP_KEYS, NeighborKeys, TableKeys, Target, Whole
from stages.feed.mrt import MrtSource
from stages.feed.neighbor import Plan
from stages.feed.recording import RecordedTap
from stages.feed.source import PrefixList, Ready, Source, Synthetic
from stages.feed.steps import STEPS

SHIPPED = resources.files("stages.feed") / "scenarios"
LISTS = ("target", "neighbor", "step")
HIGHEST_ASN = (1 << 32) - 1


class ScenarioError(ValueError):
    """A scenario that cannot be played; each line of the text says where and why."""


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
        hint = f" (did you mean {near!r}?)" if (near := nearest(what, names())) else ""
        raise ScenarioError(f"no scenario is called {what!r}{hint}; there are {', '.join(names())}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no text file"
        raise ScenarioError(f"{path}: {reason}") from None
    return parse(path.stem, text, path.parent, source=str(path), **overrides)


def parse(
    name: str, text: str, folder: Path, *, source: str = "", target: str = "", port: int = 0, size: int = 0,
    time_limit_s: float = 0,
) -> Scenario:  # fmt: skip
    """Check a scenario's text and make what it says. Raises ScenarioError.

    source: what messages call it. `target`, `port` (of all targets), `size` and `time_limit_s` take precedence.
    """
    reader = Reader(source or name, text)
    reader.read()
    reader.override(target, port)
    makers = {key: reader.maker(key, table, folder, size) for key, table in reader.tables.items()}
    players = reader.players(makers)
    plans = [plan for plan, _ in players]
    for index, message in clashes(plans):
        reader.error(("neighbor", reader.entry_of[index]), message)
    late = {plan.name for index, plan in enumerate(plans) if reader.neighbors[reader.entry_of[index]].is_late}
    steps = reader.read_steps([plan.name for plan in plans], folder)
    reader.end()
    limit_s = time_limit_s or reader.whole.time_limit_s
    return Scenario(name, reader.whole.summary, limit_s, list(reader.targets.values()), players, late, steps)


def clashes(plans: list[Plan]) -> Iterable[tuple[int, str]]:
    """Give (index of a plan, what is wrong with it beside the others or its target)."""
    named: set[str] = set()
    placed: dict[tuple, str] = {}
    for index, plan in enumerate(plans):
        if plan.name in named:
            yield index, f"two neighbors are called {plan.name!r}: each needs a name of its own"
        elif other := placed.get((plan.address, plan.target)):
            yield index, f"{plan.address} is already the address of {other}: each neighbor needs its own"
        elif plan.target and (":" in plan.address) != (":" in plan.target[0]):
            yield index, f"{plan.address} and its target {plan.target[0]} are of different IP versions"
        named.add(plan.name)
        placed.setdefault((plan.address, plan.target), plan.name)


def router_id_at(address, number: int) -> str:
    """Return the router id of the n-th neighbor: its IPv4 address, or one that is made up."""
    return str(address) if address.version == 4 else str(ipaddress.IPv4Address(0x0A4D0000 + number + 1))


def nearest(name: str, known: Iterable) -> str:
    """Return the known name that was most likely meant, if any."""
    return next(iter(difflib.get_close_matches(name, [str(each) for each in known], 1)), "")


class Reader:
    """The document of one scenario, and all that is wrong with it."""

    def __init__(self, source: str, text: str):
        self.source = source
        self.errors: list[ConfigError] = []
        self.lines: dict = {}
        self.document: dict = {}
        self.whole = Whole()
        self.targets: dict[tuple, Target] = {}  # by place in the document, as are the others
        self.tables: dict[str, TableKeys] = {}
        self.neighbors: dict[int, NeighborKeys] = {}
        self.entry_of: list[int] = []  # of each player, the number of its [[neighbor]]
        try:
            self.document = tomllib.loads(text)
            self.lines = lines_of(text)
        except tomllib.TOMLDecodeError as error:
            self.errors.append(syntax_error(str(error), text))
        except RecursionError:
            self.errors.append(ConfigError("", 0, "not TOML: brackets within brackets without end"))
        self.end()

    def error(self, path: tuple, message: str, near: str = "", at: str = "") -> None:
        """Note an error at a place in the document, or the nearest place around it that stands in the file.

        at: the value of a list, such as "[2]".
        """
        line, known = 0, (*path, int(at[1:-1])) if at else path
        while not line and known:
            line, known = self.lines.get(known, 0), known[:-1]
        words = [f"#{part + 1}" if isinstance(part, int) else part for part in path]
        if path[:1] == ("neighbor",) and len(path) > 1 and (entry := self.neighbors.get(path[1])):
            words[1] = entry.name
        self.errors.append(ConfigError(".".join(words) + at, line, message, near))

    def end(self) -> None:
        """Raise ScenarioError with all errors, if there are any."""
        if self.errors:
            ordered = sorted(self.errors, key=lambda error: error.line)
            raise ScenarioError("\n".join(f"{self.source}: {error}" for error in ordered))

    # ---- the keys of each table ---------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all but the steps."""
        top = {name: value for name, value in self.document.items() if name not in (*LISTS, "table")}
        self.whole = self._made(Whole, top, (), ("target", "table", "neighbor", "step")) or self.whole
        for path, each in self._entries("target"):
            if made := self._made(Target, each, path):
                self.targets[path] = made
        tables = self.document.get("table", {})
        if not isinstance(tables, dict):
            self.error(("table",), "must be written [table.NAME], once for each table")
            tables = {}
        for name, each in tables.items():
            if made := self._made(TableKeys, each, ("table", name)):
                self.tables[name] = made
        for path, each in self._entries("neighbor"):
            if made := self._made(NeighborKeys, each, path):
                self.neighbors[path[1]] = made
        if "neighbor" not in self.document:
            self.error((), "has no neighbor: write [[neighbor]], once for each")

    def _entries(self, name: str) -> Iterable[tuple[tuple, Any]]:
        """Give (path, table) of each entry; a target that is alone may be a plain table."""
        value = self.document.get(name, [])
        if isinstance(value, list):
            for index, each in enumerate(value):
                yield (name, index), each
        elif name == "target" and isinstance(value, dict):
            yield (name,), value
        else:
            self.error((name,), f"must be written [[{name}]], once for each {name}")

    def _made(self, section: type, table: Any, path: tuple, also: tuple = ()):
        """Return an object of the keys of one table; None with all errors noted."""
        if not isinstance(table, dict):
            return self.error(path, "must be a table of keys and values")
        declared = {name: key for name, (_, key) in keys_of(section).items()}
        values = self._values(declared, table, path, also)
        return None if values is None else section(**values)

    def _values(self, declared: dict[str, Key], table: dict, path: tuple, also: tuple = ()) -> dict | None:
        n_before = len(self.errors)
        for name in table:
            if name not in declared:
                self.error((*path, name), "unknown key", nearest(name, [*declared, *also]))
        values = {}
        for name, key in declared.items():
            if name in table:
                try:
                    values[name] = key.kind.parse(table[name])
                except Unfit as unfit:
                    for each in unfit.each():
                        self.error((*path, name), str(each), at=each.at)
            elif key.is_required:
                self.error((*path, name), "is required and missing")
        return values if len(self.errors) == n_before else None

    # ---- what they mean together --------------------------------------------------------------------------------

    def override(self, address: str, port: int) -> None:
        """Put the target of the command in the place of the scenario's."""
        if address and "target" not in self.document:
            self.targets = {(): Target(address=address)}
        elif address and len(self.targets) == 1:
            next(iter(self.targets.values())).address = address
        elif address and self.targets:
            self.error((), f"has {len(self.targets)} targets: change their addresses in the file, not by --target")
        elif "target" not in self.document:
            self.error((), "has no target: the address of the speaker under test")
        seen: set[str] = set()
        for path, each in self.targets.items():
            each.port = port or each.port
            if each.name in seen:
                self.error(path, f"two targets are called {each.name!r}: each needs a name of its own")
            seen.add(each.name)

    def maker(self, name: str, keys: TableKeys, folder: Path, size: int):
        """Return what makes the source of the n-th neighbor with this table."""
        where = ("table", name)
        if keys.source == "synthetic":
            path = Path()
            if keys.path or keys.peer:
                self.error((*where, "path"), 'is for tables of files: say source = "mrt", "prefixes" or "tap"')
        else:
            path = self._file((*where, "path"), folder, keys.path)
        if keys.pool and keys.pool < (keys.size or Synthetic().size):
            self.error((*where, "pool"), f"{keys.pool} is less than size: a choice cannot be more than there is")
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

    def players(self, makers: dict) -> list[tuple[Plan, Source]]:
        """Return all neighbors with what they announce."""
        targets = {target.name: target for target in self.targets.values()}
        known = [name for entry in self.neighbors.values() for name in _names_of(entry)]
        made: list[tuple[Plan, Source]] = []
        for index, entry in self.neighbors.items():
            where = ("neighbor", index)
            target = targets.get(entry.target)
            if target is None and self.targets:
                others = ", ".join(map(repr, targets))
                self.error(
                    (*where, "target"), f"is {entry.target!r}, and targets are {others}", nearest(entry.target, targets)
                )
            if entry.sends and entry.sends not in makers and entry.sends not in self.document.get("table", ()):
                self.error((*where, "sends"), f"there is no table {entry.sends!r}", nearest(entry.sends, makers))
            entry.hears = self._matching((*where, "hears"), entry.hears, known)
            if not self._is_within(where, entry) or len(known) > MOST_NEIGHBORS:
                continue
            self.entry_of += [index] * entry.count
            make = makers.get(entry.sends)
            for plan in _plans(entry, target, len(made)):
                made.append((plan, make(len(made)) if make else Ready()))
        if len(known) > MOST_NEIGHBORS:
            self.error(("neighbor",), f"has {len(known)} neighbors; there may be {MOST_NEIGHBORS}")
        return made

    def _is_within(self, where: tuple, entry: NeighborKeys) -> bool:
        """Tell whether the last of `count` neighbors still has an address and an AS number."""
        n_errors = len(self.errors)
        try:
            ipaddress.ip_address(entry.address) + (entry.count - 1)
        except ValueError:
            self.error((*where, "count"), f"{entry.count} addresses from {entry.address} on are more than there are")
        if not entry.is_internal and entry.asn + entry.count - 1 > HIGHEST_ASN:
            self.error((*where, "count"), f"{entry.count} AS numbers from {entry.asn} on are more than there are")
        return len(self.errors) == n_errors

    def _matching(self, where: tuple, chosen: Iterable[str] | None, known: list[str]) -> list[str] | None:
        """Return the names meant: each a neighbor's, or that of an entry with `count`."""
        if chosen is None:
            return None
        found = []
        for name in chosen:
            own = [each for each in known if each == name or _entry_name(each) == name]
            if not own:
                self.error(where, f"no neighbor is called {name!r}", nearest(name, known))
            found += own
        return list(dict.fromkeys(found))

    def _file(self, where: tuple, folder: Path, path: str) -> Path:
        if not path:
            self.error(where, "is required and missing: the file")
        elif not (folder / path).is_file():
            self.error(where, f"there is no file {str(folder / path)!r}")
        return folder / path

    # ---- steps --------------------------------------------------------------------------------------------------

    def read_steps(self, known: list[str], folder: Path) -> list[tuple[str, dict[str, Any]]]:
        """Return the steps as (name, arguments)."""
        found = [self._step(path, each, known, folder) for path, each in self._entries("step")]
        if "step" not in self.document:
            self.error((), "has no step: write [[step]] with do = ..., once for each")
        return [each for each in found if each is not None]

    def _step(self, path: tuple, table: Any, known: list[str], folder: Path) -> tuple[str, dict[str, Any]] | None:
        if not isinstance(table, dict):
            return self.error(path, "must be a table of keys and values")
        name = table.get("do")
        if not isinstance(name, str) or name not in STEPS:
            words = "do is missing" if name is None else f"do = {name!r} is unknown"
            return self.error((*path, "do"), f"{words}: one of {', '.join(STEPS)}", nearest(str(name), STEPS))
        defaults = STEPS[name].__kwdefaults__ or {}
        declared = {each: Key(*STEP_KEYS[each], default, "", None) for each, default in defaults.items()}
        keys = self._values(declared, {each: value for each, value in table.items() if each != "do"}, path)
        if keys is None:
            return None
        if "neighbors" in keys:
            keys["neighbors"] = self._matching((*path, "neighbors"), keys["neighbors"], known)
        if keys.get("sender"):
            self._matching((*path, "sender"), [keys["sender"]], known)
        if name == "garbage" and len(keys.get("neighbors", known)) != 1:
            self.error((*path, "neighbors"), "must name one neighbor, who sends the garbage")
        if name == "replay":
            keys["path"] = str(self._file((*path, "path"), folder, keys.get("path", "")))
        return name, keys


def _names_of(entry: NeighborKeys) -> list[str]:
    if entry.count == 1:
        return [entry.name]
    return [f"{entry.name}-{number + 1}" for number in range(entry.count)]


def _entry_name(name: str) -> str:
    head, _, number = name.rpartition("-")
    return head if number.isdecimal() else name


def _plans(entry: NeighborKeys, target: Target | None, first: int) -> Iterable[Plan]:
    """Give the plans of one entry; `first`: how many neighbors there are before."""
    address = ipaddress.ip_address(entry.address)
    for number, name in enumerate(_names_of(entry)):
        yield Plan(
            name, str(address + number) if number else entry.address,
            entry.asn + (0 if entry.is_internal else number), router_id_at(address + number, first + number),
            tuple(Family.named(label) for label in entry.families), entry.hold_time_s, None if entry.listens else 0,
            None if entry.hears is None else tuple(entry.hears), target and (target.address, target.port),
            entry.receive_buffer_octets, entry.next_hop, entry.next_hop_6,
        )  # fmt: skip
