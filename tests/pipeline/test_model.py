"""Random announcements, withdrawals, losses, restarts and reloads, compared with the oracle whenever all is quiet.

Stages die at any step, one or two, while changes are on their way; readers and peers are slow, connections break, and
in half of the runs the journals are so short that positions expire, and peers are told a few routes at a time. Whatever
happens, a peer whose session stands gets no UPDATE that names a prefix nobody has touched since all was quiet last, and
is told no route that it holds.
"""

from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from common.bgp.capabilities import GracefulRestart
from common.bgp.constants import Family
from common.bgp.decision import CHOSEN_WORDS
from common.kernels.journal import Journal
from stages.speaker.stage import COLLECT_INTERVAL_S
from tests.oracles.pipeline import NO_ADVERTISE, NO_EXPORT, Route, Router, comparable
from tests.pipeline.harness import Peer, Pipeline, router_id_of

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
listen = ["10.77.0.1"]
originate = ["192.0.2.0/24", "2001:db8:ffff::/48"]
next_hop_ipv6 = "2001:db8:77::1"
"""
INSTANCES = """
[rib]
instances = {}
[policy]
instances = {}
[exporter]
instances = {}
"""
NEIGHBOR = """
[[neighbor]]
name = "{name}"
address = "{address}"
local_address = "10.77.0.1"
asn = {asn}
passive = true
{more}
"""
BOTH = 'import = {{ default = "accept"{} }}\nexport = {{ default = "accept" }}'
NEIGHBORS = {
    "a": ("10.77.0.10", 64601, BOTH.format("")),
    "a2": ("10.77.0.11", 64601, BOTH.format("")),
    "b": ("10.77.0.12", 64602, BOTH.format(', add_communities = ["65000:2"]')),
    "core": ("10.77.0.13", 65000, ""),
    "core2": ("10.77.0.14", 65000, ""),
    "listener": ("10.77.0.20", 64700, "export = { learned_routes = true }"),
}
ANNOUNCERS = ("a", "a2", "b", "core", "core2")
PREFIXES = ("192.0.2.0/24", "198.51.100.0/24", "198.51.100.0/25", "203.0.113.0/24", "0.0.0.0/0")
PREFIXES_6 = ("2001:db8:1::/48", "2001:db8::/32")
# Neighbors that have agreed on graceful restart.
GRACEFUL = ("b", "core")
RESTART = GracefulRestart(4095, families=tuple((family, True) for family in Family))
ORIGINATED = ("192.0.2.0/24", "2001:db8:ffff::/48")
COMMUNITIES = (65000 << 16 | 2, 64601 << 16 | 1, NO_EXPORT, NO_ADVERTISE)

names = st.lists(st.sampled_from(ANNOUNCERS), min_size=1, max_size=3, unique=True)
prefixes = st.one_of(
    st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(PREFIXES_6), min_size=1, max_size=2, unique=True),
)
routes = st.builds(
    Route,
    as_path=st.sampled_from([(), (3356,), (64602,), (3356, 3356), (65000,)]),
    origin=st.sampled_from([0, 0, 0, 1, 2]),
    med=st.sampled_from([None, None, 0, 5, 10]),
    communities=st.lists(st.sampled_from(COMMUNITIES), max_size=2, unique=True).map(lambda it: tuple(sorted(it))),
)
changes = st.lists(st.tuples(names, prefixes, st.one_of(st.none(), routes)), min_size=1, max_size=6)


def told_by(peer: Peer) -> dict[str, tuple]:
    """Return what a peer was told, in the oracle's form."""
    return {
        prefix: comparable(told.next_hop, b"".join(_encoded(*item) for item in sorted(told.attributes.items())))
        for prefix, told in peer.told.items()
    }


def _encoded(code: int, value: bytes) -> bytes:
    return bytes([0x50, code]) + len(value).to_bytes(2, "big") + value


# What a reload changes: a neighbor, and what its policies are from then on.
RELOADS = st.sampled_from(
    [
        ("b", BOTH.format(', add_communities = ["65000:2"]')),
        ("b", BOTH.format("")),
        ("b", 'export = { default = "accept" }'),
        ("listener", "export = { learned_routes = true }"),
        ("listener", ""),
        ("a2", BOTH.format("")),
        ("a2", 'import = { default = "accept" }'),
    ]
)
SMALL_JOURNAL = 4  # 2 to this power
FEW_ROWS = {"ROWS_PER_TURN": 2, "MIN_ROWS_PER_TURN": 1}
JOURNALS = ("stages.rib.loc_rib", "stages.speaker.adj_rib_in", "stages.speaker.adj_rib_out")
# Where several ribs are, what comes for them is gathered for a moment: here also when it is little.
GATHERING = ("common.bus.trunk", "stages.speaker.gathering")
RESTARTABLE = ("policy", "rib", "exporter")
one_stage = st.tuples(st.sampled_from(RESTARTABLE), st.integers(0, 3))
owners = st.tuples(st.sampled_from(["speaker", *RESTARTABLE]), st.integers(0, 3))
stages = st.lists(one_stage, min_size=1, max_size=2, unique=True)
# How many ribs, policy stages and exporters there are, or what they are called.
instances = st.tuples(
    st.sampled_from([1, 1, 2, 4, '["north", "south", "0"]']), st.sampled_from([1, 2]), st.sampled_from([1, 2])
)
turns = st.integers(0, 12)


class Model(RuleBasedStateMachine):
    """The pipeline beside the oracle."""

    @initialize(has_small_journals=st.booleans(), is_gathering=st.booleans(), instances=instances)
    def begin(self, has_small_journals, is_gathering, instances):
        self.patches = [
            mock.patch(f"{module}.Journal", lambda *power: Journal(SMALL_JOURNAL))
            for module in JOURNALS
            if has_small_journals
        ]
        if has_small_journals:
            self.patches.append(mock.patch.multiple("stages.speaker.adj_rib_out", **FEW_ROWS))
        if is_gathering:
            self.patches += [mock.patch(f"{module}.FEW_ROWS", 0) for module in GATHERING]
        for patch in self.patches:
            patch.start()
        self.policies = {name: more for name, (_, _, more) in NEIGHBORS.items()}
        self.instances = instances
        self.pipeline = Pipeline(self.configured(instances))
        config = self.pipeline.config
        self.router = Router(
            config.router.asn,
            config.router.router_id,
            {4: "10.77.0.1", 6: "2001:db8:77::1"},
            config.neighbors,
            {name: router_id_of(address) for name, (address, *_) in NEIGHBORS.items()},
            [str(prefix) for prefix in config.router.originate],
        )
        self.away: set[str] = set()
        self.touched: set[str] = set()
        for name in NEIGHBORS:
            self.connect(name)

    def configured(self, instances: tuple) -> str:
        """Return the configuration with so many instances, and the policies of now."""
        return (
            CONFIG
            + INSTANCES.format(*instances)
            + "".join(
                NEIGHBOR.format(name=name, address=address, asn=asn, more=self.policies[name])
                for name, (address, asn, _) in NEIGHBORS.items()
            )
        )

    def label(self, stage: tuple[str, int]) -> str:
        """Return one of the instances of a stage."""
        name, number = stage
        labels = [label for label in self.pipeline.planned() if label.partition(".")[0] == name]
        return labels[number % len(labels)]

    def teardown(self):
        if hasattr(self, "pipeline"):
            self.pipeline.__exit__()
        for patch in getattr(self, "patches", ()):
            patch.stop()

    def connect(self, name: str, kept: list[str] = ()) -> None:
        """Bring a session up; one with graceful restart announces again what it has kept, then ends its table."""
        former = self.router.received.get(name, {})
        peer = self.pipeline.peer(name, RESTART if name in GRACEFUL else None)
        self.touched.update(PREFIXES, PREFIXES_6, ORIGINATED)
        if name in ANNOUNCERS:
            self.router.received[name] = {}
        if name in GRACEFUL:
            for prefix in set(kept) & set(former):
                made = self.router.received[name][prefix] = former[prefix]
                peer.announce([prefix], next_hop=made.next_hop, **made.attributes())
            peer.end_of_rib()

    # ---- what happens -----------------------------------------------------------------------------------------

    @rule(changes=changes)
    def change(self, changes):
        """Several neighbors announce and withdraw at once."""
        for speaking, wanted, route in changes:
            for name in speaking:
                if self.pipeline.peers[name].is_up:
                    self.send(name, wanted, route)

    def send(self, name: str, wanted: list[str], route: Route | None) -> None:
        """Let one neighbor announce prefixes, or withdraw them."""
        peer, received = self.pipeline.peers[name], self.router.received[name]
        self.touched.update(wanted)
        if route is None:
            peer.withdraw(wanted)
            for prefix in wanted:
                received.pop(prefix, None)
            return
        for prefix in wanted:
            received[prefix] = self.sent_by(name, route, prefix)
        made = received[wanted[0]]
        peer.announce(wanted, next_hop=made.next_hop, **made.attributes())

    def sent_by(self, name: str, route: Route, prefix: str) -> Route:
        """Return a route as this neighbor sends it."""
        address, asn, _ = NEIGHBORS[name]
        host = address.rsplit(".", 1)[1]
        next_hop = f"2001:db8:77::{host}" if ":" in prefix else address
        if asn == 65000:
            local_pref = 100 if route.origin < 2 else 150
            return Route(next_hop, route.as_path, route.origin, route.med, local_pref, route.communities)
        return Route(next_hop, (asn, *route.as_path), route.origin, route.med, None, route.communities)

    @rule(name=st.sampled_from(list(NEIGHBORS)), in_order=st.booleans())
    def lose_session(self, name, in_order):
        """A session ends, with a NOTIFICATION or without."""
        peer = self.pipeline.peers[name]
        if peer.is_up:
            peer.close() if in_order else peer.vanish()
            self.touched.update(self.router.received.get(name, ()))
            if in_order or name not in GRACEFUL:
                self.router.received.pop(name, None)

    @precondition(lambda self: not self.away)
    @rule(name=st.sampled_from(list(NEIGHBORS)), kept=st.sets(st.sampled_from(PREFIXES + PREFIXES_6)))
    def come_back(self, name, kept):
        """A session comes up again."""
        self.pipeline.settle()
        if not self.pipeline.peers[name].is_up:
            self.connect(name, kept)

    @precondition(lambda self: not self.away)
    @rule(stage=one_stage)
    def restart(self, stage):
        """A stage is restarted while nothing changes: nobody is told anything."""
        self.pipeline.settle()
        before = {name: peer.n_updates for name, peer in self.pipeline.peers.items()}
        self.pipeline.restart(self.label(stage))
        self.pipeline.wait(5)
        assert {name: peer.n_updates for name, peer in self.pipeline.peers.items()} == before

    @precondition(lambda self: not self.away)
    @rule(instances=instances)
    def share_out_anew(self, instances):
        """Other numbers of instances are configured while nothing changes: nobody is told anything."""
        self.pipeline.settle()
        before = {name: peer.n_updates for name, peer in self.pipeline.peers.items()}
        self.reload(instances)
        assert {name: peer.n_updates for name, peer in self.pipeline.peers.items()} == before

    @precondition(lambda self: not self.away)
    @rule(changes=changes, instances=instances, later=changes, before=turns)
    def share_out_in_the_middle(self, changes, instances, later, before):
        """Other numbers of instances are configured while changes are on their way."""
        self.change(changes)
        self.pipeline.turn(before)
        self.change(later)
        self.reload(instances)

    @precondition(lambda self: not self.away)
    @rule(wanted=st.lists(RELOADS, min_size=1, max_size=2), changes=changes, before=turns)
    def change_policies(self, wanted, changes, before):
        """Policies change while changes are on their way: no session ends, and only differences are told."""
        self.change(changes)
        self.pipeline.turn(before)
        for name, more in wanted:
            self.pipeline.settle()
            told = {other: peer.n_updates for other, peer in self.pipeline.peers.items() if other != name}
            self.policies[name] = more
            self.touched.update(self.router.received.get(name, ()))  # which may be treated otherwise from now on
            self.reload(self.instances)
            if name not in ANNOUNCERS:
                assert told == {other: self.pipeline.peers[other].n_updates for other in told}
            if name not in ANNOUNCERS or "export" not in more or name == "a2":
                self.touched.update(PREFIXES, PREFIXES_6, ORIGINATED)  # it is told all anew, or loses all
        self.router.neighbors = self.pipeline.config.neighbors

    def reload(self, instances: tuple) -> None:
        self.instances = instances
        self.pipeline.reload(self.configured(instances))
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(changes=changes, stages=stages, later=changes, before=turns, between=turns)
    def die_in_the_middle(self, changes, stages, later, before, between):
        """One or two stages die while changes are on their way, and are back while others are."""
        labels = list(dict.fromkeys(map(self.label, stages)))
        self.change(changes)
        self.pipeline.turn(before)
        for label in labels:
            self.pipeline.kill(label)
        self.change(later)
        self.pipeline.turn(between)
        for label in labels:
            self.pipeline.start(label)
            self.pipeline.turn(between)
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(changes=changes, stages=stages, before=turns)
    def die_in_the_middle_again_and_again(self, changes, stages, before):
        """A stage dies three times before it has told everything."""
        self.change(changes)
        for label in [self.label(stage) for stage in stages] * 3:
            self.pipeline.turn(before)
            self.pipeline.kill(label)
            self.pipeline.start(label)
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(
        owner=owners,
        before=changes,
        after=changes,
        n=turns,
        dies=st.one_of(st.none(), one_stage),
    )
    def be_slow(self, owner, before, after, n, dies):
        """The readers of a stage take nothing for a while, in which everything changes, and a stage may die."""
        self.change(before)
        self.pipeline.turn(n)
        frozen = self.pipeline.freeze(self.label(owner))
        self.change(after)
        self.pipeline.settle()
        if dies is not None:
            self.pipeline.kill(self.label(dies))
            self.pipeline.start(self.label(dies))
            self.pipeline.settle()
        for connector in frozen:
            connector.thaw()
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(
        name=st.sampled_from(list(NEIGHBORS)),
        before=changes,
        after=changes,
        later=changes,
        n=turns,
        dies=st.one_of(st.none(), one_stage),
    )
    def be_slow_to_read(self, name, before, after, later, n, dies):
        """A peer reads nothing while everything changes, and a stage may be restarted; then it does, bit by bit."""
        self.pipeline.settle()
        members = [member for _, member in self.pipeline.stage("speaker").neighbors.get(name).members.values()]
        for wanted in (before, after):
            for member in members:
                member.is_paused = True
            self.change(wanted)
            if dies is not None:
                self.pipeline.turn(n)
                self.pipeline.restart(self.label(dies))
            self.pipeline.settle()
            for member in members:
                member.is_paused = False
            self.pipeline.turn(n)
        self.change(later)
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(owner=owners, before=changes, after=changes, n=turns)
    def break_connection(self, owner, before, after, n):
        """All connections to a stage break while changes are on their way over them."""
        self.change(before)
        self.pipeline.turn(n)
        self.pipeline.hub.drop(self.pipeline.owner_endpoint(self.label(owner)))
        self.change(after)
        self.pipeline.wait(5, step_s=5)

    @rule(stage=one_stage)
    def stop(self, stage):
        """A stage dies and stays away."""
        label = self.label(stage)
        if label not in self.away:
            self.pipeline.settle()
            self.pipeline.kill(label)
            self.away.add(label)

    @rule()
    def start(self):
        """All stages that are away come back."""
        for label in sorted(self.away):
            self.pipeline.start(label)
        self.away.clear()
        self.pipeline.wait(15, step_s=5)

    @precondition(lambda self: not self.away)
    @rule(kept=st.sets(st.sampled_from(PREFIXES + PREFIXES_6)))
    def restart_speaker(self, kept):
        """The speaker dies with all its sessions, and all neighbors call again."""
        self.pipeline.settle()
        self.pipeline.kill("speaker")
        self.pipeline.settle()
        self.pipeline.start("speaker")
        for name in NEIGHBORS:
            self.connect(name, kept)
        self.pipeline.wait(5)

    # ---- what is true when all is quiet -----------------------------------------------------------------------

    @invariant()
    def tables_agree(self):
        """Adj-RIB-In, Loc-RIB and what each peer was told are the oracle's."""
        if not hasattr(self, "pipeline"):
            return
        self.pipeline.settle()
        if self.away:
            return
        for name in ANNOUNCERS:
            assert self.received_from(name) == self.expected_from(name), name
        chosen = self.router.loc_rib()
        shown = [row for rib in self.pipeline.labels("rib") for row in self.pipeline.ask_pages(rib, "routes")]
        assert len(shown) == len(chosen)
        assert {row["prefix"]: (row["neighbor"], row["why"]) for row in shown} == {
            prefix: (name, CHOSEN_WORDS[step]) for prefix, (name, _, step) in chosen.items()
        }
        for name, peer in self.pipeline.peers.items():
            assert not peer.faults, name
            assert not peer.notifications, name
            if peer.is_up:
                assert told_by(peer) == self.router.told(name), name
                assert peer.named <= self.touched, f"{name} was told of what had not changed"
            peer.named.clear()
        self.touched.clear()

    @invariant()
    def nothing_is_left_behind(self):
        """Ribs and speakers hold no candidate, prefix or tombstone beside those that are there."""
        if not hasattr(self, "pipeline"):
            return
        self.pipeline.settle()
        if self.away:
            return
        chosen = self.router.loc_rib()
        for family in Family:
            ribs = [self.pipeline.stage(rib).status()["tables"][family.label] for rib in self.pipeline.labels("rib")]
            n_chosen = sum((":" in prefix) == family.is_wide for prefix in chosen)
            assert sum(sizes["n_chosen"] for sizes in ribs) == sum(sizes["n_prefixes"] for sizes in ribs) == n_chosen
            assert not any(sizes["n_tombstones"] for sizes in ribs)
        self.pipeline.wait(2 * COLLECT_INTERVAL_S, COLLECT_INTERVAL_S)
        received = {prefix for routes in self.router.received.values() for prefix in routes} | set(chosen)
        for family, shared in self.pipeline.stage("speaker").prefixes.items():
            assert shared.n_prefixes == sum((":" in prefix) == family.is_wide for prefix in received)

    def received_from(self, name: str) -> dict:
        rows = self.pipeline.ask_pages("speaker", "received", neighbor=name)
        return {row["prefix"]: (row["as_path"], row.get("med"), row["next_hop"]) for row in rows}

    def expected_from(self, name: str) -> dict:
        return {
            prefix: (" ".join(map(str, route.as_path)), route.med, route.next_hop)
            for prefix, route in self.router.received.get(name, {}).items()
        }


Model.TestCase.settings = settings(
    max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestModel = Model.TestCase
