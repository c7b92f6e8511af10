"""The kernel as the fib sees it: requests with answers, batches of route changes, dumps, notifications.

Owns three netlink sockets (for requests, for notifications about routes, for those about links and objects) and the
sequence numbers. Never decides anything. Notifications of what the request socket did itself are dropped by the kernel.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from socket import AF_INET, AF_INET6

import numpy as np

from common.kernels import netlink
from stages.fib import messages
from stages.fib.memory import this_world
from stages.fib.messages import Kind
from stages.fib.netlink_socket import NetlinkSocket, Overrun, inside

BATCH_ROUTES = 2048  # measured: larger is not faster, and one batch takes the kernel about 6 ms
ANSWER_TIME_S = 5.0
EVENT_GROUPS = (1, 32)  # RTNLGRP_LINK, _NEXTHOP
ROUTE_GROUPS = (7, 11)  # RTNLGRP_IPV4_ROUTE, _IPV6_ROUTE
UNANSWERED = -1
COMPAT_MODE = Path("/proc/sys/net/ipv4/nexthop_compat_mode")


class Kernel:
    """One table of the kernel, of this network namespace or another by name."""

    def __init__(
        self,
        table: int,
        metric: int,
        batch_routes: int = BATCH_ROUTES,
        protocol: int = messages.PROTOCOL_BGP,
        namespace: str = "",
    ):
        self.table = table
        self.metric = metric
        self.namespace = namespace
        with inside(namespace):
            self.world = this_world()
            self.requests = NetlinkSocket()
            # Of links and objects by themselves, so that a storm of routes cannot hide that a link is down.
            self.events = NetlinkSocket(EVENT_GROUPS, slots=64, slot_octets=8192)
            self.notifications = NetlinkSocket(ROUTE_GROUPS, slots=256, slot_octets=8192)
        for socket in self.listening:
            socket.drop_caused_by(self.requests.port)
        self.n_requests = 0
        self.n_dumps = 0  # of whole tables
        self._sequence = 1
        self._common = np.frombuffer(messages.common_attributes(table, metric), np.uint8)
        self._headers = {
            family: np.frombuffer(messages.route_header(family, table, protocol), np.uint8)
            for family in (AF_INET, AF_INET6)
        }
        self._out = np.zeros(netlink.request_limit(batch_routes, self._common), np.uint8)

    def close(self) -> None:
        """Give the sockets back; what was installed stays."""
        self.requests.close()
        for socket in self.listening:
            socket.close()

    @property
    def listening(self) -> tuple[NetlinkSocket, ...]:
        """Return the sockets that notifications come in by."""
        return self.events, self.notifications

    def compat_mode(self, wanted: int | None = None) -> int:
        """Return net.ipv4.nexthop_compat_mode of the namespace, after setting it to `wanted`; -1: there is none.

        With 1, the kernel's default, a change of a nexthop object is told once more for each route on it: 300 ms for
        300,000 IPv4 routes instead of 0.1 ms.
        """
        try:
            with inside(self.namespace):
                if wanted is not None:
                    COMPAT_MODE.write_text(str(wanted))
                return int(COMPAT_MODE.read_text())
        except (OSError, ValueError):
            return -1

    # ---- requests -----------------------------------------------------------------------------------------------

    def request(self, make) -> tuple[int, str]:
        """Send the one request `make(sequence)` and return the kernel's answer: (errno or 0, its words)."""
        sequence = self._take_sequences(1)
        self.requests.send(make(sequence))
        try:
            for datagram in self._datagrams():
                for kind, flags, answered, body in messages.messages_of(datagram):
                    if kind == Kind.ERROR and answered == sequence:
                        code, text = messages.decode_error(flags, body)
                        return code, text or os.strerror(code)
        except Overrun:
            return errno.ENOBUFS, "the answer was lost"
        return errno.ETIMEDOUT, "no answer"

    def change(self, family: int, actions, hi, lo, length, targets, ways) -> np.ndarray:
        """Install, replace and remove at most `batch_routes` routes; return the errno of each (0: done).

        UNANSWERED: the answer was lost, so the route may be either way. `ways` has the columns by way.
        """
        first = self._take_sequences(len(actions))
        size = netlink.write_requests(
            self._out,
            first,
            family == AF_INET6,
            self._headers[family],
            self._common,
            actions,
            hi,
            lo,
            length,
            targets,
            ways.type,
            ways.flags,
            ways.length[family],
            ways.octets[family],
        )
        errors = np.zeros(len(actions), np.int32)
        errors[-1] = UNANSWERED
        self.requests.send(self._out[:size])
        try:
            self._account(first, errors)
        except Overrun:
            _drain(self.requests)
            errors[errors == 0] = UNANSWERED
        if errors[-1] == UNANSWERED:
            errors[errors == 0] = UNANSWERED
        return errors

    def discard_notifications(self) -> None:
        """Read all notifications about routes and look at none: what they are about is about to be read anew."""
        _drain(self.notifications)

    def _account(self, first: int, errors: np.ndarray) -> None:
        """Read answers until that of the last request is there."""
        while errors[-1] == UNANSWERED:
            lengths = self.requests.receive()
            if len(lengths):
                netlink.scan_replies(self.requests.octets, self.requests.slot_octets, lengths, first, errors)
            elif not self.requests.wait(ANSWER_TIME_S):
                return

    def _take_sequences(self, n: int) -> int:
        """Return the first of `n` sequence numbers; 0 is left to notifications."""
        if self._sequence + n > 0xFFFFFFFF:
            self._sequence = 1
        first = self._sequence
        self._sequence += n
        self.n_requests += n
        return first

    def _datagrams(self) -> Iterator[bytes]:
        """Give what the request socket receives until nothing comes for too long."""
        while self.requests.wait(ANSWER_TIME_S):
            for slot in range(len(self.requests.receive())):
                yield self.requests.datagram(slot)

    # ---- dumps: only at the start, never while routes change ----------------------------------------------------

    def links(self) -> list[messages.LinkState]:
        """Return all interfaces."""
        return [messages.decode_link(kind, body) for kind, body in self._dump(messages.dump_links)]

    def nexthops(self) -> list[messages.NextHopState] | None:
        """Return all nexthop objects; None if this kernel has none of the kind."""
        try:
            return [messages.decode_nexthop(body) for _, body in self._dump(messages.dump_nexthops)]
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return None
            raise

    def routes(self, family: int, table: int, protocol: int = 0) -> Iterator[netlink.RouteScan]:
        """Give the routes of a table, of one protocol unless that is 0, in parts; each is good until the next."""
        scan = netlink.RouteScan()
        self.n_dumps += 1
        sequence = self._take_sequences(1)
        self.requests.send(messages.dump_routes(sequence, family, table, protocol))
        while self.requests.wait(ANSWER_TIME_S):
            lengths = self.requests.receive()
            scan.scan(self.requests.octets, self.requests.slot_octets, lengths)
            # A table nobody has used yet does not exist.
            if scan.error not in (0, errno.ENOENT):
                raise OSError(scan.error, os.strerror(scan.error))
            is_ended = scan.is_ended
            yield scan
            if is_ended:
                return
            scan.clear()
        raise TimeoutError("the kernel's dump of routes did not end")

    def _dump(self, make) -> Iterator[tuple[int, bytes]]:
        """Give (type, body) of each message of a dump."""
        sequence = self._take_sequences(1)
        self.requests.send(make(sequence))
        for datagram in self._datagrams():
            for kind, flags, answered, body in messages.messages_of(datagram):
                if answered != sequence:
                    continue
                if kind == Kind.DONE:
                    return
                if kind == Kind.ERROR:
                    code, text = messages.decode_error(flags, body)
                    raise OSError(code, text or os.strerror(code))
                yield kind, body
        raise TimeoutError("the kernel's dump did not end")


def _drain(socket: NetlinkSocket) -> None:
    while True:
        try:
            if not len(socket.receive()):
                return
        except Overrun:
            continue
