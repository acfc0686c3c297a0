"""Appends that are acknowledged before they are durable: kgw.durability=relaxed.

A relaxed log acknowledges a record and shows it to consumers once the operating system has it, and
syncs it a little later. A power loss may remove such records, but their offsets are never assigned
to other records. For this, the log durably reserves offsets before it acknowledges records with
these offsets. After an unclean stop, the log continues above the reservation. If an append's
offsets are not reserved, the append is made durable first, as in a strict log. So no append waits
for a reservation.

Plain code without threads. `reserve` runs in a thread that may wait for the disk, all other methods
in the flusher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded import layout
from kgw.backend.embedded.failures import SyncFailedError
from kgw.backend.embedded.files.durability import replace_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.segmented_log import DurableMark, SegmentedLog


class Flush(NamedTuple):
    """A log that is about to be synced up to a mark."""

    log: SegmentedLog
    mark: DurableMark


class RelaxedLogs:
    """The logs of a data directory that have unsynced records, and their reservations."""

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self._options = directory.options
        self._unsynced: dict[SegmentedLog, None] = {}
        self.reserve_soon: Callable[[SegmentedLog, int], object] = self.reserve
        """Makes a reservation, by default at once. The backend sets a function that does it in a
        thread."""

    # --- answering before a sync ---------------------------------------------------------------

    def may_wait(self, log: SegmentedLog, end_offset: int) -> bool:
        """Return whether a relaxed log may acknowledge an append before it is durable.

        The append ends at `end_offset`.
        """
        self._reserve_ahead(log, end_offset)
        return (
            end_offset <= log.reserved_end
            and end_offset - log.durable_end < log.settings.flush_interval_messages
            and (log in self._unsynced or len(self._unsynced) < self._options.unsynced_segments)
        )

    def note(self, log: SegmentedLog, before: DurableMark | None) -> None:
        """Mark the batches that were written to a log after `before` as not durable."""
        log.leave_unsynced(before)
        self._unsynced[log] = None

    def settle(self, log: SegmentedLog) -> None:
        """Record that all batches of a log are durable, or that the log is deleted."""
        log.durable = None
        self._unsynced.pop(log, None)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that a power loss may remove. Approximate if read in another thread."""
        return sum(log.unsynced_bytes for log in list(self._unsynced))

    def at_risk(self) -> str | None:
        """Return a sentence about acknowledged records that are not durable, or None."""
        logs = [log for log in list(self._unsynced) if log.durable is not None]
        count = sum(log.written_end - log.durable_end for log in logs)
        if not count:
            return None
        return (
            f"{count} records of {len(logs)} relaxed partitions have been answered and are not "
            "durable: the next start may not find them"
        )

    # --- syncing -------------------------------------------------------------------------------

    def begin_flush(self, logs: Iterable[SegmentedLog]) -> list[Flush]:
        """Return the segments to sync, and the mark up to which each sync counts."""
        marks = ((log, log.mark()) for log in logs if not log.is_deleted)
        return [Flush(log, mark) for log, mark in marks if mark is not None]

    def finish_flush(
        self, flushes: Sequence[Flush], outcomes: Sequence[SyncFailedError | None]
    ) -> list[tuple[SegmentedLog, int]]:
        """Process the results of the syncs; return the new durable end of each synced log."""
        moved: list[tuple[SegmentedLog, int]] = []
        for (log, mark), failure in zip(flushes, outcomes, strict=True):
            if failure is not None:
                self.directory.fail(failure)
            elif not log.is_deleted:
                self._take_durable(log, mark)
                moved.append((log, mark.end_offset))
        return moved

    def _take_durable(self, log: SegmentedLog, mark: DurableMark) -> None:
        durable = log.durable
        if durable is None:
            self._unsynced.pop(log, None)
            return
        if durable.end_offset >= mark.end_offset:
            # A roll has already synced this segment.
            return
        if mark.end_offset == log.written_end:
            self.settle(log)
        else:
            log.durable = mark
        try:
            mark.segment.write_side(durable_count=mark.entry_count)
        except OSError as error:
            self.directory.report(f"{mark.segment.side_path}: {error}")

    # --- reserving -----------------------------------------------------------------------------

    def _reserve_ahead(self, log: SegmentedLog, end_offset: int) -> None:
        """Request the next reservation before the last one is used up."""
        options = self._options
        # Twice the offsets that the log has assigned since it was opened, so that a busy log
        # reserves rarely, and an idle log skips few offsets after an unclean stop.
        count = min(
            max(2 * (end_offset - log.first_offset), options.reserved_offsets),
            options.reserved_offsets_max,
        )
        if log.reserved_end - end_offset < count // 2 and not log.is_reserving:
            log.is_reserving = True
            self.reserve_soon(log, end_offset + count)

    def release(self, log: SegmentedLog) -> None:
        """Remove the reservation of a log that became strict, so that no start skips offsets."""
        if log.durable is not None or log.is_reserving:
            return
        log.reserved_end = 0
        log.is_reserving = True
        self.reserve_soon(log, 0)

    def reserve(self, log: SegmentedLog, reserved_end: int) -> None:
        """Durably reserve the offsets below `reserved_end`; 0 removes the reservation."""
        if log.is_deleted:
            return
        path = f"{log.path}/{layout.RESERVATION_NAME}"
        try:
            replace_durably(log.directory.fs, path, layout.encode_reservation(reserved_end))
            log.reserved_end = reserved_end
        except OSError as error:
            if not log.is_deleted:
                self.directory.report(f"{path}: {error}; appends are made durable for now")
        except SyncFailedError as error:
            if not log.is_deleted:
                self.directory.fail(error)
        finally:
            log.is_reserving = False
