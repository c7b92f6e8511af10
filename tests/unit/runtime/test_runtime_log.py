"""Log, metrics and clock."""

import io
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.runtime.clock import ManualClock
from common.runtime.log import LINES_PER_INTERVAL, Log, event
from common.runtime.metrics import Metrics


def make(**more) -> tuple[Log, io.StringIO]:
    stream = io.StringIO()
    return Log("rib.0", stream=stream, clock=ManualClock(), **more), stream


@pytest.fixture
def zone(monkeypatch):
    """Set the machine's time zone, for one test."""

    def to(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield to
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("UTC", "2023-11-14T22:30:00.000+00:00"),
        ("XXX-5:30", "2023-11-15T04:00:00.000+05:30"),
        ("XXX+8", "2023-11-14T14:30:00.000-08:00"),
    ],
)
def test_time_is_local_and_says_how_far_from_utc(zone, name, wanted):
    """A line is understood on the machine, and beside those of a machine elsewhere (RFC 3339 §5.6)."""
    zone(name)
    log, stream = make()
    event(log, "x")
    assert stream.getvalue().split()[0] == wanted
    log._clock.advance(0.0625)
    event(log, "x")
    assert stream.getvalue().splitlines()[1].split()[0] == wanted.replace(".000", ".062")


def test_a_text_line_names_time_level_stage_event_and_fields(zone):
    """One event is one line."""
    zone("UTC")
    log, stream = make()
    event(log, "session-up", neighbor="transit a", octets=b"\xff\x00", n=3)
    time_of_day, line = stream.getvalue().split(" ", 1)
    assert time_of_day.startswith("2023-11-14T22:30:00.000")
    assert line == 'INFO rib.0 session-up neighbor="transit a" octets=ff00 n=3\n'


@pytest.mark.parametrize(("level", "priority"), [("debug", 7), ("info", 6), ("warning", 4), ("error", 3)])
def test_the_journal_is_told_the_priority_and_keeps_the_time(tmp_path, monkeypatch, level, priority):
    """Only where it reads this very stream, and text alone: a line of JSON stays one."""
    for number, (is_there, form) in enumerate([(True, "text"), (False, "text"), (True, "json")]):
        with (tmp_path / f"log{number}").open("w+") as stream:
            found = os.fstat(stream.fileno())
            monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino + (not is_there)}")
            Log("rib.0", stream=stream, clock=ManualClock(), level="debug", form=form).event("x", level, n=1)
            stream.seek(0)
            line = stream.read()
        if is_there and form == "text":
            assert line == f"<{priority}>{level.upper()} rib.0 x n=1\n"
        else:
            assert line[0] != "<" and ("T" in line or json.loads(line)["time"])


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
