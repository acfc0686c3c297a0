"""Batches in zstd: what stays the same, and what is told apart."""

from __future__ import annotations

from random import Random

import pytest

from kgw.records.batch import HEADER, Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder, encode_batch
from kgw.records.cold import find_difference, to_zstd, without_zstd
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.reader import read_records

OTHERS = [codec for codec in Compression if codec is not Compression.ZSTD]


def make(
    codec: Compression,
    count: int = 20,
    *,
    log_append_time_ms: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
) -> RecordBatch:
    """Return a batch of records that compress well."""
    builder = BatchBuilder(
        compression=codec,
        base_offset=1_000,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=2,
        base_sequence=40,
        log_append_time_ms=log_append_time_ms,
        is_transactional=is_transactional,
        is_control=is_control,
    )
    for number in range(count):
        builder.add(
            key=None if number % 7 == 3 else b"key-%d" % number,
            value=None if number % 5 == 4 else b"user-%d logged in " % number * 8,
            timestamp_ms=1_000 - number,
            headers=[("trace", b"%d" % number), ("empty", None)],
        )
    return read_batch(builder.build())


def fields(batch: RecordBatch) -> list[object]:
    """Return all of a header but length, CRC and codec."""
    length, crc, attributes = 1, 4, 5
    header: list[object] = list(HEADER.unpack_from(batch.buffer))
    header[length] = header[crc] = None
    header[attributes] = batch.attributes & ~7
    return header


@pytest.mark.parametrize("codec", OTHERS)
@pytest.mark.parametrize("log_append_time_ms", [None, 5_000])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_records_and_header_stay(
    codec: Compression, log_append_time_ms: int | None, is_transactional: bool
) -> None:
    """Only the codec, the length, the bytes of the records and the CRC are new."""
    batch = make(
        codec, 200, log_append_time_ms=log_append_time_ms, is_transactional=is_transactional
    )
    before = bytes(batch.buffer)
    cold = to_zstd(batch, 9)
    assert before == batch.buffer
    assert Compression.ZSTD is cold.compression
    assert cold.crc_matches()
    assert len(cold.buffer) == cold.size_bytes < batch.size_bytes
    assert fields(batch) == fields(cold)
    assert list(read_records(batch)) == list(read_records(cold))
    assert find_difference(batch, cold) is None
    warm = without_zstd(cold)
    assert warm.crc_matches()
    assert Compression.NONE is warm.compression
    assert fields(batch) == fields(warm)
    assert list(read_records(batch)) == list(read_records(warm))
    assert warm is without_zstd(warm)


def test_what_has_nothing_to_gain_stays() -> None:
    """Byte for byte: zstd, control batches, empty ones, and those that would not get smaller."""
    noise = BatchBuilder()
    noise.add(value=Random(1).randbytes(500))
    for batch in (
        make(Compression.ZSTD),
        make(Compression.NONE, is_control=True),
        read_batch(encode_batch(b"", base_offset=0, leader_epoch=0, last_offset_delta=9)),
        read_batch(noise.build()),
    ):
        assert batch is to_zstd(batch, 9)


def test_what_cannot_be_unpacked_stays() -> None:
    """A lie that was stored as it came, an unknown codec, and what would be refused afterwards."""
    lie, unknown = (
        read_batch(
            encode_batch(
                b"no codec's bytes" * 20,
                base_offset=0,
                leader_epoch=0,
                attributes=attributes,
                last_offset_delta=2,
                record_count=3,
            )
        )
        for attributes in (Compression.GZIP, 6)
    )
    large = make(Compression.GZIP, 2_000)
    for batch, limits in (
        (lie, DecompressionLimits()),
        (unknown, DecompressionLimits()),
        (large, DecompressionLimits(max_bytes=1_000, max_ratio=1, always_bytes=0)),
    ):
        assert batch is to_zstd(batch, 9, limits)


def test_a_batch_that_could_not_be_unpacked_any_more_stays() -> None:
    """What compresses too well would stop compaction and answers to old clients."""
    batch = make(Compression.NONE, 3_000)
    limits = DecompressionLimits(max_bytes=1 << 30, max_ratio=2, always_bytes=0)
    assert batch is to_zstd(batch, 9, limits)
    assert batch is not to_zstd(batch, 9)


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("base_offset", 7),
        ("leader_epoch", 15),
        ("last_offset_delta", 26),
        ("base_timestamp_ms", 34),
        ("max_timestamp_ms", 42),
        ("producer_id", 50),
        ("producer_epoch", 52),
        ("base_sequence", 56),
        ("record_count", 60),
    ],
)
def test_each_field_that_differs_is_told(name: str, position: int) -> None:
    """By its name."""
    batch = make(Compression.LZ4)
    changed = bytearray(to_zstd(batch, 3).buffer)
    changed[position] ^= 1
    problem = find_difference(batch, read_batch(changed))
    assert problem is not None
    assert problem.startswith(name)


@pytest.mark.parametrize("flag", [0x08, 0x10, 0x20, 0x40])
def test_each_attribute_that_differs_is_told(flag: int) -> None:
    """Those that are no codec."""
    batch = make(Compression.LZ4)
    changed = bytearray(to_zstd(batch, 3).buffer)
    changed[22] ^= flag
    problem = find_difference(batch, read_batch(changed))
    assert problem is not None
    assert problem.startswith("attributes")


def test_records_that_differ_are_told() -> None:
    """A value with one other bit, and records that cannot be read."""
    batch = make(Compression.NONE)
    other = bytearray(batch.buffer)
    other[-40] ^= 1
    assert "the records are others" == find_difference(batch, to_zstd(read_batch(other), 3))
    broken = bytearray(to_zstd(batch, 3).buffer)
    broken[70:] = b"?" * len(broken[70:])
    with pytest.raises(RecordError):
        find_difference(batch, read_batch(broken))
