"""The columns that Spark sees, and how they come out of decoded batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kgw.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import DataType

    from kgw.pipeline.ranges import TopicPartition

HEADERS_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
# As Spark names the parts; it compares the types of what it is given.
ARROW_HEADERS_TYPE: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
_ARROW_TYPES: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": ARROW_HEADERS_TYPE,
}
_DECODED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp_ms",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_HANDED_BYTES: Final = 8 << 20
"""Of columns, about, that Spark is given at once: it holds them outside of its heap."""


def spark_schema(columns: Iterable[str]) -> StructType:
    """Return the schema of these columns, as the `kafka` source has it."""
    return StructType([StructField(one, _TYPES[one]) for one in columns])


def decoded_columns(columns: Iterable[str]) -> frozenset[str]:
    """Return the columns that must be decoded; one at least, which says how many rows there are."""
    return frozenset(_DECODED[one] for one in columns if one in _DECODED) or frozenset({"offset"})


def spark_batches(
    decoded: pa.RecordBatch, key: TopicPartition, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield decoded records as Spark takes them. Raises PipelineError for an impossible time."""
    if not decoded.num_rows:
        return
    arrays = [_column(decoded, key, name) for name in columns]
    whole = pa.RecordBatch.from_arrays(
        arrays, schema=pa.schema([pa.field(one, _ARROW_TYPES[one]) for one in columns])
    )
    yield from slices(whole)


def slices(whole: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces that Spark can be given one after the other."""
    rows = max(1, len(whole) * _HANDED_BYTES // max(whole.nbytes, _HANDED_BYTES))
    for start in range(0, len(whole), rows):
        yield whole.slice(start, rows)


def _column(decoded: pa.RecordBatch, key: TopicPartition, name: str) -> pa.Array:
    if name == "topic":
        return pa.repeat(pa.scalar(key.topic, pa.string()), decoded.num_rows)
    if name == "partition":
        return pa.repeat(pa.scalar(key.partition, pa.int32()), decoded.num_rows)
    column = decoded.column(_DECODED[name])
    if name == "timestamp":
        try:
            return pc.multiply_checked(column, 1000).cast(_ARROW_TYPES[name])
        except pa.ArrowInvalid:
            raise PipelineError(
                f"{key}: a record between offsets {decoded.column('offset')[0]} and "
                "the next carries a time that Spark cannot hold; leave out the column timestamp"
                if "offset" in decoded.schema.names
                else f"{key}: a record carries a time that Spark cannot hold; leave out the "
                "column timestamp"
            ) from None
    return column.cast(_ARROW_TYPES[name]) if name == "headers" else column
