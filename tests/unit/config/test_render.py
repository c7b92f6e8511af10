"""The example and the reference, made from the schema."""

import re

from common.config import loads
from common.config.keys import keys_of
from common.config.render import example, reference
from common.config.schema import BLOCKS, SECTIONS


def test_example_loads():
    """The example is a correct configuration as it is."""
    assert loads(example()).neighbors["transit-a"].import_.add_communities == ((65000, 100),)


def test_commented_lines_load_too():
    """Every key that the example shows commented out is valid at the value shown there."""
    text = re.sub(r"(?m)^# (?=\w+ = |    |\]$|\[\[)", "", example())
    assert loads(text).supervisor.stop_time_s == 10.0


def test_every_key_is_written_down():
    """No key is missing from the example or the reference, and each has a sentence."""
    for section in (*SECTIONS.values(), *BLOCKS.values()):
        for name, (_, entry) in keys_of(section).items():
            assert re.search(rf"(?m)^(# )?{name} = ", example())
            assert f"| `{name}` |" in reference()
            assert entry.sentence.endswith(".")
