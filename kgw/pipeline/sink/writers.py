"""The classes that Spark calls to write: tasks write rows, and the driver commits or aborts."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kgw.client import Producer
from kgw.pipeline.arrow.columns import HEADERS_TYPE
from kgw.pipeline.arrow.encode import encode_batches
from kgw.pipeline.errors import OptionError, PipelineError
from kgw.pipeline.sink.exactly_once import ExactlyOnce, TaskAttempt
from kgw.pipeline.sink.partitioning import choose_partitions

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import DataType

    from kgw.client import Produced, TransactionalProducer
    from kgw.pipeline.options import SinkOptions, TransactionOptions
    from kgw.pipeline.wire import WireClient

_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


def check_columns(options: SinkOptions, schema: StructType) -> None:
    """Raise OptionError for rows that cannot be written.

    Columns that a record does not have are ignored, as by Spark's `kafka` sink. Such columns are
    e.g. those of the `kafka` source, like offset: the server assigns new offsets.
    """
    for field in schema.fields:
        types = _TYPES.get(field.name)
        if types is None:
            continue
        if not isinstance(field.dataType, types):
            wanted = " or ".join(one.typeName() for one in types)
            raise OptionError(
                f"column {field.name} is {field.dataType.simpleString()}; it must be {wanted}"
            )
        if isinstance(field.dataType, ArrayType):
            part = field.dataType.elementType
            names = part.fieldNames() if isinstance(part, StructType) else []
            if names != ["key", "value"]:
                raise OptionError("column headers must be array<struct<key:string,value:binary>>")
    names = schema.fieldNames()
    if "value" not in names:
        raise OptionError("the column value is missing")
    if options.topic is None and "topic" not in names:
        raise OptionError("neither the option topic nor a column topic says where records go")


@dataclass
class Written(WriterCommitMessage):
    """The result of one task."""

    records: int
    stored_bytes: int


@dataclass
class WrittenOnce(WriterCommitMessage):
    """The result of one task whose transaction is still open."""

    query_id: str
    producer: TransactionalProducer | None
    """None if the task had no rows, or if its batch was decided earlier."""
    topic: str | None
    """A topic that the task has written to."""


class KgwWriter(DataSourceArrowWriter):
    """The writer of a batch query."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise OptionError('records cannot be overwritten; use mode("append")')
        if options.transaction is not None:
            raise OptionError(
                "exactlyOnce is for streams, whose checkpoint says what has been written; a stream "
                "with trigger(availableNow=True) ends like a batch"
            )
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one task's rows; they are stored when this returns."""
        return write_rows(self._options, iterator)


class KgwStreamWriter(DataSourceStreamArrowWriter):
    """The writer of a streaming query."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(options, schema)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | WrittenOnce:
        """Write one task's rows; they are stored when this returns."""
        if self._options.transaction is None:
            return write_rows(self._options, iterator)
        return write_once(self._options, self._options.transaction, iterator, task_attempt())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the open transactions of a micro-batch's tasks."""
        written = [one for one in messages if isinstance(one, WrittenOnce)]
        if self._options.transaction is None or not written:
            return
        producers = [one.producer for one in written if one.producer is not None]
        topic = next((one.topic for one in written if one.topic is not None), None)
        with self._options.connect.client() as wire:
            ExactlyOnce(wire, self._options.transaction).commit(
                written[0].query_id, batchId, producers, topic
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort the transactions of a micro-batch in which other tasks have failed."""
        written = [one for one in messages if isinstance(one, WrittenOnce)]
        producers = [one.producer for one in written if one.producer is not None]
        if self._options.transaction is None or not producers:
            return
        with self._options.connect.client() as wire:
            ExactlyOnce(wire, self._options.transaction).abort(producers)


def task_attempt() -> TaskAttempt:
    """Return the identity of this task. Raises PipelineError outside of a streaming query."""
    context = TaskContext.get()
    query_id = batch_id = None
    if context is not None:
        query_id = context.getLocalProperty("sql.streaming.queryId")
        batch_id = context.getLocalProperty("streaming.sql.batchId")
    if context is None or query_id is None or batch_id is None:
        raise PipelineError("Spark does not say which micro-batch of which query this task is of")
    return TaskAttempt(query_id, int(batch_id), context.partitionId(), context.attemptNumber())


def write_once(
    options: SinkOptions,
    transaction: TransactionOptions,
    rows: Iterator[pa.RecordBatch],
    place: TaskAttempt,
) -> WrittenOnce:
    """Write rows into an open transaction; write nothing if their batch was decided before.

    Raises ClientError, PipelineError.
    """
    with options.connect.client() as wire:
        once = ExactlyOnce(wire, transaction)
        producer = once.begin(place)
        if producer is None:
            deque(rows, maxlen=0)
            return WrittenOnce(place.query_id, None, None)
        sender = _Sender(wire, options, producer)
        try:
            for batch in rows:
                sender.send(batch)
            records = sender.finish().records
        except BaseException:
            once.abort([producer])
            raise
        return WrittenOnce(
            place.query_id, producer if records else None, sender.topic if records else None
        )


def write_rows(options: SinkOptions, rows: Iterator[pa.RecordBatch]) -> Written:
    """Write rows, and return once they are stored. Raises ClientError, PipelineError."""
    with options.connect.client() as wire:
        sender = _Sender(wire, options)
        for batch in rows:
            sender.send(batch)
        return sender.finish()


class _Sender:
    """Writes the rows of one task."""

    def __init__(
        self,
        wire: WireClient,
        options: SinkOptions,
        transaction: TransactionalProducer | None = None,
    ) -> None:
        self._wire = wire
        self._options = options
        self._producer = Producer(
            wire.client,
            acks=options.acks,
            is_idempotent=options.is_idempotent,
            transaction=transaction,
        )
        self._is_transactional = transaction is not None
        self._is_open = False
        self._partition_counts: dict[str, int] = {}
        self._turn = time.time_ns()
        """Selects the partition for rows without a key: all those of one Spark batch go to the same
        partition."""
        self._answers: deque[Future[Produced]] = deque()
        self._written = Written(0, 0)

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows; wait only if too many batches are unacknowledged."""
        if not batch.num_rows:
            return
        if not self._is_open:
            self._wire.call(self._producer.open())
            self._is_open = True
        self._turn += 1
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        records = _records(columns)
        for topic, rows in self._by_topic(columns, batch.num_rows):
            count = self._partition_count(topic)
            taken = {
                name: columns[name] if rows is None else columns[name].take(rows)
                for name in ("value", "key", "partition")
                if name in columns
            }
            chosen = choose_partitions(
                len(taken["value"]),
                _binary(taken.get("key")),
                taken.get("partition"),
                partition_count=count,
                without_key=self._turn % count,
            )
            _check_partitions(topic, chosen, count)
            part = records if rows is None else records.take(rows)
            order = np.argsort(chosen, kind="stable")
            partitions, starts = np.unique(chosen[order], return_index=True)
            for partition, picked in zip(
                partitions.tolist(), np.split(order, starts[1:]), strict=True
            ):
                self._send_to(topic, partition, part.take(pa.array(picked)))

    @property
    def topic(self) -> str | None:
        """A topic that rows were written to; None if there were no rows."""
        return next(iter(self._partition_counts), None)

    def finish(self) -> Written:
        """Wait until all rows are stored, and return the counts."""
        self._wire.call(self._settle(0))
        return self._written

    def _send_to(self, topic: str, partition: int, records: pa.RecordBatch) -> None:
        producer_id, producer_epoch, base_sequence = self._producer.identity(topic, partition)
        encoded = encode_batches(
            records,
            compression=self._options.compression,
            max_batch_bytes=self._options.max_batch_bytes,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=self._is_transactional,
        )
        self._wire.call(
            self._send_encoded(topic, partition, [(one.data, one.record_count) for one in encoded])
        )

    async def _send_encoded(
        self, topic: str, partition: int, batches: list[tuple[Any, int]]
    ) -> None:
        for data, count in batches:
            answer = await self._producer.send_encoded(topic, partition, data, count)
            self._answers.append(answer)
            self._written.records += count
            self._written.stored_bytes += len(data)
        await self._settle(len(self._answers))

    async def _settle(self, left: int) -> None:
        """Handle finished requests, and wait for others until at most `left` are pending."""
        while self._answers and (len(self._answers) > left or self._answers[0].done()):
            await self._answers.popleft()

    def _by_topic(
        self, columns: dict[str, pa.Array], row_count: int
    ) -> Iterator[tuple[str, pa.Array | None]]:
        """Yield each topic with the indexes of its rows; None means all rows."""
        if self._options.topic is not None:
            yield self._options.topic, None
            return
        names = columns["topic"].dictionary_encode()
        if names.null_count:
            raise PipelineError("a row has no topic, and there is no option topic")
        if len(names.dictionary) == 1:
            yield names.dictionary[0].as_py(), None
            return
        indices = names.indices.to_numpy()
        for index, name in enumerate(names.dictionary.to_pylist()):
            yield name, pa.array(np.flatnonzero(indices == index))

    def _partition_count(self, topic: str) -> int:
        count = self._partition_counts.get(topic)
        if count is None:
            # Servers with auto.create.topics.enable create the topic, as for any producer.
            described = self._wire.call(self._wire.client.topic(topic, auto_create=True))
            count = self._partition_counts[topic] = len(described.partitions)
        return count


def _records(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    """Return the rows in the encoder's columns."""
    count = len(columns["value"])
    if "timestamp" in columns:
        now_us = pa.scalar(time.time_ns() // 1000, pa.int64())
        times_us = columns["timestamp"].cast(pa.int64()).fill_null(now_us)
        times_ms = pa.array(times_us.to_numpy() // 1000)
    else:
        times_ms = pa.repeat(pa.scalar(time.time_ns() // 1_000_000, pa.int64()), count)
    taken = {"value": _binary(columns["value"]), "timestamp_ms": times_ms}
    if "key" in columns:
        taken["key"] = _binary(columns["key"])
    if "headers" in columns:
        taken["headers"] = columns["headers"].cast(HEADERS_TYPE)
    return pa.RecordBatch.from_pydict(taken)


def _binary(column: pa.Array | None) -> pa.Array | None:
    return None if column is None else column.cast(pa.binary())


def _check_partitions(topic: str, chosen: Any, count: int) -> None:
    wrong = chosen[(chosen < 0) | (chosen >= count)]
    if len(wrong):
        raise PipelineError(
            f"a row goes to partition {wrong[0]} of topic {topic}, which has {count}: "
            f"0 to {count - 1}"
        )
