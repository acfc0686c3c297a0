"""Which records of a batch may not enter: for topics whose rules reach into the payload.

What passes the walk over keys, values and headers, `read_records` reads: no reader is stopped by
it. What it costs: docs/decisions/0013-what-is-checked-of-a-batch.md.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.errors import RecordError
from kgw.records.reader import read_headers, walk
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch

MAX_NAMED: Final = 1000
"""So many records are named; a client takes the rest of the batch as refused because of them."""


class Fault(Enum):
    """What is wrong with a record."""

    KEYLESS = "keyless"
    """Without the key that it needs."""
    UNTIMELY = "untimely"
    """Its timestamp is out of range."""
    UNKEEPABLE = "unkeepable"
    """It has headers, an empty key or a null value where only a key and a value are kept."""


class UnfitRecord(NamedTuple):
    """One record at fault."""

    place: int
    """Within the batch, from 0."""
    fault: Fault


class Findings(NamedTuple):
    """What a look at all records of a batch has come to."""

    unfit: list[UnfitRecord]
    """MAX_NAMED of them at most."""
    max_timestamp_ms: int
    """The greatest of the records, whatever the header says."""


def find_unfit(
    batch: RecordBatch,
    payload: bytes | bytearray,
    *,
    needs_keys: bool,
    time_range: tuple[int, int] | None,
    holds_max_timestamp: bool = False,
    is_plain: bool = False,
    has_gaps: bool = False,
) -> Findings:
    """Return which records of a batch are at fault; `payload` is what `unpack` makes of it.

    `time_range` is the first and the last timestamp that is allowed, in milliseconds; a record
    without a time always is. Raises RecordError for a payload that is not the records that the
    header counts, one for each offset unless it `has_gaps`; with `holds_max_timestamp` also for a
    header with another greatest timestamp than theirs, where no record is at fault.
    """
    unfit: list[UnfitRecord] = []
    largest_ms = NO_TIMESTAMP_MS
    # Every record is walked, also when no more are named.
    for index, one in enumerate(walk(payload, batch)):
        timestamp_ms = one.timestamp_ms
        if one.offset != batch.base_offset + index and not has_gaps:
            raise RecordError(
                f"record {index} has offset delta {one.offset - batch.base_offset}",
                ErrorCode.INVALID_RECORD,
            )
        # The usual record has no headers, and ends with their count.
        if payload[one.headers_start] or one.headers_start + 1 != one.end:
            read_headers(payload, one)
        if not index or timestamp_ms > largest_ms:
            largest_ms = timestamp_ms
        if len(unfit) == MAX_NAMED:
            continue
        if needs_keys and one.key_length < 0:
            unfit.append(UnfitRecord(index, Fault.KEYLESS))
        elif (
            time_range is not None
            and timestamp_ms != NO_TIMESTAMP_MS
            and not time_range[0] <= timestamp_ms <= time_range[1]
        ):
            unfit.append(UnfitRecord(index, Fault.UNTIMELY))
        elif is_plain and (
            one.key_length == 0 or one.value_length < 0 or payload[one.headers_start]
        ):
            unfit.append(UnfitRecord(index, Fault.UNKEEPABLE))
    if holds_max_timestamp and not unfit and largest_ms != batch.max_timestamp_ms:
        raise RecordError(
            f"the greatest timestamp is {largest_ms}, and {batch.max_timestamp_ms} by the header",
            ErrorCode.INVALID_RECORD,
        )
    return Findings(unfit, largest_ms)
