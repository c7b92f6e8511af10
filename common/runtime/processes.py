"""What the kernel tells of processes, and what it allows this one.

Owns nothing; reads /proc and the limits of resources.
"""

import contextlib
import ctypes
import os
import resource

RESERVED_DESCRIPTORS = 4096
"""Descriptors that connections from outside are not to have, or half of all if that is less.

ZeroMQ ends the process when it gets none for one that connects, and takes in many before it is known of the first.
"""
MAX_DESCRIPTORS = 1 << 16
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
KEPT_OCTETS = 8 << 20
"""Freed memory that is not given back to the kernel: what batches take, again and again."""
MAPPED_OCTETS = 4 << 20
"""Allocations from this size on, which are tables, have pages of their own and are given back."""


def raise_descriptor_limit() -> None:
    """Take as many descriptors as this process may have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_freed_memory() -> None:
    """Have the C library keep the memory of batches for the next ones: the kernel has to clear each page it gives.

    Only the GNU library can be told so (mallopt(3)); others do what they do.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_TRIM_THRESHOLD, KEPT_OCTETS)
        mallopt(M_MMAP_THRESHOLD, MAPPED_OCTETS)


def take_precedence(nice: int) -> None:
    """Lower this process's nice value to `nice`, if it may: not without CAP_SYS_NICE, and never the other way."""
    if nice < os.getpriority(os.PRIO_PROCESS, 0):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, nice)


def is_reserved(descriptor: int) -> bool:
    """Tell whether a descriptor, the lowest that was free, is one of the last ones."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(RESERVED_DESCRIPTORS, soft // 2)


def has_descriptors() -> bool:
    """Tell whether a descriptor is free that is none of the last ones."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(descriptor)
    return not is_reserved(descriptor)


def memory_octets(pid: int | None) -> int | None:
    """Return the proportional set size of a process, None where the kernel does not tell us."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None
