"""Finds records that must be refused, for topics whose rules apply to the payload.

If a batch passes these checks, `read_records` can read all of its records, and so can consumers.
The cost is in docs/decisions/0013-what-is-checked-of-a-batch.md.
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
"""The most records that are listed.

Clients treat the other records of the batch as refused because of them.
"""


class UnfitReason(Enum):
    """The reason why a record is refused."""

    KEYLESS = "keyless"
    """The record lacks a key, which the topic requires."""
    UNTIMELY = "untimely"
    """The record's timestamp is out of range."""
    UNKEEPABLE = "unkeepable"
    """The record has headers, an empty key or a null value, but the topic can only store a key and
    a value."""


class UnfitRecord(NamedTuple):
    """One record that is refused."""

    place: int
    """Index in the batch, from 0."""
    fault: UnfitReason


class Findings(NamedTuple):
    """The result of checking all records of a batch."""

    unfit: list[UnfitRecord]
    """At most MAX_NAMED records."""
    max_timestamp_ms: int
    """The highest timestamp of the records, which may differ from the header."""


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
    """Return the records of a batch that must be refused; `payload` is the result of `unpack`.

    `time_range` is the first and the last allowed timestamp, in milliseconds; a record without a
    timestamp is always allowed. Raises RecordError if the payload is not as many records as the
    header counts, one for each offset unless `has_gaps`; with `holds_max_timestamp` also if the
    header's max timestamp differs from the records' greatest one and no record is refused.
    """
    unfit: list[UnfitRecord] = []
    largest_ms = NO_TIMESTAMP_MS
    # Every record is read, even when the list is full.
    for index, one in enumerate(walk(payload, batch)):
        timestamp_ms = one.timestamp_ms
        if one.offset != batch.base_offset + index and not has_gaps:
            raise RecordError(
                f"record {index} has offset delta {one.offset - batch.base_offset}",
                ErrorCode.INVALID_RECORD,
            )
        # The usual record has no headers: it ends with their number.
        if payload[one.headers_start] or one.headers_start + 1 != one.end:
            read_headers(payload, one)
        if not index or timestamp_ms > largest_ms:
            largest_ms = timestamp_ms
        if len(unfit) == MAX_NAMED:
            continue
        if needs_keys and one.key_length < 0:
            unfit.append(UnfitRecord(index, UnfitReason.KEYLESS))
        elif (
            time_range is not None
            and timestamp_ms != NO_TIMESTAMP_MS
            and not time_range[0] <= timestamp_ms <= time_range[1]
        ):
            unfit.append(UnfitRecord(index, UnfitReason.UNTIMELY))
        elif is_plain and (
            one.key_length == 0 or one.value_length < 0 or payload[one.headers_start]
        ):
            unfit.append(UnfitRecord(index, UnfitReason.UNKEEPABLE))
    if holds_max_timestamp and not unfit and largest_ms != batch.max_timestamp_ms:
        raise RecordError(
            f"the greatest timestamp is {largest_ms}, and {batch.max_timestamp_ms} by the header",
            ErrorCode.INVALID_RECORD,
        )
    return Findings(unfit, largest_ms)
