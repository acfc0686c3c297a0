from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.records.batch import HEADER_BYTES, Compression, RecordBatch, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.errors import RecordError
from kgw.records.limits import DecompressionLimits
from kgw.records.reader import read_records
from kgw.records.times import RecordTime, first_record_at

BASE = 1000


def make(
    times_ms: list[int],
    compression: Compression = Compression.NONE,
    append_time_ms: int | None = None,
    size: int = 5,
) -> RecordBatch:
    """Return a stored batch with a record for each time."""
    builder = BatchBuilder(
        base_offset=BASE, compression=compression, log_append_time_ms=append_time_ms
    )
    for timestamp_ms in times_ms:
        builder.add(key=b"k", value=b"v" * size, timestamp_ms=timestamp_ms, headers=[("h", b"x")])
    return read_batch(builder.build())


@given(
    times_ms=st.lists(st.integers(0, 1 << 42), min_size=1, max_size=8),
    compression=st.sampled_from(Compression),
    append_time_ms=st.none() | st.integers(0, 1 << 42),
    size=st.sampled_from([0, 5, 100, 9000]),
    start=st.integers(-1, 9),
    data=st.data(),
)
def test_it_finds_what_a_look_at_every_record_finds(
    times_ms: list[int],
    compression: Compression,
    append_time_ms: int | None,
    size: int,
    start: int,
    data: st.DataObject,
) -> None:
    """The first record from an offset on whose time is at or past the one asked for."""
    batch = make(times_ms, compression, append_time_ms, size)
    asked_ms = data.draw(st.sampled_from([*times_ms, append_time_ms or 0])) + data.draw(
        st.integers(-1, 1)
    )
    expected = next(
        (
            RecordTime(record.offset, record.timestamp_ms)
            for record in read_records(batch)
            if record.timestamp_ms >= asked_ms and record.offset >= BASE + start
        ),
        None,
    )
    assert expected == first_record_at(batch, asked_ms, BASE + start)


def test_append_time_with_holes_is_the_time_of_a_record_that_is_there() -> None:
    """After compaction the first offset of a batch may hold nothing."""
    batch = make([1, 2, 3], append_time_ms=50)
    batch.last_offset_delta = 9
    assert RecordTime(BASE + 2, 50) == first_record_at(batch, 50, BASE + 2)
    assert first_record_at(batch, 50, BASE + 3) is None
    assert first_record_at(batch, 51, BASE) is None


def test_an_empty_batch_has_no_record() -> None:
    """Compaction keeps the header of a batch whose records are gone, with its times."""
    batch = make([7])
    batch.buffer = batch.buffer[:HEADER_BYTES]
    batch.record_count = 0
    assert first_record_at(batch, 5) is None


@pytest.mark.parametrize("size", [0, 9000])
def test_records_that_are_cut_or_bent_are_refused(size: int) -> None:
    """Wherever it stops making sense, as far as it had to be read."""
    batch = make([1, 5_000_000, 3], size=size)
    whole = batch.buffer
    for end in range(HEADER_BYTES, len(whole)):
        batch.buffer = whole[:end]
        with pytest.raises(RecordError):
            first_record_at(batch, 1 << 50)
    batch.buffer = whole
    batch.last_offset_delta = 0
    with pytest.raises(RecordError, match="offset delta 1, 0 being the last"):
        first_record_at(batch, 5_000_000)
    batch.buffer = memoryview(bytearray(whole))
    batch.buffer[HEADER_BYTES] = 0
    with pytest.raises(RecordError, match="a length of 0 bytes"):
        first_record_at(batch, 1 << 50)


def test_decompression_has_its_limits() -> None:
    """A small batch that becomes a large one is refused."""
    batch = make([1], Compression.GZIP, size=100_000)
    limits = DecompressionLimits(max_bytes=1000, max_ratio=2, always_bytes=1000)
    with pytest.raises(RecordError):
        first_record_at(batch, 1, limits=limits)
