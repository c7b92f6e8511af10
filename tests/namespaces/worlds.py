"""A rib and a fib whose kernel is that of a namespace, for the tests against the real kernel."""

import time

from stages.fib.kernel import Kernel
from tests.unit.stages.fib.world import CONFIG, World


def world_in(namespace, config: str = CONFIG, instance: str = "0") -> World:
    """Return a rib and a fib whose kernel is that of a namespace."""

    def make(table: int, metric: int, **more) -> Kernel:
        return Kernel(table, metric, **(more | {"namespace": more.get("namespace") or namespace.name}))

    return World(make, config, instance)


def until(world: World, condition, deadline_s: float = 20) -> None:
    """Turn until `condition()`; notifications come when the kernel sends them."""
    end = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < end, "not in time"
        world.clock.advance(0.01)
        world.turn(1)


def settle(world: World) -> None:
    """Turn until what the kernel has told is taken in, and what is held back for a while is done."""
    for _ in range(3):
        world.turn()
        world.advance(1.1)


def routes(namespace, more: str = "", protocol: int = 186) -> list[str]:
    """Return our routes in the kernel of both families, one line each, without the lines of several ways."""
    found = namespace.ip(f"route show proto {protocol} {more}") + namespace.ip(f"-6 route show proto {protocol} {more}")
    return [line for line in found.splitlines() if not line.startswith("\t")]
