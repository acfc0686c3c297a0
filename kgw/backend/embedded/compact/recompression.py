"""Compresses the records of sealed segments with zstd.

Segments are not joined, so that retention removes each record at the same time as before. A segment
that would not get smaller is not rewritten. A segment is kept and reported if it is damaged, or if
its recompressed records differ from the original ones. The run then continues with the next
segment.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from kgw.backend.base import RecompressionJob, RecompressionReport
from kgw.backend.embedded.compact.rewriting import Order, Rewriting, sealed_segments
from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.errors import CorruptionError
from kgw.records.cold import find_difference, to_zstd
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Generator

    from kgw.backend.embedded.compact.rewriting import RewriteThrottle, SourceSegment
    from kgw.backend.embedded.files.fs import FileSystem
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog
    from kgw.backend.embedded.log.swap import CompactedSegment

RecompressionOrder: TypeAlias = Order[RecompressionJob]


def plan_recompression(
    log: SegmentedLog, job: RecompressionJob, min_free_bytes: int
) -> RecompressionOrder:
    """Return an order for sealed segments below the job's bound that were not tried before.

    Must be called between two groups of appends.
    """
    done_end = log.recompressed.end_offset
    sources = tuple(
        one for one in sealed_segments(log) if done_end < one.end_offset <= job.upper_bound
    )
    return Order(log.path, sources, done_end, job, log.settings, min_free_bytes)


class SegmentRecompression(Rewriting[RecompressionJob]):
    """One recompression run."""

    def __init__(
        self, fs: FileSystem, order: RecompressionOrder, throttle: RewriteThrottle | None = None
    ) -> None:
        super().__init__(fs, order, throttle)
        self._end_offset = order.start_offset
        self._segments = 0
        self._segments_exchanged = 0
        self._bytes_before = 0
        self._bytes_after = 0
        self._failures: list[str] = []

    def run(self) -> Generator[CompactedSegment, None, None]:
        """Recompress, and yield each new segment once it is complete and compared.

        Raises SideFileDamagedError, OSError, SyncFailedError.
        """
        try:
            self._begin()
            for source in self._order.sources:
                self._segments += 1
                output = self._try(source)
                if output is not None:
                    self._segments_exchanged += 1
                    self._bytes_before += source.size_bytes
                    self._bytes_after += output.size_bytes
                    yield output
                self._end_offset = source.end_offset
        finally:
            self._pool.close()

    @property
    def report(self) -> RecompressionReport:
        """The result of the run so far."""
        return RecompressionReport(
            recompressed_end=self._end_offset,
            segments=self._segments,
            segments_exchanged=self._segments_exchanged,
            bytes_before=self._bytes_before,
            bytes_after=self._bytes_after,
            bytes_read=self._bytes_read,
            failures=tuple(self._failures),
        )

    def _try(self, source: SourceSegment) -> CompactedSegment | None:
        """Return the new segment that replaces `source`; None if the source is kept."""
        original = self._open(source)
        output: Segment | None = None
        try:
            for batch in self._batches(original):
                smaller = to_zstd(batch, self._job.level, self._job.limits)
                if output is None and smaller is not batch:
                    output = self._create(source.base_offset)
                    # All batches before this one are unchanged.
                    self._copy(original, output, batch.base_offset)
                if output is not None:
                    self._append(output, smaller)
            if output is None:
                return None
            self._write(output)
            complete = self._complete(output, (source.base_offset,))
            self._compare(original, output)
        except CorruptionError as error:
            self._forget_pending()
            if output is not None:
                output.unlink(self._fs)
            self._failures.append(str(error))
            return None
        return complete

    def _compare(self, original: Segment, output: Segment) -> None:
        """Read both segments again, and compare them record by record. Raises CorruptionError."""
        try:
            for before, after in zip_longest(self._batches(original), self._batches(output)):
                if before is None or after is None:
                    problem: str | None = "a batch too few, or too many"
                else:
                    problem = find_difference(before, after, self._job.limits)
                if problem is not None:
                    batch = before or after
                    offset = "?" if batch is None else batch.base_offset
                    raise CorruptionError(
                        f"{original.log_path}: recompressed it would not be the same at offset "
                        f"{offset}: {problem}"
                    )
        except RecordError as error:
            raise CorruptionError(f"{output.log_path} cannot be read again: {error}") from error
        except SideFileDamagedError as error:
            if error.segment is original:
                raise
            raise CorruptionError(f"{output.side_path} cannot be read again") from error
