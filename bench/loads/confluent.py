"""confluent-kafka from Python, which is what many users run: its default batching, one process."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.harness.servers import Server

RECORD_BYTES = 1024
CLOCK_EVERY = 1_000
QUEUE_KBYTES = 1 << 18


def create_topic(server: Server, topic: str, partitions: int) -> None:
    """Make a topic, and return once it can be written to."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, partitions)]).values()
    made.result(30)


def end_offsets(server: Server, topic: str, partitions: int) -> int:
    """The sum of the end offsets, by the versions of ListOffsets that the server knows."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "bench"})
    try:
        places = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(
            consumer.get_watermark_offsets(place, timeout=30, cached=False)[1] for place in places
        )
    finally:
        consumer.close()


def produce(
    server: Server,
    topic: str,
    partitions: int,
    seconds: float,
    *,
    queue_kbytes: int = QUEUE_KBYTES,
) -> dict[str, float]:
    """Write records of 1 KB to all partitions in turn, until the time is up; acks=all.

    What is queued by then is written all the same: a slow server wants a shorter queue.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": queue_kbytes,
        }
    )
    before = end_offsets(server, topic, partitions)
    # Upstream's gateway takes a value that begins with a zero for one with a schema.
    value = b"v" + os.urandom(RECORD_BYTES - 1)
    send: Any = producer.produce
    began_s = time.perf_counter()
    end_s = began_s + seconds
    records = 0
    while time.perf_counter() < end_s:
        for number in range(CLOCK_EVERY):
            while True:
                try:
                    send(topic, value, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
        records += CLOCK_EVERY
        producer.poll(0)
    left = producer.flush(120)
    elapsed_s = time.perf_counter() - began_s
    assert not left, f"{left} records were not acknowledged"
    # Counted in the log: a callback for each record would cost more than the server.
    written = end_offsets(server, topic, partitions) - before
    assert written == records, f"{written} of {records} records are there"
    return _figures(records, elapsed_s)


def consume(server: Server, topic: str, partitions: int, records: int) -> dict[str, float]:
    """Read so many records of 1 KB from the start of all partitions."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "queued.min.messages": 1_000_000,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    began_s = time.perf_counter()
    seen = seen_bytes = 0
    while seen < records:
        messages = consumer.consume(num_messages=min(10_000, records - seen), timeout=20)
        assert messages, f"only {seen} of {records} records came"
        for message in messages:
            assert message.error() is None, message.error()
            seen_bytes += len(message)
        seen += len(messages)
    elapsed_s = time.perf_counter() - began_s
    consumer.close()
    assert seen_bytes == seen * RECORD_BYTES
    return _figures(seen, elapsed_s)


def _figures(records: int, elapsed_s: float) -> dict[str, float]:
    return {
        "mb_per_s": records * RECORD_BYTES / elapsed_s / 1e6,
        "records_per_s": records / elapsed_s,
        "bytes": records * RECORD_BYTES,
    }
