"""The records of a batch in another codec, for topics with a compression.type of their own.

What the records are - offsets, times, keys, values, headers - and what the header says of their
producer stays as it was; the header's codec, its length, its greatest timestamp and the CRC are
new. Kafka's broker makes a new batch of the records; the bytes come out the same, as they are
framed alike.
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
"""Kafka's default level of lz4, which stands for the fast compressor."""
_LZ4_LOWEST_HIGH_LEVEL: Final = 3


class Recompression(NamedTuple):
    """What a batch is to become."""

    compression: Compression
    level: int | None
    """As compression.*.level has it (KIP-390); None for codecs without levels."""
    max_batch_bytes: int
    """max.message.bytes, which holds for what comes out as well."""
    log_append_time_ms: int | None = None
    """What becomes the time of every record, where the topic uses log append time."""


def recompress(
    batch: RecordBatch,
    payload: Buffer,
    max_timestamp_ms: int,
    wanted: Recompression,
    limits: DecompressionLimits,
) -> None:
    """Have a whole batch hold its payload, which has been unpacked, in another codec; in place.

    `max_timestamp_ms` is the greatest of its records. What would become so small that it could not
    be unpacked within `limits` any more, by compaction or for an old client, stays in the codec in
    which it came. Raises RecordError MESSAGE_TOO_LARGE when the batch becomes larger than it may;
    nothing has changed then.
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
    """Return what compression.type calls a codec."""
    return "uncompressed" if codec is Compression.NONE else codec.name.lower()


def _level(wanted: Recompression) -> int | None:
    """Return the codec's own level. Java's lz4 has a fast compressor, and one with levels."""
    if wanted.compression is not Compression.LZ4 or wanted.level is None:
        return wanted.level
    return 0 if wanted.level == LZ4_FAST_LEVEL else max(wanted.level, _LZ4_LOWEST_HIGH_LEVEL)
