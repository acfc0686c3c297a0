"""Kafka's offset and time index of a segment, written for Kafka's own tools.

Nothing here reads them: lookups go by the side file, which is checked. So they can be written late
(at checkpoints, rolls and at the end), need no sync, and are built anew when they do not fit.

Offset index, 8 bytes an entry: offset relative to the segment i32, position i32. Time index, 12
bytes: largest timestamp so far i64, relative offset of the batch that has it i32. An entry names
the *last* offset of its batch (KAFKA-4586: since format 2 a batch is known by its last offset).
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
    """One of the two files: how much has been written, and what is to be written behind it."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.entries = bytearray()


class IndexBuilder:
    """The rules by which Kafka makes index entries, and what has been decided so far."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.done = 0
        """Batches seen."""
        self.end_position = 0
        """Where the last of them ends."""
        self.offsets = GatheredIndex()
        self.times = GatheredIndex()
        self._bytes_since = 0
        self._largest_ms = NO_TIMESTAMP_MS
        self._largest_offset = 0
        self._last_time_ms = NO_TIMESTAMP_MS

    def add(self, entry: SideEntry, last_offset: int, interval_bytes: int) -> None:
        """Take the next batch."""
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
        """Note the largest timestamp so far, unless it has been."""
        if self._largest_ms > self._last_time_ms:
            self.times.entries += TIME_ENTRY.pack(
                self._largest_ms, self._largest_offset - self.base_offset
            )
            self._last_time_ms = self._largest_ms
