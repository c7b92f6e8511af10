"""Connections that arrive at the wrong speaker."""

import socket

import pytest

from common.runtime.clock import ManualClock
from common.runtime.loop import Loop
from stages.speaker.handover import Handover


@pytest.fixture
def pair(tmp_path):
    """Two speakers' ends on one loop, and what each was given."""
    loop = Loop(ManualClock())
    given: dict[str, list] = {"0": [], "west": []}
    ends = {name: Handover(loop, tmp_path, name, sockets.append) for name, sockets in given.items()}
    yield loop, ends, given
    for end in ends.values():
        end.close()
    for sock in sum(given.values(), []):
        sock.close()
    loop.close()


def test_a_connection_is_passed_on_whole(pair):
    """The other speaker has the same connection, with what was sent meanwhile; the first may close its end."""
    loop, ends, given = pair
    here, there = socket.socketpair()
    assert ends["0"].pass_on(here, "west")
    here.close()
    there.send(b"OPEN")
    while not given["west"]:
        loop.turn()
    assert given["west"][0].recv(10) == b"OPEN" and not given["0"]
    there.close()


def test_a_speaker_that_is_not_there_takes_nothing(pair):
    """Then the connection is refused, as it would be if that speaker listened alone."""
    _, ends, _ = pair
    here, there = socket.socketpair()
    assert not ends["0"].pass_on(here, "east")
    ends["west"].close()
    assert not ends["0"].pass_on(here, "west")
    here.close()
    there.close()


def test_a_file_left_behind_is_in_nobodys_way(pair, tmp_path):
    """A speaker that was killed leaves its socket's file; the next one takes its place."""
    loop, _, _ = pair
    (tmp_path / "speaker.east.accept").write_bytes(b"")
    Handover(loop, tmp_path, "east", lambda sock: None).close()
