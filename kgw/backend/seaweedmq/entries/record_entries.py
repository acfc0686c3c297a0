"""Layout `records`, which has one log entry for each record, for SMQ's own readers and SQL.

Other readers get the key, value and offset of a record. Everything else that Kafka's clients must
get back is in our field (docs/decisions/0101): which of key and value are null, the record's
CreateTime and headers, and, in the first entry of a batch, the header of the batch that is built
from them again. So producer ids, sequences, transactions, epochs and gaps are preserved; the
compression is not, so the bytes of the batch differ.

Our field is a message:

    1 flags varint (1: the key is null, 2: the value is null), 2 create_time_ms sint64,
    3 headers bytes (count and headers as a Kafka record has them; absent: none),
    4 attributes varint (the record's, without a meaning yet),
    5 batch bytes (the 61 bytes of the batch's header, and their CRC-32C, big endian)
"""

from __future__ import annotations

from hashlib import md5
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.backend.seaweedmq.entries.log_entries import (
    EntryError,
    append_around,
    append_bytes_field,
    append_number,
    read_number,
)
from kgw.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    RecordBatch,
    read_batch,
    read_header,
)
from kgw.records.builder import encode_batch
from kgw.records.crc import crc32c
from kgw.records.errors import RecordError
from kgw.records.reader import unpack, walk
from kgw.records.record import append_varint, as_int64, read_varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kgw.backend.seaweedmq.entries.log_entries import LogEntry
    from kgw.types import Buffer

_FLAGS: Final = 1 << 3
_CREATE_TIME: Final = 2 << 3
_HEADERS: Final = 3 << 3 | 2
_ATTRIBUTES: Final = 4 << 3
_BATCH: Final = 5 << 3 | 2

_NULL_KEY: Final = 1
_NULL_VALUE: Final = 2
_NO_HEADERS: Final = b"\0"
_CRC: Final = Struct(">I")


class RecordExtension(NamedTuple):
    """The content of our field, for one record."""

    create_time_ms: int
    has_key: bool
    has_value: bool
    headers: Buffer
    """The number of headers, and the headers, encoded as in a record."""
    attributes: int
    batch: RecordBatch | None
    """The batch's header, if this is its first record."""


class _Record(NamedTuple):
    offset: int
    create_time_ms: int
    key: bytes | None
    value: bytes | None
    headers: bytes
    attributes: int


def without_compression(batch: RecordBatch) -> tuple[RecordBatch, list[_Record]] | None:
    """Return a batch in the form that readers will get, and its records.

    Return None for batches that are stored whole even in this layout: control batches, batches that
    compaction has emptied, and batches with unreadable records.
    """
    if batch.is_control or not batch.record_count:
        return None
    try:
        records = _records(batch, unpack(batch))
    except RecordError:
        # A producer sent malformed records. Store them unchanged.
        return None
    return _build(batch, records), records


def append_entries(
    output: bytearray, built: RecordBatch, records: Sequence[_Record], ts_ns: int
) -> None:
    """Append a batch's records as log entries, whose times rise by one nanosecond."""
    for index, record in enumerate(records):
        extension = bytearray()
        flags = (_NULL_KEY if record.key is None else 0) | (
            _NULL_VALUE if record.value is None else 0
        )
        for tag, number in ((_FLAGS, flags), (_CREATE_TIME, _zigzag(record.create_time_ms))):
            if number:
                extension.append(tag)
                append_number(extension, number)
        if record.headers != _NO_HEADERS:
            append_bytes_field(extension, _HEADERS, record.headers)
        if record.attributes:
            extension.append(_ATTRIBUTES)
            append_number(extension, record.attributes)
        if not index:
            header = bytes(built.buffer[:HEADER_BYTES])
            append_bytes_field(extension, _BATCH, header + _CRC.pack(crc32c(header)))
        elif not extension:
            # This marks the entry as kgw's.
            extension += bytes((_FLAGS, 0))
        key, value = record.key or b"", record.value or b""
        tail = bytearray()
        append_around(
            output,
            tail,
            offset=record.offset,
            ts_ns=ts_ns + index,
            data_bytes=len(value),
            key=key,
            key_hash=key_hash(key),
            extension=extension,
        )
        output += value
        output += tail


def key_hash(key: bytes) -> int:
    """Return SMQ's hash of a key: the first four bytes of its MD5 as an int32."""
    return int.from_bytes(md5(key, usedforsecurity=False).digest()[:4], "big", signed=True)


def read_extension(field: Buffer) -> RecordExtension:
    """Read our field. Raises EntryError if the field is damaged or missing."""
    numbers: dict[int, int] = {}
    parts: dict[int, memoryview] = {}
    view = memoryview(field)
    position, end = 0, len(view)
    while position < end:
        tag, position = read_number(view, position)
        if tag & 7 == 0:
            numbers[tag], position = read_number(view, position)
        elif tag & 7 == 2:
            length, start = read_number(view, position)
            position = start + length
            parts[tag] = view[start:position]
        else:
            raise EntryError(f"our field of a record has a part {tag}")
    if position > end:
        raise EntryError("our field of a record is cut off")
    flags = numbers.get(_FLAGS, 0)
    batch = None
    if _BATCH in parts:
        header, crc = parts[_BATCH][:HEADER_BYTES], parts[_BATCH][HEADER_BYTES:]
        if len(crc) != _CRC.size or _CRC.unpack(crc)[0] != crc32c(header):
            raise EntryError("the header of a batch of records is damaged")
        batch = read_header(header)
    create_time = numbers.get(_CREATE_TIME, 0)
    return RecordExtension(
        create_time >> 1 ^ -(create_time & 1),
        not flags & _NULL_KEY,
        not flags & _NULL_VALUE,
        parts.get(_HEADERS, _NO_HEADERS),
        numbers.get(_ATTRIBUTES, 0),
        batch,
    )


class BatchUnderConstruction:
    """Rebuilds a batch from its records, entry by entry."""

    def __init__(self, header: RecordBatch) -> None:
        self.header = header
        self._records: list[_Record] = []

    def add(self, entry: LogEntry, extension: RecordExtension) -> RecordBatch | None:
        """Add the next record; if it is the last one, return the batch.

        Raises EntryError if the rebuilt batch differs from the stored one.
        """
        header = self.header
        if not header.base_offset <= entry.offset <= header.last_offset:
            raise EntryError(
                f"a record at offset {entry.offset} stands in the batch of offsets "
                f"{header.base_offset} to {header.last_offset}"
            )
        self._records.append(
            _Record(
                entry.offset,
                extension.create_time_ms,
                bytes(entry.key) if extension.has_key else None,
                bytes(entry.data) if extension.has_value else None,
                bytes(extension.headers),
                extension.attributes,
            )
        )
        if len(self._records) < header.record_count:
            return None
        built = _build(header, self._records)
        if built.buffer[:HEADER_BYTES] != header.buffer:
            raise EntryError(
                f"the records of the batch at offset {header.base_offset} are not those that its "
                "checksum was taken over"
            )
        return built


def _records(batch: RecordBatch, payload: bytes | bytearray) -> list[_Record]:
    """Return a batch's records. Raises RecordError as `walk`."""
    base_timestamp_ms = batch.base_timestamp_ms
    records: list[_Record] = []
    for one in walk(payload, batch):
        # Read the record's own time, because with log append time `walk` returns the batch's time.
        delta_ms, _ = read_varint(payload, one.time_start, 64)
        records.append(
            _Record(
                one.offset,
                as_int64(base_timestamp_ms + delta_ms),
                _part(payload, one.key_start, one.key_length),
                _part(payload, one.value_start, one.value_length),
                bytes(payload[one.headers_start : one.end]),
                payload[one.time_start - 1],
            )
        )
    return records


def _part(payload: bytes | bytearray, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(payload[start : start + length])


def _build(header: RecordBatch, records: Sequence[_Record]) -> RecordBatch:
    """Return the uncompressed batch of a header and its records."""
    payload = bytearray()
    for record in records:
        encoded = bytearray((record.attributes & 0xFF,))
        append_varint(encoded, as_int64(record.create_time_ms - header.base_timestamp_ms))
        append_varint(encoded, record.offset - header.base_offset)
        for part in (record.key, record.value):
            append_varint(encoded, -1 if part is None else len(part))
            encoded += part or b""
        encoded += record.headers
        append_varint(payload, len(encoded))
        payload += encoded
    return read_batch(
        encode_batch(
            payload,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            attributes=header.attributes & ~COMPRESSION_MASK,
            last_offset_delta=header.last_offset_delta,
            base_timestamp_ms=header.base_timestamp_ms,
            max_timestamp_ms=header.max_timestamp_ms,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            record_count=len(records),
        )
    )


def _zigzag(number: int) -> int:
    return number << 1 ^ number >> 63
