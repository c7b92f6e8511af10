"""The loop: descriptors, timers, queues, and that it never waits while there is something to do."""

import socket

import pytest

from common.runtime.clock import ManualClock
from common.runtime.loop import Loop


@pytest.fixture
def loop():
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def pair():
    ends = socket.socketpair()
    yield ends
    for end in ends:
        end.close()


def test_a_readable_descriptor_is_called_until_it_is_read(loop, pair):
    """Readers are level-triggered."""
    calls = []
    loop.add_reader(pair[0].fileno(), lambda: calls.append(1))
    loop.turn(0)
    pair[1].send(b"x")
    loop.turn(0)
    loop.turn(0)
    pair[0].recv(1)
    loop.turn(0)
    assert calls == [1, 1]


def test_reader_and_writer_of_one_descriptor_come_and_go_apart(loop, pair):
    """Taking away the writer leaves the reader, and the other way round."""
    calls = []
    fd = pair[0].fileno()
    loop.add_reader(fd, lambda: calls.append("r"))
    loop.add_writer(fd, lambda: calls.append("w"))
    pair[1].send(b"x")
    loop.turn(0)
    loop.remove_writer(fd)
    loop.turn(0)
    loop.remove_reader(fd)
    loop.turn(0)
    loop.add_writer(fd, lambda: calls.append("w2"))
    loop.turn(0)
    loop.remove(fd)
    loop.remove(fd)
    loop.turn(0)
    assert calls == ["r", "w", "r", "w2"]


def test_a_callback_may_remove_any_descriptor(loop, pair):
    """A descriptor removed by an earlier callback of the same turn is not called."""
    calls = []
    other = socket.socketpair()

    def remove_both() -> None:
        calls.append(1)
        loop.remove(pair[0].fileno())
        loop.remove(other[0].fileno())

    for end in (pair[0], other[0]):
        loop.add_reader(end.fileno(), remove_both)
    pair[1].send(b"x")
    other[1].send(b"x")
    loop.turn(0)
    assert calls == [1]
    for end in other:
        end.close()


def test_a_closed_peer_is_told_to_the_reader(loop, pair):
    """A connection that hung up wakes its reader."""
    calls = []
    loop.add_reader(pair[0].fileno(), lambda: calls.append(pair[0].recv(1)))
    pair[1].close()
    loop.turn(0)
    assert calls == [b""]


def test_timers_are_called_in_order_once_they_are_due():
    """A timer is called at its time, once, unless it was cancelled."""
    clock = ManualClock()
    loop = Loop(clock)
    calls = []
    loop.call_later(2, lambda: calls.append("b"))
    loop.call_later(1, lambda: calls.append("a"))
    loop.call_later(1, lambda: calls.append("a2"))
    cancelled = loop.call_later(1, lambda: calls.append("never"))
    cancelled.cancel()
    assert not cancelled.is_pending
    assert loop.next_timer_at() == clock.monotonic() + 1
    loop.turn()
    clock.advance(1)
    loop.turn()
    assert calls == ["a", "a2"]
    clock.advance(5)
    loop.turn()
    loop.turn()
    assert calls == ["a", "a2", "b"] and loop.next_timer_at() is None
    loop.close()


def test_a_timer_may_cancel_another_that_is_due():
    """Of two timers due in one turn the first may take the second back."""
    clock = ManualClock()
    loop = Loop(clock)
    calls = []
    loop.call_later(1, lambda: second.cancel())
    second = loop.call_later(1, lambda: calls.append("second"))
    clock.advance(1)
    loop.turn()
    assert calls == []
    loop.close()


def test_cancelled_timers_do_not_pile_up():
    """A timer set anew for every message (a hold timer) costs no memory in the long run."""
    clock = ManualClock()
    loop = Loop(clock)
    for _ in range(10_000):
        loop.call_later(90, lambda: None).cancel()
    kept = loop.call_later(90, lambda: None)
    assert len(loop._timers) < 1000 and kept.is_pending
    loop.close()


def test_a_turn_that_has_more_to_do_does_not_wait(loop):
    """While a turn's callback returns True the next turn comes at once."""
    left = [3]

    def step() -> bool:
        left[0] -= 1
        if left[0] == 0:
            loop.stop()
        return left[0] > 0

    loop.add_turn(step)
    loop.run()
    assert left == [0] and loop.n_turns == 3


class Pile:
    """A queue without a descriptor."""

    is_suspect = True

    def __init__(self, n: int):
        self.n = n

    def fileno(self) -> int:
        return -1

    def has_input(self) -> bool:
        return self.n > 0

    def drain(self) -> bool:
        self.n -= 1
        return self.n > 0


def test_a_queue_is_drained_a_little_each_turn(loop):
    """A queue with much in it does not keep others waiting."""
    pile = Pile(3)
    loop.add_queue(pile)
    assert loop.turn() and pile.n == 2
    assert loop.turn() and pile.n == 1
    assert loop.turn() and pile.n == 0
    loop.remove_queue(pile)
    pile.n = 5
    loop.turn(0)
    assert pile.n == 5


def test_what_comes_into_a_queue_while_sending_is_not_slept_on(loop):
    """The queues are looked at again before a wait."""
    pile = Pile(0)
    loop.add_queue(pile)

    def send() -> bool:
        if loop.n_turns == 0:
            pile.n = 1
        return False

    loop.add_turn(send)
    loop.turn(0)
    assert loop.turn(3600), "the second turn does not wait an hour"
    assert pile.n == 0


def test_phases_are_timed(loop):
    """Every phase has its time, for the metrics."""
    loop.turn(0)
    assert set(loop.phase_s) == {"wait", "descriptors", "queues", "timers", "turns"}
    assert all(seconds >= 0 for seconds in loop.phase_s.values())


def test_descriptors_that_take_long_have_a_turn_each():
    """However much many descriptors bring, timers run between them, and each is called before any is called again."""
    clock = ManualClock()
    loop = Loop(clock)
    pairs = [socket.socketpair() for _ in range(7)]
    calls, ticks = [], []

    def call(number: int) -> None:
        calls.append(number)
        clock.advance(0.006)

    def tick() -> None:
        ticks.append(len(calls))
        loop.call_later(0.001, tick)

    try:
        for number, (here, there) in enumerate(pairs):
            there.send(b"x")
            loop.add_reader(here.fileno(), lambda number=number: call(number))
        tick()
        while len(calls) < 70:
            loop.turn(0)
        assert all(sorted(calls[at : at + 7]) == list(range(7)) for at in range(0, 70, 7))
        assert ticks[:10] == list(range(0, 20, 2))
    finally:
        loop.close()
        for ends in pairs:
            ends[0].close(), ends[1].close()
