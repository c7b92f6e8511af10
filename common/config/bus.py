"""The checks of endpoints and keys that look at more than one of them.

Owns: who needs a key, and by which name it goes. Never: reads a secret (common/bus/keyring.py does).
"""

import ipaddress
from collections.abc import Iterable


def key_name(names: Iterable[str], stage: str, instance: str) -> str | None:
    """Return the name of a stage's key among those there are: STAGE.INSTANCE, else STAGE."""
    names = set(names)
    return next((name for name in (f"{stage}.{instance}", stage) if name in names), None)


def is_loopback(endpoint: str) -> bool:
    """Tell whether a tcp endpoint can be reached from its own machine only."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0]
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # whatever a name may mean
        return False


def bound(endpoint: str) -> str:
    """Return where to listen so as to be reached at a tcp endpoint: at its address, for a name at all addresses."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return f"tcp://*:{port}" if any(letter.isalpha() for letter in host) and ":" not in host else endpoint


def check_bus(values: dict, reader) -> None:
    """Note what is wrong with `endpoint` and `key`; what was wrong by itself is absent from the values."""
    keys, endpoints = values["key"], values["endpoint"]
    for name in ("name", "public"):
        _check_once(keys, "key", lambda each, name=name: each.get(name), name, reader)
    _check_once(endpoints, "endpoint", lambda each: f"{each.get('stage')}.{each.get('instance', '0')}", "stage", reader)
    places: dict[str, int] = {}
    names = [each.get("name") for each in keys]
    for index, each in enumerate(endpoints):
        stage, instance = each.get("stage", ""), each.get("instance", "0")
        for what in ("bus", "control"):
            place = each.get(what)
            if place is None:
                continue
            if place in places:
                reader.error(("endpoint", index, what), f"{place} is already taken on line {places[place]}")
            places[place] = reader.lines.get(("endpoint", index, what), 0)
            if not is_loopback(place) and key_name(names, stage, instance) is None:
                reader.error(
                    ("endpoint", index, what),
                    f"{place} can be reached from other machines, so {stage}.{instance} needs a key: "
                    f'`headrace keys new {stage}`, and a [[key]] of name "{stage}" or "{stage}.{instance}"',
                )


def _check_once(entries: list[dict], section: str, value_of, name: str, reader) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        value = value_of(entry)
        if value is not None and seen.setdefault(value, index) != index:
            line = reader.lines.get((section, seen[value], name), 0)
            reader.error((section, index, name), f'"{value}" is already that of the {section} on line {line}')
