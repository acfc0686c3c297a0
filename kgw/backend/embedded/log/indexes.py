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


class IndexBuilder:
    """The rules by which Kafka makes index entries, and what has been decided so far."""

    __slots__ = (
        "_bytes_since",
        "_largest_ms",
        "_largest_offset",
        "_last_time_ms",
        "base_offset",
        "done",
        "end_position",
        "offset_bytes",
        "offset_entries",
        "time_bytes",
        "time_entries",
    )

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.done = 0
        """Batches seen."""
        self.end_position = 0
        """Where the last of them ends."""
        self.offset_bytes = 0
        self.time_bytes = 0
        """Lengths of the two files."""
        self.offset_entries = bytearray()
        self.time_entries = bytearray()
        """What is to be appended to them."""
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
                self.offset_entries += OFFSET_ENTRY.pack(relative, entry.position)
                self.add_time()
            self._bytes_since = 0
        self._bytes_since += entry.size_bytes
        self.done += 1
        self.end_position = entry.end_position

    def add_time(self) -> None:
        """Note the largest timestamp so far, unless it has been."""
        if self._largest_ms > self._last_time_ms:
            self.time_entries += TIME_ENTRY.pack(
                self._largest_ms, self._largest_offset - self.base_offset
            )
            self._last_time_ms = self._largest_ms
