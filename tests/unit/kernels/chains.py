"""Builds the columns that the decision kernel takes, from paths as the oracle describes them."""

from ipaddress import ip_address

import numpy as np

from common.bgp.decision import UNREACHABLE


class Chains:
    """Prefix rows 1, 2, ... with the paths of each as candidates; route rows in the same order from 1."""

    def __init__(self, kernel, prefixes: list[list]):
        self.paths = [path for paths in prefixes for path in paths]
        n = len(self.paths)
        self.prefix_rows = np.arange(1, len(prefixes) + 1, dtype=np.uint32)
        self.head = np.zeros(len(prefixes) + 1, np.uint32)
        self.next = np.zeros(n + 1, np.uint32)
        self.source = np.zeros(n + 1, np.uint32)
        self.attributes = np.zeros(n + 1, np.uint32)
        self.facts = kernel.SetFacts(seed=7)
        self.decision = kernel.Decision(self.facts)
        self.decision.ensure_prefixes(len(prefixes) + 1)
        self._link(prefixes)
        self._describe_sources()
        self._learn()

    def _link(self, prefixes: list[list]) -> None:
        row = 0
        for number, paths in enumerate(prefixes, 1):
            for index in range(len(paths)):
                row += 1
                self.source[row] = self.attributes[row] = row
                if index == 0:
                    self.head[number] = row
                else:
                    self.next[row - 1] = row

    def _describe_sources(self) -> None:
        ranks = sorted({int(ip_address(path.address)) for path in self.paths})
        kind = [0] + [path.is_external + 2 * path.is_originated for path in self.paths]
        router_id = [0] + [path.router_id for path in self.paths]
        rank = [0] + [ranks.index(int(ip_address(path.address))) for path in self.paths]
        path_id = [0] + [path.path_id for path in self.paths]
        self.decision.set_sources(
            np.array(kind, np.uint8), *(np.array(column, np.uint32) for column in (router_id, rank, path_id))
        )

    def _learn(self) -> None:
        """Learn one set for each path; its metric is that of the way, so paths with one next hop need one metric."""
        sets = [path.encode() for path in self.paths]
        offset = np.cumsum([0] + [len(octets) for octets in sets]).astype(np.uint32)
        ids = np.arange(1, len(sets) + 1, dtype=np.uint32)
        self.facts.learn(ids, offset, np.frombuffer(b"".join(sets), np.uint8))
        for set_id, path in enumerate(self.paths, 1):
            way = self.facts.ways_of([set_id])[0]
            self.facts.metric[way] = UNREACHABLE if path.metric is None else path.metric

    @property
    def columns(self):
        return self.head, self.next, self.source, self.attributes

    def select(self, rows=None, changed=None):
        """Run the kernel over all prefix rows, or over `rows`."""
        rows = self.prefix_rows if rows is None else np.array(rows, np.uint32)
        changed = np.zeros(len(rows), np.uint32) if changed is None else np.array(changed, np.uint32)
        return self.decision.select(rows, changed, *self.columns)
