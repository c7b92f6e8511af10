"""Routes in the order of their prefixes, though no stage keeps them in order.

A stage gives the prefixes it has, a slice of its table at a time; they are put in order here, and then the stage is
asked for the routes of a hundred of them at a time, no more than are to be shown. So a table of a million prefixes
costs each of its holders many short answers, and what is shown first is there at once. What changes meanwhile may be
shown or not; nothing is shown twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from common.bgp.prefixes import Network, Prefixes, covering
from common.cli.asking import Router

ASKED_AT_ONCE = 100


@dataclass(slots=True)
class Holders:
    """Who is asked: instances of a stage, of which each has some of the prefixes; `arguments` go with each question."""

    router: Router
    stage: str
    instances: list[str]
    arguments: dict[str, Any] = field(default_factory=dict)

    def within(self, family: str, network: Network | None) -> "Found":
        """Return what there is of a family within a network."""
        found = [
            (number, page) for number, each in enumerate(self.instances) for page in self._pages(each, family, network)
        ]
        if not found:
            return Found(self, family, Prefixes.of([]), np.empty(0, np.uint8))
        pages = [page for _, page in found]
        prefixes = Prefixes(*(np.concatenate(columns) for columns in zip(*pages, strict=True)))
        owners = np.repeat([number for number, _ in found], [len(page.length) for page in pages]).astype(np.uint8)
        order = prefixes.in_order()
        prefixes, owners = prefixes.take(order), owners[order]
        is_new = np.ones(len(owners), bool)
        is_new[1:] = np.any([column[1:] != column[:-1] for column in prefixes if len(column)], axis=0)
        return Found(self, family, prefixes.take(is_new), owners[is_new])

    def covering(self, family: str, network: Network) -> "Found":
        """Return what covers a network, and itself: every prefix that may, for whoever has it."""
        return Found(self, family, Prefixes.of(covering(network)), None)

    def _pages(self, instance: str, family: str, network: Network | None) -> Iterator[Prefixes]:
        after, within = None, None if network is None else str(network)
        while True:
            answer = self.ask(instance, "prefixes", family=family, after=after, within=within)
            yield Prefixes.unpack(answer)
            after = answer["next"]
            if after is None:
                return

    def ask(self, instance: str, question: str, **arguments: Any) -> dict:
        return self.router.ask(self.stage, question, instance, **self.arguments, **arguments)


@dataclass(slots=True)
class Found:
    """Prefixes of one family in order, and the number of the instance that has each; None: any of them may."""

    holders: Holders
    family: str
    prefixes: Prefixes
    owners: np.ndarray | None

    def __len__(self) -> int:
        return len(self.prefixes.length)

    def routes(self, limit: int | None) -> Iterator[dict]:
        """Yield the routes of the first `limit` prefixes."""
        n_prefixes = len(self) if limit is None else min(limit, len(self))
        n_at_once = ASKED_AT_ONCE * len(self.holders.instances)
        for first in range(0, n_prefixes, n_at_once):
            places = np.arange(first, min(first + n_at_once, n_prefixes))
            found: list[tuple[int, dict]] = []
            for number, instance in enumerate(self.holders.instances):
                found += self._of(instance, places if self.owners is None else places[self.owners[places] == number])
            found.sort(key=lambda each: each[0])
            yield from (route for _, route in found)

    def _of(self, instance: str, places: np.ndarray) -> Iterator[tuple[int, dict]]:
        """Yield (place, route) of the prefixes at some places that an instance has."""
        while len(places):
            asked = places[:ASKED_AT_ONCE]
            prefixes = self.prefixes.take(asked).pack()
            answer = self.holders.ask(instance, "routes-of", family=self.family, prefixes=prefixes)
            for place, route in zip(answer["places"], answer["routes"], strict=True):
                yield int(asked[place]), route
            places = places[answer["next"] or len(asked) :]
