"""Segments that the journal vouches for, and journal files that are full.

Small appends to many partitions share one sync of the journal; their segments are synced when its
file is full, and the file is used again after that.

Plain code without threads. `retire` belongs to a thread that may wait for the disk, all else to
whoever writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.backend.embedded.failures import SyncFailedError, is_out_of_space
from kgw.backend.embedded.write.segment_syncs import sync_segments

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kgw.backend.embedded.log.data_directory import DataDirectory
    from kgw.backend.embedded.log.journal import Journal, Redo
    from kgw.backend.embedded.log.segment import Segment


class Retirement(NamedTuple):
    """A journal file that is full, and the segments whose bytes it vouches for."""

    journal_number: int
    segments: list[Segment]


class JournaledSegments:
    """What the journal's file in use vouches for, and the way of a group into it."""

    def __init__(self, directory: DataDirectory, journal: Journal) -> None:
        self._directory = directory
        self._journal = journal
        self.retire_soon: Callable[[Retirement], None] = self.retire
        """What is done with a full journal file; at once, unless a shell has something better."""
        self._dirty: dict[Segment, None] = {}
        """Written, and not synced since."""
        self._postponed: Retirement | None = None
        """A journal file that could not be made usable again, for want of space."""

    def note(self, segment: Segment) -> None:
        """Note that the journal has been synced with the newest bytes of a segment."""
        self._dirty[segment] = None

    def forget(self, segment: Segment) -> None:
        """Note that a segment has been synced, or is no more."""
        self._dirty.pop(segment, None)

    def append(self, redos: Sequence[Redo]) -> bool:
        """Have one sync make a group of small appends durable; False when it is not the way."""
        journal = self._journal
        size_bytes = 0
        for redo in redos:
            size_bytes += redo.size_bytes
        options = self._directory.options
        if not journal.is_ready or size_bytes > len(redos) * options.journal_append_bytes:
            return False
        crowded = len(self._dirty) >= options.dirty_segments
        if (crowded or not journal.has_room(len(redos), size_bytes)) and not (
            self.switch() and journal.has_room(len(redos), size_bytes)
        ):
            return False
        try:
            journal.append(redos)
        except OSError as error:
            # The frame counts for nothing; should it be read nevertheless after a crash, it
            # repeats what the segments are about to make durable.
            self._directory.report(f"journal: {error}; this group syncs its segments")
            return False
        return True

    def switch(self) -> bool:
        """Go on in the other journal file; False while that is not usable again."""
        if self._postponed is not None:
            retirement, self._postponed = self._postponed, None
            self.retire_soon(retirement)
        if not self._journal.has_free_file:
            return False
        retirement = Retirement(self._journal.switch(), list(self._dirty))
        self._dirty.clear()
        self.retire_soon(retirement)
        return True

    def retire(self, retirement: Retirement) -> None:
        """Make a full journal file usable again: what it vouches for is synced where it belongs."""
        directory = self._directory
        if directory.failure is not None:
            return
        try:
            # Side by side: until they are done each group of other partitions syncs its segments.
            left = [segment for segment in retirement.segments if not segment.is_removed]
            for failure in sync_segments(left):
                if failure is not None:
                    raise failure
            self._journal.retire(retirement.journal_number)
        except (OSError, SyncFailedError) as error:
            if isinstance(error, OSError) and is_out_of_space(error):
                # Where files are not written in place even a journal can find the disk full. All
                # that it vouches for is durable where it belongs; groups sync their segments.
                directory.report(f"journal: {error}; every append syncs its segment for now")
                self._postponed = retirement
            else:
                directory.fail(error)
