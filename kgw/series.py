"""Snapshots of all metrics, taken in the event loop between two changes of the numbers."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from kgw.metrics import METRICS, Histogram

if TYPE_CHECKING:
    from kgw.metrics import Metric, Metrics


class Series(NamedTuple):
    """One metric with its numbers, by the values of its labels."""

    metric: Metric
    numbers: list[tuple[tuple[str, ...], float | Histogram]]


def take_snapshot(metrics: Metrics) -> list[Series]:
    """Return every metric with its current numbers, as copies.

    A known value of a label without a count has 0; an unknown number (None) is left out.
    """
    metrics.refresh()
    taken = []
    for metric in METRICS:
        held = getattr(metrics, metric.attribute)
        by_labels = dict.fromkeys(metric.values, 0) | held if metric.labels else {(): held}
        numbers = [
            (key if isinstance(key, tuple) else (key,), _copied(number))
            for key, number in by_labels.items()
            if number is not None
        ]
        taken.append(Series(metric, numbers))
    return taken


def _copied(number: float | Histogram) -> float | Histogram:
    if not isinstance(number, Histogram):
        return number
    copied = copy(number)
    copied.counts = [*number.counts]
    return copied
