"""The records inside a batch, for tools, for look-ups by time and for topics that ask for checks.

Never on the usual way of a batch through the gateway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgw.errors import ErrorCode
from kgw.records.compression import decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, MAX_HEADERS, DecompressionLimits
from kgw.records.record import HEADER_KEY_ERRORS, Record, as_int64, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.records.batch import RecordBatch


def read_records(
    batch: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS
) -> Iterator[Record]:
    """Yield a whole batch's records in order, with absolute offsets and times.

    The CRC is the caller's to check. Raises RecordError, possibly after some records: for data that
    cannot be decompressed within `limits`, for a record that does not fill its length, for a count
    that is not the header's, for offsets that do not rise, for bytes left over.
    """
    payload = decompress(batch.compression, batch.records, limits)
    # What came out of a codec may be large and is not copied; a view is slow to index.
    data = bytes(payload) if isinstance(payload, memoryview) else payload
    position = 0
    previous_delta = -1
    log_append_time_ms = batch.max_timestamp_ms if batch.uses_log_append_time else None
    for index in range(batch.record_count):
        try:
            record, offset_delta, position = _read_record(data, position, batch)
        except RecordError as error:
            raise RecordError(f"record {index}: {error}", error.code) from error
        if not previous_delta < offset_delta <= batch.last_offset_delta:
            raise RecordError(
                f"record {index}: offset delta {offset_delta} after {previous_delta}, "
                f"{batch.last_offset_delta} being the last",
                ErrorCode.INVALID_RECORD,
            )
        previous_delta = offset_delta
        if log_append_time_ms is not None:
            record = record._replace(timestamp_ms=log_append_time_ms)
        yield record
    if position != len(data):
        raise RecordError(
            f"{len(data) - position} bytes are left over after {batch.record_count} records",
            ErrorCode.INVALID_RECORD,
        )


def _read_record(
    data: bytes | bytearray, position: int, batch: RecordBatch
) -> tuple[Record, int, int]:
    """Return a record, its offset delta and the position after it."""
    length, position = read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise RecordError(
            f"a length of {length} bytes where {len(data) - position} are left",
            ErrorCode.INVALID_RECORD,
        )
    # One byte of attributes, which have no meaning yet.
    timestamp_delta, position = read_varint(data, position + 1, 64)
    offset_delta, position = read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    header_count, position = read_varint(data, position)
    # A header has at least a key's and a value's length.
    if not 0 <= header_count <= MAX_HEADERS or header_count * 2 > end - position:
        raise RecordError(f"a count of {header_count} headers", ErrorCode.INVALID_RECORD)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(header_count):
        header_key, position = _read_bytes(data, position, end)
        if header_key is None:
            raise RecordError("a header without a key", ErrorCode.INVALID_RECORD)
        header_value, position = _read_bytes(data, position, end)
        headers.append((header_key.decode("utf-8", HEADER_KEY_ERRORS), header_value))
    if position != end:
        raise RecordError(
            f"a length that is {end - position} bytes off its content", ErrorCode.INVALID_RECORD
        )
    record = Record(
        batch.base_offset + offset_delta,
        as_int64(batch.base_timestamp_ms + timestamp_delta),
        key,
        value,
        headers,
    )
    return record, offset_delta, position


def _read_bytes(data: bytes | bytearray, position: int, end: int) -> tuple[bytes | None, int]:
    """Return bytes with their length before them, None for a length of -1."""
    length, position = read_varint(data, position)
    if length < 0:
        if length == -1:
            return None, position
        raise RecordError(f"a field of {length} bytes", ErrorCode.INVALID_RECORD)
    if length > end - position:
        raise RecordError(
            f"a field of {length} bytes where {end - position} are left", ErrorCode.INVALID_RECORD
        )
    return bytes(data[position : position + length]), position + length
