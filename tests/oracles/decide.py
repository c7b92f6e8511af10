"""The decision process, slow and obvious, written from RFC 4271 §9.1.2.2 (and RFC 4456 §9): an oracle."""

from dataclasses import dataclass
from ipaddress import ip_address

from common.bgp.decision import Step

AS_SET, AS_SEQUENCE, AS_CONFED_SEQUENCE, AS_CONFED_SET = 1, 2, 3, 4


@dataclass(frozen=True)
class Path:
    """One candidate: what its attributes say and what its peer is."""

    next_hop: str = "10.0.0.1"
    local_pref: int | None = None
    as_path: tuple = ()  # ((segment kind, (asn, ...)), ...)
    origin: int = 0
    med: int | None = None
    originator_id: int | None = None
    cluster_list: tuple = ()
    metric: int | None = 0  # to the next hop; None: unreachable
    is_originated: bool = False
    is_external: bool = True
    router_id: int = 1
    address: str = "10.0.0.1"
    path_id: int = 0

    def encode(self) -> bytes:
        """Encode as an attribute set: octets of next hop, next hop, attributes in ascending order."""
        next_hop = ip_address(self.next_hop).packed if self.next_hop else b""
        segments = b"".join(
            bytes([kind, len(asns)]) + b"".join(asn.to_bytes(4, "big") for asn in asns) for kind, asns in self.as_path
        )
        octets = _attribute(0x40, 1, bytes([self.origin])) + _attribute(0x40, 2, segments)
        if self.med is not None:
            octets += _attribute(0x80, 4, self.med.to_bytes(4, "big"))
        if self.local_pref is not None:
            octets += _attribute(0x40, 5, self.local_pref.to_bytes(4, "big"))
        if self.originator_id is not None:
            octets += _attribute(0x80, 9, self.originator_id.to_bytes(4, "big"))
        if self.cluster_list:
            octets += _attribute(0x80, 10, b"".join(item.to_bytes(4, "big") for item in self.cluster_list))
        return bytes([len(next_hop)]) + next_hop + octets


def _attribute(flags: int, code: int, value: bytes) -> bytes:
    if len(value) > 255:
        return bytes([flags | 0x10, code]) + len(value).to_bytes(2, "big") + value
    return bytes([flags, code, len(value)]) + value


def length_of(as_path: tuple) -> int:
    """§9.1.2.2 a: an AS_SET counts as 1; RFC 5065 §5.3: confederation segments are not counted."""
    return sum({AS_SEQUENCE: len(asns), AS_SET: 1}.get(kind, 0) for kind, asns in as_path)


def neighboring_as(as_path: tuple) -> int | None:
    """§9.1.2.2 c: the leftmost AS; None, our own, where the path is empty or begins with an AS_SET."""
    for kind, asns in as_path:
        if kind == AS_SET:
            return None
        if kind == AS_SEQUENCE and asns:
            return asns[0]
    return None


def _without_higher_med(paths: list) -> list:
    return [
        m
        for m in paths
        if not any(
            neighboring_as(n.as_path) == neighboring_as(m.as_path) and (n.med or 0) < (m.med or 0) for n in paths
        )
    ]


def _lowest(key):
    def keep(paths: list) -> list:
        best = min(key(path) for path in paths)
        return [path for path in paths if key(path) == best]

    return keep


STEPS = [
    (Step.ORIGINATED, _lowest(lambda path: not path.is_originated)),
    (Step.LOCAL_PREF, _lowest(lambda path: -(100 if path.local_pref is None else path.local_pref))),
    (Step.AS_PATH, _lowest(lambda path: length_of(path.as_path))),
    (Step.ORIGIN, _lowest(lambda path: path.origin)),
    (Step.MED, _without_higher_med),
    (Step.EXTERNAL, _lowest(lambda path: not path.is_external)),
    (Step.METRIC, _lowest(lambda path: path.metric)),
    (Step.ROUTER_ID, _lowest(lambda p: p.router_id if p.originator_id is None else p.originator_id)),
    (Step.CLUSTER_LIST, _lowest(lambda path: len(path.cluster_list))),
    (Step.ADDRESS, _lowest(lambda path: int(ip_address(path.address)))),
    (Step.PATH_ID, _lowest(lambda path: path.path_id)),
]


def choose(paths: list[Path]) -> tuple[int | None, list[Step], Step]:
    """Return the index of the best path, the step each lost in, and the step that decided."""
    lost = [Step.UNREACHABLE if path.metric is None else Step.NONE for path in paths]
    left = [index for index, path in enumerate(paths) if path.metric is not None]
    if not left:
        return None, lost, Step.NONE
    decided = Step.ONLY
    for step, keep in STEPS:
        kept = keep([paths[index] for index in left])
        for index in left:
            if paths[index] not in kept:
                lost[index], decided = step, step
        left = [index for index in left if paths[index] in kept]
    return left[0], lost, decided
