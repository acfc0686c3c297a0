"""Writers: which rows can be written, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kgw.pipeline.errors import OptionError
from kgw.pipeline.options import SinkOptions, read_sink_options
from kgw.pipeline.ranges import OffsetRange
from kgw.pipeline.sink.writers import check_columns, write_rows
from tests.pipeline.serving import ServedTopics

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SOURCE = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}
"""What the source gives."""


def schema(columns: dict[str, DataType]) -> StructType:
    """Return the schema of these columns."""
    return StructType([StructField(name, of) for name, of in columns.items()])


def sink(**given: str) -> SinkOptions:
    """Return the options of a writer."""
    return read_sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", **given})


def test_what_the_source_gives_can_be_written() -> None:
    """Offsets and kinds of times are passed over: a record gets them anew."""
    check_columns(sink(), schema(SOURCE))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value": LongType()}, "column value is bigint; it must be binary or string"),
        ({"value": BinaryType(), "key": LongType()}, "column key is bigint"),
        ({"value": BinaryType(), "partition": LongType()}, "column partition is bigint"),
        (
            {"value": BinaryType(), "headers": ArrayType(StringType())},
            "column headers must be array<struct<key:string,value:binary>>",
        ),
        ({"key": BinaryType()}, "the column value is missing"),
    ],
)
def test_rows_that_are_no_records_are_refused(columns: dict[str, DataType], told: str) -> None:
    """By the column, before anything is written."""
    with pytest.raises(OptionError, match=told):
        check_columns(sink(topic="t"), schema(columns))


def test_rows_without_a_key_go_to_another_partition_with_each_batch() -> None:
    """One task's rows are spread, too; those of one batch stay together."""
    rows = [
        pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % at] * 2, pa.binary())})
        for at in range(4)
    ]
    with ServedTopics() as served:
        served.create("spread", 2)
        options = sink(topic="spread", **{"kafka.bootstrap.servers": served.address})
        assert 8 == write_rows(options, iter(rows)).records
        bounds = served.wire.bounds("spread", [0, 1])
    assert [4, 4] == [bounds[partition].latest for partition in (0, 1)]


def test_rows_that_go_nowhere_are_refused() -> None:
    """Either the options name the topic, or each row does."""
    with pytest.raises(OptionError, match="neither the option topic nor a column topic"):
        check_columns(sink(), schema({"value": BinaryType()}))


def test_columns_that_a_record_has_not_are_left_out() -> None:
    """As by the `kafka` sink, whatever their types."""
    check_columns(sink(topic="t"), schema({"value": BinaryType(), "amount": ArrayType(HEADER)}))
    rows = pa.RecordBatch.from_pydict(
        {"amount": pa.array([1, 2]), "value": pa.array([b"a", b"b"]), "Key": pa.array([b"k", b"k"])}
    )
    with ServedTopics() as served:
        served.create("more")
        options = sink(topic="more", **{"kafka.bootstrap.servers": served.address})
        assert 2 == write_rows(options, iter([rows])).records
        (found,) = served.wire.decoded(OffsetRange("more", 0, 0, 2))
    assert [(None, b"a"), (None, b"b")] == [
        (one["key"], one["value"]) for one in found.batch.to_pylist()
    ]
