"""Admission: which batches and markers enter a partition, and in which order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from kgw.backend.append import Append, AppendResult
from kgw.errors import ErrorCode, KafkaError
from kgw.partitions.append.appending import (
    Appended,
    CheckQueue,
    CheckThread,
    is_prepared_at_once,
    prepare_records,
)
from kgw.partitions.append.validation import (
    read_produced_batch,
    record_rules,
    validate_batch,
)
from kgw.partitions.view import ReadTopic
from kgw.records.batch import HEADER_BYTES, NO_PRODUCER_ID, TRANSACTIONAL_FLAG
from kgw.types import NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.base import PartitionLog
    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.partitions.append.producer_state import ProducerState
    from kgw.partitions.append.transactions import TransactionMarker
    from kgw.partitions.topic_config import TopicConfig
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

# Refusals of the coordinator that are temporary. After other codes the client aborts the
# transaction.
_SENT_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class OwnTopic(ReadTopic, Protocol):
    """The properties of a topic that its partitions use."""

    config: TopicConfig


class Admission:
    """Admits valid batches and markers to one partition, in the order of their arrival.

    A batch may have to wait for the check of its records or for the transaction's coordinator, and
    while the topic is being loaded only the loader's batches are admitted.
    """

    __slots__ = (
        "_clock",
        "_enter",
        "_enter_marker",
        "_log",
        "_producers",
        "_syncing",
        "_thread",
        "_topic",
        "queue",
    )

    def __init__(
        self,
        topic: OwnTopic,
        log: PartitionLog,
        producers: ProducerState,
        clock: Clock,
        thread: CheckThread,
        enter: Callable[[RecordBatch, int, int], Appended],
        enter_marker: Callable[[TransactionMarker], Appended],
    ) -> None:
        """`enter` gets a batch, the time, and its log append time or NO_TIMESTAMP_MS.

        It submits the batch to the log or raises KafkaError. `enter_marker` does the same for
        markers.
        """
        self._topic = topic
        self._log = log
        self._producers = producers
        self._clock = clock
        self._thread = thread
        self._enter = enter
        self._enter_marker = enter_marker
        self.queue = CheckQueue(thread)
        self._syncing: set[asyncio.Task[None]] | None = None

    def append(
        self,
        records: Buffer | None,
        *,
        zstd_allowed: bool = True,
        verify: Callable[[RecordBatch], Completion[ErrorCode]] | None = None,
        transactional_id: str | None = None,
    ) -> Appended:
        """Take the batch of a Produce request, and submit it before returning.

        The partition owns the batch's bytes from now on and changes them in place. A retry of a
        stored batch gets the stored offset; a retry of a batch in flight gets the same result.
        Raises KafkaError if the batch is refused, which changes nothing.

        `verify` asks the transaction's coordinator whether a transactional batch belongs to an open
        transaction that includes this partition. It is called unless the producer's transaction is
        already open here. The batch enters after the answer NONE; any other code refuses it.
        `verify` must not wait for an append to this partition, as that append waits for `verify`.
        `transactional_id` comes from the request and decides who may write while the topic is being
        loaded.
        """
        config = self._topic.config
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        rules = config.batches
        validate_batch(batch, rules, now_ms, zstd_allowed=zstd_allowed)
        verified = None
        # No properties here, as each costs a call: this runs ten thousand times a second.
        if batch.attributes & TRANSACTIONAL_FLAG:
            # Before `verify`, which would add the partition to the transaction.
            self._check_loader_at_once(batch, transactional_id, now_ms)
            verified = self._verify(batch, verify, now_ms)
        append_time_ms = now_ms if rules.uses_log_append_time else NO_TIMESTAMP_MS
        if config.checks_batches or self.queue.first is not None or verified is not None:
            return self._append_checked(batch, now_ms, append_time_ms, verified, transactional_id)
        return self._enter(batch, now_ms, append_time_ms)

    def turn_away(self, records: Buffer | None) -> None:
        """Register a refused batch that its producer will send again.

        Batches that the producer sent after it must not overtake it. Nothing of the batch is kept.
        Raises KafkaError if the batch would be refused at any other time, too.
        """
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        validate_batch(batch, self._topic.config.batches, now_ms)
        if batch.producer_id == NO_PRODUCER_ID:
            return
        # The records need not stay in memory.
        batch.buffer = memoryview(bytes(batch.buffer[:HEADER_BYTES]))
        if self.queue.first is not None:
            # Batches that arrived earlier are still queued, and are registered first.
            self.queue.submit(partial(self._expect, batch, now_ms))
        else:
            self._expect(batch, now_ms)

    def _expect(self, batch: RecordBatch, now_ms: int) -> Appended:
        """If the producer may begin at any sequence, require that this batch is its first."""
        known = self._producers.get(batch.producer_id)
        if known is None or batch.producer_epoch >= known.producer_epoch:
            self._producers.expect(batch, now_ms)
        return Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)

    def append_marker(self, marker: TransactionMarker) -> Append:
        """End a producer's transaction. The result is done when its marker is durable and visible.

        The marker enters after everything that was submitted to the partition before. It is written
        even if the producer has no open transaction, as it fences batches of older epochs
        (KIP-890). Raises KafkaError, or the result is a KafkaError: INVALID_PRODUCER_EPOCH for an
        epoch below the known one, TRANSACTION_COORDINATOR_FENCED for a coordinator epoch below the
        known one, KAFKA_STORAGE_ERROR while it is uncertain which batches the log holds. If the
        result is StorageError, the marker may be stored or not, and the caller must repeat it.
        """
        if self.queue.first is not None:
            result: Append = self.queue.submit(partial(self._enter_marker, marker))
        else:
            result = cast("Append", self._enter_marker(marker).result)
        if not self._topic.config.log_settings.is_relaxed:
            return result
        # The coordinator then forgets the transaction, so no power loss may undo the marker.
        durable = Append()
        result.then(partial(self._sync_marker, durable))
        return durable

    def _check_loader(self, batch: RecordBatch, transactional_id: str | None, now_ms: int) -> None:
        """Raise KafkaError if the topic is being loaded and the batch is not from the loader.

        After a topic was loaded with its original offsets, also refuse a batch that is not
        transactional although its request has a transactional id. Only a loader sends such batches,
        so this one is a late retry. With base offset 0 it looks like a new batch, and would be
        stored a second time.
        """
        config = self._topic.config
        loading = config.loading
        if loading is None:
            if config.was_loaded and transactional_id is not None and not batch.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_RECORD,
                    f"a batch of {transactional_id}, which is not transactional, comes after the "
                    "topic was loaded",
                )
            return
        try:
            loading.check_loader(transactional_id)
        except KafkaError:
            # Loading may end before the producer's next batch arrives: that batch must not enter
            # first.
            if batch.producer_id != NO_PRODUCER_ID:
                self._producers.expect(batch, now_ms)
            raise

    def _check_loader_at_once(
        self, batch: RecordBatch, transactional_id: str | None, now_ms: int
    ) -> None:
        """Call `_check_loader` now, or when the batch enters if other batches are queued.

        The queued batches may be refused, too, and must come first when they are sent again.
        """
        if self.queue.first is None:
            self._check_loader(batch, transactional_id, now_ms)

    def _verify(
        self,
        batch: RecordBatch,
        verify: Callable[[RecordBatch], Completion[ErrorCode]] | None,
        now_ms: int,
    ) -> Completion[ErrorCode] | None:
        """Return the verification that a batch must wait for, or None. Raises KafkaError."""
        if verify is None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, "a transactional batch came without a transaction"
            )
        # A marker in the queue may be about to end the transaction.
        is_busy = self.queue.first is not None
        if not is_busy and self._producers.is_in_transaction(
            batch.producer_id, batch.producer_epoch
        ):
            return None
        verified = verify(batch)
        if is_busy or not verified.is_done:
            return verified
        self._refuse_unverified(batch, verified, now_ms)
        return None

    def _refuse_unverified(
        self, batch: RecordBatch, verified: Completion[ErrorCode], now_ms: int
    ) -> None:
        """Raise KafkaError if the coordinator has refused a batch."""
        if verified.error is None and verified.result is ErrorCode.NONE:
            return
        if verified.error is not None:
            self._producers.expect(batch, now_ms)
            raise verified.error
        if verified.result in _SENT_AGAIN:
            self._producers.expect(batch, now_ms)
        raise KafkaError(
            verified.result,
            f"producer {batch.producer_id}, epoch {batch.producer_epoch}, has no transaction for "
            "this partition",
        )

    def _append_checked(
        self,
        batch: RecordBatch,
        now_ms: int,
        append_time_ms: int,
        verified: Completion[ErrorCode] | None,
        transactional_id: str | None,
    ) -> Appended:
        """Submit a batch when its checks have passed and all earlier batches have entered."""
        config = self._topic.config
        self._check_loader_at_once(batch, transactional_id, now_ms)
        limits = config.decompression_limits
        rules = None
        if config.checks_batches and batch.record_count:
            rules = record_rules(config.batches, now_ms, batch.attributes)
        enter = partial(
            self._enter_verified, batch, now_ms, append_time_ms, verified, transactional_id
        )
        check = None
        if rules is not None:
            if rules.recompression is not None:
                enter = partial(self._enter_recompressed, enter, batch, batch.size_bytes)
            check = partial(prepare_records, batch, rules, limits)
            if is_prepared_at_once(batch, rules):
                check()
                check = None
        if check is None and verified is None and self.queue.first is None:
            return enter()
        return self._enter_in_order(enter, check=check, verified=verified)

    def _enter_recompressed(
        self, enter: Callable[[], Appended], batch: RecordBatch, came_bytes: int
    ) -> Appended:
        """Submit a batch that was compressed again, and count its sizes. Raises KafkaError."""
        appended = enter()
        recompressed = self._thread.recompressed
        recompressed.batches += 1
        recompressed.bytes_before += came_bytes
        recompressed.bytes_after += batch.size_bytes
        return appended

    def append_message_set(self, records: Buffer | None) -> Appended:
        """Append the message set of a Produce request of version 0 to 2, as `append` does a batch.

        A message set of format 0 or 1 is converted to one batch. As in Kafka the bytes may also be
        a batch, and an empty set stores nothing. Raises KafkaError as `append` does.
        """
        if not records:
            return Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)
        # Imported here to keep start-up fast.
        from kgw.partitions.append import up_conversion
        from kgw.records.conversion import to_batch

        if up_conversion.is_batch(records):
            return self.append(records, zstd_allowed=False)
        config = self._topic.config
        limits = config.decompression_limits
        if up_conversion.is_converted_at_once(records):
            return self.append(to_batch(records, limits))
        rules = config.batches
        up_conversion.check_size(records, rules)
        now_ms = self._clock.wall_ms()
        append_time_ms = now_ms if rules.uses_log_append_time else NO_TIMESTAMP_MS
        converted: list[up_conversion.ConvertedSet] = []

        def convert() -> None:
            converted.append(up_conversion.to_valid_batch(records, rules, limits, now_ms))

        def enter() -> Appended:
            batch, recompressed_bytes = converted.pop()
            submit = partial(self._enter_verified, batch, now_ms, append_time_ms, None, None)
            if recompressed_bytes is None:
                return submit()
            return self._enter_recompressed(submit, batch, recompressed_bytes)

        return self._enter_in_order(enter, check=convert)

    def _enter_in_order(
        self,
        enter: Callable[[], Appended],
        *,
        check: Callable[[], None] | None = None,
        verified: Completion[ErrorCode] | None = None,
    ) -> Appended:
        """Submit a batch or marker after the queued ones; see `CheckQueue.submit`."""
        result = self.queue.submit(enter, check=check, verified=verified)
        return Appended(result, NO_OFFSET, NO_TIMESTAMP_MS, is_undecided=True)

    def _enter_verified(
        self,
        batch: RecordBatch,
        now_ms: int,
        append_time_ms: int,
        verified: Completion[ErrorCode] | None,
        transactional_id: str | None,
    ) -> Appended:
        """Submit a batch that may have waited in the queue. Raises KafkaError."""
        if verified is not None:
            self._refuse_unverified(batch, verified, now_ms)
        # Check again: loading may have begun or ended since the batch arrived.
        self._check_loader(batch, transactional_id, now_ms)
        config = self._topic.config
        if config.loading is not None:
            config.loading.check_place(
                batch, self._log.end_offset, is_relaxed=config.log_settings.is_relaxed
            )
        return self._enter(batch, now_ms, append_time_ms)

    def _sync_marker(self, durable: Append, marker: Append) -> None:
        """Finish `durable` once the marker's append to a relaxed log is durable."""
        if marker.error is not None:
            durable.error = marker.error
            durable.finish()
            return
        if self._syncing is None:
            self._syncing = set()
        task = asyncio.ensure_future(self._wait_until_durable(durable, marker.result))
        self._syncing.add(task)
        task.add_done_callback(self._syncing.discard)

    async def _wait_until_durable(self, durable: Append, result: AppendResult) -> None:
        try:
            await self._log.make_durable(result.last_offset + 1)
        except Exception as error:  # noqa: BLE001 - passed to the waiters of `durable`
            durable.error = error
        else:
            durable.result = result
        durable.finish()

    async def enter_queued(self) -> None:
        """Return when the queued batches and markers have been submitted to the log, or refused."""
        if self.queue.first is not None:
            nothing = Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)
            await self.queue.submit(lambda: nothing)
