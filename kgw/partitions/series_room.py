"""How many series there may be by topic, partition and group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kgw.logs import EventLogger

if TYPE_CHECKING:
    from kgw.metrics import Metrics

_log = EventLogger(__name__)

OTHERS: Final = "(other)"
"""The label of those that have no series of their own. No topic can be called so."""

_Label = TypeVar("_Label", str, tuple[str, ...])


class SeriesRoom:
    """What is left of `kgw.metrics.labels.series.max`."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._told: set[str] = set()

    def take(self, series: int) -> bool:
        """Whether there is room for so many more, which is taken then."""
        if series > self._left:
            return False
        self._left -= series
        return True

    def give_back(self, series: int) -> None:
        """Have room again: whose series they were is gone."""
        self._left += series

    def tell(self, label: str, left_out: int, metrics: Metrics) -> None:
        """Say how many topics, partitions or places of groups have no series of their own."""
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
    """Add to what a label's value has."""
    numbers[label] = numbers.get(label, 0) + number
