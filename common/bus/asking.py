"""How a stage asks the others of its router, wherever they are: in the run directory, else at their endpoints.

Never: asks by itself, or knows what is asked.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.bus.keyring import Keyring
from common.bus.question import Curve, ask, ask_at
from common.config.schema import Config


def asker(config: Config, keyring: Keyring) -> Callable[..., dict[str, Any]]:
    """Return what asks as `question.ask` does, going by the key of the stage that asks where one is needed."""

    def ask_anywhere(
        run_dir: Path, stage: str, instance: str, question: str = "status", timeout_s: float = 2.0, **arguments
    ) -> dict[str, Any]:
        place = config.endpoints.get((stage, instance))
        if place is None or (Path(run_dir) / f"{stage}.{instance}.control").exists():
            return ask(run_dir, stage, instance, question, timeout_s, **arguments)
        server = keyring.servers.get(place.control)
        curve = Curve(keyring.public, keyring.secret, server) if keyring.has_own and server else None
        return ask_at(place.control, question, timeout_s, curve, **arguments)

    return ask_anywhere
