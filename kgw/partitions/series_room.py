"""Limits the number of metric series by topic, partition and group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from kgw.metrics import Metrics

_log = EventLogger(__name__)

OTHERS: Final = "(other)"
"""The label of topics, partitions and groups without series of their own. No topic has this
name."""

_Label = TypeVar("_Label", str, tuple[str, ...])


class SeriesRoom:
    """The remaining series of `kgw.metrics.labels.series.max`."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._told: set[str] = set()

    def take(self, series: int) -> bool:
        """Use `series` of the remaining series. Return False if there are too few."""
        if series > self._left:
            return False
        self._left -= series
        return True

    def give_back(self, series: int) -> None:
        """Return the series of a deleted topic, partition or group."""
        self._left += series

    def tell(self, label: str, left_out: int, metrics: Metrics) -> None:
        """Report how many topics, partitions or group partitions have no series of their own."""
        metrics.labels_left_out[label] = left_out
        if not left_out:
            self._told.discard(label)
        elif label not in self._told:
            self._told.add(label)
            _log.warning(
                "too few series for all: the rest is counted as (other)",
                label=label,
                left_out=left_out,
                setting="kgw.metrics.labels.series.max",
            )


def add(numbers: dict[_Label, int], label: _Label, number: int) -> None:
    """Add `number` to a label's value."""
    numbers[label] = numbers.get(label, 0) + number
