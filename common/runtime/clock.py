"""The clocks: the system's, and one that tests turn by hand.

The only module that asks the system for the time.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What stages may ask about time."""

    def monotonic(self) -> float:
        """Return seconds that never go back; only differences mean something."""

    def wall(self) -> float:
        """Return seconds since 1970, for log lines and show."""


class SystemClock:
    """The system's clocks."""

    is_manual = False
    monotonic = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that stands still until a test advances it."""

    is_manual = True

    def __init__(self, now_s: float = 1000.0):
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError("time does not go back")
        self.now_s += seconds
