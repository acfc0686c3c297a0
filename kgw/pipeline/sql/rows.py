"""The rows of a result as JSON values."""

from __future__ import annotations

import math
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from pyspark.sql.functions import col
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(frame: DataFrame, limit: int) -> list[list[Any]]:
    """Return the first rows. The session's time zone must be UTC, as times are shown in it."""
    fields = frame.schema.fields
    # Rename by index, as a name may occur twice.
    unique = frame.toDF(*(f"_{place}" for place in range(len(fields))))
    columns = [
        col(f"_{place}").cast(times_as_text(field.dataType)).alias(f"_{place}")
        for place, field in enumerate(fields)
    ]
    return [
        [plain(value, field.dataType) for value, field in zip(row, fields, strict=True)]
        for row in unique.select(*columns).limit(limit).collect()
    ]


def times_as_text(of: DataType) -> DataType:
    """Return the type with dates and timestamps replaced by strings. Pure.

    Python has no years after 9999, and PySpark returns timestamps in the time zone of the process.
    """
    if isinstance(of, (DateType, TimestampType, TimestampNTZType)):
        return StringType()
    if isinstance(of, ArrayType):
        return ArrayType(times_as_text(of.elementType), of.containsNull)
    if isinstance(of, MapType):
        key, value = times_as_text(of.keyType), times_as_text(of.valueType)
        return MapType(key, value, of.valueContainsNull)
    if isinstance(of, StructType):
        fields = ((one.name, times_as_text(one.dataType), one.nullable) for one in of)
        return StructType([StructField(*one) for one in fields])
    return of


def plain(value: Any, of: DataType) -> Any:
    """Return a value in JSON's types. Strings of dates and timestamps become ISO 8601. Pure.

    Bytes that are not UTF-8 become an object with their base64 text.
    """
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(of, TimestampType):
        return f"{value.replace(' ', 'T')}Z"
    if isinstance(of, TimestampNTZType):
        return value.replace(" ", "T")
    if isinstance(of, ArrayType):
        return [plain(one, of.elementType) for one in value]
    if isinstance(of, MapType):
        return {str(plain(key, of.keyType)): plain(one, of.valueType) for key, one in value.items()}
    if isinstance(of, StructType):
        return {
            field.name: plain(one, field.dataType) for field, one in zip(of, value, strict=True)
        }
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(value).decode("ascii")}
    return str(value)
