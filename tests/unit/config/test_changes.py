"""What the differences between two configurations cost."""

import pytest

from common.config import loads
from common.config.changes import RESTART, changes, costs_session, pinned

BASE = """
[router]
asn = 65000
router_id = "10.77.0.1"
originate = ["192.0.2.0/24"]
[[neighbor]]
name = "a"
address = "10.77.0.10"
asn = 64601
hold_time_s = 90
import = { default = "accept", local_pref = 120 }
export = { default = "accept" }
[[neighbor]]
name = "b"
address = "10.77.0.11"
asn = 64602
"""


def lines(new: str) -> list[str]:
    return [str(change) for change in changes(loads(BASE), loads(new))]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('["192.0.2.0/24"]', "[]", "router.originate: [192.0.2.0/24] -> []: applied live"),
        (
            "[[neighbor]]",
            '[policy]\nmartians = ["10.0.0.0/8", "martians"]\n[[neighbor]]',
            "policy.martians: [11 in both] -> [11 in both, 10.0.0.0/8]: routes are evaluated again",
        ),
        ("asn = 65000", "asn = 65001", "router.asn: 65000 -> 65001: costs the sessions of a, b"),
        ("local_pref = 120", "local_pref = 80", "neighbor.a.import.local_pref: 120 -> 80: routes are evaluated again"),
        (
            'import = { default = "accept", local_pref = 120 }',
            "",
            "neighbor.a.import: set -> none: routes are evaluated",
        ),
        ("hold_time_s = 90", "hold_time_s = 30", "neighbor.a.hold_time_s: 90 -> 30: costs the session of a"),
        ("hold_time_s = 90", "hold_time_s = 90\npassive = true", "neighbor.a.passive: false -> true: applied live"),
        (
            "[[neighbor]]",
            "[fib]\ntable = 7\n[[neighbor]]",
            "fib.table: 254 -> 7: only at the next start of the fib stage",
        ),
        ('address = "10.77.0.11"', 'address = "10.77.0.12"', "neighbor.b.address: 10.77.0.11 -> 10.77.0.12: costs the"),
    ],
)
def test_one_difference(before, after, said):
    """Each difference is told alone, with what it costs."""
    assert before in BASE
    (line,) = lines(BASE.replace(before, after, 1))
    assert line.startswith(said)


def test_a_list_in_another_order():
    """Is told in full: what both have is all there is."""
    items = [f"64500:{number}" for number in range(5)]
    texts = [BASE.replace("local_pref = 120", f"add_communities = {each}") for each in (items, items[::-1])]
    (line,) = [str(change) for change in changes(*map(loads, texts))]
    assert "[64500:0, 64500:1, 64500:2, 64500:3, 64500:4] -> [64500:4, 64500:3" in line


def test_neighbors_come_and_go():
    """A new neighbor costs nothing, one that is taken away its session."""
    renamed = BASE.replace('name = "b"', 'name = "c"')
    assert lines(renamed) == [
        "neighbor.b: AS 64602, 10.77.0.11 -> none: costs the session of b",
        "neighbor.c: none -> AS 64602, 10.77.0.11: applied live",
    ]


def test_what_counts_from_a_start_only_stays():
    """A running process takes over every difference but those that need a start, also in sections that are lists."""
    more = f"""
[fib]
table = 7
[status]
enabled = false
[[endpoint]]
stage = "rib"
bus = "tcp://127.0.0.1:7700"
control = "tcp://127.0.0.1:7701"
[[key]]
name = "rib"
public = "{"a" * 40}"
role = "rib"
[[neighbor]]
name = "c"
address = "10.77.0.12"
asn = 64603
"""
    old, new = loads(BASE), loads(BASE.replace("asn = 65000", "asn = 65001") + more)
    taken = pinned(old, new)
    assert {change.cost for change in changes(taken, new)} == {RESTART}
    assert {change.path for change in changes(old, taken)} == {"router.asn", "neighbor.c"}


def place(stage: str, instance: str, port: int) -> str:
    return (
        f'[[endpoint]]\nstage = "{stage}"\ninstance = "{instance}"\n'
        f'bus = "tcp://127.0.0.1:{port}"\ncontrol = "tcp://127.0.0.1:{port + 1}"\n'
    )


def test_places_and_keys_of_a_router_that_has_some():
    """Others go where a new instance, or one that has moved, is; to a new place of an old one only when all start."""
    key = '[[key]]\nname = "{}"\npublic = "{}"\nrole = "rib"\n'
    before = BASE + place("rib", "0", 7000) + key.format("rib", "a" * 40) + key.format("gone", "b" * 40)
    after = BASE.replace("[[neighbor]]", "[policy]\ninstances = 2\n[[neighbor]]", 1)
    after += place("rib", "0", 7100) + place("policy", "0", 7200) + place("policy", "1", 7300)
    after += key.format("rib", "c" * 40) + key.format("new", "d" * 40)
    old, new = loads(before), loads(after)
    assert [str(change) for change in changes(old, new) if change.path.startswith(("endpoint", "key."))] == [
        "endpoint.policy.0: none -> set: only at the next start of the router",
        "endpoint.policy.1: none -> set: applied live",
        "endpoint.rib.0: set -> set: others go by it at once; rib.0 itself has it from its next start",
        "key.gone: set -> none: applied live",
        "key.new: none -> set: applied live",
        "key.rib: set -> set: others go by it at once; rib itself has it from its next start",
    ]
    taken = pinned(old, new)
    assert taken.public_keys == new.public_keys
    assert taken.endpoints == {each: new.endpoints[each] for each in (("rib", "0"), ("policy", "1"))}


def test_nothing_changed():
    """The same file twice makes no difference, however it is spaced."""
    assert lines(BASE + "\n# a remark\n") == []


def test_costs_session():
    """Policy costs a neighbor no session, its address does."""
    old = loads(BASE).neighbors["a"]
    assert not costs_session(old, loads(BASE.replace("120", "80")).neighbors["a"])
    assert costs_session(old, loads(BASE.replace("10.77.0.10", "10.77.0.13")).neighbors["a"])
