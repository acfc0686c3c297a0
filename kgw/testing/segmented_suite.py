"""Tests of backends whose logs have segments."""

# ruff: noqa: S101 - assert is how a suite speaks
from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from kgw.backend.base import (
    CompactionJob,
    PartitionLog,
    Recompressed,
    RecompressionJob,
    Segmented,
)
from kgw.records.batch import Compression, read_batch, split_batches
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.testing.backend_harness import (
    KEY,
    SETTINGS,
    SMALL_SEGMENTS,
    TOPIC,
    UNBOUNDED_BYTES,
    BackendHarness,
    batches,
    contents,
)
from kgw.testing.batches import make_batch, read_stored
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path

    from kgw.backend.base import LogSettings
    from kgw.records.batch import RecordBatch

COLD_SEGMENTS: Final = SMALL_SEGMENTS._replace(segment_bytes=2_000)
RECOMPRESSION: Final = RecompressionJob(upper_bound=1 << 40, level=3)
JOB: Final = CompactionJob(upper_bound=1 << 40, now_ms=10_000, delete_retention_ms=5_000)


class SegmentedPartitionLog(PartitionLog, Segmented):
    """The type of a log with segments."""


class SegmentedSuite(BackendHarness):
    """Tests of everything that `Segmented` promises."""

    @asynccontextmanager
    async def segmented(
        self, directory: Path, settings: LogSettings = SMALL_SEGMENTS
    ) -> AsyncIterator[SegmentedPartitionLog]:
        """Open a backend, and create a partition whose log has segments."""
        async with self.created(directory, settings) as log:
            yield as_segmented(log)

    async def test_segments_follow_each_other(self, tmp_path: Path) -> None:
        """Each segment begins where the one before ends, and together they are the whole log."""
        async with self.segmented(tmp_path) as log:
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
        """Segments have their largest timestamp and first append time, also after a restart."""
        async with self.segmented(tmp_path, SETTINGS) as log:
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
        """The next append goes into a new segment; rolling an empty segment does nothing."""
        async with self.segmented(tmp_path, SETTINGS) as log:
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
        """Segments below the log start are not listed, even if their files still exist."""
        async with self.segmented(tmp_path) as log:
            for number in range(20):
                await log.append([make_batch([b"%d" % number * 20])])
            second = (await log.segments())[1]
            await log.drop_before(second.end_offset)
            segments = await log.segments()
            assert second.end_offset == segments[0].base_offset
            assert log.size_bytes == sum(one.size_bytes for one in segments)

    # --- compaction ------------------------------------------------------------------------------

    async def test_the_newest_record_of_each_key_stays(self, tmp_path: Path) -> None:
        """The record keeps its offset; older records of the key are gone for all readers."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(40))
            active = (await log.segments())[-1].base_offset
            newest = {number % 5: number for number in range(active)}
            expected = [
                number for number in range(40) if number >= active or newest[number % 5] == number
            ]
            size_bytes = log.size_bytes
            report = await log.compact(JOB)
            assert (active, True) == (report.compacted_end, report.is_complete)
            assert active == log.compacted_end == report.records_before
            assert 5 == report.records_after
            assert size_bytes - log.size_bytes == report.bytes_before - report.bytes_after > 0
            assert expected == await _offsets(log)
            hot = log.read_hot(0, 10_000, 40)
            assert hot is None or expected[0] == read_stored(hot.buffers)[0].offset
            assert (40, 0) == (log.high_watermark, log.log_start_offset)
            assert 40 == (await log.append([_keyed(40)])).base_offset
        async with self.opened(tmp_path) as backend:
            log = as_segmented(await backend.open_partition(KEY, TOPIC, SMALL_SEGMENTS))
            assert [*expected, 40] == await _offsets(log)
            assert active == log.compacted_end

    async def test_batches_still_follow_each_other(self, tmp_path: Path) -> None:
        """Offsets without records are covered by empty batches, so that replay has every offset."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(40))
            await log.compact(JOB)
            expected = 0
            for batch in await batches(log):
                assert expected == batch.base_offset
                expected = batch.next_offset
            assert 40 == expected

    async def test_a_second_run_changes_nothing(self, tmp_path: Path) -> None:
        """After a second run, a read returns the same bytes."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(40))
            await log.compact(JOB)
            before = await log.read(0, UNBOUNDED_BYTES, 40)
            report = await log.compact(JOB)
            assert report.bytes_before == report.bytes_after
            after = await log.read(0, UNBOUNDED_BYTES, 40)
            assert b"".join(before.buffers) == b"".join(after.buffers)

    async def test_tombstones_stay_for_a_while(self, tmp_path: Path) -> None:
        """They stay for delete.retention.ms after the first compaction, by the jobs' clock."""
        async with self.segmented(tmp_path) as log:
            await log.append([_keyed(0)])
            await log.append([_keyed(0, is_tombstone=True)])
            await log.roll()
            await log.compact(JOB)
            assert [1] == await _offsets(log)
            await log.compact(JOB._replace(now_ms=JOB.now_ms + JOB.delete_retention_ms - 1))
            assert [1] == await _offsets(log)
            report = await log.compact(JOB._replace(now_ms=JOB.now_ms + JOB.delete_retention_ms))
            assert 1 == report.tombstones_removed
            assert [] == await _offsets(log)
            assert 2 == log.high_watermark

    async def test_a_dry_run_only_reports(self, tmp_path: Path) -> None:
        """A dry run changes no data and stores no state."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(40))
            size_bytes = log.size_bytes
            report = await log.compact(JOB._replace(is_dry_run=True))
            assert report.bytes_after < report.bytes_before
            assert (size_bytes, 0) == (log.size_bytes, log.compacted_end)
            assert list(range(40)) == await _offsets(log)

    async def test_a_full_map_of_keys_ends_the_run(self, tmp_path: Path) -> None:
        """The report says that the map is full, and the next run continues at that offset."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(40))
            first = await log.compact(JOB._replace(key_memory_bytes=500))
            assert not first.is_complete
            assert 0 < first.compacted_end < 40
            assert not (await log.compact(JOB._replace(key_memory_bytes=500))).is_complete
            assert (await log.compact(JOB)).is_complete
            active = (await log.segments())[-1].base_offset
            assert 5 + 40 - active == len(await _offsets(log))

    async def test_an_empty_log_has_nothing_to_compact(self, tmp_path: Path) -> None:
        """A log with an active segment alone has nothing to compact, either."""
        async with self.segmented(tmp_path, SETTINGS) as log:
            assert 0 == (await log.compact(JOB)).records_before
            await log.append([_keyed(0)])
            assert 0 == (await log.compact(JOB)).records_before

    async def test_readers_and_writers_go_on_beside_a_run(self, tmp_path: Path) -> None:
        """During compaction no call fails, offsets rise, and the newest records are present."""
        async with self.segmented(tmp_path) as log:
            await _append(log, range(100))
            run = asyncio.ensure_future(log.compact(JOB))
            appended = 100
            while not run.done():
                offsets = await _offsets(log)
                assert sorted(set(offsets)) == offsets
                assert set(range(95, appended)) <= set(offsets)
                await log.append([_keyed(appended)])
                appended += 1
            await run
            assert set(range(95, appended)) <= set(await _offsets(log))

    # --- recompression ---------------------------------------------------------------------------

    async def test_recompression_changes_nothing_that_is_told(self, tmp_path: Path) -> None:
        """Batches and records read the same, also after a restart; the active segment stays."""
        async with self.segmented(tmp_path, COLD_SEGMENTS) as log:
            for number in range(16):
                await log.append([_compressible(number)])
            segments = await log.segments()
            before, size_bytes = await _told(log), log.size_bytes
            report = await log.recompress(RECOMPRESSION)
            active = segments[-1].base_offset
            assert (active, len(segments) - 1) == (report.recompressed_end, report.segments)
            assert report.segments == report.segments_exchanged
            assert size_bytes - log.size_bytes == report.bytes_before - report.bytes_after > 0
            expected = Recompressed(active, report.bytes_before, report.bytes_after, active)
            assert expected == log.recompressed
            assert before == await _told(log)
            assert [one._replace(size_bytes=0) for one in segments] == [
                one._replace(size_bytes=0) for one in await log.segments()
            ]
            result = await log.read(0, UNBOUNDED_BYTES, active)
            stored = [batch for buffer in result.buffers for batch in split_batches(buffer)]
            assert {Compression.ZSTD} == {batch.compression for batch in stored}
            await log.append([_compressible(16)])
        async with self.opened(tmp_path) as backend:
            log = as_segmented(await backend.open_partition(KEY, TOPIC, COLD_SEGMENTS))
            assert before == (await _told(log))[: len(before)]
            assert expected == log.recompressed

    async def test_a_segment_is_recompressed_once(self, tmp_path: Path) -> None:
        """A second run does nothing; a run with a higher bound continues after the first one."""
        async with self.segmented(tmp_path, COLD_SEGMENTS) as log:
            for number in range(16):
                await log.append([_compressible(number)])
            segments = await log.segments()
            first_end = segments[0].end_offset
            first = await log.recompress(RECOMPRESSION._replace(upper_bound=first_end + 1))
            assert (1, first_end) == (first.segments, first.recompressed_end)
            second = await log.recompress(RECOMPRESSION)
            assert len(segments) - 2 == second.segments
            third = await log.recompress(RECOMPRESSION)
            assert (0, second.recompressed_end) == (third.segments, third.recompressed_end)

    async def test_an_empty_log_has_nothing_to_recompress(self, tmp_path: Path) -> None:
        """A log with an active segment alone has nothing to recompress, either."""
        async with self.segmented(tmp_path, SETTINGS) as log:
            assert 0 == (await log.recompress(RECOMPRESSION)).segments
            await log.append([_compressible(0)])
            assert 0 == (await log.recompress(RECOMPRESSION)).segments
            assert Recompressed() == log.recompressed

    async def test_what_was_recompressed_can_be_compacted(self, tmp_path: Path) -> None:
        """The newest record of each key stays, as without recompression."""
        async with self.segmented(tmp_path, COLD_SEGMENTS) as log:
            for number in range(16):
                await log.append([_compressible(number)])
            active = (await log.segments())[-1].base_offset
            await log.recompress(RECOMPRESSION)
            await log.compact(JOB)
            assert list(range(active - 5, 16)) == await _offsets(log)


def _compressible(number: int) -> RecordBatch:
    """Return a batch of one record in another codec than zstd; zstd would make it smaller."""
    builder = BatchBuilder(
        compression=(Compression.NONE, Compression.SNAPPY, Compression.LZ4)[number % 3],
        producer_id=7,
        producer_epoch=1,
        base_sequence=number,
    )
    value = b"".join(b"%d: a line of a log, " % line for line in range(number, number + 20))
    headers = [("trace", b"%d" % number)]
    builder.add(key=b"key-%d" % (number % 5), value=value, timestamp_ms=number, headers=headers)
    return read_batch(builder.build())


async def _told(log: SegmentedPartitionLog) -> list[tuple[object, ...]]:
    """Return the fields of each batch as readers see them, with its records."""
    result = await log.read(log.log_start_offset, UNBOUNDED_BYTES, log.high_watermark)
    told: list[tuple[object, ...]] = []
    while result.buffers:
        for batch in (one for buffer in result.buffers for one in split_batches(buffer)):
            assert batch.crc_matches()
            told.append(
                (
                    batch.base_offset,
                    batch.last_offset,
                    batch.leader_epoch,
                    batch.max_timestamp_ms,
                    batch.producer_id,
                    batch.producer_epoch,
                    batch.base_sequence,
                    tuple(map(repr, read_records(batch))),
                )
            )
        result = await log.read(result.next_offset, UNBOUNDED_BYTES, log.high_watermark)
    return told


def _keyed(number: int, *, is_tombstone: bool = False) -> RecordBatch:
    builder = BatchBuilder()
    value = None if is_tombstone else b"%d-" % number + b"v" * 60
    builder.add(key=b"key-%d" % (number % 5), value=value, timestamp_ms=number)
    return read_batch(builder.build())


async def _append(log: SegmentedPartitionLog, numbers: Iterable[int]) -> None:
    for number in numbers:
        await log.append([_keyed(number)])


async def _offsets(log: SegmentedPartitionLog) -> list[int]:
    """Return the offsets of all records, from the log itself."""
    result = await log.read(log.log_start_offset, UNBOUNDED_BYTES, log.high_watermark)
    offsets: list[int] = []
    while result.buffers:
        offsets += [record.offset for record in read_stored(result.buffers)]
        result = await log.read(result.next_offset, UNBOUNDED_BYTES, log.high_watermark)
    return offsets


def as_segmented(log: PartitionLog) -> SegmentedPartitionLog:
    """Assert that a log has segments, and return it with that type."""
    assert isinstance(log, Segmented)
    return log  # type: ignore[return-value]
