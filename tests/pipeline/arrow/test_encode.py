"""Arrow to batches, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.partitions.append.loading import check_own_offsets
from kgw.pipeline.arrow import encode
from kgw.pipeline.arrow.columns import HEADERS_TYPE
from kgw.pipeline.arrow.decode import decode_batches
from kgw.pipeline.arrow.encode import EncodedBatch, encode_at_offsets, encode_batches
from kgw.records.batch import Compression, read_batch
from kgw.records.errors import RecordError
from tests.pipeline.arrow.answers import read_answer, rows
from tests.records import strategies

if TYPE_CHECKING:
    from tests.records.strategies import Drawn

times_ms = st.integers(-(1 << 63), (1 << 63) - 1) | strategies.timestamps_ms
records = st.lists(
    st.tuples(strategies.keys_and_values, strategies.keys_and_values, times_ms, strategies.headers),
    min_size=1,
    max_size=40,
)


def to_arrow(records: list[Drawn]) -> pa.RecordBatch:
    """Return records as columns."""
    headers = [[{"key": key, "value": value} for key, value in one[3]] for one in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([one[0] for one in records], pa.binary()),
            pa.array([one[1] for one in records], pa.binary()),
            pa.array([one[2] for one in records], pa.int64()),
            pa.array(headers, HEADERS_TYPE),
        ],
        names=["key", "value", "timestamp_ms", "headers"],
    )


def as_log(encoded: list[EncodedBatch]) -> bytes:
    """Return the batches as a log holds them."""
    log = bytearray()
    offset = 0
    for one in encoded:
        batch = read_batch(one.data)
        assert batch.record_count == one.record_count
        assert batch.crc_matches()
        batch.assign(offset, 2)
        offset = batch.next_offset
        log += batch.buffer
    return bytes(log)


@pytest.mark.slow
@given(
    records=records,
    codec=strategies.codecs,
    max_batch_bytes=st.integers(100, 5_000),
    joined_bytes=st.sampled_from([1, 500, 1 << 28]),
    cut=st.tuples(st.integers(0, 5), st.integers(1, 40)),
)
def test_there_and_back(
    records: list[Drawn],
    codec: Compression,
    max_batch_bytes: int,
    joined_bytes: int,
    cut: tuple[int, int],
) -> None:
    """Rows come back as they were, from a slice too, and the gateway's reader reads the same."""
    columns = to_arrow(records).slice(*cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "_JOINED_BYTES", joined_bytes)
        encoded = encode_batches(columns, compression=codec, max_batch_bytes=max_batch_bytes)
    log = as_log(encoded)

    found = rows(decode_batches(log, first_offset=0).batch)

    expected = [
        (offset, timestamp_ms, 0, 2, key, value, headers or None)
        for offset, (key, value, timestamp_ms, headers) in enumerate(
            records[cut[0] : cut[0] + cut[1]]
        )
    ]
    assert expected == found
    batches = [read_batch(one.data) for one in encoded]
    assert len(expected) == len(read_answer(batches))
    for batch, one in zip(batches, encoded, strict=True):
        assert batch.max_timestamp_ms == max(-1, *(row[1] for row in read_answer([batch])))
        if codec is Compression.NONE and one.record_count > 1:
            assert len(one.data) <= max_batch_bytes


@pytest.mark.slow
@given(records=strategies.records, codec=strategies.codecs)
def test_as_the_builder(records: list[Drawn], codec: Compression) -> None:
    """A single batch is byte for byte what the gateway's builder makes."""
    (one,) = encode_batches(to_arrow(records), compression=codec, max_batch_bytes=1 << 20)
    assert strategies.build(records, compression=codec) == one.data


@pytest.mark.slow
@given(
    records=records,
    gaps=st.lists(
        st.integers(0, 3) | st.sampled_from([100, 1 << 20, (1 << 30) + 1, 1 << 31, 5 << 31]),
        min_size=42,
        max_size=42,
    ),
    base_offset=st.sampled_from([0, 7, 1 << 40]),
    codec=strategies.codecs,
    max_batch_bytes=st.integers(100, 5_000),
)
def test_at_offsets_there_and_back(
    records: list[Drawn],
    gaps: list[int],
    base_offset: int,
    codec: Compression,
    max_batch_bytes: int,
) -> None:
    """Rows come back at their offsets, and the batches cover the whole range densely."""
    offsets = []
    end = base_offset
    for gap, _ in zip(gaps[1:], records, strict=False):
        offsets.append(end + gap)
        end += gap + 1
    end += gaps[0]
    columns = to_arrow(records).append_column("offset", pa.array(offsets, pa.int64()))
    encoded = encode_at_offsets(
        columns, base_offset, end, compression=codec, max_batch_bytes=max_batch_bytes
    )
    position = base_offset
    for one in encoded:
        batch = read_batch(one.data)
        assert (position, one.record_count) == (batch.base_offset, batch.record_count)
        assert batch.crc_matches()
        assert batch.producer_id == -1
        check_own_offsets(batch)
        position = batch.next_offset
        if codec is Compression.NONE and one.record_count > 1:
            assert len(one.data) <= max_batch_bytes
    assert end == position
    log = b"".join(one.data for one in encoded)
    expected = [
        (offset, timestamp_ms, 0, -1, key, value, headers or None)
        for offset, (key, value, timestamp_ms, headers) in zip(offsets, records, strict=True)
    ]
    assert expected == rows(decode_batches(log, first_offset=base_offset).batch)
    assert len(expected) == len(read_answer([read_batch(one.data) for one in encoded]))


def test_a_range_without_rows() -> None:
    """Batches without records cover it."""
    none = to_arrow([]).append_column("offset", pa.array([], pa.int64()))
    encoded = encode_at_offsets(none, 5, 1 << 32, max_batch_bytes=100)
    batches = [read_batch(one.data) for one in encoded]
    assert [5, (1 << 31) + 4] == [batch.base_offset for batch in batches]
    assert 1 << 32 == batches[-1].next_offset
    assert [] == encode_at_offsets(none, 5, 5, max_batch_bytes=100)


@pytest.mark.parametrize("offsets", [[4, 5], [5, 5], [6, 5], [5, 9]])
def test_offsets_outside_of_their_range(offsets: list[int]) -> None:
    """They are refused, and so are those that do not rise."""
    one: Drawn = (None, b"v", 1, [])
    columns = to_arrow([one, one]).append_column("offset", pa.array(offsets, pa.int64()))
    with pytest.raises(ValueError, match="offsets do not rise from 5 to 8"):
        encode_at_offsets(columns, 5, 9, max_batch_bytes=100)


def test_producer_fields() -> None:
    """Sequences run on from batch to batch, and past the largest int32 begin again at 0."""
    columns = to_arrow([(None, b"v" * 50, 1, [])] * 5)
    encoded = encode_batches(
        columns,
        max_batch_bytes=200,
        producer_id=9,
        producer_epoch=3,
        base_sequence=(1 << 31) - 3,
        is_transactional=True,
    )
    batches = [read_batch(one.data) for one in encoded]
    assert [2, 2, 1] == [batch.record_count for batch in batches]
    assert [(1 << 31) - 3, (1 << 31) - 1, 1] == [batch.base_sequence for batch in batches]
    assert {(9, 3, True)} == {
        (batch.producer_id, batch.producer_epoch, batch.is_transactional) for batch in batches
    }


@pytest.mark.parametrize(
    "columns",
    [
        {"value": pa.array([b"1", None], pa.large_binary())},
        {"value": pa.array(["1", None], pa.string())},
        {"value": [b"1", None], "timestamp_ms": pa.array([None, -1], pa.int64())},
        {"value": [b"1", None], "headers": pa.array([None, []], HEADERS_TYPE)},
        {"value": [b"1", None], "key": pa.array([None, None], pa.null())},
    ],
)
def test_columns_in_other_forms(columns: dict[str, Any]) -> None:
    """What is missing is null, and what Spark has in other types is read."""
    encoded = encode_batches(pa.RecordBatch.from_pydict(columns), max_batch_bytes=1_000)
    assert [
        (0, -1, 0, 2, None, b"1", None),
        (1, -1, 0, 2, None, None, None),
    ] == rows(decode_batches(as_log(encoded), first_offset=0).batch)


def test_no_rows() -> None:
    """They make no batch."""
    assert [] == encode_batches(to_arrow([]), max_batch_bytes=100)


@pytest.mark.parametrize("names", [["topic", "value"], ["timestamp_ms"]])
def test_columns_that_make_no_record(names: list[str]) -> None:
    """A column that would be lost is refused, and a record of nothing."""
    columns = pa.RecordBatch.from_arrays([pa.array([1])] * len(names), names=names)
    with pytest.raises(ValueError, match="key, value, headers and timestamp_ms only"):
        encode_batches(columns, max_batch_bytes=100)


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_headers_without_key(header: dict[str, Any] | None) -> None:
    """Kafka has no such header."""
    of_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = pa.RecordBatch.from_pydict(
        {"value": [b"v"], "headers": pa.array([[header]], of_type)}
    )
    with pytest.raises(RecordError, match="a header has no key"):
        encode_batches(columns, max_batch_bytes=100)
