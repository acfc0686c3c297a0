"""Opens the log in a partition's directory, and recovers it after an unclean stop.

Each step may be interrupted and repeated. `journal_replay` has already written the journal's
entries to the segments.

Some batches are known to have been durable, so broken ones are damaged and not torn. These are the
batches below the base offset of the last segment (a roll syncs the segment before it), below the
checkpoint, below any "durable end" in the side file, and in the journal. Bytes after them belong to
a group that may never have been acknowledged. Whole batches of such a group are kept, and the
remaining bytes are cut off.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.base import EpochStart
from kgw.backend.embedded import layout
from kgw.backend.embedded.files.durability import replace_durably, sync_directory
from kgw.backend.embedded.layout import DamagedRange, Gap, LogState
from kgw.backend.embedded.log.log_state import mend_log_state, read_log_state
from kgw.backend.embedded.log.segment import Segment, SideFileDamagedError
from kgw.backend.embedded.log.segmented_log import SegmentedLog
from kgw.backend.embedded.log.side import ENTRY_BYTES, decode_entry, last_mark
from kgw.backend.embedded.log.swap import finish_swaps
from kgw.offsets.manager import PartitionOffsetManager
from kgw.offsets.recovery import (
    AnomalyKind,
    RecoveryFacts,
    ScanResult,
    SegmentFacts,
    conclude_recovery,
    plan_recovery,
)
from kgw.problems import DAMAGE
from kgw.types import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections import Counter

    from kgw.backend.base import LogSettings
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.recover.scan import SegmentScan
    from kgw.offsets.recovery import Checkpoint, RecoveryPlan, ScanStart
    from kgw.types import PartitionKey, TopicName

_LOSSES: Final = frozenset({AnomalyKind.LOG_MISSING, AnomalyKind.RECORDS_MISSING})
_GAPS: Final = 100
"""Number of newest gaps that a log remembers. A consumer in an older gap continues with the next
record, without an error."""
_UNKNOWN_RESERVATION: Final = 1 << 33
"""Added to the last known offset if a reservation cannot be read, so that no offset is assigned
twice. It is more than can have been acknowledged after that offset. There are plenty of offsets."""


class _Scanned(NamedTuple):
    """The result of scanning the segments of a log."""

    end_offset: int
    """The offset after the last existing batch."""
    ends_in_damage: bool
    damaged: list[DamagedRange]
    epochs: list[EpochStart]


class LogRecovery:
    """Opens or recovers one partition's log from its directory."""

    def __init__(
        self,
        directory: DataDirectory,
        anomaly_counts: Counter[AnomalyKind],
        key: PartitionKey,
        topic: TopicName,
        settings: LogSettings,
        checkpoint: Checkpoint | None,
        *,
        checkpoint_damaged: bool,
        clean_stop: bool,
        proven_end: int,
    ) -> None:
        """The partition's directory must exist; anomalies are counted in `anomaly_counts`."""
        self._directory = directory
        self._anomaly_counts = anomaly_counts
        self._key = key
        self._topic = topic
        self._settings = settings
        self._checkpoint = checkpoint
        self._checkpoint_damaged = checkpoint_damaged
        self._clean_stop = clean_stop
        self._path = directory.partition_path(key)
        self._proven_end = proven_end
        self._segments: list[Segment] = []
        self._state = LogState()
        self._state_is_lost = False
        self._least_epoch = NO_LEADER_EPOCH
        self._scanned: _Scanned | None = None
        self._names: frozenset[str] = frozenset()
        self._reserved_end = 0
        self._gap: Gap | None = None
        """The offsets that this start skips, if any."""

    def run(self) -> SegmentedLog:
        """Open and recover the log. Raises OSError, SyncFailedError."""
        checkpoint, clean_stop = self._checkpoint, self._clean_stop
        self._look()
        if not clean_stop:
            # Renames and removals by a killed process may not be durable yet. Sync them before
            # clients see their result, so that the log start does not go back at a power loss.
            sync_directory(self._directory.fs, self._path)
        if self._state_is_lost:
            # The history of epochs must be read from the batches, so all batches are scanned.
            if checkpoint is not None and self._is_own(checkpoint):
                self._take_floor(checkpoint)
            checkpoint, clean_stop = None, False
        facts = RecoveryFacts(
            topic_id=self._key.topic_id,
            partition=self._key.partition,
            segments=[SegmentFacts(one.base_offset, one.size_bytes) for one in self._segments],
            clean_stop=clean_stop,
            log_start_offset=self._state.log_start_offset,
            leader_epoch=max(self._state.epochs[-1].leader_epoch, self._least_epoch),
            reserved_end=self._reserved_end,
        )
        plan = plan_recovery(checkpoint, facts, checkpoint_damaged=self._checkpoint_damaged)
        recovered = conclude_recovery(plan, None if plan.scan is None else self._scan(plan))
        self._anomaly_counts.update(one.kind for one in recovered.anomalies)
        offsets = PartitionOffsetManager(recovered.log_start_offset, recovered.next_offset)
        log = SegmentedLog(self._directory, self._key, self._topic, self._settings, offsets)
        for anomaly in recovered.anomalies:
            if anomaly.kind is AnomalyKind.CHECKPOINT_MISSING and not self._clean_stop:
                # Every log without a checkpoint has this anomaly after a kill, so do not report it.
                continue
            finding = f"partition {self._key} of {self._topic}: {anomaly.detail}"
            if anomaly.kind is AnomalyKind.GAP_ANNOUNCED:
                self._gap = Gap(recovered.log_end_offset, recovered.next_offset)
                self._directory.note(finding)
            elif anomaly.kind in _LOSSES:
                # The problem lasts until the log start is above the gap, even if the log is empty.
                end_offset = max(recovered.next_offset, recovered.log_start_offset + 1)
                is_over = partial(log.is_gone_below, end_offset)
                self._directory.report(finding, DAMAGE, is_over)
            else:
                self._directory.report(finding)
        log.segments = tuple(self._segments)
        log.has_clean_checkpoint = checkpoint is not None and checkpoint.clean
        log.reserved_end = self._reserved_end
        self._take_state(log, recovered.leader_epoch)
        # Drop snapshots before a new segment is created, because its creation syncs the directory:
        # removed snapshots must not come back.
        self._drop_snapshots(log)
        self._take_damage(log)
        log.unindexed = {
            segment: None
            for segment in log.segments[:-1]
            if self._scanned is not None
            or f"{segment.stem}{layout.OFFSET_INDEX_SUFFIX}" not in self._names
        }
        log.is_changed = self._scanned is not None or log.state_is_stale
        return log

    def _is_own(self, checkpoint: Checkpoint) -> bool:
        return (checkpoint.topic_id, checkpoint.partition) == self._key

    def _take_floor(self, checkpoint: Checkpoint) -> None:
        """Use the checkpoint's offsets and epochs as minimums: `log-state.json` is lost."""
        self._proven_end = max(self._proven_end, checkpoint.next_offset)
        log_start_offset = max(self._state.log_start_offset, checkpoint.log_start_offset)
        self._state = self._state._replace(log_start_offset=log_start_offset)
        self._least_epoch = checkpoint.leader_epoch

    # --- reading the directory -----------------------------------------------------------------

    def _look(self) -> None:
        """Read the directory's names and small files, but no segment."""
        fs, path = self._directory.fs, self._path
        finish_swaps(self._directory, path)
        names = fs.listdir(path)
        self._names = frozenset(names)
        for name in names:
            if name.endswith((layout.DELETED_SUFFIX, layout.NEW_SIDE_SUFFIX)):
                fs.unlink(f"{path}/{name}")
                continue
            base_offset = layout.parse_stem(name, layout.LOG_SUFFIX)
            if base_offset is None:
                continue
            segment = Segment(path, base_offset, self._directory.pool)
            segment.size_bytes = fs.file_size(segment.log_path)
            segment.side = None
            segment.index_count = segment.size_bytes // max(self._settings.index_interval_bytes, 1)
            self._segments.append(segment)
        self._check_identity()
        found = read_log_state(fs, path)
        mend_log_state(fs, path, found, self._directory.report)
        state = found.state
        if state is None:
            self._state_is_lost = True
            if self._segments:
                state = LogState(self._segments[0].base_offset)
        self._state = state or LogState()
        self._reserved_end = self._read_reservation()
        self._drop_left_overs()

    def _read_reservation(self) -> int:
        """Return the end of the reserved offsets, 0 if there is no reservation."""
        if layout.RESERVATION_NAME not in self._names:
            return 0
        path = f"{self._path}/{layout.RESERVATION_NAME}"
        try:
            return layout.decode_reservation(self._directory.fs.read_bytes(path))
        except layout.SmallFileError as error:
            last = self._segments[-1].base_offset if self._segments else 0
            reserved_end = max(last, self._state.log_start_offset) + _UNKNOWN_RESERVATION
            self._directory.report(
                f"{path}: {error}; after an unclean stop the log goes on at {reserved_end}"
            )
            return reserved_end

    def _drop_left_overs(self) -> None:
        """Remove segments below the log start whose removal a crash interrupted.

        The removals were not synced, so some of the segments may be back. Therefore a hole between
        two segments is no damage here, and the checkpoint may name a missing segment.
        """
        segments = self._segments
        log_start_offset = self._state.log_start_offset
        while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
            segments.pop(0).unlink(self._directory.fs)

    def _check_identity(self) -> None:
        path = f"{self._path}/{layout.PARTITION_NAME}"
        fs = self._directory.fs
        wanted = layout.PartitionIdentity(self._topic, self._key)
        try:
            found = layout.decode_partition(fs.read_bytes(path))
            if found == wanted:
                return
            problem = f"names {found.topic} {found.key}, not {self._topic} {self._key}"
        except (FileNotFoundError, layout.SmallFileError) as error:
            problem = str(error)
        self._directory.report(f"{path}: {problem}; rewritten")
        try:
            replace_durably(fs, path, layout.encode_partition(wanted))
        except OSError as error:
            self._directory.report(f"{path}: {error}")

    # --- scanning ------------------------------------------------------------------------------

    def _scan(self, plan: RecoveryPlan) -> ScanResult:
        """Scan the segments after the checkpoint, cut off a torn tail, and return the log's end."""
        if plan.scan is None:
            return ScanResult(plan.next_offset)
        self._proven_end = max(
            self._proven_end, plan.next_offset, self._segments[-1].base_offset, self._last_mark()
        )
        damaged: list[DamagedRange] = []
        epochs: list[EpochStart] = []
        end_offset = plan.scan.next_offset
        ends_in_damage = False
        for number, segment in enumerate(self._segments):
            if segment.base_offset < plan.scan.segment_base_offset:
                continue
            following = self._segments[number + 1] if number + 1 < len(self._segments) else None
            if following is not None and not self._state_is_lost and self._is_complete(segment):
                # The next segment exists, so this one was durable. Damage in it is found when it is
                # read. But its side file may not be durable yet.
                segment.side_is_dirty = True
                end_offset = following.base_offset
                continue
            found = self._scan_segment(segment, plan.scan, following)
            damaged += found.damaged
            epochs += found.epochs
            end_offset = found.next_offset
            ends_in_damage = bool(found.damaged) and (
                found.damaged[-1].end_offset == found.next_offset
            )
            if following is not None and end_offset < following.base_offset:
                gaps = self._state.gaps
                if not layout.is_covered(end_offset, following.base_offset, gaps):
                    damaged.append(DamagedRange(end_offset, following.base_offset))
                end_offset = following.base_offset
        if end_offset < self._proven_end:
            damaged.append(DamagedRange(end_offset, self._proven_end))
        self._scanned = _Scanned(end_offset, ends_in_damage, damaged, epochs)
        leader_epoch = max((one.leader_epoch for one in epochs), default=NO_LEADER_EPOCH)
        return ScanResult(max(end_offset, self._proven_end), leader_epoch)

    def _last_mark(self) -> int:
        """Return the durable end in the last intact side entry of the last segment."""
        segment = self._segments[-1]
        fs = self._directory.fs
        if not fs.exists(segment.side_path):
            return 0
        with closing(fs.open(segment.side_path)) as file:
            return last_mark(file)

    def _is_complete(self, segment: Segment) -> bool:
        try:
            segment.load()
        except SideFileDamagedError:
            return False
        return True

    def _scan_segment(
        self, segment: Segment, scan: ScanStart, following: Segment | None
    ) -> SegmentScan:
        # Imported late: a start after an orderly stop does not need it.
        from kgw.backend.embedded.recover.repair import scan_and_repair

        position, next_offset = 0, segment.base_offset
        if segment.base_offset == scan.segment_base_offset:
            position, next_offset = scan.position, scan.next_offset
        start = None if self._state_is_lost else _side_start(segment, position)
        if start is None:
            position, next_offset, start = 0, segment.base_offset, (0, NO_TIMESTAMP_MS)
        side_index, largest_timestamp_ms = start
        # Bytes above the proven end may be only in the page cache after a failed sync. So write
        # them again before anything depends on them.
        rewrite_from = self._proven_end if following is None else None
        return scan_and_repair(
            self._directory,
            segment,
            epochs=() if self._state_is_lost else self._state.epochs,
            proven_end=self._proven_end,
            position=position,
            next_offset=next_offset,
            side_index=side_index,
            largest_timestamp_ms=largest_timestamp_ms,
            segment_end=following.base_offset if following else None,
            rewrite_from=rewrite_from,
        )

    # --- building the log ----------------------------------------------------------------------

    def _take_state(self, log: SegmentedLog, leader_epoch: int) -> None:
        """Set the log's epochs, including a new epoch that begins now, and its other state."""
        epochs = list(self._state.epochs)
        if self._state_is_lost:
            found = self._scanned.epochs if self._scanned is not None else []
            epochs = []
            for epoch in found:
                if not epochs or epoch.leader_epoch > epochs[-1].leader_epoch:
                    epochs.append(epoch)
            epochs = epochs or [EpochStart(0, log.offsets.log_start_offset)]
        log.damaged = self._state.damaged
        log.gaps = self._gaps(log.offsets.log_start_offset)
        log.compacted_end = min(self._state.compacted_end, log.offsets.next_offset)
        recompressed = self._state.recompressed
        log.recompressed = recompressed._replace(
            end_offset=min(recompressed.end_offset, log.offsets.next_offset),
            # It is unknown which segments were recompressed, so convert all records for consumers
            # without zstd.
            begun_end=log.offsets.next_offset if self._state_is_lost else recompressed.begun_end,
        )
        log.state_is_stale = self._state_is_lost
        log.epochs = tuple(epochs)
        if leader_epoch > log.leader_epoch:
            # The old epoch ends where its records end, so that a consumer that has read further
            # learns of the loss (KIP-320).
            start_offset = log.offsets.next_offset if self._gap is None else self._gap.start_offset
            log.begin_epoch(leader_epoch, start_offset)

    def _gaps(self, log_start_offset: int) -> tuple[Gap, ...]:
        """Return the gaps above the log start, which consumers may still read."""
        gaps = [gap for gap in self._state.gaps if gap.end_offset > log_start_offset]
        if self._gap is not None and self._gap not in gaps:
            gaps.append(self._gap)
        return tuple(gaps[-_GAPS:])

    def _take_damage(self, log: SegmentedLog) -> None:
        """Record damaged ranges. If the log continues after a hole, begin a new segment."""
        scanned = self._scanned
        next_offset = log.offsets.next_offset
        physical_end = scanned.end_offset if scanned is not None else next_offset
        if scanned is None and not self._segments and next_offset > log.offsets.log_start_offset:
            physical_end = log.offsets.log_start_offset
            lost_end = next_offset if self._gap is None else self._gap.start_offset
            if lost_end > physical_end:
                self._note_damage(log, [DamagedRange(physical_end, lost_end)])
        if scanned is not None:
            self._note_damage(log, scanned.damaged)
        is_broken_off = next_offset > physical_end or (
            scanned is not None and scanned.ends_in_damage
        )
        last = self._segments[-1] if self._segments else None
        if self._gap is not None:
            # Store the gap before a segment after it exists: otherwise the gap would look like
            # damage.
            self._save_state(log)
        if is_broken_off and (last is None or last.base_offset != next_offset):
            log.roll(next_offset)

    def _note_damage(self, log: SegmentedLog, damaged: list[DamagedRange]) -> None:
        fresh = [one for one in damaged if one not in log.damaged]
        if not fresh:
            return
        log.damaged = tuple(sorted({*log.damaged, *fresh}))
        for one in fresh:
            self._directory.report(
                f"partition {self._key} of {self._topic}: {one}",
                DAMAGE,
                partial(log.is_gone_below, one.end_offset),
            )
        log.state_is_stale = True
        self._save_state(log)

    def _save_state(self, log: SegmentedLog) -> None:
        """Store the log's state; if that fails, it is stored before the next append."""
        try:
            log.save_state()
        except OSError as error:
            self._directory.report(f"{self._path}/{layout.LOG_STATE_NAME}: {error}")

    def _drop_snapshots(self, log: SegmentedLog) -> None:
        """Remove snapshots that cover records which are lost.

        If such a snapshot included a lost batch, a producer's retry of this batch would be
        acknowledged as a duplicate. A snapshot at the end of this start's gap is removed, too: the
        log had used up its reservation before it stopped, so the snapshot may include lost batches.
        """
        left_out_end = NO_OFFSET if self._gap is None else self._gap.end_offset
        for name in self._names:
            offset = layout.parse_stem(name, layout.SNAPSHOT_SUFFIX)
            if offset is not None and (
                offset > log.offsets.next_offset
                or offset == left_out_end
                or any(gap.start_offset < offset < gap.end_offset for gap in log.gaps)
            ):
                self._directory.fs.unlink(f"{self._path}/{name}")


def _side_start(segment: Segment, position: int) -> tuple[int, int] | None:
    """Return the number of side entries before `position` and the largest timestamp in them.

    Returns None if no batch in the side file ends at `position`.
    """
    if position == 0:
        return 0, NO_TIMESTAMP_MS
    try:
        pooled = segment.pool.acquire(segment.side_path)
    except FileNotFoundError:
        return None
    try:
        low, high = 0, pooled.file.size() // ENTRY_BYTES
        while low < high:
            middle = (low + high) // 2
            entry = decode_entry(pooled.file.pread(ENTRY_BYTES, middle * ENTRY_BYTES))
            if entry is None:
                return None
            if entry.end_position == position:
                return middle + 1, entry.largest_timestamp_ms
            low, high = (middle + 1, high) if entry.end_position < position else (low, middle)
    finally:
        segment.pool.release(pooled)
    return None
