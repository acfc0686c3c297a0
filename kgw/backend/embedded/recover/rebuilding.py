"""Rebuilds the side file of a segment while its log is in use."""

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
    """Rebuild a segment's side file from its batches, while the log is in use.

    With `damage`, the file is rebuilt only if a second read finds the same damage. The first reader
    may have read the file while it was being changed, and reading a whole segment takes seconds.

    For the last segment this must be called in the flusher; for other segments, in one thread at a
    time. Does nothing for a removed segment. Raises OSError, SyncFailedError.
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
        # The new entries will claim that all these batches are durable.
        segment.sync()
        log.durable = None
    # Write the entries in memory first: the file may lack them.
    segment.write_side(at_least_bytes=1)
    scan_and_repair(
        directory,
        segment,
        epochs=log.epochs,
        proven_end=log.written_end,
        segment_end=segment_end,
        # A failed sync may have left batches after this offset. New entries do not claim that these
        # are durable; the next start makes them durable.
        vouch_below=log.written_end,
    )


def _is_there(damage: SideFileDamagedError) -> bool:
    """Return whether the damage can be read again. Raises OSError."""
    try:
        damage.segment.read_entries(damage.index, damage.count)
    except SideFileDamagedError:
        return True
    return False
