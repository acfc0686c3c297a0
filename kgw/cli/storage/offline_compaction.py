"""Compacts a stopped data directory, for `kgw log compact`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded.files.fs import RealFs
from kgw.backend.embedded.foreign import refuse_foreign
from kgw.backend.embedded.layout import FORMAT_NAME
from kgw.backend.registry import open_backend
from kgw.clock import RunningClock, SystemClock
from kgw.errors import DataDirectoryError, StorageError
from kgw.gateway import stored_config
from kgw.metrics import Metrics
from kgw.partitions.maintain.log_manager import LogManager
from kgw.partitions.topics.manager import TopicManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from kgw.backend.base import CompactionReport
    from kgw.config import Config
    from kgw.partitions.partition import Partition
    from kgw.partitions.topics.catalog import TopicCatalog


class PartitionCompaction(NamedTuple):
    """The result, or the plan, for one partition of a compacted topic."""

    topic: str
    partition: int
    dirty_ratio: float
    report: CompactionReport | None
    """None if there was nothing to compact, or if compaction failed."""
    failure: str | None = None


def compact(
    config: Config, topics: Collection[str], *, is_dry_run: bool
) -> list[PartitionCompaction]:
    """Compact every partition of the given topics, or of all compacted topics if none is given.

    The ratio of dirty bytes does not matter. min.compaction.lag.ms and delete.retention.ms are
    obeyed; topics without these settings use `config`, which must equal the server's. Raises
    DataDirectoryError, StorageError for a topic that is unknown or not compacted.
    """
    if not (Path(config.data_dir) / FORMAT_NAME).exists():
        refuse_foreign(RealFs(), config.data_dir)
        raise DataDirectoryError(f"{config.data_dir} is not a data directory: no {FORMAT_NAME}")
    return asyncio.run(_compact_all(config, topics, is_dry_run=is_dry_run))


async def _compact_all(
    config: Config, topics: Collection[str], *, is_dry_run: bool
) -> list[PartitionCompaction]:
    async with _opened(config) as (catalog, log_manager):
        for name in topics:
            topic = catalog.get(name)
            if topic is None:
                raise StorageError(f"there is no topic {name}")
            if not topic.config.is_compacted:
                raise StorageError(f"the cleanup.policy of topic {name} has no compact")
        now_ms = await log_manager.now_ms()
        return [
            await _compact(partition, log_manager, now_ms, is_dry_run=is_dry_run)
            for topic in sorted(catalog.topics.values(), key=lambda one: one.name)
            if topic.config.is_compacted and (not topics or topic.name in topics)
            for partition in topic.partitions.values()
        ]


async def _compact(
    partition: Partition, log_manager: LogManager, now_ms: int, *, is_dry_run: bool
) -> PartitionCompaction:
    compactor = log_manager.compactor
    name, index = partition.topic.name, partition.index
    try:
        dirtiness = await compactor.measure(partition, now_ms)
        report = None
        if dirtiness.dirty_bytes:
            report = await compactor.compact(
                partition, dirtiness.upper_bound, now_ms, is_dry_run=is_dry_run
            )
    except StorageError as error:
        return PartitionCompaction(name, index, 0.0, None, str(error))
    return PartitionCompaction(name, index, dirtiness.ratio, report)


@asynccontextmanager
async def _opened(config: Config) -> AsyncIterator[tuple[TopicCatalog, LogManager]]:
    """Open a data directory as its server would, and close it in order."""
    clock = SystemClock()
    backend = open_backend(config, clock)
    await backend.open()
    try:
        config = await stored_config(backend.state, config)
        topics = TopicManager(backend, config, clock)
        await topics.open()

        def raise_bug(error: BaseException) -> None:
            raise error

        running = RunningClock(clock)
        catalog = topics.catalog
        yield catalog, LogManager(catalog, backend, running, Metrics(), lambda: config, raise_bug)
        await topics.partitions.save_snapshots()
    finally:
        await backend.aclose()
