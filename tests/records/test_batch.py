from __future__ import annotations

import pytest
from crc32c import crc32c

from kgw.errors import ErrorCode
from kgw.records.batch import (
    HEADER,
    HEADER_BYTES,
    Compression,
    RecordBatch,
    read_batch,
    read_header,
    split_batches,
)
from kgw.records.builder import BatchBuilder
from kgw.records.errors import RecordError


def build(count: int = 3, **options: int | bool) -> bytearray:
    """Return a batch of `count` records."""
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for index in range(count):
        builder.add(key=b"key", value=b"value %d" % index, timestamp_ms=1_000 + index)
    return builder.build()


def test_reads_every_header_field() -> None:
    """A batch's attributes are the header's fields and what follows from them."""
    raw = build(base_offset=40, leader_epoch=7, producer_id=9, producer_epoch=2, base_sequence=5)

    batch = read_batch(raw)

    assert (40, 42, 43, 7, 2) == (
        batch.base_offset,
        batch.last_offset,
        batch.next_offset,
        batch.leader_epoch,
        batch.magic,
    )
    assert (1_000, 1_002, 3, 2) == (
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        batch.record_count,
        batch.last_offset_delta,
    )
    assert (9, 2, 5, 7) == (
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
    )
    assert len(raw) == batch.size_bytes == batch.batch_length + 12
    assert batch.has_producer_id
    assert batch.crc_matches()
    assert crc32c(raw[21:]) == batch.crc
    assert raw[HEADER_BYTES:] == batch.records


def test_a_plain_batch_has_no_producer_and_no_flags() -> None:
    """What an ordinary producer sends is neither control nor transactional nor sequenced."""
    batch = read_batch(build())

    assert not batch.has_producer_id
    assert not batch.is_control
    assert not batch.is_transactional
    assert not batch.uses_log_append_time
    assert not batch.is_header_only
    assert batch.last_sequence == -1
    assert Compression.NONE is batch.compression


def test_flags_are_read() -> None:
    """The transactional and the control bit are told apart."""
    batch = read_batch(build(is_transactional=True, is_control=True, producer_id=1))

    assert batch.is_transactional
    assert batch.is_control


def test_the_last_sequence_wraps_to_zero() -> None:
    """After the largest int32 the sequence goes on at 0."""
    batch = read_batch(build(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))

    assert batch.last_sequence == 0


def test_assign_writes_in_place_and_keeps_the_crc() -> None:
    """Offset and epoch change in the very bytes that came; the CRC does not cover them."""
    raw = build()
    batch = read_batch(raw)

    batch.assign(1 << 40, 12)

    again = read_batch(raw)
    assert (1 << 40, 12) == (again.base_offset, again.leader_epoch)
    assert (1 << 40, 12) == (batch.base_offset, batch.leader_epoch)
    assert again.crc_matches()


def test_assign_copies_what_it_may_not_change() -> None:
    """A read-only buffer stays as it was; the batch goes on with a copy."""
    raw = bytes(build())
    batch = read_batch(raw)

    batch.assign(5, 1)

    assert read_batch(raw).base_offset == 0
    assert read_batch(batch.buffer).base_offset == 5


@pytest.mark.parametrize("read_only", [False, True])
def test_log_append_time_is_for_every_record_and_under_the_crc(read_only: bool) -> None:
    """The time, its attribute bit and a new CRC are written; the records stay."""
    raw = build()
    batch = read_batch(bytes(raw) if read_only else raw)
    records = bytes(batch.records)

    batch.set_log_append_time(77)

    again = read_batch(batch.buffer)
    assert again.uses_log_append_time
    assert again.max_timestamp_ms == batch.max_timestamp_ms == 77
    assert again.crc == batch.crc
    assert again.crc_matches()
    assert records == again.records


def test_batches_back_to_back_are_split() -> None:
    """Each batch spans exactly its bytes; no bytes are no batches."""
    raw = build(1) + build(2) + build(3)

    batches = split_batches(raw)

    assert [1, 2, 3] == [batch.record_count for batch in batches]
    assert raw == b"".join(batch.buffer for batch in batches)
    assert split_batches(b"") == []


def test_a_batch_is_read_in_the_middle() -> None:
    """The position says where the batch begins."""
    first, second = build(1), build(2)

    assert read_batch(first + second, len(first)).record_count == 2


@pytest.mark.parametrize("missing", [1, 30, 90])
def test_a_broken_off_batch_is_refused(missing: int) -> None:
    """Neither a cut header nor a cut payload is taken for a batch."""
    raw = build(4)

    with pytest.raises(RecordError) as caught:
        split_batches(raw + raw[:-missing])

    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


@pytest.mark.parametrize("length", [0, -1, 48, 10_000, -(2**31), 2**31 - 1])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    """A batch is at least its header and at most what is there."""
    raw = build()
    raw[8:12] = length.to_bytes(4, "big", signed=True)

    with pytest.raises(RecordError):
        read_batch(raw)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_named(magic: int) -> None:
    """A batch of format 0 or 1, which may be shorter than our header, gets the code for it."""
    raw = bytearray(26)
    raw[16] = magic

    with pytest.raises(RecordError) as caught:
        read_batch(raw)

    assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT is caught.value.code


@pytest.mark.parametrize("magic", [3, 0x80, 0xFF])
def test_unknown_formats_are_corrupt(magic: int) -> None:
    """A magic that no Kafka ever wrote is damage."""
    raw = build()
    raw[16] = magic

    with pytest.raises(RecordError) as caught:
        read_batch(raw)

    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


@pytest.mark.parametrize("code", [5, 6, 7])
def test_unknown_compression_is_refused(code: int) -> None:
    """Codes that mean no codec raise where the codec is asked for."""
    raw = build()
    raw[22] = code

    with pytest.raises(RecordError) as caught:
        _ = read_batch(raw).compression

    assert ErrorCode.UNSUPPORTED_COMPRESSION_TYPE is caught.value.code


def test_a_header_is_read_without_its_records() -> None:
    """For replay a header alone is a batch that knows its size."""
    raw = build()

    batch = read_header(raw[:HEADER_BYTES])

    assert batch.is_header_only
    assert len(raw) == batch.size_bytes
    assert HEADER_BYTES == len(batch.buffer)


def test_a_header_with_an_impossible_length_is_refused() -> None:
    """A header that claims less than itself, or is cut off, is none."""
    raw = build()
    with pytest.raises(RecordError):
        read_header(raw[: HEADER_BYTES - 1])
    raw[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(RecordError):
        read_header(raw)


def test_repr_says_which_batch() -> None:
    """Offsets, epoch and size are what one looks for in a failing assertion."""
    header = HEADER.unpack_from(build(base_offset=8, leader_epoch=3))

    assert "offsets=8..10 epoch=3 records=3" in repr(RecordBatch(memoryview(b""), header))
