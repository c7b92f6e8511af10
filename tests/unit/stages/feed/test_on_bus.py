"""The feed as a speaker on the bus: what it feeds comes out of the rib."""

import io

from common.bus.bus import Bus
from common.bus.memory_transport import MemoryTransport
from common.runtime.log import Log
from common.runtime.loop import Loop
from stages.feed.neighbor import Plan
from stages.feed.on_bus import BusSpeaker
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
