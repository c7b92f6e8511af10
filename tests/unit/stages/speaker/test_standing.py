"""What an operator is told of a neighbor without a session: why, since when, and when it is tried again."""

import pytest

from common.bgp.constants import CeaseSubcode
from common.bgp.messages import KEEPALIVE, Notification
from tests.unit.stages.speaker.conftest import Router, attribute_set, update

DIALLED = """
[[neighbor]]
name = "c"
address = "127.0.0.30"
port = 1
asn = 64603
"""


@pytest.fixture
def told():
    """Return a router, with a neighbor that is called where nobody listens, and what it tells of a neighbor."""
    made = Router(DIALLED)

    def of(name: str = "a") -> tuple:
        made.run_until_quiet()
        answer = made.ask("neighbor", name=name)
        return answer["state"], answer["reason"], answer["retry_s"], answer["last_error"]

    yield made, of
    made.close()


def test_a_passive_neighbor_waits(told):
    """It is up to the neighbor, so no time is told."""
    _, of = told
    assert of() == ("Active", "waits to be called (passive)", None, "")


def test_a_call_that_fails(told):
    """The reason of the call's failure, and the seconds until the next."""
    router, of = told
    state, reason, retry_s, error = of("c")
    assert router.ask("neighbor", name="c")["is_held"] is False
    assert (state, reason, error) == ("Active", "waits to be called, or to call again", "Connection refused")
    assert 0 < retry_s <= 5


def test_each_step_of_a_session(told):
    """What is awaited, until the session is there, of which nothing has to be explained."""
    router, of = told
    peer = router.peer("a")
    peer.take(1)
    assert of()[:2] == ("OpenSent", "is connected, its OPEN is awaited")
    peer.send(peer.opening())
    assert of()[:2] == ("OpenConfirm", "has sent its OPEN, its KEEPALIVE is awaited")
    peer.send(KEEPALIVE)
    assert of() == ("Established", None, None, "")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ({}, "stopped by an operator"),
        ({"text": "lunch"}, "stopped by an operator: lunch"),
        ({"text": "x", "by": "the supervisor: quarantined"}, "stopped by the supervisor: quarantined"),
    ],
)
def test_a_neighbor_that_is_stopped(told, question, reason):
    """Who did it and why, for as long as it is so, and never longer: until it is started, or is another neighbor."""
    router, of = told
    router.peer("a").open()
    router.ask("neighbor-stop", name="a", **question)
    assert router.ask("neighbor", name="a")["is_held"]
    assert of()[:3] == ("Idle", reason, None) and of()[3].startswith("sent Cease: Administrative Shutdown")
    router.ask("neighbor-start", name="a")
    assert of()[:3] == ("Active", "waits to be called (passive)", None)


def test_what_the_neighbor_says_at_the_end(told):
    """Its NOTIFICATION by name, and how long ago that was."""
    router, of = told
    peer = router.peer("a").open()
    peer.send(Notification(6, CeaseSubcode.ADMINISTRATIVE_SHUTDOWN, b"\5lunch").encode())
    assert of()[3] == 'received Cease: Administrative Shutdown "lunch"'
    router.clock.advance(7)
    assert router.ask("neighbor", name="a")["since_s"] == 7


def test_beyond_a_limit(told):
    """The limit by its key, what was counted, and the seconds until the next try; a stop by hand goes before it."""
    router, of = told
    peer = router.peer("a").open()
    peer.send(update({f"11.{i // 250}.{i % 250}.0/24": attribute_set([64601]) for i in range(1001)}))
    router.run_until(lambda: router.ask("neighbor", name="a")["state"] == "Idle")
    assert router.ask("neighbor", name="a")["is_held"]
    assert of()[:3] == ("Idle", "went beyond maximum_prefixes: 1001, limit 1000", 60)
    router.ask("neighbor-stop", name="a")
    assert of()[:3] == ("Idle", "stopped by an operator", None)
