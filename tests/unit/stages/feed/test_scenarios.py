"""The shipped scenarios at small size against Headrace in this process, and what is said of wrong ones."""

import itertools
import re
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from stages.feed import keys, steps
from stages.feed import scenario as scenarios
from stages.feed.command import Performance
from stages.feed.scenario import ScenarioError
from tests.unit.stages.feed.router import ASN, InProcessRouter

SMALL = {"full-table": 3000, "four-tables": 1000, "churn": 1000, "flap": 400, "new-neighbor": 2000, "slow-reader": 3000,
         "garbage": 200, "route-server": 300, "mesh": 1200,
         "thousand": 100}  # fmt: skip


def localized(name: str) -> str:
    """Return a shipped scenario on loopback addresses, with next hops a router accepts, and short."""
    text = re.sub(r"10\.77\.([01])\.", r"127.0.\1.", scenarios.text_of(name))
    text = re.sub(r"(?m)^address = \"(127\.0\.\d\.\d+)\"\nasn", r'next_hop = "10.77.0.9"\naddress = "\1"\nasn', text)
    text = re.sub(r"seconds = [\d.]+", "seconds = 0.6", text)
    text = re.sub(r"pause_s = [\d.]+", "pause_s = 0.1", text)
    return text.replace("count = 1000\n", "count = 20\n").replace("count = 100\n", "count = 6\n")


def perform(name: str) -> dict:
    text = localized(name)
    if name == "garbage":
        text = text.replace('neighbors = ["vandal"]', 'neighbors = ["vandal"]\nanswer_s = 0.25')
    with ExitStack() as stack:
        router, *_ = [stack.enter_context(each) for each in routers(scenarios.parse(name, text, Path("."), size=1))]
        chosen = scenarios.parse(name, text, Path("."), size=SMALL[name], port=router.port, time_limit_s=60)
        performance = Performance(chosen, is_events=True)
        try:
            performance.perform()
            return performance.report()
        finally:
            performance.player.close()


def routers(scenario: scenarios.Scenario) -> list[InProcessRouter]:
    """Return a router for each target, each with an internal session to every other."""
    made: list[InProcessRouter] = []
    for number, target in enumerate(scenario.targets, 1):
        own = [(plan.name, plan.address, plan.asn) for plan, _ in scenario.players if plan.target[0] == target.address]
        others = [(f"internal-{each.name}", each.address, ASN) for each in scenario.targets if each is not target]
        made.append(InProcessRouter(own + others, number, made[0].port if made else 0))
    for one, other in itertools.combinations(made, 2):
        one.join(other)
    return made


@pytest.fixture
def dialed(monkeypatch):
    """Whom sockets of this process call, by their own address."""
    found: list[tuple[str, str]] = []
    for name in ("connect", "connect_ex", "sendto"):
        call = getattr(socket.socket, name)

        def noted(self, *words, call=call):
            if self.family in (socket.AF_INET, socket.AF_INET6):
                found.append((self.getsockname()[0], words[-1][0]))
            return call(self, *words)

        monkeypatch.setattr(socket.socket, name, noted)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_headrace_passes(name, dialed):
    """Each scenario ends with listeners that hold exactly what they must, and none told anything needless.

    Nobody is called but the target of each neighbor.
    """
    report = perform(name)
    scenario = scenarios.parse(name, localized(name), Path("."), size=1)
    target_of = {plan.address: plan.target[0] for plan, _ in scenario.players}
    called = {each for each in dialed if each[0] in target_of}
    assert called == set(target_of.items())
    assert report["failure"] == "" and report["is_good"], report["steps"]
    assert all(each["spurious_withdrawals"] == 0 for each in report["neighbors"].values())
    if name == "churn":
        (churn,) = (step for step in report["steps"] if step["do"] == "churn")
        assert churn["sender"]["updates"] > 50 and report["probes"]["count"] > 10
    if name == "mesh":
        assert all(each["held"] > 300 for each in report["neighbors"].values())
    if name == "garbage":
        (garbage,) = (step for step in report["steps"] if step["do"] == "garbage")
        assert garbage["kinds"] > 25 and garbage["wrong"] == []


def test_at_the_time_limit_the_report_says_what_is_missing():
    """A listener that is not told all fails the test at its time limit; the verdict stands in the report."""
    text = localized("full-table").replace('do = "send"', 'do = "wait"\nseconds = 0.01')
    scenario = scenarios.parse("unsent", text, Path("."), size=50)
    with routers(scenario)[0] as router:
        chosen = scenarios.parse("unsent", text, Path("."), size=50, port=router.port, time_limit_s=0.7)
        performance = Performance(chosen, is_events=True)
        try:
            performance.perform()
            report = performance.report()
        finally:
            performance.player.close()
    assert not report["is_good"] and "time limit" in report["failure"]
    assert report["verdict"]["listener"]["missing"] == 50 and report["neighbors"]["listener"]["is_established"]


@pytest.mark.parametrize("name", scenarios.names())
def test_shipped_scenarios_are_right(name):
    """Every shipped scenario can be read, and says in a sentence what it is."""
    scenario = scenarios.load(name)
    assert scenario.summary.endswith(".") and scenario.steps and scenario.players


NEIGHBOR = '[target]\naddress = "10.0.0.1"\n[[neighbor]]\nname = "a"\naddress = "10.0.0.2"\nasn = 64601\n'
OTHER = '[[neighbor]]\nname = "b"\naddress = "10.0.0.3"\nasn = 64602\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no target"),
        ('[target]\naddress = "10.0.0.1"\n', "has no neighbor"),
        ('[target]\nadress = "10.0.0.1"\n', 'line 2: target.adress: unknown key (did you mean "address"?)'),
        ('[target]\naddress = "here"\n', 'line 2: target.address: must be an IPv4 or IPv6 address, not "here"'),
        ("target = 3\n", "line 1: target: must be written [[target]]"),
        ("sumary = 3\n", 'line 1: sumary: unknown key (did you mean "summary"?)'),
        ("time_limit_s = -1\n", "line 1: time_limit_s: must be 0.001 to 100000, not -1"),
        ("time_limit_s = nan\n", "line 1: time_limit_s: must be"),
        ("neighbor = 3\n", "line 1: neighbor: must be written [[neighbor]]"),
        ("neighbor = [3]\n", "neighbor.#1: must be a table"),
        ("table = 3\n", "line 1: table: must be written [table.NAME]"),
        ("[table]\nx = 3\n", "line 2: table.x: must be a table"),
        ("step = [3]\n", "step.#1: must be a table"),
        ('[table]\nx = { size = -5 }\n', "line 2: table.x.size: must be 0 to 100000000, not -5"),
        (NEIGHBOR + 'sends = "full"\n', "line 7: neighbor.a.sends: there is no table 'full'"),
        (NEIGHBOR + 'sends = ""\nhears = ["c"]\n', "line 8: neighbor.a.hears: no neighbor is called 'c'"),
        (NEIGHBOR + 'families = ["ipv5"]\n', 'neighbor.#1.families[0]: must be "ipv4-unicast" or "ipv6-unicast"'),
        (NEIGHBOR + "families = []\n", "families: needs at least 1 value"),
        (NEIGHBOR + "hold_time_s = 2\n", "line 7: neighbor.#1.hold_time_s: must be 3 to 65535, or 0, not 2"),
        (NEIGHBOR + 'next_hop = "fd77::1"\n', "must be an IPv4 address"),
        (NEIGHBOR + "count = 0\n", "count: must be 1 to"),
        (NEIGHBOR.replace("10.0.0.2", "255.255.255.250") + "count = 9\n", "9 addresses from 255.255.255.250 on"),
        (NEIGHBOR.replace("64601", "4294967290") + "count = 9\n", "9 AS numbers from 4294967290 on"),
        (NEIGHBOR + "count = 60000\n" + OTHER, "has 60001 neighbors; there may be 60000"),
        (NEIGHBOR.replace("64601", '"64601"'), "line 6: neighbor.#1.asn: must be a whole number, not a string"),
        (NEIGHBOR.replace("asn = 64601", ""), "line 3: neighbor.#1.asn: is required and missing"),
        (NEIGHBOR.replace("10.0.0.2", "fd77::2"), "fd77::2 and its target 10.0.0.1 are of different IP versions"),
        (NEIGHBOR + OTHER.replace('"b"', '"a"'), "line 7: neighbor.a: two neighbors are called 'a'"),
        (NEIGHBOR + OTHER.replace("10.0.0.3", "10.0.0.2"), "10.0.0.2 is already the address of a"),
        (NEIGHBOR + "count = 2\n" + OTHER, "10.0.0.3 is already the address of a-2"),
        (NEIGHBOR, "has no step"),
        (NEIGHBOR + "[[step]]\n", "line 7: step.#1.do: do is missing: one of connect, send"),
        (NEIGHBOR + '[[step]]\ndo = "converged"\n', "do = 'converged' is unknown"),
        (NEIGHBOR + '[[step]]\ndo = "churn"\nsecond = 3\n', 'step.#1.second: unknown key (did you mean "seconds"?)'),
        (NEIGHBOR + '[[step]]\ndo = "churn"\nwithdraw_share = 2\n', "line 9: step.#1.withdraw_share: must be 0 to 1"),
        (NEIGHBOR + '[[step]]\ndo = "churn"\nseconds = true\n', "seconds: must be a number, not a boolean"),
        (NEIGHBOR + '[[step]]\ndo = "flap"\nwhat = "prefix"\n', 'what: must be "sessions" or "prefixes"'),
        (NEIGHBOR + '[[step]]\ndo = "send"\nneighbors = ["b"]\n', "step.#1.neighbors: no neighbor is called 'b'"),
        (NEIGHBOR + '[[step]]\ndo = "send"\nneighbors = "a"\n', "neighbors: must be a list"),
        (NEIGHBOR + '[[step]]\ndo = "send"\nneighbors = [3]\n', "neighbors[0]: must be a string"),
        (NEIGHBOR + '[[step]]\ndo = "probe"\nsender = "b"\n', "step.#1.sender: no neighbor is called 'b'"),
        (NEIGHBOR + '[[step]]\ndo = "garbage"\nkinds = ["bad-maker"]\n', "did you mean 'bad-marker'?"),
        (NEIGHBOR + OTHER + '[[step]]\ndo = "garbage"\n', "step.#1.neighbors: must name one neighbor"),
        (NEIGHBOR + '[[step]]\ndo = "replay"\n', "step.#1.path: is required and missing"),
        (NEIGHBOR + '[[step]]\ndo = "replay"\npath = "."\n', "line 9: step.#1.path: there is no file '.'"),
        (NEIGHBOR + '[table.x]\nsource = "mrt"\npath = "no.gz"\n', "table.x.path: there is no file 'no.gz'"),
        (NEIGHBOR + '[table.x]\npath = "no.gz"\n', 'is for tables of files: say source = "mrt"'),
        (NEIGHBOR + '[table.x]\nsource = "mart"\n', "line 8: table.x.source: must be"),
        (NEIGHBOR + "[table.x]\nsize = 9\npool = 8\n", "line 9: table.x.pool: 8 is less than size"),
        ('[[target]]\naddress = "10.0.0.1"\n' * 2, "two targets are called ''"),
        ("[target", "test: line 1: not TOML"),
        ("x = " + "[" * 9999, "test: not TOML: brackets"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text, complaint):
    """A wrong scenario is refused with the place and, where there is one, the nearest known name."""
    with pytest.raises(ScenarioError, match=re.escape(complaint)):
        scenarios.parse("test", text, Path("."))


def test_all_errors_are_reported_at_once(tmp_path):
    """Each error of a file stands on a line of its own that begins with its path, in the order of the file."""
    path = tmp_path / "wrong.toml"
    path.write_text('sumary = "x"\n' + NEIGHBOR.replace("64601", "0") + 'sends = "y"\n[[step]]\ndo = "sent"\n')
    with pytest.raises(ScenarioError) as raised:
        scenarios.load(str(path))
    lines = str(raised.value).splitlines()
    assert [line.removeprefix(f"{path}: ").split(":")[0] for line in lines] == ["line 1", "line 7", "line 10"]


def test_a_target_of_the_command_is_one(tmp_path):
    """--target takes the place of the only target; with several it is refused, as it could mean any."""
    assert scenarios.load("full-table", target="10.9.9.9").players[0][0].target == ("10.9.9.9", 179)
    with pytest.raises(ScenarioError, match="has 2 targets"):
        scenarios.load("mesh", target="10.9.9.9")


def test_every_key_is_in_the_reference():
    """The reference names every step with every argument it takes, and every argument has a declaration."""
    text = "\n".join(keys.reference(steps.STEPS))
    for name, step in steps.STEPS.items():
        assert f'do = "{name}"' in text and set(step.__kwdefaults__ or {}) <= set(keys.STEP_KEYS)
    assert all(f"\n{key} = " in text for key in keys.STEP_KEYS)


def test_steps_that_have_nothing_to_do_fail():
    """A step that nobody can carry out fails and says which step is missing, instead of doing nothing."""
    text = localized("full-table").partition("[[step]]")[0]
    for step, complaint in (
        ('do = "churn"', "let a send step come before"),
        ('do = "flap"', "let a send step come before"),
        ('do = "probe-end"', "no probes are under way"),
        ('do = "probe"\nsender = "listener"', "listener: has no session"),
    ):
        late = text + "is_late = true\n" + f"[[step]]\n{step}\n"
        with routers(scenarios.parse("idle", late, Path("."), size=1))[0] as router:
            chosen = scenarios.parse("idle", late, Path("."), size=1, port=router.port, time_limit_s=20)
            performance = Performance(chosen, is_events=True)
            try:
                performance.perform()
            finally:
                performance.player.close()
        assert complaint in performance.failure, step


def test_an_unknown_scenario_is_answered_with_those_there_are():
    """A name that is not shipped is answered with the nearest, and all."""
    with pytest.raises(ScenarioError, match="did you mean 'full-table'.*there are churn, flap"):
        scenarios.load("full-tabel")
