"""Metrics of lag by group and topic, and by group and partition (`kgw.metrics.labels`)."""

from __future__ import annotations

from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.partitions.series_room import OTHERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.metrics import Metrics
    from kgw.offsets.lag import LagSum
    from kgw.partitions.series_room import SeriesRoom

TOPIC_SERIES: Final = 2
PARTITION_SERIES: Final = 3


class _Lag(NamedTuple):
    """The lag of a group in a topic or a partition in one sample; None if unknown."""

    lag: int | None
    age_ms: int | None
    committed_offset: int | None


_UNKNOWN = _Lag(None, None, None)


class _Figures:
    """The lag of label sets that have series of their own, and the sum of all others.

    Label sets with series in the last sample keep them; free series go to the first new label sets
    of a sample.
    """

    def __init__(self, room: SeriesRoom, series: int, others: tuple[str, ...]) -> None:
        self._room = room
        self._series = series
        self._labels_of_others = others
        self._named: set[tuple[str, ...]] = set()
        self._met: dict[tuple[str, ...], _Lag] = {}
        self._others = _UNKNOWN
        self.left_out = 0

    def begin(self) -> None:
        """Begin a sample, without label sets so far."""
        self._met = {}
        self._others = _UNKNOWN
        self.left_out = 0

    def meet(self, labels: tuple[str, ...], lag: _Lag) -> None:
        """Add the lag of one label set to the sample."""
        if labels not in self._named:
            if not self._room.take(self._series):
                self.left_out += 1
                self._others = _Lag(
                    _merged(add, self._others.lag, lag.lag),
                    _merged(max, self._others.age_ms, lag.age_ms),
                    _merged(add, self._others.committed_offset, lag.committed_offset),
                )
                return
            self._named.add(labels)
        self._met[labels] = lag

    def finish(self) -> dict[tuple[str, ...], _Lag]:
        """Return the sample's lags by labels.

        Label sets that are not in the sample lose their series.
        """
        found, self._met = self._met, {}
        self._room.give_back(self._series * (len(self._named) - len(found)))
        self._named = set(found)
        if self.left_out:
            found[self._labels_of_others] = self._others
        return found


class GroupFigures:
    """Collects the lag of all groups during a sample, and writes it to the metrics."""

    def __init__(self, metrics: Metrics, room: SeriesRoom, *, by_partition: bool) -> None:
        self._metrics = metrics
        self._room = room
        self._by_partition = by_partition
        self._topics = _Figures(room, TOPIC_SERIES, (OTHERS, OTHERS))
        self._partitions = _Figures(room, PARTITION_SERIES, (OTHERS, OTHERS, OTHERS))

    def begin(self) -> None:
        """Begin a sample."""
        self._topics.begin()
        self._partitions.begin()

    def add_topic(self, group_id: str, topic: str, total: LagSum) -> None:
        """Add a group's lag in a topic."""
        self._topics.meet((group_id, topic), _Lag(total.known_lag, total.time_lag_ms, None))

    def add_partition(
        self, group_id: str, topic: str, index: int, committed: int, lag: int, age_ms: int | None
    ) -> None:
        """Add a group's lag in a partition."""
        if self._by_partition:
            # A damaged offset is below 0: its lag is unknown.
            found = _UNKNOWN if committed < 0 else _Lag(max(0, lag), age_ms, committed)
            self._partitions.meet((group_id, topic, str(index)), found)

    def finish(self) -> None:
        """Write the sample to the metrics. Unknown values get no series."""
        metrics = self._metrics
        topics = self._topics.finish()
        metrics.group_topic_lag = _lags(topics)
        metrics.group_topic_time_lag_s = _ages_s(topics)
        partitions = self._partitions.finish()
        metrics.group_partition_lag = _lags(partitions)
        metrics.group_partition_time_lag_s = _ages_s(partitions)
        metrics.group_partition_committed_offset = {
            labels: one.committed_offset
            for labels, one in partitions.items()
            if one.committed_offset is not None
        }
        self._room.tell("group", self._topics.left_out + self._partitions.left_out, metrics)


def _lags(found: dict[tuple[str, ...], _Lag]) -> dict[tuple[str, ...], int]:
    return {labels: one.lag for labels, one in found.items() if one.lag is not None}


def _ages_s(found: dict[tuple[str, ...], _Lag]) -> dict[tuple[str, ...], float]:
    return {labels: one.age_ms / 1000 for labels, one in found.items() if one.age_ms is not None}


def _merged(merge: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    """Return the sum of the numbers, without unknown ones."""
    if one is None or other is None:
        return one if other is None else other
    return merge(one, other)
