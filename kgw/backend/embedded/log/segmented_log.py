"""One partition's log in segments: what the flusher writes and what everybody may ask.

Plain code without threads. Who may call what: offsets, attempts and `begin_append` belong to the
event loop; everything that writes belongs to the flusher; reading is in `reading`, for any thread,
and goes by tuples that the flusher replaces as a whole.
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
    """A place between two batches up to which a sync has made a log durable, or is about to."""

    segment: Segment
    """The last one; a roll has synced those before it."""
    position: int
    entry_count: int
    """Batches of the segment before the place."""
    end_offset: int


class SegmentedLog:
    """Segments, offsets, leader epochs and what is known to be damaged."""

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
        """The offset after the last batch that is in a segment, as the flusher knows it."""
        self.durable: DurableMark | None = None
        """How far the log is durable; None when all of `written_end` is, as always but in a relaxed
        log."""
        self.first_offset = offsets.next_offset
        """Where appending has begun since the log was opened."""
        self.reserved_end = 0
        """Offsets below it may be answered before they are durable: no start goes on below it."""
        self.is_reserving = False
        """Whether `reserved_end` is about to change."""
        self.gaps: tuple[Gap, ...] = ()
        self.compacted_end = 0
        """Below it every key has one record, as far as is known."""
        self.recompressed = Recompressed()
        self.noted_log_start = 0
        """The log start in `log-state.json`, which may be ahead of the one that is shown."""
        self.state_is_stale = False
        """Whether `log-state.json` lacks something that must be in it before the next append."""
        self.attempt = 0
        """Goes up with each failure that becomes known: what was submitted before fails, too."""
        self.refused_attempt = _NEVER
        self.is_deleted = False
        self.is_changed = False
        """Whether anything was appended or moved since the last checkpoint."""
        self.has_clean_checkpoint = False
        """Whether the checkpoint in the state store is one of an orderly stop."""
        self.unindexed: dict[Segment, None] = {}
        """Sealed segments whose Kafka indexes are not complete."""
        self._marks: list[tuple[Segment, SegmentMark]] = []
        self._created: list[Segment] = []
        self._segments_before: tuple[Segment, ...] = ()
        self._saving = Lock()
        """Held by whoever writes `log-state.json`."""

    def __repr__(self) -> str:
        return f"<SegmentedLog {self.key} {self.offsets!r}>"

    # --- asking --------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The epoch that appends are stamped with now."""
        return self.epochs[-1].leader_epoch

    @property
    def size_bytes(self) -> int:
        """Bytes in all segments."""
        return sum(segment.size_bytes for segment in self.segments)

    def epoch_end(self, leader_epoch: int) -> EpochEnd | None:
        """Return where an epoch ended, as `PartitionLog.epoch_end`."""
        return find_epoch_end(self.epochs, leader_epoch, self.offsets.next_offset)

    def epoch_at(self, offset: int) -> int:
        """Return the epoch under which `offset` was, or would next be, written."""
        return find_epoch_at(self.epochs, offset)

    def damage_at(self, offset: int) -> DamagedRange | None:
        """Return the damaged range that holds `offset`."""
        for damaged in self.damaged:
            if damaged.start_offset <= offset < damaged.end_offset:
                return damaged
        return None

    def is_gone_below(self, end_offset: int) -> bool:
        """Whether nothing below an offset is left to be read."""
        return self.is_deleted or self.offsets.log_start_offset >= end_offset

    def is_in_gap(self, offset: int) -> bool:
        """Whether `offset` was left out: no reader has a reason to stand there."""
        if not self.gaps:
            return False
        start_offset = self.offsets.log_start_offset
        return any(
            max(gap.start_offset, start_offset) < offset < gap.end_offset for gap in self.gaps
        )

    # --- submitting: the event loop ------------------------------------------------------------

    def begin_append(self, batches: Sequence[RecordBatch]) -> int:
        """Give the batches their offsets and epoch; returns the first offset."""
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

    # --- writing: the flusher ------------------------------------------------------------------

    def begin_write(self) -> None:
        """Remember where the log stands, for `undo`."""
        self._segments_before = self.segments
        self._marks.clear()
        self._created.clear()

    def write(self, batches: Sequence[RecordBatch]) -> list[Redo]:
        """Write batches behind the last one, without a sync of the end, and say where they are.

        In a strict log everything before them is durable, but for the names of new segments:
        `has_new_names`.
        Raises OSError, after which `undo` is called, or SyncFailedError.
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

    @property
    def has_new_names(self) -> bool:
        """Whether segments have begun since `begin_write`."""
        return bool(self._created)

    def _begin_segment(self, base_offset: int) -> Segment:
        """Begin a segment. That it exists proves everything below it: the old one is synced.

        Before its name is durable nothing may rest on it.
        """
        if self.segments:
            old = self.segments[-1]
            self._marks.append((old, SegmentMark(old)))
            old.sync()
            if old in self._created:
                # Its own name comes first, or a crash could leave the new one alone.
                sync_directory(self.directory.fs, self.path)
            old.write_side(at_least_bytes=1)
            self.unindexed[old] = None
        segment = Segment(self.path, base_offset, self.directory.pool)
        self._created.append(segment)
        # The side file first: what a stop has left of an old one would speak for an empty segment.
        for path in (segment.side_path, segment.log_path):
            with self.directory.pool.acquire(path, create=True) as pooled:
                # A crash may have left a file of this name that no checkpoint ever knew. Durably:
                # old side entries behind new batches would call these damaged.
                was_empty = not pooled.file.size()
                pooled.file.truncate(0)
                if not was_empty:
                    self.directory.pool.sync(pooled)
        self.segments = (*self.segments, segment)
        return segment

    @property
    def durable_end(self) -> int:
        """The offset after the last batch that no power loss takes, as the flusher knows it."""
        return self.written_end if self.durable is None else self.durable.end_offset

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a power loss may take."""
        durable = self.durable
        return 0 if durable is None else durable.segment.size_bytes - durable.position

    def mark(self) -> DurableMark | None:
        """Return the end of what is written, to be synced from here; None without a segment."""
        if not self.segments:
            return None
        segment = self.segments[-1]
        return DurableMark(segment, segment.size_bytes, segment.entry_count, self.written_end)

    def leave_unsynced(self, before: DurableMark | None) -> None:
        """Note that what was written after `before`, or in a new segment, is not durable."""
        durable = self.durable or before
        segment = self.segments[-1]
        if durable is None or durable.segment is not segment:
            durable = DurableMark(segment, 0, 0, segment.base_offset)
        self.durable = durable

    def undo(self) -> None:
        """Take back what was done since `begin_write`. Raises OSError, SyncFailedError."""
        fs = self.directory.fs
        self.segments = self._segments_before
        # The last one first, each durably: that a segment exists proves everything below it, so
        # that a stop in between would leave a hole which the next start takes for damage.
        for segment in reversed(self._created):
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
        self._created.clear()

    def save_state(self) -> None:
        """Write log start, epochs and damage, durably, and Kafka's form of the epochs beside it.

        Raises OSError when there is no room for it, SyncFailedError when the disk fails.
        """
        self._save_log_state(
            self.offsets.log_start_offset,
            {layout.EPOCHS_NAME: layout.encode_epochs(self.epochs)},
        )
        self.state_is_stale = False

    def save_log_start(self, log_start_offset: int) -> None:
        """Note a log start, durably, before it is shown. In any thread. Raises as `save_state`."""
        self._save_log_state(log_start_offset, {})

    def _save_log_state(self, log_start_offset: int, others: Mapping[str, bytes]) -> None:
        with self._saving:
            # What has been noted may be shown at any moment now: it must not go back.
            log_start_offset = max(log_start_offset, self.noted_log_start)
            state = LogState(
                log_start_offset,
                self.epochs,
                self.damaged,
                self.gaps,
                self.compacted_end,
                self.recompressed,
            )
            write_log_state(self.directory.fs, self.path, state, others)
            self.noted_log_start = log_start_offset

    def has_segments_below(self, offset: int) -> bool:
        """Whether there are segments that lie wholly below `offset`."""
        segments = self.segments
        return len(segments) > 1 and segments[1].base_offset <= offset

    def remove_below(self, offset: int) -> list[Segment]:
        """Take segments that lie wholly below `offset` out of the log; returns them.

        Their files are the caller's to remove.
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
        """Say how far the log is durable, or will be once its last segment has been synced."""
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
