"""The numbers of one moment, taken in the event loop, which goes on counting."""

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
    """Return every metric with what it holds now. The numbers are copies."""
    metrics.refresh()
    taken = []
    for metric in METRICS:
        held = getattr(metrics, metric.attribute)
        by_labels = held if isinstance(held, dict) else {(): held}
        numbers = [
            (key if isinstance(key, tuple) else (key,), _copied(number))
            for key, number in by_labels.items()
        ]
        taken.append(Series(metric, numbers))
    return taken


def _copied(number: float | Histogram) -> float | Histogram:
    if not isinstance(number, Histogram):
        return number
    copied = copy(number)
    copied.counts = [*number.counts]
    return copied
