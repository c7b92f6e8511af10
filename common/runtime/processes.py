"""What the kernel tells of other processes.

Owns nothing; reads /proc.
"""


def memory_octets(pid: int | None) -> int | None:
    """Return the proportional set size of a process, None where the kernel does not tell us."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return None
