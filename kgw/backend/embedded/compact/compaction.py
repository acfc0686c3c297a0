"""Compacts the sealed segments of one log.

As in Kafka, there are two passes. The first pass collects the newest offset of each key in segments
that are not compacted yet. The second pass rewrites all segments below the bound.

Small neighbouring segments are joined, to limit the number of segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from kgw.backend.base import CompactionJob, CompactionReport
from kgw.backend.embedded import layout
from kgw.backend.embedded.compact.rewriting import Order, Rewriting, sealed_segments
from kgw.errors import CorruptionError
from kgw.records.compaction import (
    AbortedBatches,
    CompactionPlan,
    NewestOffsets,
    Tally,
    compact_batches,
)
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.backend.embedded.compact.rewriting import RewriteThrottle, SourceSegment
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.swap import CompactedSegment

_INDEX_ENTRY_BYTES: Final = 8

CompactionOrder: TypeAlias = Order[CompactionJob]


@dataclass
class _Output:
    """The result of compacting one or more source segments."""

    segment: Segment
    """The new segment, or the source if nothing was changed. Always the source in a dry run."""
    replaced: list[int]
    end_offset: int
    """The offset after the segment's last batch. It may be below the next segment's base offset."""
    size_bytes: int
    is_changed: bool


def plan_compaction(log: SegmentedLog, job: CompactionJob, min_free_bytes: int) -> CompactionOrder:
    """Return an order to compact the sealed segments that begin below the job's bound.

    Must be called between two groups of appends.
    """
    sources = tuple(one for one in sealed_segments(log) if one.base_offset < job.upper_bound)
    end_offset = min(job.upper_bound, sources[-1].end_offset) if sources else 0
    return CompactionOrder(
        log.path,
        sources,
        max(log.compacted_end, log.offsets.log_start_offset),
        job._replace(upper_bound=end_offset),
        log.settings,
        min_free_bytes,
    )


class SegmentCompaction(Rewriting[CompactionJob]):
    """One compaction run."""

    def __init__(
        self, fs: FileSystem, order: CompactionOrder, throttle: RewriteThrottle | None = None
    ) -> None:
        super().__init__(fs, order, throttle)
        self._tally = Tally()
        self._aborted = AbortedBatches(order.job.aborted)
        self._bytes_before = 0
        self._bytes_after = 0
        self._segments_before = 0
        self._segments_after = 0
        self._end_offset = order.job.upper_bound

    def run(self) -> Generator[CompactedSegment, None, None]:
        """Compact; yield each new segment when it is complete and may replace old segments.

        Raises CorruptionError, SideFileDamagedError, OSError, SyncFailedError.
        """
        try:
            newest = self._collect()
            if not self._job.is_dry_run:
                self._begin()
            plan = self._job.plan(
                newest.by_hash, self._order.start_offset, self._end_offset, self._aborted
            )
            output: _Output | None = None
            for source in self._order.sources:
                if source.base_offset >= self._end_offset:
                    break
                compacted = self._compact(source, plan)
                if output is not None and self._may_join(output, compacted):
                    self._join(output, compacted)
                    continue
                if output is not None:
                    yield from self._finish(output)
                output = compacted
            if output is not None:
                yield from self._finish(output)
        except RecordError as error:
            raise CorruptionError(f"{self._order.path}: {error}") from error
        finally:
            self._pool.close()

    @property
    def report(self) -> CompactionReport:
        """The result of the run, once `run` is complete."""
        return CompactionReport(
            compacted_end=max(self._order.start_offset, self._end_offset),
            is_complete=self._end_offset == self._job.upper_bound,
            bytes_read=self._bytes_read,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            records_before=self._tally.records_before,
            records_after=self._tally.records_after,
            tombstones_removed=self._tally.tombstones_removed,
            segments_before=self._segments_before,
            segments_after=self._segments_after,
        )

    def _collect(self) -> NewestOffsets:
        """Collect the newest offset of each key that is not compacted yet; set the run's end."""
        order = self._order
        newest = NewestOffsets(self._job.key_memory_bytes)
        for source in order.sources:
            if source.end_offset <= order.start_offset:
                continue
            for batch in self._batches(self._open(source)):
                if batch.next_offset <= order.start_offset:
                    continue
                if batch.base_offset >= self._end_offset:
                    break
                full_at = newest.add(
                    batch, order.start_offset, self._end_offset, self._job.limits, self._aborted
                )
                if full_at is not None:
                    self._end_offset = full_at
                    return newest
        return newest

    def _compact(self, source: SourceSegment, plan: CompactionPlan) -> _Output:
        original = self._open(source)
        output: Segment | None = None
        is_changed = False
        size_bytes = 0
        next_offset = source.base_offset
        for batch, is_same in compact_batches(self._batches(original), plan, self._tally):
            if not is_same and not is_changed:
                is_changed = True
                if not self._job.is_dry_run:
                    # All batches before this one are unchanged.
                    output = self._create(source.base_offset)
                    self._copy(original, output, batch.base_offset)
            size_bytes += len(batch.buffer)
            next_offset = batch.next_offset
            if output is not None:
                self._append(output, batch)
        if output is not None:
            self._write(output)
        self._segments_before += 1
        self._bytes_before += source.size_bytes
        self._bytes_after += size_bytes
        return _Output(
            output or original, [source.base_offset], next_offset, size_bytes, is_changed
        )

    def _may_join(self, before: _Output, output: _Output) -> bool:
        """Return whether an output may be joined with the output before it.

        An unchanged output that is at least half full is not rewritten only for that.
        """
        settings = self._order.settings
        size_bytes = before.size_bytes + output.size_bytes
        index_bytes = size_bytes // max(settings.index_interval_bytes, 1) * _INDEX_ENTRY_BYTES
        return (
            before.end_offset == output.replaced[0]
            and (before.is_changed or before.size_bytes * 2 < settings.segment_bytes)
            and size_bytes <= min(settings.segment_bytes, layout.MAX_POSITION)
            and output.end_offset - before.replaced[0] <= layout.MAX_POSITION
            and index_bytes <= settings.segment_index_bytes
        )

    def _join(self, before: _Output, output: _Output) -> None:
        if not self._job.is_dry_run:
            if not before.is_changed:
                copy = self._create(before.replaced[0])
                self._copy(before.segment, copy)
                before.segment = copy
            self._copy(output.segment, before.segment)
            if output.is_changed:
                output.segment.unlink(self._fs)
        before.is_changed = True
        before.replaced += output.replaced
        before.end_offset = output.end_offset
        before.size_bytes += output.size_bytes

    def _finish(self, output: _Output) -> Generator[CompactedSegment, None, None]:
        """Complete an output and make it durable, unless it is unchanged."""
        self._segments_after += 1
        if self._job.is_dry_run or not output.is_changed:
            return
        yield self._complete(output.segment, tuple(output.replaced))
