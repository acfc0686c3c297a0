"""A short history of groups' committed offsets, for charts of their lag.

Losing it is harmless, unlike other data in a state store.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOR_EVER_MS: Final = (1 << 63) - 1


class LagHistoryPoint(NamedTuple):
    """A group's committed offset and lag in one partition at one time."""

    sampled_at_ms: int
    """Wall clock."""
    group_id: str
    topic: str
    partition: int
    committed_offset: int
    """-1 if the group has committed none."""
    high_watermark: int
    time_lag_ms: int | None = None
    """Age of the first unread record, 0 if there is none; None if unknown."""

    @property
    def lag(self) -> int | None:
        """Unread records; negative if the committed offset is too high, None if there is none."""
        if self.committed_offset < 0:
            return None
        return self.high_watermark - self.committed_offset


class SampleFilter(NamedTuple):
    """A choice of samples; None for all. Times include `since_ms` and exclude `until_ms`."""

    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    since_ms: int = 0
    until_ms: int = FOR_EVER_MS

    def takes(self, sample: LagHistoryPoint) -> bool:
        """Return whether a sample is chosen."""
        return (
            self.group_id in {None, sample.group_id}
            and self.topic in {None, sample.topic}
            and self.partition in {None, sample.partition}
            and self.since_ms <= sample.sampled_at_ms < self.until_ms
        )


EVERY_SAMPLE: Final = SampleFilter()


class LagHistory(ABC):
    """Samples by time, group, topic and partition."""

    @abstractmethod
    async def append(self, samples: Sequence[LagHistoryPoint]) -> None:
        """Store samples; a sample with the same time, group, topic and partition is replaced.

        They share a commit with other waiting changes. Raises StorageError.
        """

    @abstractmethod
    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagHistoryPoint]:
        """Return the newest `limit` of the chosen samples, oldest first.

        Sorted by time, group, topic, partition. Damaged samples are left out. Raises StorageError.
        """

    @abstractmethod
    async def prune(self, *, before_ms: int, keep: int) -> None:
        """Remove samples from before a time, and the oldest ones beyond about `keep` samples.

        Samples of the same time are removed together, so slightly fewer than `keep` may stay.
        Raises StorageError.
        """


class MemoryLagHistory(LagHistory):
    """Samples in a dictionary."""

    def __init__(self) -> None:
        """Begin empty."""
        self._samples: dict[tuple[int, str, str, int], LagHistoryPoint] = {}

    async def append(self, samples: Sequence[LagHistoryPoint]) -> None:
        for sample in samples:
            self._samples[sample[:4]] = sample

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagHistoryPoint]:
        return newest(filter(wanted.takes, self._samples.values()), limit)

    async def prune(self, *, before_ms: int, keep: int) -> None:
        times = sorted((place[0] for place in self._samples), reverse=True)
        if len(times) > keep:
            before_ms = max(before_ms, times[keep] + 1)
        self._samples = {
            place: sample for place, sample in self._samples.items() if place[0] >= before_ms
        }


def newest(samples: Iterable[LagHistoryPoint], limit: int) -> list[LagHistoryPoint]:
    """Return the last `limit` samples in their order."""
    ordered = sorted(samples, key=lambda sample: sample[:4])
    return ordered[max(0, len(ordered) - limit) :]
