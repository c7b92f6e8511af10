"""The shipped scenarios at small size against Headrace in this process, and what is said of wrong ones."""

import itertools
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("name", SMALL)
def test_headrace_passes(name):
    """Each scenario ends with listeners that hold exactly what they must, and none told anything needless."""
    report = perform(name)
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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no target"),
        ('[target]\naddress = "10.0.0.1"\n', "has no neighbor"),
        ('[target]\nadress = "10.0.0.1"\n', "unknown key 'adress' (did you mean 'address'?)"),
        ('[target]\naddress = "here"\n', "address 'here' is no IP address"),
        (NEIGHBOR + 'sends = "full"\n', "sends 'full': there is no such table"),
        (NEIGHBOR + 'families = ["ipv5"]\n', "unknown family 'ipv5'"),
        (NEIGHBOR.replace("64601", '"64601"'), "asn = '64601': expected a whole number"),
        (NEIGHBOR.replace("asn = 64601", ""), "asn is missing"),
        (NEIGHBOR + '[[step]]\ndo = "converged"\n', "do = 'converged' is unknown (did you mean 'converge'?)"),
        (NEIGHBOR + '[[step]]\ndo = "churn"\nsecond = 3\n', "unknown key 'second' (did you mean 'seconds'?)"),
        (NEIGHBOR + '[[step]]\ndo = "send"\nneighbors = ["b"]\n', "no neighbor is called 'b'"),
        (NEIGHBOR + '[table.x]\nsource = "mrt"\npath = "no.gz"\n', "path 'no.gz': there is no such file"),
        (NEIGHBOR + '[table.x]\nsource = "mart"\n', "source 'mart' is unknown (did you mean 'mrt'?)"),
        ("[target", "test: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(text, complaint):
    """A wrong scenario is refused with the place and, where there is one, the nearest known name."""
    with pytest.raises(ScenarioError, match=re.escape(complaint)):
        scenarios.parse("test", text, Path("."))


def test_an_unknown_scenario_is_answered_with_those_there_are():
    """A name that is not shipped is answered with the nearest, and all."""
    with pytest.raises(ScenarioError, match="did you mean 'full-table'.*there are churn, flap"):
        scenarios.load("full-tabel")
