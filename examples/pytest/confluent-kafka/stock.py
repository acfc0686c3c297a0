"""Keeps count of what is in stock: movements in one topic, the counts in a compacted one."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

if TYPE_CHECKING:
    from collections.abc import Mapping


class DeliveryError(Exception):
    """A count that the broker has not stored."""


class Stock:
    """Reads movements in a group and writes the count of each article."""

    def __init__(self, connection: Mapping[str, str], *, delivery_timeout_ms: int = 5_000) -> None:
        """`connection` says where the broker is, and how to log in, by librdkafka's names."""
        self.counts: Counter[str] = Counter()
        self.consumer = Consumer(
            {
                **connection,
                "group.id": "stock",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 20,
            }
        )
        self.producer = Producer(
            {
                **connection,
                "enable.idempotence": True,
                "message.timeout.ms": delivery_timeout_ms,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
            }
        )
        self.consumer.subscribe(["movements"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close()
        self.producer.flush(1)

    def take(self, timeout_s: float = 10.0) -> bool:
        """Take one movement, if one comes in time. Raises DeliveryError, KafkaException."""
        message = self.consumer.poll(timeout_s)
        if message is None:
            return False
        error = message.error()
        if error is not None:
            raise KafkaException(error)
        article, _, amount = str(message.value(), "utf-8").partition(" ")
        self.counts[article] += int(amount)
        self._write(article)
        self.consumer.commit(message, asynchronous=False)
        return True

    def _write(self, article: str) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        count = str(self.counts[article])
        self.producer.produce("counts", key=article, value=count, on_delivery=delivered)
        self.producer.flush()
        if errors:
            raise DeliveryError(errors[0].str())
