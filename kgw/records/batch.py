"""The record batch, format 2, as a view of the bytes in which it was received.

Only the 61-byte header is read, and only three fields are ever rewritten in place: the base offset
and the leader epoch, which the CRC does not cover, and the max timestamp for log append time, which
it covers. The records after the header keep the client's compression and framing, unless the topic
has a compression of its own.

Layout (KIP-98): base offset i64, batch length i32 (of the bytes after it), leader epoch i32, magic
i8, CRC-32C u32 (over all bytes after it), attributes i16, last offset delta i32, base timestamp
i64, max timestamp i64, producer id i64, producer epoch i16, base sequence i32, record count i32.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.errors import ErrorCode
from kgw.records.crc import KEEP_GIL, crc32c
from kgw.records.errors import RecordError

if TYPE_CHECKING:
    from kgw.types import Buffer

HEADER_BYTES: Final = 61
PREFIX_BYTES: Final = 12
"""Size of base offset and batch length, which `batch_length` does not count."""
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
"""The same position in all formats, so that an old batch can be distinguished from a broken one."""
CRC_START: Final = 21
"""The CRC covers all bytes from the attributes on."""

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
SEQUENCE_MODULUS: Final = 1 << 31
"""Sequences run from 0 to the largest int32 and then begin again at 0."""

HEADER: Final = Struct(">qiibIhiqqqhii")
_START: Final = Struct(">qii")
"""Base offset, batch length, leader epoch."""
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")

_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35


class Compression(IntEnum):
    """The codec, in the lowest three bits of the attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class RecordBatch:
    """One batch: the fields of its header, and the bytes that they were read from.

    `buffer` spans exactly this batch, or only its header if only that was read. Fields are not
    validated, apart from the checks of `read_batch`; `kgw.partitions.append.validation` checks
    batches of clients. If the delete horizon flag is set, `base_timestamp_ms` is the delete
    horizon.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp_ms",
        "batch_length",
        "buffer",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp_ms",
        "producer_epoch",
        "producer_id",
        "record_count",
    )

    def __init__(
        self,
        buffer: memoryview,
        header: tuple[int, int, int, int, int, int, int, int, int, int, int, int, int],
    ) -> None:
        """Use a view of exactly one batch and its unpacked header."""
        self.buffer = buffer
        (
            self.base_offset,
            self.batch_length,
            self.leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp_ms,
            self.max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        ) = header

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets={self.base_offset}..{self.last_offset} "
            f"epoch={self.leader_epoch} records={self.record_count} bytes={self.size_bytes} "
            f"producer={self.producer_id}/{self.producer_epoch}@{self.base_sequence}>"
        )

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch with its header, according to the header."""
        return self.batch_length + PREFIX_BYTES

    @property
    def records(self) -> memoryview:
        """All bytes after the header, possibly compressed."""
        return self.buffer[HEADER_BYTES:]

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec. Raises RecordError for the three values that belong to no codec."""
        code = self.attributes & COMPRESSION_MASK
        if code > Compression.ZSTD:
            raise RecordError(
                f"compression type {code} is unknown", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            )
        return Compression(code)

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def uses_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones (KIP-534); None if not set yet."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after the largest int32 it begins again at 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_MODULUS

    def crc_matches(self) -> bool:
        """Return whether the bytes match their CRC. Needs the whole batch."""
        return bool(crc32c(self.buffer[CRC_START:], 0, KEEP_GIL) == self.crc)

    def assign(self, base_offset: int, leader_epoch: int) -> None:
        """Set the base offset and the leader epoch of this batch in the log. The CRC stays valid.

        The bytes are changed in place; a read-only buffer is replaced by a copy.
        """
        buffer = self.buffer
        if buffer.readonly:
            self.buffer = buffer = memoryview(bytearray(buffer))
        # The length between these fields is written again, too, which saves one call for each
        # batch.
        _START.pack_into(buffer, 0, base_offset, self.batch_length, leader_epoch)
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch

    def set_log_append_time(self, timestamp_ms: int) -> None:
        """Make `timestamp_ms` the time of every record (message.timestamp.type=LogAppendTime).

        Max timestamp, the attribute's bit and the CRC change; the records do not. Needs the whole
        batch; a read-only buffer is replaced by a copy.
        """
        buffer = self.buffer
        if buffer.readonly:
            self.buffer = buffer = memoryview(bytearray(buffer))
        self.attributes |= LOG_APPEND_TIME_FLAG
        self.max_timestamp_ms = timestamp_ms
        _ATTRIBUTES.pack_into(buffer, _ATTRIBUTES_POSITION, self.attributes)
        _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, timestamp_ms)
        self.crc = crc32c(buffer[CRC_START:], 0, KEEP_GIL)
        _CRC.pack_into(buffer, _CRC_POSITION, self.crc)

    def replace_records(self, records: Buffer, attributes: int, max_timestamp_ms: int) -> None:
        """Replace the bytes after the header by the same records in another encoding.

        Length, attributes, max timestamp and CRC change. Needs the whole batch, or its header.
        """
        whole = bytearray().join((self.buffer[:HEADER_BYTES], records))
        self.batch_length = len(whole) - PREFIX_BYTES
        self.attributes = attributes
        self.max_timestamp_ms = max_timestamp_ms
        self.buffer = buffer = memoryview(whole)
        _START.pack_into(buffer, 0, self.base_offset, self.batch_length, self.leader_epoch)
        _ATTRIBUTES.pack_into(buffer, _ATTRIBUTES_POSITION, attributes)
        _MAX_TIMESTAMP.pack_into(buffer, _MAX_TIMESTAMP_POSITION, max_timestamp_ms)
        self.crc = crc32c(buffer[CRC_START:], 0, KEEP_GIL)
        _CRC.pack_into(buffer, _CRC_POSITION, self.crc)


def read_batch(buffer: Buffer, position: int = 0) -> RecordBatch:
    """Read the batch that begins at `position`; all of its bytes must be there.

    Checks only the fields that are needed to find its end. Raises RecordError if the format is not
    2 or the length in the header is impossible.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    available = len(view) - position
    if available < HEADER_BYTES or view[position + MAGIC_POSITION] != MAGIC:
        _refuse_header(view, position)
    header = HEADER.unpack_from(view, position)
    size_bytes = header[1] + PREFIX_BYTES
    if size_bytes < HEADER_BYTES or size_bytes > available:
        _refuse_length(header[1], available)
    return RecordBatch(view[position : position + size_bytes], header)


def is_cut_off(buffer: Buffer) -> bool:
    """Return whether the bytes end before the first batch does."""
    if len(buffer) < PREFIX_BYTES:
        return True
    batch_length = int.from_bytes(buffer[PREFIX_BYTES - 4 : PREFIX_BYTES], "big", signed=True)
    return batch_length + PREFIX_BYTES > len(buffer)


def read_header(buffer: Buffer, position: int = 0) -> RecordBatch:
    """Read a header whose records may be missing. The result's buffer has only the header.

    Raises RecordError if the format is not 2 or the length is impossible.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    if len(view) - position < HEADER_BYTES or view[position + MAGIC_POSITION] != MAGIC:
        _refuse_header(view, position)
    header = HEADER.unpack_from(view, position)
    if header[1] < HEADER_BYTES - PREFIX_BYTES:
        _refuse_length(header[1], len(view) - position)
    return RecordBatch(view[position : position + HEADER_BYTES], header)


def split_batches(buffer: Buffer) -> list[RecordBatch]:
    """Return the batches of a buffer, which has whole batches and nothing else, or is empty.

    Raises RecordError if bytes are left over or a batch is cut off.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    end = len(view)
    batches: list[RecordBatch] = []
    position = 0
    while position < end:
        batch = read_batch(view, position)
        batches.append(batch)
        position += batch.batch_length + PREFIX_BYTES
    return batches


def _refuse_header(view: memoryview, position: int) -> None:
    available = len(view) - position
    if available > MAGIC_POSITION and view[position + MAGIC_POSITION] != MAGIC:
        magic = view[position + MAGIC_POSITION]
        if magic in (0, 1):
            raise RecordError(
                f"a message of format {magic} stands where a batch of format {MAGIC} is due",
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            )
        raise RecordError(f"a record batch cannot have magic {magic}")
    raise RecordError(f"a record batch of {available} bytes is shorter than its header")


def _refuse_length(batch_length: int, available: int) -> None:
    raise RecordError(
        f"a record batch claims {batch_length + PREFIX_BYTES} bytes where {available} are left"
    )
