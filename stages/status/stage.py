"""The status stage on its loop: starts the gathering thread and the HTTP server, and ends them.

Owns those two. The loop itself does nothing, so the control socket always answers.
"""

import socket
from typing import Any

from common.bus.asking import asker
from common.config.schema import Config
from common.runtime.log import event
from common.runtime.ports import Port
from common.runtime.stage import Context, Stage
from stages.status.gather import Gatherer
from stages.status.http import HttpServer, split_address
from stages.status.picture import Pictures
from stages.status.web import make_application


class StatusStage(Stage):
    """The page."""

    name = "status"
    SOCKETS = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)

    @classmethod
    def places_to_listen(cls, config: Config, instance: str) -> list[Port]:
        return [
            *super().places_to_listen(config, instance),
            Port(*split_address(config.status.listen), "status.listen"),
        ]

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        router = config.router
        pictures = Pictures({"asn": router.asn, "router_id": router.router_id})
        ask = asker(self.config, context.keyring)
        self.gatherer = Gatherer(router.run_dir, pictures, ask, declared=self.config.endpoints)
        self._server: HttpServer | None = None

    def start(self) -> None:
        """Open the HTTP port; raises OSError if it is taken."""
        self._server = HttpServer(make_application(self.gatherer), self.config.status.listen)
        self._server.start()
        self.gatherer.start()
        event(self.context.log, "status-page", url=f"http://{self.config.status.listen}/")

    def reload(self, config: Config) -> None:
        self.config = config
        self.gatherer.know(asker(config, self.context.keyring), config.endpoints)

    def status(self) -> dict[str, Any]:
        return {"listen": self.config.status.listen, "samples": len(self.gatherer.pictures.history)}

    def drain(self) -> None:
        if self._server is not None:
            self._server.close()
        self.gatherer.stop()


STAGE = StatusStage
