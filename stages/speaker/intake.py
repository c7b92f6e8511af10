"""Reading: octets of a peer into messages, and UPDATEs into the Adj-RIB-In.

Owns the buffer all peers are read into and the scanner with its columns. What one peer sends can end that peer's
session, never this process.
"""

import traceback
from collections.abc import Callable

from common.bgp.constants import HEADER_OCTETS, MAX_EXTENDED_MESSAGE_OCTETS, CeaseSubcode, Family, format_attribute_type
from common.bgp.errors import Cease, protocol_error
from common.kernels import scan
from common.runtime.log import Log, event
from common.runtime.loop import Loop
from stages.speaker.adj_rib_in import AdjRibIn
from stages.speaker.neighbors import Neighbor, Neighbors, Peering
from stages.speaker.sockets import ConnectionLost

# What is read from one peer in one turn of the loop, and how many messages of it are handled one by one: all but
# UPDATEs and KEEPALIVEs, of which the scan takes any number. The rest has to wait for the next turn.
READ_OCTETS = 1 << 18
MESSAGES_PER_TURN = 32
# How long one turn may be spent on what had to wait.
GO_ON_S = 0.008


class Intake:
    """Reads what peers send; `on_stored(neighbor)` is called after routes were written."""

    def __init__(
        self,
        loop: Loop,
        log: Log,
        neighbors: Neighbors,
        tables: dict[Family, AdjRibIn],
        on_stored: Callable[[Neighbor], None],
        on_end_of_rib: Callable[[Neighbor, Family], None],
    ):
        self._clock = loop.clock
        self._log = log
        self._neighbors = neighbors
        self._tables = tables
        self._on_stored = on_stored
        self._on_end_of_rib = on_end_of_rib
        self._buffer = memoryview(bytearray(MAX_EXTENDED_MESSAGE_OCTETS + READ_OCTETS))
        self._scanner = scan.Scanner(len(self._buffer))
        # Peers of which whole messages wait that were read and not handled.
        self._deferred: dict[Peering, Neighbor] = {}

    def read(self, neighbor: Neighbor, peering: Peering) -> None:
        """Take what a peer has sent, once; an error in handling it ends its session."""
        if peering in self._deferred:
            return
        start = len(peering.leftover)
        self._buffer[:start] = peering.leftover
        try:
            n_octets = peering.connection.receive_into(self._buffer[start : start + READ_OCTETS])
        except ConnectionLost as lost:
            self._neighbors.connection_lost(neighbor, peering, str(lost))
            return
        if not n_octets:
            return
        self._handle(neighbor, peering, start + n_octets)

    def go_on(self) -> bool:
        """Handle more of what was read, each peer in turn; return True if there is still more."""
        if not self._deferred:
            return False
        until = self._clock.monotonic() + GO_ON_S
        for peering, neighbor in list(self._deferred.items()):
            del self._deferred[peering]
            end = len(peering.leftover)
            self._buffer[:end] = peering.leftover
            self._handle(neighbor, peering, end)
            if self._clock.monotonic() >= until:
                break
        return bool(self._deferred)

    def _handle(self, neighbor: Neighbor, peering: Peering, end: int) -> None:
        try:
            self._take(neighbor, peering, end)
        except Exception as error:
            self._fail(neighbor, peering, end, error)

    def _fail(self, neighbor: Neighbor, peering: Peering, end: int, error: Exception) -> None:
        event(
            self._log,
            "peer-input-exception",
            "error",
            neighbor=neighbor.name,
            problem=repr(error),
            trace="".join(traceback.format_exception(error)[-3:]),
            octets=bytes(self._buffer[:end]),
        )
        peering.session.fail(Cease(CeaseSubcode.OUT_OF_RESOURCES, text="internal error"), self._clock.monotonic())
        self._neighbors.settle(neighbor, peering)

    def _take(self, neighbor: Neighbor, peering: Peering, end: int) -> None:
        """Handle whole messages in the buffer, not too many of them, and keep what is left."""
        session = peering.session
        now = self._clock.monotonic()
        start = n_handled = 0
        while start < end:
            if n_handled == MESSAGES_PER_TURN:
                self._deferred[peering] = neighbor
                break
            n_handled += 1
            connection = peering.connection
            if peering.options is not None and session.is_established:
                following = self._scan(neighbor, peering, start, end, now)
            else:
                following = session.take(self._buffer, start, end, now)
            self._neighbors.settle(neighbor, peering)
            if peering.connection is not connection or connection is None:
                return
            if following == start:
                break
            start = following
        peering.leftover = bytes(self._buffer[start:end])

    def _scan(self, neighbor: Neighbor, peering: Peering, start: int, end: int, now: float) -> int:
        scanner = self._scanner
        session = peering.session
        stop = scanner.scan(self._buffer, start, end, peering.options)
        session.scanned(scanner.n_updates, scanner.n_keepalives, now)
        if scanner.n_updates:
            self._store(neighbor)
        following = scanner.consumed
        if stop == scan.MESSAGE:
            body = scanner.message_offset + HEADER_OCTETS
            session.message(
                scanner.message_type, bytes(self._buffer[body : scanner.message_offset + scanner.message_length]), now
            )
        elif stop == scan.ERROR:
            self._report_error(neighbor)
            data = bytes(self._buffer[scanner.error_offset : scanner.error_offset + scanner.error_length])
            session.fail(protocol_error(scanner.error_code, scanner.error_subcode, data), now)
        return following

    def _store(self, neighbor: Neighbor) -> None:
        scanner = self._scanner
        for family in neighbor.families:
            if scanner.n_routes(family.index):
                routes = scanner.routes(family.index)
                neighbor.n_attribute_octets += len(routes.set_octets)
                self._tables[family].apply(
                    neighbor.source,
                    routes.hi,
                    routes.lo,
                    routes.length,
                    routes.path_id if family in neighbor.path_id_families else None,
                    routes.set,
                    routes.set_offset,
                    routes.set_octets,
                )
            if scanner.end_of_rib & family.bit:
                self._on_end_of_rib(neighbor, family)
        if scanner.n_withdrawn or scanner.n_discarded:
            self._report_faults(neighbor)
        self._on_stored(neighbor)

    def _report_faults(self, neighbor: Neighbor) -> None:
        """Log the first of the UPDATEs that RFC 7606 had us repair, with its octets (RFC 7606 §8)."""
        scanner = self._scanner
        neighbor.n_treated_as_withdraw += scanner.n_withdrawn
        neighbor.n_attributes_discarded += scanner.n_discarded
        if scanner.n_withdrawn:
            event(
                self._log,
                "update-treated-as-withdraw",
                "warning",
                neighbor=neighbor.name,
                n_updates=scanner.n_withdrawn,
                attribute=format_attribute_type(scanner.withdrawn_attribute),
                subcode=scanner.withdrawn_reason,
                octets=self._octets(scanner.withdrawn_offset, scanner.withdrawn_length),
            )
        if scanner.n_discarded:
            event(
                self._log,
                "attribute-discarded",
                "warning",
                neighbor=neighbor.name,
                n_attributes=scanner.n_discarded,
                attribute=format_attribute_type(scanner.discarded_attribute),
                subcode=scanner.discarded_reason,
                octets=self._octets(scanner.discarded_offset, scanner.discarded_length),
            )

    def _report_error(self, neighbor: Neighbor) -> None:
        scanner = self._scanner
        event(
            self._log,
            "message-error",
            "warning",
            neighbor=neighbor.name,
            code=scanner.error_code,
            subcode=scanner.error_subcode,
            octets=self._octets(scanner.message_offset, max(scanner.message_length, HEADER_OCTETS)),
        )

    def _octets(self, offset: int, length: int) -> bytes:
        return bytes(self._buffer[offset : offset + length])
