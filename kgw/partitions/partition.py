"""One partition: what may enter, in which order, and who waits for it."""

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

# A directory that has failed for good fails every append: its log is not read again for each.
_REBUILD_INTERVAL_S = 1.0

# What a coordinator refuses for now. After any other code the client gives the transaction up.
_SENT_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)

# So many snapshots come with each checkpoint: half a millisecond of the processor each.
_ALWAYS_SAVED = 64


class OwnTopic(ReadTopic, Protocol):
    """What a partition knows of its topic."""

    config: TopicConfig


class ProducerDescription(NamedTuple):
    """What a partition knows of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """NO_SEQUENCE when nothing of its epoch is known."""
    written_ms: int
    """When the server took something of it last, or read it again at a start."""
    coordinator_epoch: int
    """Of the last marker; -1: there was none."""
    transaction_first_offset: int
    """NO_OFFSET when no transaction is open."""


class Partition:
    """The write and read path of one partition of one topic.

    Producer state runs ahead of the disk: it advances when a batch is submitted, so that the next
    one can be. When an append fails, producers are fenced: idempotent batches are refused, with a
    code that clients retry, until all of theirs in flight have been answered and the state says
    again what the log holds.
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
        """Who is told of what becomes of the partition: to be changed by its views."""
        self.committed_listeners: dict[PartitionListener, None] = {}
        """Those of them who read no further than the last stable offset."""
        self.skip_count = 0
        """Appends that began past the end of the one before: nothing here explains the hole."""
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
        # The end of what has been answered, and what need not be replayed of it.
        self._stored_end = log.high_watermark
        self._snapshot_offset = log.log_start_offset
        self._snapshot_log_bytes = 0
        # Of this life: what readers have been told of, those of committed records too, and where
        # the next batch will begin if nothing in flight fails.
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
        # Readers go by what was known until the new state is complete.
        producers = ProducerState()
        if not is_empty:
            await self._replay(producers)
        self.producers.become(producers)
        self.forget_aborted()
        self._tell_stable()

    async def _replay(self, producers: ProducerState) -> None:
        """Tell a state that knows nothing what snapshot and log say. Raises StorageError."""
        log = self.log
        now_ms = self._clock.wall_ms()
        replay_from = log.log_start_offset
        snapshot = await log.load_snapshot()
        # One from before the log's beginning knows nothing of what was removed since: markers, and
        # batches after which a producer would seem to have left some out.
        if snapshot is not None and snapshot.offset >= replay_from:
            try:
                producers.load(*decode_snapshot(snapshot.data))
                # By which clock its times are nobody knows: as what is replayed, all count from
                # now on.
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
        """Whether a snapshot would say something new."""
        return self._snapshot_offset < self._stored_end and not self._is_fenced

    @property
    def is_unused(self) -> bool:
        """Whether nothing was ever appended, nor is about to be."""
        queue = self._check_queue
        is_busy = self._in_flight_count or (queue is not None and queue.is_busy)
        return not is_busy and not self.log.end_offset

    @property
    def grown_bytes(self) -> int:
        """Bytes that have become readable in this life, whoever appended them, as appended."""
        return self._visible_bytes

    @property
    def unsaved_bytes(self) -> int:
        """How much the log has grown, or shrunk, since the last snapshot."""
        return abs(self.log.size_bytes - self._snapshot_log_bytes)

    async def save_snapshot(
        self, queue: asyncio.Lock | None = None, *, packed_per_turn: int = PACKED_PER_TURN
    ) -> None:
        """Keep the producers' state, so that the next start replays less. Raises StorageError.

        It holds what has been answered, and nothing of what is in flight. It is made in turns,
        which partitions that share a queue take one after the other.
        """
        if not self.is_dirty or self.topic.is_deleted:
            return
        work = self._make_snapshot(packed_per_turn)
        # Few are packed at once: to wait for a turn would take longer than the work.
        are_few = has_few_producers(self.producers)
        made = await (take_turns(work) if are_few else finish(work, queue))
        if made is None or self.topic.is_deleted:
            return
        snapshot, log_bytes = made
        await self.log.save_snapshot(snapshot)
        self._snapshot_log_bytes = log_bytes
        self._snapshot_offset = max(self._snapshot_offset, snapshot.offset)

    def _make_snapshot(self, per_turn: int) -> Turns[tuple[Snapshot, int] | None]:
        """Return a snapshot and how large the log was then; None while the state may be wrong."""
        if not self.is_dirty:
            return None
        packed = yield from pack_producers(self.producers, per_turn)
        if packed is None or self._is_fenced:
            return None
        # In the turn in which the last of it was packed.
        offset, log_bytes = self._stored_end, self.log.size_bytes
        aborted = self.producers.aborted
        data = yield from encode_snapshot(packed, b"" if aborted is None else aborted.pack())
        return Snapshot(offset, data), log_bytes

    def expire_producers(self, expiration_ms: int, *, has_jumped: bool = False) -> Turns[int]:
        """Forget producers that have written nothing for that long; return how many.

        Where the wall clock has jumped none is forgotten: the time of each begins anew.
        """
        now_ms = self._clock.wall_ms()
        if has_jumped:
            return self.producers.count_anew(now_ms)
        return self.producers.expire(now_ms, expiration_ms)

    def describe_producers(self) -> Iterable[ProducerDescription]:
        """Return what is known of each producer (KIP-664): of many, some at a time."""
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
        """Forget which records were aborted, where they are removed: they are not read again."""
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

        The batch's bytes belong to the partition from now on and are changed in place. A retry of a
        batch that is stored gets its offset, of one that is in flight its result. Raises KafkaError
        when the batch may not enter; nothing has happened then.

        `verify` is what a transactional batch comes with. Where the producer has no transaction
        open here, it is asked whether there is one that has this partition, and the batch enters
        once it has said NONE; any other code refuses it. It must not wait for anything that is
        appended here, as that waits for it. `transactional_id` is the request's, which says who is
        let in while the topic is being loaded.
        """
        config = self.topic.config
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        rules = config.batches
        validate_batch(batch, rules, now_ms, zstd_allowed=zstd_allowed)
        verified = None
        # Properties cost a call each; this runs ten thousand times a second.
        if batch.attributes & TRANSACTIONAL_FLAG:
            # Before the coordinator is asked: it would take the partition in.
            self._check_loader_at_once(batch, transactional_id, now_ms)
            verified = self._verify(batch, verify, now_ms)
        append_time_ms = now_ms if rules.uses_log_append_time else NO_TIMESTAMP_MS
        if config.checks_batches or self._check_queue is not None or verified is not None:
            return self._append_checked(batch, now_ms, append_time_ms, verified, transactional_id)
        return self._enter(batch, now_ms, append_time_ms)

    def turn_away(self, records: Buffer | None) -> None:
        """Take note of a batch that is to be refused, and that its producer will send again.

        What it sends behind that one must not overtake it. Nothing of the batch is kept. Raises
        KafkaError when it could not enter at any other time either.
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
            # What it came behind has not been submitted yet, and comes first.
            queue.submit(partial(self._expect, batch, now_ms))
        else:
            self._expect(batch, now_ms)

    def _expect(self, batch: RecordBatch, now_ms: int) -> Appended:
        """Have a producer send a batch before any other, if it may begin anywhere."""
        known = self.producers.get(batch.producer_id)
        if known is None or batch.producer_epoch >= known.producer_epoch:
            self.producers.expect(batch, now_ms)
        return Appended(None, NO_OFFSET, NO_TIMESTAMP_MS)

    def append_marker(self, marker: TransactionMarker) -> Append:
        """End a producer's transaction: done once the marker is durable and readers know of it.

        It goes behind whatever has come to the partition before. One without a transaction is
        written all the same: it fences batches of older epochs (KIP-890). Raises KafkaError, or is
        done with it: INVALID_PRODUCER_EPOCH for an epoch below the known one,
        TRANSACTION_COORDINATOR_FENCED for a coordinator's, KAFKA_STORAGE_ERROR while it is in doubt
        what the log holds. Done with StorageError it may be stored or not, and is to be repeated.
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
        """Raise KafkaError when the topic is being loaded, and not by who sends this.

        Or was loaded, and this is what an attempt has left that slept: one that begins at offset 0
        looks like anybody's, and would be stored again. No client sends others like it.
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
            # When the topic is opened between the two, what it sends next must not come first.
            if batch.producer_id != NO_PRODUCER_ID:
                self.producers.expect(batch, now_ms)
            raise

    def _check_loader_at_once(
        self, batch: RecordBatch, transactional_id: str | None, now_ms: int
    ) -> None:
        """As `_check_loader`, unless something waits: then a batch is refused in its turn.

        What it would overtake may be refused as well, and has to come first when it is sent again.
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
        """Return what a transactional batch has to wait for. Raises KafkaError."""
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
        """Raise what keeps a batch out, if the coordinator has not let it in."""
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
        """Submit a batch once it may enter, and all before it have entered."""
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
        """Submit a batch of another size than it came in. Raises KafkaError."""
        appended = enter()
        recompressed = self._check_thread.recompressed
        recompressed.batches += 1
        recompressed.bytes_before += came_bytes
        recompressed.bytes_after += batch.size_bytes
        return appended

    def append_message_set(self, records: Buffer | None) -> Appended:
        """Take what a Produce request of version 0 to 2 has, as `append` takes a batch.

        That is a message set of format 0 or 1, of which one batch is made. As in Kafka it may be a
        batch, and nothing is stored for an empty set. Raises KafkaError as `append`.
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
        """Submit something behind all that has come before it, as `CheckQueue.submit`."""
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
        """Submit a batch that may have waited for its turn. Raises KafkaError."""
        if verified is not None:
            self._refuse_unverified(batch, verified, now_ms)
        # Again: loading may have begun or ended since it came.
        self._check_loader(batch, transactional_id, now_ms)
        config = self.topic.config
        if config.loading is not None:
            config.loading.check_place(
                batch, self.log.end_offset, is_relaxed=config.log_settings.is_relaxed
            )
        return self._enter(batch, now_ms, append_time_ms)

    def _enter(self, batch: RecordBatch, now_ms: int, append_time_ms: int) -> Appended:
        """Submit a batch that is valid, unless it is known already. Raises KafkaError."""
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
            # One that was recompressed has it already.
            batch.set_log_append_time(append_time_ms)
        if not self._in_flight_count:
            self._submitted_bytes = self._visible_bytes
        position_bytes = self._submitted_bytes
        size_bytes = PREFIX_BYTES + batch.batch_length
        self._submitted_bytes = position_bytes + size_bytes
        opened = None
        if batch.attributes & TRANSACTIONAL_FLAG:
            # First: a relaxed log may show the batch before it returns.
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
            # There is nothing to end, and no batch of a producer to fence: an offset that it took
            # would be missing among those that are loaded.
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
        """Finish one append once another one, of a relaxed log, is durable."""
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
        except Exception as error:  # noqa: BLE001 - whoever waits for it deals with it
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
        """Take note of an append's result. Runs before whoever else waits for it."""
        self._in_flight_count -= 1
        if entry is not None:
            self._in_flight_of_producers -= 1
        if append.error is not None:
            # What a batch without a producer id leaves behind, nobody counts on.
            self._is_fenced = self._is_fenced or entry is not None
        else:
            appended = append.result
            # Others append to a foreign topic, too.
            if appended.base_offset != self._stored_end and self.topic.config.foreign is None:
                self.skip_count += 1
            self._stored_end = appended.last_offset + 1
            if entry is not None and self.producers.complete(entry, appended.base_offset):
                self._tell_stable()
        if self._is_fenced and not self._in_flight_of_producers:
            # Those without an id may keep the log busy for ever, and change nothing here.
            self._lift_fence()

    def _lift_fence(self) -> None:
        """Make the producers' state true again, now that no append of theirs is in flight.

        Not of a log that has failed: what it refused may be there at the next start. A client that
        was told of a gap in its sequences meanwhile would take a new epoch and send it again, and
        nobody would know it for the same.
        """
        if self.log.has_failed:
            return
        if not self._in_flight_count and self.log.end_offset == self._stored_end:
            # The log holds what it has answered, and nothing else: a full disk, for instance.
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
        """Return what readers of an isolation level see."""
        return self._committed_view if isolation == Isolation.READ_COMMITTED else self._view

    def view_without_zstd(self, isolation: int) -> PartitionView:
        """Return what readers of an isolation level see who know no zstd."""
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
        """Tell those who wait that so many bytes more can be read, from whichever source."""
        self._visible_bytes += size_bytes
        if self.listeners:
            for listener in list(self.listeners):
                listener.advanced(size_bytes)
        if self.committed_listeners or self.producers.open_transactions:
            self._tell_stable()
        else:
            self._stable_bytes = self._visible_bytes

    def _tell_stable(self) -> None:
        """Tell those who wait for committed records how many bytes more have become stable.

        None is told, too: the high watermark has moved.
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
        """Let the partition begin at `offset`, durably and for ever; return how far that moved it.

        One at or below the log start changes nothing; the caller has checked that it is not above
        the high watermark. Raises StorageError.
        """
        log = self.log
        before = log.log_start_offset
        if offset <= before:
            return 0
        if self._snapshot_offset < offset and len(self.producers):
            # A start reads no records below it: else it would not know who has written them, and
            # would take what is sent again for new.
            await self.save_snapshot()
        if offset == log.end_offset:
            await self.close_active_segment()
        await log.drop_before(offset)
        self.forget_aborted()
        # A long poll for more bytes than there are may stand on what has gone.
        self._end_waits()
        return max(0, self.log.log_start_offset - before)

    async def close_active_segment(self) -> None:
        """Begin a segment, so that the records there are can go with the room that they take.

        Where that fails they go with a later run of retention.
        """
        if isinstance(self.log, Segmented):
            try:
                await self.log.roll()
            except StorageError as error:
                _log.warning("%r: the active segment stays for now: %s", self, error)

    # --- changes from above ----------------------------------------------------------------------

    def retire(self, code: ErrorCode) -> None:
        """End what waits for this partition, with what is answered instead of it from now on."""
        self._presence.gone_code = code
        self._end_waits()

    def _end_waits(self) -> None:
        for listener in (*self.listeners, *self.committed_listeners):
            listener.fire()


def most_grown(partitions: list[Partition], leave_bytes: int) -> list[Partition]:
    """Return the most grown, so many that the others leave `leave_bytes` to replay; all, if few."""
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
