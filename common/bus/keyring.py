"""Keys of a bus between machines: the own one, those that are accepted, and what each may do.

Owns the reading and writing of secret files. Never computes with a key: ZeroMQ does (CurveZMQ), in zmq_transport.py.

A secret is a file NAME.secret of one line, readable by its owner alone; its public half stands in the configuration of
all machines, with a role. A stage may follow what its row in the table of channels says (channels.py) and put no
question; the other roles are below. Whoever is not in the table is not let in at all.
"""

import os
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from common.bus.channels import CHANNELS, is_match
from common.bus.question import public_of
from common.config.bus import is_loopback, key_name
from common.config.schema import STAGES, Config

READING = frozenset(
    "status metrics memory schema neighbors neighbor received advertised lookup prefixes route routes routes-of "
    "summary explain nexthops refused accepted".split()
)
"""Questions that change nothing."""

READERS_OF_ALL = ("status", "monitor", "tap")
OPERATOR = "operator"


class KeyTrouble(Exception):
    """A key is missing or not kept secret; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Who is at the other end, and as what."""

    name: str
    role: str
    public: str = field(default="", repr=False)

    def may_follow(self, channel: str, is_tap: bool) -> bool:
        """Tell whether it may be sent a channel."""
        if self.role in ("tap", OPERATOR):
            return is_tap
        readers = (entry.readers.split(", ") for entry in CHANNELS if is_match(entry.pattern, channel))
        return any(self.role in each for each in readers)

    def may_ask(self, question: object) -> bool:
        """Tell whether it may put a question."""
        return self.role == OPERATOR or (self.role in READERS_OF_ALL and question in READING)

    def __str__(self) -> str:
        return f"{self.name} ({self.role})"


@dataclass(frozen=True, slots=True)
class Keyring:
    """What one process knows of keys. Public and secret keys are the 40 characters of Z85, as octets."""

    name: str = ""
    public: bytes = b""
    secret: bytes = field(default=b"", repr=False)
    accepted: dict[bytes, Grant] = field(default_factory=dict)
    servers: dict[str, bytes] = field(default_factory=dict)
    """Public keys by the endpoint at which their owners serve."""

    @property
    def has_own(self) -> bool:
        return bool(self.secret)


def load_keyring(config: Config, stage: str, instance: str) -> Keyring:
    """Return what a stage knows of keys; raise KeyTrouble if it needs one it has not."""
    name = key_name(config.public_keys, stage, instance) if stage in STAGES else None
    secret = _own_secret(config, name) if name is not None else b""
    if not secret and stage in STAGES:
        _check_not_needed(config, stage, instance)
    public = config.public_keys[name].public.encode() if name else b""
    return Keyring(name or "", public, secret, accepted(config), servers(config))


def renewed_keyring(keyring: Keyring, config: Config, stage: str, instance: str) -> Keyring:
    """Return what a stage knows of keys with another configuration; its own it has read at its start.

    Raises KeyTrouble if it has none, and needs one now.
    """
    if not keyring.has_own:
        _check_not_needed(config, stage, instance)
    return replace(keyring, accepted=accepted(config), servers=servers(config))


def named_keyring(config: Config, name: str) -> Keyring:
    """Return what a command knows that goes by the key `name`; raise KeyTrouble if there is none."""
    if name not in config.public_keys:
        raise KeyTrouble(f"no [[key]] of name {name!r} in the configuration")
    secret = _own_secret(config, name)
    return Keyring(name, config.public_keys[name].public.encode(), secret, {}, servers(config))


def accepted(config: Config) -> dict[bytes, Grant]:
    """Return what each key may do, by its public half."""
    return {each.public.encode(): Grant(each.name, each.role, each.public) for each in config.public_keys.values()}


def servers(config: Config) -> dict[str, bytes]:
    """Return the public key of whoever serves at each endpoint that has one."""
    found = {}
    for (stage, instance), place in config.endpoints.items():
        name = key_name(config.public_keys, stage, instance)
        if name is not None:
            found[place.bus] = found[place.control] = config.public_keys[name].public.encode()
    return found


def _own_secret(config: Config, name: str) -> bytes:
    return read_secret(config.keys.directory, name, config.public_keys[name].public)


def read_secret(directory: Path, name: str, public: str) -> bytes:
    """Return the secret of a public key; raise KeyTrouble unless it is there, well kept and the right one."""
    path = Path(directory) / f"{name}.secret"
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            text = file.read(256).strip()
    except FileNotFoundError:
        raise KeyTrouble(f"{path}: there is none: `headrace keys new {name}` makes one") from None
    except OSError as error:
        raise KeyTrouble(f"{path}: cannot be read: {error.strerror}") from None
    # One that is not ours was lent to our group, as Kubernetes does with Secrets: to be read, no more.
    mode, refused = stat.S_IMODE(found.st_mode), 0o077 if found.st_uid == os.geteuid() else 0o037
    if mode & refused:
        raise KeyTrouble(f"{path}: others may read it (mode {mode:04o}): chmod 600, or make a new one")
    try:
        if public_of(text).decode() == public:
            return text
    except ValueError:
        raise KeyTrouble(f"{path}: is no secret key") from None
    raise KeyTrouble(f"{path}: is not the secret of {public}, which the configuration has for {name}")


def write_secret(directory: Path, name: str, secret: bytes) -> Path:
    """Write a new secret key with mode 0600; raise FileExistsError rather than replace one."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / f"{name}.secret"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secret + b"\n")
    return path


def _check_not_needed(config: Config, stage: str, instance: str) -> None:
    for (other, number), place in config.endpoints.items():
        is_secured = key_name(config.public_keys, other, number) is not None
        if is_secured or not is_loopback(place.bus):
            why = "and has a key" if is_secured else "which is not loopback"
            raise KeyTrouble(
                f"{other}.{number} is at {place.bus}, {why}, so {stage}.{instance} needs a key: "
                f'`headrace keys new {stage}`, and a [[key]] of name "{stage}" or "{stage}.{instance}"'
            )
