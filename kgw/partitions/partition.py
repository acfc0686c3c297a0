"""One partition: it admits batches in order, tracks producers and wakes waiting readers."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Protocol, cast

from kgw.backend.append import Append, AppendResult
from kgw.backend.base import Segmented, Snapshot
from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.partitions.append.appending import (
    Appended,
    CheckQueue,
    is_prepared_at_once,
    prepare_records,
)
from kgw.partitions.append.producer_entry import Duplicate, InFlight
from kgw.partitions.append.producer_snapshot import (
    PACKED_PER_TURN,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    has_few_producers,
    pack_producers,
)
from kgw.partitions.append.producer_state import ProducerState
from kgw.partitions.append.validation import (
    read_produced_batch,
    record_rules,
    validate_batch,
)
from kgw.partitions.view import Isolation, PartitionView, Presence, ReadTopic
from kgw.records.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
)
from kgw.turns import finish, take_turns
from kgw.types import NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kgw.backend.base import PartitionLog
    from kgw.clock import Clock
    from kgw.completion import Completion
    from kgw.partitions.append.appending import AppendCounts, CheckThread
    from kgw.partitions.append.producer_entry import BatchEntry, MarkerEntry
    from kgw.partitions.append.transactions import TransactionMarker
    from kgw.partitions.topic_config import TopicConfig
    from kgw.partitions.view import PartitionListener
    from kgw.records.batch import RecordBatch
    from kgw.turns import Turns
    from kgw.types import Buffer

_log = logging.getLogger(__name__)

# If a directory has failed for good, every append fails: do not read its log again after each.
_REBUILD_INTERVAL_S = 1.0

# A coordinator's refusals that are temporary. After any other code the client aborts the
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

# Snapshots that every checkpoint writes; each takes half a millisecond of processor time.
_ALWAYS_SAVED = 64


class OwnTopic(ReadTopic, Protocol):
    """The part of a topic that its partitions use."""

    config: TopicConfig


class ProducerDescription(NamedTuple):
    """A partition's state of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """NO_SEQUENCE if no batch of the epoch is known."""
    written_ms: int
    """Wall time at which the server last appended or replayed a batch or marker of the producer."""
    coordinator_epoch: int
    """The coordinator epoch in the last marker; -1 if there was none."""
    transaction_first_offset: int
    """NO_OFFSET if no transaction is open."""


class Partition:
    """The write and read path of one partition of one topic.

    Producer state runs ahead of the disk: it advances when a batch is submitted, so that the next
    one can be. When an append fails, producers are fenced: idempotent batches are refused with an
    error that clients retry, until all of the producers' appends in flight are answered and the
    producer state matches the log again.
    """

    __slots__ = (
        "_appended",
        "_check_queue",
        "_check_thread",
        "_clock",
        "_committed_view",
        "_in_flight_count",
        "_in_flight_of_producers",
        "_is_fenced",
        "_presence",
        "_rebuild",
        "_rebuild_not_before_s",
        "_snapshot_log_bytes",
        "_snapshot_offset",
        "_stable_bytes",
        "_stored_end",
        "_submitted_bytes",
        "_syncing",
        "_view",
        "_visible_bytes",
        "committed_listeners",
        "index",
        "listeners",
        "log",
        "producers",
        "skip_count",
        "topic",
    )

    def __init__(
        self,
        topic: OwnTopic,
        index: int,
        log: PartitionLog,
        clock: Clock,
        check_thread: CheckThread,
        appended: AppendCounts,
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.listeners: dict[PartitionListener, None] = {}
        """Listeners of readers that see uncommitted records. Only the views change this."""
        self.committed_listeners: dict[PartitionListener, None] = {}
        """Listeners of readers that stop at the last stable offset."""
        self.skip_count = 0
        """Appends that did not begin at the end offset of the append answered before them. Not
        counted in a foreign topic, to which other processes append as well."""
        self.producers = ProducerState()
        self._presence = Presence()
        self._view = PartitionView(
            topic,
            index,
            log,
            self.producers,
            self.listeners,
            Isolation.READ_UNCOMMITTED,
            self._presence,
        )
        self._committed_view = PartitionView(
            topic,
            index,
            log,
            self.producers,
            self.committed_listeners,
            Isolation.READ_COMMITTED,
            self._presence,
        )
        self._clock = clock
        self._check_thread = check_thread
        self._appended = appended
        self._check_queue: CheckQueue | None = None
        self._in_flight_count = 0
        self._in_flight_of_producers = 0
        self._is_fenced = False
        self._rebuild: asyncio.Task[None] | None = None
        self._rebuild_not_before_s = 0.0
        # The end offset of the answered appends, and the offset from which the next start must
        # replay.
        self._stored_end = log.high_watermark
        self._snapshot_offset = log.log_start_offset
        self._snapshot_log_bytes = 0
        # Bytes since this process opened the partition: readable by all, readable by consumers of
        # committed records, and readable once all appends in flight succeed.
        self._visible_bytes = 0
        self._stable_bytes = 0
        self._submitted_bytes = 0
        self._syncing: set[asyncio.Task[None]] | None = None
        log.on_advance = self._advanced

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index} {self.log!r}>"

    # --- derived state ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Rebuild the producers' state from the newest snapshot and the log after it.

        Raises StorageError.
        """
        log = self.log
        is_empty = log.end_offset == log.log_start_offset == 0
        if is_empty and not self.producers:
            return
        # Readers use the old state until the new one is complete.
        producers = ProducerState()
        if not is_empty:
            await self._replay(producers)
        self.producers.become(producers)
        self.forget_aborted()
        self._tell_stable()

    async def _replay(self, producers: ProducerState) -> None:
        """Fill an empty state from the snapshot and the log. Raises StorageError."""
        log = self.log
        now_ms = self._clock.wall_ms()
        replay_from = log.log_start_offset
        snapshot = await log.load_snapshot()
        # A snapshot from before the log start lacks the markers and batches that were deleted
        # since. Producers that wrote those batches would seem to have skipped sequences.
        if snapshot is not None and snapshot.offset >= replay_from:
            try:
                producers.load(*decode_snapshot(snapshot.data))
                # The clock behind the snapshot's times is unknown: as for replayed producers, the
                # expiration time begins now.
                await take_turns(producers.count_anew(now_ms))
            except SnapshotError as error:
                _log.warning("%r: a snapshot is left aside, the log is read: %s", self, error)
            else:
                replay_from = snapshot.offset
                self._snapshot_offset = snapshot.offset
        replayed_bytes = 0
        if replay_from < log.end_offset:
            async for batch in log.replay(replay_from):
                producers.replay(batch, now_ms)
                replayed_bytes += len(batch.buffer)
        self._snapshot_log_bytes = log.size_bytes - replayed_bytes
        self._stored_end = log.high_watermark

    @property
    def is_dirty(self) -> bool:
        """Whether appends were answered since the last snapshot, and no fence forbids a new one."""
        return self._snapshot_offset < self._stored_end and not self._is_fenced

    @property
    def is_unused(self) -> bool:
        """Whether nothing was ever appended and no append is in progress."""
        queue = self._check_queue
        is_busy = self._in_flight_count or (queue is not None and queue.is_busy)
        return not is_busy and not self.log.end_offset

    @property
    def grown_bytes(self) -> int:
        """Bytes that became readable since this process opened the partition.

        The appends of other processes are included. A batch counts with the size that was appended.
        """
        return self._visible_bytes

    @property
    def unsaved_bytes(self) -> int:
        """How much the log has grown, or shrunk, since the last snapshot."""
        return abs(self.log.size_bytes - self._snapshot_log_bytes)

    async def save_snapshot(
        self, queue: asyncio.Lock | None = None, *, packed_per_turn: int = PACKED_PER_TURN
    ) -> None:
        """Store a snapshot of the producers to shorten the next replay. Raises StorageError.

        The snapshot covers the appends that have been answered and none that is in flight. Packing
        it yields to the event loop; partitions with the same `queue` pack one after the other.
        """
        if not self.is_dirty or self.topic.is_deleted:
            return
        work = self._make_snapshot(packed_per_turn)
        # A few producers are packed without the queue: waiting for it would take longer than the
        # work.
        are_few = has_few_producers(self.producers)
        made = await (take_turns(work) if are_few else finish(work, queue))
        if made is None or self.topic.is_deleted:
            return
        snapshot, log_bytes = made
        await self.log.save_snapshot(snapshot)
        self._snapshot_log_bytes = log_bytes
        self._snapshot_offset = max(self._snapshot_offset, snapshot.offset)

    def _make_snapshot(self, per_turn: int) -> Turns[tuple[Snapshot, int] | None]:
        """Return a snapshot and the log's size at that time; None while the state may be wrong."""
        if not self.is_dirty:
            return None
        packed = yield from pack_producers(self.producers, per_turn)
        if packed is None or self._is_fenced:
            return None
        # Nothing has yielded to the event loop since the last producer was packed.
        offset, log_bytes = self._stored_end, self.log.size_bytes
        aborted = self.producers.aborted
        data = yield from encode_snapshot(packed, b"" if aborted is None else aborted.pack())
        return Snapshot(offset, data), log_bytes

    def expire_producers(self, expiration_ms: int, *, has_jumped: bool = False) -> Turns[int]:
        """Forget producers that have written nothing for `expiration_ms`; return how many.

        If the wall clock has jumped, forget none: the expiration time of each begins again.
        """
        now_ms = self._clock.wall_ms()
        if has_jumped:
            return self.producers.count_anew(now_ms)
        return self.producers.expire(now_ms, expiration_ms)

    def describe_producers(self) -> Iterable[ProducerDescription]:
        """Yield the state of each producer (KIP-664); the caller may pause between two of them."""
        producers = self.producers
        for producer_id in producers.ids():
            entry = producers.get(producer_id)
            if entry is not None:
                yield ProducerDescription(
                    producer_id,
                    entry.producer_epoch,
                    entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
                    entry.written_ms,
                    entry.coordinator_epoch,
                    producers.stored_transaction(producer_id),
                )

    def forget_aborted(self) -> None:
        """Forget aborted transactions whose records were deleted or compacted."""
        log = self.log
        gone_below = log.compacted_end if isinstance(log, Segmented) else log.log_start_offset
        self.producers.forget_aborted_below(gone_below)

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer | None,
        *,
        zstd_allowed: bool = True,
        verify: Callable[[RecordBatch], Completion[ErrorCode]] | None = None,
        transactional_id: str | None = None,
    ) -> Appended:
        """Take the one batch of a Produce request, and submit it before returning.

        The partition owns the batch's bytes from now on and changes them in place. A retry of a
        stored batch gets the stored offset; a retry of a batch in flight gets the same result.
        Raises KafkaError if the batch may not enter; the partition is unchanged then.

        `verify` asks the transaction's coordinator whether a transactional batch belongs to an open
        transaction that includes this partition. It is called unless the producer's transaction is
        already open here. The batch enters after the answer NONE; any other code refuses it.
        `verify` must not wait for an append to this partition, as that append waits for `verify`.
        `transactional_id` comes from the request and decides who may write while the topic is being
        loaded.
        """
        config = self.topic.config
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        rules = config.batches
        validate_batch(batch, rules, now_ms, zstd_allowed=zstd_allowed)
        verified = None
        # No properties here, as each costs a call: this runs ten thousand times a second.
        if batch.attributes & TRANSACTIONAL_FLAG:
            # Before `verify`, with which the coordinator would add the partition to the
            # transaction.
            self._check_loader_at_once(batch, transactional_id, now_ms)
            verified = self._verify(batch, verify, now_ms)
        append_time_ms = now_ms if rules.uses_log_append_time else NO_TIMESTAMP_MS
        if config.checks_batches or self._check_queue is not None or verified is not None:
            return self._append_checked(batch, now_ms, append_time_ms, verified, transactional_id)
        return self._enter(batch, now_ms, append_time_ms)

    def turn_away(self, records: Buffer | None) -> None:
        """Register a refused batch that its producer will send again.

        Batches that the producer sent after it must not overtake it. Nothing of the batch is kept.
        Raises KafkaError if it would be refused at any other time, too.
        """
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        validate_batch(batch, self.topic.config.batches, now_ms)
        if batch.producer_id == NO_PRODUCER_ID:
            return
        # The records need not stay in memory.
        batch.buffer = memoryview(bytes(batch.buffer[:HEADER_BYTES]))
        queue = self._check_queue
        if queue is not None and queue.is_busy:
            # Batches that arrived earlier are still queued, and are registered first.
            queue.submit(partial(self._expect, batch, now_ms))
        else:
            self._expect(batch, now_ms)

    def _expect(self, batch: RecordBatch, now_ms: int) -> Appended:
        """If the producer may begin at any sequence, require this batch as its first."""
        known = self.producers.get(batch.producer_id)
        if known is None or batch.producer_epoch >= known.producer_epoch:
            self.producers.expect(batch, now_ms)
        return Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)

    def append_marker(self, marker: TransactionMarker) -> Append:
        """End a producer's transaction: done once the marker is durable and readers know of it.

        The marker enters after everything that was submitted to the partition before. A marker is
        written even if the producer has no open transaction: it fences batches of older epochs
        (KIP-890). Raises KafkaError, or is done with it: INVALID_PRODUCER_EPOCH for an epoch below
        the known one, TRANSACTION_COORDINATOR_FENCED for a coordinator epoch below the known one,
        KAFKA_STORAGE_ERROR while it is uncertain which batches the log holds. If it is done with
        StorageError, the marker may or may not be stored, and the caller must repeat it.
        """
        enter = partial(self._enter_marker, marker)
        queue = self._check_queue
        result: Append
        if queue is not None and queue.is_busy:
            result = queue.submit(enter)
        else:
            result = cast("Append", enter().result)
        if not self.topic.config.log_settings.is_relaxed:
            return result
        # The coordinator forgets the transaction when this is done: no power loss may undo it.
        durable = Append()
        result.then(partial(self._sync_marker, durable))
        return durable

    def _check_loader(self, batch: RecordBatch, transactional_id: str | None, now_ms: int) -> None:
        """Raise KafkaError if the topic is being loaded and the batch is not from the loader.

        After a topic was loaded with its original offsets, also refuse a batch that is not
        transactional although its request has a transactional id. Only a loader sends such a batch,
        and now it is a late retry. If its base offset is 0, it looks like a new batch otherwise and
        would be stored a second time.
        """
        config = self.topic.config
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
                self.producers.expect(batch, now_ms)
            raise

    def _check_loader_at_once(
        self, batch: RecordBatch, transactional_id: str | None, now_ms: int
    ) -> None:
        """Call `_check_loader` unless the queue is busy: then the batch is checked when it enters.

        Batches queued ahead may be refused too, and must come first when they are sent again.
        """
        queue = self._check_queue
        if queue is None or not queue.is_busy:
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
        queue = self._check_queue
        # A marker in the queue may be about to end the transaction.
        is_busy = queue is not None and queue.is_busy
        if not is_busy and self.producers.is_in_transaction(
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
        """Raise the coordinator's refusal of a batch, if it refused."""
        if verified.error is None and verified.result is ErrorCode.NONE:
            return
        if verified.error is not None:
            self.producers.expect(batch, now_ms)
            raise verified.error
        if verified.result in _SENT_AGAIN:
            self.producers.expect(batch, now_ms)
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
        """Submit a batch once its checks have passed and all batches before it have entered."""
        config = self.topic.config
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
        queue = self._check_queue
        if check is None and verified is None and (queue is None or not queue.is_busy):
            self._check_queue = None
            return enter()
        return self._enter_in_order(enter, check=check, verified=verified)

    def _enter_recompressed(
        self, enter: Callable[[], Appended], batch: RecordBatch, came_bytes: int
    ) -> Appended:
        """Submit a batch that was compressed again, and count its sizes. Raises KafkaError."""
        appended = enter()
        recompressed = self._check_thread.recompressed
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
        config = self.topic.config
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
        queue = self._check_queue
        if queue is None:
            queue = self._check_queue = CheckQueue(self._check_thread)
        result = queue.submit(enter, check=check, verified=verified)
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
        config = self.topic.config
        if config.loading is not None:
            config.loading.check_place(
                batch, self.log.end_offset, is_relaxed=config.log_settings.is_relaxed
            )
        return self._enter(batch, now_ms, append_time_ms)

    def _enter(self, batch: RecordBatch, now_ms: int, append_time_ms: int) -> Appended:
        """Submit a valid batch, unless it is a duplicate. Raises KafkaError."""
        has_producer = batch.producer_id != NO_PRODUCER_ID
        if has_producer:
            if self._is_fenced:
                self._refuse_fenced()
            known = self.producers.check(batch)
            if isinstance(known, InFlight):
                result, append_time_ms = cast("tuple[Append, int]", known.token)
                return Appended(result, NO_OFFSET, append_time_ms)
            if known is not None:
                return Appended(None, known.base_offset, self._append_time(known))
        if append_time_ms >= 0 and not batch.attributes & LOG_APPEND_TIME_FLAG:
            # A batch that was compressed again already has the log append time.
            batch.set_log_append_time(append_time_ms)
        if not self._in_flight_count:
            self._submitted_bytes = self._visible_bytes
        position_bytes = self._submitted_bytes
        size_bytes = PREFIX_BYTES + batch.batch_length
        self._submitted_bytes = position_bytes + size_bytes
        opened = None
        if batch.attributes & TRANSACTIONAL_FLAG:
            # Before the append: a relaxed log may show the batch to readers before `append`
            # returns.
            opened = self.producers.begin_transaction(batch, self.log.end_offset, position_bytes)
        result = self.log.append((batch,))
        appended = self._appended
        appended.batches += 1
        appended.records += batch.record_count
        appended.size_bytes += size_bytes
        entry = None
        if has_producer:
            entry = self.producers.submit(batch, (result, append_time_ms), now_ms, opened)
            self._in_flight_of_producers += 1
        self._in_flight_count += 1
        if result.is_done:
            self._answered(entry, result)
        else:
            result.when_done(partial(self._answered, entry))
        return Appended(result, NO_OFFSET, append_time_ms)

    def _enter_marker(self, marker: TransactionMarker) -> Appended:
        """Submit a marker. Raises KafkaError."""
        # Imported here to keep start-up fast.
        from kgw.partitions.append.transactions import make_marker

        if self._is_fenced:
            self._refuse_fenced()
        self.producers.check_marker(marker)
        loading = self.topic.config.loading
        if (
            loading is not None
            and loading.keeps_offsets
            and self.producers.stored_transaction(marker.producer_id) == NO_OFFSET
        ):
            # No transaction to end and no batch to fence: the marker would only take an offset that
            # one of the loaded records needs.
            end_offset = self.log.end_offset
            nothing = Append()
            nothing.set_result(AppendResult(end_offset, end_offset - 1, self.log.leader_epoch))
            return Appended(nothing, NO_OFFSET, NO_TIMESTAMP_MS)
        now_ms = self._clock.wall_ms()
        batch = make_marker(marker, now_ms)
        if self.topic.config.batches.uses_log_append_time:
            batch.set_log_append_time(now_ms)
        if not self._in_flight_count:
            self._submitted_bytes = self._visible_bytes
        self._submitted_bytes += batch.size_bytes
        result = self.log.append((batch,))
        entry = self.producers.submit_marker(marker, now_ms)
        self._in_flight_of_producers += 1
        self._in_flight_count += 1
        result.then(partial(self._answered, entry))
        return Appended(result, NO_OFFSET, NO_TIMESTAMP_MS)

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
            await self.log.make_durable(result.last_offset + 1)
        except Exception as error:  # noqa: BLE001 - passed to the waiters of `durable`
            durable.error = error
        else:
            durable.result = result
        durable.finish()

    def _refuse_fenced(self) -> NoReturn:
        if not self._in_flight_of_producers:
            self._lift_fence()  # the last attempt may have failed
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            "nothing is written until the next start"
            if self.log.has_failed
            else "the producers' state is being read from the log",
        )

    def _append_time(self, known: Duplicate) -> int:
        return (
            known.max_timestamp_ms
            if self.topic.config.batches.uses_log_append_time
            else NO_TIMESTAMP_MS
        )

    def _answered(self, entry: BatchEntry | MarkerEntry | None, append: Append) -> None:
        """Update the state with an append's result. Runs before the append's other callbacks."""
        self._in_flight_count -= 1
        if entry is not None:
            self._in_flight_of_producers -= 1
        if append.error is not None:
            # The failure of a batch without a producer id leaves no producer state to repair.
            self._is_fenced = self._is_fenced or entry is not None
        else:
            appended = append.result
            # Other processes append to a foreign topic, too.
            if appended.base_offset != self._stored_end and self.topic.config.foreign is None:
                self.skip_count += 1
            self._stored_end = appended.last_offset + 1
            if entry is not None and self.producers.complete(entry, appended.base_offset):
                self._tell_stable()
        if self._is_fenced and not self._in_flight_of_producers:
            # Batches without a producer id may be in flight all the time, but do not affect
            # producer state.
            self._lift_fence()

    def _lift_fence(self) -> None:
        """Make the producer state match the log, now that no append of a producer is in flight.

        Does nothing if the log has failed: batches that it refused may be there at the next start.
        If a client heard meanwhile that its sequences have a gap, it would take a new epoch and
        send the batch again, and nobody could recognise the duplicate.
        """
        if self.log.has_failed:
            return
        if not self._in_flight_count and self.log.end_offset == self._stored_end:
            # The log holds the answered appends and nothing else, as after a full disk.
            self.producers.roll_back()
            self._is_fenced = False
            self._tell_stable()
            return
        now_s = self._clock.monotonic_s()
        if self._rebuild is None and now_s >= self._rebuild_not_before_s:
            self._rebuild_not_before_s = now_s + _REBUILD_INTERVAL_S
            self._rebuild = asyncio.ensure_future(self._read_producers_again())

    async def _read_producers_again(self) -> None:
        try:
            await self.open()
        except KgwError as error:
            # Still fenced: a later append tries again.
            _log.error("%r: producers stay fenced, the log cannot be read: %s", self, error)
        else:
            self._is_fenced = False
        finally:
            self._rebuild = None

    # --- reading ---------------------------------------------------------------------------------

    def view(self, isolation: int = Isolation.READ_UNCOMMITTED) -> PartitionView:
        """Return the view of the partition for readers of an isolation level."""
        return self._committed_view if isolation == Isolation.READ_COMMITTED else self._view

    def view_without_zstd(self, isolation: int) -> PartitionView:
        """Return the view for readers of an isolation level that cannot decompress zstd."""
        log = self.log
        if not isinstance(log, Segmented):
            return self.view(isolation)
        segmented: Segmented = log
        # Few clients are so old.
        from kgw.partitions.old_view import ViewWithoutZstd

        is_committed = isolation == Isolation.READ_COMMITTED
        return ViewWithoutZstd(
            self.topic,
            self.index,
            log,
            self.producers,
            self.committed_listeners if is_committed else self.listeners,
            Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED,
            self._presence,
            recompressed=lambda: segmented.recompressed,
            thread=self._check_thread,
            limits=self.topic.config.decompression_limits,
        )

    def _advanced(self, _end_offset: int, size_bytes: int) -> None:
        """Notify listeners that `size_bytes` more can be read, whoever appended them."""
        self._visible_bytes += size_bytes
        if self.listeners:
            for listener in list(self.listeners):
                listener.advanced(size_bytes)
        if self.committed_listeners or self.producers.open_transactions:
            self._tell_stable()
        else:
            self._stable_bytes = self._visible_bytes

    def _tell_stable(self) -> None:
        """Notify listeners of committed records how many more bytes have become stable.

        They are notified of zero bytes, too, as the high watermark has moved.
        """
        stable_bytes = self._visible_bytes
        for first in self.producers.open_transactions:
            stable_bytes = min(stable_bytes, first.position_bytes)
            break
        grown_bytes = max(0, stable_bytes - self._stable_bytes)
        self._stable_bytes = stable_bytes
        for listener in list(self.committed_listeners):
            listener.advanced(grown_bytes)

    async def delete_before(self, offset: int) -> int:
        """Move the log start to `offset` durably; return by how many offsets it moved.

        An offset at or below the log start changes nothing; the caller has checked that `offset` is
        not above the high watermark. Raises StorageError.
        """
        log = self.log
        before = log.log_start_offset
        if offset <= before:
            return 0
        if self._snapshot_offset < offset and len(self.producers):
            # A start reads no records below `offset`. Without a snapshot it would not know the
            # producers of the deleted batches, and would store a retry of such a batch again.
            await self.save_snapshot()
        if offset == log.end_offset:
            await self.close_active_segment()
        await log.drop_before(offset)
        self.forget_aborted()
        # A long poll may be waiting at an offset that has just been deleted.
        self.end_waits()
        return max(0, self.log.log_start_offset - before)

    async def close_active_segment(self) -> None:
        """Roll to a new segment, so that the closed one can be deleted and its disk space freed.

        If that fails, a later run of retention deletes the records.
        """
        if isinstance(self.log, Segmented):
            try:
                await self.log.roll()
            except StorageError as error:
                _log.warning("%r: the active segment stays for now: %s", self, error)

    # --- changes from above ----------------------------------------------------------------------

    def retire(self, code: ErrorCode) -> None:
        """Wake all waiting readers; from now on `code` answers requests for the partition."""
        self._presence.gone_code = code
        self.end_waits()

    @property
    def is_retired(self) -> bool:
        """Whether this node serves the partition no more."""
        return self._presence.gone_code is not None

    async def enter_queued(self) -> None:
        """Return when the queued batches and markers have been submitted to the log, or refused."""
        if self._check_queue is not None and self._check_queue.is_busy:
            nothing = Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)
            await self._check_queue.submit(lambda: nothing)

    def end_waits(self) -> None:
        """Wake all waiting readers, and have the other listeners look at the partition again."""
        for listener in (*self.listeners, *self.committed_listeners):
            listener.fire()


def most_grown(partitions: list[Partition], leave_bytes: int) -> list[Partition]:
    """Return the most grown, until the others leave `leave_bytes` to replay; all, if few."""
    sizes = [(partition.unsaved_bytes, partition) for partition in partitions]
    left_bytes = sum(size_bytes for size_bytes, _ in sizes)
    if len(sizes) <= _ALWAYS_SAVED or not leave_bytes:
        return partitions
    sizes.sort(key=itemgetter(0), reverse=True)
    chosen: list[Partition] = []
    for size_bytes, partition in sizes:
        if len(chosen) >= _ALWAYS_SAVED and left_bytes <= leave_bytes:
            break
        chosen.append(partition)
        left_bytes -= size_bytes
    return chosen
