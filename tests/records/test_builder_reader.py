from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import ErrorCode
from kgw.records.batch import HEADER_BYTES, Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.reader import read_records
from kgw.records.record import Record, append_varint, read_varint
from tests.records import strategies

if TYPE_CHECKING:
    from collections.abc import Sequence

Drawn = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


def build(records: Sequence[Drawn], **options: object) -> bytearray:
    """Return a batch of these records."""
    builder = BatchBuilder(**options)  # type: ignore[arg-type]
    for key, value, timestamp_ms, headers in records:
        builder.add(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
    return builder.build()


def with_payload(payload: bytes, count: int = 1) -> RecordBatch:
    """Return an uncompressed batch whose records are these bytes."""
    raw = build([(None, None, 0, [])] * count)[:HEADER_BYTES]
    raw[8:12] = (len(payload) + HEADER_BYTES - 12).to_bytes(4, "big")
    return read_batch(raw + payload)


@pytest.mark.slow
@given(records=strategies.records, codec=strategies.codecs, base_offset=st.integers(0, 1 << 50))
def test_reads_what_was_built(records: list[Drawn], codec: Compression, base_offset: int) -> None:
    """Every record comes back with its offset and time, whatever the codec."""
    batch = read_batch(build(records, compression=codec, base_offset=base_offset))

    expected = [
        Record(base_offset + index, timestamp_ms, key, value, headers)
        for index, (key, value, timestamp_ms, headers) in enumerate(records)
    ]
    assert expected == list(read_records(batch))
    assert batch.crc_matches()
    assert codec is batch.compression
    assert max(record[2] for record in records) == batch.max_timestamp_ms


def test_log_append_time_replaces_the_records_times() -> None:
    """With the attribute set each record has the batch's max timestamp."""
    batch = read_batch(build([(None, b"a", 5, []), (None, b"b", 9, [])], log_append_time_ms=1_234))

    assert [1_234, 1_234] == [record.timestamp_ms for record in read_records(batch)]


def test_a_record_without_a_time_keeps_none() -> None:
    """-1 is Kafka's way to say that a record has no timestamp."""
    builder = BatchBuilder()
    builder.add(value=b"x")

    assert [-1] == [record.timestamp_ms for record in read_records(read_batch(builder.build()))]


def test_header_keys_that_are_not_utf8_survive() -> None:
    """Odd bytes in a header's key are read and written back as they were."""
    batch = with_payload(b"\x16\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x02v")

    (record,) = read_records(batch)
    again = build([(None, None, record.timestamp_ms, list(record.headers))])

    assert bytes(batch.records) == again[HEADER_BYTES:]


def test_an_empty_batch_is_not_built() -> None:
    """Clients refuse a batch without records, so that none is made."""
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


def test_the_builder_says_how_large_it_is() -> None:
    """What was added counts before it is compressed, and nothing else."""
    builder = BatchBuilder()
    assert HEADER_BYTES == builder.uncompressed_bytes
    builder.add(value=b"x" * 100)

    assert len(builder) == 1
    assert builder.uncompressed_bytes == len(builder.build())


@given(value=st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_round_trip(value: int) -> None:
    """Any int64 is read back, with nothing left over."""
    output = bytearray()
    append_varint(output, value)

    assert (value, len(output)) == read_varint(output, 0, 64)


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00", b"\xff" * 20],
)
def test_varints_that_are_cut_off_or_too_long_are_refused(data: bytes) -> None:
    """A number ends, and fits 32 bits."""
    with pytest.raises(RecordError):
        read_varint(data, 0)


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "cut off"),
        (b"\x0d", "a length of -7"),
        (b"\x80\x01\x00\x00\x00\x01\x01\x00", "a length of 64"),
        (b"\x0c\x00\x00\x00\x03\x01\x00", "a field of -2"),
        (b"\x0c\x00\x00\x00\x7e\x01\x00", "a field of 63"),
        (b"\x0c\x00\x00\x00\x01\x01\x08", "a count of 4 headers"),
        (b"\x0c\x00\x00\x00\x01\x01\x01", "a count of -1 headers"),
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", "a header without a key"),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", "1 bytes off"),
        (b"\x0c\x00\x00\x02\x01\x01\x00", "offset delta 1"),
        (b"\x0c\x00\x00\x01\x01\x01\x00", "offset delta -1"),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", "1 bytes are left over"),
    ],
)
def test_malformed_records_are_refused(payload: bytes, reason: str) -> None:
    """A record that is not what its lengths and counts say raises, with the reason."""
    with pytest.raises(RecordError, match=reason) as caught:
        list(read_records(with_payload(payload)))

    assert ErrorCode.INVALID_RECORD is caught.value.code


def test_more_headers_than_anyone_needs_are_refused() -> None:
    """A record of millions of empty headers would take fifty times its bytes in memory."""
    headers: list[tuple[str, bytes | None]] = [("", None)] * 100_001

    assert len(list(read_records(read_batch(build([(None, None, 0, headers[1:])]))))) == 1
    with pytest.raises(RecordError, match="a count of 100001 headers"):
        list(read_records(read_batch(build([(None, None, 0, headers)]))))


def test_too_few_and_too_many_records_are_refused() -> None:
    """The header's count is neither more nor less than what is there."""
    raw = build([(None, b"a", 0, []), (None, b"b", 0, [])])
    for count in (1, 3):
        raw[57:61] = count.to_bytes(4, "big")
        with pytest.raises(RecordError):
            list(read_records(read_batch(raw)))


@given(codec=strategies.codecs, seed=st.integers())
def test_arbitrary_damage_raises_record_errors_alone(codec: Compression, seed: int) -> None:
    """Whatever is flipped behind the header: records come, or RecordError does."""
    random_source = random.Random(seed)
    raw = build([(b"key", b"value" * 10, 5, [("h", b"x")])] * 20, compression=codec)
    for _ in range(random_source.randint(1, 4)):
        raw[random_source.randrange(HEADER_BYTES, len(raw))] = random_source.randrange(256)

    with contextlib.suppress(RecordError):
        list(read_records(read_batch(raw), DecompressionLimits(1 << 16, 200, 1 << 16)))
