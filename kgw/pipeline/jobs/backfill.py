"""backfill: what an archive has, written to a topic again, each record once.

A partition is written in the order of its offsets, in transactions. Each has, beside the records,
the position in the archive up to which they reach, as the offset of a group: where a job goes on,
after whatever ended it, is what its last committed transaction says.
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
from kgw.pipeline.jobs.loading import Standing, is_loading, settings_of
from kgw.pipeline.jobs.loops import GROUP_PREFIX, check_no_loop
from kgw.pipeline.wire import WireClient
from kgw.records.batch import Compression

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from uuid import UUID

    import pyarrow as pa

    from kgw.client import TransactionalProducer
    from kgw.pipeline.archive.coverage import PartitionCoverage
    from kgw.pipeline.jobs.loading import LoadingJob
    from kgw.pipeline.jobs.running import Runner

TRANSACTION_BYTES: Final = 32 << 20
_BATCH_BYTES: Final = 512 << 10
_TIMEOUT_MS: Final = 60_000
_COLUMNS: Final = frozenset({"key", "value", "headers", "timestamp_ms"})


class Backfill(NamedTuple):
    """What a job does; a job of the same name goes on with it."""

    bootstrap: str
    job: str
    generation: Path
    topic_id: UUID
    """Of the archive."""
    target: str
    compression: Compression = Compression.NONE
    transaction_bytes: int = TRANSACTION_BYTES

    @property
    def group_id(self) -> str:
        """The group whose offsets are positions in the archive."""
        return f"{GROUP_PREFIX}{self.job}"

    @property
    def loader(self) -> str:
        """What the job's transactional ids begin with."""
        return f"{self.group_id}-"

    @property
    def keeps_offsets(self) -> bool:
        """Whether batches come with offsets of their own."""
        return False


def default_job(topic: str, target: str) -> str:
    """Return the name of a job that was given none: no other pair of topics has it. Pure."""
    return f"{topic}:{target}"


class Written(NamedTuple):
    """What a run has written to a partition."""

    partition: int
    records: int
    end_offset: int
    """Of the target's partition, when the run had ended."""


def plan(wire: WireClient, backfill: Backfill) -> list[Standing]:
    """Return how far each partition of the archive is, or was before what is still open.

    Raises ArchiveError when the target has too few partitions, is the archived topic or one whose
    records came to it, or is being loaded by another job, or the job's name belongs to another
    archive; ClientError.
    """
    coverage = archived_partitions(wire, backfill)
    target = wire.find_topic(backfill.target)
    if target is not None:
        check_no_loop(wire, backfill.generation.parent.name, backfill.topic_id, target)
    is_loading(settings_of(wire, backfill.target), backfill)
    # An attempt that was killed may have a transaction open, which the next attempt ends.
    at = partial(_position, wire, backfill, require_stable=False)
    return [
        Standing(partition, one.start, at(partition, one.start), one.next)
        for partition, one in sorted(coverage.items())
    ]


def archived_partitions(wire: WireClient, job: LoadingJob) -> Mapping[int, PartitionCoverage]:
    """Return what the archive covers; each partition is written to the one of its number.

    Raises ArchiveError when the target has no such partition, ClientError.
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
    on_written: Callable[[Written], None] = lambda _: None,
) -> list[Written]:
    """Write what the plan says is left; a partition is a unit. Raises JobError, and as `plan`."""
    write = partial(backfill_partition, backfill)
    return write_left(plan(wire, backfill), write, runner, on_written)


def write_left(
    standing: Sequence[Standing],
    write: Callable[[int], Written],
    runner: Runner,
    on_written: Callable[[Written], None],
) -> list[Written]:
    """Write each partition that is not whole; a partition is a unit. Raises JobError."""
    left = [one.partition for one in standing if one.position < one.end]
    written = []
    # Not for nothing: the first unit starts Spark.
    for _, one in runner.run(left, write) if left else ():
        on_written(one)
        written.append(one)
    return sorted(written)


def backfill_partition(backfill: Backfill, partition: int) -> Written:
    """Write what is left of a partition. Raises ArchiveError, ClientError."""
    check_seen(backfill.generation)
    coverage = CommitLog(backfill.generation, backfill.topic_id).read().coverage
    covered = coverage.partitions[partition]
    transactional_id = f"{backfill.loader}{partition}"
    source: Iterator[pa.RecordBatch] = iter(())
    expected = -1
    records = 0
    with WireClient(backfill.bootstrap) as wire:
        transactions = TransactionalClient(wire.client)
        while True:
            # A new producer ends what an attempt before this one has open, and whoever is still at
            # it cannot go on. Only then does the position say what is written: asked before, an
            # attempt that slept would write again what another one has written meanwhile.
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
        return Written(partition, records, bounds[partition].latest)


def _take(
    source: Iterator[pa.RecordBatch], least_bytes: int, end: int
) -> tuple[list[pa.RecordBatch], int]:
    """Return batches of about so many bytes, and the offset behind them."""
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
    """Write batches and the position behind them, in one transaction, and commit it."""
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
    """Return where the last committed transaction ends in the archive."""
    groups = GroupClient(wire.client)
    # Of this partition alone: what is open in another one is no matter here.
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
