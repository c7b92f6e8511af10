"""Confines a process to what its stage needs, as the systemd units do: which sockets it may open, where it may write.

Owns the system calls for that, and the change of user. Never decides what a stage needs: its class says so
(`Stage.RIGHTS`, `Stage.SOCKETS`). Capabilities are in rights.py. What the kernel does not know is left out, and said.

The filter is one of seccomp, for every thread: socket(2) of another family fails with EAFNOSUPPORT, as do raw sockets
of the families left but netlink. Writing is confined by Landlock, for the thread that calls and those it starts later.

Sources: seccomp(2), landlock(7), capabilities(7), prctl(2).
"""

import ctypes
import errno
import os
import platform
import pwd
import socket
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final

PR_GET_PDEATHSIG, PR_SET_PDEATHSIG = 2, 1
PR_SET_KEEPCAPS: Final = 8
PR_SET_NO_NEW_PRIVS: Final = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446  # the same on every machine
LANDLOCK_RULE_PATH_BENEATH: Final = 1
# WRITE_FILE, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, _DIR, _REG, _SOCK, _FIFO, _BLOCK, _SYM: all since the first version.
LANDLOCK_WRITE: Final = 1 << 1 | sum(1 << bit for bit in range(4, 13))
LANDLOCK_REFER, LANDLOCK_TRUNCATE = 1 << 13, 1 << 14

SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1
SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO = 0x7FFF0000, 0x00050000
BPF_LOAD_WORD, BPF_AND, BPF_RETURN = 0x20, 0x54, 0x06
BPF_JUMP, BPF_JUMP_EQUAL, BPF_JUMP_AT_LEAST = 0x05, 0x15, 0x35
AT_NUMBER, AT_MACHINE, AT_FIRST, AT_SECOND = 0, 4, 16, 24  # in struct seccomp_data, little-endian
SOCK_TYPE_MASK: Final = 0xF
IO_URING_SETUP: Final = 425  # the same on every machine
FIRST_X32_NUMBER: Final = 0x40000000

# machine -> (AUDIT_ARCH_..., number of socket(2), number of seccomp(2))
MACHINES: Final = {"x86_64": (0xC000003E, 41, 317), "aarch64": (0xC00000B7, 198, 277)}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def become(name: str, run_dir: Path) -> None:
    """Go on as the user `name`; the run directory becomes the user's if it is ours.

    The capabilities of now stay permitted; those that are to be in effect again are named next (rights.keep_only).

    Raises LookupError if there is no such user, PermissionError if this process may not become it.
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"there is no user {name!r}") from None
    if os.geteuid() == user.pw_uid:
        return
    if run_dir.stat().st_uid == os.geteuid():
        os.chown(run_dir, user.pw_uid, user.pw_gid)
    death_signal, parent = ctypes.c_int(), os.getppid()
    _libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(death_signal), 0, 0, 0)
    _libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.initgroups(name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    # A change of user takes this away (prctl(2)); without it a stage would outlive its supervisor.
    _libc.prctl(PR_SET_PDEATHSIG, death_signal.value, 0, 0, 0)
    if death_signal.value and os.getppid() != parent:
        os._exit(1)  # it died in between


def allow_sockets(families: Iterable[int]) -> bool:
    """Let no thread of this process open sockets of other families again; return False where that cannot be done."""
    if platform.machine() not in MACHINES:
        return False
    program = socket_filter(families)
    number = MACHINES[platform.machine()][2]
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    described = _Program(len(program) // 8, program)
    result = _libc.syscall(number, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, ctypes.byref(described))
    return result == 0


def socket_filter(families: Iterable[int]) -> bytes:
    """Return the filter's program: on socket(2), a family that is not allowed is answered with an error.

    io_uring_setup(2) is refused altogether, as rings open sockets past any filter.
    """
    architecture, number, _ = MACHINES[platform.machine()]
    allowed = sorted(set(families))
    types = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET)
    # Each: (instruction, where to if so, where to if not, operand); "" is the next one.
    lines: list[tuple[int, str, str, int]] = [
        (BPF_LOAD_WORD, "", "", AT_MACHINE),
        (BPF_JUMP_EQUAL, "", "refuse", architecture),  # no other calling convention
        (BPF_LOAD_WORD, "", "", AT_NUMBER),
        (BPF_JUMP_AT_LEAST, "refuse", "", FIRST_X32_NUMBER),
        (BPF_JUMP_EQUAL, "refuse", "", IO_URING_SETUP),
        (BPF_JUMP_EQUAL, "", "allow", number),
        (BPF_LOAD_WORD, "", "", AT_FIRST),
        *((BPF_JUMP_EQUAL, "allow" if family == socket.AF_NETLINK else "type", "", family) for family in allowed),
        (BPF_JUMP, "refuse", "", 0),
        (BPF_LOAD_WORD, "", "", AT_SECOND),
        (BPF_AND, "", "", SOCK_TYPE_MASK),
        *((BPF_JUMP_EQUAL, "allow", "", kind) for kind in types),
        (BPF_RETURN, "", "", SECCOMP_RET_ERRNO | errno.EAFNOSUPPORT),
        (BPF_RETURN, "", "", SECCOMP_RET_ALLOW),
    ]
    places = {"refuse": len(lines) - 2, "allow": len(lines) - 1, "type": len(lines) - 4 - len(types)}
    program = []
    for index, (code, if_so, if_not, operand) in enumerate(lines):
        yes, no = (places[name] - index - 1 if name else 0 for name in (if_so, if_not))
        program.append((code, 0, 0, yes) if code == BPF_JUMP else (code, yes, no, operand))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def write_only_in(directories: Iterable[Path]) -> bool:
    """Let this process write, make and remove files in these directories only; return False where it cannot be done."""
    version = _libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = LANDLOCK_WRITE | (LANDLOCK_REFER if version >= 2 else 0) | (LANDLOCK_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("=Q", handled)
    rules = _libc.syscall(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return False
    try:
        for directory in directories:
            _add_rule(rules, directory, handled)
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return _libc.syscall(LANDLOCK_RESTRICT_SELF, rules, 0) == 0
    finally:
        os.close(rules)


def _add_rule(rules: int, path: Path, access: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            access &= 1 << 1 | LANDLOCK_TRUNCATE
        rule = struct.pack("=Qi", access, place)
        if _libc.syscall(LANDLOCK_ADD_RULE, rules, LANDLOCK_RULE_PATH_BENEATH, rule, 0):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(path))
    finally:
        os.close(place)
