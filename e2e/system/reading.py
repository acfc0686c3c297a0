"""What a topic has, read by librdkafka."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from e2e.system.evidence import Content, Place, Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001 - librdkafka has no other name for it
PATIENCE_S = 60.0


class ReadingError(Exception):
    """A topic cannot be read."""


def read_topic(bootstrap: str, topic: str, starts: Mapping[int, int]) -> list[Stored]:
    """Return the committed records from the offset of each partition on, in order in each.

    Raises ReadingError.
    """
    found = []
    ended: set[int] = set()
    with closing(_consumer(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, *start) for start in starts.items()])
        deadline = time.monotonic() + PATIENCE_S
        while ended != starts.keys():
            messages = consumer.consume(1_000, 0.2)
            if messages:
                deadline = time.monotonic() + PATIENCE_S
            elif time.monotonic() > deadline:
                raise ReadingError(f"nothing came of {topic} for {PATIENCE_S:g} s")
            for message in messages:
                if message.error() is None:
                    found.append(_stored(message))
                elif message.error().code() == _END_OF_PARTITION:
                    ended.add(message.partition())
                else:
                    raise ReadingError(f"{topic} cannot be read: {message.error()}")
    return found


def record_at(bootstrap: str, topic: str, place: Place) -> Content:
    """Return the record at a place. Raises ReadingError."""
    with closing(_consumer(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, *place)])
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            # An error may be that of a connection, which the library makes anew.
            if message is not None and message.error() is None:
                found = _stored(message)
                if found.place == place:
                    return found.content
                break
    raise ReadingError(f"{topic} has nothing at {place}")


def _consumer(bootstrap: str) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )


def _stored(message: Any) -> Stored:
    headers = dict(message.headers() or [])
    source = None
    if "source" in headers:
        partition, _, offset = headers["source"].decode().partition(":")
        source = Place(int(partition), int(offset))
    place = Place(message.partition(), message.offset())
    return Stored(place, Content(message.key(), message.value()), source)
