"""Compaction of partitions, one at a time: the shell round `compaction_rules`.

A partition that fails is put aside for a while and named among the problems; the others go on.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.base import CompactionJob, Segmented
from kgw.config.setting import LONG_MAX
from kgw.errors import (
    CorruptionError,
    DiskFullError,
    KgwError,
    ProcessEndedError,
    StorageError,
)
from kgw.metrics import count
from kgw.partitions.compaction_rules import Dirtiness, measure_dirtiness
from kgw.partitions.retention import is_old
from kgw.partitions.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.base import CompactionReport, SegmentInfo
    from kgw.clock import Clock
    from kgw.config import Config
    from kgw.metrics import Metrics
    from kgw.partitions.catalog import TopicCatalog
    from kgw.partitions.partition import Partition

_log = logging.getLogger(__name__)

ASIDE_S = 600.0
"""How long a partition that could not be compacted is left alone."""


class _KeysDoNotFitError(StorageError):
    """Another attempt would get no further."""


class _Aside(NamedTuple):
    until_s: float
    problem: str


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
        self._report_bug = report_bug
        self._asides: dict[Partition, _Aside] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be compacted, and why."""
        return tuple(
            f"{_name(partition)} is not compacted: {aside.problem}"
            for partition, aside in self._asides.items()
            if not partition.topic.is_deleted
        )

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
            self._asides.pop(partition, None)
            self._metrics.compactions_put_aside = len(self._asides)

    async def compact(
        self, partition: Partition, upper_bound: int, now_ms: int, *, is_dry_run: bool = False
    ) -> CompactionReport:
        """Have one partition compacted below a bound. Raises StorageError."""
        log = _segmented(partition)
        config = self._config()
        bytes_per_s = config.log_cleaner_io_max_bytes_per_second
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
                bytes_per_s=int(bytes_per_s) if bytes_per_s < LONG_MAX else None,
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
        log = _segmented(partition)
        return _dirtiness(partition, log, await log.segments(), now_ms)

    async def _look_at(self, partition: Partition, now_ms: int) -> Dirtiness | None:
        """Measure a partition; None when it is empty, gone or put aside, or fails.

        An active segment is closed in time to be compacted itself.
        """
        log = partition.log
        aside = self._asides.get(partition)
        if (
            partition.topic.is_deleted
            or log.end_offset == log.log_start_offset
            or (aside is not None and self._clock.monotonic_s() < aside.until_s)
        ):
            return None
        try:
            segmented = _segmented(partition)
            segments = await segmented.segments()
            rules = partition.topic.config.retention
            if segments and is_old(segments[-1], rules, now_ms, partition.index):
                await segmented.roll()
                self._metrics.segments_closed += 1
                segments = await segmented.segments()
        except KgwError as error:
            self._put_aside(partition, error)
            return None
        return _dirtiness(partition, segmented, segments, now_ms)

    def _put_aside(self, partition: Partition, error: Exception) -> None:
        if partition.topic.is_deleted:
            return
        if not isinstance(error, KgwError):
            self._report_bug(error)
        self._asides = {
            one: aside for one, aside in self._asides.items() if not one.topic.is_deleted
        }
        until_s = self._clock.monotonic_s() + ASIDE_S
        self._asides[partition] = _Aside(until_s, str(error) or repr(error))
        metrics = self._metrics
        metrics.compactions_put_aside = len(self._asides)
        count(metrics.compactions, "failed")
        count(metrics.compaction_failures, _reason(error))
        metrics.compaction_last_failure_s = self._clock.wall_ms() / 1000
        _log.error(
            "%s cannot be compacted, the next attempt is in %d s: %s",
            _name(partition),
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
            _name(partition),
            report.compacted_end,
            report.records_after,
            report.records_before,
            report.bytes_after,
            report.bytes_before,
            elapsed_s,
        )


def _dirtiness(
    partition: Partition, log: Segmented, segments: Sequence[SegmentInfo], now_ms: int
) -> Dirtiness:
    return measure_dirtiness(
        segments,
        partition.topic.config.compaction,
        compacted_end=log.compacted_end,
        last_stable_offset=partition.view().bounds().last_stable_offset,
        now_ms=now_ms,
    )


def _reason(error: Exception) -> str:
    """Return what a failure is counted as; its message says the rest."""
    match error:
        case ProcessEndedError():
            return error.kind
        case CorruptionError():
            return "damage"
        case DiskFullError():
            return "disk_full"
        case _KeysDoNotFitError():
            return "memory"
        case KgwError():
            return "storage"
    return "bug"


def _segmented(partition: Partition) -> Segmented:
    """Return a partition's log as one that can compact. Raises StorageError when it cannot."""
    if not isinstance(partition.log, Segmented):
        raise StorageError("this backend cannot compact")
    return partition.log


def _name(partition: Partition) -> str:
    return f"{partition.topic.name}-{partition.index}"
