"""The rolling upgrade of deploy/README.md, step by step, on a machine that is booted with the units."""

import re
import shutil
from pathlib import Path

import pytest

from common.config.schema import STAGES
from stages.fib.messages import PROTOCOL
from tests.deploy.machine import DIRECTORY, Machine, needs_machine
from tests.deploy.versions import make_wheel, with_a_column_more, with_another_meaning
from tests.processes.router import N_PREFIXES, Neighbors

README = Path(__file__).parents[2] / "deploy" / "README.md"
NEXT, OTHER = "1000.1", "1000.2"


def steps() -> list[list[str]]:
    """Return the commands of each step of the procedure."""
    section = README.read_text().split("## Rolling upgrade")[1].split("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)[1]
    found: list[list[str]] = []
    for line in block.splitlines():
        if re.match(r"# \d\.", line):
            found.append([])
        elif not line.startswith("#"):
            found[-1].append(line)
    return found


def test_the_procedure_names_every_stage_once():
    """All that is not a speaker comes before the speakers."""
    _, _, others, speakers = steps()
    names = [re.fullmatch(r"systemctl restart headrace-(\w+)@0", line)[1] for line in others + speakers]
    assert sorted(names) == sorted(STAGES) and names[-1] == "speaker" and len(speakers) == 1


class Upgrade:
    """A machine with neighbors whose routes are told and in the kernel."""

    def __init__(self):
        self.machine = machine = Machine()
        # The wheels are found where the procedure looks for them, from the directory its commands are called in.
        self.place = machine.root / "upgrade"
        shutil.rmtree(self.place, ignore_errors=True)
        self.old = machine.shell("readlink /usr/bin/headrace").strip()
        self.neighbors: Neighbors | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        machine = self.machine
        machine.shell("ip link add outside type veth peer name far && ip link set outside up && ip link set far up")
        machine.shell("ip address add 198.51.100.1/24 dev outside")
        machine.shell("ip address add 2001:db8:77::1/64 dev outside nodad")
        self.neighbors = Neighbors(179, network=machine.network)
        self.neighbors.wait_until_loaded()
        self.listener = self.neighbors.player.listeners[0]
        machine.wait_for(lambda: self.n_routes() == N_PREFIXES, "all routes in the kernel")

    def n_routes(self) -> int:
        shown = self.machine.shell(f"ip route show proto {PROTOCOL}; ip -6 route show proto {PROTOCOL}")
        return shown.count("via")

    def bring(self, version: str, change) -> None:
        """Have the wheels of a version, and no trace of another, where the procedure looks."""
        for path in (self.machine.root / "opt/headrace-new", self.place):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(Path(DIRECTORY) / "wheels", self.place / "wheels")
        (original,) = (self.place / "wheels").glob("headrace-*.whl")
        make_wheel(original, self.place / "wheels", version, change)
        original.unlink()

    def carry_out(self, line: str) -> str:
        return self.machine.shell(f"cd /upgrade && PIP_NO_COMPILE=1 {line}")

    def version_of(self, stage: str) -> str:
        """Return which version a stage's process is of, by what it runs."""
        words = Path(f"proc/{self.machine.pid(stage)}/cmdline")
        return "new" if "/opt/headrace-new/" in self.machine.shell(f"tr '\\0' ' ' </{words}") else "old"

    def close(self) -> None:
        self.machine.shell(f"ln -sfn {self.old} /usr/bin/headrace")
        if self.neighbors is not None:
            self.neighbors.close()
        self.machine.close()
        for path in (self.place, self.machine.root / "opt/headrace-new"):
            shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def upgrade():
    made = Upgrade()
    yield made
    made.close()


@needs_machine
def test_a_version_that_does_not_go_with_those_that_run_is_refused_and_taken_back(upgrade):
    """It is told before anything is touched; who does it all the same is told again, and loses nothing by it."""
    first, second, _, _ = steps()
    before = upgrade.listener.n_updates
    upgrade.bring(OTHER, with_another_meaning)
    for line in first[:-1]:
        upgrade.carry_out(line)
    checked = upgrade.machine.call("sh", "-c", first[-1])
    assert checked.returncode == 1
    assert "column 6 is 'reason u1 ROW ANY'" in checked.stdout and "'verdict u2 ROW ANY'" in checked.stdout
    assert re.search(r"exporter\.0 \(.*\): goes with this version", checked.stdout)
    for line in second:
        upgrade.carry_out(line)
    upgrade.machine.shell("systemctl restart headrace-policy@0")
    words = "RouteChanges: column 6 is 'reason u1 ROW ANY' to the reader, 'verdict u2 ROW ANY' to the owner"
    upgrade.machine.wait_for(
        lambda: words in upgrade.machine.call("headrace", "health", "rib").stdout, "the rib to say that it is refused"
    )
    assert not upgrade.machine.is_healthy("rib")
    upgrade.machine.wait_for(  # a word to the service manager goes with the beat of the loop
        lambda: words in upgrade.machine.show("rib", "StatusText"), "systemd to be told that the rib is refused"
    )
    logged = "journalctl -u headrace-policy@0 | grep reader-refused"
    upgrade.machine.wait_for(lambda: words in upgrade.machine.call("sh", "-c", logged).stdout, "the policy to log it")
    upgrade.machine.shell(f"ln -sfn {upgrade.old} /usr/bin/headrace")
    upgrade.machine.shell("systemctl restart headrace-policy@0")
    upgrade.machine.wait_for(lambda: all(map(upgrade.machine.is_healthy, STAGES)), "all stages to be in step again")
    assert upgrade.listener.n_updates == before > 0 and upgrade.n_routes() == N_PREFIXES


@needs_machine
def test_a_rolling_upgrade_is_not_noticed_outside(upgrade):
    """Each stage in turn becomes one with a column more; no session is lost, no UPDATE sent, no kernel route gone."""
    first, second, others, speakers = steps()
    before = upgrade.listener.n_updates
    upgrade.bring(NEXT, with_a_column_more)
    said = ""
    for line in first + second:
        said += upgrade.carry_out(line)
    assert all(upgrade.version_of(stage) == "old" for stage in STAGES)
    assert said.count("goes with this version") == len(STAGES), said
    done: set[str] = set()
    for line in others:
        upgrade.carry_out(line)
        done.add(re.search(r"headrace-(\w+)@", line)[1])
        assert {stage for stage in STAGES if upgrade.version_of(stage) == "new"} == done
        upgrade.machine.wait_for(lambda: all(map(upgrade.machine.is_healthy, STAGES)), f"all in step after {line}")
        assert upgrade.n_routes() == N_PREFIXES
    assert upgrade.listener.n_updates == before > 0
    upgrade.neighbors.close()
    assert upgrade.neighbors.failure is None
    for line in speakers:
        upgrade.carry_out(line)
    upgrade.neighbors = Neighbors(179, network=upgrade.machine.network)
    upgrade.neighbors.wait_until_loaded()
    assert {upgrade.version_of(stage) for stage in STAGES} == {"new"}
    assert f'"version": "{NEXT}"' in upgrade.machine.shell("headrace show stages --json")
