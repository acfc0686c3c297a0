"""Writes each flight of a topic with its airline's name to another topic, exactly once.

See the README beside this file.
"""

from __future__ import annotations

import argparse
import signal
from threading import Event
from typing import TYPE_CHECKING

from pyspark.sql.functions import (
    broadcast,
    col,
    struct,
    to_json,
    try_parse_json,
    try_variant_get,
    when,
)

from kgw.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def enriched(flights: DataFrame, airlines: DataFrame) -> DataFrame:
    """Make {"flight": ..., "airline": NAME} of each value; what is not JSON stays as it is."""
    text = col("value").cast("string")
    flight = try_parse_json(text)
    known = flights.withColumn("carrier", try_variant_get(flight, "$.carrier", "string")).join(
        broadcast(airlines), "carrier", "left"
    )
    named = to_json(struct(flight.alias("flight"), col("name").alias("airline")))
    return known.select(
        "key", "partition", when(flight.isNotNull(), named).otherwise(text).alias("value")
    )


def start(
    spark: SparkSession, arguments: argparse.Namespace, airlines: DataFrame
) -> StreamingQuery:
    """Start the query: a new one, or where its checkpoint stands."""
    flights = (
        spark.readStream.format("kgw")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("subscribe", arguments.source)
        .option("startingOffsets", "earliest")
        .option("kafka.isolation.level", "read_committed")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .load()
    )
    writer = (
        enriched(flights, airlines)
        .writeStream.format("kgw")
        .option("kafka.bootstrap.servers", arguments.bootstrap)
        .option("topic", arguments.target)
        .option("exactlyOnce", "true")
        .option("kafka.transactional.id", f"enrich-{arguments.target}")
        .option("checkpointLocation", arguments.checkpoint)
    )
    if arguments.once:
        writer = writer.trigger(availableNow=True)
    return writer.start()


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
                print(f"batch {told}: {one['numInputRows']} flights", flush=True)
    query.stop()


def main() -> None:
    """Read the arguments, and run the query."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="127.0.0.1:9092")
    parser.add_argument("--from", dest="source", default="flights", metavar="TOPIC")
    parser.add_argument("--to", dest="target", default="flights-named", metavar="TOPIC")
    parser.add_argument("--airlines", required=True, metavar="CSV", help="columns carrier, name")
    parser.add_argument("--checkpoint", required=True, metavar="DIR")
    parser.add_argument("--batch", default=10_000, type=int, help="flights a micro-batch, at most")
    parser.add_argument("--once", action="store_true", help="end where the topic ends now")
    parser.add_argument("--master", default="local[*,4]")
    arguments = parser.parse_args()
    spark = session("enrich", master=arguments.master)
    airlines = spark.read.csv(arguments.airlines, header=True).select("carrier", "name")
    tell(start(spark, arguments, airlines))


if __name__ == "__main__":
    main()
