"""Stores the records of one publisher, and collects the result of each record."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.agent.answers import AnswerQueue, RecordResult
from kgw.agent.ring import partition_for_key
from kgw.agent.values import is_record_value
from kgw.errors import ErrorCode, KafkaError, StorageError
from kgw.partitions.topics.topic import why_missing
from kgw.records.builder import BatchBuilder
from kgw.types import NO_OFFSET

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.append import Append
    from kgw.clock import Clock
    from kgw.partitions.topics.topic import Topic

_BATCH_BYTES: Final = 1 << 20
_BATCH_RECORDS: Final = 500
"""The most records in one batch; a batch of this size takes 2 ms to build."""
_RECORD_OVERHEAD_BYTES: Final = 32
"""The most bytes that a record takes in a batch, besides its key and value."""
_BATCH_OVERHEAD_BYTES: Final = 64


class _Waiting(NamedTuple):
    """A record that was received but is not stored yet."""

    sequence: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"") + _RECORD_OVERHEAD_BYTES


class _Lane:
    """The queue of one partition: records in order, of which at most one batch is being stored."""

    __slots__ = ("alone", "is_busy", "partition", "waiting")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.waiting: deque[_Waiting] = deque()
        self.is_busy = False
        self.alone = 0
        """The number of records to store one by one: their batch was refused, perhaps because of
        one record."""


class Publication:
    """Stores a stream's records in order; while a batch is being stored, new records form the next.

    If a record is refused, the others are not affected. If the storage fails, or the topic is
    deleted, all later records fail too: otherwise they would be stored before the failed ones,
    which the client sends again.
    """

    def __init__(
        self, topic: Topic, clock: Clock, report_bug: Callable[[BaseException], None]
    ) -> None:
        self.topic = topic
        self.answers = AnswerQueue()
        self.failure: KafkaError | StorageError | None = None
        """Why no more records are stored; None while they are."""
        self.in_flight_bytes = 0
        self.count = 0
        """The number of received records."""
        self.stored = 0
        self.refusals: dict[str, int] = {}
        """The number of refusals by error code."""
        self.when_changed: Callable[[], object] = lambda: None
        """Called when there are new results, when memory was freed, and after a failure."""
        self._clock = clock
        self._report_bug = report_bug
        self._lanes: dict[int, _Lane] = {}
        self._unsettled = 0

    @property
    def is_settled(self) -> bool:
        """Whether every received record has its result."""
        return not self._unsettled

    def submit(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; its result is put into `answers` later."""
        self.count += 1
        self._unsettled += 1
        record = _Waiting(self.count, key, value, self._clock.wall_ms())
        self.in_flight_bytes += record.size_bytes
        if self.failure is not None:
            self._refuse(record, self.failure)
            self.when_changed()
        elif value is not None and not is_record_value(value):
            self._refuse(
                record, KafkaError(ErrorCode.INVALID_RECORD, "the value is no RecordValue")
            )
            self.when_changed()
        else:
            index = partition_for_key(key or b"", self.topic.partition_count)
            lane = self._lanes.get(index)
            if lane is None:
                lane = self._lanes[index] = _Lane(index)
            lane.waiting.append(record)
            if not lane.is_busy:
                self._send_soon(lane)

    def abandon(self) -> None:
        """Stop storing records, as the client can no longer receive responses."""
        self._fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "the stream has ended"))

    def _send_soon(self, lane: _Lane) -> None:
        # Send in a later callback: an append must not be made in the callback of another, and
        # records that arrived together form one batch.
        lane.is_busy = True
        asyncio.get_running_loop().call_soon(self._send, lane)

    def _send(self, lane: _Lane) -> None:
        """Append the next batch of the queue."""
        lane.is_busy = False
        if not lane.waiting:
            return
        records = self._next_batch(lane)
        try:
            append = self._append(lane.partition, records)
        except (KafkaError, StorageError) as error:
            self._failed(lane, records, error)
        except Exception as error:  # noqa: BLE001 - the publisher waits for an answer
            self._report_bug(error)
            self._failed(lane, records, _unknown())
        else:
            lane.is_busy = True
            append.then(partial(self._appended, lane, records))
            return
        if lane.waiting:
            self._send_soon(lane)

    def _next_batch(self, lane: _Lane) -> list[_Waiting]:
        limit = 1 if lane.alone else _BATCH_RECORDS
        lane.alone = max(0, lane.alone - 1)
        room = min(_BATCH_BYTES, self.topic.config.batches.max_message_bytes)
        room -= _BATCH_OVERHEAD_BYTES
        records = [lane.waiting.popleft()]
        room -= records[0].size_bytes
        while lane.waiting and len(records) < limit:
            room -= lane.waiting[0].size_bytes
            if room < 0:
                break
            records.append(lane.waiting.popleft())
        return records

    def _append(self, index: int, records: Sequence[_Waiting]) -> Append:
        """Start to append a batch. Raises KafkaError, StorageError."""
        topic = self.topic
        partition = topic.partition(index)
        if topic.is_deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has been deleted")
        if partition is None:
            raise KafkaError(why_missing(topic, index), f"partition {index} is not on this node")
        builder = BatchBuilder()
        for record in records:
            builder.add(key=record.key, value=record.value, timestamp_ms=record.timestamp_ms)
        append = partition.admission.append(builder.build()).result
        # It is None only for a duplicate batch, which must have a producer id.
        assert append is not None  # noqa: S101 - for mypy
        return append

    def _appended(self, lane: _Lane, records: Sequence[_Waiting], append: Append) -> None:
        lane.is_busy = False
        error = append.error
        if error is None:
            base_offset = append.result.base_offset
            self.stored += len(records)
            for number, record in enumerate(records):
                self._settle(record, RecordResult(record.sequence, base_offset + number))
        elif isinstance(error, KafkaError | StorageError):
            self._failed(lane, records, error)
        else:
            self._report_bug(error)
            self._failed(lane, records, _unknown())
        self.when_changed()
        if lane.waiting:
            self._send_soon(lane)

    def _failed(
        self, lane: _Lane, records: Sequence[_Waiting], error: KafkaError | StorageError
    ) -> None:
        """Refuse records that were not stored; store those of a refused batch one by one."""
        if self.topic.is_deleted:
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic has been deleted")
        is_theirs = isinstance(error, KafkaError) and not error.code.retriable
        if is_theirs and len(records) > 1:
            lane.waiting.extendleft(reversed(records))
            lane.alone += len(records)
            return
        for record in records:
            self._refuse(record, error)
        if not is_theirs:
            self._fail(error)
        self.when_changed()

    def _fail(self, error: KafkaError | StorageError) -> None:
        self.failure = self.failure or error
        for lane in self._lanes.values():
            while lane.waiting:
                self._refuse(lane.waiting.popleft(), self.failure)
        self.when_changed()

    def _refuse(self, record: _Waiting, error: KafkaError | StorageError) -> None:
        code = error.code.name
        self.refusals[code] = self.refusals.get(code, 0) + 1
        self._settle(record, RecordResult(record.sequence, NO_OFFSET, describe(error)))

    def _settle(self, record: _Waiting, answer: RecordResult) -> None:
        self._unsettled -= 1
        self.in_flight_bytes -= record.size_bytes
        self.answers.settle(answer)


def describe(error: KafkaError | StorageError) -> str:
    """Return an error text for clients: Kafka's name of the error, and the reason."""
    name = error.code.name
    return name if error.message in {None, "", name} else f"{name}: {error.message}"


def _unknown() -> KafkaError:
    # The record may or may not have been stored.
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "nobody knows whether the record was stored")
