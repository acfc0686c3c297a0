"""Rebuilding the side file of a segment while its log is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.backend.embedded.log.segment import SideFileDamagedError
from kgw.backend.embedded.recover.repair import scan_and_repair

if TYPE_CHECKING:
    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.segment import Segment
    from kgw.backend.embedded.log.segmented_log import SegmentedLog


def rebuild_side(
    directory: DataDirectory,
    log: SegmentedLog,
    segment: Segment,
    damage: SideFileDamagedError | None = None,
) -> None:
    """Make a segment's side file anew from its batches, while the log is in use.

    With `damage`, only if that is there: a reader may have come upon a change that was under way,
    and to read a whole segment takes seconds.

    The last segment's in the flusher only; any other's in one thread at a time. One that has been
    removed is left alone. Raises OSError, SyncFailedError.
    """
    segments = log.segments
    if segment not in segments or (damage is not None and not _is_there(damage)):
        return
    directory.report(f"{segment.side_path} was damaged; rebuilt")
    number = segments.index(segment)
    segment_end = (
        segments[number + 1].base_offset if number + 1 < len(segments) else log.written_end
    )
    if log.durable is not None and segment is log.durable.segment:
        # The entries are about to say so of every batch.
        segment.sync()
        log.durable = None
    # What waits in memory is known of batches that the file knows nothing of.
    segment.write_side(at_least_bytes=1)
    scan_and_repair(
        directory,
        segment,
        epochs=log.epochs,
        proven_end=log.written_end,
        segment_end=segment_end,
        # What a failed sync has left behind it is for the next start to make durable.
        vouch_below=log.written_end,
    )


def _is_there(damage: SideFileDamagedError) -> bool:
    """Whether what a reader came upon is found again. Raises OSError."""
    try:
        damage.segment.read_entries(damage.index, damage.count)
    except SideFileDamagedError:
        return True
    return False
