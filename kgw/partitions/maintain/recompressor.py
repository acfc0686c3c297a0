"""Putting cold segments into zstd, one partition at a time: the shell round `rules.cold`.

A partition that fails is put aside for a while and is among the problems; the others go on. A
segment that is damaged is reported once, and stays as it is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kgw.backend.base import RecompressionJob
from kgw.errors import KgwError
from kgw.metrics import count
from kgw.partitions.maintain.asides import (
    ASIDE_S,
    Asides,
    failure_reason,
    partition_name,
    segmented,
)
from kgw.partitions.maintain.throttle import Throttle
from kgw.partitions.rules.cold import find_cold_end

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import RecompressionReport
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.catalog import TopicCatalog

_log = logging.getLogger(__name__)


class Recompressor:
    """Finds the partitions that have cold segments, and has these recompressed."""

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
        self._asides = Asides(clock, report_bug, "keeps its cold segments as they are")

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be recompressed, and why."""
        return self._asides.problems

    async def find_due(self, now_ms: int) -> list[Partition]:
        """Return the partitions that have cold segments which have not been tried."""
        found: list[Partition] = []
        throttle = Throttle(self._clock)
        for topic in list(self._catalog.topics.values()):
            if topic.config.cold is None:
                continue
            for partition in topic.partitions.values():
                if await self._cold_end(partition, now_ms) is not None:
                    found.append(partition)
                await throttle.step()
        return found

    async def run(self, partition: Partition, now_ms: int) -> None:
        """Have the next cold segments of a partition recompressed. One that fails is put aside."""
        end_offset = await self._cold_end(partition, now_ms)
        cold = partition.topic.config.cold
        if end_offset is None or cold is None:
            return
        try:
            report = await segmented(partition).recompress(
                RecompressionJob(
                    upper_bound=end_offset,
                    level=cold.level,
                    bytes_per_s=self._config().cleaner_bytes_per_s,
                    limits=partition.topic.config.decompression_limits,
                )
            )
        except Exception as error:  # noqa: BLE001 - the other partitions have their turn
            self._put_aside(partition, error)
        else:
            self._asides.take_back(partition)
            self._metrics.cold_put_aside = len(self._asides)
            self._report(partition, report)

    async def _cold_end(self, partition: Partition, now_ms: int) -> int | None:
        """Return up to where a partition is to be recompressed now; None for nothing to do."""
        config = partition.topic.config
        if config.cold is None or self._asides.passes_over(partition):
            return None
        try:
            of_segments = segmented(partition)
            done_end = max(of_segments.recompressed.end_offset, partition.log.log_start_offset)
            end_offset = find_cold_end(
                await of_segments.segments(),
                config.cold,
                done_end=done_end,
                upper_bound=of_segments.compacted_end if config.is_compacted else None,
                now_ms=now_ms,
            )
        except KgwError as error:
            self._put_aside(partition, error)
            return None
        return end_offset if end_offset > done_end else None

    def _put_aside(self, partition: Partition, error: Exception) -> None:
        if not self._asides.put(partition, error):
            return
        self._metrics.cold_put_aside = len(self._asides)
        count(self._metrics.cold_failures, failure_reason(error))
        _log.error(
            "cold segments of %s cannot be recompressed, the next attempt is in %d s: %s",
            partition_name(partition),
            ASIDE_S,
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
