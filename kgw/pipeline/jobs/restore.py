"""restore: writes an archive to an empty topic, each record at its original offset.

The end offset of a partition is the job's position. The server accepts a batch only at the end
offset, so a batch that several attempts send is stored once. Offsets without a record in the
archive (control records, aborted records, compacted records) have no record in the topic either.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from kgw.client import AdminClient, ClientError, ServerRefusedError
from kgw.errors import ErrorCode
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.shared import check_seen
from kgw.pipeline.arrow.columns import SCHEMA
from kgw.pipeline.arrow.encode import encode_at_offsets
from kgw.pipeline.jobs.backfill import WrittenPartition, archived_partitions, write_left
from kgw.pipeline.jobs.loading import LoadProgress, is_loading, settings_of
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path
    from uuid import UUID

    from kgw.client import Produced
    from kgw.offsets.ranges import OffsetBounds
    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.arrow.encode import EncodedBatch
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.wire import WireClient

_BATCH_BYTES: Final = 512 << 10
_IN_FLIGHT: Final = 8
_TRIES: Final = 8
"""How many attempts in a row may fail without progress, with 23 s of waiting in total."""
_LONGEST_WAIT_S: Final = 10.0
_COLUMNS: Final = frozenset({"offset", "key", "value", "headers", "timestamp_ms"})
_EMPTY: Final = pa.RecordBatch.from_pylist(
    [], pa.schema([field for field in SCHEMA if field.name in _COLUMNS])
)


class Restore(NamedTuple):
    """The settings of a job. A later job with the same archive and topic continues this one."""

    cluster: Cluster
    generation: Path
    topic_id: UUID
    """The id of the archived topic."""
    target: str
    compression: Compression = Compression.NONE

    @property
    def loader(self) -> str:
        """The value of kgw.loading.

        It has the archive's topic id, so that no other archive can continue the job.
        """
        return f"kgw-restore-{self.topic_id}-"

    @property
    def keeps_offsets(self) -> bool:
        """Whether the job writes batches with their original offsets."""
        return True


def plan(wire: WireClient, restore: Restore) -> list[LoadProgress]:
    """Return the progress of each partition of the archive.

    Raises ClientError. Raises ArchiveError if the target has too few partitions, is not empty, is
    being loaded by another job, or has settings that would change the records.
    """
    coverage = archived_partitions(wire, restore)
    settings = settings_of(wire, restore.target)
    if settings.get("message.timestamp.type") == "LogAppendTime":
        raise ArchiveError(
            f"topic {restore.target} gives records its own time: set message.timestamp.type to "
            "CreateTime to restore theirs"
        )
    if settings.get("kgw.durability") == "relaxed":
        raise ArchiveError(
            f"topic {restore.target} has kgw.durability=relaxed: a power loss would leave offsets "
            "out that are not restored yet. Set it to strict, and back afterwards"
        )
    if settings.get("kgw.archive.hold") and any(one.start for one in coverage.values()):
        raise ArchiveError(
            f"topic {restore.target} has a kgw.archive.hold, so that it cannot begin where the "
            "archive does: set that afterwards"
        )
    bounds = wire.bounds(restore.target, list(coverage)) if coverage else {}
    if not is_loading(settings, restore):
        for partition, one in sorted(bounds.items()):
            if one.latest:
                raise ArchiveError(
                    f"topic {restore.target} is not empty: partition {partition} ends at offset "
                    f"{one.latest}, and no restore of this archive is under way"
                )
    return [
        LoadProgress(partition, one.start, _position(bounds[partition], one.start), one.next)
        for partition, one in sorted(coverage.items())
    ]


def run(
    wire: WireClient,
    restore: Restore,
    runner: Runner,
    *,
    on_written: Callable[[WrittenPartition], None] = lambda _: None,
) -> list[WrittenPartition]:
    """Write the records that are missing; a partition is a unit. Raises JobError, and as `plan`.

    Call `loading.begin` first.
    """
    write = partial(restore_partition, restore)
    return write_left(plan(wire, restore), write, runner, on_written)


def restore_partition(restore: Restore, partition: int) -> WrittenPartition:
    """Write the missing records of a partition. Raises ArchiveError, ClientError."""
    check_seen(restore.generation)
    coverage = CommitLog(restore.generation, restore.topic_id).read().coverage
    covered = coverage.partitions[partition]
    records = tries = 0
    before = -1
    with restore.cluster.client() as wire:
        while True:
            bounds = wire.bounds(restore.target, [partition])[partition]
            if _position(bounds, covered.start) >= covered.next:
                return WrittenPartition(partition, records, bounds.latest)
            tries = tries + 1 if bounds.latest == before else 0
            before = bounds.latest
            try:
                if bounds.latest < covered.start:
                    encoded = encode_at_offsets(
                        _EMPTY, bounds.latest, covered.start, max_batch_bytes=_BATCH_BYTES
                    )
                    wire.call(_send(wire, restore, partition, encoded))
                elif bounds.earliest < covered.start:
                    _begin_at(wire, restore, partition, covered.start)
                else:
                    for count in _write(wire, restore, partition, covered, bounds.latest):
                        records += count
            except ClientError as error:
                # The server refused the batches for now, or stored batches whose responses were
                # lost. The end offset shows which batches were stored.
                if tries >= _TRIES or not (error.retriable or _is_elsewhere(error)):
                    raise
                time.sleep(min(_LONGEST_WAIT_S, 0.1 * 2**tries))


def _position(bounds: OffsetBounds, start: int) -> int:
    """Return the next offset to write; below `start` until the log start offset is there. Pure."""
    return bounds.latest if bounds.earliest >= start else min(bounds.latest, start - 1)


def _is_elsewhere(error: ClientError) -> bool:
    return isinstance(error, ServerRefusedError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def _begin_at(wire: WireClient, restore: Restore, partition: int, offset: int) -> None:
    """Move the log start offset of a partition to `offset`. Raises ClientError."""
    admin = AdminClient(wire.client)
    answer = wire.call(admin.delete_records(restore.target, {partition: offset}))[partition]
    if isinstance(answer, ServerRefusedError):
        raise answer


def _write(
    wire: WireClient, restore: Restore, partition: int, covered: PartitionCoverage, position: int
) -> Iterator[int]:
    """Write the archive from a position to its end.

    Yield the number of records of each stored batch.

    While the server stores some batches, the next ones are encoded.
    """
    sending: Future[int] | None = None
    for batch, base_offset, end_offset in _pieces(restore.generation, covered, position):
        encoded = encode_at_offsets(
            batch,
            base_offset,
            end_offset,
            compression=restore.compression,
            max_batch_bytes=_BATCH_BYTES,
        )
        if sending is not None:
            yield sending.result()
        sending = wire.start(_send(wire, restore, partition, encoded))
    if sending is not None:
        yield sending.result()


def _pieces(
    generation: Path, covered: PartitionCoverage, position: int
) -> Iterator[tuple[pa.RecordBatch, int, int]]:
    """Yield the archive's rows from a position on, each batch with the offsets that it covers."""
    found = read_range(
        generation, covered, position, covered.next, columns=_COLUMNS, is_checked=True
    )
    before = next(found, _EMPTY)
    for batch in found:
        end = int(before.column("offset")[len(before) - 1].as_py()) + 1
        yield before, position, end
        before, position = batch, end
    yield before, position, covered.next


async def _send(
    wire: WireClient, restore: Restore, partition: int, encoded: list[EncodedBatch]
) -> int:
    """Send batches in order, several at once, and return their number of records.

    Raises ArchiveError if a batch was stored at another offset than its own, ClientError.
    """
    in_flight: deque[tuple[Awaitable[Produced], EncodedBatch]] = deque()
    records = 0

    async def take() -> int:
        answer, one = in_flight.popleft()
        expected = int.from_bytes(one.data[:8], "big")
        stored = await answer
        if stored.base_offset != expected:
            raise ArchiveError(
                f"topic {restore.target} partition {partition}: offset {expected} was stored at "
                f"{stored.base_offset}; the topic was created again, or is not being restored"
            )
        return one.record_count

    try:
        for one in encoded:
            if len(in_flight) >= _IN_FLIGHT:
                records += await take()
            answer = await wire.client.start_produce(
                restore.target,
                partition,
                one.data,
                transactional_id=f"{restore.loader}{partition}",
            )
            in_flight.append((asyncio.ensure_future(answer), one))
        while in_flight:
            records += await take()
    finally:
        await asyncio.gather(*(answer for answer, _ in in_flight), return_exceptions=True)
    return records
