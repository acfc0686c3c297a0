"""Reads orders in a consumer group and writes an invoice for each, at least once.

An invoice has the order's id as its key: whoever reads invoices can tell one that came twice.
"""

from __future__ import annotations

import json

from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition


class Billing:
    """One worker of the group `billing`."""

    def __init__(self, bootstrap: str) -> None:
        self.consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id="billing",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
        )
        self.producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", retries=5, retry_backoff_ms=10
        )

    def work(self, timeout_ms: int = 500) -> int:
        """Bill the orders that come within the time; return how many."""
        billed = 0
        for partition, orders in self.consumer.poll(timeout_ms=timeout_ms).items():
            for order in orders:
                self.bill(json.loads(order.value))
                billed += 1
            # Not before the invoices are stored.
            self.producer.flush()
            self.commit(partition, orders[-1].offset + 1)
        return billed

    def bill(self, order: dict[str, object]) -> None:
        """Write the invoice of an order, and wait until it is stored."""
        invoice = {"order": order["id"], "total": order["price"] * order["count"]}
        key = str(order["id"]).encode()
        self.producer.send("invoices", json.dumps(invoice).encode(), key=key).get(timeout=10)

    def commit(self, partition: TopicPartition, offset: int) -> None:
        """Say that everything before an offset is billed."""
        self.consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})

    def close(self) -> None:
        """Leave the group."""
        self.consumer.close(autocommit=False)
        self.producer.close()
