from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.errors import KafkaError
from kgw.records.batch import Compression, read_batch
from kgw.records.builder import BatchBuilder
from kgw.records.reader import read_records
from kgw.records.unfit import MAX_NAMED, find_unfit

RECORDS = st.tuples(
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.integers(-1, 1 << 41),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def build(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    compression: Compression = Compression.NONE,
) -> bytearray:
    """Return a batch of (key, value, timestamp, headers)."""
    builder = BatchBuilder(compression=compression)
    for key, value, timestamp_ms, headers in records:
        builder.add(key=key, value=value, timestamp_ms=timestamp_ms, headers=headers)
    return builder.build()


@given(
    records=st.lists(RECORDS, min_size=1, max_size=30),
    compression=st.sampled_from(Compression),
    needs_keys=st.booleans(),
    bounds=st.tuples(st.integers(0, 1 << 41), st.integers(0, 1 << 41)),
)
def test_finds_what_a_full_reading_finds(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    compression: Compression,
    needs_keys: bool,
    bounds: tuple[int, int],
) -> None:
    """The walk sees the same keys and times as the reader of whole records."""
    batch = read_batch(build(records, compression))
    times = (min(bounds), max(bounds))
    expected = [
        place
        for place, record in enumerate(read_records(batch))
        if (needs_keys and record.key is None)
        or (record.timestamp_ms != -1 and not times[0] <= record.timestamp_ms <= times[1])
    ]
    found = find_unfit(batch, needs_keys=needs_keys, time_range=times)
    assert expected == [one.place for one in found]


@given(records=st.lists(RECORDS, min_size=1, max_size=8), data=st.data())
def test_nothing_but_a_refusal_comes_of_garbage(
    records: list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]],
    data: st.DataObject,
) -> None:
    """Cut or changed anywhere, a payload is walked or refused with a code of the protocol."""
    content = build(records)
    position = data.draw(st.integers(61, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    with suppress(KafkaError):
        find_unfit(read_batch(content), needs_keys=True, time_range=(0, 1 << 41))


def test_lies_about_the_count_are_refused() -> None:
    """Fewer records than bytes, or more."""
    for count in (1, 3):
        content = build([(b"k", b"v", 0, [])] * 2)
        content[57:61] = count.to_bytes(4, "big")
        with pytest.raises(KafkaError):
            find_unfit(read_batch(content), needs_keys=True, time_range=None)


def test_names_end_somewhere() -> None:
    """An answer is not made as large as a batch of the smallest records."""
    batch = read_batch(build([(None, None, 0, [])] * (MAX_NAMED + 10)))
    assert MAX_NAMED == len(find_unfit(batch, needs_keys=True, time_range=None))
