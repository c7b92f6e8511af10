"""The policy stage on the bus: relays adj-rib-in from a speaker, evaluated."""

from typing import Any

import numpy as np

from common.bgp.reasons import ImportRefusal
from common.bus.batch import Batch
from common.bus.channels import family_of
from common.bus.explain import explain
from common.bus.relay import Relay, Transform, Upstream
from common.bus.wire import Request
from common.config.schema import Config
from common.runtime.log import event
from common.runtime.stage import Context, Stage
from stages.policy.evaluation import ImportEvaluation


class PolicyStage(Stage):
    """Import policy."""

    name = "policy"

    def __init__(self, config: Config, instance: str, context: Context):
        super().__init__(config, instance, context)
        self.evaluation = ImportEvaluation(config)
        self._relay: Relay | None = None
        self._add_metrics()

    def start(self) -> None:
        self._relay = self.context.bus.relay(
            "adj-rib-in/*", self._upstream, self.evaluation.version, self._transformation, joins_shares=True
        )

    def status(self) -> dict[str, Any]:
        return {
            "version": self.evaluation.version,
            "routes_evaluated": self.evaluation.n_routes,
            "sets_evaluated": self.evaluation.n_sets,
            "routes_refused": self._refused(),
        }

    def owns(self) -> list[str]:
        """Return the streams it is asked for."""
        requests = self._relay.requests() if self._relay is not None else []
        streams = (f"{family_of(each.channel)} of speaker.{_speaker(each)} for {each.reader}" for each in requests)
        return sorted(dict.fromkeys(streams))

    def controls(self) -> dict:
        return {"explain": self._on_explain, "refused": lambda question: {"neighbors": self._refused_of_each()}}

    def reload(self, config: Config) -> None:
        evaluation = ImportEvaluation(config)
        event(self.context.log, "policy-replaced", before=self.evaluation.version, after=evaluation.version)
        self.config, self.evaluation = config, evaluation
        if self._relay is not None:
            self._relay.set_version(evaluation.version)

    def _upstream(self, request: Request) -> Upstream:
        return self.context.bus.endpoint("speaker", _speaker(request)), request.channel, request.params

    def _transformation(self, request: Request) -> Transform:
        transform = self.evaluation.transform
        return lambda batch: [transform(batch)]

    def _on_explain(self, question: dict) -> dict:
        """As common.bus.explain."""
        evaluation = ImportEvaluation(self.config)  # a fresh one, so that questions do not count as routes

        def evaluate(batch: Batch) -> tuple:
            columns = evaluation.transform(batch).columns
            return tuple(columns[name] for name in ("set", "reason", "set_offset", "set_octets"))

        return {"routes": explain(question, evaluate, ImportRefusal.words_of)}

    def _refused(self) -> dict[str, int]:
        return _in_words(sum(self.evaluation.n_refused.values(), np.zeros(256, np.int64)))

    def _refused_of_each(self) -> dict[str, dict[str, int]]:
        """Return how many routes of each neighbor were refused, by reason, since the configuration was read."""
        return {name: _in_words(counts) for name, counts in self.evaluation.n_refused.items()}

    def _add_metrics(self) -> None:
        metrics = self.context.metrics
        evaluated = metrics.gauge("evaluated_routes", "Routes evaluated since the configuration was read.")
        refused = metrics.gauge("refused_routes", "Of these, routes refused, by reason.", ["reason"])

        def refresh() -> None:
            evaluated.set(self.evaluation.n_routes)
            for words, count in self._refused().items():
                refused.labels(words).set(count)

        metrics.before_scrape(refresh)


def _in_words(counts: np.ndarray) -> dict[str, int]:
    return {reason.words: int(counts[reason]) for reason in ImportRefusal if reason and counts[reason]}


def _speaker(request: Request) -> str:
    return str(request.params.get("speaker", "0"))


STAGE = PolicyStage
