"""Compresses the records of a rarely read batch with zstd.

Only the codec, the bytes of the records, the length and the CRC change: consumers see the same
batch with the same records.
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
    """Return a whole batch with its records in zstd, or the batch itself if it must not change.

    These batches must not change: control batches, batches without records or already in zstd, and
    batches that would not get smaller, cannot be decompressed, or could not be decompressed within
    `limits` afterwards. The caller has checked the CRC.
    """
    if batch.is_control or not batch.record_count:
        return batch
    try:
        if batch.compression is Compression.ZSTD:
            return batch
        payload = decompress(batch.compression, batch.records, limits)
    except RecordError:
        # A producer sent broken records, and they are stored as sent. Some consumers may still read
        # them.
        return batch
    records = compress(Compression.ZSTD, payload, level)
    if len(records) >= len(batch.records) or len(payload) > limits.bound(len(records)):
        return batch
    return _replaced(batch, records, Compression.ZSTD)


def without_zstd(batch: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS) -> RecordBatch:
    """Return a whole batch decompressed if it is in zstd, else unchanged.

    For consumers that do not support zstd. Raises RecordError if it cannot be decompressed.
    """
    if batch.attributes & COMPRESSION_MASK != Compression.ZSTD:
        return batch
    payload = decompress(Compression.ZSTD, batch.records, limits)
    return _replaced(batch, payload, Compression.NONE)


def find_difference(
    before: RecordBatch, after: RecordBatch, limits: DecompressionLimits = DEFAULT_LIMITS
) -> str | None:
    """Return how a batch differs from the original that was passed to `to_zstd`, or None.

    The caller has checked the CRCs. Raises RecordError if a changed batch cannot be decompressed.
    """
    if before.buffer == after.buffer:
        return None
    for name in _SAME:
        if getattr(before, name) != getattr(after, name):
            return f"{name} was {getattr(before, name)} and is {getattr(after, name)}"
    if (before.attributes ^ after.attributes) & ~COMPRESSION_MASK:
        return f"attributes were {before.attributes:#x} and are {after.attributes:#x}"
    # Uncompressed records have only one encoding: equal bytes are equal records.
    if unpack(before, limits) != unpack(after, limits):
        return "the records are others"
    return None


def _replaced(batch: RecordBatch, records: Buffer, codec: Compression) -> RecordBatch:
    """Return a copy of a batch with other records after its header."""
    other = read_batch(batch.buffer)
    attributes = batch.attributes & ~COMPRESSION_MASK | codec
    other.replace_records(records, attributes, batch.max_timestamp_ms)
    return other
