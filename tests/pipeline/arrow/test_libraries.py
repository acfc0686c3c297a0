"""Batches as kafka-python and aiokafka make them, and ours as they read them."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given

from kgw.pipeline.arrow.decode import decode_batches
from kgw.pipeline.arrow.encode import encode_batches
from tests.pipeline.arrow.answers import rows
from tests.pipeline.arrow.test_encode import to_arrow
from tests.records import strategies

with warnings.catch_warnings():
    # It reads its definitions with a deprecated function of the standard library.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

if TYPE_CHECKING:
    from kgw.records.batch import Compression
    from tests.records.strategies import Drawn

BUILDERS = [KafkaPythonBuilder, AiokafkaBuilder]
READERS = [KafkaPythonBatch, AiokafkaBatch]


@pytest.mark.slow
@pytest.mark.parametrize("builder_type", BUILDERS)
@given(records=strategies.records, codec=strategies.codecs)
def test_we_read_theirs(
    builder_type: type[KafkaPythonBuilder], records: list[Drawn], codec: Compression
) -> None:
    """Every record and header of theirs becomes a row."""
    # aiokafka's builder takes a first timestamp of -1 for none yet, and gets the deltas wrong.
    records = [(key, value, max(0, time_ms), headers) for key, value, time_ms, headers in records]
    builder = builder_type(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for offset, (key, value, timestamp_ms, headers) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, headers)

    found = rows(decode_batches(bytes(builder.build()), first_offset=0).batch)

    assert [
        (offset, timestamp_ms, key, value, headers or None)
        for offset, (key, value, timestamp_ms, headers) in enumerate(records)
    ] == [(row[0], row[1], *row[4:]) for row in found]


@pytest.mark.slow
@pytest.mark.parametrize("reader_type", READERS)
@given(records=strategies.records, codec=strategies.codecs)
def test_they_read_ours(
    reader_type: type[KafkaPythonBatch], records: list[Drawn], codec: Compression
) -> None:
    """They find every record and header in batches of ours."""
    (one,) = encode_batches(to_arrow(records), compression=codec, max_batch_bytes=1 << 20)

    batch = reader_type(bytes(one.data))

    assert batch.validate_crc()
    assert records == [
        (record.key, record.value, record.timestamp, list(record.headers)) for record in batch
    ]
