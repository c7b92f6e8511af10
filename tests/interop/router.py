"""Headrace as `headrace run` starts it, in the router's namespace, and its answers over the control sockets."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from common.bus.question import ControlError, ask
from tests.interop.network import Network, address, run_inside
from tests.interop.route import Route
from tests.waiting import wait_until

ASN = 65000
ROOT = Path(__file__).parents[2]


def to_toml(value: Any) -> str:
    """Return a value as TOML has it inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {to_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value)


class Router:
    """Headrace at 10.99.0.1 and fd99::1; neighbors are added before `start()`."""

    def __init__(self, network: Network, asn: int = ASN, **sections: dict[str, Any]):
        self.network = network
        self.asn = asn
        self.directory = network.directory / "headrace"
        self.directory.mkdir()
        self.run_dir = self.directory / "run"
        self.process = None
        self._sections = {
            "router": {"asn": asn, "router_id": address(1), "run_dir": str(self.run_dir)} | sections.pop("router", {}),
            "status": {"enabled": False},
            **sections,
        }
        self.neighbors: dict[str, dict[str, Any]] = {}

    def add(self, name: str, n: int, asn: int, over: int = 4, **keys: Any) -> None:
        """Add neighbor n to the configuration; its policies let everything through unless `keys` have others."""
        policies = {"import": {"default": "accept"}, "export": {"default": "accept"}}
        self.neighbors[name] = {
            "name": name, "address": address(n, over), "local_address": address(1, over), "asn": asn,
            "connect_retry_s": 1, **policies, **keys,
        }  # fmt: skip

    def write(self) -> Path:
        """Write the configuration as it is now; return its path."""
        lines = []
        for section, keys in self._sections.items():
            lines += [f"[{section}]", *(f"{key} = {to_toml(value)}" for key, value in keys.items())]
        for keys in self.neighbors.values():
            lines += [
                "[[neighbor]]",
                *(f"{key} = {to_toml(value)}" for key, value in keys.items() if value is not None),
            ]
        path = self.directory / "headrace.toml"
        path.write_text("\n".join(lines) + "\n")
        return path

    def start(self, is_anew: bool = True) -> None:
        """Start it and wait until its speaker answers; `is_anew`: with nothing left of an earlier run."""
        if is_anew:
            shutil.rmtree(self.run_dir, ignore_errors=True)
        command = [sys.executable, "-m", "common.cli.main", "run", str(self.write())]
        self.process = self.network.run(self.network.router, command, self.directory / "log", {"PYTHONPATH": str(ROOT)})
        wait_until(self._answers, lambda: f"an answer of the speaker\n{self.process.output()[-2000:]}")

    def _answers(self) -> bool:
        assert self.process.is_running, self.process.output()[-4000:]
        if not (self.run_dir / "speaker.0.control").exists():
            return False
        try:
            self.ask("speaker", "status")
        except (TimeoutError, ControlError):
            return False
        return True

    def reload(self) -> None:
        """Have it take over the configuration as it is now."""
        self.write()
        self.ask("supervisor", "reload")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Stop it in order."""
        self.process.stop(how)

    def ask(self, stage: str, question: str, instance: str = "0", **arguments: Any) -> dict[str, Any]:
        """Put one question to a stage."""
        return ask(self.run_dir, stage, instance, question, timeout_s=10, **arguments)

    def speaker_of(self, name: str) -> str:
        """Return the instance of the speaker that has the session with a neighbor."""
        return self.neighbors[name].get("speaker", "0")

    def speakers(self) -> list[str]:
        return sorted({"0", *map(self.speaker_of, self.neighbors)})

    def command(self, *words: str) -> str:
        """Return what a command of `headrace` prints; fail when it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "common.cli.main", *words, "--run-dir", str(self.run_dir)],
            capture_output=True, text=True, timeout=20, cwd=ROOT,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    # ---- what it knows ----------------------------------------------------------------------------------------------

    def neighbor(self, name: str) -> dict[str, Any]:
        """Return all it says of one neighbor."""
        return self.ask("speaker", "neighbor", self.speaker_of(name), name=name)

    def states(self) -> dict[str, str]:
        """Return the state of each neighbor's session."""
        answers = [self.ask("speaker", "neighbors", instance)["neighbors"] for instance in self.speakers()]
        return {each["name"]: each["state"] for answer in answers for each in answer}

    def stages(self) -> dict[str, dict[str, Any]]:
        """Return what the supervisor says of each stage."""
        return {each["stage"]: each for each in self.ask("supervisor", "status")["stages"]}

    def is_established(self, name: str) -> bool:
        return self.states()[name] == "Established"

    def received(self, name: str) -> dict[str, Route]:
        """Return what a neighbor announced, as received."""
        return self._routes("speaker", "received", instance=self.speaker_of(name), neighbor=name)

    def advertised(self, name: str) -> dict[str, Route]:
        """Return what a neighbor was told."""
        return self._routes("speaker", "advertised", instance=self.speaker_of(name), neighbor=name)

    def chosen(self) -> dict[str, Route]:
        """Return the Loc-RIB."""
        return self._routes("rib", "routes")

    def _routes(self, stage: str, question: str, **arguments: Any) -> dict[str, Route]:
        routes, after = [], None
        while True:
            answer = self.ask(stage, question, after=after, limit=1000, **arguments)
            routes += answer["routes"]
            after = answer.get("next")
            if after is None:
                return {route["prefix"]: Route.described(route) for route in routes}

    def kernel_routes(self) -> dict[str, dict[str, Any]]:
        """Return the kernel's BGP routes of both families by prefix, as `ip -j route` has them."""
        return {
            route["dst"]: route
            for version in ("-4", "-6")
            for route in json.loads(
                run_inside(self.network.router, "ip", "-j", version, "route", "show", "proto", "bgp") or "[]"
            )
        }
