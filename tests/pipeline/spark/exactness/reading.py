"""What came out, read without the code that wrote it: Parquet by pyarrow, topics by librdkafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.pipeline.spark.exactness.journal import PARTITIONS, Record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_CREATE_TIME = 1
_LOG_APPEND_TIME = 2
_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka has no other name for it


def archived_files(generation: Path) -> list[dict[str, Any]]:
    """Return what the commit log of an archive says of the files that count."""
    files: dict[str, dict[str, Any]] = {}
    for version in sorted((generation / "_log").glob("[0-9]*.json")):
        if not version.stem.isdecimal():
            continue
        entry = json.loads(version.read_text())
        for one in entry["removed"]:
            files.pop(one.get("path"), None)
        files |= {one["path"]: one for one in entry["added"] if "path" in one}
    return sorted(files.values(), key=lambda one: (one["partition"], one["first"]))


def archived_records(generation: Path) -> Iterator[Record]:
    """Yield the rows of the files that count, by partition and offset."""
    for file in archived_files(generation):
        table = pq.ParquetFile(generation / file["path"]).read()
        times_ms = [one // 1_000_000 for one in table.column("_ts_ns").to_pylist()]
        columns = ("_partition", "_offset", "_key", "_value", "_headers", "_ts_type")
        rows = zip(*(table.column(one).to_pylist() for one in columns), times_ms, strict=True)
        for partition, offset, key, value, headers, kind, time_ms in rows:
            yield Record(partition, offset, time_ms, key, value, _pairs(headers), kind)


def parquet_records(files: Iterable[Path]) -> Iterator[Record]:
    """Yield what programs have written of the columns of `format("kgw")`."""
    for file in files:
        table = pq.ParquetFile(file).read()
        times_us = table.column("timestamp").cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        columns = ("partition", "offset", "key", "value", "headers", "timestampType")
        rows = zip(*(table.column(one).to_pylist() for one in columns), times_us, strict=True)
        for partition, offset, key, value, headers, kind, time_us in rows:
            yield Record(partition, offset, time_us // 1000, key, value, _pairs(headers), kind)


def files_of_stream(out: Path) -> list[Path]:
    """Return the files that the log of Spark's file sink names."""
    named = set()
    for version in (out / "_spark_metadata").iterdir():
        if version.name.startswith("."):
            continue
        for line in version.read_text().splitlines()[1:]:
            one = json.loads(line)
            if one["action"] == "add":
                named.add(one["path"].removeprefix("file://"))
    return [out / one for one in sorted(named)]


def topic_records(address: str, topic: str) -> Iterator[Record]:
    """Yield the committed records of a topic, those of a partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"exactness-{topic}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, one, OFFSET_BEGINNING) for one in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is not None:
                    if error.code() != _END_OF_PARTITION:
                        raise RuntimeError(f"topic {topic} cannot be read: {error}")
                    ended.add(message.partition())
                    continue
                kind, time_ms = message.timestamp()
                yield Record(
                    message.partition(),
                    message.offset(),
                    time_ms,
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    {_CREATE_TIME: 0, _LOG_APPEND_TIME: 1}.get(kind, -1),
                )
    finally:
        consumer.close()


def _pairs(headers: list[Any] | None) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers as pairs: a list of (key, value), or of structures with these names."""
    return tuple(
        (one["key"], one["value"]) if isinstance(one, dict) else tuple(one) for one in headers or ()
    )
