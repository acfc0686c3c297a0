"""transform: runs a query on an archive and stages its rows; backfill writes them to a topic.

A query that runs twice may return other rows, or in another order. So it runs once: its rows are
written to files in the order of the target's records, and one commit names all the files. After
that commit the files define the records to write, also after a crash; backfill's position is an
offset in these files.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID, uuid4, uuid5

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.functions import coalesce, col, expr, lit, pmod, unix_millis
from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from kgw.client import GroupClient
from kgw.pipeline.archive.commit_log import CommitLog
from kgw.pipeline.archive.entry import CommitLogEntry, decode_piece, encode_piece
from kgw.pipeline.archive.errors import ArchiveError, CoverageError, CoverageFault
from kgw.pipeline.archive.names import generation_directory
from kgw.pipeline.archive.units import Unit, remove_files, write_unit
from kgw.pipeline.arrow.columns import SCHEMA
from kgw.pipeline.arrow.decode import Decoded
from kgw.pipeline.jobs.loops import is_same_topic
from kgw.pipeline.jobs.running import JobError
from kgw.pipeline.sink.partitioning import murmur2_each
from kgw.pipeline.spark_errors import in_one_line, quiet
from kgw.pipeline.sql.tables import tables
from kgw.types import NO_LEADER_EPOCH, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from kgw.pipeline.archive.entry import Piece
    from kgw.pipeline.jobs.backfill import Backfill
    from kgw.pipeline.sql.tables import Query
    from kgw.pipeline.wire import WireClient

_NAMESPACE: Final = UUID("5b0c9c35-0f1a-4d5e-9a57-6f1d2c0e8a17")
_FILE_BYTES: Final = 64 << 20
"""The approximate size of a file's rows; a task holds them in memory."""
_COLUMNS: Final = ("key", "value", "headers", "timestamp", "partition")
_SOURCE: Final = ("_partition", "_index", "_ts")
"""System columns that identify a row's source record: its partition, index and time."""
_HEADERS: Final = "array<struct<key:string,value:binary>>"


class Transform(NamedTuple):
    """The query that makes the records, and the directory in which they are staged."""

    query: str
    root: Path
    """The root of the archive. Each of its topics is a table of the query."""
    topic: str
    topic_id: UUID
    """The topic id, because an archive may have several for one name."""
    staging: Path
    is_by_key: bool = False
    """Whether each record's partition is chosen by its key, as by Kafka's default partitioner."""
    decode: str | None = None
    schema: str | Mapping[str, str] | None = None
    """The columns to decode values to, or a mapping of topics to such columns."""
    may_write_back: bool = False
    """Whether the target may also be one of the topics that the query reads."""


def staged(transform: Transform, backfill: Backfill) -> Backfill:
    """Return the backfill that writes the staged rows.

    It is the same for the same query, job and target.
    """
    told = [
        str(transform.topic_id),
        transform.query,
        transform.decode,
        transform.schema,
        transform.is_by_key,
        backfill.job,
        backfill.target,
    ]
    topic_id = uuid5(_NAMESPACE, json.dumps(told, sort_keys=True))
    generation = generation_directory(str(transform.staging), backfill.target, topic_id)
    return backfill._replace(generation=generation, topic_id=topic_id)


def stage(
    spark: SparkSession, wire: WireClient, transform: Transform, backfill: Backfill, *, now_ms: int
) -> None:
    """Run the query and stage its rows, unless an earlier run has staged them.

    `backfill` is from `staged`. `now_ms` is the time of rows that have neither a timestamp nor the
    time of a source record.

    Raises ArchiveError if the job has already written records but their rows are not staged any
    more, or if the query's columns are not those of a record; JobError, ClientError, and the errors
    of `Tables.sql`.
    """
    log = CommitLog(backfill.generation, backfill.topic_id)
    if log.read().version:
        return
    _check_unwritten(wire, transform, backfill)
    described = wire.find_topic(backfill.target)
    if described is None:
        raise ArchiveError(f"there is no topic {backfill.target} to write to; create it first")
    count = len(described.partitions)
    opened = tables(
        spark,
        archive=transform.root,
        topic_ids=[transform.topic_id],
        decode=transform.decode,
        schema=transform.schema,
    )
    query = opened.query(transform.query)
    if transform.topic not in opened.snapshots:
        raise ArchiveError(
            f"the query does not name topic {transform.topic}, which is to be written"
        )
    for topic, snapshot in opened.snapshots.items():
        if not transform.may_write_back and is_same_topic(topic, snapshot.topic_id, described):
            raise ArchiveError(
                f"the query reads topic {topic}, and topic {backfill.target} is that one: what is "
                "written comes to its archive, and to this query when it is run again. Write to "
                "another topic, or say that this is meant: --same-topic"
            )
    rows = records(query, count, is_by_key=transform.is_by_key, now_ms=now_ms)
    pieces = _write(rows, backfill, count)
    entry = CommitLogEntry(
        uuid4(),
        backfill.topic_id,
        added=tuple(pieces),
        starts=dict.fromkeys(range(count), 0),
        committed_at_ms=now_ms,
    )
    try:
        log.commit(entry, planned_at=0)
    except CoverageError as error:
        if error.fault is not CoverageFault.WRONG_START:
            raise
        # Another run of this job committed first: use its rows.
        remove_files(backfill.generation, pieces)
        return
    try:
        # Check again: another run may have written its rows and removed them meanwhile.
        _check_unwritten(wire, transform, backfill)
    except ArchiveError:
        unstage(transform, backfill)
        raise


def _check_unwritten(wire: WireClient, transform: Transform, backfill: Backfill) -> None:
    groups = GroupClient(wire.client)
    positions = wire.call(
        wire.client.retrying(lambda: groups.offsets(backfill.group_id, require_stable=True))
    )
    if any(topic == backfill.target for topic, _ in positions):
        raise ArchiveError(
            f"job {backfill.job} has written to topic {backfill.target} before, and the rows of "
            f"this query are not in {transform.staging}: give it another name, or the directory "
            "and the query that it had"
        )


def unstage(transform: Transform, backfill: Backfill) -> None:
    """Remove the staged rows, and the directories that then are empty."""
    # Remove the commit log first: without it, files that an interruption leaves behind are ignored.
    (backfill.generation / "_log").rename(backfill.generation / f".removed-{uuid4().hex}")
    shutil.rmtree(backfill.generation)
    with suppress(OSError):
        backfill.generation.parent.rmdir()
        transform.staging.rmdir()


# --- rows as records -----------------------------------------------------------------------------


def records(query: Query, partition_count: int, *, is_by_key: bool, now_ms: int) -> DataFrame:
    """Return the rows of a query in the columns of records, each with its target partition.

    Raises ArchiveError if the columns are not those of a record.
    """
    of_source = next(
        (
            (found, names)
            for names in (_SOURCE, _SOURCE[:2])
            if (found := query.with_columns_below(names)) is not None
        ),
        None,
    )
    frame = query.frame if of_source is None else of_source[0].frame
    unique = frame.toDF(*(f"_{place}" for place in range(len(frame.columns))))
    source: dict[str, Column] = {}
    if of_source is not None:
        source = {name: col(f"_{frame.columns.index(name)}") for name in of_source[1]}
    given: dict[str, tuple[Column, DataType]] = {}
    for place, name in zip(query.places, query.names, strict=True):
        if name in given or name not in (*_COLUMNS, *_SOURCE):
            what = "stands there twice" if name in given else "is none of a record's"
            raise ArchiveError(f"column {name} {what}; a record has {', '.join(_COLUMNS)}")
        given[name] = (col(f"_{place}"), frame.schema.fields[place].dataType)
    for name in ("key", "value"):
        if name not in given:
            raise ArchiveError(f"the query returns no column {name}: a record has one, or null")
    key, value = _bytes("key", *given["key"]), _bytes("value", *given["value"])
    return unique.select(
        _target(given, source, key, partition_count, is_by_key=is_by_key).alias("target"),
        source.get("_partition", lit(0)).cast("int").alias("source_partition"),
        source.get("_index", lit(0)).cast("long").alias("source_offset"),
        key.alias("key"),
        value.alias("value"),
        _headers(given).alias("headers"),
        _time_ms(given, source, now_ms).alias("timestamp_ms"),
    )


def _bytes(name: str, column: Column, of: DataType) -> Column:
    if not isinstance(of, (StringType, BinaryType, NullType)):
        raise ArchiveError(f"column {name} is {of.simpleString()}; cast it to string or binary")
    return column.cast("binary")


def _headers(given: dict[str, tuple[Column, DataType]]) -> Column:
    if "headers" not in given:
        return lit(None).cast(_HEADERS)
    column, of = given["headers"]
    parts = of.elementType if isinstance(of, ArrayType) else None
    is_headers = (
        isinstance(parts, StructType)
        and len(parts) == 2
        and isinstance(parts[0].dataType, StringType)
        and isinstance(parts[1].dataType, (StringType, BinaryType))
    )
    if not is_headers and not isinstance(of, NullType):
        raise ArchiveError(f"column headers is {of.simpleString()}; it must be {_HEADERS}")
    return column.cast(_HEADERS)


def _time_ms(
    given: dict[str, tuple[Column, DataType]], source: dict[str, Column], now_ms: int
) -> Column:
    now = lit(now_ms).cast("long")
    if "timestamp" not in given:
        if "_ts" not in source:
            return now
        return coalesce(_millis(source["_ts"]), lit(NO_TIMESTAMP_MS).cast("long"))
    column, of = given["timestamp"]
    if isinstance(of, (TimestampType, TimestampNTZType)):
        return coalesce(_millis(column), now)
    if isinstance(of, IntegralType):
        return coalesce(column.cast("long"), now)
    raise ArchiveError(
        f"column timestamp is {of.simpleString()}; it must be a timestamp, or milliseconds"
    )


def _millis(column: Column) -> Column:
    return unix_millis(column.cast("timestamp"))


def _target(
    given: dict[str, tuple[Column, DataType]],
    source: dict[str, Column],
    key: Column,
    partition_count: int,
    *,
    is_by_key: bool,
) -> Column:
    if is_by_key:
        without_key = pmod(source.get("_partition", lit(0)), lit(partition_count)).cast("int")
        chosen = arrow_udf(partial(_partitions_of, partition_count), "int", ArrowUDFType.SCALAR)
        return coalesce(chosen(key), without_key)
    if "partition" in given:
        column, of = given["partition"]
        if not isinstance(of, IntegralType):
            raise ArchiveError(f"column partition is {of.simpleString()}; it must be a number")
        return column.cast("int")
    if "_partition" in source:
        return source["_partition"]
    raise ArchiveError(
        "which partition a row goes to is not clear, as it is not made of one record: let the "
        "query return a column partition, or _partition and _index, or let keys decide"
    )


def _partitions_of(partition_count: int, keys: pa.Array) -> pa.Array:
    keys = keys.cast(pa.binary())
    hashed = (murmur2_each(keys) & np.uint32(0x7FFF_FFFF)) % np.uint32(partition_count)
    return pa.array(hashed.astype(np.int32), mask=~keys.is_valid().to_numpy(zero_copy_only=False))


# --- writing -------------------------------------------------------------------------------------


def _write(rows: DataFrame, backfill: Backfill, partition_count: int) -> list[Piece]:
    """Write rows in Spark tasks, one task for each partition. Return the files and holes."""
    order = ("target", "source_partition", "source_offset", "key", "value", "timestamp_ms")
    writing = partial(
        write_partitions, backfill.generation, backfill.topic_id, backfill.target, partition_count
    )
    reports = (
        rows.repartitionById(partition_count, expr("coalesce(target, 0)"))
        .sortWithinPartitions(*order)
        .mapInArrow(writing, "report string")
    )
    try:
        with quiet():
            told = [json.loads(row.report) for row in reports.collect()]
    except PySparkException as error:
        raise JobError(f"the query cannot be run: {in_one_line(error)}") from error
    for one in told:
        if isinstance(one, str):
            raise JobError(one)
    return [decode_piece(one) for one in told]


def write_partitions(
    generation: Path,
    topic_id: UUID,
    target: str,
    partition_count: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task, write rows that are sorted by target partition.

    Yield a JSON report of each file and hole.

    An ArchiveError is yielded as a report, because Spark would only retry the task.
    """
    try:
        for partition, parts in groupby(_by_partition(batches), key=lambda one: one[0]):
            if partition is None or not 0 <= partition < partition_count:
                raise ArchiveError(
                    f"a row goes to partition {partition}, and topic {target} has "
                    f"{partition_count}: 0 to {partition_count - 1}"
                )
            for piece in _files(generation, topic_id, partition, (part for _, part in parts)):
                yield _report(encode_piece(piece))
    except ArchiveError as error:
        yield _report(str(error))


def _report(value: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [json.dumps(value)]})


def _by_partition(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Yield adjacent rows with the same target partition together."""
    for batch in batches:
        targets = batch.column("target")
        filled = targets.fill_null(-1).to_numpy()
        changes = (np.flatnonzero(np.diff(filled)) + 1).tolist()
        for first, end in zip([0, *changes], [*changes, len(batch)], strict=True):
            if first < end:
                yield targets[first].as_py(), batch.slice(first, end - first)


def _files(
    generation: Path, topic_id: UUID, partition: int, parts: Iterator[pa.RecordBatch]
) -> Iterator[Piece]:
    offset = 0
    waiting: list[pa.RecordBatch] = []
    for part in parts:
        waiting.append(part)
        if sum(one.nbytes for one in waiting) >= _FILE_BYTES:
            end = offset + sum(map(len, waiting))
            yield from _file(generation, Unit(topic_id, partition, offset, end), waiting)
            offset, waiting = end, []
    if waiting:
        end = offset + sum(map(len, waiting))
        yield from _file(generation, Unit(topic_id, partition, offset, end), waiting)


def _file(generation: Path, unit: Unit, batches: list[pa.RecordBatch]) -> tuple[Piece, ...]:
    return write_unit(generation, unit, _decoded(unit.first, batches))


def _decoded(offset: int, batches: list[pa.RecordBatch]) -> Iterator[Decoded]:
    for batch in batches:
        count = len(batch)
        columns: dict[str, Any] = {
            "offset": np.arange(offset, offset + count),
            "timestamp_type": np.zeros(count, np.int32),
            "leader_epoch": np.full(count, NO_LEADER_EPOCH, np.int32),
        }
        arrays = [
            pa.array(columns[field.name])
            if field.name in columns
            else batch.column(field.name).cast(field.type)
            for field in SCHEMA
        ]
        offset += count
        yield Decoded(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), offset, [], False)
