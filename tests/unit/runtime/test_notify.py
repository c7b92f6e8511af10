"""What the service manager is told."""

import socket

import pytest

from common.runtime.notify import Notifier


@pytest.fixture
def manager(tmp_path_factory):
    """A socket as systemd has it."""
    path = tmp_path_factory.mktemp("n") / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(2)
        yield listener, {"NOTIFY_SOCKET": str(path)}


def words(listener) -> list[str]:
    return listener.recv(4096).decode().split("\n")


def test_ready_is_said_once_and_only_in_step(manager):
    """Until then each beat asks for more time; afterwards it feeds the watchdog."""
    listener, environment = manager
    notifier = Notifier(environment)
    assert not environment  # nothing that is started from here speaks for us
    notifier.beat(False, "syncing: waits for rib.0")
    assert words(listener) == ["WATCHDOG=1", "EXTEND_TIMEOUT_USEC=30000000", "STATUS=syncing: waits for rib.0"]
    notifier.beat(True, "in step")
    assert words(listener) == ["WATCHDOG=1", "READY=1", "STATUS=in step"]
    notifier.beat(False, "syncing")
    assert words(listener) == ["WATCHDOG=1", "STATUS=syncing"]
    notifier.stopping()
    assert words(listener) == ["STOPPING=1"]


def test_what_could_not_be_said_is_said_again(tmp_path):
    """A manager that is away for a while, as when it is upgraded, misses nothing."""
    path = tmp_path / "s"
    notifier = Notifier({"NOTIFY_SOCKET": str(path)})
    notifier.beat(True, "in step")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        notifier.beat(True, "in step")
        assert "READY=1" in words(listener)


def test_without_a_manager_nothing_happens():
    """Outside systemd it is silent."""
    notifier = Notifier({})
    notifier.beat(True, "in step")
    assert not notifier.is_heard
