"""TCP between link-local addresses, which mean something on one interface only."""

import errno
import time
from types import SimpleNamespace

import pytest

from common.runtime.loop import Loop
from stages.speaker.neighbors import is_from
from stages.speaker.sockets import Attempt, Listener


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


def connect(namespace, loop, local: str, address: str):
    """Dial a listener at `address`; return both ends of the connection, or why there is none."""
    accepted, ended = [], []
    with namespace.entered():
        listener = Listener(loop, address, 0, lambda local, peer: True, accepted.append)
        Attempt(loop, local, address, listener.port, lambda connection, reason: ended.append(connection or reason))
        deadline = time.monotonic() + 10
        while not (ended and (accepted or isinstance(ended[0], str))):
            assert time.monotonic() < deadline
            loop.turn(0.1)
    listener.close()
    return accepted[0] if accepted else None, ended[0]


def test_a_link_local_neighbor_is_called_and_known_by_its_interface(namespace, loop):
    """Listening and dialing take a zone, and a connection is of the neighbor on that interface, of no other."""
    namespace.add_interface("d1")
    for interface in ("d0", "d1"):
        namespace.ip(f"address add fe80::1:1/64 dev {interface} nodad")
        namespace.ip(f"address add fe80::1:2/64 dev {interface} nodad")
    for interface, other in (("d0", "d1"), ("d1", "d0")):
        near, far = connect(namespace, loop, f"fe80::1:2%{interface}", f"fe80::1:1%{interface}")
        assert (near.local, near.peer) == (far.peer, far.local) == (f"fe80::1:1%{interface}", f"fe80::1:2%{interface}")
        here = SimpleNamespace(address=f"fe80::1:2%{interface}", local_address=f"FE80::1:1%{interface}")
        there = SimpleNamespace(address=f"fe80::1:2%{other}", local_address=None)
        assert is_from(here, near.local, near.peer)
        assert not is_from(there, near.local, near.peer)
        near.abort()
        far.abort()


def test_an_interface_that_is_not_there(namespace, loop):
    """Listening says that the interface is missing; dialing ends, and may be tried again."""
    with namespace.entered(), pytest.raises(OSError) as caught:
        Listener(loop, "fe80::1%none", 0, lambda local, peer: True, None)
    assert caught.value.errno == errno.ENODEV
    reasons = []
    Attempt(loop, None, "fe80::1%none", 179, lambda connection, reason: reasons.append(reason))
    loop.turn(0)
    loop.turn(0)
    assert reasons == ["No such device"]
