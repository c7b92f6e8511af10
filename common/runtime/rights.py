"""Drops rights a process does not need: Linux capabilities.

Owns the system calls. Never decides which rights a stage needs: a stage's class says so (`Stage.RIGHTS`).

Sources: capabilities(7), capset(2), prctl(2).
"""

import ctypes
import errno
import os
import struct
from pathlib import Path

CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_SYS_ADMIN = 10, 12, 21

VERSION_3 = 0x20080522  # _LINUX_CAPABILITY_VERSION_3
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

_libc = ctypes.CDLL(None, use_errno=True)


def keep_only(rights: tuple[int, ...]) -> None:
    """Give up, for good, all capabilities but these; those not held anyway are not asked for.

    Nothing the process starts later gets any of them back, set-user-id or not.
    """
    permitted, effective = capabilities("CapPrm"), capabilities()
    held = permitted | effective
    kept = sum(1 << right for right in rights) & held
    for right in range(64):
        # Refused without CAP_SETPCAP, and beyond the last capability the kernel knows.
        if not kept >> right & 1:
            _libc.prctl(PR_CAPBSET_DROP, right, 0, 0, 0)
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if permitted == effective == kept:  # as under systemd, whose filter does not even let one ask
        return
    low, high = kept & 0xFFFFFFFF, kept >> 32
    header = ctypes.create_string_buffer(struct.pack("=Ii", VERSION_3, 0))
    sets = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, high, high, 0))
    if _libc.capset(header, sets):
        code = ctypes.get_errno()
        raise OSError(code, f"capset: {os.strerror(code) if code else errno.EPERM}")


def capabilities(which: str = "CapEff") -> int:
    """Return the capabilities this process has in effect (or permitted, "CapPrm"), as bits."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1], 16)
    return 0
