"""Unit tests of the status stage's HTTP side and its gathering, with stages made of dictionaries."""

import pytest

from common.bus.question import ControlError
from stages.status.gather import IDLE_AFTER_S, Gatherer
from stages.status.http import split_address
from stages.status.picture import Pictures
from stages.status.web import LISTS, make_application


class Stages:
    """Answers questions as stages would, and counts them."""

    def __init__(self, run_dir):
        self.run_dir = run_dir
        self.n_asked = 0
        self.dead: set[str] = set()
        for name in ("speaker.0", "rib.0", "supervisor.0"):
            (run_dir / f"{name}.control").touch()

    def ask(self, run_dir, stage, instance, question, timeout_s, **arguments):
        self.n_asked += 1
        if stage in self.dead:
            raise TimeoutError(f"{stage} did not answer")
        if stage == "supervisor":
            return {"ok": True, "stages": [{"stage": "rib", "instance": "0", "state": "running", "restarts": 1}]}
        if question == "neighbors":
            return {"ok": True, "neighbors": [{"name": "a", "state": "Established"}]}
        if question == "metrics":
            return {"ok": True, "text": f"headrace_{stage}_z 1.0\n"}
        if question == "route" and arguments["prefix"] != "192.0.2.0/24":
            raise ControlError("that is no prefix")
        if question == "route":
            return {"ok": True, "prefix": arguments["prefix"], "candidates": []}
        return {"ok": True, "stage": stage, "tables": {"ipv4-unicast": {"head": 1, "n_chosen": 5}}}


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def stages(tmp_path):
    return Stages(tmp_path)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def gatherer(stages, clock):
    return Gatherer(stages.run_dir, Pictures({"asn": 65000, "router_id": "10.77.0.1"}), stages.ask, clock)


@pytest.fixture
def client(gatherer):
    return make_application(gatherer).test_client()


def test_requests_ask_no_stage(client, gatherer, stages):
    """However often lists are fetched, the stages are not asked for it."""
    gatherer.gather()
    before = stages.n_asked
    for name in (*LISTS, "picture", "history"):
        assert client.get(f"/api/v1/{name}").status_code == 200
    assert stages.n_asked == before


def test_lists_have_what_the_stages_said(client, gatherer):
    """A list of the API is that of the picture."""
    gatherer.gather()
    assert client.get("/api/v1/neighbors").json["neighbors"] == [{"name": "a", "state": "Established", "speaker": "0"}]
    assert [row["stage"] for row in client.get("/api/v1/stages").json["stages"]] == ["rib", "speaker"]
    assert client.get("/api/v1/tables").json["tables"][1]["prefixes"] == 5


def test_before_the_first_picture_lists_are_empty(client):
    """A request that comes too early gets an answer."""
    assert client.get("/api/v1/neighbors").json == {"at": None, "neighbors": []}
    assert client.get("/").status_code == 200


def test_a_dead_stage_is_silent_and_the_rest_is_shown(client, gatherer, stages):
    """A stage without an answer does not keep others from the picture, nor from the metrics."""
    stages.dead = {"rib"}
    gatherer.gather()
    assert [row["state"] for row in client.get("/api/v1/stages").json["stages"]] == ["silent", "running"]
    text = client.get("/metrics").text
    assert 'headrace_speaker_z{instance="0"} 1.0' in text
    assert 'headrace_status_answering_flag{instance="0",stage="rib"} 0.0' in text


def test_scrapes_in_quick_succession_ask_once(client, stages, clock):
    """Two scrapes within a second are one question a stage."""
    client.get("/metrics")
    before = stages.n_asked
    client.get("/metrics")
    assert stages.n_asked == before
    clock.now += 2
    client.get("/metrics")
    assert stages.n_asked == before + 2


def test_a_route_is_looked_up_in_the_rib(client):
    """One prefix is asked for when it is wanted; what the rib refuses is told."""
    assert client.get("/api/v1/route?prefix=192.0.2.0/24").json["candidates"] == []
    refused = client.get("/api/v1/route?prefix=nonsense")
    assert (refused.status_code, refused.json) == (404, {"error": "that is no prefix"})


def test_the_page_needs_nothing_from_outside(client):
    """The page names no other host, and its policy forbids what is not its own."""
    answer = client.get("/")
    body = answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in body and "https://" not in body and "NONCE" not in body
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


def test_an_unknown_list_is_not_found(client):
    """A list that is none is an error in JSON."""
    answer = client.get("/api/v1/passwords")
    assert answer.status_code == 404 and "neighbors" in answer.json["error"]


def test_looking_after_a_while_wakes_the_gatherer(gatherer, clock):
    """The first look after idle time asks for a new picture at once."""
    clock.now += IDLE_AFTER_S + 1
    gatherer.look()
    assert gatherer._wake.is_set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:8179", ("127.0.0.1", 8179)), ("[::1]:80", ("::1", 80)), ("localhost:1", ("localhost", 1))],
)
def test_listen_addresses(text, expected):
    """Host and port, with brackets around an IPv6 address."""
    assert split_address(text) == expected
