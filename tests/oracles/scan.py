"""What a scan must find, slow and obvious, written from the RFCs: an oracle."""

from dataclasses import dataclass, field

DISCARD, WITHDRAW, RESET = 1, 2, 3
NEED_MORE, MESSAGE, ERROR = 0, 1, 2
ANY_LENGTH = range(0, 65536)
# type: (optional, transitive, allowed lengths, consequence of another length, from internal peers only). RFC 7606 §7
KNOWN = {
    1: (0, 1, [1], WITHDRAW, False),
    2: (0, 1, ANY_LENGTH, WITHDRAW, False),
    3: (0, 1, ANY_LENGTH, WITHDRAW, False),
    4: (1, 0, [4], WITHDRAW, False),
    5: (0, 1, [4], WITHDRAW, True),
    6: (0, 1, [0], DISCARD, False),
    7: (1, 1, [6, 8], DISCARD, False),
    8: (1, 1, range(4, 65536, 4), WITHDRAW, False),
    9: (1, 0, [4], WITHDRAW, True),
    10: (1, 0, range(4, 65536, 4), WITHDRAW, True),
    14: (1, 0, range(5, 65536), RESET, False),
    15: (1, 0, range(3, 65536), RESET, False),
    16: (1, 1, range(8, 65536, 8), WITHDRAW, False),
    17: (1, 1, range(6, 65536, 2), DISCARD, False),
    18: (1, 1, [8], DISCARD, False),
    25: (1, 1, range(20, 65536, 20), WITHDRAW, False),
    32: (1, 1, range(12, 65536, 12), WITHDRAW, False),
    35: (1, 1, [4], WITHDRAW, False),
}


@dataclass
class Settings:
    """The arguments of the kernel's Options."""

    as4: bool = True
    external: bool = True
    families: int = 3
    add_path: int = 0
    max_message: int = 4096
    accept_as_sets: bool = False
    accept_confederation: bool = False
    extended_next_hop: bool = False


@dataclass
class Found:
    """What a scan found; `routes` by family: (address as a 128-bit number, length, path id, set or None)."""

    stop: int = NEED_MORE
    consumed: int = 0
    n_updates: int = 0
    n_keepalives: int = 0
    end_of_rib: int = 0
    routes: tuple[list, list] = field(default_factory=lambda: ([], []))
    message: tuple | None = None  # type, offset, length
    error: tuple | None = None  # code, subcode, data
    withdrawn: list = field(default_factory=list)  # offset, attribute, reason of each UPDATE treated as withdraw
    n_as_sets: int = 0
    discarded: list = field(default_factory=list)  # offset, attribute, reason


class Malformed(Exception):
    """A field that cannot be read."""


class Fault(Exception):
    """An error in an attribute: consequence, reason."""


def scan(octets: bytes, settings: Settings) -> Found:
    """Read messages until something else than an UPDATE or KEEPALIVE is met."""
    found = Found()
    while True:
        rest = octets[found.consumed :]
        if len(rest) < 19:
            return found
        length, kind = int.from_bytes(rest[16:18], "big"), rest[18]
        found.error = header_error(rest, length, kind, settings)
        if found.error:
            found.stop, found.message = ERROR, (kind, found.consumed, length)
            return found
        if len(rest) < length:
            return found
        if kind == 4:
            found.n_keepalives += 1
        elif kind == 2:
            found.error = Update(rest[:length], found, settings).read()
            if found.error:
                found.stop, found.message = ERROR, (kind, found.consumed, length)
                return found
            found.n_updates += 1
        else:
            found.stop, found.message = MESSAGE, (kind, found.consumed, length)
            found.consumed += length
            return found
        found.consumed += length


def header_error(rest: bytes, length: int, kind: int, settings: Settings):
    """RFC 4271 §6.1, RFC 8654 §4."""
    if rest[:16] != b"\xff" * 16:
        return 1, 1, b""
    shortest = {1: 29, 2: 23, 3: 21, 4: 19, 5: 23}.get(kind, 19)
    longest = {1: 4096, 4: 19}.get(kind, settings.max_message)
    if not shortest <= length <= longest:
        return 1, 2, rest[16:18]
    if kind not in (1, 2, 3, 4, 5):
        return 1, 3, rest[18:19]
    return None


class Update:
    """One UPDATE being read."""

    def __init__(self, octets: bytes, found: Found, settings: Settings):
        self.octets, self.found, self.settings = octets, found, settings
        self.faults = []  # consequence, attribute, reason, data
        self.kept = {}  # type: (flags, value)
        self.seen = {}  # type: (whole attribute, value)
        self.spoiled = set()
        self.n_attributes = 0
        self.reach = None  # family, next hop, routes
        self.unreach = None
        self.is_as_set = False

    def read(self):
        octets = self.octets
        n_withdrawn = int.from_bytes(octets[19:21], "big")
        withdrawn, rest = octets[21 : 21 + n_withdrawn], octets[21 + n_withdrawn :]
        if 23 + n_withdrawn > len(octets):
            return 3, 1, b""
        n_attributes = int.from_bytes(rest[:2], "big")
        if 23 + n_withdrawn + n_attributes > len(octets):
            return 3, 1, b""
        attributes, nlri = rest[2 : 2 + n_attributes], rest[2 + n_attributes :]
        if len(octets) == 23:
            self.found.end_of_rib |= self.settings.families & 1
            return None
        self.walk(attributes)
        self.judge(nlri)
        error = self.worst(RESET)
        if not error:
            error = self.deliver(withdrawn, nlri)
        if error:
            return 3, error[2], error[3]
        self.report()
        if not withdrawn and not nlri and self.n_attributes == 1 and self.unreach and self.unreach[1] == b"":
            if self.unreach[0] is not None:
                self.found.end_of_rib |= 1 << self.unreach[0]
        return None

    def worst(self, consequence: int):
        """Return the first fault of this consequence."""
        return next((fault for fault in self.faults if fault[0] == consequence), None)

    def report(self):
        start = self.found.consumed
        self.found.discarded += [(start, code, reason) for kind, code, reason, _ in self.faults if kind == DISCARD]
        fault = self.worst(WITHDRAW)
        if fault:
            self.found.withdrawn.append((start, fault[1], fault[2]))
            self.found.n_as_sets += self.is_as_set

    # ---- attributes ----

    def walk(self, octets: bytes):
        """RFC 7606 §4."""
        while octets:
            if len(octets) < 3:
                self.faults.append((WITHDRAW, 0, 1, octets))
                return
            flags, code = octets[0], octets[1]
            header = 4 if flags & 0x10 else 3
            size = int.from_bytes(octets[2:header], "big")
            if len(octets) < header + size:
                self.faults.append((RESET if code in (14, 15) else WITHDRAW, code, 5, octets))
                return
            self.take(flags, code, octets[: header + size], octets[header : header + size])
            octets = octets[header + size :]

    def take(self, flags: int, code: int, whole: bytes, value: bytes):
        self.n_attributes += 1
        if code in self.seen:  # RFC 7606 §3.g
            self.faults.append((RESET, code, 1, b"") if code in (14, 15) else (DISCARD, code, 1, whole))
            return
        self.seen[code] = (whole, value)
        optional, transitive, partial = flags >> 7, flags >> 6 & 1, flags & 0x20
        try:
            if code not in KNOWN:
                if not optional:
                    raise Fault(RESET, 2)
                if transitive:
                    self.kept[code] = (0xE0, value)
                return
            self.check(code, (optional, transitive), value)
        except Fault as fault:
            self.spoiled.add(code)
            self.faults.append((fault.args[0], code, fault.args[1], whole))
            return
        if code not in (3, 14, 15, 17, 18):
            self.kept[code] = (optional << 7 | transitive << 6 | (partial if optional and transitive else 0), value)

    def check(self, code: int, category: tuple, value: bytes):
        optional, transitive, lengths, consequence, internal_only = KNOWN[code]
        if category != (optional, transitive):  # RFC 7606 §3.c, §5.3
            raise Fault(RESET if code in (14, 15) else WITHDRAW, 4)
        if internal_only and self.settings.external:
            raise Fault(DISCARD, 1)
        if len(value) not in lengths:
            raise Fault(consequence, 5)
        width = 4 if self.settings.as4 else 2
        if code == 1 and value[0] > 2:
            raise Fault(WITHDRAW, 6)
        if code == 2:
            self.check_path(segments(value, width), WITHDRAW, self.settings.accept_confederation)
        if code == 7:
            if len(value) != width + 4:
                raise Fault(DISCARD, 5)
            if not any(value[:width]):
                raise Fault(DISCARD, 9)
        if code in (17, 18) and self.settings.as4:
            raise Fault(DISCARD, 1)
        if code == 17:
            self.check_path(segments(value, 4), DISCARD, True)
        if code == 18 and not any(value[:4]):
            raise Fault(DISCARD, 9)
        if code == 14:
            self.check_reach(value)
        if code == 15:
            self.unreach = (self.family(value), value[3:])

    def check_path(self, path, consequence: int, allow_confederation: bool):
        if path is None or not allow_confederation and any(kind > 2 for kind, _ in path):
            raise Fault(consequence, 11)
        if any(kind in (1, 4) for kind, _ in path) and not self.settings.accept_as_sets:  # RFC 9774
            self.is_as_set = self.is_as_set or not self.worst(WITHDRAW)
            raise Fault(WITHDRAW, 11)

    def check_reach(self, value: bytes):
        """RFC 7606 §7.11."""
        size = value[3]
        if 5 + size > len(value):
            raise Fault(RESET, 9)
        next_hop, routes, family = value[4 : 4 + size], value[5 + size :], self.family(value)
        lengths = {None: ANY_LENGTH, 0: [4, 16, 32] if self.settings.extended_next_hop else [4], 1: [16, 32]}[family]
        self.reach = (None, next_hop, routes)
        if size not in lengths:
            raise Fault(RESET, 9)
        self.reach = (family, next_hop, routes)

    def family(self, value: bytes):
        family = {b"\0\1\1": 0, b"\0\2\1": 1}.get(value[:3])
        return family if family is not None and self.settings.families >> family & 1 else None

    # ---- the whole message ----

    def judge(self, nlri: bytes):
        has_reach = bool(self.reach and self.reach[2])
        if 3 in self.seen and 3 not in self.spoiled and (nlri or not has_reach):
            whole, value = self.seen[3]
            if len(value) != 4:
                self.faults.append((WITHDRAW, 3, 5, whole))
            elif not is_host(value):
                self.faults.append((WITHDRAW, 3, 8, whole))
        if nlri or has_reach:
            for code in (1, 2, 3) if nlri else (1, 2):
                if code not in self.seen:
                    self.faults.append((WITHDRAW, code, 3, b""))
            if not self.settings.as4 and not self.worst(WITHDRAW) and not self.worst(RESET):
                self.merge_as4()
        elif self.worst(WITHDRAW) and not self.worst(RESET):  # RFC 7606 §5.2
            self.faults.append((RESET, *self.worst(WITHDRAW)[1:]))

    def merge_as4(self):
        """RFC 6793 §4.2.3."""
        usable = {code: self.seen[code][1] for code in (17, 18) if code in self.seen and code not in self.spoiled}
        if 7 in self.kept:
            flags, value = self.kept[7]
            if value[:2] != (23456).to_bytes(2, "big"):
                usable = {}
            self.kept[7] = (flags, usable.get(18, b"\0\0" + value))
        path = segments(self.kept[2][1], 2)
        if 17 in usable:
            later = [(kind, asns) for kind, asns in segments(usable[17], 4) if kind in (1, 2)]
            surplus = count(path) - count(later)
            if surplus >= 0:
                path = leading(path, surplus) + later
        octets = b"".join(
            bytes([kind, len(asns)]) + b"".join(asn.to_bytes(4, "big") for asn in asns) for kind, asns in joined(path)
        )
        self.kept[2] = (self.kept[2][0], octets)
        if len(octets) > 65535:
            self.faults.append((WITHDRAW, 2, 5, self.seen[2][0]))

    # ---- routes ----

    def deliver(self, withdrawn: bytes, nlri: bytes):
        """Read the routes; return the fault if a field cannot be read. RFC 7606 §5.3"""
        is_withdrawn = bool(self.worst(WITHDRAW))
        fields = []  # family, octets, next hop or None for gone, attribute
        if self.settings.families & 1:
            fields.append((0, withdrawn, None, 0))
        if self.unreach and self.unreach[0] is not None:
            fields.append((*self.unreach, None, 15))
        if self.reach and self.reach[0] is not None:
            fields.append((self.reach[0], self.reach[2], self.reach[1], 14))
        if self.settings.families & 1:
            fields.append((0, nlri, self.seen.get(3, (b"", b""))[1], 0))
        rows = []
        for family, octets, next_hop, code in fields:
            attributes = None if next_hop is None or is_withdrawn else self.encode(next_hop)
            try:
                has_path_id = bool(self.settings.add_path >> family & 1)
                rows += [(family, (*route, attributes)) for route in prefixes(octets, family, has_path_id)]
            except Malformed:
                return (RESET, code, 9, self.seen[code][0]) if code else (RESET, 0, 10, b"")
        for family, row in rows:
            self.found.routes[family].append(row)
        return None

    def encode(self, next_hop: bytes) -> bytes:
        octets = bytes([len(next_hop)]) + next_hop
        for code, (flags, value) in sorted(self.kept.items()):
            if code == 32:  # RFC 8092 §5
                value = b"".join(dict.fromkeys(value[at : at + 12] for at in range(0, len(value), 12)))
            is_long = len(value) > 255
            octets += bytes([flags | is_long << 4, code]) + len(value).to_bytes(1 + is_long, "big") + value
        return octets


def is_host(address: bytes) -> bool:
    return 0 < address[0] < 224


def segments(value: bytes, width: int):
    """Return [(type, numbers)], None if malformed (RFC 7606 §7.2, RFC 7607)."""
    path = []
    while value:
        if len(value) < 2 or value[0] not in (1, 2, 3, 4) or value[1] == 0 or len(value) < 2 + value[1] * width:
            return None
        end = 2 + value[1] * width
        asns = [int.from_bytes(value[at : at + width], "big") for at in range(2, end, width)]
        if 0 in asns:
            return None
        path.append((value[0], asns))
        value = value[end:]
    return path


def count(path) -> int:
    """RFC 4271 §9.1.2.2 a, RFC 5065 §5.3."""
    return sum({1: 1, 2: len(asns)}.get(kind, 0) for kind, asns in path)


def leading(path, n: int):
    """Return the first segments of a path, until `n` numbers are reached and one more would come."""
    taken = []
    for kind, asns in path:
        if kind > 2:
            taken.append((kind, asns))
        elif n == 0:
            break
        elif kind == 1:
            taken.append((kind, asns))
            n -= 1
        else:
            taken.append((kind, asns[:n]))
            n -= len(asns[:n])
    return taken


def joined(path):
    """Return the path with neighboring sequences made one, where one can hold both."""
    result = []
    for kind, asns in path:
        if result and kind == 2 == result[-1][0] and len(result[-1][1]) + len(asns) <= 255:
            result[-1] = (2, result[-1][1] + asns)
        else:
            result.append((kind, list(asns)))
    return result


def prefixes(octets: bytes, family: int, has_path_id: bool):
    """Return [(address left-aligned in 128 bits, length, path id)]."""
    result = []
    while octets:
        path_id = 0
        if has_path_id:
            if len(octets) < 5:
                raise Malformed
            path_id, octets = int.from_bytes(octets[:4], "big"), octets[4:]
        length, n = octets[0], (octets[0] + 7) // 8
        if length > (32, 128)[family] or len(octets) < 1 + n:
            raise Malformed
        address = int.from_bytes(octets[1 : 1 + n].ljust(16, b"\0"), "big")
        result.append((address >> (128 - length) << (128 - length), length, path_id))
        octets = octets[1 + n :]
    return result
