"""Reads a configuration file into the schema's objects, reporting every error at once.

Owns: the walk over the TOML tables, the checks that look at more than one key, and the notices about what a correct
file will not do. Never: changes anything that runs; a bad file only raises ConfigErrors.
"""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.config.bus import check_bus
from common.config.keys import Unfit, keys_of
from common.config.lines import lines_of
from common.config.schema import BLOCKS, LISTS, SECTIONS, STAGES, Config, Fib, Neighbor, Router

INSTANCES = {"fib": ("instance",)}  # tables within a section, each an instance of its stage
MAX_SOCKET_PATH_OCTETS = 107  # sockaddr_un's, without the zero at its end
_SINGLE = {name: section for name, section in SECTIONS.items() if name not in LISTS}


@dataclass(frozen=True, slots=True)
class ConfigError:
    """One error: where (a dotted path and its line, 0 if unknown), what, and a name that may have been meant."""

    path: str
    line: int
    message: str
    nearest: str = ""

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        hint = f' (did you mean "{self.nearest}"?)' if self.nearest else ""
        return f"{place}{self.path + ': ' if self.path else ''}{self.message}{hint}"


class ConfigErrors(Exception):
    """Everything that is wrong with a configuration."""

    def __init__(self, errors: Iterable[ConfigError], source: str = ""):
        self.errors = sorted(errors, key=lambda error: (error.line, _in_order(error.path)))
        self.source = source
        self.lines = [f"{source + ': ' if source else ''}{error}" for error in self.errors]
        super().__init__("\n".join(self.lines))


def _in_order(path: str) -> list[str | int]:
    """Return what paths are sorted by: the numbers in them as numbers."""
    return [int(part) if index % 2 else part for index, part in enumerate(re.split(r"([0-9]+)", path))]


def load(path: str | Path) -> Config:
    """Read the configuration file `path`; raise ConfigErrors with all that is wrong."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigErrors([ConfigError("", 0, f"cannot be read: {reason}")], str(path)) from None
    return loads(text, path=Path(path))


def loads(text: str, path: Path | None = None) -> Config:
    """Read a configuration from `text`; raise ConfigErrors with all that is wrong."""
    source = str(path) if path else ""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigErrors([syntax_error(str(error), text)], source) from None
    except RecursionError:
        raise ConfigErrors([ConfigError("", 0, "not TOML: brackets within brackets without end")], source) from None
    reader = _Reader(lines_of(text))
    values = reader.read_document(document)
    _check_document(values, reader)
    if reader.errors:
        raise ConfigErrors(reader.errors, source)
    return _build(values, path)


def notices(config: Config) -> list[str]:
    """Say what a correct configuration will not do, though one might expect it to."""
    said = []
    for neighbor in config.neighbors.values():
        if config.is_external(neighbor):
            if neighbor.import_ is None:
                said.append(f"neighbor {neighbor.name}: no import block: nothing is accepted from it (RFC 8212)")
            if neighbor.export is None:
                said.append(f"neighbor {neighbor.name}: no export block: nothing is told to it (RFC 8212)")
        if neighbor.maximum_prefixes and neighbor.expected_routes > neighbor.maximum_prefixes:
            said.append(f"neighbor {neighbor.name}: expected_routes is more than maximum_prefixes allows")
    if not config.neighbors:
        said.append("no neighbor is configured")
    return said


def syntax_error(message: str, text: str) -> ConfigError:
    """Return what `tomllib` says of a text as an error with its line."""
    words, _, place = message.partition(" (at ")
    if place.startswith("line "):
        return ConfigError("", int(place.removeprefix("line ").split(",")[0]), f"not TOML: {words}")
    return ConfigError("", text.count("\n") + 1, f"not TOML: {words}")


class _Reader:
    """Collects values and errors while walking the document."""

    def __init__(self, lines: dict):
        self.lines = lines
        self.names: dict[int, str] = {}
        self.errors: list[ConfigError] = []

    def error(self, path: tuple, message: str, at: str = "", nearest: str = "") -> None:
        place = re.match(r"\[([0-9]+)\]", at)
        line, known = 0, (*path, int(place[1])) if place else path
        while not line and known:
            line, known = self.lines.get(known, 0), known[:-1]
        self.errors.append(ConfigError(self._dotted(path) + at, line, message, nearest))

    def is_wrong(self, path: tuple) -> bool:
        """Tell whether there is an error at a path already."""
        return any(error.path == self._dotted(path) for error in self.errors)

    def _dotted(self, path: tuple) -> str:
        """Return a path as people write it; a neighbor goes by its name where it has one, else by its place."""
        if path[0] in LISTS and len(path) > 1:
            name = self.names.get(path[1]) if path[0] == "neighbor" else ""
            return ".".join((path[0], name or f"#{path[1] + 1}", *path[2:]))
        return ".".join(path)

    def read_document(self, document: dict) -> dict[str, Any]:
        self._report_unknown(document, SECTIONS, (), "section")
        values: dict[str, Any] = {}
        for name, section in _SINGLE.items():
            if name not in document and name != "router":
                continue
            values[name] = self._read_table(section, document.get(name, {}), (name,), INSTANCES.get(name, ()))
        values["fib.instance"] = self._read_fib_instances(document.get("fib", {}))
        values["neighbor"] = self._read_neighbors(self._entries(document, "neighbor"))
        for name in ("endpoint", "key"):
            values[name] = [
                self._read_table(SECTIONS[name], entry, (name, index))
                for index, entry in enumerate(self._entries(document, name))
            ]
        return values

    def _entries(self, document: dict, name: str) -> list:
        """Return the tables of a section that is written once for each."""
        entries = document.get(name, [])
        if isinstance(entries, list):
            return entries
        self.error((name,), f"must be written [[{name}]], once for each {name}")
        return []

    def _read_fib_instances(self, table: Any) -> list[dict]:
        """Return the values of each [[fib.instance]]."""
        entries = table.get("instance", []) if isinstance(table, dict) else []
        if not isinstance(entries, list):
            self.error(("fib", "instance"), "must be written [[fib.instance]], once for each instance")
            return []
        instances = [self._read_table(Fib, entry, ("fib", "instance")) for entry in entries]
        for values in instances:
            if values.get("name", "0") == "0":
                self.error(("fib", "instance"), 'needs a name that is not "0", which is that of [fib]')
        return instances

    def _read_neighbors(self, entries: list) -> list[dict]:
        neighbors = []
        for index, entry in enumerate(entries):
            path = ("neighbor", index)
            if isinstance(entry, dict) and isinstance(entry.get("name"), str):
                self.names[index] = entry["name"]
            values = self._read_table(Neighbor, entry, path, tuple(BLOCKS))
            for name, block in BLOCKS.items():
                if isinstance(entry, dict) and name in entry:
                    values["import_" if name == "import" else name] = self._read_table(
                        block, entry[name], (*path, name)
                    )
            neighbors.append(values)
        return neighbors

    def _read_table(self, section: type, table: Any, path: tuple, blocks: tuple = ()) -> dict[str, Any]:
        """Return the valid values of one table by field name, with an error noted for each of the others."""
        if not isinstance(table, dict):
            self.error(path, "must be a table")
            return {}
        declared = keys_of(section)
        self._report_unknown(table, (*declared, *blocks), path, "key")
        values = {}
        for name, (item, entry) in declared.items():
            if name in table:
                try:
                    values[item.name] = entry.kind.parse(table[name])
                except Unfit as error:
                    for each in error.each():
                        self.error((*path, name), str(each), each.at)
            elif entry.is_required:
                self.error((*path, name), "is required and missing")
        return values

    def _report_unknown(self, table: dict, known: Iterable[str], path: tuple, word: str) -> None:
        known = list(known)
        for name in table:
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                self.error((*path, name), f"unknown {word}", nearest=nearest[0] if nearest else "")


def _check_document(values: dict, reader: _Reader) -> None:
    """Check what more than one key has to do with; values that were wrong by themselves are absent here."""
    router = values.get("router", {})
    _check_next_hops(router, ("router",), reader)
    _check_fibs(values, reader)
    check_bus(values, reader)
    _check_endpoints(values, reader)
    _check_speakers(values, reader)
    _check_socket_paths(values, reader)
    _check_unique(values["neighbor"], "name", reader)
    _check_unique(values["neighbor"], "address", reader)
    for index, neighbor in enumerate(values["neighbor"]):
        _check_neighbor(neighbor, router, ("neighbor", index), reader)
        if neighbor.get("announce_after_install") and not values.get("fib", {}).get("enabled"):
            reader.error(("neighbor", index, "announce_after_install"), "needs fib.enabled: nothing would be told")


def _check_fibs(values: dict, reader: _Reader) -> None:
    """Two instances may share neither name nor table."""
    main = values.get("fib", {})
    names, tables = {"0"}, {(main.get("namespace", ""), main.get("table", 254))}
    for entry in values["fib.instance"]:
        entry = main | entry
        table = (entry.get("namespace", ""), entry.get("table", 254))
        if entry.get("name") in names:
            reader.error(("fib", "instance"), f'"{entry["name"]}" is already the name of another instance')
        if table in tables:
            reader.error(("fib", "instance"), f"table {table[1]} is already that of another instance")
        names.add(entry.get("name"))
        tables.add(table)


def _check_endpoints(values: dict, reader: _Reader) -> None:
    """Each endpoint is that of an instance there is."""
    for index, endpoint in enumerate(values["endpoint"]):
        stage, instance = endpoint.get("stage"), endpoint.get("instance", "0")
        known = _instances(values, stage)
        if stage is not None and instance not in known:
            where = "[[fib.instance]]" if stage == "fib" else f"{stage}.instances"
            reader.error(
                ("endpoint", index, "instance"),
                f'there is no {stage} "{instance}": {where} has {", ".join(known)}',
                nearest=next(iter(difflib.get_close_matches(instance, known, n=1, cutoff=0.5)), ""),
            )


def _instances(values: dict, stage: str | None) -> tuple[str, ...]:
    """Return the instances of a stage, as Config.instances does."""
    if stage == "fib":
        return ("0", *(entry["name"] for entry in values["fib.instance"] if "name" in entry))
    declared = values.get(stage, {}).get("instances")
    if stage == "speaker" and declared is None:
        return tuple(dict.fromkeys(("0", *(neighbor.get("speaker", "0") for neighbor in values["neighbor"]))))
    return declared or ("0",)


def _check_speakers(values: dict, reader: _Reader) -> None:
    """Each neighbor is some speaker's."""
    declared = values.get("speaker", {}).get("instances")
    if declared is None:
        return
    for index, neighbor in enumerate(values["neighbor"]):
        name = neighbor.get("speaker", "0")
        if name not in declared and not reader.is_wrong(("neighbor", index, "speaker")):
            nearest = difflib.get_close_matches(name, declared, n=1, cutoff=0.5)
            reader.error(
                ("neighbor", index, "speaker"),
                f'"{name}" is no speaker, so nobody would hold the session: name one of speaker.instances, '
                f"{', '.join(declared)}",
                nearest=nearest[0] if nearest else "",
            )


def _check_socket_paths(values: dict, reader: _Reader) -> None:
    """The path of each stage's sockets is short enough for the kernel (unix(7))."""
    run_dir = values.get("router", {}).get("run_dir", keys_of(Router)["run_dir"][1].default)
    for stage in STAGES:
        longest = max((f"{run_dir}/{stage}.{each}.control" for each in _instances(values, stage)), key=len)
        if len(longest.encode()) > MAX_SOCKET_PATH_OCTETS:
            path = (stage, "instances") if (stage, "instances") in reader.lines else ("router", "run_dir")
            reader.error(
                path,
                f"the socket {longest} would have a path of {len(longest.encode())} octets, of which there may be "
                f"{MAX_SOCKET_PATH_OCTETS}: take a shorter router.run_dir, or shorter names",
            )


def _check_unique(neighbors: list[dict], name: str, reader: _Reader) -> None:
    seen: dict[str, int] = {}
    for index, neighbor in enumerate(neighbors):
        value = neighbor.get(name)
        if value is not None and seen.setdefault(value, index) != index:
            line = reader.lines.get(("neighbor", seen[value], name), 0)
            reader.error(("neighbor", index, name), f'"{value}" is already that of the neighbor on line {line}')


def _check_neighbor(neighbor: dict, router: dict, path: tuple, reader: _Reader) -> None:
    address, local, listen = neighbor.get("address"), neighbor.get("local_address"), router.get("listen")
    if address and local and _version(address) != _version(local):
        reader.error((*path, "local_address"), f"{local} and the address {address} are of different IP versions")
    if address and address in (listen or ()):
        reader.error((*path, "address"), f"{address} is in router.listen: a router is no neighbor of its own")
    if address and address == local:
        reader.error((*path, "address"), "is the same as local_address")
    if local and listen and neighbor.get("passive") and local not in listen:
        reader.error((*path, "local_address"), f"{local} is not in router.listen, so nobody can call it there")
    if neighbor.get("asn") == router.get("asn") and neighbor.get("enforce_first_as"):
        reader.error((*path, "enforce_first_as"), "is for external neighbors only")
    _check_next_hops(neighbor, path, reader)


def _check_next_hops(values: dict, path: tuple, reader: _Reader) -> None:
    for name in ("next_hop_ipv4", "next_hop_ipv6"):
        if values.get(name) and ipaddress.ip_address(values[name]).is_loopback:
            reader.error((*path, name), f"{values[name]} is a loopback address: no neighbor could use it")


def _version(address: str) -> int:
    return ipaddress.ip_address(address).version


def _build(values: dict, path: Path | None) -> Config:
    """Make the objects; a neighbor takes from `router` and `policy` what it has not set itself."""
    sections = {name: section(**values[name]) for name, section in _SINGLE.items() if name in values}
    router, policy = sections["router"], sections.get("policy", _SINGLE["policy"]())
    graceful_restart = sections.get("graceful_restart", _SINGLE["graceful_restart"]())
    neighbors = {}
    for entry in values["neighbor"]:
        for name, block in BLOCKS.items():
            field = "import_" if name == "import" else name
            if field in entry:
                entry[field] = block(**entry[field])
        inherited = {
            "next_hop_ipv4": router.next_hop_ipv4,
            "next_hop_ipv6": router.next_hop_ipv6,
            "graceful_restart": graceful_restart.enabled,
            "enforce_first_as": policy.enforce_first_as and entry["asn"] != router.asn,
        }
        neighbors[entry["name"]] = Neighbor(**(inherited | entry))
    fibs = {"0": sections.get("fib", Fib())}
    for entry in values["fib.instance"]:
        fibs[entry["name"]] = Fib(**(values.get("fib", {}) | entry))
    places = {
        "endpoints": {(e.stage, e.instance): e for e in (SECTIONS["endpoint"](**each) for each in values["endpoint"])},
        "public_keys": {each["name"]: SECTIONS["key"](**each) for each in values["key"]},
    }
    return Config(**(sections | places | {"fibs": fibs, "policy": policy, "neighbors": neighbors, "path": path}))
