"""Graceful restart with BIRD and FRR, both ways: packets find their way and others hear nothing.

A speaker is killed: its neighbors keep our routes, our kernel keeps theirs, and the neighbor of another speaker is told
nothing. A neighbor is killed: we keep its routes, in the kernel too, until it is back.
"""

import os
import signal
import sys
from pathlib import Path

import pytest

from common.bus.question import ControlError
from tests.interop.daemons import Bird, ExaBgp, Frr
from tests.interop.exchange import Exchange, Role
from tests.interop.network import batch
from tests.interop.route import Announcement
from tests.interop.router import ROOT
from tests.interop.test_restart import lines_about
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

FAR_AWAY = "203.0.113.1"
BIRD, FRR = (Role(name, {"has_graceful_restart": True}) for name in ("bird", "frr"))
ROUTES = {
    "bird": ["198.18.1.0/24", "2001:db8:1::/48", "203.0.113.0/24"],
    "frr": ["198.18.2.0/24", "2001:db8:2::/48"],
}
ALL = {prefix for prefixes in ROUTES.values() for prefix in prefixes}


def announced(name: str) -> list[Announcement]:
    return [Announcement(prefix=prefix, med=0) for prefix in ROUTES[name]]  # FRR gives its networks a MED of 0 anyway


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(fib={"enabled": True}, graceful_restart={"restart_time_s": 30, "selection_deferral_s": 30})
    try:
        for name, kind, role in (("bird", Bird, BIRD), ("frr", Frr, FRR)):
            made.add(name, kind, role, lambda n, name=name: announced(name))
        # The neighbor of another speaker, which calls: whichever of the two accepts passes it on.
        made.add("listener", ExaBgp, Role("listener", keys={"speaker": "west", "passive": True}), lambda n: [])
        batch(made.daemons["bird"].namespace, f"address add {FAR_AWAY}/32 dev lo")
        made.start()
        for name in made.daemons:
            made.wait_for_routes(name)
        wait_until(lambda: made.router.kernel_routes().keys() == ALL, "the kernel's routes")
        wait_until(lambda: all(made.daemons[name].has_end_of_rib() for name in ROUTES), "our End-of-RIB")
        yield made
    finally:
        made.close()


class Outside:
    """What the kernel, a packet and the listener see from now on."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        network = exchange.network
        self.kernel_log = network.directory / f"monitor-{len(network.programs)}"
        self.monitor = network.run(network.router, ["ip", "monitor", "route"], self.kernel_log)
        self.ping_log = network.directory / f"ping-{len(network.programs)}"
        command = [sys.executable, "-m", "tests.interop.ping", FAR_AWAY]
        self.ping = network.run(network.router, command, self.ping_log, {"PYTHONPATH": str(ROOT)})
        self.listener = self._told()
        wait_until(self._is_watching, "the monitor of the kernel")

    def _is_watching(self) -> bool:
        batch(self.exchange.network.router, "route add 192.0.2.77/32 dev lo", "route del 192.0.2.77/32 dev lo")
        return "192.0.2.77" in self.kernel_log.read_text()

    def _told(self) -> tuple:
        neighbor = self.exchange.router.neighbor("listener")
        return neighbor["n_established"], {label: each["n_updates"] for label, each in neighbor["tables"].items()}

    def assert_nothing_seen(self) -> None:
        assert self._told() == self.listener
        self.assert_forwarding_went_on(sorted(ALL))

    def assert_forwarding_went_on(self, prefixes: list[str]) -> None:
        assert lines_about(prefixes, self.kernel_log.read_text()) == []
        self.monitor.stop()
        self.ping.process.terminate()
        wait_until(lambda: not self.ping.is_running, "the end of ping")
        assert '"lost": []' in self.ping_log.read_text()


def speaker_pid(exchange: Exchange, instance: str = "0") -> int:
    rows = exchange.router.ask("supervisor", "status")["stages"]
    return next(row["pid"] for row in rows if (row["stage"], row["instance"]) == ("speaker", instance))


def holds_all(exchange: Exchange, name: str) -> bool:
    """Tell whether a neighbor has every route that we told it."""
    return exchange.expected_told(name).keys() <= exchange.daemons[name].routes().keys()


def wait_until_back(exchange: Exchange, n_before: dict[str, int]) -> None:
    """Wait until the sessions of the killed speaker are up again, looking all the while whether routes are kept."""

    def is_back() -> bool:
        for name in n_before:
            assert holds_all(exchange, name), (
                f"{name} has lost routes: {exchange.daemons[name].program.output()[-1500:]}"
            )
        try:
            states = {name: exchange.router.neighbor(name) for name in n_before}
        except (OSError, TimeoutError):
            return False
        return all(
            each["state"] == "Established" and all(table["end_of_rib_received"] for table in each["tables"].values())
            for each in states.values()
        )

    wait_until(is_back, lambda: f"sessions again: {exchange.router.states()}")


@pytest.mark.parametrize("way", ["kill", "restart"])
def test_the_speaker_is_lost(exchange, way):
    """Killed, or restarted in order: BIRD and FRR keep our routes, our kernel keeps theirs, nobody else hears of it."""
    outside = Outside(exchange)
    former = speaker_pid(exchange)
    n_before = {name: exchange.router.neighbor(name)["n_established"] for name in ROUTES}
    if way == "kill":
        os.kill(former, signal.SIGKILL)
    else:
        exchange.router.command("restart", "speaker", "--instance", "0", "--wait", "0")
    wait_until(lambda: speaker_pid(exchange) not in (0, former), "another speaker")
    wait_until_back(exchange, n_before)
    for name in exchange.daemons:
        exchange.wait_for_routes(name)
    assert exchange.router.kernel_routes().keys() == ALL
    outside.assert_nothing_seen()


def test_the_speaker_is_killed_again_before_it_is_back(exchange):
    """However often, and wherever it is on its way back: the kernel keeps all routes, and nobody else hears of it."""
    outside = Outside(exchange)
    for n_back in (0, 1, 0, 2):
        former = speaker_pid(exchange)
        os.kill(former, signal.SIGKILL)
        wait_until(lambda former=former: speaker_pid(exchange) not in (0, former), "another speaker")
        if n_back:
            wait_until(lambda n_back=n_back: n_established(exchange) >= n_back, f"{n_back} sessions")
    exchange.wait_for_sessions(*ROUTES)
    for name in exchange.daemons:
        exchange.wait_for_routes(name)
    assert exchange.router.kernel_routes().keys() == ALL
    outside.assert_nothing_seen()


def n_established(exchange: Exchange) -> int:
    """Return how many of the speaker's sessions are up, 0 if it does not answer."""
    try:
        rows = exchange.router.ask("speaker", "neighbors")["neighbors"]
    except (OSError, TimeoutError, ControlError):
        return 0
    return sum(row["state"] == "Established" for row in rows)


def test_all_of_headrace_is_killed(exchange):
    """Only the supervisor is killed, and no stage goes on: what is started next finds routes kept on both sides.

    FRR, started not long ago, says that it restarts itself, so its routes are not waited for (RFC 4724 §4.1): it is
    BIRD's that are looked at.
    """
    outside = Outside(exchange)
    router = exchange.router
    pids = [row["pid"] for row in router.ask("supervisor", "status")["stages"]]
    router.stop(signal.SIGKILL)
    wait_until(lambda: not any(is_running(pid) for pid in pids), "the end of all stages")
    assert all(holds_all(exchange, name) for name in ROUTES)
    router.start(is_anew=False)
    wait_until_back(exchange, {"frr": 0})
    exchange.wait_for_sessions(*exchange.daemons)
    for name in exchange.daemons:
        exchange.wait_for_routes(name)
    assert router.kernel_routes().keys() == ALL
    outside.assert_forwarding_went_on(ROUTES["bird"])


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def test_what_changed_while_the_speaker_was_away(exchange):
    """A route withdrawn while the speaker is dead goes everywhere once its neighbor has told its table again."""
    bird = exchange.daemons["bird"]
    bird.announce(Announcement(prefix="198.18.100.0/24"))
    for name in ("frr", "listener"):
        exchange.wait_for_routes(name)
    os.kill(speaker_pid(exchange), signal.SIGKILL)
    bird.withdraw("198.18.100.0/24")
    for name in ("frr", "listener"):
        exchange.wait_for_routes(name)
    wait_until(lambda: exchange.router.kernel_routes().keys() == ALL, "the kernel's routes")


@pytest.mark.parametrize("name", ROUTES)
def test_a_neighbor_is_killed_and_comes_back(exchange, name):
    """While it is away its routes stay, in the kernel too; when it has told the same again nothing was to do."""
    outside = Outside(exchange)
    n_before = exchange.router.neighbor(name)["n_established"]
    daemon = exchange.daemons[name]
    daemon.stop(signal.SIGKILL)
    wait_until(lambda: not exchange.router.is_established(name), "the loss")
    assert ALL <= exchange.router.chosen().keys() and exchange.router.kernel_routes().keys() == ALL
    daemon.start()
    daemon.get_ready()
    exchange.wait_for_sessions(name)
    wait_until(
        lambda: all(each["end_of_rib_received"] for each in exchange.router.neighbor(name)["tables"].values()),
        "its End-of-RIB",
    )
    assert exchange.router.neighbor(name)["n_established"] == n_before + 1
    exchange.wait_for_routes(name)
    exchange.wait_for_received(name)
    outside.assert_nothing_seen()


def test_a_neighbor_that_ends_in_order_takes_its_routes(exchange):
    """A Cease is no restart: the routes go at once."""
    bird = exchange.daemons["bird"]
    bird.shut_down("gone for good")
    wait_until(lambda: not exchange.router.chosen().keys() & set(ROUTES["bird"]), "the routes to go")
    bird.bring_up()
    exchange.wait_for_sessions("bird")
    exchange.wait_for_received("bird")
