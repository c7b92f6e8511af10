"""The flight recorder: what a process noted is there when the process is gone."""

import os
import signal

from common.bus.batch import Batch, Position
from common.bus.schema import RouteChanges
from common.runtime.recorder import Recorder

BATCH = Batch(
    RouteChanges, {}, {"sources": [{"name": "transit-a"}]}, "adj-rib-in/ipv4-unicast", Position("e1", 9, -1), first=7
)


def end_of(work) -> None:
    """Run `work` in a process that then ends without a word."""
    pid = os.fork()
    if pid == 0:
        work()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)


def test_a_note_outlives_its_process():
    """The batch a process was handling when it was killed, and its last beat, are read by its parent."""
    recorder = Recorder()
    end_of(lambda: (recorder.beat(12.5), recorder.note(BATCH)))
    assert recorder.last_beat == 12.5
    assert recorder.read() == {
        "channel": "adj-rib-in/ipv4-unicast", "epoch": "e1", "sequence": 7, "cursor": -1, "source": "transit-a",
    }  # fmt: skip


def test_what_is_done_leaves_no_note():
    """A process that ends between two batches was handling nothing; a new one starts with a clean page."""
    recorder = Recorder()
    end_of(lambda: (recorder.note(BATCH), recorder.done()))
    assert recorder.read() is None
    end_of(lambda: (recorder.beat(1.0), recorder.note(BATCH)))
    recorder.clear()
    assert recorder.read() is None and recorder.last_beat == 0


def test_a_page_of_garbage_is_no_note():
    """Whatever a crash has left in the page does not hurt who reads it."""
    recorder = Recorder()
    for octets in (b"\xff\xff" + b"\xc1" * 60, b"\x05\x00" + b"\xc1" * 60, b"\x01\x00\x07"):
        recorder._page[8 : 8 + len(octets)] = octets
        assert recorder.read() is None
