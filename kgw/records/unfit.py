"""Which records of a batch may not enter: for topics whose rules reach into the payload.

A walk over what surrounds keys and values, without making records of them: it takes 2
microseconds a record, and 1 more for each header of one.
What passes it, `read_records` reads: no reader is stopped by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from kgw.errors import ErrorCode
from kgw.records.compression import decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, MAX_HEADERS, DecompressionLimits
from kgw.records.record import as_int64, read_varint
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    holds_max_timestamp: bool = False,
    limits: DecompressionLimits = DEFAULT_LIMITS,
) -> list[UnfitRecord]:
    """Return the records of a whole batch that are at fault, MAX_NAMED of them at most.

    `time_range` is the first and the last timestamp that is allowed, in milliseconds; a record
    without a time always is. Raises RecordError for a payload that cannot be decompressed
    within `limits`, or is not the records that the header counts, one for each offset;
    with `holds_max_timestamp` also for a header with another greatest timestamp than theirs, where
    no record is at fault.
    """
    payload = decompress(batch.compression, batch.records, limits)
    data = bytes(payload) if isinstance(payload, memoryview) else payload
    base_timestamp_ms = batch.base_timestamp_ms
    unfit: list[UnfitRecord] = []
    largest_delta: int | None = None
    # Every record is walked, also when no more are named.
    for index, (timestamp_delta, has_key) in enumerate(_walk(data, batch.record_count)):
        if largest_delta is None or timestamp_delta > largest_delta:
            largest_delta = timestamp_delta
        if len(unfit) == MAX_NAMED:
            continue
        if needs_keys and not has_key:
            unfit.append(UnfitRecord(index, is_keyless=True))
        elif time_range is not None:
            timestamp_ms = as_int64(base_timestamp_ms + timestamp_delta)
            if timestamp_ms != NO_TIMESTAMP_MS and not (
                time_range[0] <= timestamp_ms <= time_range[1]
            ):
                unfit.append(UnfitRecord(index, is_keyless=False))
    if holds_max_timestamp and not unfit and largest_delta is not None:
        largest_timestamp_ms = as_int64(base_timestamp_ms + largest_delta)
        if largest_timestamp_ms != batch.max_timestamp_ms:
            raise RecordError(
                f"the greatest timestamp is {largest_timestamp_ms}, and {batch.max_timestamp_ms} "
                "by the header",
                ErrorCode.INVALID_RECORD,
            )
    return unfit


def _walk(data: bytes | bytearray, count: int) -> Iterator[tuple[int, bool]]:
    """Yield the timestamp delta of each record, and whether it has a key. Raises RecordError."""
    size = len(data)
    position = 0
    try:
        for index in range(count):
            # Numbers of one byte are read here: most are, and a call takes longer than they do.
            length, position = (
                (data[position] >> 1, position + 1)
                if data[position] < 0x80 and not data[position] & 1
                else read_varint(data, position)
            )
            end = position + length
            # One byte of attributes goes before; the usual delta of 0 is a byte of 0.
            timestamp_delta, position = (
                read_varint(data, position + 1, 64) if data[position + 1] else (0, position + 2)
            )
            offset_delta, position = read_varint(data, position)
            key_length, position = read_varint(data, position)
            if key_length > 0:
                position += key_length
            value_length, position = read_varint(data, position)
            if value_length > 0:
                position += value_length
            if offset_delta != index or key_length < -1 or value_length < -1:
                _refuse(index, offset_delta, min(key_length, value_length))
            # The usual record has no headers, and ends with their count. One whose key or value is
            # too long for it has gone past its end here.
            if data[position] or position + 1 != end:
                _check_headers(data, position, end, index)
            position = end
            yield timestamp_delta, key_length >= 0
    except IndexError:
        raise RecordError("the last record is cut off", ErrorCode.INVALID_RECORD) from None
    if position != size:
        raise RecordError(
            f"{size - position} bytes are left over after {count} records",
            ErrorCode.INVALID_RECORD,
        )


def _check_headers(data: bytes | bytearray, position: int, end: int, index: int) -> None:
    """Raise RecordError unless a record's headers fill it to its end."""
    count, position = read_varint(data, position)
    # A header has at least a key's and a value's length.
    if not 0 <= count <= MAX_HEADERS or count * 2 > end - position:
        raise RecordError(
            f"record {index} has a count of {count} headers", ErrorCode.INVALID_RECORD
        )
    for _ in range(count):
        for least in (0, -1):  # a key may not be null, a value may
            length, position = read_varint(data, position)
            if length < least:
                raise RecordError(
                    f"record {index} has a header of {length} bytes", ErrorCode.INVALID_RECORD
                )
            if length > 0:
                position += length
    if position != end:
        raise RecordError(
            f"record {index} has a length that is {end - position} bytes off its content",
            ErrorCode.INVALID_RECORD,
        )


def _refuse(index: int, offset_delta: int, field_bytes: int) -> NoReturn:
    raise RecordError(
        f"record {index} has offset delta {offset_delta}"
        if offset_delta != index
        else f"record {index} has a key or a value of {field_bytes} bytes",
        ErrorCode.INVALID_RECORD,
    )
