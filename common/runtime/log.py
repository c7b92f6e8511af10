"""The log: one line an event, text or JSON, and a count of each event.

    2026-03-01T07:03:20.125+01:00 WARNING speaker.0 maximum-prefixes-near neighbor=transit-a n_routes=900 limit=1000

Where the systemd journal reads the lines it keeps the time of each itself: a text line then begins with its priority
instead, as sd-daemon(3) has it, which the journal takes off, so that `journalctl -p warning` finds what it should.

Owns the counts, so a log line and its metric cannot part: both come from one call. A flood of one event is cut to a
few lines in each interval; the counts stay exact, and the next line says how many were left out.
"""

import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from typing import IO, Any

from common.runtime.clock import Clock, SystemClock

LEVELS = ("debug", "info", "warning", "error")
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3}  # of syslog
LINES_PER_INTERVAL = 20
INTERVAL_S = 10.0
MAX_VALUE_CHARACTERS = 2000
UNWRITABLE = "log-unwritable"


class Log:
    """Writes events of one stage."""

    def __init__(
        self,
        stage: str = "",
        *,
        form: str = "text",
        level: str = "info",
        stream: IO[str] | None = None,
        clock: Clock | None = None,
        count: Callable[[str], None] | None = None,
    ):
        self.stage = stage
        self.form = form
        self.level = level
        self.counts: dict[str, int] = {}
        self._stream = stream
        self._is_for_journal = is_journal(stream or sys.stderr)
        self._clock = clock or SystemClock()
        self._count = count
        self._recent: dict[str, list] = {}  # name -> [interval start, lines written, lines left out]

    def set_level(self, level: str) -> None:
        """Write only events of this level and above; raise ValueError for a level that is none."""
        LEVELS.index(level)
        self.level = level

    def event(self, name: str, level: str = "info", **fields: Any) -> None:
        """Count an event and write its line. `name` is fixed text such as "session-up"; what varies goes in fields."""
        self.counts[name] = self.counts.get(name, 0) + 1
        if self._count is not None:
            self._count(name)
        if LEVELS.index(level) < LEVELS.index(self.level):
            return
        n_left_out = self._pass(name)
        if n_left_out is None:
            return
        if n_left_out:
            fields["left_out"] = n_left_out
        line = self._json(name, level, fields) if self.form == "json" else self._text(name, level, fields)
        stream = self._stream or sys.stderr
        try:
            stream.write(line + "\n")
            stream.flush()
        except (OSError, ValueError):
            # A log that nobody can read any more must not end the routing; status and metrics tell of it.
            self.counts[UNWRITABLE] = self.counts.get(UNWRITABLE, 0) + 1
            if self._count is not None:
                self._count(UNWRITABLE)

    def _pass(self, name: str) -> int | None:
        """Return how many lines were left out since the last one, or None if this one is to be left out too."""
        now = self._clock.monotonic()
        recent = self._recent.get(name)
        if recent is None:
            recent = self._recent[name] = [now, 0, 0]
        if now - recent[0] >= INTERVAL_S:
            n_left_out = recent[2]
            recent[:] = [now, 1, 0]
            return n_left_out
        if recent[1] >= LINES_PER_INTERVAL:
            recent[2] += 1
            return None
        recent[1] += 1
        return 0

    def _text(self, name: str, level: str, fields: dict) -> str:
        words = [level.upper(), self.stage or "-", name, *(f"{key}={_plain(value)}" for key, value in fields.items())]
        text = " ".join(words)
        return f"<{PRIORITIES[level]}>{text}" if self._is_for_journal else f"{local_time(self._clock.wall())} {text}"

    def _json(self, name: str, level: str, fields: dict) -> str:
        record = {"time": round(self._clock.wall(), 6), "level": level, "stage": self.stage, "event": name, **fields}
        return json.dumps(record, default=_plain, separators=(",", ":"))


def event(log: Log, name: str, level: str = "info", **fields: Any) -> None:
    """Count an event and write its line (see Log.event)."""
    log.event(name, level, **fields)


def local_time(wall_s: float) -> str:
    """Return a time as this machine's local one with its distance from UTC, to the millisecond (RFC 3339)."""
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(timespec="milliseconds")


def is_journal(stream: IO[str]) -> bool:
    """Tell whether the systemd journal reads what is written to a stream: JOURNAL_STREAM, see systemd.exec(5)."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _plain(value: Any) -> str:
    """Return a value as one word: octets in hex, text quoted where it needs to be, never a line break."""
    if isinstance(value, bytes | bytearray | memoryview):
        text = bytes(value).hex()
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = str(value)
    if len(text) > MAX_VALUE_CHARACTERS:
        text = text[:MAX_VALUE_CHARACTERS] + "..."
    if not text or not text.isprintable() or any(character in text for character in " \"'="):
        text = json.dumps(text)
    return text
