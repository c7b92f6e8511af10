"""Several instances of a stage in the configuration, and who does which part of the work."""

import pytest

from common.config import ConfigErrors, loads
from common.config.changes import changes
from common.config.sharing import WHOLE, Share, decode_share, longest_route, share_of, worker_of

ROUTER = '[router]\nasn = 65000\nrouter_id = "10.77.0.1"\n'
NEIGHBOR = '[[neighbor]]\nname = "{}"\naddress = "10.77.0.{}"\nasn = 64601\n{}\n'


def error_of(text: str) -> tuple[int, str]:
    """Return line and text of the one error of a configuration."""
    with pytest.raises(ConfigErrors) as caught:
        loads(ROUTER + text)
    (error,) = caught.value.errors
    return error.line, str(error)


@pytest.mark.parametrize("stage", ["policy", "rib", "exporter", "speaker"])
def test_a_number_or_names(stage):
    """One where nothing is said; a number makes "0", "1", ...; names are taken as they stand."""
    assert loads(ROUTER).instances(stage) == ("0",)
    assert loads(f"{ROUTER}[{stage}]\ninstances = 3").instances(stage) == ("0", "1", "2")
    assert loads(f'{ROUTER}[{stage}]\ninstances = ["west", "east"]').instances(stage) == ("west", "east")


def test_speakers_that_only_neighbors_name():
    """Without a list the speakers are "0", which originates, and those that neighbors name."""
    config = loads(ROUTER + NEIGHBOR.format("a", 10, 'speaker = "west"') + NEIGHBOR.format("b", 11, ""))
    assert config.instances("speaker") == ("0", "west") and config.instances("fib") == config.instances("status")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[rib]\ninstances = ["a", "b", "a"]', ["rib.instances[2]", "twice"]),
        ("[rib]\ninstances = 0", ["rib.instances", "1 to 64"]),
        ("[policy]\ninstances = []", ["policy.instances", "at least 1"]),
        ("[exporter]\ninstances = true", ["exporter.instances", "a number or a list of names"]),
        ('[exporter]\ninstances = ["a/b"]', ["exporter.instances[0]", "letters"]),
        (
            '[speaker]\ninstances = ["west", "east"]\n' + NEIGHBOR.format("a", 10, 'speaker = "wets"'),
            ["neighbor.a.speaker", "no speaker", "west, east", 'mean "west"'],
        ),
        ('[speaker]\ninstances = ["west"]\n' + NEIGHBOR.format("a", 10, ""), ["neighbor.a.speaker", "no speaker"]),
        (NEIGHBOR.format("a", 10, 'speaker = ["0", "1"]'), ["neighbor.a.speaker", "held by one speaker"]),
        (
            NEIGHBOR.format("a", 10, 'speaker = "0"') + NEIGHBOR.format("a", 11, 'speaker = "1"'),
            ["neighbor.a.name", "already"],
        ),
        (
            '[[endpoint]]\nstage = "rib"\ninstance = "4"\nbus = "tcp://127.0.0.1:1"\ncontrol = "tcp://127.0.0.1:2"',
            ["endpoint.#1.instance", 'no rib "4"', "rib.instances"],
        ),
    ],
)
def test_errors_name_place_and_remedy(text, words):
    """What is assigned to nobody, to two, or named twice is refused, with its line."""
    line, message = error_of(text)
    assert line > 3 and all(word in message for word in words), message


def test_what_a_change_costs():
    """Another number of ribs is a restart of each rib; of the others, nothing."""
    more = "".join(f"[{stage}]\ninstances = 2\n" for stage in ("policy", "rib", "exporter"))
    texts = [str(change) for change in changes(loads(ROUTER), loads(ROUTER + more))]
    assert sorted(text.partition(": ")[0] for text in texts) == [
        "exporter.instances",
        "policy.instances",
        "rib.instances",
    ]
    assert all(("each rib starts anew" in text) == text.startswith("rib") for text in texts)


def test_shares_as_requests_name_them():
    """The only rib has everything, and its requests are as they were before there were several."""
    assert share_of(("0",), "0") == WHOLE == decode_share({}) and WHOLE.params == {}
    assert decode_share(share_of(("a", "b"), "b").params) == Share(1, 2)
    for params in ({"share": 2, "shares": 2}, {"share": -1, "shares": 2}, {"share": "0"}, {"share": 0, "shares": 65}):
        with pytest.raises(ValueError, match="no share"):
            decode_share(params)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_streams_are_shared_out_evenly(n_workers):
    """Of four ribs' streams no worker has more than one more than another."""
    workers = [f"w{n}" for n in range(n_workers)]
    served = [worker_of(workers, family, 0, share) for family in range(2) for share in range(4)]
    counts = [served.count(worker) for worker in workers]
    assert max(counts) - min(counts) <= 1


def test_a_table_is_with_one_policy_stage():
    """What one speaker tells all ribs of a family is evaluated in one place; the families are with different ones."""
    served = [worker_of(("a", "b"), family, speaker) for family in range(2) for speaker in range(2)]
    assert served == ["a", "b", "b", "a"]


def test_epochs_of_shares():
    """Each share of a table has an epoch of its own, from which that of the whole is found; the whole has its own."""
    assert WHOLE.epoch_of("e1") == WHOLE.whole_epoch_of("e1") == "e1"
    epochs = {Share(index, count).epoch_of("e1-0.2") for index, count in ((0, 2), (1, 2), (0, 3))}
    assert len(epochs) == 3
    assert {Share(1, 3).whole_epoch_of(Share(1, 3).epoch_of("e1-0.2"))} == {"e1-0.2"}


def test_the_longest_match_of_several_ribs():
    """For an address each rib tells its longest match; the longest of all counts, where there is any."""
    nothing = {"prefix": "192.0.2.1/32", "candidates": []}
    short, long = ({"prefix": f"192.0.0.0/{n}", "candidates": [n]} for n in (8, 16))
    assert longest_route([nothing, short, long]) == long
    assert longest_route([nothing, nothing]) == nothing
