"""The flight recorder: a page of memory in which a stage notes that it lives and what it is handling.

Owns that page, which the supervisor has mapped before it forks, so what was noted outlives a process that crashed or
hangs. Never says what is to be done about it.

    0..7   the stage's clock at its last beat, a float
    8..9   how many octets follow; 0: nothing is being handled
    10..   msgpack map: channel, epoch, sequence, cursor, source (a neighbor's name, "" where it is not one alone)
"""

import mmap
import struct
from typing import Any, Final

import msgpack

from common.bus.batch import Batch, Position
from common.bus.parts import by_source

PAGE_OCTETS: Final = 4096
BEAT: Final = struct.Struct("<d")
LENGTH: Final = struct.Struct("<H")
AT_LENGTH: Final = BEAT.size
AT_NOTE: Final = BEAT.size + LENGTH.size
MAX_NOTE_OCTETS: Final = PAGE_OCTETS - AT_NOTE


class Recorder:
    """One stage's page."""

    def __init__(self):
        self.is_careful = False
        """Batches are handled a source at a time, so that what is noted names one neighbor."""
        self._page = mmap.mmap(-1, PAGE_OCTETS)  # anonymous and shared

    # ---- written by the stage -----------------------------------------------------------------------------------

    def beat(self, now: float) -> None:
        """Note that the stage's loop turned at `now`."""
        BEAT.pack_into(self._page, 0, now)

    def parts(self, batch: Batch, before: Position) -> list[Batch]:
        """Return what is to be handled in the place of a batch that follows the position `before`."""
        return by_source(batch, before) if self.is_careful else [batch]

    def note(self, batch: Batch) -> None:
        """Note that a batch is being handled; a crash, or an exception, leaves the note where it is."""
        sources = batch.meta.get("sources", ())
        note = msgpack.packb(
            {
                "channel": batch.channel,
                "epoch": batch.position.epoch,
                "sequence": batch.first,
                "cursor": batch.position.cursor,
                "source": sources[0]["name"] if len(sources) == 1 else "",
            }
        )
        if len(note) <= MAX_NOTE_OCTETS:
            self._page[AT_NOTE : AT_NOTE + len(note)] = note
            LENGTH.pack_into(self._page, AT_LENGTH, len(note))

    def done(self) -> None:
        """Note that nothing is being handled."""
        LENGTH.pack_into(self._page, AT_LENGTH, 0)

    # ---- read by the supervisor ---------------------------------------------------------------------------------

    @property
    def last_beat(self) -> float:
        """When the loop turned last; 0 if it has not yet."""
        return BEAT.unpack_from(self._page)[0]

    def read(self) -> dict[str, Any] | None:
        """Return what was being handled, None if nothing was (or the page makes no sense)."""
        n_octets = LENGTH.unpack_from(self._page, AT_LENGTH)[0]
        if not 0 < n_octets <= MAX_NOTE_OCTETS:
            return None
        try:
            note = msgpack.unpackb(self._page[AT_NOTE : AT_NOTE + n_octets])
        except ValueError:
            return None
        return note if isinstance(note, dict) else None

    def clear(self) -> None:
        """Forget all that was noted, before another process takes over."""
        self._page[:AT_NOTE] = bytes(AT_NOTE)
