"""Producer: sends batches in order to each partition, several at a time, each stored once."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kgw.client.errors import ClientError, ServerRefusedError, UnsupportedApiError
from kgw.client.transactional import TransactionalClient
from kgw.client.values import Produced
from kgw.errors import ErrorCode
from kgw.records.batch import SEQUENCE_MODULUS, Compression
from kgw.records.builder import BatchBuilder

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from kgw.client.client import AsyncClient
    from kgw.client.transactional import TransactionalProducer
    from kgw.types import Buffer

# A broker remembers this many batches of a producer, to recognise retries (KIP-98).
_MAX_IN_FLIGHT = 5
_NO_PRODUCER = (-1, -1)


class NewRecord(NamedTuple):
    """A record to be stored. In a compacted topic, a null value deletes the key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size_bytes(self) -> int:
        """Roughly the size of the record in a batch, before compression."""
        headers = sum(len(key) + len(value or b"") + 4 for key, value in self.headers)
        return 20 + len(self.key or b"") + len(self.value or b"") + headers


class Identity(NamedTuple):
    """The producer fields for the next batch of a partition; each is -1 without idempotence."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


class _Batch(NamedTuple):
    """A batch that is not stored yet, and the future for its result."""

    records: Buffer
    future: asyncio.Future[Produced]


class _Lane:
    """The producer's state for one partition: queued batches, and the next sequence number."""

    __slots__ = (
        "failure",
        "is_added",
        "next_sequence",
        "partition",
        "room",
        "task",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.waiting: deque[_Batch] = deque()
        self.next_sequence = 0
        self.task: asyncio.Task[None] | None = None
        self.failure: BaseException | None = None
        self.is_added = False
        self.room = asyncio.Semaphore(2 * _MAX_IN_FLIGHT)


class Producer:
    """Sends batches through a client.

    With acks=-1 and a server that assigns producer ids, a retry never stores a batch twice.
    Otherwise one batch is sent at a time, and a retry after a lost response may store it twice.
    """

    def __init__(
        self,
        client: AsyncClient,
        *,
        acks: int = -1,
        compression: Compression = Compression.NONE,
        is_idempotent: bool = True,
        transaction: TransactionalProducer | None = None,
    ) -> None:
        """Store the options; `open` gets a producer id.

        With `transaction`, all batches are part of that transaction and have its producer id.
        Raises ValueError if a transaction is combined with options that may store a batch twice.
        """
        if transaction is not None and not (is_idempotent and acks == -1):
            raise ValueError("a transaction needs acks=-1 and an idempotent producer")
        self._transaction = transaction
        self._client = client
        self._acks = acks
        self._compression = compression
        self._is_idempotent = is_idempotent and acks == -1
        self._producer_id, self._producer_epoch = _NO_PRODUCER
        self._lanes: dict[tuple[str, int], _Lane] = {}

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        if error is None:
            await self.flush()
        else:
            await self.abandon()

    async def open(self) -> None:
        """Get a producer id, if the server assigns producer ids."""
        if self._transaction is not None:
            _, self._producer_id, self._producer_epoch = self._transaction
        elif self._is_idempotent:
            try:
                producer = await self._client.init_producer_id()
            except UnsupportedApiError:
                self._is_idempotent = False
            else:
                self._producer_id, self._producer_epoch = producer

    async def send(
        self, topic: str, partition: int, records: Iterable[NewRecord]
    ) -> asyncio.Future[Produced]:
        """Enqueue one batch of records; wait only if too many batches are queued.

        The future gets its result when the batch is stored, or a ClientError.
        """
        lane = self._lane(topic, partition)
        await lane.room.acquire()
        producer_id, producer_epoch, base_sequence = self.identity(topic, partition)
        builder = BatchBuilder(
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=self._transaction is not None,
        )
        for record in records:
            builder.add(
                key=record.key,
                value=record.value,
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
        return self._enqueue(lane, builder.build(), len(builder))

    def identity(self, topic: str, partition: int) -> Identity:
        """Return the producer fields that the next batch of a partition must have."""
        sequence = self._lane(topic, partition).next_sequence if self._is_idempotent else -1
        return Identity(self._producer_id, self._producer_epoch, sequence)

    async def send_encoded(
        self, topic: str, partition: int, batch: Buffer, record_count: int
    ) -> asyncio.Future[Produced]:
        """Enqueue an encoded batch; with a transaction, it must be a transactional batch.

        The batch must have the `identity` that was returned after the previous batch of its
        partition was enqueued, so only one task may encode and send the batches of a partition.
        """
        lane = self._lane(topic, partition)
        await lane.room.acquire()
        return self._enqueue(lane, batch, record_count)

    async def flush(self) -> None:
        """Wait until every batch is stored or has failed."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks:
            await asyncio.gather(*tasks)

    async def abandon(self) -> None:
        """Stop sending batches. Batches that were already sent may still be stored."""
        for lane in self._lanes.values():
            if lane.task is not None:
                lane.task.cancel()
                await asyncio.wait([lane.task])

    def _lane(self, topic: str, partition: int) -> _Lane:
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane(topic, partition)
        return lane

    def _enqueue(self, lane: _Lane, batch: Buffer, record_count: int) -> asyncio.Future[Produced]:
        """Enqueue a batch; the caller has acquired `room` for it."""
        future: asyncio.Future[Produced] = asyncio.get_running_loop().create_future()
        if lane.failure is not None:
            lane.room.release()
            _set_failure(future, lane.failure)
            return future
        lane.next_sequence = (lane.next_sequence + record_count) % SEQUENCE_MODULUS
        lane.waiting.append(_Batch(batch, future))
        if lane.task is None or lane.task.done():
            lane.task = asyncio.create_task(self._drain(lane))
        return future

    async def _add(self, lane: _Lane, transaction: TransactionalProducer) -> None:
        """Add the partition to the transaction, unless it was added before."""
        if not lane.is_added:
            await TransactionalClient(self._client).add_partitions(
                transaction, lane.topic, [lane.partition]
            )
            lane.is_added = True

    async def _drain(self, lane: _Lane) -> None:
        """Send the queued batches, some at a time; a permanent failure makes all of them fail."""
        window = _MAX_IN_FLIGHT if self._is_idempotent or self._acks == 0 else 1
        while lane.waiting:
            batches = [lane.waiting[index] for index in range(min(window, len(lane.waiting)))]
            try:
                if self._transaction is not None:
                    await self._add(lane, self._transaction)
                await self._client.retrying(partial(self._send_window, lane, batches))
            except ClientError as error:
                self._fail(lane, error)
            for batch in batches:
                if lane.failure is None and lane.waiting and lane.waiting[0] is batch:
                    lane.waiting.popleft()
                    lane.room.release()

    async def _send_window(self, lane: _Lane, batches: list[_Batch]) -> None:
        """Send the unstored batches, in order.

        Raises the first failure after all responses have arrived.
        """
        unstored = [batch for batch in batches if not batch.future.done()]
        answers: list[Coroutine[Any, Any, Produced]] = []
        first_failure: BaseException | None = None
        unsent_failure: BaseException | None = None
        try:
            for batch in unstored:
                answer = await self._client.start_produce(
                    lane.topic,
                    lane.partition,
                    batch.records,
                    acks=self._acks,
                    transactional_id=self._transaction and self._transaction.transactional_id,
                )
                answers.append(answer)
        except ClientError as error:
            unsent_failure = error
        except BaseException:
            # Close the coroutines: otherwise Python would warn that they were never awaited.
            for answer in answers:
                answer.close()
            raise
        results = await asyncio.gather(*answers, return_exceptions=True)
        for batch, result in zip(unstored, results, strict=False):
            code = result.code if isinstance(result, ServerRefusedError) else None
            if isinstance(result, Produced):
                batch.future.set_result(result)
            elif code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                # An earlier attempt has stored the batch, and the server has forgotten its offset.
                batch.future.set_result(Produced(-1, -1))
            elif first_failure is None:
                first_failure = result
            elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                pass  # The batch before it failed, so both are sent again in order.
            elif not (isinstance(result, ClientError) and result.retriable):
                raise result
        failure = first_failure or unsent_failure
        if failure is not None:
            raise failure

    def _fail(self, lane: _Lane, error: ClientError) -> None:
        """Let all batches of the partition fail: after a failed one they would be out of order."""
        lane.failure = error
        while lane.waiting:
            batch = lane.waiting.popleft()
            lane.room.release()
            if not batch.future.done():
                _set_failure(batch.future, error)


def _set_failure(future: asyncio.Future[Produced], failure: BaseException) -> None:
    future.set_exception(failure)
    # Mark the error as retrieved: a caller may await only the first failure of many.
    future.exception()
