from __future__ import annotations

import pytest
from crc32c import crc32c

from kgw.errors import ErrorCode
from kgw.records.batch import (
    HEADER_BYTES,
    Compression,
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


PLAIN = {
    "magic": 2,
    "base_offset": 0,
    "last_offset": 2,
    "next_offset": 3,
    "last_offset_delta": 2,
    "leader_epoch": -1,
    "base_timestamp_ms": 1_000,
    "max_timestamp_ms": 1_002,
    "record_count": 3,
    "producer_id": -1,
    "producer_epoch": -1,
    "base_sequence": -1,
    "last_sequence": -1,
    "has_producer_id": False,
    "is_control": False,
    "is_transactional": False,
    "uses_log_append_time": False,
    "compression": Compression.NONE,
}


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({}, {}),
        (
            {"base_offset": 40, "leader_epoch": 7},
            {"base_offset": 40, "last_offset": 42, "next_offset": 43, "leader_epoch": 7},
        ),
        (
            {"producer_id": 9, "producer_epoch": 2, "base_sequence": 5},
            {
                "producer_id": 9,
                "producer_epoch": 2,
                "base_sequence": 5,
                "last_sequence": 7,
                "has_producer_id": True,
            },
        ),
        ({"is_transactional": True}, {"is_transactional": True}),
        ({"is_control": True}, {"is_control": True}),
    ],
)
def test_reads_every_header_field(
    options: dict[str, int | bool], differs: dict[str, int | bool]
) -> None:
    """A batch's attributes are the header's fields and what follows from them."""
    raw = build(**options)

    batch = read_batch(raw)

    assert PLAIN | differs == {name: getattr(batch, name) for name in PLAIN}
    assert len(raw) == batch.size_bytes == batch.batch_length + 12
    assert batch.crc_matches()
    assert crc32c(raw[21:]) == batch.crc
    assert raw[HEADER_BYTES:] == batch.records


def test_the_last_sequence_wraps_to_zero() -> None:
    """After the largest int32 the sequence goes on at 0."""
    batch = read_batch(build(3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))

    assert batch.last_sequence == 0


@pytest.mark.parametrize("read_only", [False, True])
def test_assign_writes_in_place_and_keeps_the_crc(read_only: bool) -> None:
    """In the very bytes that came, if they may be changed, else in a copy."""
    raw = bytes(build()) if read_only else build()
    batch = read_batch(raw)

    batch.assign(1 << 40, 12)

    again = read_batch(batch.buffer)
    assert (1 << 40, 12) == (again.base_offset, again.leader_epoch)
    assert (1 << 40, 12) == (batch.base_offset, batch.leader_epoch)
    assert again.crc_matches()
    assert (0 if read_only else 1 << 40) == read_batch(raw).base_offset


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


@pytest.mark.parametrize("missing", [1, 30, 90])
def test_a_broken_off_batch_is_refused(missing: int) -> None:
    """Neither a cut header nor a cut payload is taken for a batch."""
    raw = build(4)

    with pytest.raises(RecordError) as caught:
        split_batches(raw + raw[:-missing])

    assert ErrorCode.CORRUPT_MESSAGE is caught.value.code


@pytest.mark.parametrize(
    ("start", "content", "code"),
    [
        # A batch is at least its header and at most what is there.
        *(
            (8, length.to_bytes(4, "big", signed=True), ErrorCode.CORRUPT_MESSAGE)
            for length in (0, -1, 48, 10_000, -(2**31), 2**31 - 1)
        ),
        *((16, bytes([magic]), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT) for magic in (0, 1)),
        *((16, bytes([magic]), ErrorCode.CORRUPT_MESSAGE) for magic in (3, 0x80, 0xFF)),
        *((22, bytes([codec]), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) for codec in (5, 6, 7)),
    ],
)
def test_a_header_that_cannot_be_is_refused(start: int, content: bytes, code: ErrorCode) -> None:
    """Lengths, formats that are old or were never written, and codes that mean no codec."""
    raw = build()
    raw[start : start + len(content)] = content

    with pytest.raises(RecordError) as caught:
        _ = read_batch(raw).compression

    assert code is caught.value.code


def test_an_old_batch_may_be_shorter_than_a_header() -> None:
    """It gets the code for its format."""
    with pytest.raises(RecordError) as caught:
        read_batch(bytes(26))

    assert ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT is caught.value.code


def test_a_header_is_read_without_its_records() -> None:
    """For replay a header alone is a batch that knows its size."""
    raw = build()

    batch = read_header(raw[:HEADER_BYTES])

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
