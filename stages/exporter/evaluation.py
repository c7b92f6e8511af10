"""Evaluates batches of the Loc-RIB for one group of neighbors: what it is told, and in which form.

Owns the rules for the group, one for all sources that are treated alike. Never keeps a batch.
RFC 4271 §5.1 (who is told which attribute), §9.2 (not between internal peers), RFC 4456, RFC 6793, RFC 8212.
"""

import hashlib
from ipaddress import IPv4Address

import numpy as np

from common.arrays import has_any, only_value
from common.bgp.constants import NONE, AttributeType
from common.bgp.reasons import ExportRefusal
from common.bgp.rules import Edits, NextHopRule, community_edits
from common.bus.batch import Batch, empty_columns
from common.bus.schema import BestChanges, ExportChanges
from common.config.schema import Config
from common.kernels.dress import Dresser
from common.kernels.evaluate import ExportChecks, pair, settle
from stages.exporter.group import Group

# Raised when the same configuration comes to mean something else: readers then evaluate anew.
REVISION = 1

DEFAULT_LOCAL_PREF = 100

# Attributes that stay inside an AS, MULTI_EXIT_DISC apart: RFC 4271 §5.1.5, RFC 4456 §8, RFC 7311 §3.
INTERNAL_ATTRIBUTES = frozenset(
    {AttributeType.LOCAL_PREF, AttributeType.ORIGINATOR_ID, AttributeType.CLUSTER_LIST, AttributeType.AIGP}
)


def version(config: Config, group: Group) -> str:
    """Return a digest of all that the exports of a group are evaluated with."""
    parts = (REVISION, config.router.router_id, group)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


class ExportEvaluation:
    """The export policy of one group, applied to batches."""

    def __init__(self, config: Config, group: Group):
        self.group = group
        self._config = config
        self._policy = group.policy(config)
        self._cluster_id = int(IPv4Address(config.router.router_id))
        self._checks = ExportChecks()
        self._dresser = Dresser()
        self._rules: dict[tuple, int] = {}
        self._last_sources: list[dict] = []
        self._last_rules = np.empty(0, np.uint32)
        self.n_sets = 0
        self.n_routes = 0
        self.n_refused = np.zeros(256, np.int64)  # routes, by reason

    def transform(self, batch: Batch) -> Batch:
        """Return what a batch of BestChanges becomes; another kind is handed on."""
        if batch.kind is not BestChanges:
            return batch
        if self._refusal_of_all():
            # Nothing was told in this epoch, so nothing has to be taken back: only the position goes on.
            self.n_routes += len(batch.columns["hi"])
            self.n_refused[self._refusal_of_all()] += len(batch.columns["hi"])
            return Batch(ExportChanges, empty_columns(ExportChanges), {"family": batch.meta["family"], "sources": []})
        columns = batch.columns
        sources = batch.meta["sources"]
        source, chosen = first_paths(columns["n_paths"], columns["path_source"], columns["path_set"])
        sets, _, set_offset, set_octets = self.evaluate(
            sources, source, chosen, columns["set_offset"], columns["set_octets"]
        )
        made = {"set": sets, "source": source, "set_offset": set_offset, "set_octets": set_octets}
        prefixes = {name: columns[name] for name in ("hi", "lo", "length")}
        return Batch(ExportChanges, prefixes | made, {"family": batch.meta["family"], "sources": sources})

    def evaluate(self, sources: list[dict], source, sets, set_offset, set_octets) -> tuple:
        """Return (set of each row or NONE, refusal of each row, set_offset, set_octets), dressed."""
        if sources != self._last_sources:  # batch after batch is from the same
            self._last_rules = np.array([self._rule(item) for item in sources], np.uint32)
            self._last_sources = sources
        pairs, rule_of_pair, set_of_pair = pair(self._last_rules, source, sets, len(set_offset) - 1)
        refusal = self._checks.evaluate(rule_of_pair, set_of_pair, set_offset, set_octets)
        new_sets, set_offset, set_octets = self._dresser.dress(
            rule_of_pair, set_of_pair, refusal, set_offset, set_octets
        )
        reason = np.zeros(len(sets), np.uint8)
        sets = settle(pairs, new_sets, refusal, reason)
        self.n_routes += len(sets)
        self.n_sets += len(refusal)
        if has_any(reason):
            self.n_refused += np.bincount(reason, minlength=256)
        return sets, reason, set_offset, set_octets

    # ---- rules --------------------------------------------------------------------------------------------------

    def _rule(self, source: dict) -> int:
        """Return the rule for a source, made when it is first met."""
        key = _treatment(source)
        rule = self._rules.get(key)
        if rule is None:
            verdict = self._verdict(source)
            rule = self._rules[key] = self._checks.add(verdict=int(verdict), is_external=self.group.is_external)
            self._dresser.add(Edits() if verdict else self._edits(source))
        return rule

    def _verdict(self, source: dict) -> ExportRefusal:
        """Return what is said of all routes of a source, before one of them is looked at."""
        policy = self._policy
        is_local = not source["name"]
        if self._refusal_of_all():
            return self._refusal_of_all()
        if policy is not None and is_local and not policy.originated_routes:
            return ExportRefusal.ORIGINATED
        if policy is not None and not is_local and not policy.learned_routes:
            return ExportRefusal.LEARNED
        is_between_internal = not (is_local or source["external"] or self.group.is_external)
        # RFC 4271 §9.2: not from one internal peer to another; RFC 4456 §6: unless one of them is a client.
        if is_between_internal and not (source.get("rr_client") or self.group.is_rr_client):
            return ExportRefusal.INTERNAL
        return ExportRefusal.NONE

    def _refusal_of_all(self) -> ExportRefusal:
        """Return why the group is told nothing at all, whatever the route; NONE if it may be told some."""
        if self._policy is None:
            return ExportRefusal.NO_POLICY if self.group.is_external else ExportRefusal.NONE  # RFC 8212 §2
        return ExportRefusal.REJECTED if self._policy.default == "reject" else ExportRefusal.NONE

    def _edits(self, source: dict) -> Edits:
        communities = community_edits(self._policy) if self._policy is not None else {}
        common = {"next_hop": self.group.next_hop, "is_two_octet": not self.group.has_four_octet_asn, **communities}
        return self._external_edits(source, common) if self.group.is_external else self._internal_edits(source, common)

    def _external_edits(self, source: dict, common: dict) -> Edits:
        # RFC 4271 §5.1.4: a MED received is not passed on to another AS.
        strip = INTERNAL_ATTRIBUTES if not source["name"] else INTERNAL_ATTRIBUTES | {AttributeType.MULTI_EXIT_DISC}
        return Edits(
            next_hop_rule=NextHopRule.REPLACE,
            strip=strip,
            strips_non_transitive=True,
            prepend_asn=self.group.local_asn,
            prepend_count=1 + self._policy.as_path_prepend,
            **common,
        )

    def _internal_edits(self, source: dict, common: dict) -> Edits:
        # RFC 4271 §5.1.2: the path is not changed towards internal peers, so nothing is prepended.
        is_reflected = bool(source["name"]) and not source["external"]
        is_next_hop_self = self._policy is not None and self._policy.next_hop_self
        # RFC 4456 §10: a reflector leaves the next hop as it is.
        is_replaced = is_next_hop_self and not is_reflected
        return Edits(
            next_hop_rule=NextHopRule.REPLACE if is_replaced else NextHopRule.KEEP_GLOBAL,
            default_local_pref=DEFAULT_LOCAL_PREF,
            originator_id=source["router_id"] if is_reflected else 0,
            cluster_id=self._cluster_id if is_reflected else 0,
            **common,
        )


def _treatment(source: dict) -> tuple:
    """Return a key that is equal for sources whose routes are treated alike."""
    if not source["name"]:
        return ("local",)
    if source["external"]:
        return ("external",)
    return ("internal", bool(source.get("rr_client")), source["router_id"])


def first_paths(n_paths: np.ndarray, path_source: np.ndarray, path_set: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (source, set) of the best path of each row, NONE for rows without one."""
    if len(path_set) == len(n_paths) and only_value(n_paths) == 1:
        return path_source, path_set
    has_path = n_paths > 0
    first = (np.cumsum(n_paths, dtype=np.int64) - n_paths)[has_path]
    source = np.full(len(n_paths), NONE, np.uint32)
    sets = np.full(len(n_paths), NONE, np.uint32)
    source[has_path], sets[has_path] = path_source[first], path_set[first]
    return source, sets
