"""Tables, durations and JSON for the command line."""

import json

import pytest

from common.cli.show.frame import rows_as_table
from common.cli.show.neighbors import NEIGHBORS
from common.cli.text import as_json, duration, pairs, table


def test_table_aligns():
    """Columns are as wide as their widest cell; numbers stand to the right, in groups of three."""
    assert table(("name", "routes"), [("a", 1230000), ("long-name", 5)], " r").splitlines() == [
        "name          routes",
        "a          1 230 000",
        "long-name          5",
    ]


def test_empty_table_has_its_header():
    """No rows: the header alone, so that one sees what there could be."""
    assert table(("name", "state"), []) == "name  state"


def test_only_columns_with_content():
    """A column in which no row has anything is left out."""
    assert rows_as_table(NEIGHBORS, [{"name": "a", "asn": 64500, "last_error": ""}]).splitlines() == [
        "neighbor  AS",
        "a         64500",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0s"), (59.4, "59s"), (61, "1m01s"), (3600, "1h00m"), (90061, "1d01h")],
)
def test_duration(seconds, text):
    """A duration is told in its two greatest units."""
    assert duration(seconds) == text


def test_pairs():
    """Names and values stand in two columns; absent is a dash."""
    assert pairs({"a": None, "long": [1, 2]}) == "a     -\nlong  1 2"


def test_json_of_octets():
    """Octets become hexadecimal."""
    assert json.loads(as_json({"set": b"\x01\xff"})) == {"set": "01ff"}
