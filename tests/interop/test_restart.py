"""Every stage is lost in turn while prefixes flap, and nobody outside notices.

All is seen from outside: the logs of BIRD and FRR, `ip monitor`, and packets that travel by way of a route.
"""

import json
import os
import signal
import sys
import threading
from datetime import datetime

import pytest

from tests.interop.daemons import Bird, ExaBgp, Frr
from tests.interop.exchange import Exchange, Role
from tests.interop.network import batch
from tests.interop.route import Announcement
from tests.interop.router import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.namespaces

HOLD_TIME_S = 6
ROLE = Role("plain", keys={"hold_time_s": HOLD_TIME_S})
N_FLAPPING = 20
FAR_AWAY = "203.0.113.1"  # behind the source: packets to it need a BGP route
N_OF_FAMILY = 150
STABLE = [prefix for n in range(1, N_OF_FAMILY) for prefix in (f"198.18.{n}.0/24", f"2001:db8:{n:x}::/48")]
FLAPPING = [f"198.19.{n}.0/24" for n in range(N_FLAPPING)]
LISTENERS = ("bird", "frr")
BIRDS = ("source", "bird")
STAGES = ("policy", "rib", "exporter", "fib", "status")
LOSSES = (
    *((name,) for name in STAGES),
    ("policy", "rib"),
    ("rib", "exporter"),
    ("rib", "fib"),
    STAGES,
)


class Flapping:
    """Announces, changes and withdraws prefixes all the time, until it is stopped."""

    def __init__(self, daemon: ExaBgp):
        self.daemon = daemon
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._flap, daemon=True)
        self._thread.start()

    def _flap(self) -> None:
        turn = 0
        while not self._stopped.wait(0.01):
            turn += 1
            prefix = FLAPPING[turn % N_FLAPPING]
            if turn % 3 == 0 and prefix in self.daemon.announced:
                self.daemon.withdraw(prefix)
            else:
                self.daemon.announce(Announcement(prefix=prefix, communities=(f"64600:{turn % 7}",)))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


class Outside:
    """What is seen from outside from now on."""

    def __init__(self, exchange: Exchange):
        self.exchange = exchange
        network = exchange.network
        self.kernel_log = network.directory / f"monitor-{len(network.programs)}"
        self.monitor = network.run(network.router, ["ip", "monitor", "route"], self.kernel_log)
        self.ping_log = network.directory / f"ping-{len(network.programs)}"
        command = [sys.executable, "-m", "tests.interop.ping", FAR_AWAY]
        self.ping = network.run(network.router, command, self.ping_log, {"PYTHONPATH": str(ROOT)})
        self.places = {name: len(exchange.daemons[name].program.output()) for name in LISTENERS}
        self.sessions = self._sessions()
        wait_until(lambda: any(prefix in self.kernel_log.read_text() for prefix in FLAPPING), "flapping in the kernel")

    def _sessions(self) -> dict[str, int]:
        return {name: self.exchange.router.neighbor(name)["n_established"] for name in self.exchange.daemons}

    def assert_nothing_seen(self) -> None:
        """No session ended; nobody was told of a route that stands; the kernel's stayed; no packet was lost."""
        assert self._sessions() == self.sessions
        for name in BIRDS:
            # Whatever else was sent: by KEEPALIVEs alone the session would have stood.
            program = self.exchange.daemons[name].program
            times = wait_until(lambda program=program: two_keepalives(program.output()), f"KEEPALIVEs at {name}")
            gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
            assert max(gaps) < HOLD_TIME_S, name
        for name, place in self.places.items():
            heard = self.exchange.daemons[name].program.output()[place:]
            assert lines_about(STABLE, heard) == [], name
            assert lines_about(FLAPPING, heard), f"{name} does not say what it is told"
        assert lines_about(STABLE, self.kernel_log.read_text()) == []
        self.monitor.stop()
        self.ping.process.terminate()
        wait_until(lambda: not self.ping.is_running, "the end of ping")
        said = json.loads(self.ping_log.read_text())
        assert said["sent"] > 50 and said["lost"] == []


def keepalives(text: str) -> list[float]:
    """Return when each KEEPALIVE came, of BIRD's log."""
    lines = [line for line in text.splitlines() if "Got KEEPALIVE" in line]
    return [datetime.fromisoformat(" ".join(line.split()[:2])).timestamp() for line in lines]


def two_keepalives(text: str) -> list[float]:
    """Return the same, or nothing while there is no gap between them."""
    times = keepalives(text)
    return times if len(times) > 1 else []


def lines_about(prefixes: list[str], text: str) -> list[str]:
    """Return the lines that name one of the prefixes."""
    named = set(prefixes)
    return [line for line in text.splitlines() if not named.isdisjoint(line.replace(",", " ").split())]


def processes(exchange: Exchange) -> dict[str, int]:
    return {row["stage"]: row["pid"] for row in exchange.router.ask("supervisor", "status")["stages"]}


def is_in_step(exchange: Exchange, name: str, former: int) -> bool:
    """Tell whether the successor of a process says it is in step."""
    try:
        status = exchange.router.ask(name, "status")
    except TimeoutError:
        return False
    return status["pid"] != former and status["state"] == "in step"


def lose(exchange: Exchange, names: tuple[str, ...], how: int = signal.SIGKILL) -> None:
    """End the processes of stages, and wait until all stages are in step again."""
    before = processes(exchange)
    for name in names:
        os.kill(before[name], how)
    for name, pid in before.items():
        former = pid if name in names else 0
        wait_until(lambda name=name, former=former: is_in_step(exchange, name, former), f"{name} in step")


@pytest.fixture(scope="module")
def exchange():
    made = Exchange(
        fib={"enabled": True},
        status={"enabled": True, "listen": "127.0.0.1:8179"},
        supervisor={"restart_reset_s": 1, "hang_time_s": 2},
    )
    try:
        stable = [Announcement(prefix=prefix) for prefix in (*STABLE, "203.0.113.0/24")]
        source = made.add("source", Bird, ROLE, lambda n: stable)
        made.add("flapper", ExaBgp, ROLE, lambda n: [])
        made.add("bird", Bird, ROLE, lambda n: [])
        made.add("frr", Frr, ROLE, lambda n: [])
        batch(source.namespace, f"address add {FAR_AWAY}/32 dev lo")
        made.start()
        for name in LISTENERS:
            made.wait_for_routes(name)
        wait_until(lambda: "203.0.113.0/24" in made.router.kernel_routes(), "the route of the packets")
        made.daemons["bird"].ask("birdc", "-s", made.daemons["bird"].path("ctl"), "debug headrace all")
        made.daemons["frr"].ask(
            "vtysh", "--vty_socket", str(made.daemons["frr"].directory), "-d", "bgpd", "-c", "debug bgp updates in"
        )
        yield made
    finally:
        made.close()


@pytest.fixture
def flapping(exchange):
    flaps = Flapping(exchange.daemons["flapper"])
    yield flaps
    flaps.stop()


@pytest.mark.parametrize("names", LOSSES, ids="+".join)
def test_stages_are_killed(exchange, flapping, names):
    """Stages are killed outright, twice: sessions, routes told, kernel routes and packets are as if nothing was."""
    outside = Outside(exchange)
    lose(exchange, names)
    lose(exchange, names)
    flapping.stop()
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    outside.assert_nothing_seen()


@pytest.mark.parametrize("name", STAGES)
def test_stage_is_restarted_in_order(exchange, flapping, name):
    """`headrace restart` ends a stage in order and returns when it is in step."""
    outside = Outside(exchange)
    assert "in step" in exchange.router.command("restart", name, "--wait", "15")
    flapping.stop()
    for listener in LISTENERS:
        exchange.wait_for_routes(listener)
    outside.assert_nothing_seen()


@pytest.mark.parametrize("name", ["policy", "rib", "exporter", "fib"])
def test_a_stage_that_hangs_is_started_again(exchange, flapping, name):
    """A stage that is stopped (SIGSTOP) is noticed and replaced, with the reason; nothing is seen outside."""
    outside = Outside(exchange)
    lose(exchange, (name,), signal.SIGSTOP)
    flapping.stop()
    for listener in LISTENERS:
        exchange.wait_for_routes(listener)
    rows = {row["stage"]: row for row in exchange.router.ask("supervisor", "status")["stages"]}
    assert "no sign of life" in rows[name]["reasons"][-1]
    outside.assert_nothing_seen()


@pytest.mark.parametrize("names", [("rib",), ("policy", "rib"), ("exporter", "fib")], ids="+".join)
def test_what_changed_meanwhile_is_told_exactly(exchange, flapping, names):
    """Routes that come and go while stages are away are told and withdrawn once they are back, and only those."""
    outside = Outside(exchange)
    source, flapper = exchange.daemons["source"], exchange.daemons["flapper"]
    flapping.stop()
    flapper.announce(Announcement(prefix="198.51.100.0/24"))
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    before = processes(exchange)
    for name in names:
        os.kill(before[name], signal.SIGKILL)
    flapper.withdraw("198.51.100.0/24")
    flapper.announce(Announcement(prefix="192.0.2.0/24"))
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    flapper.withdraw("192.0.2.0/24")
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    expected = {prefix for daemon in (source, flapper) for prefix in daemon.announced}
    wait_until(lambda: exchange.router.kernel_routes().keys() == expected, "the kernel's routes")
    outside.assert_nothing_seen()


def test_a_tap_is_killed(exchange, flapping):
    """A program that taps a table, and is killed, is missed by nobody."""
    outside = Outside(exchange)
    command = [sys.executable, "-m", "common.cli.main", "tap", "loc-rib", "--run-dir", str(exchange.router.run_dir)]
    tap = exchange.network.run(
        exchange.network.router, command, exchange.network.directory / "tap", {"PYTHONPATH": str(ROOT)}
    )
    wait_until(lambda: STABLE[0] in tap.output(), "a snapshot at the tap")
    tap.stop(signal.SIGKILL)
    wait_until(lambda: not any(each["tap"] for each in readers(exchange, "rib")), "the rib to forget the tap")
    flapping.stop()
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    outside.assert_nothing_seen()


def readers(exchange: Exchange, stage: str) -> list[dict]:
    return exchange.router.ask(stage, "status")["bus"]["readers"]


def test_stages_tell_of_their_restarts(exchange):
    """`headrace show stages` has state, restarts with reasons, memory, and position and lag of each reader."""
    shown = exchange.router.command("show", "stages")
    assert "in step" in shown and "signal SIGKILL" in shown and "compiled" in shown
    assert any(line.startswith("rib.0") and "exporter.0" in line for line in shown.splitlines())


@pytest.mark.parametrize("names", [*((name,) for name in STAGES), ("rib", "fib"), STAGES], ids="+".join)
def test_stages_are_killed_while_a_table_loads(exchange, names):
    """Killed in the middle of a load, stages come back and everybody holds exactly what is announced."""
    source = exchange.daemons["source"]
    n_established = exchange.router.neighbor("bird")["n_established"]
    source.ask("birdc", "-s", source.path("ctl"), "restart headrace")
    wait_until(lambda: exchange.router.neighbor("source")["n_received"] > 0, "the first routes")
    lose(exchange, names)
    exchange.wait_for_received("source")
    for name in LISTENERS:
        exchange.wait_for_routes(name)
    expected = {prefix for name in ("source", "flapper") for prefix in exchange.daemons[name].announced}
    wait_until(lambda: exchange.router.kernel_routes().keys() == expected, "the kernel's routes")
    assert exchange.router.neighbor("bird")["n_established"] == n_established
