"""How far an archive is behind its topics: read from its commit log, file names, and ListOffsets.

Read lag is what no file has yet, commit lag what files have and no commit names.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.lives import archived_lives
from kgw.pipeline.archive.names import generation_directory, parse_data_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kgw.client import AsyncClient


class ArchiveLag(NamedTuple):
    """Where the archive of a partition stands. Every offset is the first one that is missing."""

    topic: str
    partition: int
    committed: int | None
    """None, as `written`, where nothing of the partition was ever committed."""
    written: int | None
    """Up to where files follow each other, committed or not."""
    log_start_offset: int | None
    """None, as the high watermark, where the topic is no more."""
    high_watermark: int | None

    @property
    def read_lag(self) -> int | None:
        """Offsets of the log that are in no file."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - max(self.log_start_offset, self.written or 0))

    @property
    def commit_lag(self) -> int:
        """Offsets that are in files that no commit names."""
        return (self.written or 0) - (self.committed or 0)

    @property
    def mark(self) -> str:
        """What cannot be right, or will not get right by waiting; "" where nothing is."""
        if self.high_watermark is None or self.log_start_offset is None:
            return "topic-gone"
        if self.committed is None:
            return "not-archived"
        if self.committed < self.log_start_offset:
            return "records-gone"
        if self.committed > self.high_watermark:
            return "past-end"
        return ""


def written_end(committed: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Return the first offset from `committed` on that no range has; ranges are (first, last)."""
    end = committed
    for first, last in sorted(ranges):
        if first > end:
            break
        end = max(end, last + 1)
    return end


async def archive_lags(client: AsyncClient, root: Path, topic: str) -> list[ArchiveLag]:
    """Return where the archive of a topic as it lives now stands, by partition.

    Of a topic that is no more: where the archives of its lives ended.
    Raises ArchiveError, ClientError, OSError.
    """
    described = await client.find_topic(topic)
    if described is None:
        return await asyncio.to_thread(_ended, root, topic)
    partitions = [one.partition for one in described.partitions]
    # What is archived is read first: the ends, which only grow, are not behind it.
    topic_id = UUID(bytes=described.topic_id)
    rows = await asyncio.to_thread(_standing, root, topic, topic_id, partitions)
    bounds = await client.bounds(topic, partitions)
    return [
        row._replace(
            log_start_offset=bounds[row.partition].earliest,
            high_watermark=bounds[row.partition].latest,
        )
        for row in rows
    ]


def _ended(root: Path, topic: str) -> list[ArchiveLag]:
    """Return where the archives of every life of a topic ended."""
    lives = archived_lives(root, topic)
    return [row for life in lives for row in _standing(root, topic, life, ())]


def _standing(
    root: Path, topic: str, topic_id: UUID, partitions: Iterable[int]
) -> list[ArchiveLag]:
    """Return what one life's archive has of these partitions and of those that it knows."""
    generation = generation_directory(str(root), topic, topic_id)
    covered = CommitLog(generation, topic_id).read().coverage.partitions
    ranges: dict[int, list[tuple[int, int]]] = {}
    for path in generation.glob("p=*/*.parquet"):
        if named := parse_data_path(path.relative_to(generation).as_posix()):
            partition, first, last, _ = named
            ranges.setdefault(partition, []).append((first, last))
    rows = []
    for partition in sorted({*partitions, *covered}):
        committed = written = None
        if partition in covered:
            committed = covered[partition].next
            written = written_end(committed, ranges.get(partition, ()))
        rows.append(ArchiveLag(topic, partition, committed, written, None, None))
    return rows
