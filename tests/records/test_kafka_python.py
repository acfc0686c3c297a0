"""The batch format against kafka-python's own implementation of it, both ways."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgw.records.batch import Compression, read_batch
from kgw.records.reader import read_records
from kgw.records.record import Record
from tests.records import strategies

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

if TYPE_CHECKING:
    from tests.records.strategies import Drawn

producers = st.none() | st.tuples(
    st.integers(0, 1 << 40), st.integers(0, 32_767), st.integers(0, 2**31 - 1), st.booleans()
)
Producer = tuple[int, int, int, bool]


def build_theirs(records: list[Drawn], codec: Compression, producer: Producer | None) -> bytes:
    """Return a batch as kafka-python makes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=producer is not None and producer[3],
        producer_id=-1 if producer is None else producer[0],
        producer_epoch=-1 if producer is None else producer[1],
        base_sequence=-1 if producer is None else producer[2],
        batch_size=1 << 24,
    )
    for offset, (key, value, timestamp_ms, headers) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, headers)
    return bytes(builder.build())


def build_ours(records: list[Drawn], codec: Compression, producer: Producer | None) -> bytes:
    """Return the same batch as we make it."""
    return bytes(
        strategies.build(
            records,
            compression=codec,
            producer_id=-1 if producer is None else producer[0],
            producer_epoch=-1 if producer is None else producer[1],
            base_sequence=-1 if producer is None else producer[2],
            is_transactional=producer is not None and producer[3],
        )
    )


@pytest.mark.slow
@given(records=strategies.records, codec=strategies.codecs, producer=producers)
def test_they_read_ours(
    records: list[Drawn], codec: Compression, producer: Producer | None
) -> None:
    """kafka-python finds every record and header field in a batch of ours."""
    raw = build_ours(records, codec, producer)

    batch = DefaultRecordBatch(raw)

    assert batch.validate_crc()
    assert (producer or (-1, -1, -1, False)) == (
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
    )
    assert records == [
        (record.key, record.value, record.timestamp, record.headers) for record in batch
    ]
    assert read_batch(raw).last_sequence == batch.last_sequence


@pytest.mark.slow
@given(records=strategies.records, codec=strategies.codecs, producer=producers)
def test_we_read_theirs(
    records: list[Drawn], codec: Compression, producer: Producer | None
) -> None:
    """We find every record and header field in a batch of kafka-python's."""
    batch = read_batch(build_theirs(records, codec, producer))

    assert batch.crc_matches()
    assert (producer or (-1, -1, -1, False)) == (
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
    )
    assert [
        Record(offset, timestamp_ms, key, value, headers)
        for offset, (key, value, timestamp_ms, headers) in enumerate(records)
    ] == list(read_records(batch))
