"""The exporter on the bus: relays the Loc-RIB to groups of neighbors, evaluated and dressed for each."""

from typing import Any

from common.bgp.reasons import ExportRefusal
from common.bus.batch import Batch
from common.bus.channels import family_of, loc_rib
from common.bus.control import ControlError
from common.bus.explain import explain
from common.bus.relay import Relay, Transform, Upstream
from common.bus.server import Refused
from common.bus.wire import Request
from common.config.digest import policy_digest
from common.config.schema import Config
from common.config.sharing import decode_share
from common.runtime.log import event
from common.runtime.stage import Context, Stage
from stages.exporter.evaluation import ExportEvaluation, version
from stages.exporter.group import Group, decode_group


class ExporterStage(Stage):
    """Export policy."""

    name = "exporter"

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self._evaluations: dict[Group, ExportEvaluation] = {}
        self._relay: Relay | None = None
        self._add_metrics()

    def start(self) -> None:
        self._relay = self.context.bus.relay("adj-rib-out/*", self._upstream, self._version, self._transformation)

    def status(self) -> dict[str, Any]:
        return {
            "groups": [
                {
                    "names": self._names(group),
                    "neighbors": self._members(group),
                    "family": group.family.label,
                    "external": group.is_external,
                    "routes_evaluated": evaluation.n_routes,
                    "sets_evaluated": evaluation.n_sets,
                    "routes_refused": _refused(evaluation),
                }
                for group, evaluation in self._evaluations.items()
            ],
        }

    def owns(self) -> list[str]:
        """Return the groups it is asked for."""
        requests = self._relay.requests() if self._relay is not None else []
        named = ((self._group(each), each) for each in requests)
        words = (
            f"{group.family.label} for {'+'.join(self._members(group))} of {each.reader}, rib.{_rib(each)}"
            for group, each in named
        )
        return sorted(dict.fromkeys(words))

    def _names(self, group: Group) -> list[str]:
        """Return what speakers call a group."""
        requests = self._relay.requests() if self._relay is not None else []
        named = (
            str(each.params["group"]) for each in requests if "group" in each.params and self._group(each) == group
        )
        return sorted(set(named))

    def controls(self) -> dict:
        return {"explain": self._on_explain}

    def reload(self, config: Config) -> None:
        """Go by other policies: a group keeps its own until the speaker asks for another one for its members."""
        self.config = config
        if self._relay is not None:
            self._relay.update()
            used = {self._group(request) for request in self._relay.requests()}
            self._evaluations = {group: each for group, each in self._evaluations.items() if group in used}
        event(self.context.log, "policy-replaced", groups_kept=len(self._evaluations))

    def _version(self, request: Request) -> str:
        return version(self.config, self._group(request))

    def _group(self, request: Request) -> Group:
        try:
            return decode_group(family_of(request.channel), request.params, self.config)
        except ValueError as error:
            raise Refused(str(error)) from error

    def _upstream(self, request: Request) -> Upstream:
        group = self._group(request)
        try:
            self._evaluation(group)
        except ValueError as error:
            raise Refused(str(error)) from error
        view = "installed" if request.params.get("view") == "installed" else "best"
        try:
            share = decode_share(request.params)
        except ValueError as error:
            raise Refused(str(error)) from error
        params = {"view": view, "tap": request.is_tap, **share.params}
        return self.context.bus.endpoint("rib", _rib(request)), loc_rib(group.family.label), params

    def _transformation(self, request: Request) -> Transform:
        transform = self._evaluation(self._group(request)).transform
        return lambda batch: [transform(batch)]

    def _evaluation(self, group: Group) -> ExportEvaluation:
        evaluation = self._evaluations.get(group)
        if evaluation is None:
            evaluation = self._evaluations[group] = ExportEvaluation(self.config, group)
        return evaluation

    def _members(self, group: Group) -> list[str]:
        """Return the neighbors that are configured as the members of a group are; those it was asked for if none is."""
        alike = [
            neighbor.name
            for neighbor in self.config.neighbors.values()
            if policy_digest(neighbor.export) == group.policy_name
            and self.config.is_external(neighbor) == group.is_external
        ]
        return sorted(alike) or list(group.neighbors)

    def _on_explain(self, question: dict) -> dict:
        """As common.bus.explain, for the group in `params` (or {"neighbor": NAME} in it)."""
        try:
            group = decode_group(str(question.get("family")), question.get("params") or {}, self.config)
        except ValueError as error:
            raise ControlError(str(error)) from error
        evaluation = ExportEvaluation(self.config, group)  # a fresh one, so that questions do not count as routes

        def evaluate(batch: Batch) -> tuple:
            columns = batch.columns
            return evaluation.evaluate(
                batch.meta["sources"],
                columns["source"],
                columns["set"],
                columns["set_offset"],
                columns["set_octets"],
            )

        return {"routes": explain(question, evaluate, ExportRefusal.words_of)}

    def _add_metrics(self) -> None:
        metrics = self.context.metrics
        evaluated = metrics.gauge(
            "evaluated_routes", "Routes evaluated since the configuration was read.", ["neighbors"]
        )
        refused = metrics.gauge(
            "refused_routes", "Of these, routes not told, by reason.", ["neighbors", "family", "reason"]
        )

        def refresh() -> None:
            evaluated.clear()
            refused.clear()
            for group, evaluation in self._evaluations.items():
                neighbors = ",".join(self._members(group))
                evaluated.labels(neighbors).inc(evaluation.n_routes)
                for words, count in _refused(evaluation).items():
                    refused.labels(neighbors, group.family.label, words).set(count)

        metrics.before_scrape(refresh)


def _rib(request: Request) -> str:
    return str(request.params.get("rib", "0"))


def _refused(evaluation: ExportEvaluation) -> dict[str, int]:
    counts = evaluation.n_refused
    return {reason.words: int(counts[reason]) for reason in ExportRefusal if reason and counts[reason]}


STAGE = ExporterStage
