"""Who does which part of the work where a stage has several instances: fixed rules, the same for all who ask.

Owns the rules. Never knows who is there: instances are those of the configuration.

| stage    | shares out                                          | rule                                             |
|----------|-----------------------------------------------------|--------------------------------------------------|
| speaker  | neighbors                                           | each names its own                               |
| rib      | prefixes                                            | a hash of the prefix (common/kernels/shares.py)  |
| policy   | streams: family, speaker                            | the sum of their places, around the instances    |
| exporter | streams: family, group of neighbors, rib            | the same                                         |

The streams of all ribs that one speaker's routes of a family go to are with one policy stage: it evaluates them once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Share(NamedTuple):
    """One of `count` shares of all prefixes; index from 0."""

    index: int
    count: int

    @property
    def params(self) -> dict[str, int]:
        """What a request on the bus says of it: nothing where it is everything."""
        return {"share": self.index, "shares": self.count} if self.count > 1 else {}

    def epoch_of(self, epoch: str) -> str:
        """Return what the epoch of a whole table is to the readers of this share: positions in others mean nothing."""
        return epoch if self.count == 1 else f"{epoch}-{self.index}.{self.count}"

    def whole_epoch_of(self, epoch: str) -> str:
        """Undo `epoch_of`."""
        return epoch.removesuffix(self.epoch_of(""))

    def __str__(self) -> str:
        return "all prefixes" if self.count == 1 else f"prefixes, share {self.index + 1} of {self.count}"


WHOLE = Share(0, 1)
MAX_SHARES = 64


def share_of(instances: Sequence[str], instance: str) -> Share:
    """Return the share of an instance; ValueError if it is none of them."""
    return Share(instances.index(instance), len(instances))


def decode_share(params: dict[str, Any]) -> Share:
    """Return the share a request asks for; ValueError if there is no such share."""
    share = Share(params.get("share", 0), params.get("shares", 1))
    if type(share.index) is not int or type(share.count) is not int or not 0 <= share.index < share.count <= MAX_SHARES:
        raise ValueError(f"no share {share.index!r:.20} of {share.count!r:.20}")
    return share


def worker_of(instances: Sequence[str], *places: int) -> str:
    """Return who serves the stream with these places (of its family, its owner and so on)."""
    return instances[sum(places) % len(instances)]


def longest_route(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the ribs say of a prefix or address: the answer of the one that has the longest match, if any has."""
    return max(answers, key=lambda answer: (bool(answer["candidates"]), int(answer["prefix"].partition("/")[2])))
