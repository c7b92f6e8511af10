"""Puts one question to a running stage: what commands use, so it imports nothing that is slow to import.

Owns one ZeroMQ socket for as long as the question lasts, and the process's context for questions. The form of question
and answer is in control.py.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import zmq

CONNECT_S = 0.5
"""A stage on this machine is there within this time, or it does not run; one that is being restarted may be late."""


class ControlError(Exception):
    """The question cannot be answered; the text says why, `errors` are those of a configuration that is wrong."""

    def __init__(self, reason: str = "", errors: Iterable[str] = ()):
        super().__init__(reason)
        self.errors = list(errors)


class Absent(TimeoutError):
    """Nobody is there to be asked."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Keys for a question to another machine: the asker's own two, and the public one of whoever is asked."""

    public: bytes
    secret: bytes = field(repr=False)
    server: bytes = b""


def ask(
    run_dir: str | Path, stage: str, instance: str = "0", question: str = "status", timeout_s: float = 2.0, **arguments
) -> dict[str, Any]:
    """Put a question to a running stage and return its answer.

    Raises ControlError with the stage's reason, TimeoutError when no answer comes in time, Absent if none can come.
    """
    try:
        return ask_at(f"ipc://{run_dir}/{stage}.{instance}.control", question, timeout_s, **arguments)
    except Absent:
        raise Absent(f"{stage}.{instance} does not run: nobody is at its socket in {run_dir}") from None
    except TimeoutError:
        raise TimeoutError(f"{stage}.{instance} did not answer within {timeout_s:g} s") from None


def ask_at(
    endpoint: str, question: str = "status", timeout_s: float = 2.0, curve: Curve | None = None, **arguments
) -> dict[str, Any]:
    """Put a question to whoever answers at an endpoint; see `ask`."""
    octets = _exchange(endpoint, msgpack.packb({"ask": question, **arguments}), timeout_s, curve)
    if octets is None:
        raise TimeoutError(f"no answer from {endpoint} within {timeout_s:g} s")
    answer = msgpack.unpackb(octets, strict_map_key=False)
    if "error" in answer:
        raise ControlError(answer["error"], answer.get("errors", ()))
    return answer


_contexts: dict[int, zmq.Context] = {}


def _context() -> zmq.Context:
    """Return this process's context, made once: it has two threads. One inherited by fork is left alone."""
    return _contexts.get(os.getpid()) or _contexts.setdefault(os.getpid(), zmq.Context())


def _exchange(endpoint: str, octets: bytes, timeout_s: float, curve: Curve | None) -> bytes | None:
    """Send one frame and return the one that answers it, None if none does in time."""
    with _context().socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, 10)
        # Sent over a connection that stands, or not at all: whoever has died has left a socket at which nobody listens.
        socket.set(zmq.IMMEDIATE, 1)
        is_local = endpoint.startswith("ipc://")
        socket.set(zmq.SNDTIMEO, int(min(timeout_s, CONNECT_S if is_local else timeout_s) * 1000))
        socket.set(zmq.IPV6, int(endpoint.startswith("tcp://")))
        if curve is not None:
            socket.set(zmq.CURVE_SERVERKEY, curve.server)
            socket.set(zmq.CURVE_PUBLICKEY, curve.public)
            socket.set(zmq.CURVE_SECRETKEY, curve.secret)
        socket.connect(endpoint)
        try:
            socket.send(octets)
        except zmq.Again:
            raise Absent(f"nobody is at {endpoint}") from None
        while socket.poll(int(timeout_s * 1000)):
            answer = socket.recv_multipart()
            if len(answer) == 1 and answer[0]:  # an empty one only asks whether we are still there
                return answer[0]
    return None


def new_keys() -> tuple[bytes, bytes]:
    """Return a new pair of keys, (public, secret), 40 characters each."""
    return zmq.curve_keypair()


def public_of(secret: bytes) -> bytes:
    """Return the public key of a secret one; raise ValueError if it is none."""
    try:
        return zmq.curve_public(secret)
    except zmq.ZMQError:
        raise ValueError("no secret key") from None
