"""Message sets: the record formats 0 and 1 of clients older than Kafka 0.11.

A set is a sequence of messages without a header of its own. Each message: offset i64, size i32 (of
the bytes after it), CRC-32 u32 (over the bytes after it), magic i8, attributes i8, in format 1 a
timestamp i64 (KIP-32), then key and value, each after its length i32, which is -1 for null.

A compressed message is a wrapper: its value is a message set. Its offset is that of its last inner
message. The inner messages have their own offsets in format 0, and offsets relative to the first of
them in format 1 (KIP-31). The wrapper's timestamp is the highest timestamp of the inner messages;
with log append time, it applies to all of them.
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn
from zlib import crc32

from kgw.errors import ErrorCode
from kgw.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    MAGIC_POSITION,
    PREFIX_BYTES,
    Compression,
)
from kgw.records.compression import compress, decompress
from kgw.records.errors import RecordError
from kgw.records.old_lz4 import with_right_checksum, with_wrong_checksum
from kgw.types import NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kgw.records.limits import DecompressionLimits
    from kgw.types import Buffer

SMALLEST_MESSAGE_BYTES: Final = 26
"""Size of a format 0 message with null for key and value."""

_START: Final = Struct(">qiIbb")
"""Offset, size, CRC, magic, attributes: the same in both formats."""
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_OFFSET_SIZE_CRC: Final = Struct(">qiI")
_CRC_BYTES: Final = 4
_CRC_START: Final = PREFIX_BYTES + _CRC_BYTES
_HEADS: Final = (Struct(">bbi"), Struct(">bbqi"))
"""By magic: the fields from the magic to the key's length, which the CRC covers."""
_SMALLEST_SIZES: Final = (14, 22)
"""By magic: the least value of a message's size field."""


class LegacyRecord(NamedTuple):
    """One message of a set."""

    offset: int
    attributes: int
    timestamp_ms: int
    """-1 in format 0, which has no timestamps."""
    key: memoryview | None
    value: memoryview | None


class MessageSet(NamedTuple):
    """A message set as a producer sent it."""

    magic: int
    compression: Compression
    messages: Iterator[LegacyRecord]
    """The messages; those inside the wrapper if there is one. It can be iterated once, and may
    raise the errors of `read_message_set` after some messages."""


def magic_of(records: Buffer) -> int:
    """Return the format of a partition's records in a Produce request: 0, 1 or 2.

    Raises RecordError CORRUPT_MESSAGE for other bytes.
    """
    if len(records) <= MAGIC_POSITION:
        raise RecordError(f"{len(records)} bytes are too few for a message")
    magic = records[MAGIC_POSITION]
    if magic > 2:
        raise RecordError(f"a message cannot have magic {magic}")
    return magic


def is_compressed(message_set: Buffer) -> bool:
    """Return whether a set's first message is a wrapper; False if the bytes are too few."""
    return len(message_set) > MAGIC_POSITION + 1 and bool(
        message_set[MAGIC_POSITION + 1] & COMPRESSION_MASK
    )


def has_few_messages(message_set: Buffer, most: int) -> bool:
    """Return whether a set has at most `most` messages, without counting those in wrappers."""
    position = 0
    for _ in range(most):
        if position + SMALLEST_MESSAGE_BYTES > len(message_set):
            return True
        size_bytes: int = _LENGTH.unpack_from(message_set, position + 8)[0]
        if size_bytes < 0:
            return True
        position += PREFIX_BYTES + size_bytes
    return position >= len(message_set)


# --- reading --------------------------------------------------------------------------------------


def read_message_set(message_set: Buffer, limits: DecompressionLimits) -> MessageSet:
    """Read a message set of a producer, which has at least one message.

    Messages are read in their order in the set, as Kafka does. Their offsets are ignored, except
    the offset of a wrapper of format 1: it must not be below that of its last inner message, unless
    it is 0, as librdkafka sends it.

    Raises RecordError: CORRUPT_MESSAGE for a wrong size or CRC and for data that is not in the
    codec's format; INVALID_RECORD for two formats in one set, for a wrapper that is not alone, is
    empty or contains another one, and for a codec that these formats do not have; INVALID_TIMESTAMP
    for log append time and negative times; MESSAGE_TOO_LARGE as `decompress`.
    """
    magic = magic_of(message_set)
    if magic > 1:
        _refuse(f"a batch of format {magic} stands where a message set is due")
    messages = _read_messages(memoryview(message_set), magic)
    first = next(messages)
    code = first.attributes & COMPRESSION_MASK
    if code == Compression.NONE:
        plain = chain((first,), messages)
        return MessageSet(magic, Compression.NONE, _without_wrappers(plain, magic))
    if next(messages, None) is not None:
        _refuse("a compressed message stands alone in its set")
    if code > Compression.LZ4:
        _refuse(f"format {magic} has no compression type {code}")
    compression = Compression(code)
    return MessageSet(magic, compression, _read_wrapper(first, magic, compression, limits))


def _read_messages(message_set: memoryview, magic: int) -> Iterator[LegacyRecord]:
    """Yield consecutive messages of one format."""
    end = len(message_set)
    smallest = _SMALLEST_SIZES[magic]
    position = 0
    while position < end:
        left_bytes = end - position
        if left_bytes < SMALLEST_MESSAGE_BYTES:
            raise RecordError(f"a message is cut off: {left_bytes} bytes are left")
        offset, size_bytes, crc, found_magic, attributes = _START.unpack_from(message_set, position)
        next_position = position + PREFIX_BYTES + size_bytes
        if size_bytes < _SMALLEST_SIZES[0] or next_position > end:
            raise RecordError(f"a message claims {size_bytes} bytes where {left_bytes} are left")
        if crc32(message_set[position + _CRC_START : next_position]) != crc:
            raise RecordError(f"the message at byte {position} fails its CRC")
        if found_magic != magic:
            _refuse(f"a message of format {found_magic} stands among those of format {magic}")
        if size_bytes < smallest:
            raise RecordError(f"a message of format {magic} cannot have {size_bytes} bytes")
        timestamp_ms = NO_TIMESTAMP_MS
        key_at = position + _START.size
        if magic:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(message_set, key_at)
            key_at += _TIMESTAMP.size
            if timestamp_ms < NO_TIMESTAMP_MS:
                _refuse(f"timestamp {timestamp_ms} is negative", ErrorCode.INVALID_TIMESTAMP)
        (key_length,) = _LENGTH.unpack_from(message_set, key_at)
        key_start = key_at + _LENGTH.size
        value_at = key_start + max(key_length, 0)
        value_start = value_at + _LENGTH.size
        if key_length < -1 or value_start > next_position:
            raise RecordError(f"a key of {key_length} bytes in a message of {size_bytes}")
        (value_length,) = _LENGTH.unpack_from(message_set, value_at)
        if value_length < -1 or value_start + max(value_length, 0) != next_position:
            raise RecordError(f"a value of {value_length} bytes in a message of {size_bytes}")
        yield LegacyRecord(
            offset,
            attributes,
            timestamp_ms,
            None if key_length < 0 else message_set[key_start:value_at],
            None if value_length < 0 else message_set[value_start:next_position],
        )
        position = next_position


def _without_wrappers(messages: Iterator[LegacyRecord], magic: int) -> Iterator[LegacyRecord]:
    for message in messages:
        if message.attributes & COMPRESSION_MASK:
            _refuse("a compressed message stands alone in its set")
        _check_time_type(message, magic)
        yield message


def _read_wrapper(
    wrapper: LegacyRecord, magic: int, compression: Compression, limits: DecompressionLimits
) -> Iterator[LegacyRecord]:
    # Only the wrapper's time type matters; the inner messages' time types are ignored.
    _check_time_type(wrapper, magic)
    if wrapper.value is None:
        _refuse("a compressed message has no value")
    data: Buffer = wrapper.value
    if compression is Compression.LZ4 and magic == 0:
        data = with_right_checksum(data)
    last: LegacyRecord | None = None
    for message in _read_messages(memoryview(decompress(compression, data, limits)), magic):
        if message.attributes & COMPRESSION_MASK:
            _refuse("a compressed message has another one inside")
        yield message
        last = message
    if last is None:
        _refuse("a compressed message has nothing inside")
    if magic and 0 != wrapper.offset < last.offset:
        _refuse(f"a compressed message has offset {wrapper.offset}, and its last {last.offset}")


def _check_time_type(message: LegacyRecord, magic: int) -> None:
    if magic and message.attributes & LOG_APPEND_TIME_FLAG:
        _refuse("only the server gives messages log append time", ErrorCode.INVALID_TIMESTAMP)


def _refuse(message: str, code: ErrorCode = ErrorCode.INVALID_RECORD) -> NoReturn:
    raise RecordError(message, code)


# --- writing --------------------------------------------------------------------------------------


def encode_message(
    magic: int,
    offset: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    """Return one message. Format 0 has no timestamp and no attribute bit for its type."""
    key_length = -1 if key is None else len(key)
    head = (
        _HEADS[1].pack(1, attributes, timestamp_ms, key_length)
        if magic
        else _HEADS[0].pack(0, attributes & COMPRESSION_MASK, key_length)
    )
    covered = b"".join(
        (head, key or b"", _LENGTH.pack(-1 if value is None else len(value)), value or b"")
    )
    return _OFFSET_SIZE_CRC.pack(offset, len(covered) + _CRC_BYTES, crc32(covered)) + covered


def encode_wrapper(
    magic: int,
    compression: Compression,
    last_offset: int,
    timestamp_ms: int,
    messages: Buffer,
    attributes: int = 0,
) -> bytes:
    """Return a wrapper with these inner messages, the last of which is at `last_offset`."""
    data = compress(compression, messages)
    if compression is Compression.LZ4 and magic == 0:
        data = with_wrong_checksum(data)
    return encode_message(magic, last_offset, timestamp_ms, None, data, attributes | compression)
