"""What a confined process can no longer do; each in a process of its own, as there is no way back."""

import ctypes
import os
import signal
import socket
import tempfile
import traceback
from pathlib import Path

import pytest

from common.runtime import confinement
from common.runtime.processes import take_precedence
from common.runtime.rights import CAP_NET_ADMIN, capabilities, keep_only
from common.runtime.supervisor import die_with_parent

CAP_SYS_NICE = 23
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def in_a_process(function) -> None:
    """Run a function in a child; fail if it does."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def death_signal() -> int:
    """Return the signal this process gets when its parent dies, 0: none."""
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(confinement.PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0)
    return found.value


def can_open(family: int, kind: int = socket.SOCK_STREAM) -> bool:
    try:
        socket.socket(family, kind).close()
    except OSError:
        return False
    return True


def test_only_the_families_of_a_stage_are_left():
    """The middle of the pipeline opens Unix sockets, nothing else; raw sockets are left to netlink alone."""

    def middle():
        assert confinement.allow_sockets([socket.AF_UNIX])
        assert can_open(socket.AF_UNIX) and can_open(socket.AF_UNIX, socket.SOCK_DGRAM)
        assert not any(map(can_open, (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET)))

    def speaker():
        assert confinement.allow_sockets([socket.AF_UNIX, socket.AF_INET, socket.AF_NETLINK])
        assert can_open(socket.AF_INET) and can_open(socket.AF_NETLINK, socket.SOCK_RAW)
        assert not can_open(socket.AF_INET, socket.SOCK_RAW) and not can_open(socket.AF_PACKET, socket.SOCK_RAW)

    in_a_process(middle)
    in_a_process(speaker)


def test_only_the_run_directory_is_written(tmp_path):
    """All can be read still; files are made and removed in one place."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    inside.mkdir()

    def confined():
        assert confinement.write_only_in([inside])
        (inside / "file").write_text("x")
        (inside / "file").unlink()
        with pytest.raises(PermissionError):
            outside.write_text("x")
        assert open("/etc/passwd").read()

    in_a_process(confined)


def test_capabilities_are_given_up_for_good():
    """What is kept is what was named."""

    def confined():
        keep_only((CAP_NET_ADMIN,))
        assert capabilities() == 1 << CAP_NET_ADMIN
        with pytest.raises(PermissionError):
            os.setuid(1)

    in_a_process(confined)


@pytest.mark.parametrize("may", [True, False])
def test_precedence_is_taken_where_it_may_be(may):
    """A nice value is lowered with CAP_SYS_NICE, and never raised; without, all is as it was."""

    def confined():
        may_now = may and capabilities() >> CAP_SYS_NICE & 1
        if not may:
            keep_only((CAP_NET_ADMIN,))
        for wanted in (-10, -5, 0):
            take_precedence(wanted)
            assert os.getpriority(os.PRIO_PROCESS, 0) == (-10 if may_now else 0)

    in_a_process(confined)


def test_another_user_keeps_the_rights_it_is_left():
    """The run directory goes with it, what is named next is in effect again; it ends with its parent all the same."""
    run_dir = Path(tempfile.mkdtemp(prefix="hr"))

    def confined():
        before = capabilities()
        die_with_parent(os.getppid())
        confinement.become("nobody", run_dir)
        assert death_signal() == signal.SIGKILL
        assert os.geteuid() != 0 and run_dir.stat().st_uid == os.geteuid()
        assert capabilities("CapPrm") == before and not capabilities()
        keep_only((CAP_NET_ADMIN,))
        assert capabilities() == 1 << CAP_NET_ADMIN

    in_a_process(confined)
    run_dir.rmdir()


def test_a_user_there_is_not_is_said(tmp_path):
    """Its name is in the error."""
    with pytest.raises(LookupError, match="nosuch"):
        confinement.become("nosuch", tmp_path)
