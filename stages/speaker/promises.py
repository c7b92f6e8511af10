"""What neighbors promised an earlier process of this speaker: the ones it waits for after its restart.

Owns a small file in the run directory with the neighbors that have agreed on graceful restart, the families in which
their End-of-RIB is awaited, and how they are described on the bus. Never waits itself: the rib does, and is told by
AWAITED. RFC 4724 §4.1.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from common.bgp.constants import Family


@dataclass(frozen=True, slots=True)
class Promise:
    """What is known of one neighbor that has agreed."""

    families: tuple[str, ...]
    router_id: int
    local_address: str

    def awaited(self) -> set[Family]:
        """Return the families in which its End-of-RIB is awaited."""
        return {family for family in Family if family.label in self.families}


class Promises:
    """Neighbors with graceful restart, by name."""

    def __init__(self, run_dir: Path, instance: str):
        self._path = Path(run_dir) / f"speaker.{instance}.promises"
        self._present: dict[str, Promise] = {}
        self._is_written = True
        # Of an earlier process, from neighbors that have not been heard since.
        self.open: dict[str, Promise] = {}

    def recall(self, names: Iterable[str]) -> None:
        """Read what an earlier process noted of these neighbors."""
        try:
            noted = json.loads(self._path.read_text())
            known = {
                name: Promise(tuple(each["families"]), int(each["router_id"]), str(each["local_address"]))
                for name, each in noted.items()
            }
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            return  # nobody is waited for
        self.open = {name: known[name] for name in names if name in known and known[name].families}
        self._present = dict(self.open)

    def note(self, name: str, families: Iterable[Family], router_id: int, local_address: str) -> None:
        """Note in which families a neighbor whose session is up has agreed; none: nothing is to be expected."""
        promise = Promise(tuple(sorted(family.label for family in families)), router_id, local_address)
        if not promise.families:
            self.forget(name)
        elif self._present.get(name) != promise:
            self._present[name] = promise
            self._is_written = False

    def forget(self, name: str) -> None:
        """Note that nothing is to be expected of a neighbor any more."""
        self.open.pop(name, None)
        if self._present.pop(name, None):
            self._is_written = False

    def forget_all(self) -> None:
        """Note that nothing is to be expected of anybody: the sessions have ended for good."""
        self.open.clear()
        self._present.clear()
        self._is_written = False
        self.write()

    def write(self) -> None:
        """Write what has been noted since the last time; once a turn, however many sessions came up in it."""
        if self._is_written:
            return
        self._is_written = True
        beside = self._path.with_suffix(".new")
        try:
            beside.write_text(json.dumps({name: asdict(promise) for name, promise in self._present.items()}))
            beside.replace(self._path)
        except OSError:
            pass  # a restart then waits for nobody
