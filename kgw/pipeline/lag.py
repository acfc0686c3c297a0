"""The lag of an archive behind its topic, computed from its commit log, file names and ListOffsets.

Read lag counts offsets that are in no file; commit lag counts offsets in files that are not
committed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from kgw.pipeline.archive.archived_topics import archived_topic_ids
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.names import generation_directory, parse_data_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kgw.client import AsyncClient


class ArchiveLag(NamedTuple):
    """The progress of a partition's archive.

    Each offset is exclusive: the first one that is missing.
    """

    topic: str
    partition: int
    committed: int | None
    """None if nothing of the partition was ever committed; then `written` is None, too."""
    written: int | None
    """The end of the files that follow each other without a gap, committed or not."""
    log_start_offset: int | None
    """None if the topic no longer exists; then the high watermark is None, too."""
    high_watermark: int | None

    @property
    def read_lag(self) -> int | None:
        """How many offsets of the log are in no file."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - max(self.log_start_offset, self.written or 0))

    @property
    def commit_lag(self) -> int:
        """How many offsets are in files that no commit names."""
        return (self.written or 0) - (self.committed or 0)

    @property
    def mark(self) -> str:
        """A problem of the partition that does not go away by waiting; "" if there is none."""
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
    """Return the first offset, from `committed` on, that is in no range.

    Ranges are pairs (first, last), both inclusive.
    """
    end = committed
    for first, last in sorted(ranges):
        if first > end:
            break
        end = max(end, last + 1)
    return end


async def archive_lags(client: AsyncClient, root: Path, topic: str) -> list[ArchiveLag]:
    """Return the archive's progress for each partition of the topic with its present topic id.

    If the topic no longer exists, return the progress for each topic id in the archive. Raises
    ArchiveError, ClientError, OSError.
    """
    described = await client.find_topic(topic)
    if described is None:
        return await asyncio.to_thread(_ended, root, topic)
    partitions = [one.partition for one in described.partitions]
    # Read the archive before the end offsets. End offsets only grow, so they are not below the
    # archive's end.
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
    """Return the archived offsets of a deleted topic, for each of its topic ids."""
    lives = archived_topic_ids(root, topic)
    return [row for life in lives for row in _standing(root, topic, life, ())]


def _standing(
    root: Path, topic: str, topic_id: UUID, partitions: Iterable[int]
) -> list[ArchiveLag]:
    """Return the progress of the given partitions and of those in the archive."""
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
