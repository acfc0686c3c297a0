"""Values of Spark in JSON's types; without a session."""

from __future__ import annotations

import math
from datetime import time
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)

from kgw.pipeline.sql.rows import plain, times_as_text

TIME = TimestampType()
AT = "12026-11-28 01:02:03.5"
TOLD = "12026-11-28T01:02:03.5Z"
OF_TIMES = StructType().add("at", TIME).add("of", ArrayType(MapType(StringType(), TIME)))


@pytest.mark.parametrize(
    ("value", "of", "expected"),
    [
        (None, TIME, None),
        (AT, TIME, TOLD),
        ((AT, [{"a": AT}, None]), OF_TIMES, {"at": TOLD, "of": [{"a": TOLD}, None]}),
        ({AT: 1}, MapType(TIME, LongType()), {TOLD: 1}),
        (AT, StringType(), AT),
        (b"text", BinaryType(), "text"),
        (bytearray(b"\xff"), BinaryType(), {"base64": "/w=="}),
        (math.nan, DoubleType(), "nan"),
        (1.5, DoubleType(), 1.5),
        (AT, TimestampNTZType(), TOLD.removesuffix("Z")),
        ("+12026-11-28", DateType(), "+12026-11-28"),
        (time(1, 2, 3), TimeType(), "01:02:03"),
    ],
)
def test_values_are_told_by_their_types(value: Any, of: DataType, expected: object) -> None:
    """Times are in UTC, within others too, and may be later than Python's last year."""
    assert expected == plain(value, of)


def test_times_are_asked_for_as_text() -> None:
    """Wherever they are in a type; dates, too, and those without a time zone."""
    assert (
        "struct<at:string,of:array<map<string,string>>>" == times_as_text(OF_TIMES).simpleString()
    )
    for of in (DateType(), TimestampNTZType()):
        assert StringType() == times_as_text(of)
    assert LongType() == times_as_text(LongType())
