"""Compacts and recompresses a log in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.base import CompactionReport, RecompressionReport
from kgw.errors import CorruptionError
from kgw.records.cold import to_zstd
from kgw.records.compaction import (
    AbortedBatches,
    NewestOffsets,
    Tally,
    compact_batches,
)
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import CompactionJob, RecompressionJob
    from kgw.records.batch import RecordBatch


def compact(
    segments: Sequence[Sequence[RecordBatch]], start_offset: int, job: CompactionJob
) -> tuple[list[list[RecordBatch]], CompactionReport]:
    """Return the compacted batches of each closed segment, and the report.

    Records below `start_offset` are compacted already. Raises CorruptionError.
    """
    end_offset = min(job.upper_bound, segments[-1][-1].next_offset) if segments else start_offset
    newest = NewestOffsets(job.key_memory_bytes)
    aborted = AbortedBatches(job.aborted)
    is_complete = True
    try:
        for batch in (batch for segment in segments for batch in segment):
            full_at = newest.add(batch, start_offset, end_offset, job.limits, aborted)
            if full_at is not None:
                end_offset, is_complete = full_at, False
                break
        plan = job.plan(newest.by_hash, start_offset, end_offset, aborted)
        tally = Tally()
        compacted = [
            [batch for batch, _ in compact_batches(segment, plan, tally)] for segment in segments
        ]
    except RecordError as error:
        raise CorruptionError(str(error)) from error
    bytes_before = sum(batch.size_bytes for segment in segments for batch in segment)
    return compacted, CompactionReport(
        compacted_end=max(start_offset, end_offset),
        is_complete=is_complete,
        bytes_read=2 * bytes_before,
        bytes_before=bytes_before,
        bytes_after=sum(batch.size_bytes for segment in compacted for batch in segment),
        records_before=tally.records_before,
        records_after=tally.records_after,
        tombstones_removed=tally.tombstones_removed,
        segments_before=len(segments),
        segments_after=len(segments),
    )


def recompress(
    segments: Sequence[Sequence[RecordBatch]], done_end: int, job: RecompressionJob
) -> tuple[list[list[RecordBatch]], RecompressionReport]:
    """Return the recompressed batches of each closed segment, and the report.

    Segments that end at or below `done_end` were tried before and are returned unchanged.
    """
    recompressed: list[list[RecordBatch]] = []
    tried = exchanged = bytes_before = bytes_after = bytes_read = 0
    for segment in segments:
        becomes = list(segment)
        if segment and segment[-1].next_offset > done_end:
            becomes = [to_zstd(batch, job.level, job.limits) for batch in segment]
            done_end = segment[-1].next_offset
            before = sum(batch.size_bytes for batch in segment)
            after = sum(batch.size_bytes for batch in becomes)
            tried += 1
            bytes_read += before
            if after < before:
                exchanged += 1
                bytes_before += before
                bytes_after += after
        recompressed.append(becomes)
    return recompressed, RecompressionReport(
        recompressed_end=done_end,
        segments=tried,
        segments_exchanged=exchanged,
        bytes_before=bytes_before,
        bytes_after=bytes_after,
        bytes_read=bytes_read,
    )
