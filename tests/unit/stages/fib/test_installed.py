"""What the fib tells of prefixes that are in the kernel: the last word on each prefix is the kernel's."""

import numpy as np

from common.bus.follower import Follower
from stages.rib.installed import Installed
from tests.unit.stages.fib.world import FakeKernel, World, halves


def reader_of(world: World, label: str = "ipv4-unicast") -> tuple[Installed, Follower]:
    """Return what a rib knows of the kernel, and its follower."""
    known = Installed(label == "ipv6-unicast", 1, lambda prefixes: None)
    bus, _, _ = world._bus(f"reader of {label}")
    return known, bus.follow("fib", "0", f"installed/{label}", known.handle)


def in_kernel(known: Installed, *prefixes: str) -> list[bool]:
    rows = [halves(prefix) for prefix in prefixes]
    lo = np.array([row[1] for row in rows], np.uint64) if ":" in prefixes[0] else np.empty(0, np.uint64)
    hi, length = np.array([row[0] for row in rows], np.uint64), np.array([row[2] for row in rows], np.uint8)
    return known.has((hi, lo, length)).tolist()


def world_of(kernel: FakeKernel) -> World:
    return World(lambda table, metric, **more: kernel)


def test_a_reader_knows_what_is_in_the_kernel():
    """A snapshot first, then what comes and goes, in both families."""
    kernel = FakeKernel(254, 20)
    world = world_of(kernel)
    world.change({"198.51.100.0/24": "192.0.2.10", "2001:db8:1::/48": "2001:db8::10"})
    (known, _), (known_6, _) = reader_of(world), reader_of(world, "ipv6-unicast")
    world.turn()
    assert known.is_complete and in_kernel(known, "198.51.100.0/24") == [True]
    assert in_kernel(known_6, "2001:db8:1::/48") == [True]
    world.change({"198.51.100.0/24": None, "198.51.101.0/24": "192.0.2.10"})
    assert in_kernel(known, "198.51.100.0/24", "198.51.101.0/24") == [False, True] and len(known) == 1


def test_a_refused_route_is_not_there():
    """A route the kernel refuses, or whose next hop cannot be reached, is not in the kernel until it is."""
    kernel = FakeKernel(254, 20)
    world = world_of(kernel)
    known, _ = reader_of(world)
    kernel.foreign.add(halves("198.51.100.0/24"))
    world.change({"198.51.100.0/24": "192.0.2.10", "198.51.101.0/24": "192.0.3.1", "198.51.102.0/24": "192.0.2.10"})
    prefixes = ("198.51.100.0/24", "198.51.101.0/24", "198.51.102.0/24")
    assert in_kernel(known, *prefixes) == [False, False, True]
    kernel.foreign.clear()
    world.advance(2)
    assert in_kernel(known, *prefixes) == [True, False, True]


def test_a_route_that_is_replaced_is_there_all_the_while():
    """Another next hop is no absence: nothing is told."""
    kernel = FakeKernel(254, 20)
    world = world_of(kernel)
    known, follower = reader_of(world)
    world.change({"198.51.100.0/24": "192.0.2.10"})
    position = follower.position
    world.change({"198.51.100.0/24": "192.0.2.11"})
    assert follower.position == position and in_kernel(known, "198.51.100.0/24") == [True]


def test_of_many_changes_of_one_prefix_the_last_counts():
    """A prefix that came and went and came within one batch is there; the other way round it is not."""
    kernel = FakeKernel(254, 20)
    world = world_of(kernel)
    known, _ = reader_of(world)
    for hop in ("192.0.2.10", None, "192.0.2.11", None, "192.0.2.10"):
        world.change({"198.51.100.0/24": hop, "198.51.101.0/24": None if hop else "192.0.2.10"})
    assert in_kernel(known, "198.51.100.0/24", "198.51.101.0/24") == [True, False]
    assert len(known) == 1
