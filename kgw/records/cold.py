"""The records of a batch that is hardly read any more, in zstd.

Only the codec, the bytes of the records, the length and the CRC change: what a reader is told of a
batch and of each record is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kgw.records.batch import COMPRESSION_MASK, Compression, RecordBatch, read_batch
from kgw.records.compression import compress, decompress
from kgw.records.errors import RecordError
from kgw.records.limits import DEFAULT_LIMITS, DecompressionLimits
from kgw.records.reader import unpack

if TYPE_CHECKING:
    from kgw.types import Buffer

_SAME: Final = (
    "base_offset",
    "leader_epoch",
    "magic",
    "last_offset_delta",
    "base_timestamp_ms",
    "max_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)


def to_zstd(
    batch: RecordBatch, level: int, limits: DecompressionLimits = DEFAULT_LIMITS
) -> RecordBatch:
    """Return a whole batch with its records in zstd, or itself where it is to stay as it is.

    That is a control batch, one without records, one in zstd, one that would not get smaller, one
    that cannot be unpacked, and one that could not be unpacked within `limits` any more. The CRC is
    the caller's to check.
    """
    if batch.is_control or not batch.record_count:
        return batch
    try:
        if batch.compression is Compression.ZSTD:
            return batch
        payload = decompress(batch.compression, batch.records, limits)
    except RecordError:
        # A producer's lie, stored as it came. A reader that can make something of it still does.
        return batch
    records = compress(Compression.ZSTD, payload, level)
    if len(records) >= len(batch.records) or len(payload) > limits.bound(len(records)):
        return batch
    return _replaced(batch, records, Compression.ZSTD)


def without_zstd(batch: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS) -> RecordBatch:
    """Return a whole batch without compression if it is in zstd, else itself.

    For readers who know no zstd. Raises RecordError when it cannot be unpacked.
    """
    if batch.attributes & COMPRESSION_MASK != Compression.ZSTD:
        return batch
    payload = decompress(Compression.ZSTD, batch.records, limits)
    return _replaced(batch, payload, Compression.NONE)


def find_difference(
    before: RecordBatch, after: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS
) -> str | None:
    """Say in what a batch says something else than the one that `to_zstd` made it of; or None.

    The CRCs are the caller's to check. Raises RecordError when a changed one cannot be unpacked.
    """
    if before.buffer == after.buffer:
        return None
    for name in _SAME:
        if getattr(before, name) != getattr(after, name):
            return f"{name} was {getattr(before, name)} and is {getattr(after, name)}"
    if (before.attributes ^ after.attributes) & ~COMPRESSION_MASK:
        return f"attributes were {before.attributes:#x} and are {after.attributes:#x}"
    # Without compression records have one form: equal bytes are equal records.
    if unpack(before, limits) != unpack(after, limits):
        return "the records are others"
    return None


def _replaced(batch: RecordBatch, records: Buffer, codec: Compression) -> RecordBatch:
    """Return a batch with other bytes behind its header."""
    other = read_batch(batch.buffer)
    attributes = batch.attributes & ~COMPRESSION_MASK | codec
    other.replace_records(records, attributes, batch.max_timestamp_ms)
    return other
