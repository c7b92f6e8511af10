"""What a stage takes from another configuration while it runs: whom it lets in, and where it calls others."""

import contextlib
import io
import time

import pytest

from common.bus.bus import Bus
from common.bus.keyring import Grant, Keyring
from common.bus.places import Places
from common.bus.question import new_keys
from common.bus.zmq_transport import ZmqTransport
from common.config.schema import Endpoint
from common.runtime.log import Log
from common.runtime.loop import Loop
from tests.processes.router import free_port
from tests.unit.bus.conftest import CHANNEL, Copy, Owner

DEADLINE_S = 30
NOBODY: dict = {}


class Pair:
    """An owner with a table and a reader, each with a key, over tcp."""

    def __init__(self, run_dir, stack, accepted):
        self.keys = {name: new_keys() for name in ("speaker", "policy")}
        self.grant = {self.keys["policy"][0]: Grant("policy", "policy", self.keys["policy"][0].decode())}
        self.places = self.new_places()
        self.loops, self.logs, self.buses = {}, {}, {}
        for stage in self.keys:
            loop, log = Loop(), Log(stage, stream=io.StringIO())
            transport = ZmqTransport(loop, self.keyring(stage, accepted(self)), log)
            bus = Bus(f"{run_dir}/{stage}", stage, "0", loop, transport, log, None, self.places)
            loop.add_turn(bus.pump)
            self.loops[stage], self.logs[stage], self.buses[stage] = loop, log, bus
            stack.callback(loop.close)
            stack.callback(bus.close)
        self.run_dir = run_dir
        self.owner = Owner(self.buses["speaker"])
        self.copy = Copy()
        self.buses["policy"].follow("speaker", "0", CHANNEL, self.copy.handle)

    def new_places(self) -> Places:
        bus, control = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        return Places("/nowhere", {("speaker", "0"): Endpoint(stage="speaker", bus=bus, control=control)})

    def keyring(self, stage: str, accepted: dict, places: Places | None = None) -> Keyring:
        public, secret = self.keys[stage]
        at = (places or self.places).bus("speaker")
        return Keyring(stage, public, secret, accepted, {at: self.keys["speaker"][0]})

    def renew(self, stage: str, accepted: dict, places: Places | None = None) -> None:
        former, keyring = self.keyring(stage, {}), self.keyring(stage, accepted, places)
        self.buses[stage].renew(places or self.places, former, keyring)

    def run_until(self, condition) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, [log.counts for log in self.logs.values()]
            for loop in self.loops.values():
                loop.turn(0.002)


@pytest.fixture
def make_pair(run_dir, monkeypatch):
    monkeypatch.setattr("common.bus.places.endpoint", lambda _, stage, instance: f"ipc://{run_dir}/{stage}.{instance}")
    with contextlib.ExitStack() as stack:
        yield lambda accepted: Pair(run_dir, stack, accepted)


def test_a_key_made_known_lets_its_owner_in(make_pair):
    """Who was refused is not, once the key is accepted; nothing is started again."""
    pair = make_pair(lambda pair: NOBODY)
    pair.owner.put(1, 10)
    pair.run_until(lambda: pair.logs["policy"].counts.get("link-refused"))
    assert not pair.copy.batches
    pair.renew("speaker", pair.grant)
    pair.run_until(lambda: pair.copy.values == {1: 10})


@pytest.mark.parametrize("what", ["key", "role"])
def test_who_goes_by_a_key_that_was_withdrawn_is_let_go(make_pair, what):
    """From then on it is sent nothing, though its connection stands, and asking again does not help."""
    pair = make_pair(lambda pair: pair.grant)
    pair.owner.put(1, 10)
    pair.run_until(lambda: pair.copy.values == {1: 10})
    ((public, grant),) = pair.grant.items()
    pair.renew("speaker", NOBODY if what == "key" else {public: Grant(grant.name, "status", grant.public)})
    assert pair.buses["speaker"].status()["readers"] == [] and pair.logs["speaker"].counts["key-withdrawn"] == 1
    pair.owner.put(1, 20)
    (follower,) = pair.buses["policy"].followers()
    follower.stop_asking()
    follower.ask()
    pair.run_until(lambda: "may not follow" in (follower.refused or ""))
    assert pair.copy.values == {1: 10}
    pair.renew("speaker", pair.grant)
    pair.run_until(lambda: pair.copy.values == {1: 20})


def test_keys_that_stay_are_not_touched(make_pair):
    """A reader whose key and role are as they were notices nothing."""
    pair = make_pair(lambda pair: pair.grant)
    pair.owner.put(1, 10)
    pair.run_until(lambda: pair.copy.values == {1: 10})
    another = new_keys()[0]
    pair.renew("speaker", pair.grant | {another: Grant("tap", "tap", another.decode())})
    pair.owner.put(1, 20)
    pair.run_until(lambda: pair.copy.values == {1: 20})
    assert pair.logs["policy"].counts["link-up"] == 1 and pair.owner.server.readers()


def test_a_reader_follows_an_owner_to_another_place(make_pair, run_dir):
    """It asks there from its position, so nothing is told twice."""
    pair = make_pair(lambda pair: pair.grant)
    pair.owner.put(1, 10)
    pair.run_until(lambda: pair.copy.values == {1: 10} and pair.buses["policy"].followers()[0].is_in_step)
    n_batches, places = len(pair.copy.batches), pair.new_places()
    pair.renew("policy", NOBODY, places)
    pair.buses["speaker"].places = places
    pair.owner.server.port.close()
    pair.buses["speaker"]._server = None
    server = pair.buses["speaker"].serve()
    server.add("adj-rib-in/*", lambda request: pair.owner.source)
    pair.owner.put(2, 20)
    pair.run_until(lambda: pair.copy.values == {1: 10, 2: 20})
    assert len(pair.copy.batches) == n_batches + 1 and pair.logs["policy"].counts["link-up"] == 2
