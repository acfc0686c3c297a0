"""backfill: writes the records of an archive to a topic, each exactly once.

The records of a partition are written in order, in transactions. Each transaction also commits, as
a group's offset, the position that it reached in the archive. After a failure the job continues
from the position of the last committed transaction.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kgw.client import GroupClient, Producer, TransactionalClient
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.errors import ArchiveError
from kgw.pipeline.archive.reading import read_range
from kgw.pipeline.archive.shared import check_seen
from kgw.pipeline.arrow.encode import encode_batches
from kgw.pipeline.jobs.loading import LoadProgress, is_loading, settings_of
from kgw.pipeline.jobs.loops import GROUP_PREFIX, check_no_loop
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    import pyarrow as pa

    from kgw.client import TransactionalProducer
    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.cluster import Cluster
    from kgw.pipeline.jobs.loading import LoadingJob
    from kgw.pipeline.jobs.running import Runner
    from kgw.pipeline.wire import WireClient

TRANSACTION_BYTES: Final = 32 << 20
_BATCH_BYTES: Final = 512 << 10
_TIMEOUT_MS: Final = 60_000
_COLUMNS: Final = frozenset({"key", "value", "headers", "timestamp_ms"})


class Backfill(NamedTuple):
    """The settings of a job. A later job with the same name continues this one."""

    cluster: Cluster
    job: str
    generation: Path
    topic_id: UUID
    """The id of the archived topic."""
    target: str
    compression: Compression = Compression.NONE
    transaction_bytes: int = TRANSACTION_BYTES

    @property
    def group_id(self) -> str:
        """The group whose committed offsets are positions in the archive."""
        return f"{GROUP_PREFIX}{self.job}"

    @property
    def loader(self) -> str:
        """The common prefix of the job's transactional ids."""
        return f"{self.group_id}-"

    @property
    def keeps_offsets(self) -> bool:
        """Whether the job writes batches with their original offsets."""
        return False


def default_job(topic: str, target: str) -> str:
    """Return the job name for a pair of topics, for a job without a given name. Pure."""
    return f"{topic}:{target}"


class WrittenPartition(NamedTuple):
    """The result of a run for one partition."""

    partition: int
    records: int
    end_offset: int
    """The end offset of the written partition after the run."""


def plan(wire: WireClient, backfill: Backfill) -> list[LoadProgress]:
    """Return the progress of each partition, ignoring open transactions.

    Raises ClientError. Raises ArchiveError if the target has too few partitions, is the archived
    topic, feeds the archived topic through other backfills, or is being loaded by another job, or
    if another archive uses the job's name.
    """
    coverage = archived_partitions(wire, backfill)
    target = wire.find_topic(backfill.target)
    if target is not None:
        check_no_loop(wire, backfill.generation.parent.name, backfill.topic_id, target)
    is_loading(settings_of(wire, backfill.target), backfill)
    # Ignore open transactions: a killed job may have left one, which the next attempt aborts.
    at = partial(_position, wire, backfill, require_stable=False)
    return [
        LoadProgress(partition, one.start, at(partition, one.start), one.next)
        for partition, one in sorted(coverage.items())
    ]


def archived_partitions(wire: WireClient, job: LoadingJob) -> Mapping[int, PartitionCoverage]:
    """Return the coverage of each archived partition; it is written to the same partition number.

    Raises ArchiveError if the target lacks one of the partitions, ClientError.
    """
    coverage = CommitLog(job.generation, job.topic_id).read().coverage.partitions
    described = wire.find_topic(job.target)
    if described is None:
        raise ArchiveError(f"there is no topic {job.target} to write to; create it first")
    count = len(described.partitions)
    if coverage and max(coverage) >= count:
        raise ArchiveError(
            f"topic {job.target} has {count} partitions; the archive has partition "
            f"{max(coverage)}, and each is written to the one of its number"
        )
    return coverage


def run(
    wire: WireClient,
    backfill: Backfill,
    runner: Runner,
    *,
    on_written: Callable[[WrittenPartition], None] = lambda _: None,
) -> list[WrittenPartition]:
    """Write the missing records; each partition is a unit. Raises JobError, and as `plan`."""
    write = partial(backfill_partition, backfill)
    return write_left(plan(wire, backfill), write, runner, on_written)


def write_left(
    standing: Sequence[LoadProgress],
    write: Callable[[int], WrittenPartition],
    runner: Runner,
    on_written: Callable[[WrittenPartition], None],
) -> list[WrittenPartition]:
    """Write each incomplete partition; each is a unit. Raises JobError."""
    left = [one.partition for one in standing if one.position < one.end]
    written = []
    # If nothing is left, do not call the runner: its first unit starts Spark.
    for _, one in runner.run(left, write) if left else ():
        on_written(one)
        written.append(one)
    return sorted(written)


def backfill_partition(backfill: Backfill, partition: int) -> WrittenPartition:
    """Write the missing records of a partition. Raises ArchiveError, ClientError."""
    check_seen(backfill.generation)
    coverage = CommitLog(backfill.generation, backfill.topic_id).read().coverage
    covered = coverage.partitions[partition]
    transactional_id = f"{backfill.loader}{partition}"
    source: Iterator[pa.RecordBatch] = iter(())
    expected = -1
    records = 0
    with backfill.cluster.client() as wire:
        transactions = TransactionalClient(wire.client)
        while True:
            # The new producer fences an earlier attempt and aborts its open transaction. Read the
            # position only after that: otherwise an earlier attempt could still commit records,
            # which this one would write again.
            producer = wire.call(transactions.begin(transactional_id, timeout_ms=_TIMEOUT_MS))
            position = _position(wire, backfill, partition, covered.start, require_stable=True)
            if position >= covered.next:
                break
            if position != expected:
                source = read_range(
                    backfill.generation,
                    covered,
                    position,
                    covered.next,
                    columns=_COLUMNS | {"offset"},
                    is_checked=True,
                )
            taken, position = _take(source, backfill.transaction_bytes, covered.next)
            wire.call(_write(wire, backfill, producer, partition, taken, position))
            records += sum(len(one) for one in taken)
            expected = position
        bounds = wire.bounds(backfill.target, [partition])
        return WrittenPartition(partition, records, bounds[partition].latest)


def _take(
    source: Iterator[pa.RecordBatch], least_bytes: int, end: int
) -> tuple[list[pa.RecordBatch], int]:
    """Return batches of about `least_bytes` in total, and the offset after them."""
    taken: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in source:
        taken.append(batch)
        size_bytes += batch.nbytes
        if size_bytes >= least_bytes:
            return taken, int(batch.column("offset")[len(batch) - 1].as_py()) + 1
    return taken, end


async def _write(
    wire: WireClient,
    backfill: Backfill,
    producer: TransactionalProducer,
    partition: int,
    batches: list[pa.RecordBatch],
    position: int,
) -> None:
    """Write batches and the new position in one transaction, and commit it."""
    transactions = TransactionalClient(wire.client)
    answers: list[Any] = []
    async with Producer(wire.client, transaction=producer) as sender:
        for batch in batches:
            identity = sender.identity(backfill.target, partition)
            encoded = encode_batches(
                batch.select(sorted(_COLUMNS)),
                compression=backfill.compression,
                max_batch_bytes=_BATCH_BYTES,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=identity.base_sequence,
                is_transactional=True,
            )
            answers += [
                await sender.send_encoded(backfill.target, partition, one.data, one.record_count)
                for one in encoded
            ]
    for answer in answers:
        await answer
    await transactions.commit_offsets(
        producer,
        backfill.group_id,
        {(backfill.target, partition): (position, str(backfill.topic_id))},
    )
    await transactions.end(producer, is_commit=True)


def _position(
    wire: WireClient, backfill: Backfill, partition: int, start: int, *, require_stable: bool
) -> int:
    """Return the position in the archive that the last committed transaction has reached."""
    groups = GroupClient(wire.client)
    # Ask for this partition only, so that open transactions of others do not matter.
    wanted = {backfill.target: [partition]}
    offsets = wire.call(
        wire.client.retrying(
            lambda: groups.offsets(backfill.group_id, of=wanted, require_stable=require_stable)
        )
    )
    found = offsets.get((backfill.target, partition))
    if found is None:
        return start
    if found.metadata != str(backfill.topic_id):
        raise ArchiveError(
            f"job {backfill.job} has written another archive to topic {backfill.target} "
            f"({found.metadata}); give this one another name"
        )
    return found.offset
