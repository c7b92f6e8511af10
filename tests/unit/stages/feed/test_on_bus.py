"""The feed as a speaker on the bus: what it feeds comes out of the rib."""

import io

import pytest

from common.bus.bus import Bus
from common.bus.memory_transport import MemoryTransport
from common.bus.zmq_transport import ZmqTransport
from common.runtime.log import Log
from common.runtime.loop import Loop
from stages.feed import on_bus
from stages.feed.neighbor import Plan
from stages.feed.on_bus import BusSpeaker, NotThere, feed_bus
from stages.feed.source import Synthetic
from tests.pipeline.harness import Pipeline

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "/run/headrace"
listen = []

[[neighbor]]
name = "sender"
address = "10.77.0.10"
asn = 64601
passive = true
import = { default = "accept" }
"""


def test_tables_reach_the_rib():
    """A sender's table, fed without a session, is chosen from by the rib."""
    with Pipeline(CONFIG, stages=("policy", "rib")) as pipeline:
        loop = pipeline.loops["speaker"] = Loop(pipeline.clock)
        run_dir = pipeline.skeletons["policy"].context.bus.run_dir
        log = Log("feed", stream=io.StringIO())
        bus = Bus(run_dir, "speaker", "0", loop, MemoryTransport(pipeline.hub, loop), log)
        plan = Plan("sender", "10.77.0.10", 64601, "10.77.0.10")
        speaker = BusSpeaker(bus, [(plan, Synthetic(size=1500))])
        loop.add_turn(bus.pump)
        loop.add_turn(speaker.turn)
        pipeline.settle()
        pipeline.wait(2)
        assert speaker.is_fed and speaker.lag == 0 and speaker.n_fed == 1500
        tables = pipeline.ask("rib", "summary")["tables"]
        assert sum(each["n_chosen"] for each in tables.values()) == 1500
        bus.close()
        pipeline.loops.pop("speaker").close()


def test_a_place_that_is_taken(tmp_path):
    """Where a speaker serves already, or there is no directory, that is said; the speaker's socket stays."""
    loop = Loop()
    speaker = Bus(tmp_path, "speaker", "0", loop, ZmqTransport(loop), Log("speaker", level="error"))
    try:
        speaker.serve()
        with pytest.raises(NotThere, match="another process serves here.*speaker.0.bus: stop that speaker first"):
            feed_bus(tmp_path, [], 0.1)
        assert (tmp_path / "speaker.0.bus").is_socket()
    finally:
        speaker.close()
    with pytest.raises(NotThere, match="no such directory"):
        feed_bus(tmp_path / "nowhere", [], 0.1)


def test_a_pipeline_that_is_not_there(tmp_path, capsys, monkeypatch):
    """A speaker nobody reads says so while it waits, and fails at its time limit."""
    monkeypatch.setattr(on_bus, "PATIENCE_S", 0.0)
    assert feed_bus(tmp_path, [], 0.1) == 1
    said = capsys.readouterr().err
    assert "nobody reads in" in said and "failed: 0 routes fed, not all" in said
