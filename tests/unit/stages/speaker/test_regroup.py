"""A member that changes its group: it ends up with the new group's routes, and is told nothing it holds already."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.speaker import regroup
from stages.speaker.regroup import Regroup
from tests.unit.stages.speaker.test_adj_rib_out import NAMES, PREFIXES, SETS, World, present, routes


def two_worlds() -> tuple[World, World]:
    """Return two groups of one speaker, which have their prefixes in common."""
    old = World()
    return old, World(prefixes=old.table.prefixes)


def move(old: World, new: World, name: str, between=lambda: None) -> None:
    """Let a peer change from one world to the other."""
    moving = Regroup(old.table, old.table.members[name], new.table)
    while not moving.step():
        between()
    new.peers[name] = old.peers.pop(name)


def held_by(world: World, name: str) -> dict[str, bytes]:
    world.tell_all()
    return world.peers[name].held


@settings(max_examples=200, deadline=None)
@given(
    before=present,
    late=routes,
    after=present,
    later=routes,
    n_told=st.integers(0, 2),
    name=st.sampled_from(NAMES),
    others=st.sets(st.sampled_from(NAMES)),
)
def test_a_member_ends_up_with_the_new_groups_routes(before, late, after, later, n_told, name, others):
    """Whatever it holds and lacks of its old group, in the end it holds what the new group is to hold."""
    old, new = two_worlds()
    old.snapshot(before)
    old.join(name)
    for _ in range(n_told):
        old.tell(name)
    old.change(late)
    new.snapshot(after)
    for other in others - {name}:
        new.join(other)
    new.tell_all()
    is_in_step = old.table.is_in_step(old.table.members[name])
    move(old, new, name)
    new.table.collect()
    if is_in_step:
        assert held_by(new, name) == new.expected(name) and new.peers[name].n_told_again == 0
    new.change(later)
    assert held_by(new, name) == new.expected(name)
    for other in others - {name}:
        assert held_by(new, other) == new.expected(other) and new.peers[other].n_told_again == 0
    assert new.table.members[name].n_told == len(new.expected(name))
    assert new.peers[name].n_end_of_rib == 1
    new.change({text: (None, "") for text in PREFIXES})
    new.tell_all()
    new.table.collect()
    old.change({text: (None, "") for text in PREFIXES})
    old.table.collect()
    assert new.table.prefixes.n_prefixes == 0


def filled(monkeypatch) -> tuple[World, World]:
    """Return two groups with the same routes but for one that differs, one only here and one only there."""
    monkeypatch.setattr(regroup, "ROWS_PER_SLICE", 8)
    both = {f"10.{n}.0.0/16": (SETS[n % 2], "") for n in range(40)}
    old, new = two_worlds()
    old.snapshot(both | {"10.1.0.0/16": (SETS[2], ""), "10.100.0.0/16": (SETS[0], "")})
    new.snapshot(both | {"10.101.0.0/16": (SETS[0], "")})
    old.join("a")
    old.tell_all()
    return old, new


def test_only_differences_are_told(monkeypatch):
    """One route otherwise, one gone, one new: three UPDATEs, no second End-of-RIB."""
    old, new = filled(monkeypatch)
    before = old.table.members["a"].n_updates
    move(old, new, "a")
    assert held_by(new, "a") == new.expected("a")
    assert new.table.members["a"].n_updates == before + 3 and new.peers["a"].n_told_again == 0
    assert not old.table.members


@pytest.mark.parametrize("changed", ["10.3.0.0/16", "10.39.0.0/16", "10.1.0.0/16", "10.101.0.0/16"])
@pytest.mark.parametrize("becomes", [SETS[2], None])
def test_changes_while_it_moves(monkeypatch, changed, becomes):
    """Routes of either group that change between two slices are told as they are at the end."""
    old, new = filled(monkeypatch)
    flips = iter([becomes, SETS[0], becomes, SETS[1], becomes])

    def between():
        for world in (new, old):
            world.change({changed: (next(flips, becomes), "")})

    move(old, new, "a", between)
    assert held_by(new, "a") == new.expected("a")


def test_a_move_that_is_called_off_leaves_nothing_behind(monkeypatch):
    """The member stays where it was, and the other table forgets what it was asked about."""
    old, new = filled(monkeypatch)
    moving = Regroup(old.table, old.table.members["a"], new.table)
    for _ in range(3):
        moving.step()
    moving.cancel()
    old.change({"10.2.0.0/16": (SETS[1], "")})
    assert held_by(old, "a") == old.expected("a")
    new.table.collect()
    old.table.close()
    old.table.prefixes.collect()
    assert new.table.prefixes.n_prefixes == 41 and not new.table.members


def test_it_waits_for_the_new_group(monkeypatch):
    """Until the new group's table is whole, a member goes on in its old one."""
    old, _ = filled(monkeypatch)
    new = World(prefixes=old.table.prefixes)
    moving = Regroup(old.table, old.table.members["a"], new.table)
    assert not moving.step()
    old.change({"10.2.0.0/16": (SETS[1], "")})
    assert held_by(old, "a")["10.2.0.0/16"] == SETS[1]
