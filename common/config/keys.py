"""Kinds of configuration values: what a key may hold, how it is read, and how it is written down.

Owns: the reading of one TOML value into the value the stages use, with its limits. `key()` declares a key of the
schema: validation, example and reference all come from that one declaration. Never: opens a file, or knows which
keys there are (schema.py does).
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

REQUIRED = MISSING

# What a change of a key costs a router that runs.
LIVE = "live"  # nothing: it counts from now on
EVALUATE = "evaluate"  # policies are evaluated again, and the differences told
SESSION = "session"  # the session of the neighbor, or of all where the key is no neighbor's
SHARE = "share"  # the prefixes are shared out anew: each rib starts anew, sessions and routes stay
RESTART = "restart"  # a stage, or the router, has to be started again: until then nothing changes

_Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")

HOST_NAME = re.compile(r"(?=.*[a-z])([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?")
BROADCAST = ipaddress.IPv4Address("255.255.255.255")
WELL_KNOWN_COMMUNITIES = {  # RFC 1997, RFC 3765, RFC 7999, RFC 8326
    "no-export": (65535, 65281),
    "no-advertise": (65535, 65282),
    "no-export-subconfed": (65535, 65283),
    "no-peer": (65535, 65284),
    "blackhole": (65535, 666),
    "graceful-shutdown": (65535, 0),
}


class Unfit(ValueError):
    """A value does not fit its key; `at` says where inside the value, e.g. "[2]"; `more` are other errors in it."""

    def __init__(self, message: str, at: str = "", more: tuple["Unfit", ...] = ()):
        super().__init__(message)
        self.at = at
        self.more = more

    def each(self) -> "tuple[Unfit, ...]":
        """Return all errors of the value, this one first."""
        return (self, *self.more)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a key may hold: `parse` turns the TOML value into ours or raises Unfit; `limits` is for people."""

    name: str
    parse: Callable[[Any], Any]
    limits: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """One key as declared: its kind, TOML default, unit, sentence and a value for the example file."""

    kind: Kind
    sentence: str
    default: Any
    unit: str
    example: Any
    name: str = ""
    change: str = LIVE

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


def key(
    kind: Kind,
    sentence: str,
    *,
    default: Any = REQUIRED,
    unit: str = "",
    example: Any = None,
    name: str = "",
    change: str = LIVE,
) -> Any:
    """Declare a key as a field of a section.

    `default` is the value as TOML would have it; None means "not set". `change` is what a change costs.
    """
    declared = Key(kind, sentence, default, unit, example, name, change)
    if default is REQUIRED:
        return field(metadata={"key": declared})
    if default is None:
        return field(default=None, metadata={"key": declared})
    return field(default_factory=lambda: kind.parse(default), metadata={"key": declared})


def keys_of(section: type) -> dict[str, tuple[Field, Key]]:
    """Return the keys of a section by their names in the file."""
    declared = ((item, item.metadata["key"]) for item in fields(section) if "key" in item.metadata)
    return {entry.name or item.name: (item, entry) for item, entry in declared}


def _typed(value: Any, wanted: type, words: str) -> Any:
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise Unfit(f"must be {words}, not {_describe(value)}")
    return value


def _describe(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a table"}
    return names.get(type(value), type(value).__name__)


def integer(minimum: int, maximum: int, also: tuple[int, ...] = ()) -> Kind:
    """A whole number within limits, or one of `also`."""
    limits = f"{minimum} to {maximum}" + "".join(f", or {value}" for value in also)

    def parse(value: Any) -> int:
        _typed(value, int, "a whole number")
        if not minimum <= value <= maximum and value not in also:
            raise Unfit(f"must be {limits}, not {value}")
        return value

    return Kind("integer", parse, limits)


def number(minimum: float, maximum: float, also: tuple[float, ...] = ()) -> Kind:
    """A number, whole or not, within limits, or one of `also`."""
    limits = f"{minimum:g} to {maximum:g}" + "".join(f", or {value:g}" for value in also)

    def parse(value: Any) -> float:
        _typed(value, (int, float), "a number")
        if not minimum <= value <= maximum and value not in also:
            raise Unfit(f"must be {limits}, not {value}")
        return float(value)

    return Kind("number", parse, limits)


def choice(*values: str) -> Kind:
    """One of a few words."""
    limits = " or ".join(f'"{value}"' for value in values)

    def parse(value: Any) -> str:
        _typed(value, str, limits)
        if value not in values:
            raise Unfit(f'must be {limits}, not "{value}"')
        return value

    return Kind("string", parse, limits)


def list_of(kind: Kind, *, minimum: int = 0, maximum: int = 0, is_set: bool = False) -> Kind:
    """A list of one kind, as a tuple; `is_set`: no value twice; maximum 0: no limit."""
    limits = kind.limits + (f"; at least {minimum}" if minimum else "")

    def parse(value: Any) -> tuple:
        _typed(value, list, "a list")
        items: list = []
        known: set = set()
        wrong: list[Unfit] = []
        for index, item in enumerate(value):
            try:
                parsed = kind.parse(item)
            except Unfit as error:
                wrong += [Unfit(str(each), f"[{index}]{each.at}") for each in error.each()]
                continue
            if is_set:
                if parsed in known:
                    wrong.append(Unfit(f"{item!r} stands there twice", f"[{index}]"))
                known.add(parsed)
            items.append(parsed)
        if wrong:
            raise Unfit(str(wrong[0]), wrong[0].at, tuple(wrong[1:]))
        if len(items) < minimum:
            raise Unfit(f"needs at least {minimum} value" + ("s" if minimum > 1 else ""))
        if maximum and len(items) > maximum:
            raise Unfit(f"has {len(items)} values; there may be {maximum}")
        return tuple(items)

    return Kind(f"list of {kind.name}", parse, limits)


def prefixes(lists: dict[str, list[str]]) -> Kind:
    """A set of prefixes, in which the name of a list stands for all of that list."""
    names = " or ".join(f'"{name}"' for name in lists)

    def parse_item(value: Any) -> tuple:
        if isinstance(value, str) and value in lists:
            return tuple(map(_parse_prefix, lists[value]))
        if isinstance(value, str) and value.replace("_", "").isalpha():
            raise Unfit(f'must be a prefix like "192.0.2.0/24", or {names}, not "{value}"')
        return (_parse_prefix(value),)

    items = list_of(Kind("prefix", parse_item, f"prefixes, and {names} for all of that list"), is_set=True)
    return Kind(
        items.name,
        lambda value: tuple(dict.fromkeys(each for item in items.parse(value) for each in item)),
        items.limits,
    )


def _parse_boolean(value: Any) -> bool:
    return _typed(value, bool, "true or false")


def _parse_name(value: Any) -> str:
    _typed(value, str, "a string")
    if not value or len(value) > 64 or not all(letter.isalnum() or letter in "-_." for letter in value):
        raise Unfit("must be 1 to 64 letters, digits, '-', '_' or '.'")
    return value


def _parse_instance(value: Any) -> str:
    """Parse what is part of the names of sockets, units and pods."""
    if not _parse_name(value).isascii():
        raise Unfit("must be of letters a to z: units and pods are named by it")
    return value


def _parse_speaker(value: Any) -> str:
    if isinstance(value, list):
        raise Unfit("must be one name: a session is held by one speaker")
    return _parse_instance(value)


MAX_INSTANCES = 64


def _parse_instances(value: Any) -> tuple[str, ...]:
    """Return names: those of a list, or "0", "1", ... for a number."""
    if isinstance(value, list):
        return list_of(INSTANCE, minimum=1, maximum=MAX_INSTANCES, is_set=True).parse(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unfit(f"must be a number or a list of names, not {_describe(value)}")
    return tuple(map(str, range(integer(1, MAX_INSTANCES).parse(value))))


def _parse_line(value: Any) -> str:
    _typed(value, str, "a string")
    if len(value) > 128 or not value.isprintable():
        raise Unfit("must be at most 128 printable characters")
    return value


def _parse_asn(value: Any) -> int:
    _typed(value, int, "a whole number")
    if not 1 <= value <= 4294967294 or value == 23456:
        # RFC 7607: 0 is not for use; RFC 6793: AS_TRANS is a placeholder; RFC 7300: the last one is reserved.
        raise Unfit(f"must be 1 to 4294967294 and not 23456 (AS_TRANS), not {value}")
    return value


def _parse_router_id(value: Any) -> str:
    _typed(value, str, 'an IPv4 address like "192.0.2.1"')
    try:
        address = ipaddress.IPv4Address(value)
    except ValueError:
        raise Unfit(f'must be an IPv4 address, not "{value}"') from None
    if int(address) == 0:
        raise Unfit("must not be 0.0.0.0")  # RFC 6286 §2.1
    return str(address)


def _parse_address(value: Any) -> str:
    _typed(value, str, "an IP address")
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        raise Unfit(f'must be an IPv4 or IPv6 address, not "{value}"') from None
    if address.is_multicast or address.is_unspecified or address == BROADCAST:
        raise Unfit(f"must be the address of one host, not {address}")
    if address.version == 6 and address.ipv4_mapped:
        raise Unfit(f"is an IPv4 address written as IPv6: write {address.ipv4_mapped}")
    if address.version == 6 and address.is_link_local and not address.scope_id:
        raise Unfit(f"is link-local: say on which interface, as in {address}%eth0")
    if address.version == 6 and address.scope_id and (address.scope_id.isdecimal() or len(address.scope_id) > 15):
        raise Unfit(f'must end with the name of an interface, not "{address.scope_id}"')
    return str(address)


def _parse_address_of(version: int) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        text = _parse_address(value)
        if ipaddress.ip_address(text).version != version:
            raise Unfit(f"must be an IPv{version} address, not {text}")
        return text

    return parse


def _parse_prefix(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    _typed(value, str, 'a prefix like "192.0.2.0/24"')
    try:
        if "/" not in value:
            raise ValueError
        network = ipaddress.ip_network(value, strict=False)
    except ValueError:
        raise Unfit(f'must be a prefix like "192.0.2.0/24", not "{value}"') from None
    if ipaddress.ip_interface(value).ip != network.network_address:
        raise Unfit(f'"{value}" has bits set beyond its length; did you mean "{network}"?')
    return network


def _parse_numbers(value: Any, limits: tuple[int, ...], words: str, wildcard: bool = False) -> tuple:
    _typed(value, str, f"a string like {words}")
    parts = value.split(":")
    numbers = tuple(None if wildcard and part == "*" else int(part) if part.isdecimal() else -1 for part in parts)
    if len(parts) != len(limits) or any(
        item is not None and not 0 <= item <= limit for item, limit in zip(numbers, limits, strict=True)
    ):
        raise Unfit(f'must be like {words}, not "{value}"')
    return numbers


def _parse_community(value: Any) -> tuple[int, int]:
    if value in WELL_KNOWN_COMMUNITIES:
        return WELL_KNOWN_COMMUNITIES[value]
    return _parse_numbers(value, (65535, 65535), '"65000:100"')


def _parse_community_pattern(value: Any) -> tuple[int | None, int | None]:
    if value in WELL_KNOWN_COMMUNITIES:
        return WELL_KNOWN_COMMUNITIES[value]
    return _parse_numbers(value, (65535, 65535), '"65000:100", "65000:*" or "*:*"', wildcard=True)


def _parse_large_community(value: Any) -> tuple[int, int, int]:
    return _parse_numbers(value, (4294967295,) * 3, '"65000:1:1"')


def _parse_large_community_pattern(value: Any) -> tuple[int | None, int | None, int | None]:
    return _parse_numbers(value, (4294967295,) * 3, '"65000:1:1", "65000:*:*" or "*:*:*"', wildcard=True)


def _parse_socket_address(value: Any) -> str:
    _typed(value, str, 'a string like "127.0.0.1:8179"')
    host, colon, port = value.rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        is_port = port.isdecimal() and 0 < int(port) < 65536
    except ValueError:
        is_port = False
    if not colon or not is_port or (":" in host and not host.startswith("[")):
        raise Unfit(f'must be like "127.0.0.1:8179" or "[::1]:8179", not "{value}"')
    return value


def _parse_directory(value: Any) -> Path:
    _typed(value, str, "a path")
    path = Path(value)
    if not path.is_absolute():
        raise Unfit(f'must be an absolute path, not "{value}"')
    if not value.isprintable():
        raise Unfit("must have printable characters only")
    if len(str(path)) > 80:  # a Unix socket's name, of which this is a part, has room for 107 octets
        raise Unfit("must be at most 80 characters, as the names of Unix sockets are short")
    return path


def _parse_tcp_endpoint(value: Any) -> str:
    _typed(value, str, 'a string like "tcp://10.77.0.2:7700"')
    unfit = Unfit(f'must be like "tcp://10.77.0.2:7700" or "tcp://rib.example:7700", not "{value}"')
    host, _, number = value.removeprefix("tcp://").rpartition(":")
    is_port = number.isascii() and number.isdecimal() and 0 < int(number) < 65536
    if not value.startswith("tcp://") or not is_port:
        raise unfit
    if len(host) < 254 and HOST_NAME.fullmatch(host.lower()):  # not looked up here
        return f"tcp://{host.lower()}:{int(number)}"
    address, is_bracketed = host.removeprefix("[").removesuffix("]"), host.startswith("[") and host.endswith("]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise unfit from None
    if (":" in address) != is_bracketed:
        raise unfit
    address = _parse_address(address)
    return f"tcp://[{address}]:{int(number)}" if is_bracketed else f"tcp://{address}:{int(number)}"


def _parse_public_key(value: Any) -> str:
    _typed(value, str, "the 40 characters of a public key")
    if len(value) != 40 or not all(letter in _Z85 for letter in value):
        raise Unfit("must be the 40 characters `headrace keys new` has written")
    return value


BOOLEAN = Kind("boolean", _parse_boolean, "true or false")
NAME = Kind("string", _parse_name, "1 to 64 letters, digits, '-', '_', '.'")
INSTANCE = Kind("string", _parse_instance, "1 to 64 letters a to z, digits, '-', '_', '.'")
SPEAKER = Kind("string", _parse_speaker, INSTANCE.limits)
INSTANCES = Kind("number or list of names", _parse_instances, f"1 to {MAX_INSTANCES}, or as many names")
LINE = Kind("string", _parse_line, "at most 128 characters")
ASN = Kind("integer", _parse_asn, "1 to 4294967294, not 23456")
ROUTER_ID = Kind("IPv4 address", _parse_router_id, "not 0.0.0.0")
ADDRESS = Kind("IP address", _parse_address)
ADDRESS_IPV4 = Kind("IPv4 address", _parse_address_of(4))
ADDRESS_IPV6 = Kind("IPv6 address", _parse_address_of(6))
PREFIX = Kind("prefix", _parse_prefix)
COMMUNITY = Kind("community", _parse_community, '"65000:100" or a well-known name such as "no-export"')
COMMUNITY_PATTERN = Kind("community pattern", _parse_community_pattern, '"65000:100", "65000:*", "*:*" or a name')
LARGE_COMMUNITY = Kind("large community", _parse_large_community, '"65000:1:1"')
LARGE_COMMUNITY_PATTERN = Kind("large community pattern", _parse_large_community_pattern, '"65000:1:1", "65000:*:*"')
SOCKET_ADDRESS = Kind("address and port", _parse_socket_address, '"127.0.0.1:8179" or "[::1]:8179"')
TCP_ENDPOINT = Kind("endpoint", _parse_tcp_endpoint, '"tcp://10.77.0.2:7700" or "tcp://rib.example:7700"')
PUBLIC_KEY = Kind("public key", _parse_public_key, "40 characters, Z85")
DIRECTORY = Kind("path", _parse_directory, "absolute, at most 80 characters")
