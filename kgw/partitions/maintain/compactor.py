"""Compaction of partitions, by the rules in `rules.compaction`; `rewriter` has the loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kgw.backend.base import CompactionJob
from kgw.errors import StorageError
from kgw.metrics import count
from kgw.partitions.maintain.rewriter import (
    RETRY_S,
    Rewriter,
    failure_reason,
    partition_name,
    segmented,
)
from kgw.partitions.rules.compaction import Dirtiness, measure_dirtiness
from kgw.partitions.rules.retention import is_old
from kgw.partitions.topics.hold import removable_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.base import CompactionReport, Segmented, SegmentInfo
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic

_log = logging.getLogger(__name__)


class _KeysDoNotFitError(StorageError):
    """The keys of a run do not fit into memory. Another attempt would not help."""


class Compactor(Rewriter[Dirtiness]):
    """Compacts partitions that are dirty enough, the dirtiest partition first."""

    not_done = "is not compacted"

    def _covers(self, topic: Topic) -> bool:
        return topic.config.is_compacted

    async def _plan(self, partition: Partition, log: Segmented, now_ms: int) -> Dirtiness:
        """Return how dirty a partition is.

        An active segment that is old enough is closed first, so that it is compacted, too.
        """
        segments = await log.segments()
        rules = partition.topic.config.retention
        if segments and is_old(segments[-1], rules, now_ms, partition.index):
            await log.roll()
            self._metrics.segments_closed += 1
            segments = await log.segments()
        return self._dirtiness(partition, log, segments, now_ms)

    def _is_due(self, partition: Partition, plan: Dirtiness) -> bool:
        return plan.is_due(partition.topic.config.compaction)

    def _select(self, planned: Sequence[tuple[Partition, Dirtiness]]) -> list[Partition]:
        self._metrics.dirty_ratio_max = max((plan.ratio for _, plan in planned), default=0.0)
        most_urgent_first = sorted(planned, key=lambda one: one[1].urgency, reverse=True)
        return super()._select(most_urgent_first)

    async def _rewrite(self, partition: Partition, plan: Dirtiness, now_ms: int) -> None:
        report = await self.compact(partition, plan.upper_bound, now_ms)
        if report.compacted_end <= plan.begin_offset:
            # An immediate second attempt would fail, too.
            if report.is_complete:
                raise StorageError("a run got nowhere")
            raise _KeysDoNotFitError(
                "its keys do not fit log.cleaner.dedupe.buffer.size="
                f"{self._config().log_cleaner_dedupe_buffer_size}"
            )

    async def compact(
        self, partition: Partition, upper_bound: int, now_ms: int, *, is_dry_run: bool = False
    ) -> CompactionReport:
        """Compact one partition below a bound. Raises StorageError."""
        log = segmented(partition)
        config = self._config()
        began_s = self._clock.monotonic_s()
        # Before compaction, which removes the markers.
        partition.forget_aborted()
        aborted = partition.producers.aborted
        report = await log.compact(
            CompactionJob(
                upper_bound=upper_bound,
                now_ms=now_ms,
                delete_retention_ms=partition.topic.config.compaction.delete_retention_ms,
                kept_batches=frozenset(partition.producers.stored_offsets()),
                aborted=() if aborted is None else tuple(aborted.ranges()),
                key_memory_bytes=config.log_cleaner_dedupe_buffer_size,
                bytes_per_s=config.cleaner_bytes_per_s,
                is_dry_run=is_dry_run,
                limits=partition.topic.config.decompression_limits,
            )
        )
        if not is_dry_run:
            partition.forget_aborted()
            self._report(partition, report, self._clock.monotonic_s() - began_s)
        return report

    async def measure(self, partition: Partition, now_ms: int) -> Dirtiness:
        """Return how dirty a partition is. Raises StorageError."""
        log = segmented(partition)
        return self._dirtiness(partition, log, await log.segments(), now_ms)

    def _dirtiness(
        self, partition: Partition, log: Segmented, segments: Sequence[SegmentInfo], now_ms: int
    ) -> Dirtiness:
        return measure_dirtiness(
            segments,
            partition.topic.config.compaction,
            compacted_end=log.compacted_end,
            last_stable_offset=removable_end(partition, self._catalog.committed),
            now_ms=now_ms,
        )

    def _show_failed(self, partitions: int) -> None:
        self._metrics.compactions_put_aside = partitions

    def _report_failure(self, partition: Partition, error: Exception) -> None:
        metrics = self._metrics
        count(metrics.compactions, "failed")
        is_memory = isinstance(error, _KeysDoNotFitError)
        count(metrics.compaction_failures, "memory" if is_memory else failure_reason(error))
        metrics.compaction_last_failure_s = self._clock.wall_ms() / 1000
        _log.error(
            "%s cannot be compacted, the next attempt is in %d s: %s",
            partition_name(partition),
            RETRY_S,
            error,
        )

    def _report(self, partition: Partition, report: CompactionReport, elapsed_s: float) -> None:
        metrics = self._metrics
        count(metrics.compactions, "complete" if report.is_complete else "partial")
        metrics.compaction_seconds += elapsed_s
        metrics.compaction_read_bytes += report.bytes_read
        metrics.compaction_removed_bytes += report.bytes_before - report.bytes_after
        metrics.compaction_removed_records += report.records_before - report.records_after
        metrics.compaction_removed_tombstones += report.tombstones_removed
        _log.info(
            "%s is compacted up to %d: %d of %d records and %d of %d bytes are left, in %.1f s",
            partition_name(partition),
            report.compacted_end,
            report.records_after,
            report.records_before,
            report.bytes_after,
            report.bytes_before,
            elapsed_s,
        )
