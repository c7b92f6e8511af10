"""Finds a running router and asks its stages over their control sockets.

Stages on this machine are found in the run directory; others by the endpoints of a configuration (--config), and a
command then goes by the key that the environment variable HEADRACE_KEY names, else "operator".

Owns: how a command finds the run directory, and what it says when nobody answers. Never: asks twice what one stage
can answer once; long answers come in pages, so no stage is held up.
"""

import difflib
import ipaddress
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.cli.text import some

if TYPE_CHECKING:
    from common.bus.keyring import Keyring
    from common.config import Config

DEFAULT_RUN_DIR = "/run/headrace"
TIMEOUT_S = 5.0
REFUSED = 1
KEY_VARIABLE = "HEADRACE_KEY"
DEFAULT_KEY = "operator"


class NoAnswer(str):
    """Why there is no answer; `errors` are those of a configuration that is wrong."""

    errors: list[str]

    def __new__(cls, error: Exception) -> "NoAnswer":
        self = super().__new__(cls, str(error))
        self.errors = getattr(error, "errors", [])
        return self


@dataclass(frozen=True, slots=True)
class Router:
    """A running router, known by its run directory, and by its configuration where one was given."""

    run_dir: Path
    config: "Config | None" = None

    def instances(self, stage: str) -> list[str]:
        """Return the instances of a stage that can be asked; exit when there is none."""
        found = [instance for name, instance in self._known() if name == stage]
        if not found:
            say_and_exit(self._nobody(stage))
        return found

    def stages(self) -> list[tuple[str, str]]:
        """Return (stage, instance) of whoever can be asked but the supervisor."""
        return [each for each in self._known() if each[0] != "supervisor"]

    def is_known(self, stage: str, instance: str) -> bool:
        """Tell whether there is somebody to ask."""
        return (stage, instance) in self._known()

    def _known(self) -> list[tuple[str, str]]:
        names = (path.name.removesuffix(".control").split(".", 1) for path in self.run_dir.glob("*.control"))
        local = {(name[0], name[1]) for name in names if len(name) == 2}
        return sorted(local | (self.config.endpoints.keys() if self.config is not None else set()))

    def holder(self, wanted: str) -> tuple[str, str]:
        """Return the name of the neighbor with a name or address, and the speaker that holds its session; else exit."""
        found: dict[str, tuple[str, str]] = {}
        addresses: dict[str, tuple[str, str]] = {}
        silent = ""
        for instance in self.instances("speaker"):
            answer = self.ask_or_error("speaker", "neighbors", instance)
            if isinstance(answer, str):
                silent = answer
                continue
            for row in answer["neighbors"]:
                found[row["name"]] = addresses[row["address"]] = (row["name"], instance)
        holder = found.get(wanted) or addresses.get(_as_address(wanted))
        if holder is None:
            say_and_exit(silent or f"no neighbor {wanted!r:.80}{_nearest(wanted, found, addresses)}")
        return holder

    def keyring(self) -> "Keyring":
        """Return the keys with which other machines are asked; exit where there are none."""
        from common.bus.keyring import KeyTrouble, named_keyring

        try:
            return named_keyring(self.config, os.environ.get(KEY_VARIABLE, DEFAULT_KEY))
        except KeyTrouble as trouble:
            say_and_exit(str(trouble))

    def _nobody(self, stage: str) -> str:
        return f"no {stage} answers in {self.run_dir}: is headrace running? (--run-dir or --config says where)"

    def ask(self, stage: str, question: str, instance: str = "0", **arguments: Any) -> dict:
        """Ask one stage; exit with its reason when it refuses, or when it does not answer.

        The status is 1, or 2 with all errors where the reason is a wrong configuration.
        """
        answer = self.ask_or_error(stage, question, instance, **arguments)
        if isinstance(answer, str):
            if errors := getattr(answer, "errors", []):
                from common.cli.configuration import say_errors_and_exit

                say_errors_and_exit(errors, "not reloaded, nothing has changed")
            say_and_exit(answer)
        return answer

    def ask_or_error(self, stage: str, question: str, instance: str = "0", **arguments: Any) -> dict | str:
        """Ask one stage; return its answer, or in words why there is none."""
        from common.bus.question import ControlError, ask

        try:
            if (self.run_dir / f"{stage}.{instance}.control").exists():
                answer = ask(self.run_dir, stage, instance, question, timeout_s=TIMEOUT_S, **arguments)
            elif self.config is not None and (stage, instance) in self.config.endpoints:
                answer = self._ask_far(stage, instance, question, **arguments)
            else:
                return self._nobody(stage)
        except (ControlError, TimeoutError, OSError) as error:
            return NoAnswer(error)
        answer.pop("ok", None)
        return answer

    def _ask_far(self, stage: str, instance: str, question: str, **arguments: Any) -> dict:
        from common.bus.question import Curve, ask_at

        endpoint = self.config.endpoints[stage, instance].control
        curve = None
        if self.config.public_keys:
            keyring = self.keyring()
            curve = Curve(keyring.public, keyring.secret, keyring.servers.get(endpoint, b""))
        return ask_at(endpoint, question, TIMEOUT_S, curve, **arguments)


def _as_address(text: str) -> str:
    """Return an address as the configuration has it, other text as it is."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def _nearest(wanted: str, names: Iterable[str], addresses: Iterable[str]) -> str:
    """Return which neighbor may have been meant, else those there are."""
    near = difflib.get_close_matches(wanted, [*names, *addresses], n=1, cutoff=0.5)
    if near:
        return f' (did you mean "{near[0]}"?)'
    return f"; there are {some(list(names))}" if names else "; none is configured"


def say_and_exit(reason: str) -> None:
    """Print why a command cannot be carried out, and exit with status 1."""
    click.echo(f"headrace: {reason}", err=True)
    sys.exit(REFUSED)


def asks_router(command: Callable) -> Callable:
    """Give a command the options that say where the router is."""
    options = (
        click.option("--run-dir", type=click.Path(path_type=Path), envvar="HEADRACE_RUN_DIR", help="Where it runs."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="Configuration file that says where."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def find_router(run_dir: Path | None, file: Path | None) -> Router:
    """Return the router that the options name."""
    config = None
    if file is not None:
        from common.cli.configuration import load_or_exit

        config = load_or_exit(file)
        run_dir = run_dir or config.router.run_dir
    return Router(run_dir or Path(DEFAULT_RUN_DIR), config)
