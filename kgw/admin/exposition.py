"""Writes all metrics in Prometheus' text format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from kgw.metrics import TIME_BUCKETS_S, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from kgw.series import Series

    Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_ENDS = (*map(str, TIME_BUCKETS_S), "+Inf")


class _Numbers(Collector):
    def __init__(self, taken: Sequence[Series]) -> None:
        self._taken = taken

    def collect(self) -> Iterator[Family]:
        return map(_family, self._taken)


def _family(series: Series) -> Family:
    metric = series.metric
    # Typed as Any, because `add_metric` has other arguments for each kind.
    family: Any = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
    for labels, value in sorted(series.numbers):
        if isinstance(value, Histogram):
            buckets = list(zip(_ENDS, value.cumulative(), strict=True))
            family.add_metric(labels, buckets, value.sum_s)
        else:
            family.add_metric(labels, value)
    found: Family = family
    return found


def render(taken: Sequence[Series]) -> bytes:
    """Return the metrics and the kernel's data about the process as Prometheus' text.

    May be called in any thread.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Numbers(taken))
    ProcessCollector(registry=registry)
    return bytes(generate_latest(registry))
