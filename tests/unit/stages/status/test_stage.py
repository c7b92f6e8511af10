"""The status stage as it runs: a real HTTP server beside a stage that answers on a real control socket."""

import io
import json
import socket
import urllib.request

import pytest

from common.bus.bus import Bus
from common.bus.memory_transport import MemoryHub, MemoryTransport
from common.config.load import loads
from common.runtime.clock import SystemClock
from common.runtime.log import Log
from common.runtime.loop import Loop
from common.runtime.metrics import Metrics
from common.runtime.stage import Context, Skeleton
from stages.status.http import MAX_CONNECTIONS
from stages.status.stage import StatusStage


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def url(tmp_path):
    """Run the stage and return where its page is."""
    port = free_port()
    config = loads(
        f'[router]\nasn = 65000\nrouter_id = "10.77.0.1"\nrun_dir = "{tmp_path}"\n'
        f'[status]\nlisten = "127.0.0.1:{port}"\n'
    )
    clock = SystemClock()
    loop, log = Loop(clock), Log("status", stream=io.StringIO())
    bus = Bus(tmp_path, "status", "0", loop, MemoryTransport(MemoryHub(), loop), log)
    context = Context(clock, loop, bus, Metrics("status"), log, 1)
    skeleton = Skeleton(StatusStage(config, "0", context), context)
    skeleton.start()
    yield f"http://127.0.0.1:{port}"
    skeleton.drain()
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def test_the_page_and_its_data_are_served(url):
    """The page comes over HTTP and so does the picture, with nobody else running; the port is free afterwards."""
    assert "<title>Headrace</title>" in get(f"{url}/")
    assert json.loads(get(f"{url}/api/v1/stages"))["stages"] == []
    assert "headrace_status_answering_flag" in get(f"{url}/metrics")


def test_connections_that_ask_nothing_keep_nobody_out(url):
    """However many connections bring half a request, the page is served."""
    port = int(url.rpartition(":")[2])
    held = []
    try:
        for _ in range(3 * MAX_CONNECTIONS):
            held.append(socket.create_connection(("127.0.0.1", port), timeout=5))
            held[-1].sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Half: ")
        assert "<html" in get(url)
    finally:
        for each in held:
            each.close()
