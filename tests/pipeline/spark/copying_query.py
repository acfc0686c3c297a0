"""A query that copies a topic until somebody kills it, or, with `once`, until all is copied.

Arguments: address, checkpoint, `exactly` or `plain`, `follow` or `once`. Says the number of each
micro-batch that has ended in a line of its own.
"""

from __future__ import annotations

import sys
import time

from kgw.pipeline.session import session

SOURCE, TARGET = "source", "target"
TRANSACTIONAL_ID = "copying-query"


def main(address: str, checkpoint: str, how: str, until: str) -> None:
    """Copy."""
    spark = session(
        "copying query",
        master="local[2,4]",
        settings={"spark.driver.memory": "512m"},
        log_level="ERROR",
    )
    writer = (
        spark.readStream.format("kgw")
        .option("kafka.bootstrap.servers", address)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "2000")
        .load()
        .select("key", "value", "partition")
        .writeStream.format("kgw")
        .option("kafka.bootstrap.servers", address)
        .option("topic", TARGET)
        .option("checkpointLocation", checkpoint)
    )
    if how == "exactly":
        writer = writer.option("exactlyOnce", "true").option(
            "kafka.transactional.id", TRANSACTIONAL_ID
        )
    if until == "once":
        writer.trigger(availableNow=True).start().awaitTermination()
        return
    query = writer.trigger(processingTime="0 seconds").start()
    told = -1
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != told:
            told = progress["batchId"]
            print(told, flush=True)
        time.sleep(0.05)
    # Raises what has ended it.
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
