"""The rib stage between policies and readers, over the memory transport."""

import numpy as np
import pytest

from common.bus.batch import SNAPSHOT, SNAPSHOT_BEGIN, SNAPSHOT_END, START, Batch, Position
from common.bus.channels import NEXTHOPS, adj_rib_in, loc_rib
from common.bus.schema import NextHopChanges, SessionChanges, SessionEvent
from common.bus.server import Source
from common.config.load import loads
from stages.rib.speakers import LOSS_S
from stages.rib.stage import FIB_AWAY_S, STAGE
from tests.unit.bus.conftest import World
from tests.unit.stages.policy.test_policy_stage import start
from tests.unit.stages.rib.test_loc_rib import LONG, SHORT, A, B, P, Q, answers, attributes, best_of, routes, source

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64610
[[neighbor]]
name = "b"
address = "10.77.0.11"
asn = 64611
speaker = "1"
"""
WITH_FIB = CONFIG + "[fib]\nenabled = true\n"
RESTART_S = loads(CONFIG).graceful_restart.restart_time_s
DEFERRAL_S = loads(CONFIG).graceful_restart.selection_deferral_s
ALL_AT_ONCE = SNAPSHOT_BEGIN | SNAPSHOT_END
UP, END_OF_RIB, DOWN = SessionEvent.UP, SessionEvent.END_OF_RIB, SessionEvent.DOWN
GRACEFUL, AWAITED = SessionEvent.GRACEFUL, SessionEvent.AWAITED
V4, V6 = "ipv4-unicast", "ipv6-unicast"


class Script(Source):
    """Sends batches as they are put in; a reader that comes later gets all of them again."""

    def __init__(self, channel: str):
        self.channel = channel
        self.epoch_name = "e"
        self.batches = []

    def put(self, rows, flags=0):
        self.add(routes(rows, flags))

    def say(self, name, *events, flags=0):
        columns = {"source": np.zeros(len(events), np.uint32), "event": np.array(events, np.uint8)}
        self.add(Batch(SessionChanges, columns, {"sources": [source(name)]}, flags=flags))

    def add(self, batch):
        batch.channel, batch.meta["family"] = self.channel, self.channel.split("/")[1]
        batch.position = Position(self.epoch_name, len(self.batches) + 1, -1)
        self.batches.append(batch)

    def read(self, position, max_octets):
        first = position.sequence if position.epoch == self.epoch_name else 0
        return self.batches[first : first + 1]


class Policy:
    """What policy lets through, by speaker and family."""

    def __init__(self, world: World):
        self.world = world
        self.scripts = {(s, f): Script(adj_rib_in(f)) for s in "01" for f in (V4, V6)}
        self.serve()

    def serve(self):
        server = self.world.bus("policy").serve()
        server.add("adj-rib-in/*", lambda ask: self.scripts[ask.params["speaker"], ask.channel.split("/")[1]])

    def put(self, speaker, rows, flags=0, family=V4):
        self.scripts[speaker, family].put(rows, flags)
        self.world.settle()

    def say(self, speaker, name, *events, flags=0):
        self.scripts[speaker, V4].say(name, *events, flags=flags)
        self.world.settle()

    def begin_anew(self, speaker):
        """A new process of a speaker: what it says begins with a snapshot."""
        script = self.scripts[speaker, V4]
        script.batches.clear()
        script.epoch_name += "+"

    def fill(self, *speakers):
        for speaker in speakers:
            for family in (V4, V6):
                self.put(speaker, [], SNAPSHOT_BEGIN | SNAPSHOT_END, family)


class Fib(Source):
    """Says of next hops what it is told to; each time all it knows."""

    def __init__(self, world: World, epoch: str = "f"):
        self.metrics: dict[str, int | None] = {}
        self.world = world
        self.name = epoch
        self.version = 1
        world.bus("fib").serve().add(NEXTHOPS, lambda request: self)

    def say(self, metrics: dict[str, int | None]) -> None:
        self.metrics |= metrics
        self.version += 1
        self.world.settle()

    def read(self, position, max_octets):
        after = Position(self.name, self.version, -1)
        flags = SNAPSHOT | SNAPSHOT_BEGIN | SNAPSHOT_END
        batch = Batch(NextHopChanges, answers(self.metrics), {}, NEXTHOPS, after, self.version, self.version, flags)
        return [] if position == after else [batch]


class Reader:
    """Follows loc-rib."""

    def __init__(self, world: World, name="fib", position=START, **params):
        self.batches = []
        self.follower = world.bus(name).follow(
            "rib", "0", loc_rib(V4), self.batches.append, params=params, position=position
        )

    def told(self) -> list[dict]:
        told = [best_of((batch.columns, batch.meta)) for batch in self.batches]
        self.batches.clear()
        return told


@pytest.fixture
def world():
    return World()


def test_nothing_is_served_before_all_speakers_have_sent_their_tables(world):
    """The gate: a reader hears nothing until the last speaker's snapshot has ended, then the whole table at once."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.fill("0")
    policy.put("0", [(P, A, SHORT)])
    policy.put("1", [(Q, B, LONG)], SNAPSHOT_BEGIN, V4)
    assert reader.batches == []
    policy.put("1", [], SNAPSHOT_END, V4)
    assert reader.batches == []
    policy.put("1", [], SNAPSHOT_BEGIN | SNAPSHOT_END, V6)
    assert [batch.flags & (SNAPSHOT_BEGIN | SNAPSHOT_END) for batch in reader.batches] == [5]
    assert [set(told) for told in reader.told()] == [{P, Q}]
    policy.put("0", [(P, A, None)])
    assert reader.told() == [{P: None}]


def test_a_table_that_is_filled_is_decided_once(world, monkeypatch):
    """While the gate is shut nothing is chosen or journaled; then each prefix once, whatever happened to it."""
    monkeypatch.setattr("stages.rib.loc_rib.PREFIXES_PER_SLICE", 1)
    policy, stage = Policy(world), start(world, STAGE, CONFIG)
    table = next(table for family, table in stage.loc_ribs.items() if family.label == V4)
    policy.fill("0")
    policy.put("0", [(P, A, LONG)])
    policy.put("0", [(Q, A, SHORT)])
    policy.put("0", [(Q, A, None)])
    policy.put("1", [(P, B, SHORT)], SNAPSHOT_BEGIN, V4)
    policy.put("1", [], SNAPSHOT_END, V4)
    assert table.decision.n_chosen == 0 and table.routes.n_tombstones == 1 and not stage.is_open
    policy.put("1", [], ALL_AT_ONCE, V6)
    assert stage.is_open and stage.is_in_step()
    assert (table.decision.n_chosen, table.journal.head) == (1, 1)
    assert (table.routes.n_tombstones, table.prefixes.n_prefixes) == (0, 1)
    reader = Reader(world)
    world.settle()
    assert [set(told) for told in reader.told()] == [{P}]
    policy.put("1", [(P, B, None)])
    assert set(reader.told()[0]) == {P} and table.journal.head == 2


def test_readers_follow_the_first_decision_row_by_row(world, monkeypatch):
    """A reader is told what is chosen while the rest is not yet; the snapshot ends when all is, whatever changed."""
    monkeypatch.setattr("stages.rib.loc_rib.PREFIXES_PER_SLICE", 1)
    prefixes = [f"10.{n}.0.0/16" for n in range(6)]
    policy, stage = Policy(world), start(world, STAGE, CONFIG)
    table = next(table for family, table in stage.loc_ribs.items() if family.label == V4)
    reader = Reader(world)
    policy.fill("0")
    policy.put("1", [(prefix, B, SHORT) for prefix in prefixes], SNAPSHOT_BEGIN | SNAPSHOT_END, V4)

    def change(row):
        if row == 3:  # the first two have been told
            stage.speakers["1"].feeds[0].handle(routes([(prefixes[0], B, None), (prefixes[5], B, None), (P, B, LONG)]))
        return decide(row)

    decide = table.decide_all
    monkeypatch.setattr(table, "decide_all", change)
    policy.put("1", [], ALL_AT_ONCE, V6)
    batches, held = list(reader.batches), {}
    is_end = [bool(batch.flags & SNAPSHOT_END) for batch in batches]
    assert [bool(batch.flags & SNAPSHOT_BEGIN) for batch in batches] == [True] + [False] * (len(batches) - 1)
    assert is_end.count(True) == 1 and is_end.index(True) >= 5
    told = reader.told()
    assert all(set(told[n]) == {prefixes[n]} for n in (0, 1)) and set(told[2]) != {prefixes[0]}
    for changes in told:
        held |= changes
    assert {prefix for prefix, path in held.items() if path} == {*prefixes[1:5], P}


def test_a_speaker_that_never_comes_is_waited_for_a_while_only(world):
    """After the time limit the rib serves without the speaker that is missing."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.fill("0")
    policy.put("0", [(P, A, SHORT)])
    world.wait(DEFERRAL_S - 1)
    assert reader.batches == []
    world.wait(2)
    assert [set(told) for told in reader.told()] == [{P}]


@pytest.fixture
def with_fib(world):
    """A rib in step with a fib, and a reader; gives policy, fib and reader."""
    policy, _ = Policy(world), start(world, STAGE, WITH_FIB)
    policy.fill("0", "1")
    fib, reader = Fib(world), Reader(world, "exporter")
    world.wait(1)
    reader.told()
    return policy, fib, reader


def test_a_new_next_hop_waits_for_what_the_fib_says_of_it(with_fib):
    """Nobody is told of a path whose next hop leads nowhere, not for a moment; others come with the answer."""
    policy, fib, reader = with_fib
    policy.put("0", [(P, A, SHORT)])
    policy.put("1", [(Q, B, LONG)])
    assert reader.told() == []
    fib.say({"10.77.0.11": None})
    assert reader.told() == []
    fib.say({"10.77.0.10": 7})
    assert [set(told) for told in reader.told()] == [{P}]
    policy.put("1", [(P, B, LONG)])
    assert reader.told() == []
    fib.say({"10.77.0.11": 5})
    assert {prefix for told in reader.told() for prefix in told} == {Q}


def test_many_new_next_hops_are_all_looked_at(with_fib, monkeypatch):
    """What is said while others are being looked at is looked at after that."""
    monkeypatch.setattr("stages.rib.loc_rib.ROWS_PER_SLICE", 1)
    policy, fib, reader = with_fib
    hops = [f"10.77.1.{n}" for n in range(1, 21)]
    policy.put("0", [(f"10.{n}.0.0/16", A, attributes(64610, next_hop=hop)) for n, hop in enumerate(hops)])
    assert reader.told() == []
    for n, hop in enumerate(hops):
        fib.metrics[hop] = n
        fib.version += 1
        for loop in fib.world.loops.values():
            loop.turn()
    fib.world.settle()
    assert {prefix for told in reader.told() for prefix in told} == {f"10.{n}.0.0/16" for n in range(20)}


def test_a_fib_that_has_just_started_takes_back_nothing(world, with_fib):
    """What the last one said of a next hop stays true until the new one has answered, reachable or not."""
    policy, fib, reader = with_fib
    policy.put("0", [(P, A, SHORT)])
    policy.put("1", [(Q, B, LONG)])
    fib.say({"10.77.0.10": 7, "10.77.0.11": None})
    reader.told()
    world.kill("fib")
    world.wait(1)
    fib = Fib(world, "g")
    world.wait(5)
    assert reader.told() == []
    fib.say({"10.77.0.11": None})
    assert reader.told() == []
    fib.say({"10.77.0.10": 7, "10.77.0.11": 9})
    assert {prefix for told in reader.told() for prefix in told} == {Q}


def test_where_no_fib_answers_nobody_waits(world, with_fib):
    """A fib that stays away: a next hop it has not spoken of counts as reachable, also one that came up meanwhile."""
    policy, fib, reader = with_fib
    world.kill("fib")
    world.wait(1)
    policy.put("0", [(P, A, SHORT)])
    assert reader.told() == []  # it may only have been restarted
    world.wait(FIB_AWAY_S)
    assert {prefix for told in reader.told() for prefix in told} == {P}
    policy.put("1", [(Q, B, LONG)])
    assert {prefix for told in reader.told() for prefix in told} == {Q}


@pytest.mark.parametrize("is_filled_first", [True, False])
def test_rib_and_fib_lost_together_tell_nothing_that_leads_nowhere(world, is_filled_first):
    """The first choice waits until the fib has spoken of all next hops: none is told for a moment and taken back."""
    policy, rib = Policy(world), start(world, STAGE, WITH_FIB)
    reader = Reader(world, "exporter")
    policy.put("0", [(P, A, SHORT), (Q, A, LONG)], ALL_AT_ONCE)
    policy.put("1", [(Q, B, SHORT)], ALL_AT_ONCE)
    policy.put("0", [], ALL_AT_ONCE, V6)
    if is_filled_first:
        policy.put("1", [], ALL_AT_ONCE, V6)
    fib = Fib(world)
    world.wait(1)
    fib.say({"10.77.0.10": None})
    if not is_filled_first:
        policy.put("1", [], ALL_AT_ONCE, V6)
    assert reader.batches == [] and not rib.is_in_step()
    assert rib.missing() == ["fib.0:nexthops"]
    fib.say({"10.77.0.11": 5})
    assert [set(told) for told in reader.told()] == [{Q}]
    assert rib.is_in_step() and rib.missing() == []


def test_a_fib_that_never_starts_is_waited_for_a_while_only(world):
    """Where there is no fib, the first choice is made without what it would say."""
    policy, rib = Policy(world), start(world, STAGE, WITH_FIB)
    reader = Reader(world, "exporter")
    policy.put("0", [(P, A, SHORT)], ALL_AT_ONCE)
    policy.put("1", [], ALL_AT_ONCE)
    for speaker in "01":
        policy.put(speaker, [], ALL_AT_ONCE, V6)
    world.wait(FIB_AWAY_S - 1)
    assert reader.batches == []
    world.wait(2)
    assert [set(told) for told in reader.told()] == [{P}] and rib.is_in_step()


@pytest.fixture
def filled(world):
    """A rib that serves a route of neighbor A from speaker 0, which can be killed; policy and a reader in step."""
    world.bus("speaker").serve()
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    policy.say("0", A, UP, GRACEFUL)
    policy.put("0", [(P, A, SHORT), (Q, A, SHORT)])
    reader = Reader(world)
    world.settle()
    reader.told()
    return policy, rib, reader


def test_policy_may_stay_away(world, filled):
    """While only policy is away routes stay, however long."""
    world.kill("policy")
    world.settle()
    world.wait(10 * RESTART_S)
    world.wait(10 * RESTART_S)
    assert filled[2].told() == []


def test_routes_of_a_speaker_that_stays_away_go(world, filled):
    """With graceful restart agreed, routes stay for the restart time after the speaker's death, and no longer."""
    policy, _, reader = filled
    policy.begin_anew("0")
    world.kill("speaker")
    world.settle()
    world.wait(LOSS_S + 1)
    world.wait(RESTART_S - LOSS_S - 2)
    assert reader.told() == []
    world.wait(2)
    assert reader.told() == [{P: None, Q: None}]


def test_without_graceful_restart_routes_go_with_the_speaker(world, filled):
    """Neighbors that have not agreed on graceful restart lose their routes soon after the speaker died, others not."""
    policy, _, reader = filled
    policy.say("0", B, UP)
    policy.put("0", [("192.0.2.0/24", B, SHORT)])
    reader.told()
    policy.begin_anew("0")
    world.kill("speaker")
    world.settle()
    assert reader.told() == []
    world.wait(LOSS_S)
    assert reader.told() == [{"192.0.2.0/24": None}]


def test_a_speaker_that_is_back_at_once_was_not_lost(world, filled):
    """A link that is lost for a moment withdraws nothing, with graceful restart or without; all is asked for again."""
    policy, rib, reader = filled
    policy.say("0", A, DOWN, UP)
    world.kill("speaker")
    world.settle()
    world.wait(LOSS_S - 1)
    script = policy.scripts["0", V4]
    script.batches.clear()  # of the same epoch: who does not ask anew is sent nothing
    script.say(A, UP, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    script.put([(P, A, SHORT), (Q, A, SHORT)], SNAPSHOT | SNAPSHOT_END)
    world.bus("speaker").serve()
    world.settle()
    world.wait(10)
    assert reader.told() == [] and rib.missing() == []


def test_the_rib_knows_at_once_that_a_speaker_is_dead_behind_a_live_policy(world, filled):
    """It says what is stale and whom it waits for until the next speaker has told its table; nobody hears a change."""
    policy, rib, reader = filled
    world.kill("speaker")
    world.settle()
    assert rib.missing() == [f"speaker.0:adj-rib-in/{V4}", f"speaker.0:adj-rib-in/{V6}"]
    told = {(row["speaker"], row["family"]): row for row in rib.status()["speakers"]}
    assert told["0", V4]["is_stale"] and told["0", V4]["sessions"] == {A: "stale"} and not told["1", V4]["is_stale"]
    policy.begin_anew("0")
    world.bus("speaker").serve()
    policy.say("0", A, GRACEFUL, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    assert rib.missing()
    policy.put("0", [(P, A, SHORT)], SNAPSHOT | SNAPSHOT_END)
    assert rib.missing() == [] and reader.told() == []


def test_a_new_speaker_confirms_routes_by_and_by(world, filled):
    """What an earlier speaker told stays while its neighbor is awaited; End-of-RIB takes what was not told again."""
    policy, rib, reader = filled
    policy.begin_anew("0")
    policy.say("0", A, GRACEFUL, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    policy.put("0", [], SNAPSHOT | SNAPSHOT_END)
    assert reader.told() == [] and rib.is_open
    policy.say("0", A, UP, AWAITED)
    policy.put("0", [(P, A, SHORT)])
    assert reader.told() == []
    policy.say("0", A, END_OF_RIB)
    assert reader.told() == [{Q: None}]


@pytest.mark.parametrize("n_later", [0, 1])
def test_a_neighbor_that_does_not_come_back_loses_its_routes(world, filled, n_later):
    """The new speaker gives a neighbor up, before or after it had told some of its routes again."""
    policy, _, reader = filled
    policy.begin_anew("0")
    policy.say("0", A, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    policy.put("0", [], SNAPSHOT | SNAPSHOT_END)
    policy.put("0", [(P, A, SHORT)][:n_later])
    policy.put("0", [(P, A, None)][:n_later])
    policy.say("0", A, DOWN)
    told = {}
    for each in reader.told():
        told |= each
    assert told == {P: None, Q: None}


def test_a_new_speaker_that_awaits_nobody_has_the_last_word(world, filled):
    """Without a promise, what is not in the new speaker's snapshot is gone at its end."""
    policy, _, reader = filled
    policy.begin_anew("0")
    policy.put("0", [(P, A, SHORT)], ALL_AT_ONCE | SNAPSHOT)
    assert reader.told() == [{Q: None}]


def test_an_end_of_rib_that_never_comes_is_not_waited_for(world, filled):
    """After the selection deferral time what was not told again goes."""
    policy, _, reader = filled
    world.kill("speaker")
    world.settle()
    policy.begin_anew("0")
    world.bus("speaker").serve()
    policy.say("0", A, UP, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    policy.put("0", [(P, A, SHORT)], SNAPSHOT | SNAPSHOT_END)
    world.wait(DEFERRAL_S - 1)
    assert reader.told() == []
    world.wait(2)
    assert reader.told() == [{Q: None}]


def test_a_new_rib_waits_for_those_who_promised(world):
    """Nothing is served before the End-of-RIB of a neighbor that has promised one; nobody waits for others."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world)
    policy.say("0", A, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    policy.say("0", B, UP, flags=SNAPSHOT)
    policy.put("0", [], SNAPSHOT | SNAPSHOT_END)
    policy.fill("1")
    policy.put("0", [], ALL_AT_ONCE, V6)
    policy.say("0", A, UP, GRACEFUL, AWAITED)
    policy.put("0", [(P, A, SHORT), (Q, B, SHORT)])
    assert reader.batches == [] and not rib.is_open
    policy.say("0", A, END_OF_RIB)
    assert [set(told) for told in reader.told()] == [{P, Q}]


def test_a_new_rib_waits_no_longer_than_the_limit(world):
    """The Selection_Deferral_Timer: then the rib serves what there is."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.say("0", A, AWAITED, flags=SNAPSHOT_BEGIN | SNAPSHOT)
    policy.put("0", [], SNAPSHOT | SNAPSHOT_END)
    policy.put("0", [], ALL_AT_ONCE, V6)
    policy.fill("1")
    world.wait(DEFERRAL_S - 1)
    assert not rib.is_open
    world.wait(2)
    assert rib.is_open


def test_a_reader_of_another_view_is_refused(world):
    """Only the views that are declared, of families that exist, can be read."""
    Policy(world), start(world, STAGE, CONFIG)
    reader = Reader(world, view="second-best")
    world.settle()
    assert "second-best" in reader.follower.refused


def test_views_have_epochs_of_their_own(world):
    """A position of one view does not pass for one of the other."""
    policy, _ = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    best, all_paths = Reader(world), Reader(world, "tap", view="all", tap=True)
    world.settle()
    assert best.follower.position.epoch != all_paths.follower.position.epoch
    assert all_paths.batches[0].meta["view"] == "all"


def test_status_tells_what_is_held(world):
    """The status names each speaker's part and the sizes of the tables."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    policy.put("1", [(P, B, SHORT)])
    status = rib.status()
    assert status["is_open"] and all(speaker["is_complete"] for speaker in status["speakers"])
    assert status["tables"][V4]["n_routes"] == 1
    assert 'headrace_rib_candidates_held{family="ipv4-unicast"} 1.0' in rib.context.metrics.text()


def test_accepted_routes_are_counted_by_neighbor(world):
    """Over all families and speakers; whoever asks is told while the ribs do not have everything yet."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    accepted = rib.controls()["accepted"]
    policy.fill("0")
    policy.put("0", [(P, A, SHORT), (Q, A, LONG), (Q, "", LONG)])
    assert accepted({}) == {"neighbors": {A: 2}, "is_current": False}
    policy.fill("1")
    policy.put("1", [(P, B, SHORT)])
    policy.put("0", [(P, A, None)])
    world.settle()
    assert accepted({}) == {"neighbors": {A: 1, B: 1}, "is_current": True}


def test_a_speaker_that_is_configured_no_more_goes_with_its_routes(world):
    """After a reload the routes of a speaker that no neighbor names are gone, and a new one is followed."""
    policy, rib = Policy(world), start(world, STAGE, CONFIG)
    policy.fill("0", "1")
    policy.put("1", [(P, B, LONG)])
    reader = Reader(world)
    world.settle()
    reader.told()
    rib.reload(loads(CONFIG.replace('speaker = "1"', "")))
    world.settle()
    assert reader.told() == [{P: None}]
    rib.reload(loads(CONFIG))
    world.settle()
    assert [set(told) for told in reader.told()] == [{P}]
