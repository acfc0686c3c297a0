"""One partition: it submits batches to the log, tracks producers and wakes waiting readers."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

from kgw.backend.append import Append, AppendResult
from kgw.backend.base import Segmented, Snapshot
from kgw.errors import ErrorCode, KafkaError, KgwError, StorageError
from kgw.partitions.admission import Admission
from kgw.partitions.append.appending import Appended
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
from kgw.partitions.view import Isolation, PartitionView, Presence
from kgw.records.batch import (
    LOG_APPEND_TIME_FLAG,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
)
from kgw.turns import finish, take_turns
from kgw.types import NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.backend.base import PartitionLog
    from kgw.clock import Clock
    from kgw.partitions.admission import OwnTopic
    from kgw.partitions.append.appending import AppendCounts, CheckThread
    from kgw.partitions.append.producer_entry import BatchEntry, MarkerEntry
    from kgw.partitions.append.transactions import TransactionMarker
    from kgw.partitions.view import PartitionListener
    from kgw.records.batch import RecordBatch
    from kgw.turns import Turns

_log = logging.getLogger(__name__)

# If a directory has failed permanently, every append fails: the log is not read again after each
# failure.
_REBUILD_INTERVAL_S = 1.0

# Snapshots that every checkpoint writes; each takes half a millisecond of processor time.
_ALWAYS_SAVED = 64


class ProducerDescription(NamedTuple):
    """The state of one producer in a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """NO_SEQUENCE if no batch of the epoch is known."""
    written_ms: int
    """Wall time at which the server last appended or replayed a batch or marker of the producer."""
    coordinator_epoch: int
    """The coordinator epoch of the last marker; -1 if there was none."""
    transaction_first_offset: int
    """NO_OFFSET if there is no open transaction."""


class Partition:
    """The write and read path of one partition of one topic.

    Producer state is ahead of the disk: it advances when a batch is submitted, so that the next
    batch can be checked. When an append fails, producers are fenced: idempotent batches are refused
    with an error after which clients retry, until all appends of producers in flight are answered
    and the producer state matches the log again.
    """

    __slots__ = (
        "_appended",
        "_check_thread",
        "_clock",
        "_committed_view",
        "_in_flight_count",
        "_in_flight_of_producers",
        "_is_fenced",
        "_presence",
        "_rebuild",
        "_rebuild_not_before_s",
        "_save",
        "_saves_no_more",
        "_snapshot_log_bytes",
        "_snapshot_offset",
        "_stable_bytes",
        "_stored_end",
        "_submitted_bytes",
        "_view",
        "_visible_bytes",
        "admission",
        "committed_listeners",
        "index",
        "listeners",
        "log",
        "producers",
        "skip_count",
        "topic",
    )

    admission_type = Admission

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
        """Listeners for readers of uncommitted records. Only the views change this."""
        self.committed_listeners: dict[PartitionListener, None] = {}
        """Listeners for readers up to the last stable offset."""
        self.skip_count = 0
        """Number of appends that did not begin at the end offset of the previous append.

        Not counted in a foreign topic, to which other processes append, too.
        """
        self.producers = ProducerState()
        self._presence = Presence()
        shown = topic, index, log, self.producers
        self._view = PartitionView(
            *shown, self.listeners, Isolation.READ_UNCOMMITTED, self._presence
        )
        self._committed_view = PartitionView(
            *shown, self.committed_listeners, Isolation.READ_COMMITTED, self._presence
        )
        self._clock = clock
        self._check_thread = check_thread
        self._appended = appended
        self.admission = self.admission_type(
            topic, log, self.producers, clock, check_thread, self._enter, self._enter_marker
        )
        """Appends batches and markers."""
        self._in_flight_count = 0
        self._in_flight_of_producers = 0
        self._is_fenced = False
        self._rebuild: asyncio.Task[None] | None = None
        self._rebuild_not_before_s = 0.0
        # The end offset of the answered appends, and the offset at which the next start must begin
        # to replay.
        self._stored_end = log.high_watermark
        self._snapshot_offset = log.log_start_offset
        self._snapshot_log_bytes = 0
        # Done when the snapshot that is being saved is saved, or has failed.
        self._save: asyncio.Future[None] | None = None
        self._saves_no_more = False
        # Bytes since this process opened the partition: readable by all, readable by consumers of
        # committed records, and readable once all appends in flight succeed.
        self._visible_bytes = 0
        self._stable_bytes = 0
        self._submitted_bytes = 0
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
        # A snapshot from before the log start lacks the producers of batches and markers that were
        # deleted since: such producers would seem to have skipped sequences.
        if snapshot is not None and snapshot.offset >= replay_from:
            try:
                producers.load(*decode_snapshot(snapshot.data))
                # It is not known which clock the snapshot's times come from: as for replayed
                # producers, the expiration time begins now.
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
        """Whether appends were answered since the last snapshot, and a new one may be made."""
        return self._snapshot_offset < self._stored_end and not self._is_fenced

    @property
    def is_unused(self) -> bool:
        """Whether nothing was ever appended and no append is in progress."""
        is_busy = self._in_flight_count or self.admission.queue.first is not None
        return not is_busy and not self.log.end_offset

    @property
    def grown_bytes(self) -> int:
        """Bytes that became readable since this process opened the partition.

        The appends of other processes are included. A batch counts with its size when it was
        appended.
        """
        return self._visible_bytes

    @property
    def unsaved_bytes(self) -> int:
        """How much the log has grown, or shrunk, since the last snapshot."""
        return abs(self.log.size_bytes - self._snapshot_log_bytes)

    async def save_snapshot(
        self,
        queue: asyncio.Lock | None = None,
        *,
        is_last: bool = False,
        packed_per_turn: int = PACKED_PER_TURN,
    ) -> None:
        """Store a snapshot of the producers to shorten the next replay. Raises StorageError.

        The snapshot covers the appends that have been answered and none that is in flight. Packing
        it yields to the event loop; partitions with the same `queue` pack one after the other.
        Snapshots of one partition are stored one after the other, so that none replaces a newer
        one. After a call with `is_last` none is stored: the next owner may have stored its own.
        """
        self._saves_no_more = self._saves_no_more or is_last
        while self._save is not None:
            await asyncio.wait((self._save,))
        if self._saves_no_more and not is_last:
            return
        if not self.is_dirty or self.topic.is_deleted:
            return
        save = self._save = asyncio.get_running_loop().create_future()
        try:
            await self._save_snapshot(queue, packed_per_turn)
        finally:
            self._save = None
            save.set_result(None)

    async def _save_snapshot(self, queue: asyncio.Lock | None, packed_per_turn: int) -> None:
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
        """Return a snapshot and the log's size at its time; None if the state may be wrong."""
        if not self.is_dirty:
            return None
        packed = yield from pack_producers(self.producers, per_turn)
        if packed is None or self._is_fenced:
            return None
        # The event loop has not run since the last producer was packed.
        offset, log_bytes = self._stored_end, self.log.size_bytes
        aborted = self.producers.aborted
        data = yield from encode_snapshot(packed, b"" if aborted is None else aborted.pack())
        return Snapshot(offset, data), log_bytes

    def expire_producers(self, expiration_ms: int, *, has_jumped: bool = False) -> Turns[int]:
        """Forget producers that have written nothing for `expiration_ms`; return how many.

        If the wall clock has jumped, forget none, and restart their expiration times.
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
            # A recompressed batch already has the log append time.
            batch.set_log_append_time(append_time_ms)
        if not self._in_flight_count:
            self._submitted_bytes = self._visible_bytes
        position_bytes = self._submitted_bytes
        size_bytes = PREFIX_BYTES + batch.batch_length
        self._submitted_bytes = position_bytes + size_bytes
        opened = None
        if batch.attributes & TRANSACTIONAL_FLAG:
            # Before the append, as a relaxed log may show the batch to readers before `append`
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
            # There is no transaction to end and no batch to fence: the marker would only take the
            # offset of a record that is still to be loaded.
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
            # After a failed batch without a producer id there is no producer state to repair.
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
            # Batches without a producer id may always be in flight, but do not affect producer
            # state.
            self._lift_fence()

    def _lift_fence(self) -> None:
        """Make the producer state match the log. No append of a producer may be in flight.

        Does nothing if the log has failed: refused batches may turn out to be stored at the next
        start. If a client learned of a gap in its sequences meanwhile, it would send the batch
        again in a new epoch, and the duplicate would not be recognised.
        """
        if self.log.has_failed:
            return
        if not self._in_flight_count and self.log.end_offset == self._stored_end:
            # The log has the answered appends and nothing else, as after a full disk.
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
            # Producers stay fenced: a later append tries again.
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
        # Imported here, as few clients are so old.
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
        """Notify read_committed listeners of the bytes that have become stable.

        They are notified even without new bytes, as the high watermark has moved.
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
        """Move the log start to `offset` durably. Return by how many offsets it moved.

        An offset at or below the log start changes nothing; the caller must check that `offset` is
        not above the high watermark. Raises StorageError.
        """
        log = self.log
        before = log.log_start_offset
        if offset <= before:
            return 0
        if self._snapshot_offset < offset and len(self.producers):
            # A start reads no records below `offset`. Without a snapshot it would not know the
            # producers of deleted batches, and would store a retry of such a batch again.
            await self.save_snapshot()
            if self._saves_no_more:
                raise StorageError(f"{self.topic.name}-{self.index} is given up to another owner")
        if offset == log.end_offset:
            await self.close_active_segment()
        await log.drop_before(offset)
        self.forget_aborted()
        # A long poll may wait at an offset that has just been deleted.
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

    # --- changes of the placement ----------------------------------------------------------------

    def retire(self, code: ErrorCode) -> None:
        """Wake all waiting readers.

        From now on requests for the partition are answered with `code`.
        """
        self._presence.gone_code = code
        self.end_waits()

    @property
    def is_retired(self) -> bool:
        """Whether this node no longer serves the partition."""
        return self._presence.gone_code is not None

    def end_waits(self) -> None:
        """Wake all waiting readers, and make the other listeners check the partition again."""
        for listener in (*self.listeners, *self.committed_listeners):
            listener.fire()


def most_grown(partitions: list[Partition], leave_bytes: int) -> list[Partition]:
    """Return the most grown partitions, so that the others leave `leave_bytes` to replay.

    Returns all if there are few.
    """
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
