"""The schema that Spark sees, and the conversion of decoded batches to that schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
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
_DECODED: Final = {
    "key": "key",
    "value": "value",
    "offset": "offset",
    "timestamp": "timestamp_ms",
    "timestampType": "timestamp_type",
    "headers": "headers",
}
_HANDED_BYTES: Final = 8 << 20
"""The approximate size of a batch that Spark gets; Spark holds it outside of its heap."""


def spark_schema(columns: Iterable[str]) -> StructType:
    """Return the schema of these columns, with the types of the `kafka` source."""
    return StructType([StructField(one, _TYPES[one]) for one in columns])


def decoded_columns(columns: Iterable[str]) -> frozenset[str]:
    """Return the columns to decode: at least one, as the number of rows is needed."""
    return frozenset(_DECODED[one] for one in columns if one in _DECODED) or frozenset({"offset"})


def spark_batches(
    decoded: pa.RecordBatch, key: TopicPartition, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield decoded records in Spark's schema.

    Raises PipelineError for a time outside of Spark's range.
    """
    if not decoded.num_rows:
        return
    # Use Spark's own Arrow types: it also compares the name of a list's elements.
    schema = to_arrow_schema(spark_schema(columns), timezone="UTC")
    arrays = [_column(decoded, key, field) for field in schema]
    yield from slices(pa.RecordBatch.from_arrays(arrays, schema=schema))


def slices(whole: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in slices that are small enough for Spark."""
    rows = max(1, len(whole) * _HANDED_BYTES // max(whole.nbytes, _HANDED_BYTES))
    for start in range(0, len(whole), rows):
        yield whole.slice(start, rows)


def _column(decoded: pa.RecordBatch, key: TopicPartition, field: pa.Field) -> pa.Array:
    name = field.name
    if name in {"topic", "partition"}:
        return pa.repeat(pa.scalar(getattr(key, name), field.type), decoded.num_rows)
    column = decoded.column(_DECODED[name])
    if name == "timestamp":
        try:
            return pc.multiply_checked(column, 1000).cast(field.type)
        except pa.ArrowInvalid:
            raise PipelineError(
                f"{key}: a record between offsets {decoded.column('offset')[0]} and "
                "the next carries a time that Spark cannot hold; leave out the column timestamp"
                if "offset" in decoded.schema.names
                else f"{key}: a record carries a time that Spark cannot hold; leave out the "
                "column timestamp"
            ) from None
    return column.cast(field.type) if name == "headers" else column
