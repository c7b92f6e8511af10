"""Unit tests of stages/status/picture.py and exposition.py: what stages answer becomes one picture."""

from stages.status.exposition import join
from stages.status.picture import Answer, Pictures

SPEAKER = Answer(
    "speaker",
    "0",
    {
        "pid": 11,
        "uptime_s": 5.0,
        "compiled": True,
        "tables": {"ipv4-unicast": {"prefixes": 9, "routes": 12, "sets": 3}},
    },
    neighbors=[{"name": "a", "state": "Established", "n_received": 9}],
)
FIB = Answer(
    "fib",
    "0",
    {
        "pid": 13,
        "families": {
            "ipv4-unicast": {
                "installed": 7,
                "wanted": 8,
                "queued": 1,
                "refused": {"EEXIST": 1},
                "changes": {"installed": 7, "replaced": 0, "removed": 0, "refused": 3},
            }
        },
    },
    next_hops=[{"address": "192.0.2.10"}],
)


def rib(head: int) -> Answer:
    table = {"n_chosen": 8, "n_routes": 12, "n_sets": 3, "head": head}
    reader = {"reader": "fib.0", "channel": "loc-rib/ipv4-unicast", "lag": 4}
    return Answer("rib", "0", {"pid": 12, "tables": {"ipv4-unicast": table}, "bus": {"readers": [reader]}})


def compose(pictures: Pictures, at_s: float, *answers: Answer, supervised=()) -> dict:
    return pictures.compose(at_s, 1000 + at_s, list(answers), list(supervised), {11: 100, 12: 200})


def test_tables_show_the_way_of_the_routes():
    """Adj-RIB-In, Loc-RIB and kernel stand in this order, with what waits and what is refused."""
    picture = compose(Pictures({}), 1, FIB, SPEAKER, rib(5))
    assert [(row["table"], row["prefixes"]) for row in picture["tables"]] == [
        ("adj-rib-in", 9),
        ("loc-rib", 8),
        ("kernel", 7),
    ]
    assert picture["tables"][2]["refused"] == 1 and picture["tables"][2]["waiting"] == 1


def test_two_speakers_are_added_up():
    """Tables of two instances of a stage are one row."""
    other = Answer("speaker", "b", {"tables": {"ipv4-unicast": {"prefixes": 1, "routes": 1, "sets": 1}}})
    (row,) = compose(Pictures({}), 1, SPEAKER, other)["tables"]
    assert (row["prefixes"], row["routes"]) == (10, 13)


def test_rates_are_differences():
    """Changes a second are counted from one picture to the next; the first has none."""
    pictures = Pictures({})
    assert compose(pictures, 1, rib(100))["rates"] == []
    assert compose(pictures, 3, rib(500))["rates"] == [{"name": "loc-rib", "family": "ipv4-unicast", "per_s": 200}]


def test_a_restarted_stage_gives_no_negative_rate():
    """A count that went back is a rate of nothing."""
    pictures = Pictures({})
    compose(pictures, 1, rib(500))
    assert compose(pictures, 2, rib(3))["rates"][0]["per_s"] == 0


def test_a_silent_stage_is_shown_as_such():
    """A stage that does not answer is there with the reason, one only the supervisor knows with its state."""
    supervised = [
        {"stage": "rib", "instance": "0", "pid": 12, "state": "running", "restarts": 2},
        {"stage": "policy", "instance": "0", "state": "waiting", "restarts": 3, "reasons": ["signal SIGKILL"]},
    ]
    silent = Answer("rib", "0", trouble="did not answer")
    rows = compose(Pictures({}), 1, silent, supervised=supervised)["stages"]
    assert [(row["stage"], row["state"], row["restarts"]) for row in rows] == [
        ("rib", "silent", 2),
        ("policy", "waiting", 3),
    ]
    assert rows[1]["last_end"] == "signal SIGKILL"


def test_history_has_the_sums():
    """Each picture leaves one sample of routes, rates and memory."""
    pictures = Pictures({})
    compose(pictures, 1, SPEAKER, rib(1))
    (sample,) = pictures.history
    assert sample["routes"] == {"adj-rib-in/ipv4-unicast": 9, "loc-rib/ipv4-unicast": 8} and sample["memory"] == 300


def test_samples_of_all_stages_say_their_instance():
    """Families of two instances of a stage are joined under one heading; the label tells them apart."""
    name = "headrace_speaker_x_total"
    text = f'# HELP {name} X.\n# TYPE {name} counter\n{name}{{a="b"}} 3.0\n'
    joined = join([("speaker", "0", text), ("speaker", "1", text)], [("rib", "0")])
    assert joined.count("# TYPE headrace_speaker_x_total counter") == 1
    assert 'headrace_speaker_x_total{a="b",instance="1"} 3.0' in joined
    assert 'headrace_status_answering_flag{instance="0",stage="rib"} 0.0' in joined


def test_a_text_that_is_none_is_left_out():
    """Garbage of one stage does not keep the others from being scraped."""
    joined = join([("rib", "0", "headrace_rib_y 1.0\n"), ("policy", "0", "{{{ not metrics")])
    assert "headrace_rib_y" in joined
    assert 'headrace_status_answering_flag{instance="0",stage="policy"} 0.0' in joined
