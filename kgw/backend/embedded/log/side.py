"""The side file of a segment: one entry for each batch, with checksums of its header.

Kafka's CRC covers a batch from its attributes on, so its base offset, length, leader epoch and
magic could change unnoticed. Therefore an entry has a checksum over the whole header. An entry also
has the durable end of the log when the entry was written. Entries are written after the sync of
their batches, so recovery must find all batches below the largest durable end. With a batch's
offset, position and the largest timestamp so far, the side file also serves lookups; Kafka's two
indexes are only for Kafka's tools. A side file can be rebuilt from its segment, if the segment's
batches follow each other without a gap.

Entry, 40 bytes: base offset i64, largest timestamp in the segment up to here i64, durable end i64,
position u32, size u32, CRC-32C of the 61-byte header u32, CRC-32C of the 36 bytes before it u32.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.records.batch import HEADER_BYTES
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.embedded.files.fs import File
    from kgw.records.batch import RecordBatch
    from kgw.types import Buffer

ENTRY_BYTES: Final = 40
_BODY: Final = Struct(">qqqIII")
ENTRY: Final = Struct(">qqqIIII")
"""The six fields of an entry, then its own checksum."""
_CRC: Final = Struct(">I")

DAMAGE_MASK: Final = 0xFFFFFFFF
"""Inverts the header's checksum in the entry of a damaged batch, so that it matches no batch."""


class SideEntry(NamedTuple):
    """The entry of one batch."""

    base_offset: int
    largest_timestamp_ms: int
    durable_end: int
    position: int
    size_bytes: int
    header_crc: int

    @property
    def end_position(self) -> int:
        return self.position + self.size_bytes


def encode_entry(
    base_offset: int,
    largest_timestamp_ms: int,
    durable_end: int,
    position: int,
    size_bytes: int,
    header_crc: int,
) -> bytes:
    """Return the 40 bytes of an entry, given its fields."""
    body = _BODY.pack(
        base_offset, largest_timestamp_ms, durable_end, position, size_bytes, header_crc
    )
    return body + _CRC.pack(crc32c(body))


def decode_entry(data: Buffer, position: int = 0) -> SideEntry | None:
    """Return the entry at `position`; None if its checksum fails or it is incomplete."""
    try:
        *fields, crc = ENTRY.unpack_from(data, position)
    except struct.error:
        return None
    if crc32c(memoryview(data)[position : position + ENTRY_BYTES - 4]) != crc:
        return None
    return SideEntry(*fields)


def last_mark(file: File) -> int:
    """Return the durable end in the last intact entry of a side file, 0 if there is none."""
    for index in reversed(range(file.size() // ENTRY_BYTES)):
        entry = decode_entry(file.pread(ENTRY_BYTES, index * ENTRY_BYTES))
        if entry is not None:
            return entry.durable_end
    return 0


def encode_batches(
    batches: Sequence[RecordBatch], position: int, largest_timestamp_ms: int
) -> tuple[bytes, int]:
    """Return the entries of consecutive batches, and the new largest timestamp.

    The entries claim that all these batches are durable, so sync the batches before writing the
    entries.
    """
    durable_end = batches[-1].last_offset + 1
    parts: list[bytes] = []
    pack = _BODY.pack
    for batch in batches:
        buffer = batch.buffer
        size_bytes = len(buffer)
        if batch.max_timestamp_ms > largest_timestamp_ms and batch.record_count:
            largest_timestamp_ms = batch.max_timestamp_ms
        body = pack(
            batch.base_offset,
            largest_timestamp_ms,
            durable_end,
            position,
            size_bytes,
            crc32c(buffer[:HEADER_BYTES]),
        )
        parts.append(body)
        parts.append(_CRC.pack(crc32c(body)))
        position += size_bytes
    return b"".join(parts), largest_timestamp_ms
