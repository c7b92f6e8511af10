"""The kernel as the fib sees it: requests with answers, batches of route changes, dumps, notifications.

Owns three netlink sockets (for requests, for notifications about routes, for those about links and objects) and a
sender of route changes for each family. Never decides anything. Notifications of what we did ourselves are dropped by
the kernel.
"""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any

import numpy as np

from common.kernels import netlink
from stages.fib import messages
from stages.fib.memory import this_world
from stages.fib.messages import Kind
from stages.fib.netlink_socket import NetlinkSocket, Overrun, inside
from stages.fib.sender import ANSWER_TIME_S, Sender, Sent

BATCH_ROUTES = 2048  # measured: larger is not faster, and one batch takes the kernel about 6 ms
EVENT_GROUPS = (1, 32)  # RTNLGRP_LINK, _NEXTHOP
ROUTE_GROUPS = (7, 11)  # RTNLGRP_IPV4_ROUTE, _IPV6_ROUTE
COMPAT_MODE = Path("/proc/sys/net/ipv4/nexthop_compat_mode")


class Kernel:
    """One table of the kernel, of this network namespace or another by name."""

    def __init__(
        self,
        table: int,
        metric: int,
        batch_routes: int = BATCH_ROUTES,
        protocol: int = messages.PROTOCOL,
        namespace: str = "",
    ):
        self.table = table
        self.metric = metric
        self.namespace = namespace
        with inside(namespace):
            self.world = this_world()
            self.requests = NetlinkSocket()
            # Linux 6.16 and later changes IPv6 routes without the lock that IPv4 routes take: both go in at once.
            room_octets = netlink.request_limit(batch_routes, messages.common_attributes(table, metric))
            self._senders = {family: Sender(room_octets) for family in (AF_INET, AF_INET6)}
            # Of links and objects by themselves, so that a storm of routes cannot hide that a link is down.
            self.events = NetlinkSocket(EVENT_GROUPS, slots=64, slot_octets=8192)
            self.notifications = NetlinkSocket(ROUTE_GROUPS, slots=256, slot_octets=8192)
        for socket in self.listening:
            socket.drop_caused_by(self.requests.port, *(sender.port for sender in self._senders.values()))
        self.n_dumps = 0  # of whole tables
        self._sequence = 0
        self._common = np.frombuffer(messages.common_attributes(table, metric), np.uint8)
        self._headers = {
            family: np.frombuffer(messages.route_header(family, table, protocol), np.uint8)
            for family in (AF_INET, AF_INET6)
        }

    def close(self) -> None:
        """Give the sockets back; what was installed stays."""
        for sender in self._senders.values():
            sender.close()
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
        """Send the one request `make(sequence)` and return the kernel's answer: (errno or 0, its words).

        What routes were begun before are in the kernel by then: the order of all requests is that of the calls. (And
        kernels from 6.16 on may crash where an object changes while IPv6 routes on it come or go: CVE-2026-74562.)
        """
        self.wait()
        sequence = self._take_sequence()
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

    def may_change(self) -> bool:
        """Tell whether the kernel lets this process change routes: it looks at that before what is asked."""
        code, _ = self.request(lambda sequence: messages.remove_nexthop(sequence, 0))  # no object has this number
        return code != errno.EPERM

    def route_type(self, family: int, address: bytes) -> int:
        """Return the type of the route that packets to an address take by all rules and tables; 0: there is none.

        So the table of the router's own addresses need not be read: while there are no rules the kernel keeps it in
        one trie with the main table, and would walk a million routes to find a few (0.2 s).
        """
        sequence = self._take_sequence()
        self.requests.send(messages.ask_route(sequence, family, address))
        for datagram in self._datagrams():
            for kind, _, answered, body in messages.messages_of(datagram):
                if answered == sequence:
                    return messages.decode_route_type(body) if kind == Kind.NEW_ROUTE else 0
        return 0

    def begin(self, token: Any, family: int, actions, hi, lo, length, targets, ways) -> None:
        """Begin to install, replace and remove at most `batch_routes` routes, where there is room.

        Its answers are the errno of each (0: done; UNANSWERED: the answer was lost, so the route may be either way).
        `ways` has the columns by way; `token` comes back with the answers.
        """
        self._senders[family].begin(token, len(actions), self._writer(family, actions, hi, lo, length, targets, ways))

    def change(self, family: int, actions, hi, lo, length, targets, ways) -> np.ndarray:
        """Do the same and wait for the answers; nothing else may be on the way."""
        write = self._writer(family, actions, hi, lo, length, targets, ways)
        return self._senders[family].exchange(len(actions), write)

    def has_room(self, family: int) -> bool:
        """Tell whether another batch of a family can be begun."""
        return self._senders[family].has_room

    @property
    def n_on_the_way(self) -> int:
        """Batches that are begun and not answered."""
        return sum(sender.n_on_the_way for sender in self._senders.values())

    def answered(self) -> list[Sent]:
        """Return the batches answered since the last call."""
        return [sent for sender in self._senders.values() for sent in sender.answered()]

    def wait(self) -> None:
        """Wait until nothing is on the way."""
        for sender in self._senders.values():
            sender.wait()

    @property
    def bells(self) -> list[int]:
        """Return descriptors that are readable while something was answered and not asked for."""
        return [sender.bell for sender in self._senders.values()]

    def _writer(self, family: int, actions, hi, lo, length, targets, ways) -> Callable[[np.ndarray, int], int]:
        return lambda room, first: netlink.write_requests(
            room,
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

    def discard_notifications(self) -> None:
        """Read all notifications about routes and look at none: what they are about is about to be read anew."""
        self.notifications.drain()

    def _take_sequence(self) -> int:
        """Return the next sequence number; 0 is left to notifications."""
        self._sequence = self._sequence + 1 if self._sequence < 0xFFFFFFFF else 1
        return self._sequence

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

    def routes(self, family: int, table: int) -> Iterator[netlink.RouteScan]:
        """Give the routes of a table in parts; each is good until the next."""
        scan = netlink.RouteScan()
        self.n_dumps += 1
        sequence = self._take_sequence()
        self.requests.send(messages.dump_routes(sequence, family, table))
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
        sequence = self._take_sequence()
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
