"""Readers: what Spark calls, without Spark."""

from __future__ import annotations

from kgw.pipeline.options import read_source_options
from kgw.pipeline.source.readers import KgwStreamReader
from kgw.pipeline.source.schema import spark_schema


def test_a_reader_that_has_asked_nothing_can_be_stopped() -> None:
    """There is nothing to close; to stop it once more is nothing either."""
    options = read_source_options({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    reader = KgwStreamReader(options, spark_schema(options.columns))
    reader.stop()
    reader.stop()
