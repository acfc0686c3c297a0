"""One partition's log as a list of segments, with its state and the flusher's methods.

Plain code without threads. `offsets`, `attempt` and `begin_append` may only be used in the event
loop. Methods that write may only be called by the flusher. Module `reading` may be used in any
thread, because the flusher replaces the tuples that it uses as a whole.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import EpochStart, Recompressed, find_epoch_at, find_epoch_end
from kgw.backend.embedded import layout
from kgw.backend.embedded.files.durability import sync_directory
from kgw.backend.embedded.layout import DamagedRange, Gap, LogState
from kgw.backend.embedded.log.journal import Redo
from kgw.backend.embedded.log.log_state import write_log_state
from kgw.backend.embedded.log.segment import Segment, SegmentMark
from kgw.offsets.recovery import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kgw.backend.base import EpochEnd, LogSettings
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.offsets.manager import PartitionOffsetManager
    from kgw.records.batch import RecordBatch
    from kgw.types import PartitionKey, TopicName

_NEVER: Final = -1


class DurableMark(NamedTuple):
    """The end of the batches that a sync has made, or will make, durable."""

    segment: Segment
    """The last segment with durable batches. Earlier segments were synced when they were rolled."""
    position: int
    entry_count: int
    """Number of durable batches in this segment."""
    end_offset: int


class SegmentedLog:
    """The segments, offsets, leader epochs and damaged ranges of a partition."""

    def __init__(
        self,
        directory: DataDirectory,
        key: PartitionKey,
        topic: TopicName,
        settings: LogSettings,
        offsets: PartitionOffsetManager,
    ) -> None:
        self.key = key
        self.topic = topic
        self.settings = settings
        self.offsets = offsets
        self.directory = directory
        self.path = directory.partition_path(key)
        self.segments: tuple[Segment, ...] = ()
        self.epochs: tuple[EpochStart, ...] = (EpochStart(0, 0),)
        self.damaged: tuple[DamagedRange, ...] = ()
        self.written_end = offsets.next_offset
        """The offset after the last batch in a segment. Set by the flusher."""
        self.durable: DurableMark | None = None
        """The end of the durable batches. None if all batches up to `written_end` are durable, as
        always in a strict log."""
        self.first_offset = offsets.next_offset
        """The offset of the first append since the log was opened."""
        self.reserved_end = 0
        """Appends below this offset may be acknowledged before they are durable, because after an
        unclean stop the log continues at or above this offset."""
        self.is_reserving = False
        """Whether a change of `reserved_end` is in progress."""
        self.gaps: tuple[Gap, ...] = ()
        self.compacted_end = 0
        """Below this offset each key has only one record."""
        self.recompressed = Recompressed()
        self.noted_log_start = 0
        """The log start in `log-state.json`, which may be ahead of the one that clients see."""
        self.state_is_stale = False
        """Whether `log-state.json` must be written before the next append."""
        self.attempt = 0
        """Incremented when a write fails. Appends that were submitted before that also fail."""
        self.refused_attempt = _NEVER
        self.is_deleted = False
        self.is_changed = False
        """Whether the log was changed since the last checkpoint."""
        self.has_clean_checkpoint = False
        """Whether the checkpoint in the state store was made by an orderly stop."""
        self.unindexed: dict[Segment, None] = {}
        """Sealed segments whose Kafka indexes are incomplete."""
        self._marks: list[tuple[Segment, SegmentMark]] = []
        self.new_segments: list[Segment] = []
        """The segments begun since `begin_write`, whose names may not be durable yet."""
        self._segments_before: tuple[Segment, ...] = ()
        self._saving = Lock()
        """Held while `log-state.json` is written."""

    def __repr__(self) -> str:
        return f"<SegmentedLog {self.key} {self.offsets!r}>"

    # --- queries -------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of new appends."""
        return self.epochs[-1].leader_epoch

    @property
    def size_bytes(self) -> int:
        """Size of all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Return where an epoch ended, as `PartitionLog.epoch_end` does."""
        return find_epoch_end(self.epochs, leader_epoch, self.offsets.next_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, which may be the next record."""
        return find_epoch_at(self.epochs, offset)

    def damage_at(self, offset: int) -> DamagedRange | None:
        """Return the damaged range that contains `offset`, or None."""
        for damaged in self.damaged:
            if damaged.start_offset <= offset < damaged.end_offset:
                return damaged
        return None

    def is_gone_below(self, end_offset: int) -> bool:
        """Return whether no record below `end_offset` can be read any more."""
        return self.is_deleted or self.offsets.log_start_offset >= end_offset

    def is_in_gap(self, offset: int) -> bool:
        """Return whether `offset` lies inside a gap."""
        start_offset = self.offsets.log_start_offset
        return any(
            max(gap.start_offset, start_offset) < offset < gap.end_offset for gap in self.gaps
        )

    # --- submitting: the event loop ------------------------------------------------------------

    def begin_append(self, batches: Sequence[RecordBatch]) -> int:
        """Assign offsets and the leader epoch to the batches; return the first offset."""
        leader_epoch = self.epochs[-1].leader_epoch
        if len(batches) == 1:
            batch = batches[0]
            base_offset = self.offsets.assign(batch.last_offset_delta + 1)
            batch.assign(base_offset, leader_epoch)
            return base_offset
        base_offsets = self.offsets.assign_many([batch.last_offset_delta + 1 for batch in batches])
        for batch, base_offset in zip(batches, base_offsets, strict=True):
            batch.assign(base_offset, leader_epoch)
        return base_offsets[0]

    def begin_epoch(self, leader_epoch: int, start_offset: int) -> None:
        """Begin a leader epoch. It is stored before its first batch is written."""
        epochs = list(self.epochs)
        while epochs and epochs[-1].start_offset >= start_offset:
            # No record was written in this epoch.
            epochs.pop()
        self.epochs = (*epochs, EpochStart(leader_epoch, start_offset))
        self.state_is_stale = self.is_changed = True

    # --- writing: the flusher ------------------------------------------------------------------

    def begin_write(self) -> None:
        """Remember the current end of the log, for `undo`."""
        self._segments_before = self.segments
        self._marks.clear()
        self.new_segments.clear()

    def write(self, batches: Sequence[RecordBatch]) -> list[Redo]:
        """Append batches without syncing the last segment; return their bytes and positions.

        In a strict log this makes the batches in all earlier segments durable, but not the names of
        new segments (`new_segments`). Raises OSError, after which the caller must call `undo`, or
        SyncFailedError.
        """
        if self.state_is_stale:
            self.save_state()
        self.is_changed = True
        redos: list[Redo] = []
        segment = self.segments[-1] if self.segments else None
        start = 0
        while start < len(batches):
            end = start if segment is None else segment.room_for(batches, start, self.settings)
            if segment is None or end == start:
                segment = self._begin_segment(batches[start].base_offset)
                end = segment.room_for(batches, start, self.settings)
            else:
                self._marks.append((segment, SegmentMark(segment)))
            position = segment.size_bytes
            if position == 0:
                segment.begun_ms = self.directory.wall_ms()
            buffers = segment.write(batches[start:end], self.settings)
            size_bytes = segment.size_bytes - position
            redos.append(Redo(self.key, segment.base_offset, position, buffers, size_bytes))
            start = end
        return redos

    def roll(self, base_offset: int) -> Segment:
        """Begin a segment, durably."""
        segment = self._begin_segment(base_offset)
        sync_directory(self.directory.fs, self.path)
        return segment

    def _begin_segment(self, base_offset: int) -> Segment:
        """Begin a new segment, after a sync of the last one.

        If a segment exists, everything before it is durable. Nothing may depend on the new segment
        before its name is durable.
        """
        if self.segments:
            old = self.segments[-1]
            self._marks.append((old, SegmentMark(old)))
            old.sync()
            if old in self.new_segments:
                # The old segment's name must be durable first, or a crash could leave only the new
                # segment.
                sync_directory(self.directory.fs, self.path)
            old.write_side(at_least_bytes=1)
            self.unindexed[old] = None
        segment = Segment(self.path, base_offset, self.directory.pool)
        self.new_segments.append(segment)
        # Create and truncate the side file first. Otherwise a crash could leave an old side file
        # with entries beside an empty segment.
        for path in (segment.side_path, segment.log_path):
            with self.directory.pool.acquire(path, create=True) as pooled:
                # A crash may have left a file with this name. Make the truncation durable, because
                # old side entries would make new batches look damaged.
                was_empty = not pooled.file.size()
                pooled.file.truncate(0)
                if not was_empty:
                    self.directory.pool.sync(pooled)
        self.segments = (*self.segments, segment)
        return segment

    @property
    def durable_end(self) -> int:
        """The offset after the last durable batch, as far as the flusher knows."""
        return self.written_end if self.durable is None else self.durable.end_offset

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a power loss may remove."""
        durable = self.durable
        return 0 if durable is None else durable.segment.size_bytes - durable.position

    def mark(self) -> DurableMark | None:
        """Return the current end of the written batches, for a sync; None without a segment."""
        if not self.segments:
            return None
        segment = self.segments[-1]
        return DurableMark(segment, segment.size_bytes, segment.entry_count, self.written_end)

    def leave_unsynced(self, before: DurableMark | None) -> None:
        """Mark the batches written after `before`, or in a new segment, as not durable."""
        durable = self.durable or before
        segment = self.segments[-1]
        if durable is None or durable.segment is not segment:
            durable = DurableMark(segment, 0, 0, segment.base_offset)
        self.durable = durable

    def undo(self) -> None:
        """Undo the writes since `begin_write`. Raises OSError, SyncFailedError."""
        fs = self.directory.fs
        self.segments = self._segments_before
        # Remove the newest segment first, and sync each removal. If an older segment were removed
        # first, a crash could leave a hole before the newer one, which the next start would report
        # as damage.
        for segment in reversed(self.new_segments):
            segment.forget()
            has_removed = False
            for path in (segment.side_path, segment.log_path):
                if fs.exists(path):
                    fs.unlink(path)
                    has_removed = True
            if has_removed:
                sync_directory(self.directory.fs, self.path)
        for segment, mark in reversed(self._marks):
            if segment in self.segments:
                segment.go_back(mark)
        if self.segments:
            self.unindexed.pop(self.segments[-1], None)
        self._marks.clear()
        self.new_segments.clear()

    def save_state(self) -> None:
        """Durably store log start, epochs (also in Kafka's format) and damaged ranges.

        Raises OSError if the disk has no space for it, SyncFailedError if the disk fails.
        """
        self._save_log_state(
            self.offsets.log_start_offset,
            {layout.EPOCHS_NAME: layout.encode_epochs(self.epochs)},
        )
        self.state_is_stale = False

    def save_log_start(self, log_start_offset: int) -> None:
        """Store a new log start durably, before clients see it. In any thread.

        Raises the errors of `save_state`.
        """
        self._save_log_state(log_start_offset, {})

    def _save_log_state(self, log_start_offset: int, others: Mapping[str, bytes]) -> None:
        with self._saving:
            # Clients may see the stored log start at any moment, so it must not decrease.
            state = self.state_from(max(log_start_offset, self.noted_log_start))
            write_log_state(self.directory.fs, self.path, state, others)
            self.noted_log_start = state.log_start_offset

    def state_from(self, log_start_offset: int) -> LogState:
        """Return the content of `log-state.json` for a log with this start."""
        return LogState(
            log_start_offset,
            self.epochs,
            self.damaged,
            self.gaps,
            self.compacted_end,
            self.recompressed,
        )

    def has_segments_below(self, offset: int) -> bool:
        """Return whether there are segments that lie wholly below `offset`."""
        segments = self.segments
        return len(segments) > 1 and segments[1].base_offset <= offset

    def remove_below(self, offset: int) -> list[Segment]:
        """Take segments that lie wholly below `offset` out of the log, and return them.

        The caller removes their files.
        """
        self.is_changed = True
        segments = self.segments
        kept = 0
        while kept + 1 < len(segments) and segments[kept + 1].base_offset <= offset:
            kept += 1
        removed = list(segments[:kept])
        self.segments = segments[kept:]
        for segment in removed:
            segment.is_removed = True
            self.unindexed.pop(segment, None)
        return removed

    def make_checkpoint(self, *, clean: bool) -> Checkpoint:
        """Return a checkpoint of the durable end of the log.

        In a strict log, the caller syncs the last segment before the checkpoint is stored.
        """
        segment = self.segments[-1] if self.segments else None
        position = segment.size_bytes if segment else 0
        if self.durable is not None:
            segment, position = self.durable.segment, self.durable.position
        return Checkpoint(
            topic_id=self.key.topic_id,
            partition=self.key.partition,
            log_start_offset=self.offsets.log_start_offset,
            next_offset=self.durable_end,
            leader_epoch=self.leader_epoch,
            segment_base_offset=segment.base_offset if segment else self.written_end,
            segment_position=position,
            clean=clean,
        )
