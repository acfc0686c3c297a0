"""Readers: what Spark calls, without Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from kgw.pipeline.options import read_source_options
from kgw.pipeline.ranges import StreamPosition, TopicPartition
from kgw.pipeline.source.readers import KgwStreamReader
from kgw.pipeline.source.schema import spark_schema
from tests.pipeline.serving import ServedTopics


def test_a_reader_that_has_asked_nothing_can_be_stopped() -> None:
    """There is nothing to close; to stop it once more is nothing either."""
    options = read_source_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    reader = KgwStreamReader(options, spark_schema(options.columns))
    reader.stop()
    reader.stop()


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(3), ReadMaxBytes(100)])
@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_stream_ahead_of_the_log_goes_on_from_its_end(
    limit: ReadAllAvailable | ReadMaxRows | ReadMaxBytes, *, is_available_now: bool
) -> None:
    """Whatever limits a micro-batch: it reads nothing, and what comes next is read."""
    with ServedTopics() as served:
        served.create("t")
        served.number("t", {0: 10})
        given = {"kafka.bootstrap.servers": served.address, "subscribe": "t"}
        options = read_source_options(given | {"failOnDataLoss": "false"}, is_stream=True)
        reader = KgwStreamReader(options, spark_schema(options.columns))
        try:
            position = StreamPosition.from_json(reader.initialOffset())
            key = TopicPartition("t", 0)
            ahead = position._replace(offsets={key: 50}).to_json()
            if is_available_now:
                reader.prepareForTriggerAvailableNow()
            back = reader.latestOffset(ahead, limit)
            assert {key: 10} == StreamPosition.from_json(back).offsets
            assert [] == list(reader.partitions(ahead, back))
            served.number("t", {0: 3}, first=10)
            if is_available_now:
                reader.prepareForTriggerAvailableNow()
            end = reader.latestOffset(back, limit)
            assert 10 < StreamPosition.from_json(end).offsets[key] <= 13
            assert [10] == [one.value.first for one in reader.partitions(back, end)]
        finally:
            reader.stop()


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(3), ReadMaxBytes(100)])
def test_a_run_that_ends_leaves_partitions_that_came_later(
    limit: ReadAllAvailable | ReadMaxRows | ReadMaxBytes,
) -> None:
    """They are read by the next run, from where they begin then: no position goes back."""
    with ServedTopics() as served:
        served.create("t")
        served.number("t", {0: 2})
        given = {"kafka.bootstrap.servers": served.address, "subscribe": "t"}
        more = {"failOnDataLoss": "false", "startingOffsets": "earliest"}
        options = read_source_options(given | more, is_stream=True)
        reader = KgwStreamReader(options, spark_schema(options.columns))
        try:
            start = reader.initialOffset()
            reader.prepareForTriggerAvailableNow()
            served.add_partitions("t", 2)
            served.number("t", {0: 5, 1: 5}, first=2)
            served.wire.call(served.admin.delete_records("t", {1: 3}))
            end = reader.latestOffset(start, limit)
            old, new = TopicPartition("t", 0), TopicPartition("t", 1)
            assert {old: 2, new: 3} == StreamPosition.from_json(end).offsets
        finally:
            reader.stop()
