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
from kgw.backend.embedded.segment import MAX_POSITION
from kgw.records.batch import HEADER_BYTES, read_header
from kgw.records.errors import RecordError
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kgw.backend.embedded.fs import FileSystem
    from kgw.backend.embedded.segment import Segment
    from kgw.backend.embedded.side import SideEntry

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
_GATHERED_BYTES: Final = 64 << 10
"""The most of either file that is held in memory: with index.interval.bytes=0 every batch is in
them."""
_CHUNK_ENTRIES: Final = 128
"""Entries between two rests: 0.2 ms of the interpreter, which the event loop needs meanwhile."""


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
            if relative <= MAX_POSITION:
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


def write_indexes(
    fs: FileSystem,
    segment: Segment,
    interval_bytes: int,
    *,
    is_final: bool,
    rest: Callable[[], None] | None = None,
) -> None:
    """Bring a segment's index files up to date with its side file.

    The newest batch is left out unless `is_final`: its last offset is known only from what follows
    it. `rest` is called now and then between two looks at the segment. Raises OSError,
    SideFileDamagedError.
    """
    builder = segment.index_builder
    is_new = builder is None
    if builder is None:
        builder = segment.index_builder = IndexBuilder(segment.base_offset)
    before: SideEntry | None = None
    index = builder.done
    while True:
        entries = segment.read_entries(index, _CHUNK_ENTRIES)
        for entry in entries:
            if before is not None:
                builder.add(before, entry.base_offset - 1, interval_bytes)
            before = entry
        index += len(entries)
        if len(builder.offset_entries) + len(builder.time_entries) > _GATHERED_BYTES:
            _write_gathered(fs, segment, builder, is_new=is_new)
            is_new = False
        if len(entries) < _CHUNK_ENTRIES:
            break
        if rest is not None:
            rest()
    if is_final:
        if before is not None:
            last_offset = _last_offset(segment, before)
            if last_offset is not None:
                builder.add(before, last_offset, interval_bytes)
        builder.add_time()
    _write_gathered(fs, segment, builder, is_new=is_new)


def _write_gathered(
    fs: FileSystem, segment: Segment, builder: IndexBuilder, *, is_new: bool
) -> None:
    builder.offset_bytes = _append(
        fs,
        segment.stem_path + layout.OFFSET_INDEX_SUFFIX,
        builder.offset_entries,
        builder.offset_bytes,
        is_new=is_new,
    )
    builder.time_bytes = _append(
        fs,
        segment.stem_path + layout.TIME_INDEX_SUFFIX,
        builder.time_entries,
        builder.time_bytes,
        is_new=is_new,
    )


def _last_offset(segment: Segment, entry: SideEntry) -> int | None:
    try:
        return read_header(segment.read_bytes(entry.position, HEADER_BYTES)).last_offset
    except RecordError:
        return None


def _append(fs: FileSystem, path: str, entries: bytearray, position: int, *, is_new: bool) -> int:
    """Write gathered entries behind the others; returns the new length of the file."""
    if not entries and not is_new:
        return position
    file = fs.open(path, create=True)
    try:
        if file.size() != position:
            file.truncate(position)
        if entries:
            file.pwrite((bytes(entries),), position)
    finally:
        file.close()
    position += len(entries)
    entries.clear()
    return position
