"""Evaluates a batch of the Adj-RIB-In with the import policies of one configuration.

Owns the rules made from the configuration, one for all sources that are treated alike. Never keeps a batch.
RFC 4271 §9.1.1 and §9.1.2, RFC 8212 §2, RFC 4456 §8.
"""

import hashlib
from ipaddress import IPv4Address, ip_address
from typing import NamedTuple

import numpy as np

from common.arrays import has_any
from common.bgp.constants import Family
from common.bgp.reasons import ImportRefusal
from common.bgp.rules import Edits, community_edits
from common.bus.batch import Batch
from common.bus.schema import RouteChanges
from common.config.schema import Config, Neighbor
from common.kernels.dress import Dresser
from common.kernels.evaluate import ImportChecks, PrefixChecks, pair, settle

# Raised when the same configuration comes to mean something else: readers then evaluate anew.
REVISION = 1


class _Treatment(NamedTuple):
    """How the sources of a batch are treated."""

    rules: np.ndarray  # by source, uint32
    is_exempt: np.ndarray  # from the checks of prefixes, by source, uint8
    is_editing: bool  # one of the rules changes sets


_NO_RULES, _NO_EXEMPT = np.empty(0, np.uint32), np.empty(0, np.uint8)


class ImportEvaluation:
    """The import policies of one configuration, applied to batches."""

    def __init__(self, config: Config):
        self._config = config
        self._router_id = int(IPv4Address(config.router.router_id))
        self._own_addresses = own_addresses(config)
        self._checks = ImportChecks(sorted(self._own_addresses))
        self._dresser = Dresser()
        self._rules: dict[tuple, int] = {}
        self._is_editing: list[bool] = []  # by rule
        self._last_sources: list[dict] = []
        self._last_treatment = _Treatment(_NO_RULES, _NO_EXEMPT, False)
        self._prefixes = {family.label: _prefix_checks(config, family) for family in Family}
        self.version = self._version()
        self.n_sets = 0
        self.n_routes = 0
        self.n_refused: dict[str, np.ndarray] = {}  # routes by reason, of each neighbor that has some

    def transform(self, batch: Batch) -> Batch:
        """Return what a batch becomes; the batch itself where nothing is refused or changed."""
        if batch.kind is not RouteChanges:
            return batch
        columns = batch.columns
        sources = batch.meta["sources"]
        set_offset, set_octets = columns["set_offset"], columns["set_octets"]
        n_sets = len(set_offset) - 1
        self.n_routes += len(columns["set"])
        if n_sets == 0:
            return batch
        rules, is_exempt, is_editing = self._treatment(sources)
        pairs, rule_of_pair, set_of_pair = pair(rules, columns["source"], columns["set"], n_sets)
        refusal = self._checks.evaluate(rule_of_pair, set_of_pair, set_offset, set_octets)
        self.n_sets += len(refusal)
        reason = columns["reason"].copy()
        n_refused = self._prefixes[batch.meta["family"]].evaluate(
            columns["hi"], columns["lo"], columns["length"], columns["source"], columns["set"], is_exempt, reason
        )
        if is_editing or has_any(refusal):
            set_of_pair, set_offset, set_octets = self._dresser.dress(
                rule_of_pair, set_of_pair, refusal, set_offset, set_octets
            )
        elif not n_refused:
            return batch
        sets = settle(pairs, set_of_pair, refusal, reason)
        if has_any(reason):
            self._count(sources, columns["source"], reason)
        changed = {"set": sets, "reason": reason, "set_offset": set_offset, "set_octets": set_octets}
        return Batch(RouteChanges, columns | changed, batch.meta)

    def _count(self, sources: list[dict], source: np.ndarray, reason: np.ndarray) -> None:
        """Add the refused routes of a batch to those of their neighbors."""
        counts = np.bincount(source.astype(np.int64) * 256 + reason, minlength=256 * len(sources)).reshape(-1, 256)
        for index in np.flatnonzero(counts[:, 1:].any(axis=1)).tolist():
            counted = self.n_refused.setdefault(sources[index]["name"], np.zeros(256, np.int64))
            counted += counts[index]

    # ---- rules --------------------------------------------------------------------------------------------------

    def _treatment(self, sources: list[dict]) -> "_Treatment":
        """Return how the sources of a batch are treated; batch after batch is from the same."""
        if sources != self._last_sources:
            rules = [self._rule(source) for source in sources]
            is_exempt = np.array([not source["name"] for source in sources], np.uint8)
            is_editing = any(self._is_editing[rule] for rule in rules)
            self._last_treatment = _Treatment(np.array(rules, np.uint32), is_exempt, is_editing)
            self._last_sources = sources
        return self._last_treatment

    def _rule(self, source: dict) -> int:
        """Return the rule for a source, made when it is first met."""
        local_address = source.get("local_address", b"")
        key = (source["name"], source["asn"], source["local_asn"], source["external"], local_address)
        rule = self._rules.get(key)
        if rule is None:
            self._learn_own_address(local_address)
            neighbor = self._config.neighbors.get(source["name"])
            verdict = self._verdict(source, neighbor)
            edits = _edits(neighbor) if not verdict else Edits()
            rule = self._rules[key] = self._checks.add(
                verdict=int(verdict),
                is_checked=bool(source["name"]),
                own_asn=self._config.router.asn,
                local_asn=source["local_asn"],
                asn_expected=source["asn"] if self._enforces_first_as(source, neighbor) else 0,
                router_id=0 if source["external"] else self._router_id,
                cluster_id=0 if source["external"] else self._router_id,
            )
            self._dresser.add(edits)
            self._is_editing.append(not edits.is_empty)
        return rule

    def _learn_own_address(self, address: bytes) -> None:
        """Take note of an own address that only a session shows; the configuration need not name them all."""
        if address and address not in self._own_addresses:
            self._own_addresses.add(address)
            self._checks.set_own_addresses(sorted(self._own_addresses))

    def _verdict(self, source: dict, neighbor: Neighbor | None) -> ImportRefusal:
        """Return what is said of all routes of a source, before one of them is looked at."""
        if not source["name"]:
            return ImportRefusal.NONE
        if neighbor is None:
            return ImportRefusal.UNKNOWN_NEIGHBOR
        if neighbor.import_ is None:
            # RFC 8212 §2: routes of an external neighbor without an import policy are not eligible.
            return ImportRefusal.NO_POLICY if source["external"] else ImportRefusal.NONE
        return ImportRefusal.REJECTED if neighbor.import_.default == "reject" else ImportRefusal.NONE

    def _enforces_first_as(self, source: dict, neighbor: Neighbor | None) -> bool:
        if not source["external"] or neighbor is None:
            return False
        own = neighbor.enforce_first_as
        return self._config.policy.enforce_first_as if own is None else own

    def _version(self) -> str:
        policy = self._config.policy
        parts = (
            REVISION,
            self._config.router.asn,
            self._router_id,
            sorted(own_addresses(self._config)),
            policy.martians,
            policy.maximum_length_ipv4,
            policy.maximum_length_ipv6,
            policy.enforce_first_as,
            sorted((item.name, item.enforce_first_as, repr(item.import_)) for item in self._config.neighbors.values()),
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def own_addresses(config: Config) -> set[bytes]:
    """Return the router's own addresses as far as the configuration names them, packed."""
    named = {*config.router.listen, config.router.next_hop_ipv4, config.router.next_hop_ipv6}
    for neighbor in config.neighbors.values():
        named |= {neighbor.local_address, neighbor.next_hop_ipv4, neighbor.next_hop_ipv6}
    return {ip_address(address).packed for address in named if address}


def _edits(neighbor: Neighbor | None) -> Edits:
    block = neighbor.import_ if neighbor is not None else None
    return Edits(local_pref=block.local_pref, **community_edits(block)) if block is not None else Edits()


def _prefix_checks(config: Config, family: Family) -> PrefixChecks:
    version, bits = (6, 128) if family.is_wide else (4, 32)
    martians = [
        (int(prefix.network_address) << (128 - bits), prefix.prefixlen)
        for prefix in config.policy.martians
        if prefix.version == version
    ]
    longest = config.policy.maximum_length_ipv6 if family.is_wide else config.policy.maximum_length_ipv4
    return PrefixChecks(family.is_wide, martians, longest)
