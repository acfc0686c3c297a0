"""Small record batches for tests, written and read without the code that is under test."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.records.batch import RecordBatch, read_batch
from kgw.records.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kgw.types import Buffer

_HEADER: Final = Struct(">qiibIhiqqqhii")
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17
_CRC_START: Final = 21
_PREFIX_BYTES: Final = 12


class StoredRecord(NamedTuple):
    """What an uncompressed batch says of one record."""

    offset: int
    timestamp_ms: int
    value: bytes
    """Empty for a tombstone."""
    key: bytes | None = None


def make_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> RecordBatch:
    """Return a valid, uncompressed batch in a writable buffer of its own, at offset 0.

    Without `timestamps_ms` every record has timestamp 0, without `keys` none has a key.
    """
    keys = keys if keys is not None else [None] * len(values)
    times = timestamps_ms if timestamps_ms is not None else [0] * len(values)
    buffer = bytearray(_HEADER.size)
    for position, (key, value, timestamp_ms) in enumerate(zip(keys, values, times, strict=True)):
        body = bytearray(1)
        _write_varint(body, timestamp_ms - times[0])
        _write_varint(body, position)
        for field in (key, value):
            _write_varint(body, -1 if field is None else len(field))
            body += field or b""
        body.append(0)
        _write_varint(buffer, len(body))
        buffer += body
    count = len(values)
    _HEADER.pack_into(
        buffer,
        0,
        0,
        len(buffer) - _PREFIX_BYTES,
        -1,
        2,
        0,
        attributes,
        count - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    _CRC.pack_into(buffer, _CRC_POSITION, crc32c(memoryview(buffer)[_CRC_START:]))
    return read_batch(buffer)


def read_stored(buffers: Iterable[Buffer]) -> list[StoredRecord]:
    """Return the records of uncompressed batches, as they would be served.

    Raises ValueError when bytes are not what a batch written by `make_batch` can be.
    """
    records: list[StoredRecord] = []
    for buffer in buffers:
        data = bytes(buffer)
        start = 0
        while start < len(data):
            start = _read_stored_batch(data, start, records)
    return records


def _read_stored_batch(data: bytes, start: int, records: list[StoredRecord]) -> int:
    header: tuple[int, ...] = _HEADER.unpack_from(data, start)
    base_offset, batch_length, magic, crc = header[0], header[1], header[3], header[4]
    base_timestamp_ms, count = header[7], header[12]
    end = start + _PREFIX_BYTES + batch_length
    if magic != 2 or end > len(data) or crc32c(data[start + _CRC_START : end]) != crc:
        raise ValueError(f"no intact batch at {start} of {len(data)} bytes")
    position = start + _HEADER.size
    for _ in range(count):
        size, position = _read_varint(data, position)
        following = position + size
        time_delta, position = _read_varint(data, position + 1)
        offset_delta, position = _read_varint(data, position)
        key, position = _read_field(data, position)
        value, _ = _read_field(data, position)
        records.append(
            StoredRecord(
                base_offset + offset_delta, base_timestamp_ms + time_delta, value or b"", key
            )
        )
        position = following
    if position != end:
        raise ValueError(f"{count} records end at {position}, their batch at {end}")
    return end


def _read_field(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _read_varint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def _write_varint(buffer: bytearray, value: int) -> None:
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        buffer.append(0x80 | (zigzag & 0x7F))
        zigzag >>= 7
    buffer.append(zigzag)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    zigzag = shift = 0
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
