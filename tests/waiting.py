"""Waiting for what other processes do: for a condition, with a deadline, and never for a time."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

DEADLINE_S = float(os.environ.get("HEADRACE_DEADLINE_S", "30"))
Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value],
    what: str | Callable[[], str],
    deadline_s: float = DEADLINE_S,
) -> Value:
    """Return what `condition` returns once that is true; fail with `what` after the deadline."""
    end = time.monotonic() + deadline_s
    pause = threading.Event()
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline_s:.0f} s: {what if isinstance(what, str) else what()}")
        pause.wait(0.05)
    return value
