"""Counts the flights of a topic by day and airport, in a Delta table that only grows.

See the README beside this file.
"""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pyspark import __version__
from pyspark.sql.functions import col, count, get_json_object, try_to_timestamp, window

from kgw.pipeline.jars import delta_tables, spark_jars
from kgw.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LATE = "6 hours"
"""How much later than the newest flight seen one may come and still be counted."""


def counted(flights: DataFrame) -> DataFrame:
    """Count flights by the day and the airport of their start; a day's rows come when it is over.

    It is over when a flight was seen that starts LATE after its end.
    """
    text = col("value").cast("string")
    return (
        flights.select(
            get_json_object(text, "$.origin").alias("origin"),
            # Not to_timestamp: what is no time would end the query, at every start again.
            try_to_timestamp(get_json_object(text, "$.time_hour")).alias("starts"),
        )
        .withWatermark("starts", LATE)
        .groupBy(window("starts", "1 day"), "origin")
        .agg(count("*").alias("flights"))
        .select(col("window.start").alias("day"), "origin", "flights")
    )


def start(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Start the query: a new one, or where its checkpoint stands."""
    flights = (
        spark.readStream.format("kgw")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .load()
    )
    writer = (
        counted(flights)
        .writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.once:
        writer = writer.trigger(availableNow=True)
    return writer.start(arguments.table)


def tell(query: StreamingQuery) -> None:
    """Print a line for each micro-batch, until the query ends or Ctrl-C stops it."""
    is_stopped = Event()
    signal.signal(signal.SIGINT, lambda *_: is_stopped.set())
    told = -1
    has_ended = False
    while not has_ended and not is_stopped.is_set():
        # Raises what has ended the query.
        has_ended = bool(query.awaitTermination(1))
        for one in query.recentProgress:
            if one["batchId"] > told and one["numInputRows"]:
                told = one["batchId"]
                until = one["eventTime"].get("watermark", "")
                print(f"batch {told}: {one['numInputRows']} flights, until {until}", flush=True)
    query.stop()


def main() -> None:
    """Read the arguments, and run the query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--from", dest="source", default="flights", metavar="TOPIC")
    parser.add_argument("--table", required=True, metavar="DIR", help="the Delta table")
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument(
        "--jars", required=True, type=Path, metavar="DIR", help="where `kgw pipeline jars` put them"
    )
    parser.add_argument("--batch", default=10_000, type=int, help="flights a micro-batch, at most")
    parser.add_argument("--once", action="store_true", help="end where the topic ends now")
    parser.add_argument("--master", default="local[*,4]")
    arguments = parser.parse_args()
    jars = [path.resolve() for path in sorted(arguments.jars.glob("*.jar"))]
    if not jars:
        parser.error(f"no jars in {arguments.jars}: kgw pipeline jars --delta --to DIR")
    settings = {
        "spark.jars": spark_jars(jars),
        **delta_tables(__version__).settings,
        "spark.sql.session.timeZone": "UTC",
        # For a small table: Delta reads its log with 50 tasks otherwise.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": "2",
    }
    tell(start(session("windowed counts", master=arguments.master, settings=settings), arguments))


if __name__ == "__main__":
    main()
