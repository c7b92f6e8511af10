"""The owner's side of the bus: knows its readers, and sends each what follows its position, as far as its credit goes.

Owns one record a reader: position, credit left, source. Never keeps a batch: what a reader has not got yet is still in
the table. Free of transport: what arrives is handed in, what leaves goes through `port`.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from common.bus.batch import UNSENT, Batch, Position, encode
from common.bus.channels import is_match, kinds_of
from common.bus.schema import FINGERPRINT, SchemaError, disagreement
from common.bus.wire import Credit, ListenPort, Read, Request, Stop, Unread, decode_request, encode_refusal
from common.runtime.log import Log, event

MAX_READERS: Final = 4096
MAX_BATCH_OCTETS: Final = 1 << 20
"""What a source is asked for at most in one read."""
MIN_BATCH_OCTETS: Final = 1 << 16
"""Credit may be overdrawn by this much, so that its last octets do not go out as tiny batches."""
MAX_PUMP_OCTETS: Final = 2 << 20
"""What one pump sends at most before other work has its turn."""
MAX_UNSENT_ENTRIES: Final = 8192
"""A reader that is further on than it knows is told so when it is so much further."""
MAX_WINDOW_OCTETS: Final = 64 << 20
"""Credit beyond this does not count, whatever a reader grants: it bounds what may be on the way to it."""


MAX_UNREAD_BATCHES: Final = 4096
"""Messages that wait for one reader to take them from its socket, however small they are."""


class Refused(Exception):
    """This request cannot be served; the text tells the reader why."""


class Source(Protocol):
    """Where a reader's batches come from. Subclass it to get the harmless defaults."""

    @property
    def head(self) -> int:
        """The owner's next sequence."""
        return 0

    @property
    def epoch(self) -> str:
        """The owner's epoch; a reader of another one holds nothing back."""
        return ""

    def read(self, position: Position, max_octets: int) -> list[Batch]:
        """Return what follows `position`, at least one row and about `max_octets` at most; [] when in step.

        A position of another epoch, or that is no longer held, starts a snapshot by itself (flags). Each batch carries
        the position after it.
        """
        return []

    @property
    def is_shared(self) -> bool:
        """Whether it is one of several that share out a table."""
        return False

    def has_more(self, position: Position) -> bool:
        """Tell whether `read` is to be asked again at once, for a reader that has just been sent something."""
        return True

    def grant(self, octets: int) -> None:
        """Take note that the reader has given `octets` of credit back."""

    def close(self) -> None:
        """Take note that the reader has gone."""


@dataclass(slots=True, eq=False)
class Reader:
    """All that is known of one reader."""

    peer: bytes
    subscription: int
    request: Request
    source: Source
    position: Position
    credit: int
    is_counted: bool  # its position says something about our journal
    n_batches: int = 0
    n_octets: int = 0
    unsent: Sequence[Batch] = ()  # read from the source, but so far nothing more was kept for it
    silent: Batch | None = None  # says that the reader is further on than it knows
    told: int = 0  # the sequence it knows of

    @property
    def known(self) -> int:
        """The sequence it goes on from, as far as it knows."""
        return self.position.sequence if self.silent is None else self.told

    @property
    def lag(self) -> int:
        """Changes it has not been sent yet."""
        return max(0, self.source.head - self.position.sequence)


class Server:
    """Serves the channels of one stage."""

    def __init__(self, log: Log, port: ListenPort | None = None):
        self.port = port
        self._log = log
        self._patterns: list[tuple[str, Callable[[Request], Source]]] = []
        self._readers: dict[tuple[bytes, int], Reader] = {}
        self._order: list[Reader] = []
        self._by_channel: dict[str, list[Reader]] = {}  # those that are no taps
        self._next = 0

    def add(self, channel_pattern: str, open: Callable[[Request], Source]) -> None:
        """Serve the channels that fit a pattern ("*" is one segment); `open` may raise Refused(reason)."""
        self._patterns.append((channel_pattern, open))

    def pump(self) -> bool:
        """Send to each reader that has credit and is not in step; return whether there is more to send at once.

        Called at the end of every turn of the loop, so nothing waits for a timer. Each reader has one read a pump; of
        those that share out a table, only the first for whom there is something: what a table brings is sent in no more
        batches, however many share it.
        """
        order = self._order
        is_more = False
        served: set[str] = set()
        following = -1
        octets_left = MAX_PUMP_OCTETS
        for _ in range(len(order)):
            if self._next >= len(order):
                self._next = 0
            if not order:
                break
            if octets_left <= 0:
                return True
            reader = order[self._next]
            self._next += 1
            if reader.credit > 0:
                if served and reader.source.is_shared and reader.request.channel in served:
                    is_more = is_more or reader.source.has_more(reader.position)
                    continue
                n_octets = self._serve(reader)
                if n_octets:
                    octets_left -= n_octets
                    is_more = is_more or (reader.credit > 0 and reader.source.has_more(reader.position))
                    if reader.source.is_shared and reader.silent is None:
                        served.add(reader.request.channel)
                        following = self._next
        if following >= 0:
            self._next = following
        return is_more

    def readers(self) -> list[dict[str, Any]]:
        """Return a description of each reader, for status."""
        return [
            {
                "reader": reader.request.reader,
                "channel": reader.request.channel,
                "tap": reader.request.is_tap,
                "epoch": reader.position.epoch,
                "sequence": reader.position.sequence,
                "cursor": reader.position.cursor,
                "lag": reader.lag,
                "credit": reader.credit,
                "batches": reader.n_batches,
                "octets": reader.n_octets,
            }
            for reader in self._order
        ]

    def min_position(self, channel: str) -> int | None:
        """Return the lowest sequence any reader of the channel goes on from; None without a reader that counts.

        Taps do not count, nor do readers that have not been sent anything of this epoch yet: those start with a
        snapshot. The owner may forget removals below it, and is behind by `head - min_position`.
        """
        readers = self._by_channel.get(channel, ())
        return min([reader.known for reader in readers if reader.is_counted], default=None)

    def tell_positions(self, channel: str) -> None:
        """Tell the readers of a channel where they are that are further on than they know."""
        for reader in list(self._order):
            if reader.silent is not None and reader.request.channel == channel:
                with contextlib.suppress(Unread):  # there is more for it on the way, so it will hear
                    self._send(reader, reader.silent)

    def n_readers(self, channel: str) -> int:
        """Return how many readers, taps not counted, follow a channel."""
        return len(self._by_channel.get(channel, ()))

    def close(self) -> None:
        """Let all readers go, and the socket."""
        for reader in list(self._order):
            self._forget(reader)
        if self.port is not None:
            self.port.close()

    # ---- what the transport calls -------------------------------------------------------------------------------

    def on_frames(self, peer: bytes, frames: list) -> None:
        """Handle one message of a reader; garbage is counted, logged and dropped."""
        try:
            message = decode_request(frames)
        except SchemaError as error:
            event(self._log, "bus-garbage", "warning", peer=peer, problem=error)
            return
        if type(message) is Credit:
            self._on_credit(peer, message)
        elif type(message) is Read:
            self._on_read(peer, message)
        elif type(message) is Stop:
            reader = self._readers.get((peer, message.subscription))
            if reader is not None:
                self._forget(reader)

    def on_gone(self, peer: bytes) -> None:
        """Forget the readers of a connection that has ended."""
        for reader in [reader for reader in self._order if reader.peer == peer]:
            event(self._log, "reader-gone", "debug", reader=reader.request.reader, channel=reader.request.channel)
            self._forget(reader)

    # ---- inside -------------------------------------------------------------------------------------------------

    def _serve(self, reader: Reader) -> int:
        """Send one read's worth to a reader; return its octets, 0 when there was nothing."""
        room = min(max(reader.credit, MIN_BATCH_OCTETS), MAX_BATCH_OCTETS)
        n_octets = 0
        batches = reader.unsent or reader.source.read(reader.position, room)
        reader.unsent = ()
        for index, batch in enumerate(batches):
            if batch.flags & UNSENT and batch.position.sequence - reader.known < MAX_UNSENT_ENTRIES:
                reader.told, reader.position, reader.silent = reader.known, batch.position, batch
                n_octets += 1
                continue
            try:
                size = self._send(reader, batch)
            except Unread:
                reader.unsent = batches[index:]
                break
            if not size:
                return n_octets or 1
            n_octets += size
        return n_octets

    def _send(self, reader: Reader, batch: Batch) -> int:
        """Send a batch to a reader; return its octets, 0 when the reader has gone. May raise Unread."""
        batch.channel = batch.channel or reader.request.channel
        batch.flags &= ~UNSENT
        size = batch.n_octets
        if not self.port.send(reader.peer, encode(batch, reader.subscription)):
            self.on_gone(reader.peer)
            return 0
        reader.position, reader.silent = batch.position, None
        reader.is_counted = True
        reader.credit -= size
        reader.n_batches += 1
        reader.n_octets += size
        return size

    def _on_credit(self, peer: bytes, message: Credit) -> None:
        reader = self._readers.get((peer, message.subscription))
        if reader is None:
            return  # it was stopped or refused while this was on its way
        reader.credit = min(reader.credit + message.octets, MAX_WINDOW_OCTETS)
        grant = getattr(reader.source, "grant", None)
        if grant is not None:
            grant(message.octets)

    def _on_read(self, peer: bytes, message: Read) -> None:
        request = message.request
        former = self._readers.get((peer, message.subscription))
        if former is not None:
            self._forget(former)
        try:
            _check_schema(message)
            grant = self.port.grant_of(peer)
            if grant is not None and not grant.may_follow(request.channel, request.is_tap):
                raise Refused(f"the key {grant} may not follow {request.channel:.80}")
            if len(self._order) >= MAX_READERS:
                raise Refused(f"already {MAX_READERS} readers")
            source = self._open(request)
        except Refused as refused:
            event(
                self._log,
                "reader-refused",
                "warning",
                reader=request.reader,
                channel=request.channel,
                reason=refused,
            )
            self._send_refusal(peer, message.subscription, str(refused))
            return
        is_counted = bool(request.position.epoch) and request.position.epoch == getattr(source, "epoch", "")
        credit = min(request.credit, MAX_WINDOW_OCTETS)
        reader = Reader(peer, message.subscription, request, source, request.position, credit, is_counted)
        self._readers[peer, message.subscription] = reader
        self._order.append(reader)
        if not request.is_tap:
            self._by_channel.setdefault(request.channel, []).append(reader)
        event(
            self._log,
            "reader-added",
            "debug",
            reader=request.reader,
            channel=request.channel,
            epoch=request.position.epoch,
            sequence=request.position.sequence,
        )

    def _open(self, request: Request) -> Source:
        for pattern, open in self._patterns:
            if is_match(pattern, request.channel):
                return open(request)
        raise Refused(f"no channel {request.channel:.80}")

    def _forget(self, reader: Reader) -> None:
        del self._readers[reader.peer, reader.subscription]
        self._order.remove(reader)
        if not reader.request.is_tap:
            self._by_channel[reader.request.channel].remove(reader)
        close = getattr(reader.source, "close", None)
        if close is not None:
            close()

    def refuse(self, source: Source, reason: str) -> None:
        """End the reader of a source with a reason (a relay's owner has refused it)."""
        for reader in [reader for reader in self._order if reader.source is source]:
            self._forget(reader)
            self._send_refusal(reader.peer, reader.subscription, reason)

    def _send_refusal(self, peer: bytes, subscription: int, reason: str) -> None:
        try:
            self.port.send(peer, encode_refusal(subscription, reason))
        except Unread:
            event(self._log, "refusal-dropped", "warning", peer=peer, reason=reason)


def _check_schema(message: Read) -> None:
    """Raise Refused if the reader would misunderstand what travels on the channel it asks for."""
    if message.fingerprint == FINGERPRINT:
        return
    why = disagreement(message.schema, kinds_of(message.request.channel))
    if why:
        raise Refused(
            f"schema {message.fingerprint:.40} of the reader does not go with schema {FINGERPRINT} of the owner: {why}"
        )
