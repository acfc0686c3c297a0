"""Prometheus' text of all metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from kgw.metrics import METRICS, TIME_BUCKETS_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from kgw.metrics import Metric, Metrics

    Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_ENDS = (*map(str, TIME_BUCKETS_S), "+Inf")


class _Numbers(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Family]:
        for metric in METRICS:
            yield _family(metric, getattr(self._metrics, metric.attribute))


def _family(metric: Metric, held: Any) -> Family:
    # Any: they differ in what `add_metric` takes.
    family: Any = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    numbers = dict.fromkeys(metric.values, 0) | held if isinstance(held, dict) else {(): held}
    for key, value in sorted(numbers.items()):
        labels = key if isinstance(key, tuple) else (key,)
        if isinstance(value, Histogram):
            buckets = list(zip(_ENDS, value.cumulative(), strict=True))
            family.add_metric(labels, buckets, value.sum_s)
        elif value is not None:
            family.add_metric(labels, value)
    found: Family = family
    return found


def render(metrics: Metrics) -> bytes:
    """Return everything in Prometheus' text form, and what the kernel says of the process.

    May be called in any thread, while numbers change. `Metrics.refresh` is for the loop to call.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(metrics))
    ProcessCollector(registry=registry)
    return bytes(generate_latest(registry))
