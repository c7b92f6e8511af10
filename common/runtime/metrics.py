"""The metrics of one process, in a registry of prometheus-client.

Owns names of the form headrace_<stage>_<noun>_<unit>[_total]. Their text is answered through the control question
"metrics"; nothing here opens a port.
"""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Metrics:
    """Makes the metrics of one stage, each once; asking again for a name returns the same one."""

    def __init__(self, stage: str, instance: str = "0"):
        self.stage = stage
        self.instance = instance
        self.registry = CollectorRegistry(auto_describe=False)
        self._made: dict[str, Counter | Gauge] = {}
        self._refresh: list[Callable[[], None]] = []

    def counter(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Counter:
        """Return the counter headrace_<stage>_<name>_total."""
        return self._make(Counter, name, meaning, labels)

    def gauge(self, name: str, meaning: str, labels: Sequence[str] = ()) -> Gauge:
        """Return the gauge headrace_<stage>_<name>."""
        return self._make(Gauge, name, meaning, labels)

    def before_scrape(self, refresh: Callable[[], None]) -> None:
        """Call `refresh()` before each exposition: for gauges that are read from tables, not kept up on the way."""
        self._refresh.append(refresh)

    def text(self) -> str:
        """Return the exposition in Prometheus' text format."""
        for refresh in self._refresh:
            refresh()
        return generate_latest(self.registry).decode()

    def _make(self, cls, name: str, meaning: str, labels: Sequence[str]):
        metric = self._made.get(name)
        if metric is None:
            full_name = f"headrace_{self.stage}_{name}"
            metric = cls(full_name, meaning, labelnames=tuple(labels), registry=self.registry)
            self._made[name] = metric
        return metric
