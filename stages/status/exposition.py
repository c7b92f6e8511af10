"""Joins the metrics of all stages into one exposition in which each sample says which instance it is of.

Owns nothing. A stage whose text cannot be read is left out; `headrace_status_answering_flag` says who answered.
"""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


class _Collected:
    """Families ready made."""

    def __init__(self, families: Iterable[Metric]):
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def join(texts: list[tuple[str, str, str]], silent: list[tuple[str, str]] = ()) -> str:
    """Return one exposition of (stage, instance, text); `silent` are stages that gave none."""
    families: dict[str, Metric] = {}
    answering = Metric("headrace_status_answering_flag", "1 if a stage answers, 0 if not.", "gauge")
    for stage, instance, text in texts:
        is_readable = _add(families, instance, text)
        answering.add_sample(answering.name, {"stage": stage, "instance": instance}, 1 if is_readable else 0)
    for stage, instance in silent:
        answering.add_sample(answering.name, {"stage": stage, "instance": instance}, 0)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*families.values(), answering]))
    return generate_latest(registry).decode()


def _add(families: dict[str, Metric], instance: str, text: str) -> bool:
    """Add the samples of one stage; tell whether its text could be read."""
    try:
        read = list(text_string_to_metric_families(text))
    except (ValueError, KeyError, IndexError):
        return False
    for family in read:
        whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
        for sample in family.samples:
            whole.add_sample(sample.name, {**sample.labels, "instance": instance}, sample.value)
    return True
