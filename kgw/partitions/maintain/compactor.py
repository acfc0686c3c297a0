"""Compaction of partitions, one at a time: the shell round `rules.compaction`.

A partition that fails is put aside for a while and named among the problems; the others go on.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from kgw.backend.base import CompactionJob
from kgw.errors import KgwError, StorageError
from kgw.metrics import count
from kgw.partitions.maintain.asides import (
    ASIDE_S,
    Asides,
    failure_reason,
    partition_name,
    segmented,
)
from kgw.partitions.maintain.throttle import Throttle
from kgw.partitions.rules.compaction import Dirtiness, measure_dirtiness
from kgw.partitions.rules.retention import is_old
from kgw.partitions.topics.hold import removable_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import CompactionReport, Segmented, SegmentInfo
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.catalog import TopicCatalog

_log = logging.getLogger(__name__)


class _KeysDoNotFitError(StorageError):
    """Another attempt would get no further."""


class Compactor:
    """Finds the partitions that need it, and has them compacted."""

    def __init__(
        self,
        catalog: TopicCatalog,
        clock: Clock,
        metrics: Metrics,
        config: Callable[[], Config],
        report_bug: Callable[[BaseException], None],
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._metrics = metrics
        self._config = config
        self._asides = Asides(clock, report_bug, "is not compacted")

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be compacted, and why."""
        return self._asides.problems

    async def find_due(self, now_ms: int) -> list[Partition]:
        """Return the partitions that are to be compacted, the one that needs it most first."""
        found: list[tuple[tuple[bool, float], Partition]] = []
        greatest = 0.0
        throttle = Throttle(self._clock)
        for topic in list(self._catalog.topics.values()):
            if not topic.config.is_compacted:
                continue
            for partition in topic.partitions.values():
                dirtiness = await self._look_at(partition, now_ms)
                await throttle.step()
                if dirtiness is None:
                    continue
                greatest = max(greatest, dirtiness.ratio)
                if dirtiness.is_due(topic.config.compaction):
                    found.append((dirtiness.urgency, partition))
        self._metrics.dirty_ratio_max = greatest
        found.sort(key=itemgetter(0), reverse=True)
        return [partition for _, partition in found]

    async def run(self, partition: Partition, now_ms: int) -> None:
        """Compact a partition if it is still due. One that fails is put aside."""
        dirtiness = await self._look_at(partition, now_ms)
        if dirtiness is None or not dirtiness.is_due(partition.topic.config.compaction):
            return
        try:
            report = await self.compact(partition, dirtiness.upper_bound, now_ms)
            if report.compacted_end <= dirtiness.begin_offset:
                # Another attempt at once would get no further.
                if report.is_complete:
                    raise StorageError("a run got nowhere")
                raise _KeysDoNotFitError(
                    "its keys do not fit log.cleaner.dedupe.buffer.size="
                    f"{self._config().log_cleaner_dedupe_buffer_size}"
                )
        except Exception as error:  # noqa: BLE001 - the other partitions have their turn
            self._put_aside(partition, error)
        else:
            self._asides.take_back(partition)
            self._metrics.compactions_put_aside = len(self._asides)

    async def compact(
        self, partition: Partition, upper_bound: int, now_ms: int, *, is_dry_run: bool = False
    ) -> CompactionReport:
        """Have one partition compacted below a bound. Raises StorageError."""
        log = segmented(partition)
        config = self._config()
        began_s = self._clock.monotonic_s()
        # Before the markers go of what has been compacted.
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

    async def _look_at(self, partition: Partition, now_ms: int) -> Dirtiness | None:
        """Measure a partition; None when it is empty, gone or put aside, or fails.

        An active segment is closed in time to be compacted itself.
        """
        if self._asides.passes_over(partition):
            return None
        try:
            log_of_segments = segmented(partition)
            segments = await log_of_segments.segments()
            rules = partition.topic.config.retention
            if segments and is_old(segments[-1], rules, now_ms, partition.index):
                await log_of_segments.roll()
                self._metrics.segments_closed += 1
                segments = await log_of_segments.segments()
        except KgwError as error:
            self._put_aside(partition, error)
            return None
        return self._dirtiness(partition, log_of_segments, segments, now_ms)

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

    def _put_aside(self, partition: Partition, error: Exception) -> None:
        if not self._asides.put(partition, error):
            return
        metrics = self._metrics
        metrics.compactions_put_aside = len(self._asides)
        count(metrics.compactions, "failed")
        is_memory = isinstance(error, _KeysDoNotFitError)
        reason = "memory" if is_memory else failure_reason(error)
        count(metrics.compaction_failures, reason)
        metrics.compaction_last_failure_s = self._clock.wall_ms() / 1000
        _log.error(
            "%s cannot be compacted, the next attempt is in %d s: %s",
            partition_name(partition),
            ASIDE_S,
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
