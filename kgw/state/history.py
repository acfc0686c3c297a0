"""Where groups stood at earlier moments: a short history, so that a lag can be drawn.

It may be lost without harm, unlike everything else that a state store keeps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

FOR_EVER_MS: Final = (1 << 63) - 1


class LagSample(NamedTuple):
    """Where a group stood in one partition at one moment; there is one for each such moment."""

    sampled_at_ms: int
    """Wall clock."""
    group_id: str
    topic: str
    partition: int
    committed_offset: int
    """-1 where the group has committed none."""
    high_watermark: int
    time_lag_ms: int | None = None
    """Age of the first record that is still to be read, 0 when there is none; None: not known."""

    @property
    def lag(self) -> int | None:
        """Records still to be read, below 0 for a group that is ahead; None without a commit."""
        if self.committed_offset < 0:
            return None
        return self.high_watermark - self.committed_offset


class SampleFilter(NamedTuple):
    """Which samples are asked for. Times include `since_ms` and leave `until_ms` out."""

    group_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    since_ms: int = 0
    until_ms: int = FOR_EVER_MS

    def takes(self, sample: LagSample) -> bool:
        """Whether a sample is one of those asked for."""
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
    async def append(self, samples: Sequence[LagSample]) -> None:
        """Keep samples; one of the same moment, group and partition is replaced.

        They share a commit with whatever else waits for one. Raises StorageError.
        """

    @abstractmethod
    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagSample]:
        """Return the newest `limit` of the samples asked for, oldest first.

        Order: time, group, topic, partition. A damaged one is left out. Raises StorageError.
        """

    @abstractmethod
    async def prune(self, *, before_ms: int, keep: int) -> None:
        """Remove what was sampled before a moment, and the oldest beyond about `keep` samples.

        Samples of one moment go together, so that a few less than `keep` may stay.
        Raises StorageError.
        """


class MemoryLagHistory(LagHistory):
    """Samples in a dictionary."""

    def __init__(self) -> None:
        """Begin empty."""
        self._samples: dict[tuple[int, str, str, int], LagSample] = {}

    async def append(self, samples: Sequence[LagSample]) -> None:
        for sample in samples:
            self._samples[sample[:4]] = sample

    async def load(
        self, wanted: SampleFilter = EVERY_SAMPLE, *, limit: int = 10_000
    ) -> list[LagSample]:
        return newest(filter(wanted.takes, self._samples.values()), limit)

    async def prune(self, *, before_ms: int, keep: int) -> None:
        times = sorted((place[0] for place in self._samples), reverse=True)
        if len(times) > keep:
            before_ms = max(before_ms, times[keep] + 1)
        self._samples = {
            place: sample for place, sample in self._samples.items() if place[0] >= before_ms
        }


def newest(samples: Iterable[LagSample], limit: int) -> list[LagSample]:
    """Return the last `limit` samples in their order."""
    ordered = sorted(samples, key=lambda sample: sample[:4])
    return ordered[max(0, len(ordered) - limit) :]
