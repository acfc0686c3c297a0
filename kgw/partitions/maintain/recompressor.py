"""Recompression of cold segments to zstd, by the rules in `rules.cold`; `rewriter` has the loop.

A damaged segment is reported once and left unchanged.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kgw.backend.base import RecompressionJob
from kgw.metrics import count
from kgw.partitions.maintain.rewriter import (
    RETRY_S,
    Rewriter,
    failure_reason,
    partition_name,
    segmented,
)
from kgw.partitions.rules.cold import find_cold_end

if TYPE_CHECKING:
    from kgw.backend.base import RecompressionReport, Segmented
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.topic import Topic

_log = logging.getLogger(__name__)


class Recompressor(Rewriter[RecompressionJob]):
    """Recompresses the cold segments of each partition that have not been tried yet."""

    not_done = "keeps its cold segments as they are"

    def _covers(self, topic: Topic) -> bool:
        return topic.config.cold is not None

    async def _plan(
        self, partition: Partition, log: Segmented, now_ms: int
    ) -> RecompressionJob | None:
        done_end = max(log.recompressed.end_offset, partition.log.log_start_offset)
        segments = await log.segments()
        config = partition.topic.config
        if config.cold is None:
            return None
        end_offset = find_cold_end(
            segments,
            config.cold,
            done_end=done_end,
            upper_bound=log.compacted_end if config.is_compacted else None,
            now_ms=now_ms,
        )
        if end_offset <= done_end:
            return None
        return RecompressionJob(
            upper_bound=end_offset,
            level=config.cold.level,
            bytes_per_s=self._config().cleaner_bytes_per_s,
            limits=config.decompression_limits,
        )

    async def _rewrite(self, partition: Partition, plan: RecompressionJob, now_ms: int) -> None:
        self._report(partition, await segmented(partition).recompress(plan))

    def _show_failed(self, partitions: int) -> None:
        self._metrics.cold_put_aside = partitions

    def _report_failure(self, partition: Partition, error: Exception) -> None:
        count(self._metrics.cold_failures, failure_reason(error))
        _log.error(
            "cold segments of %s cannot be recompressed, the next attempt is in %d s: %s",
            partition_name(partition),
            RETRY_S,
            error,
        )

    def _report(self, partition: Partition, report: RecompressionReport) -> None:
        metrics, failed = self._metrics, len(report.failures)
        count(metrics.cold_segments, "recompressed", report.segments_exchanged)
        count(metrics.cold_segments, "failed", failed)
        count(metrics.cold_segments, "kept", report.segments - report.segments_exchanged - failed)
        count(metrics.cold_bytes, "before", report.bytes_before)
        count(metrics.cold_bytes, "after", report.bytes_after)
        metrics.cold_processor_seconds += report.processor_s
        if failed:
            count(metrics.cold_failures, "damage", failed)
        for failure in report.failures:
            _log.error(
                "a cold segment of %s stays as it is: %s", partition_name(partition), failure
            )
        _log.info(
            "%s is recompressed up to %d: %d of %d segments, %d bytes became %d, %.1f s of the "
            "processor",
            partition_name(partition),
            report.recompressed_end,
            report.segments_exchanged,
            report.segments,
            report.bytes_before,
            report.bytes_after,
            report.processor_s,
        )
