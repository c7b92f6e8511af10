"""The checks of endpoints and keys that look at more than one of them.

Owns: who needs a key, and by which name it goes. Never: reads a secret (common/bus/keyring.py does).
"""

import ipaddress
from collections.abc import Iterable

from common.config.keys import keys_of
from common.config.schema import STAGES, Router, Status


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
    _check_roles(keys, reader)
    _check_ports(values, reader)
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


def _check_roles(keys: list[dict], reader) -> None:
    """A stage goes by the key of its name, so that must let it do a stage's work."""
    for index, each in enumerate(keys):
        stage, role = each.get("name", "").partition(".")[0], each.get("role")
        if stage in STAGES and role not in (stage, None):
            reader.error(
                ("key", index, "role"),
                f'the {stage} stage goes by a key of this name, so its role is "{stage}"; a key of another role has '
                "another name",
            )


def _check_ports(values: dict, reader) -> None:
    """The page and the endpoints leave BGP its port, and the endpoints the page its own."""
    router, status = values.get("router", {}), values.get("status", {})
    port = router.get("port", keys_of(Router)["port"][1].default)
    taken = [(address, port, "BGP's (router.port)") for address in router.get("listen") or ("0.0.0.0", "::")]
    wanted = [
        (("endpoint", index, what), each[what].removeprefix("tcp://"))
        for index, each in enumerate(values["endpoint"])
        for what in ("bus", "control")
        if what in each
    ]
    if status.get("enabled", True):
        page = status.get("listen", keys_of(Status)["listen"][1].default)
        wanted.insert(0, (("status", "listen"), page))
    for path, place in wanted:
        host, _, number = place.rpartition(":")
        for address, port, whose in taken:
            if port == int(number) and _is_same(host.strip("[]"), address):
                reader.error(path, f"{place} is {whose} already: take another port")
                break
        if path[0] == "status":
            taken.append((host.strip("[]"), int(number), "the page's (status.listen)"))


def _is_same(one: str, other: str) -> bool:
    """Tell whether who listens at one address is in the way of who wants to at the other."""
    try:
        first, second = ipaddress.ip_address(one), ipaddress.ip_address(other)
    except ValueError:  # a host's name
        return False
    return first == second or (first.version == second.version and (first.is_unspecified or second.is_unspecified))


def _check_once(entries: list[dict], section: str, value_of, name: str, reader) -> None:
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        value = value_of(entry)
        if value is not None and seen.setdefault(value, index) != index:
            line = reader.lines.get((section, seen[value], name), 0)
            reader.error((section, index, name), f'"{value}" is already that of the {section} on line {line}')
