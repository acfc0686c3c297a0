"""Converts record batches to log entries, and log entries to record batches. Pure.

In layout `batches`, an entry has one batch, byte for byte. Its `offset` is the base offset, and its
key marks the entry and has a checksum of the batch's header. In layout `records`, an entry has one
record (`record_entries`). A reader accepts both, even within one chunk. It verifies each batch's
CRC, and the checksum of the header fields that the CRC does not cover.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import StrEnum
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import EntryError, append_around, walk
from kgw.backend.seaweedmq.entries.record_entries import (
    BatchUnderConstruction,
    append_entries,
    read_extension,
    without_compression,
)
from kgw.records.batch import CRC_START, HEADER_BYTES, read_batch
from kgw.records.crc import GIVE_UP_GIL, KEEP_GIL, crc32c
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.entries.log_entries import LogEntry
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

_MARK: Final = b"\0kgw-b1\0"
_MARK_AND_CRC: Final = Struct(">8sI")
_LARGE_BYTES: Final = 1 << 20


class Layout(StrEnum):
    """The form of batches in a log file (`kgw.seaweedmq.layout`)."""

    BATCHES = "batches"
    RECORDS = "records"


class Encoded(NamedTuple):
    """Batches as log entries."""

    pieces: list[Buffer]
    size_bytes: int
    batches: Sequence[RecordBatch]
    """The batches that a reader will get from the entries."""
    batch_bytes: int
    """The size of `batches`."""
    largest_timestamp_ms: int
    """The greatest `max_timestamp_ms` of their headers."""
    last_ts_ns: int


class Damage(NamedTuple):
    """A range of offsets that cannot be read any more."""

    start_offset: int
    end_offset: int
    position: int
    """The position in the chunk at which the damage begins."""
    reason: str


class DecodedChunk(NamedTuple):
    """The verified batches of a chunk, and the damage between them. Usable in any thread."""

    batches: list[RecordBatch]
    base_offsets: list[int]
    times_ns: list[int]
    """SMQ's time of the first entry of each batch."""
    damages: tuple[Damage, ...]
    last_ts_ns: int
    size_bytes: int
    """The memory that the chunk uses in the cache."""

    def place_of(self, offset: int) -> int:
        """Return the index of the first batch that ends above an offset."""
        place = bisect_right(self.base_offsets, offset)
        if place and self.batches[place - 1].next_offset > offset:
            place -= 1
        return place

    def damage_from(self, offset: int) -> Damage | None:
        """Return the first damage that ends above an offset."""
        return next((one for one in self.damages if one.end_offset > offset), None)


def encode(batches: Sequence[RecordBatch], layout: Layout, ts_ns: int) -> Encoded:
    """Return batches with assigned offsets as log entries, with rising times from `ts_ns` on.

    The buffers refer to the batches.
    """
    pieces: list[Buffer] = []
    readable: list[RecordBatch] = []
    glue = bytearray()
    size_bytes = batch_bytes = 0
    for batch in batches:
        exploded = without_compression(batch) if layout is Layout.RECORDS else None
        if exploded is not None:
            built, records = exploded
            append_entries(glue, built, records, ts_ns)
            ts_ns += len(records)
            readable.append(built)
            batch_bytes += built.size_bytes
            continue
        buffer = batch.buffer
        tail = bytearray()
        append_around(
            glue,
            tail,
            offset=batch.base_offset,
            ts_ns=ts_ns,
            data_bytes=len(buffer),
            key=_MARK_AND_CRC.pack(_MARK, crc32c(buffer[:HEADER_BYTES])),
        )
        ts_ns += 1
        pieces += (glue, buffer)
        size_bytes += len(glue) + len(buffer)
        glue = tail
        readable.append(batch)
        batch_bytes += len(buffer)
    pieces.append(glue)
    size_bytes += len(glue)
    largest_ms = max([batch.max_timestamp_ms for batch in readable])
    return Encoded(pieces, size_bytes, readable, batch_bytes, largest_ms, ts_ns - 1)


def decode(data: Buffer, base_offset: int, end_offset: int) -> DecodedChunk:
    """Return the batches of a chunk with these bounds. Never raises.

    Batches must follow each other without a gap, so a missing offset is reported as damage.
    """
    decoding = _Decoding(base_offset)
    size_bytes = len(data)
    try:
        for entry in walk(data):
            decoding.take(entry)
        decoding.note_damage(end_offset, size_bytes, "entries are missing")
    except EntryError as error:
        # After a wrong length, no later entry can be found.
        decoding.note_damage(end_offset, decoding.position, str(error))
    batches = decoding.batches
    return DecodedChunk(
        batches,
        [batch.base_offset for batch in batches],
        decoding.times_ns,
        tuple(decoding.damages),
        decoding.last_ts_ns,
        size_bytes + decoding.built_bytes,
    )


class _Decoding:
    def __init__(self, base_offset: int) -> None:
        self.batches: list[RecordBatch] = []
        self.damages: list[Damage] = []
        self.times_ns: list[int] = []
        self.last_ts_ns = 0
        self.built_bytes = 0
        self.position = 0
        self._next_offset = base_offset
        self._building: BatchUnderConstruction | None = None
        self._began_ns: int | None = None
        self._damaged_at: tuple[int, str] | None = None

    def take(self, entry: LogEntry) -> None:
        self.position = entry.position
        try:
            batch = self._batch_of(entry)
        except (EntryError, RecordError) as error:
            self._building = None
            if self._damaged_at is None:
                self._damaged_at = (entry.position, str(error))
            return
        if batch is None:
            return
        if batch.base_offset < self._next_offset:
            reason = f"a batch at offset {batch.base_offset} comes behind {self._next_offset - 1}"
            self._damaged_at = self._damaged_at or (entry.position, reason)
            return
        self.note_damage(batch.base_offset, entry.position, "entries are missing")
        self.batches.append(batch)
        self.times_ns.append(entry.ts_ns if self._began_ns is None else self._began_ns)
        self._began_ns = None
        self._next_offset = batch.next_offset
        self.last_ts_ns = entry.ts_ns

    def note_damage(self, next_offset: int, position: int, reason: str) -> None:
        """Record missing offsets before `next_offset` as damage."""
        if next_offset > self._next_offset:
            at, why = self._damaged_at or (position, reason)
            self.damages.append(Damage(self._next_offset, next_offset, at, why))
        self._damaged_at = None

    def _batch_of(self, entry: LogEntry) -> RecordBatch | None:
        """Return the batch that ends with an entry. Raises EntryError, RecordError."""
        if entry.extension:
            return self._with_record(entry)
        self._began_ns = None
        if self._building is not None:
            raise EntryError("records of a batch are missing")
        if len(entry.key) != _MARK_AND_CRC.size:
            raise EntryError("an entry that kgw has not written")
        mark, header_crc = _MARK_AND_CRC.unpack(entry.key)
        if mark != _MARK:
            raise EntryError("an entry that kgw has not written")
        if crc32c(entry.data[:HEADER_BYTES]) != header_crc:
            raise EntryError("the header of the batch fails its checksum")
        batch = read_batch(entry.data)
        if batch.size_bytes != len(entry.data) or batch.base_offset != entry.offset:
            raise EntryError("the entry's length or offset is not that of its batch")
        mode = KEEP_GIL if len(entry.data) <= _LARGE_BYTES else GIVE_UP_GIL
        if crc32c(batch.buffer[CRC_START:], 0, mode) != batch.crc:
            raise EntryError("the batch fails its checksum")
        return batch

    def _with_record(self, entry: LogEntry) -> RecordBatch | None:
        extension = read_extension(entry.extension)
        if extension.batch is not None:
            if self._building is not None:
                reason = "records of a batch are missing"
                self._damaged_at = self._damaged_at or (entry.position, reason)
            self._building = BatchUnderConstruction(extension.batch)
            self._began_ns = entry.ts_ns
        if self._building is None:
            raise EntryError("a record without the beginning of its batch")
        batch = self._building.add(entry, extension)
        if batch is not None:
            self._building = None
            self.built_bytes += batch.size_bytes
        return batch
