"""Where the stages of a router are: in the run directory, and, where the configuration says so, at tcp endpoints.

Owns that mapping. Never opens anything. A stage with a declared endpoint is reached there by other stages and serves
in the run directory as well, for commands on its own machine.
"""

from collections.abc import Mapping
from pathlib import Path

from common.bus.channels import control_endpoint, endpoint
from common.config.schema import Config, Endpoint


class Places:
    """The endpoints of one router."""

    def __init__(self, run_dir: str | Path, declared: Mapping[tuple[str, str], Endpoint] | None = None):
        self.run_dir = run_dir
        self.declared = declared or {}

    def bus(self, stage: str, instance: str = "0") -> str:
        """Return where a stage's channels are followed."""
        place = self.declared.get((stage, instance))
        return place.bus if place is not None else endpoint(self.run_dir, stage, instance)

    def control(self, stage: str, instance: str = "0") -> str:
        """Return where a stage is asked."""
        place = self.declared.get((stage, instance))
        return place.control if place is not None else control_endpoint(self.run_dir, stage, instance)

    def served_bus(self, stage: str, instance: str) -> list[str]:
        """Return where a stage serves its channels."""
        return list(dict.fromkeys((endpoint(self.run_dir, stage, instance), self.bus(stage, instance))))

    def served_control(self, stage: str, instance: str) -> list[str]:
        """Return where a stage answers."""
        return list(dict.fromkeys((control_endpoint(self.run_dir, stage, instance), self.control(stage, instance))))


def places_of(config: Config) -> Places:
    """Return the places a configuration declares."""
    return Places(config.router.run_dir, config.endpoints)
