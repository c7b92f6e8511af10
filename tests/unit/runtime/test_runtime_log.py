"""Log, metrics and clock."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.runtime.clock import ManualClock
from common.runtime.log import LINES_PER_INTERVAL, Log, event
from common.runtime.metrics import Metrics


def make(**more) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return Log("rib.0", stream=stream, clock=ManualClock(), **more), stream


def test_a_text_line_names_time_level_stage_event_and_fields():
    """One event is one line."""
    log, stream = make()
    event(log, "session-up", neighbor="transit a", octets=b"\xff\x00", n=3)
    assert stream.getvalue() == '1700001000.000000 INFO rib.0 session-up neighbor="transit a" octets=ff00 n=3\n'


def test_a_json_line_is_json():
    """The same event as an object."""
    log, stream = make(form="json")
    log.event("session-up", "warning", neighbor="a", octets=b"\x01")
    assert json.loads(stream.getvalue()) == {
        "time": 1700001000.0,
        "level": "warning",
        "stage": "rib.0",
        "event": "session-up",
        "neighbor": "a",
        "octets": "01",
    }


@given(st.text() | st.binary() | st.floats() | st.none())
def test_no_value_breaks_the_line(value):
    """Whatever a peer puts into a field, an event stays one line."""
    for form in ("text", "json"):
        log, stream = make(form=form)
        log.event("x", value=value)
        assert len(stream.getvalue().splitlines()) == 1


def test_every_event_is_counted_and_a_flood_is_cut():
    """Counts are exact, lines are few, and the next line says how many were left out."""
    counted = []
    log, stream = make(count=counted.append)
    for _ in range(1000):
        log.event("garbage")
    log.event("other")
    assert log.counts == {"garbage": 1000, "other": 1} and len(counted) == 1001
    assert len(stream.getvalue().splitlines()) == LINES_PER_INTERVAL + 1
    log._clock.advance(60)
    log.event("garbage")
    assert f"left_out={1000 - LINES_PER_INTERVAL}" in stream.getvalue().splitlines()[-1]


def test_levels_hide_lines_not_counts():
    """A level that is not written is counted all the same."""
    log, stream = make(level="warning")
    log.event("quiet")
    log.event("loud", "error")
    assert "quiet" not in stream.getvalue() and "loud" in stream.getvalue()
    assert log.counts["quiet"] == 1
    with pytest.raises(ValueError):
        log.set_level("shout")


def test_a_log_nobody_reads_ends_nothing():
    """A broken pipe behind the log is counted, not raised."""
    log, stream = make()
    stream.close()
    log.event("x")
    assert log.counts["log-unwritable"] == 1


def test_metrics_have_full_names_and_are_made_once():
    """The stage's name stands in every metric, and gauges can be read when asked."""
    metrics = Metrics("rib")
    metrics.counter("batches", "Batches.", ["kind"]).labels("best").inc(3)
    assert metrics.counter("batches", "Batches.", ["kind"]) is metrics.counter("batches", "Batches.", ["kind"])
    size = metrics.gauge("prefixes", "Prefixes.")
    metrics.before_scrape(lambda: size.set(42))
    text = metrics.text()
    assert 'headrace_rib_batches_total{kind="best"} 3.0' in text
    assert "headrace_rib_prefixes 42.0" in text


def test_a_clock_turned_by_hand_does_not_go_back():
    """Time only passes."""
    clock = ManualClock(5)
    clock.advance(1.5)
    assert clock.monotonic() == 6.5
    with pytest.raises(ValueError):
        clock.advance(-1)
