"""Recompresses the records of a batch with another codec, for topics with a compression.type.

The records (offsets, timestamps, keys, values, headers) and the producer fields of the header do
not change; the header's codec, length, max timestamp and CRC are set anew. Kafka's broker builds a
new batch from the records; the resulting bytes are the same, because both frame records in the same
way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kgw.errors import ErrorCode
from kgw.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    Compression,
)
from kgw.records.compression import compress
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from kgw.records.batch import RecordBatch
    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer

LZ4_FAST_LEVEL: Final = 9
"""Kafka's default level of lz4, which selects the fast compressor."""
_LZ4_LOWEST_HIGH_LEVEL: Final = 3


class Recompression(NamedTuple):
    """The codec and limits with which to recompress a batch."""

    compression: Compression
    level: int | None
    """The value of compression.*.level (KIP-390); None for codecs without levels."""
    max_batch_bytes: int
    """max.message.bytes, which also limits the recompressed batch."""
    log_append_time_ms: int | None = None
    """The new time of every record if the topic uses log append time."""


def recompress(
    batch: RecordBatch,
    payload: Buffer,
    max_timestamp_ms: int,
    wanted: Recompression,
    limits: DecompressionLimits,
) -> None:
    """Compress the decompressed payload of a whole batch with another codec, in place.

    `max_timestamp_ms` is the highest timestamp of its records. The batch keeps its codec if the
    result would be so small that compaction, or an answer to an old client, could not decompress it
    within `limits`. Raises RecordError MESSAGE_TOO_LARGE if the new batch is too large; then
    nothing is changed.
    """
    codec = wanted.compression
    records = compress(codec, payload, _level(wanted))
    if codec is not Compression.NONE and len(payload) > limits.bound(len(records)):
        codec, records = batch.compression, batch.records
    size_bytes = HEADER_BYTES + len(records)
    if size_bytes > wanted.max_batch_bytes:
        raise RecordError(
            f"a batch of {batch.size_bytes} bytes becomes {size_bytes} with compression.type="
            f"{type_name(codec)}, which exceeds max.message.bytes={wanted.max_batch_bytes}",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    attributes = batch.attributes & ~COMPRESSION_MASK | codec
    if wanted.log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp_ms = wanted.log_append_time_ms
    batch.replace_records(records, attributes, max_timestamp_ms)


def type_name(codec: Compression) -> str:
    """Return the name of a codec as a value of compression.type."""
    return "uncompressed" if codec is Compression.NONE else codec.name.lower()


def _level(wanted: Recompression) -> int | None:
    """Return a level in the codec's own numbers.

    Java's lz4 has a fast compressor, and one with levels.
    """
    if wanted.compression is not Compression.LZ4 or wanted.level is None:
        return wanted.level
    return 0 if wanted.level == LZ4_FAST_LEVEL else max(wanted.level, _LZ4_LOWEST_HIGH_LEVEL)
