"""Reads the records in a batch: for tools, look-ups by time and topics that validate records.

Batches that only pass through the gateway are not read by this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.compression import decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, MAX_HEADERS, DecompressionLimits
from kgw.records.record import (
    HEADER_KEY_ERRORS,
    MAX_TIMESTAMP_MS,
    Record,
    as_int64,
    read_varint,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.records.batch import RecordBatch


class RecordFields(NamedTuple):
    """The fields of one record, and the positions of its parts in the payload of its batch."""

    offset: int
    timestamp_ms: int
    start: int
    end: int
    time_start: int
    """Position of its timestamp delta, after one byte of attributes without a meaning."""
    key_start: int
    key_length: int
    """-1 for null."""
    value_start: int
    value_length: int
    """-1 for null."""
    headers_start: int
    """Position of the number of its headers."""


class RecordTime(NamedTuple):
    """A record's offset and its timestamp."""

    offset: int
    timestamp_ms: int


def unpack(batch: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS) -> bytes | bytearray:
    """Return a batch's payload, decompressed. Raises RecordError as `decompress`."""
    payload = decompress(batch.compression, batch.records, limits)
    # Decompressed data may be large and is not copied. A memoryview is copied, as indexing it is
    # slow.
    return bytes(payload) if isinstance(payload, memoryview) else payload


def walk(payload: bytes | bytearray, batch: RecordBatch) -> Iterator[RecordFields]:
    """Yield the records of a batch's payload, in order.

    Raises RecordError, possibly after some records: for a record whose key and value do not fit
    into its length, for a count that differs from the header's, for offsets that do not increase,
    for remaining bytes. The contents of a record's headers are not checked.
    """
    append_time_ms = batch.max_timestamp_ms if batch.uses_log_append_time else None
    base_offset, base_timestamp_ms = batch.base_offset, batch.base_timestamp_ms
    last_offset_delta = batch.last_offset_delta
    size_bytes = len(payload)
    position = 0
    previous_delta = -1
    for index in range(batch.record_count):
        start = position
        try:
            length, position = read_varint(payload, position)
            end = position + length
            time_start = position + 1
            delta_ms, position = read_varint(payload, time_start, 64)
            offset_delta, position = read_varint(payload, position)
            key_length, key_start = read_varint(payload, position)
            value_at = key_start + key_length if key_length > 0 else key_start
            value_length, value_start = read_varint(payload, value_at)
        except RecordError as error:
            raise RecordError(f"record {index}: {error}", error.code) from error
        headers_start = value_start + value_length if value_length > 0 else value_start
        if (
            not headers_start < end <= size_bytes
            or not previous_delta < offset_delta <= last_offset_delta
            or key_length < -1
            or value_length < -1
        ):
            raise RecordError(
                f"record {index}: a length of {length} where {size_bytes - start} bytes are left, "
                f"offset delta {offset_delta} after {previous_delta} where {last_offset_delta} is "
                f"the last, a key of {key_length} and a value of {value_length} bytes",
                ErrorCode.INVALID_RECORD,
            )
        timestamp_ms = base_timestamp_ms + delta_ms if append_time_ms is None else append_time_ms
        if not -MAX_TIMESTAMP_MS <= timestamp_ms <= MAX_TIMESTAMP_MS:
            timestamp_ms = as_int64(timestamp_ms)
        yield RecordFields(
            base_offset + offset_delta,
            timestamp_ms,
            start,
            end,
            time_start,
            key_start,
            key_length,
            value_start,
            value_length,
            headers_start,
        )
        previous_delta, position = offset_delta, end
    if position != size_bytes:
        raise RecordError(
            f"{size_bytes - position} bytes are left over after {batch.record_count} records",
            ErrorCode.INVALID_RECORD,
        )


def read_records(
    batch: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS
) -> Iterator[Record]:
    """Yield a whole batch's records in order, with absolute offsets and times.

    The caller has checked the CRC. Raises RecordError as `unpack`, `walk` and `read_headers`,
    possibly after some records.
    """
    payload = unpack(batch, limits)
    for one in walk(payload, batch):
        yield Record(
            one.offset,
            one.timestamp_ms,
            _slice(payload, one.key_start, one.key_length),
            _slice(payload, one.value_start, one.value_length),
            read_headers(payload, one),
        )


def read_headers(
    payload: bytes | bytearray, fields: RecordFields
) -> list[tuple[str, bytes | None]]:
    """Return a record's headers. Raises RecordError unless they fill the record to its end."""
    end = fields.end
    count, position = read_varint(payload, fields.headers_start)
    is_right = 0 <= count <= MAX_HEADERS
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count if is_right else 0):
        length, start = read_varint(payload, position)
        value_length, value_start = read_varint(payload, start + max(length, 0))
        position = value_start + max(value_length, 0)
        if length < 0 or value_length < -1 or position > end:
            is_right = False
            break
        key = payload[start : start + length].decode("utf-8", HEADER_KEY_ERRORS)
        headers.append((key, _slice(payload, value_start, value_length)))
    if not is_right or position != end:
        raise RecordError(
            f"the record at offset {fields.offset} ends at byte {end}, the last of its {count} "
            f"headers that can be read at {position}",
            ErrorCode.INVALID_RECORD,
        )
    return headers


def _slice(payload: bytes | bytearray, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(payload[start : start + length])


def first_record_at(
    batch: RecordBatch,
    timestamp_ms: int,
    from_offset: int = 0,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> RecordTime | None:
    """Return the first record from `from_offset` on with a timestamp at or after a given one.

    The header's max timestamp is not trusted, except with log append time, when it is the timestamp
    of all records. Raises RecordError if the records before it cannot be read.
    """
    for one in walk(unpack(batch, limits), batch):
        if one.timestamp_ms >= timestamp_ms and one.offset >= from_offset:
            return RecordTime(one.offset, one.timestamp_ms)
    return None
