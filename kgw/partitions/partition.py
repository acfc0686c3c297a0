"""One partition: what may enter, in which order, and who waits for it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, cast

from kgw.backend.base import Snapshot
from kgw.errors import ErrorCode, KafkaError, KgwError
from kgw.partitions.appending import (
    Appended,
    CheckQueue,
    is_prepared_at_once,
    prepare_records,
)
from kgw.partitions.producer_snapshot import (
    PACKED_PER_TURN,
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
    has_few_producers,
    pack_producers,
)
from kgw.partitions.producer_state import Duplicate, InFlight, ProducerState
from kgw.partitions.validation import (
    read_produced_batch,
    record_rules,
    validate_batch,
)
from kgw.partitions.view import Isolation, PartitionView, ReadTopic
from kgw.records.batch import LOG_APPEND_TIME_FLAG, NO_PRODUCER_ID, TRANSACTIONAL_FLAG
from kgw.turns import finish, take_turns
from kgw.types import NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.backend.append import Append
    from kgw.backend.base import PartitionLog
    from kgw.clock import Clock
    from kgw.partitions.appending import CheckThread
    from kgw.partitions.producer_state import BatchEntry
    from kgw.partitions.topic_config import TopicConfig
    from kgw.partitions.view import PartitionListener
    from kgw.records.batch import RecordBatch
    from kgw.turns import Turns
    from kgw.types import Buffer

_log = logging.getLogger(__name__)

# A directory that has failed for good fails every append: its log is not read again for each.
_REBUILD_INTERVAL_S = 1.0

# So many snapshots come with each checkpoint: half a millisecond of the processor each.
_ALWAYS_SAVED = 64


class OwnTopic(ReadTopic, Protocol):
    """What a partition knows of its topic."""

    config: TopicConfig


class Partition:
    """The write and read path of one partition of one topic.

    Producer state runs ahead of the disk: it advances when a batch is submitted, so that the next
    one can be. When an append fails, producers are fenced: idempotent batches are refused, with a
    code that clients retry, until all of theirs in flight have been answered and the state says
    again what the log holds.
    """

    __slots__ = (
        "_check_queue",
        "_check_thread",
        "_clock",
        "_committed_view",
        "_in_flight_count",
        "_in_flight_of_producers",
        "_is_fenced",
        "_rebuild",
        "_rebuild_not_before_s",
        "_snapshot_log_bytes",
        "_snapshot_offset",
        "_stored_end",
        "_view",
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
    ) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.listeners: dict[PartitionListener, None] = {}
        """Who is told of what becomes of the partition: to be changed by its views."""
        self.skip_count = 0
        """Appends that began past the end of the one before: nothing here explains the hole."""
        self.producers = ProducerState()
        self._view = PartitionView(topic, index, log, self.listeners, Isolation.READ_UNCOMMITTED)
        self._committed_view = PartitionView(
            topic, index, log, self.listeners, Isolation.READ_COMMITTED
        )
        self._clock = clock
        self._check_thread = check_thread
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
        log.on_advance = self._advanced

    def __repr__(self) -> str:
        return f"<Partition {self.topic.name}-{self.index} {self.log!r}>"

    # --- derived state ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Rebuild the producers' state from the newest snapshot and the log after it.

        Raises StorageError.
        """
        log = self.log
        self.producers.clear()
        if log.end_offset == log.log_start_offset == 0:
            return
        now_ms = self._clock.wall_ms()
        replay_from = log.log_start_offset
        snapshot = await log.load_snapshot()
        if snapshot is not None:
            try:
                self.producers.load(decode_snapshot(snapshot.data))
            except SnapshotError as error:
                _log.warning("%r: a snapshot is left aside, the log is read: %s", self, error)
            else:
                replay_from = max(replay_from, snapshot.offset)
                self._snapshot_offset = snapshot.offset
        if replay_from < log.end_offset:
            async for batch in log.replay(replay_from):
                self.producers.replay(batch, now_ms)
        self._stored_end = log.high_watermark

    @property
    def is_dirty(self) -> bool:
        """Whether a snapshot would say something new."""
        return self._snapshot_offset < self._stored_end and not self._is_fenced

    @property
    def unsaved_bytes(self) -> int:
        """How much the log has grown, or shrunk, since the last snapshot of this life."""
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
        return Snapshot(offset, (yield from encode_snapshot(packed))), log_bytes

    def expire_producers(self, expiration_ms: int) -> Turns[int]:
        """Forget producers that have written nothing for that long; return how many."""
        return self.producers.expire(self._clock.wall_ms(), expiration_ms)

    # --- writing ---------------------------------------------------------------------------------

    def append(self, records: Buffer | None, *, zstd_allowed: bool = True) -> Appended:
        """Take the one batch of a Produce request, and submit it before returning.

        The batch's bytes belong to the partition from now on and are changed in place. A retry of a
        batch that is stored gets its offset, of one that is in flight its result. Raises KafkaError
        when the batch may not enter; nothing has happened then.
        """
        config = self.topic.config
        now_ms = self._clock.wall_ms()
        batch = read_produced_batch(records)
        rules = config.batches
        validate_batch(batch, rules, now_ms, zstd_allowed=zstd_allowed)
        # Properties cost a call each; this runs ten thousand times a second.
        if batch.attributes & TRANSACTIONAL_FLAG:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
        append_time_ms = now_ms if rules.uses_log_append_time else NO_TIMESTAMP_MS
        if config.checks_records or self._check_queue is not None:
            return self._append_checked(batch, now_ms, append_time_ms)
        return self._enter(batch, now_ms, append_time_ms)

    def _append_checked(self, batch: RecordBatch, now_ms: int, append_time_ms: int) -> Appended:
        """Submit a batch once its records have been looked at, and all before it have entered.

        They are in the topic's codec then.
        """
        config = self.topic.config
        limits = config.decompression_limits
        enter = partial(self._enter, batch, now_ms, append_time_ms)
        rules = record_rules(config.batches, now_ms, batch.attributes)
        if rules is not None:
            if rules.recompression is not None:
                enter = partial(
                    self._enter_recompressed, batch, batch.size_bytes, now_ms, append_time_ms
                )
            if is_prepared_at_once(batch, rules):
                prepare_records(batch, rules, limits)
                rules = None
        queue = self._check_queue
        if rules is None and (queue is None or not queue.is_busy):
            return enter()
        if queue is None:
            queue = self._check_queue = CheckQueue(self._check_thread)
        result = queue.submit(batch, rules, limits, enter)
        return Appended(result, NO_OFFSET, append_time_ms, is_undecided=True)

    def _enter_recompressed(
        self, batch: RecordBatch, came_bytes: int, now_ms: int, append_time_ms: int
    ) -> Appended:
        """Submit a batch of another size than it came in. Raises KafkaError."""
        appended = self._enter(batch, now_ms, append_time_ms)
        recompressed = self._check_thread.recompressed
        recompressed.batches += 1
        recompressed.bytes_before += came_bytes
        recompressed.bytes_after += batch.size_bytes
        return appended

    def _enter(self, batch: RecordBatch, now_ms: int, append_time_ms: int) -> Appended:
        """Submit a batch that is valid, unless it is known already. Raises KafkaError."""
        has_producer = batch.producer_id != NO_PRODUCER_ID
        if has_producer:
            if self._is_fenced:
                if not self._in_flight_of_producers:
                    self._lift_fence()  # the last attempt may have failed
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, "the producers' state is being read from the log"
                )
            known = self.producers.check(batch)
            if isinstance(known, InFlight):
                result, append_time_ms = cast("tuple[Append, int]", known.token)
                return Appended(result, NO_OFFSET, append_time_ms)
            if known is not None:
                return Appended(None, known.base_offset, self._append_time(known))
        if append_time_ms >= 0 and not batch.attributes & LOG_APPEND_TIME_FLAG:
            # One that was recompressed has it already.
            batch.set_log_append_time(append_time_ms)
        result = self.log.append((batch,))
        entry = None
        if has_producer:
            entry = self.producers.submit(batch, (result, append_time_ms), now_ms)
            self._in_flight_of_producers += 1
        self._in_flight_count += 1
        if result.is_done:
            self._answered(entry, result)
        else:
            result.when_done(partial(self._answered, entry))
        return Appended(result, NO_OFFSET, append_time_ms)

    def _append_time(self, known: Duplicate) -> int:
        return (
            known.max_timestamp_ms
            if self.topic.config.batches.uses_log_append_time
            else NO_TIMESTAMP_MS
        )

    def _answered(self, entry: BatchEntry | None, append: Append) -> None:
        """Take note of an append's result. Runs before whoever else waits for it."""
        self._in_flight_count -= 1
        if entry is not None:
            self._in_flight_of_producers -= 1
        if append.error is not None:
            # What a batch without a producer id leaves behind, nobody counts on.
            self._is_fenced = self._is_fenced or entry is not None
        else:
            appended = append.result
            if appended.base_offset != self._stored_end:
                self.skip_count += 1
            self._stored_end = appended.last_offset + 1
            if entry is not None:
                self.producers.complete(entry, appended.base_offset)
        if self._is_fenced and not self._in_flight_of_producers:
            # Those without an id may keep the log busy for ever, and change nothing here.
            self._lift_fence()

    def _lift_fence(self) -> None:
        """Make the producers' state true again, now that no append of theirs is in flight."""
        if not self._in_flight_count and self.log.end_offset == self._stored_end:
            # The log holds what it has answered, and nothing else: a full disk, for instance.
            self.producers.roll_back()
            self._is_fenced = False
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

    def _advanced(self, _end_offset: int, size_bytes: int) -> None:
        """Tell those who wait that so many bytes more can be read, from whichever source."""
        if self.listeners:
            for listener in list(self.listeners):
                listener.advanced(size_bytes)

    async def delete_before(self, offset: int) -> int:
        """Let the partition begin at `offset`, durably and for ever; return how far that moved it.

        One at or below the log start changes nothing; the caller has checked that it is not above
        the high watermark. Raises StorageError.
        """
        before = self.log.log_start_offset
        if offset <= before:
            return 0
        await self.log.drop_before(offset)
        # A long poll for more bytes than there are may stand on what has gone.
        self._end_waits()
        return max(0, self.log.log_start_offset - before)

    # --- changes from above ----------------------------------------------------------------------

    def retire(self) -> None:
        """End what waits for this partition: its topic has been deleted."""
        self._end_waits()

    def _end_waits(self) -> None:
        for listener in list(self.listeners):
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
