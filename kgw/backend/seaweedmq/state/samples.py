"""Keeps samples of lag in memory, packed: a hundred thousand need some megabytes. Pure."""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.state.history import LagHistoryPoint, newest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kgw.state.history import SampleFilter
    from kgw.turns import Turns

_SAMPLE: Final = Struct(">IIiqqq")
"""The lengths of the group's id and of the topic, then partition, committed offset, high watermark
and time lag; after the struct, the two texts."""
_NOT_KNOWN: Final = -(1 << 63)


class _Moment(NamedTuple):
    """The samples of one time."""

    sample_count: int
    packed: bytes


class SampleBlocks:
    """Samples by their time."""

    def __init__(self) -> None:
        """Begin empty."""
        self._moments: dict[int, _Moment] = {}
        self.size_bytes = 0
        """The size of the samples in a snapshot."""

    def take(self, sampled_at_ms: int, packed: bytes) -> None:
        """Add samples of a time; a new sample of a group and partition replaces the old one."""
        before = self._moments.get(sampled_at_ms)
        stored = b"" if before is None else before.packed
        count = 0
        samples: dict[tuple[int, str, str, int], LagHistoryPoint] = {}
        for sample in chain(unpack(sampled_at_ms, stored), unpack(sampled_at_ms, packed)):
            samples[sample[:4]] = sample
            count += 1
        if stored or len(samples) < count:
            packed = pack(samples.values())
        self._moments[sampled_at_ms] = _Moment(len(samples), packed)
        self.size_bytes += len(packed) - len(stored)

    def blocks(self) -> list[tuple[int, bytes]]:
        """Return every time with its samples, in the form that `take` accepts."""
        return [(sampled_at_ms, moment.packed) for sampled_at_ms, moment in self._moments.items()]

    def load(self, wanted: SampleFilter, limit: int) -> Turns[list[LagHistoryPoint]]:
        """Return the newest matching samples, oldest first; yields after each sample time."""
        found: list[LagHistoryPoint] = []
        for sampled_at_ms in sorted(self._moments, reverse=True):
            moment = self._moments.get(sampled_at_ms)
            if moment is None or not wanted.since_ms <= sampled_at_ms < wanted.until_ms:
                continue
            if len(found) >= limit:
                break
            found += filter(wanted.takes, unpack(sampled_at_ms, moment.packed))
            yield
        return newest(found, limit)

    def moment_to_prune(self, before_ms: int, keep: int) -> int | None:
        """Return the time before which samples must be removed, by age and number, or None."""
        count = 0
        for sampled_at_ms in sorted(self._moments, reverse=True):
            count += self._moments[sampled_at_ms].sample_count
            if count > keep:
                before_ms = max(before_ms, sampled_at_ms + 1)
                break
        is_old = any(sampled_at_ms < before_ms for sampled_at_ms in self._moments)
        return before_ms if is_old else None

    def prune(self, before_ms: int) -> None:
        """Remove the samples before a time."""
        self._moments = {
            sampled_at_ms: moment
            for sampled_at_ms, moment in self._moments.items()
            if sampled_at_ms >= before_ms
        }
        self.size_bytes = sum(len(moment.packed) for moment in self._moments.values())


def pack(samples: Iterable[LagHistoryPoint]) -> bytes:
    """Return samples of the same time as bytes."""
    packed = bytearray()
    for sample in samples:
        group_id, topic = sample.group_id.encode(), sample.topic.encode()
        packed += _SAMPLE.pack(
            len(group_id),
            len(topic),
            sample.partition,
            sample.committed_offset,
            sample.high_watermark,
            _NOT_KNOWN if sample.time_lag_ms is None else sample.time_lag_ms,
        )
        packed += group_id
        packed += topic
    return bytes(packed)


def unpack(sampled_at_ms: int, packed: bytes) -> Iterator[LagHistoryPoint]:
    """Yield the samples in these bytes."""
    position = 0
    while position < len(packed):
        group_bytes, topic_bytes, partition, committed_offset, high_watermark, time_lag_ms = (
            _SAMPLE.unpack_from(packed, position)
        )
        topic_at = position + _SAMPLE.size + group_bytes
        position = topic_at + topic_bytes
        yield LagHistoryPoint(
            sampled_at_ms,
            packed[topic_at - group_bytes : topic_at].decode(),
            packed[topic_at:position].decode(),
            partition,
            committed_offset,
            high_watermark,
            None if time_lag_ms == _NOT_KNOWN else time_lag_ms,
        )
