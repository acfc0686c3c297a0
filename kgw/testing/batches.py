"""Makes and reads small record batches for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kgw.records.batch import Compression, RecordBatch, read_batch, split_batches
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.compression import compress
from kgw.records.reader import read_records
from kgw.records.record import append_varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kgw.types import Buffer


class StoredRecord(NamedTuple):
    """Some fields of a record in a batch."""

    offset: int
    timestamp_ms: int
    value: bytes
    """The record's value; empty for a tombstone."""
    key: bytes | None = None


def make_batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> RecordBatch:
    """Return an uncompressed batch at offset 0, in a writable buffer.

    Without `timestamps_ms` all timestamps are 0; without `keys` all keys are null.
    """
    builder = BatchBuilder(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional or is_control,
        is_control=is_control,
    )
    keys = keys or [None] * len(values)
    times = timestamps_ms or [0] * len(values)
    for key, value, timestamp_ms in zip(keys, values, times, strict=True):
        builder.add(key=key, value=value, timestamp_ms=timestamp_ms)
    return read_batch(builder.build())


def make_sparse_batch(
    base_offset: int,
    end_offset: int,
    values: Mapping[int, bytes],
    *,
    timestamp_ms: int = 0,
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Return a batch in which only some offsets have records; without records, only a header."""
    payload = bytearray()
    for offset, value in values.items():
        record = bytearray(1)
        for number in (0, offset - base_offset, -1, len(value)):
            append_varint(record, number)
        record += value + b"\0"
        append_varint(payload, len(record))
        payload += record
    return encode_batch(
        compress(compression, payload) if values else b"",
        base_offset=base_offset,
        leader_epoch=-1,
        attributes=compression if values else 0,
        last_offset_delta=end_offset - base_offset - 1,
        base_timestamp_ms=timestamp_ms if values else -1,
        max_timestamp_ms=timestamp_ms if values else -1,
        record_count=len(values),
    )


def read_stored(buffers: Iterable[Buffer]) -> list[StoredRecord]:
    """Return the records of stored batches.

    Raises AssertionError for a wrong checksum, and RecordError for bytes that are not a batch.
    """
    records: list[StoredRecord] = []
    for buffer in buffers:
        for batch in split_batches(buffer):
            if not batch.crc_matches():
                raise AssertionError(f"the checksum of {batch} is wrong")
            records += [
                StoredRecord(one.offset, one.timestamp_ms, one.value or b"", one.key)
                for one in read_records(batch)
            ]
    return records
