"""Sends batches of route requests to the kernel from a thread of its own, so that the next is planned meanwhile.

Owns a netlink socket, its sequence numbers, room for as many batches as are on their way at once, and the thread. The
thread only sends and reads; a kernel works through a batch while it is being sent, with no lock of Python's held. Never
knows what a batch is for.

The thread starts with the first batch that is begun: by then the process has given up the rights it does not need.
"""

import os
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np

from common.kernels import netlink
from stages.fib.netlink_socket import NetlinkSocket, Overrun

ON_THE_WAY = 2  # batches: one the kernel works through, and one that waits for it
AT_ONCE = 32  # requests: so few take the kernel less time than it takes to wake a thread (0.1 ms)
ANSWER_TIME_S = 5.0
UNANSWERED = -1


@dataclass(slots=True)
class Sent:
    """A batch on its way. `errors`: errno of each request (0: done, UNANSWERED: either way), once it is answered."""

    token: Any
    room: np.ndarray
    size: int
    first: int
    errors: np.ndarray
    failure: OSError | None = field(default=None)


class Sender:
    """One way for batches into the kernel: answers come in the order of the batches."""

    def __init__(self, room_octets: int):
        self._socket = NetlinkSocket()
        self.port = self._socket.port
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable when something was answered."""
        self.n_on_the_way = 0
        self._sequence = 1
        self._rooms = [np.zeros(room_octets, np.uint8) for _ in range(ON_THE_WAY)]
        self._begun: SimpleQueue[Sent | None] = SimpleQueue()
        self._ended: SimpleQueue[Sent] = SimpleQueue()
        self._answered: deque[Sent] = deque()
        self._thread: Thread | None = None

    @property
    def has_room(self) -> bool:
        """Whether another batch can be begun."""
        return bool(self._rooms)

    def begin(self, token: Any, n: int, write) -> None:
        """Send the `n` requests that `write(room, first sequence number)` writes; it returns how many octets.

        A few are answered when this returns. token: comes back with the answer.
        """
        sent = self._written(token, n, write)
        if n <= AT_ONCE and not self.n_on_the_way:
            self._exchange(sent)
            self._rooms.append(sent.room)
            self._answered.append(sent)
            return
        if self._thread is None:
            self._thread = Thread(target=self._run, name="fib-sender", daemon=True)
            self._thread.start()
        self._begun.put(sent)
        self.n_on_the_way += 1

    def exchange(self, n: int, write) -> np.ndarray:
        """Send and wait for the answers: errno of each request. Nothing else may be on the way."""
        sent = self._written(None, n, write)
        self._exchange(sent)
        self._rooms.append(sent.room)
        return sent.errors

    def answered(self) -> list[Sent]:
        """Return the batches answered since the last call; raise OSError where one could not be sent."""
        try:
            os.eventfd_read(self.bell)
        except BlockingIOError:
            pass
        while not self._ended.empty():
            self._take(self._ended.get())
        found, self._answered = list(self._answered), deque()
        return found

    def wait(self) -> None:
        """Wait until nothing is on the way."""
        while self.n_on_the_way:
            self._take(self._ended.get())

    def close(self) -> None:
        """Wait for the thread, and give everything back."""
        if self._thread is not None:
            self._begun.put(None)
            self._thread.join()
        self._socket.close()
        os.close(self.bell)

    def _written(self, token: Any, n: int, write) -> Sent:
        if self._sequence + n > 0xFFFFFFFF:  # 0 is left to notifications
            self._sequence = 1
        first, self._sequence = self._sequence, self._sequence + n
        room = self._rooms.pop()
        errors = np.zeros(n, np.int32)
        errors[-1] = UNANSWERED
        return Sent(token, room, write(room, first), first, errors)

    def _take(self, sent: Sent) -> None:
        self.n_on_the_way -= 1
        self._rooms.append(sent.room)
        if sent.failure is not None:
            raise sent.failure
        self._answered.append(sent)

    # ---- in the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (sent := self._begun.get()) is not None:
            try:
                self._exchange(sent)
            except OSError as failure:
                sent.failure = failure
            self._ended.put(sent)
            os.eventfd_write(self.bell, 1)

    def _exchange(self, sent: Sent) -> None:
        errors = sent.errors
        self._socket.send(sent.room[: sent.size])
        try:
            self._read_answers(sent)
        except Overrun:
            self._socket.drain()
            errors[errors == 0] = UNANSWERED
        if errors[-1] == UNANSWERED:
            errors[errors == 0] = UNANSWERED

    def _read_answers(self, sent: Sent) -> None:
        """Read answers until that of the last request is there."""
        socket = self._socket
        while sent.errors[-1] == UNANSWERED:
            lengths = socket.receive()
            if len(lengths):
                netlink.scan_replies(socket.octets, socket.slot_octets, lengths, sent.first, sent.errors)
            elif not socket.wait(ANSWER_TIME_S):
                return
