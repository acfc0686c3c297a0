from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.records.batch import HEADER_BYTES, Compression, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.compaction import NewestOffsets
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.reader import RecordTime, first_record_at, read_records, unpack
from kgw.records.record import append_varint, read_varint
from tests.records import lies, strategies
from tests.records.strategies import build

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_record_without_a_time_keeps_none() -> None:
    """-1 is Kafka's way to say that a record has no timestamp."""
    builder = BatchBuilder()
    builder.add(value=b"x")

    assert [-1] == [record.timestamp_ms for record in read_records(read_batch(builder.build()))]


def test_times_wrap_at_64_bits() -> None:
    """As they do in every client, whatever a header claims."""
    raw = build([(None, b"a", 0, []), (None, b"b", 10, [])])
    raw[27:35] = (2**63 - 1).to_bytes(8, "big")

    times_ms = [record.timestamp_ms for record in read_records(read_batch(raw))]
    assert [2**63 - 1, -(2**63) + 9] == times_ms


def test_header_keys_that_are_not_utf8_survive() -> None:
    """Odd bytes in a header's key are read and written back as they were."""
    batch = read_batch(lies.batch(b"\x16\x00\x00\x00\x01\x01\x02\x04\xff\xfe\x02v", 1))

    (record,) = read_records(batch)
    again = build([(None, None, record.timestamp_ms, list(record.headers))])

    assert bytes(batch.records) == again[HEADER_BYTES:]


def test_an_empty_batch_is_not_built() -> None:
    """Clients refuse a batch without records, so that none is made."""
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build()


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


def test_more_headers_than_anyone_needs_are_refused() -> None:
    """A record of millions of empty headers would take fifty times its bytes in memory."""
    headers: list[tuple[str, bytes | None]] = [("", None)] * 100_001

    assert len(list(read_records(read_batch(build([(None, None, 0, headers[1:])]))))) == 1
    with pytest.raises(RecordError, match="its 100001 headers"):
        list(read_records(read_batch(build([(None, None, 0, headers)]))))


@given(codec=strategies.codecs, seed=st.integers())
def test_arbitrary_damage_raises_record_errors_alone(codec: Compression, seed: int) -> None:
    """Whatever is flipped behind the header: records come, or RecordError does."""
    random_source = random.Random(seed)
    raw = build([(b"key", b"value" * 10, 5, [("h", b"x")])] * 20, compression=codec)
    for _ in range(random_source.randint(1, 4)):
        raw[random_source.randrange(HEADER_BYTES, len(raw))] = random_source.randrange(256)

    with contextlib.suppress(RecordError):
        list(read_records(read_batch(raw), DecompressionLimits(1 << 16, 200, 1 << 16)))


@given(
    times_ms=st.lists(st.integers(0, 1 << 42), min_size=1, max_size=8),
    codec=strategies.codecs,
    append_time_ms=st.none() | st.integers(0, 1 << 42),
    start=st.integers(-1, 9),
    data=st.data(),
)
def test_the_first_record_at_a_time_is_found(
    times_ms: list[int],
    codec: Compression,
    append_time_ms: int | None,
    start: int,
    data: st.DataObject,
) -> None:
    """From an offset on; under log append time all records have the time of the batch."""
    asked_ms = data.draw(st.sampled_from([*times_ms, append_time_ms or 0])) + data.draw(
        st.integers(-1, 1)
    )
    batch = read_batch(
        build(
            [(b"k", b"v", timestamp_ms, [("h", b"x")]) for timestamp_ms in times_ms],
            compression=codec,
            base_offset=1000,
            log_append_time_ms=append_time_ms,
        )
    )
    expected = next(
        (
            RecordTime(offset, timestamp_ms)
            for offset, timestamp_ms in enumerate(
                times_ms if append_time_ms is None else [append_time_ms] * len(times_ms), 1000
            )
            if timestamp_ms >= asked_ms and offset >= 1000 + start
        ),
        None,
    )
    assert expected == first_record_at(batch, asked_ms, 1000 + start)


@pytest.mark.parametrize(
    "read",
    [
        lambda batch, limits: list(read_records(batch, limits)),
        lambda batch, limits: first_record_at(batch, 0, limits=limits),
        unpack,
        lambda batch, limits: NewestOffsets(1 << 20).add(batch, 0, 9, limits),
    ],
)
def test_decompression_has_its_limits(read: Callable[..., object]) -> None:
    """A small batch that becomes a large one is refused, whatever it is read for."""
    batch = read_batch(build([(b"k", bytes(100_000), 0, [])], compression=Compression.GZIP))
    limits = DecompressionLimits(max_bytes=1000, max_ratio=2, always_bytes=1000)
    with pytest.raises(RecordError):
        read(batch, limits)
