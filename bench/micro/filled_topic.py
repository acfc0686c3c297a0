"""A topic filled with batches of 16 KB, for the benchmarks of recovery."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

if TYPE_CHECKING:
    from kgw.testing.process import GatewayProcess

BATCH_BYTES = 16 << 10


def create_topic(gateway: GatewayProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)


def fill(gateway: GatewayProcess, topic: str, partitions: int, count: int) -> None:
    """Produce `count` batches of 16 KB, in turn to each partition."""
    producer = Producer(
        {
            "bootstrap.servers": gateway.bootstrap,
            "acks": "all",
            "batch.num.messages": 1,
            "linger.ms": 0,
        }
    )
    failures: list[str] = []
    value = os.urandom(BATCH_BYTES - 80)

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failures.append(str(error))

    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number % partitions, callback=on_delivery)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(300) or failures:
        raise RuntimeError(f"not everything was acknowledged: {failures[:3]}")


def count_records(gateway: GatewayProcess, topic: str, partitions: int) -> int:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    return sum(one.result(60).offset for one in admin.list_offsets(wanted).values())
