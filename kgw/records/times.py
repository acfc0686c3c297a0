"""The first record of a batch that reaches a time, found without making records of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.compression import decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.records.record import as_int64, read_varint

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch


class RecordTime(NamedTuple):
    """A record's offset and its time."""

    offset: int
    timestamp_ms: int


def first_record_at(
    batch: RecordBatch,
    timestamp_ms: int,
    from_offset: int = 0,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> RecordTime | None:
    """Return the first record at or above `from_offset` whose time is at or past the one given.

    What the header says of the greatest time is not believed, except under log append time, where
    it is the records' time. Raises RecordError when the records cannot be read that far.
    """
    append_time_ms = batch.max_timestamp_ms if batch.uses_log_append_time else None
    if append_time_ms is not None:
        if append_time_ms < timestamp_ms or batch.next_offset <= from_offset:
            return None
        if batch.record_count == batch.last_offset_delta + 1:
            return RecordTime(max(batch.base_offset, from_offset), append_time_ms)
    payload = decompress(batch.compression, batch.records, limits)
    data = bytes(payload) if isinstance(payload, memoryview) else payload
    size_bytes = len(data)
    base_offset, base_timestamp_ms = batch.base_offset, batch.base_timestamp_ms
    position = 0
    # Numbers of one byte are read here: most are, and a call takes longer than they do.
    for index in range(batch.record_count):
        try:
            number = data[position]
            if number < 0x80:
                length = (number >> 1) ^ -(number & 1)
                position += 1
            else:
                length, position = read_varint(data, position)
            end = position + length
            # One byte of attributes.
            number = data[position + 1]
            if number < 0x80:
                record_ms = base_timestamp_ms + ((number >> 1) ^ -(number & 1))
                position += 2
            else:
                delta_ms, position = read_varint(data, position + 1, 64)
                record_ms = base_timestamp_ms + delta_ms
            if append_time_ms is not None:
                record_ms = append_time_ms
            if record_ms >= timestamp_ms and as_int64(record_ms) >= timestamp_ms:
                delta, position = read_varint(data, position)
                if not 0 <= delta <= batch.last_offset_delta:
                    raise RecordError(
                        f"record {index}: offset delta {delta}, {batch.last_offset_delta} being "
                        "the last",
                        ErrorCode.INVALID_RECORD,
                    )
                if base_offset + delta >= from_offset:
                    return RecordTime(base_offset + delta, as_int64(record_ms))
        except IndexError:
            raise RecordError(f"record {index} is cut off", ErrorCode.INVALID_RECORD) from None
        if length <= 0 or end > size_bytes:
            raise RecordError(
                f"record {index}: a length of {length} bytes where {size_bytes - position} are "
                "left",
                ErrorCode.INVALID_RECORD,
            )
        position = end
    return None
