"""Builds record batches from records, for the client, tools and tests."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from kgw.records.batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    PREFIX_BYTES,
    TRANSACTIONAL_FLAG,
    Compression,
)
from kgw.records.compression import compress
from kgw.records.crc import crc32c
from kgw.records.record import HEADER_KEY_ERRORS, append_varint, as_int64
from kgw.types import NO_LEADER_EPOCH, NO_TIMESTAMP_MS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kgw.types import Buffer

_CRC: Final = Struct(">I")
_CRC_POSITION: Final = 17


class BatchBuilder:
    """Collects records and builds one batch of them.

    By default the base offset is 0, as in producers' batches. With `log_append_time_ms` all records
    have this time.
    """

    def __init__(
        self,
        *,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        log_append_time_ms: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> None:
        """Begin an empty batch."""
        self._compression = compression
        self._compression_level = compression_level
        self._log_append_time_ms = log_append_time_ms
        self._encode = partial(
            encode_batch,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            attributes=(
                compression
                | (LOG_APPEND_TIME_FLAG if log_append_time_ms is not None else 0)
                | (TRANSACTIONAL_FLAG if is_transactional else 0)
                | (CONTROL_FLAG if is_control else 0)
            ),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        self._records = bytearray()
        self._record_count = 0
        self._base_timestamp_ms = NO_TIMESTAMP_MS
        self._max_timestamp_ms = NO_TIMESTAMP_MS

    def __len__(self) -> int:
        return self._record_count

    def add(
        self,
        *,
        key: Buffer | None = None,
        value: Buffer | None = None,
        timestamp_ms: int = NO_TIMESTAMP_MS,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> None:
        """Add one record, at the offset after the previous record."""
        if not self._record_count:
            self._base_timestamp_ms = timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        record = bytearray(1)  # attributes, which have no meaning yet
        append_varint(record, as_int64(timestamp_ms - self._base_timestamp_ms))
        append_varint(record, self._record_count)
        _append_bytes(record, key)
        _append_bytes(record, value)
        listed = list(headers)
        append_varint(record, len(listed))
        for header_key, header_value in listed:
            _append_bytes(record, header_key.encode("utf-8", HEADER_KEY_ERRORS))
            _append_bytes(record, header_value)
        append_varint(self._records, len(record))
        self._records += record
        self._record_count += 1

    def build(self) -> bytearray:
        """Return the batch. Raises ValueError if it has no records: clients refuse such a batch."""
        if not self._record_count:
            raise ValueError("a batch has at least one record")
        payload = compress(self._compression, self._records, self._compression_level)
        append_time_ms = self._log_append_time_ms
        return self._encode(
            payload,
            last_offset_delta=self._record_count - 1,
            base_timestamp_ms=self._base_timestamp_ms,
            max_timestamp_ms=self._max_timestamp_ms if append_time_ms is None else append_time_ms,
            record_count=self._record_count,
        )


def encode_batch(
    payload: Buffer,
    *,
    base_offset: int,
    leader_epoch: int,
    attributes: int = 0,
    last_offset_delta: int,
    base_timestamp_ms: int = NO_TIMESTAMP_MS,
    max_timestamp_ms: int = NO_TIMESTAMP_MS,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    record_count: int = 0,
) -> bytearray:
    """Return a batch with this payload, and with the right length and CRC."""
    batch = bytearray(
        HEADER.pack(
            base_offset,
            HEADER_BYTES - PREFIX_BYTES + len(payload),
            leader_epoch,
            MAGIC,
            0,
            attributes,
            last_offset_delta,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    )
    batch += payload
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def _append_bytes(output: bytearray, value: Buffer | None) -> None:
    """Append bytes after their length; for None, only the length -1."""
    if value is None:
        append_varint(output, -1)
    else:
        append_varint(output, len(value))
        output += value
