"""What a backend promises whose logs lie in segments."""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.base import PartitionLog, Segmented
from kgw.testing.backend_harness import (
    KEY,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    BackendHarness,
    contents,
)
from kgw.testing.batches import make_batch
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from pathlib import Path

    from kgw.backend.base import Backend, LogSettings


class SegmentedLog(PartitionLog, Segmented):
    """A log that can both: what the checks ask a backend for."""


class SegmentedSuite(BackendHarness):
    """Every promise of `Segmented`."""

    async def create_segmented(
        self, backend: Backend, settings: LogSettings = SMALL_SEGMENTS
    ) -> SegmentedLog:
        """Create a partition whose log has segments."""
        return as_segmented(await backend.create_partition(KEY, TOPIC, settings))

    async def test_segments_follow_each_other(self, tmp_path: Path) -> None:
        """Each begins where the one before it ends, and together they are the log."""
        async with self.opened(tmp_path) as backend:
            log = await self.create_segmented(backend)
            for number in range(20):
                await log.append([make_batch([b"%d" % number * 20])])
            segments = await log.segments()
            assert len(segments) > 2
            assert 0 == segments[0].base_offset
            assert [one.end_offset for one in segments[:-1]] == [
                one.base_offset for one in segments[1:]
            ]
            assert 20 == segments[-1].end_offset
            assert log.size_bytes == sum(one.size_bytes for one in segments)
            assert all(0 < one.size_bytes <= SMALL_SEGMENTS.segment_bytes for one in segments)

    async def test_segments_know_their_times(self, tmp_path: Path) -> None:
        """The largest timestamp and the first append's time, right after a restart too."""
        async with self.opened(tmp_path) as backend:
            log = await self.create_segmented(backend, SETTINGS)
            assert [] == await log.segments()
            await log.append([make_batch([b"a"], timestamps_ms=[5_000])])
            await log.append([make_batch([b"b"], timestamps_ms=[9_000])])
            await log.append([make_batch([b"c"], timestamps_ms=[7_000])])
            (segment,) = await log.segments()
            assert 9_000 == segment.largest_timestamp_ms
            assert segment.begun_ms > 9_000
        async with self.opened(tmp_path) as backend:
            log = as_segmented(await backend.open_partition(KEY, TOPIC, SETTINGS))
            (segment,) = await log.segments()
            assert 9_000 == segment.largest_timestamp_ms
            assert segment.begun_ms >= 5_000

    async def test_a_roll_seals_the_active_segment(self, tmp_path: Path) -> None:
        """What is appended next lies in another segment; an empty one is left as it is."""
        async with self.opened(tmp_path) as backend:
            log = await self.create_segmented(backend, SETTINGS)
            await log.append([make_batch([b"a", b"b"])])
            await log.roll()
            await log.roll()
            segments = await log.segments()
            assert [(0, 2), (2, 2)] == [(one.base_offset, one.end_offset) for one in segments]
            assert NO_TIMESTAMP_MS == segments[1].begun_ms
            await log.append([make_batch([b"c"])])
        async with self.opened(tmp_path) as backend:
            log = as_segmented(await backend.open_partition(KEY, TOPIC, SETTINGS))
            ranges = [(one.base_offset, one.end_offset) for one in await log.segments()]
            assert [(0, 2), (2, 3)] == ranges
            assert [(0, b"a"), (1, b"b"), (2, b"c")] == await contents(log)

    async def test_dropped_segments_are_gone_at_once(self, tmp_path: Path) -> None:
        """However long their files stay, segments below the log start are none any more."""
        async with self.opened(tmp_path) as backend:
            log = await self.create_segmented(backend)
            for number in range(20):
                await log.append([make_batch([b"%d" % number * 20])])
            second = (await log.segments())[1]
            await log.drop_before(second.end_offset)
            segments = await log.segments()
            assert second.end_offset == segments[0].base_offset
            assert log.size_bytes == sum(one.size_bytes for one in segments)


def as_segmented(log: PartitionLog) -> SegmentedLog:
    """Return a log as what it says that it is."""
    assert isinstance(log, Segmented)
    return log  # type: ignore[return-value]
