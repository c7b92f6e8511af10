"""The keys of a scenario: what each may hold, its default, and a sentence.

Owns: their declarations, from which the checks (scenario.py) and `headrace feed --reference` come. Never: reads a file.
The keys of a step are the arguments of its function in steps.py, which has their defaults too.
"""

import difflib
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from common.bgp.constants import Family
from common.config import keys as kinds
from common.config.keys import (
    ADDRESS,
    ASN,
    BOOLEAN,
    NAME,
    Key,
    Kind,
    Unfit,
    choice,
    integer,
    key,
    keys_of,
    list_of,
    number,
)
from stages.feed.garbage import KINDS
from stages.feed.mrt import HOW

MOST_PREFIXES = 100_000_000
MOST_NEIGHBORS = 60_000
MOST_SECONDS = 100_000
SOURCES = ("synthetic", "mrt", "prefixes", "tap")


def _parse_text(value) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise Unfit("must be a string of printable characters")
    return value


TEXT = Kind("string", _parse_text)
PATH = Kind("path", _parse_text)


def _parse_kind(value) -> str:
    if value not in KINDS:
        near = difflib.get_close_matches(str(value), KINDS, 1)
        hint = f" (did you mean {near[0]!r}?)" if near else f": one of {', '.join(KINDS)}"
        raise Unfit(f"no kind of garbage is called {value!r}{hint}")
    return value


GARBAGE = Kind("string", _parse_kind, ", ".join(KINDS))
_SIZE = integer(0, MOST_PREFIXES)
_SEED = integer(0, (1 << 63) - 1)
_SECONDS = number(0, MOST_SECONDS)
_SHARE = number(0, 1)
_FIRST_AS = choice(*HOW)
_NAMES = list_of(NAME)
_FIRST_AS_SAYS = "Whether the neighbor's AS number replaces the first of each path, goes before it, or paths stay."
_PEER_SAYS = "Peer of the file, by address or as AS and number; without, that with the most routes, then the next."


def _or_empty(kind: Kind) -> Kind:
    """A text that may be left empty."""
    return Kind(kind.name, lambda value: "" if value == "" else kind.parse(value), kind.limits)


@dataclass(slots=True, kw_only=True)
class Whole:
    """The keys at the top of a scenario."""

    summary: str = key(TEXT, "What the scenario does.", default="")
    time_limit_s: float = key(number(0.001, MOST_SECONDS), "When it stops by itself.", unit="s", default=120)


@dataclass(slots=True, kw_only=True)
class Target:
    """A speaker under test: [target], or [[target]] once for each."""

    name: str = key(_or_empty(NAME), "What neighbors call it, where there are several.", default="")
    address: str = key(ADDRESS, "Its address; nothing is ever sent to another.")
    port: int = key(integer(1, 65535), "Its TCP port.", default=179)


@dataclass(slots=True, kw_only=True)
class TableKeys:
    """A table that neighbors announce: [table.NAME]."""

    source: str = key(
        choice(*SOURCES), "Where it comes from; tap: a recording of `headrace tap --json`.", default="synthetic"
    )
    size: int = key(_SIZE, "Prefixes; 0: a full table, or the whole list.", default=0)
    pool: int = key(_SIZE, "Each neighbor has a choice of `size` of this many; 0: all have the same.", default=0)
    seed: int = key(_SEED, "Tables of one seed are the same.", default=1)
    same_paths: bool = key(BOOLEAN, "Neighbors have the same paths, or play the same peer of a file.", default=False)
    path: str = key(PATH, "The file, from the scenario's folder; may be packed.", default="")
    peer: str = key(TEXT, _PEER_SAYS, default="")
    first_as: str = key(_FIRST_AS, _FIRST_AS_SAYS, default="replace")
    keeps_as_sets: bool = key(
        BOOLEAN, "Routes of a file with an AS_SET are sent too (RFC 9774: refused).", default=False
    )


@dataclass(slots=True, kw_only=True)
class NeighborKeys:
    """A neighbor that is played: [[neighbor]]."""

    name: str = key(NAME, "Its name, in steps and in the report.")
    address: str = key(ADDRESS, "Its own address, which this machine must have.")
    asn: int = key(ASN, "Its AS number.")
    count: int = key(
        integer(1, MOST_NEIGHBORS),
        "So many neighbors NAME-1, NAME-2, ..., with addresses and AS numbers one after the other.",
        default=1,
    )
    target: str = key(_or_empty(NAME), "The name of its target, where there are several.", default="")
    sends: str = key(TEXT, "The table it announces.", default="")
    listens: bool = key(BOOLEAN, "It must come to hold what the others announce.", default=True)
    hears: list[str] | None = key(
        _NAMES, "The neighbors whose routes it must be told; without: all others.", default=None
    )
    families: list[str] = key(
        list_of(choice(*(family.label for family in Family)), minimum=1, is_set=True),
        "What it speaks.",
        default=[family.label for family in Family],
    )
    is_late: bool = key(BOOLEAN, "It comes up in a `connect` step that names it.", default=False)
    is_internal: bool = key(BOOLEAN, "All of `count` have the same AS number.", default=False)
    hold_time_s: int = key(
        integer(3, 65535, also=(0,)), "The Hold Time it offers; 0: no KEEPALIVEs.", unit="s", default=90
    )
    receive_buffer_octets: int = key(
        integer(0, 1 << 30), "The kernel's buffer; 0: as the system has it.", unit="octets", default=0
    )
    next_hop: str = key(
        _or_empty(kinds.ADDRESS_IPV4),
        "The next hop of its IPv4 routes; without: its address, or 198.51.100.x.",
        default="",
    )
    next_hop_6: str = key(
        _or_empty(kinds.ADDRESS_IPV6), "The next hop of its IPv6 routes; without: its address, or fd77::x.", default=""
    )


STEP_KEYS: dict[str, tuple[Kind, str]] = {
    "neighbors": (_NAMES, "Who does it; a name of several means all of them. Without: all that are not late."),
    "limit_s": (_SECONDS, "How long it may take."),
    "count": (integer(1, MOST_PREFIXES), "How many."),
    "interval_s": (_SECONDS, "From one to the next; 0: the next when one has arrived."),
    "sender": (_or_empty(NAME), "Who sends them; without: the first who sends a table."),
    "background": (BOOLEAN, "The next steps go on meanwhile, until `probe-end`."),
    "seconds": (_SECONDS, "How long."),
    "updates_per_s": (number(0.001, 1_000_000), "Mean rate of UPDATEs."),
    "withdraw_share": (_SHARE, "Of the changes: so many are withdrawals."),
    "seed": (_SEED, "The same seed, the same choice."),
    "path": (PATH, "An MRT file, from the scenario's folder; may be packed."),
    "peer": (TEXT, _PEER_SAYS),
    "speed": (number(1e-6, 1e6), "How many times as fast as in the file."),
    "first_as": (_FIRST_AS, _FIRST_AS_SAYS),
    "what": (choice("sessions", "prefixes"), "What goes and comes back."),
    "share": (_SHARE, "Of the sessions, or of each table's prefixes."),
    "times": (integer(1, 1_000_000), "How often."),
    "pause_s": (_SECONDS, "Between going and coming back, and after it."),
    "is_orderly": (BOOLEAN, "Sessions end with a Cease; else the connection is reset."),
    "kinds": (list_of(GARBAGE, minimum=1), "Which kinds."),
    "answer_s": (_SECONDS, "A session silent for so long stands."),
    "back_s": (_SECONDS, "How long a speaker may refuse the neighbor after an error (BIRD: `error wait time`)."),
}  # fmt: skip


def reference(steps: dict) -> Iterator[str]:
    """Give the lines of a reference of all keys; `steps`: the functions by name."""
    yield "# A scenario is a TOML file. Each key is shown with its default."
    for head, section in (
        ("", Whole), ("[target]", Target), ("[table.NAME]", TableKeys), ("[[neighbor]]", NeighborKeys),
    ):  # fmt: skip
        yield ""
        yield from _wrapped(f"{head}  # " if head else "# ", section.__doc__)
        for name, (_, each) in keys_of(section).items():
            yield from _described(name, each)
    for name, step in steps.items():
        yield ""
        yield from _wrapped("[[step]]  # ", step.__doc__.partition("\n\n")[0])
        yield f'do = "{name}"'
        for argument, default in (step.__kwdefaults__ or {}).items():
            kind, sentence = STEP_KEYS[argument]
            yield from _described(argument, Key(kind, sentence, default, "", None))


def _described(name: str, each: Key) -> Iterator[str]:
    limits = f" ({each.kind.limits})" if each.kind.limits and each.kind not in (BOOLEAN, NAME, _NAMES) else ""
    unit = f", {each.unit}" if each.unit else ""
    default = "(required)" if each.is_required else _toml(each.default)
    yield from _wrapped(f"{name} = {default}  # ", f"{each.sentence} {each.kind.name}{unit}{limits}")


def _toml(value) -> str:
    if value is None:
        return "(unset)"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).replace("'", '"')


def _wrapped(head: str, text: str) -> list[str]:
    return textwrap.wrap(head + " ".join(text.split()), 120, subsequent_indent="    # ")
