"""Kafka's offset and time index of a segment, written for Kafka's own tools.

kgw never reads them: lookups use the side file, which has checksums. So the indexes are written
only at checkpoints, rolls and an orderly stop, without a sync, and are rebuilt if they do not match
the segment.

Entry of the offset index, 8 bytes: offset relative to the segment i32, position i32. Entry of the
time index, 12 bytes: largest timestamp so far i64, relative offset of the batch with that timestamp
i32. Both indexes store the *last* offset of a batch (KAFKA-4586).
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.backend.embedded import layout
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.backend.embedded.log.side import SideEntry

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class GatheredIndex:
    """An index file's number of written bytes, and the entries to append to it."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.entries = bytearray()


class IndexBuilder:
    """Makes index entries of a segment's batches, by Kafka's rules."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.done = 0
        """Number of batches added so far."""
        self.end_position = 0
        """Position at which the last added batch ends."""
        self.offsets = GatheredIndex()
        self.times = GatheredIndex()
        self._bytes_since = 0
        self._largest_ms = NO_TIMESTAMP_MS
        self._largest_offset = 0
        self._last_time_ms = NO_TIMESTAMP_MS

    def add(self, entry: SideEntry, last_offset: int, interval_bytes: int) -> None:
        """Add the next batch of the segment."""
        if entry.largest_timestamp_ms > self._largest_ms:
            self._largest_ms = entry.largest_timestamp_ms
            self._largest_offset = last_offset
        if self._bytes_since > interval_bytes:
            relative = last_offset - self.base_offset
            if relative <= layout.MAX_POSITION:
                self.offsets.entries += OFFSET_ENTRY.pack(relative, entry.position)
                self.add_time()
            self._bytes_since = 0
        self._bytes_since += entry.size_bytes
        self.done += 1
        self.end_position = entry.end_position

    def add_time(self) -> None:
        """Add a time index entry for the largest timestamp so far, unless there is one."""
        if self._largest_ms > self._last_time_ms:
            self.times.entries += TIME_ENTRY.pack(
                self._largest_ms, self._largest_offset - self.base_offset
            )
            self._last_time_ms = self._largest_ms
