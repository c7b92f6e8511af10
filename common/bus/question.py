"""Puts one question to a running stage: what commands use, so it imports nothing that is slow to import.

Owns one ZeroMQ socket for as long as the question lasts. The form of question and answer is in control.py.
"""

from pathlib import Path
from typing import Any

import msgpack
import zmq


class ControlError(Exception):
    """The question cannot be answered; the text says why."""


def ask(
    run_dir: str | Path, stage: str, instance: str = "0", question: str = "status", timeout_s: float = 2.0, **arguments
) -> dict[str, Any]:
    """Put a question to a running stage and return its answer.

    Raises ControlError with the stage's reason, TimeoutError when no answer comes in time.
    """
    endpoint = f"ipc://{run_dir}/{stage}.{instance}.control"
    octets = _exchange(endpoint, msgpack.packb({"ask": question, **arguments}), timeout_s)
    if octets is None:
        raise TimeoutError(f"{stage}.{instance} did not answer within {timeout_s:g} s")
    answer = msgpack.unpackb(octets, strict_map_key=False)
    if "error" in answer:
        raise ControlError(answer["error"])
    return answer


def _exchange(endpoint: str, octets: bytes, timeout_s: float) -> bytes | None:
    """Send one frame and return the one that answers it, None if none does in time."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.RECONNECT_IVL, 10)
        socket.set(zmq.SNDTIMEO, int(timeout_s * 1000))
        socket.connect(endpoint)
        socket.send(octets)
        while socket.poll(int(timeout_s * 1000)):
            answer = socket.recv_multipart()
            if len(answer) == 1 and answer[0]:  # an empty one only asks whether we are still there
                return answer[0]
    return None
