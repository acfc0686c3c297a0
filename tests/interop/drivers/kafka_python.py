"""kafka-python, 2.x and 3.x: one driver, run in two environments."""

from __future__ import annotations

import time
from contextlib import closing
from typing import Any

import kafka
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    NewPartitions,
    NewTopic,
)

from tests import patience
from tests.interop.drivers import members, security, transactions
from tests.interop.drivers.loop import Operation, Record, from_json, serve, to_json

IS_2 = kafka.__version__.startswith("2.")
# kafka-python 3.0.12 forgets the round of a member that joins anew because its topic's metadata
# came late, if a poll ends before the round does: the member never takes its partitions.
LONGER_THAN_A_ROUND_S = 3.0
PATIENT: dict[str, Any] = (
    {} if IS_2 else {"bootstrap_timeout_ms": round(patience.seconds(30) * 1000)}
)
"""A slow machine may need longer than the 30 s of 3.x until a server answers a new client."""


def connection(operation: Operation) -> dict[str, Any]:
    """How a client connects."""
    limits = {}
    if "connect_limit_s" in operation and not IS_2:
        limits["bootstrap_timeout_ms"] = operation["connect_limit_s"] * 1000
    return {
        "bootstrap_servers": operation["bootstrap"].split(","),
        **PATIENT,
        **limits,
        **security.of_kafka_python(operation),
    }


def create_topic(operation: Operation) -> Operation:
    """Creates a topic through the admin client."""
    with admin_of(operation) as admin:
        topic = NewTopic(operation["topic"], operation["partitions"], 1)
        admin.create_topics([topic])
    return {}


def produce(operation: Operation) -> Operation:
    """Sends all records without waiting in between, then collects their offsets."""
    codec = operation["codec"]
    settings: dict[str, Any] = {
        **connection(operation),
        "compression_type": None if codec == "none" else codec,
        "enable_idempotence": operation["idempotent"],
        "acks": "all",
        "linger_ms": 5,
    }
    if "connect_limit_s" in operation:
        settings["max_block_ms"] = operation["connect_limit_s"] * 1000
    producer = KafkaProducer(**settings)
    try:
        answer = sent(producer, operation)
    except Exception:
        # 2.x would wait for its records for ever.
        producer.close(timeout=1)
        raise
    producer.close()
    return answer


def sent(producer: KafkaProducer, operation: Operation) -> Operation:
    """What `produce` does, with a producer that is there."""
    futures = [
        producer.send(
            operation["topic"],
            key=record.key,
            value=record.value,
            headers=record.headers,
            partition=operation["partition"],
            timestamp_ms=record.timestamp_ms,
        )
        for record in map(from_json, operation["records"])
    ]
    return {"offsets": [future.get(timeout=patience.seconds(30)).offset for future in futures]}


def open_producer(operation: Operation) -> KafkaProducer:
    """A producer that has fenced the others of its transactional id, or one without one."""
    if operation["transactional_id"] is None:
        return KafkaProducer(
            **connection(operation), enable_idempotence=True, acks="all", retries=10_000
        )
    producer = KafkaProducer(
        **connection(operation),
        transactional_id=operation["transactional_id"],
        transaction_timeout_ms=operation["timeout_ms"],
        reconnect_backoff_max_ms=500,
    )
    producer.init_transactions()
    return producer


def send_offsets(producer: KafkaProducer, member: KafkaConsumer) -> None:
    """Makes what a member has read part of a transaction; 2.x knows the group's name alone."""
    offsets = {
        partition: OffsetAndMetadata(member.position(partition), "", -1)
        for partition in member.assignment()
    }
    group = member.config["group_id"] if IS_2 else member.group_metadata()
    producer.send_offsets_to_transaction(offsets, group)


def assigned(operation: Operation) -> tuple[KafkaConsumer, TopicPartition]:
    """A consumer without a group, with the operation's partition assigned."""
    consumer = KafkaConsumer(
        **connection(operation),
        auto_offset_reset="none",
        isolation_level=operation.get("isolation", "read_uncommitted"),
    )
    partition = TopicPartition(operation["topic"], operation["partition"])
    consumer.assign([partition])
    return consumer, partition


def consume(operation: Operation) -> Operation:
    """Reads `count` records from an offset on."""
    consumer, partition = assigned(operation)
    records: list[Record] = []
    with closing(consumer):
        consumer.seek(partition, operation["offset"])
        deadline = time.monotonic() + patience.seconds(30)
        while len(records) < operation["count"] and time.monotonic() < deadline:
            for read in consumer.poll(timeout_ms=1000).get(partition, []):
                headers = [(name, value) for name, value in read.headers]
                records.append(Record(read.key, read.value, headers, read.timestamp, read.offset))
    return {"records": [to_json(record) for record in records]}


def bounds(operation: Operation) -> Operation:
    """Earliest and latest offset."""
    consumer, partition = assigned(operation)
    with closing(consumer):
        return {
            "earliest": consumer.beginning_offsets([partition])[partition],
            "latest": consumer.end_offsets([partition])[partition],
        }


def offset_for_time(operation: Operation) -> Operation:
    """Offset of the first record that is not older than a time."""
    consumer, partition = assigned(operation)
    with closing(consumer):
        found = consumer.offsets_for_times({partition: operation["timestamp_ms"]})[partition]
        return {"offset": None if found is None or found.offset < 0 else found.offset}


def admin_of(operation: Operation) -> Any:
    """An admin client that closes itself at the end of a `with`."""
    return closing(KafkaAdminClient(**connection(operation)))


def create_partitions(operation: Operation) -> Operation:
    """Grows a topic to a number of partitions."""
    with admin_of(operation) as admin:
        admin.create_partitions({operation["topic"]: NewPartitions(operation["partitions"])})
    return {}


def delete_topic(operation: Operation) -> Operation:
    """Deletes a topic."""
    with admin_of(operation) as admin:
        admin.delete_topics([operation["topic"]])
    return {}


def delete_records(operation: Operation) -> Operation:
    """Deletes what lies below an offset; where the partition begins then."""
    partition = TopicPartition(operation["topic"], operation["partition"])
    with admin_of(operation) as admin:
        answer = admin.delete_records({partition: operation["offset"]})[partition]
    return {"log_start_offset": answer["low_watermark"]}


def topic_config(operation: Operation) -> Operation:
    """The value of one setting; 2.x gives the bare responses, 3.x a dictionary."""
    resource = ConfigResource(ConfigResourceType.TOPIC, operation["topic"])
    with admin_of(operation) as admin:
        if IS_2:
            [response] = admin.describe_configs([resource])
            [(code, message, _type, _name, entries)] = response.resources
            if code != 0:
                raise RuntimeError(code, message)
            values = {entry[0]: entry[1] for entry in entries}
        else:
            found = admin.describe_configs([resource], config_filter="all")
            settings = found["topic"][operation["topic"]]
            values = {name: setting["value"] for name, setting in settings.items()}
        return {"value": values[operation["name"]]}


def set_topic_config(operation: Operation) -> Operation:
    """Sets one setting; errors are returned, and 2.x knows AlterConfigs alone."""
    resource = ConfigResource(
        ConfigResourceType.TOPIC,
        operation["topic"],
        configs={operation["name"]: operation["value"]},
    )
    with admin_of(operation) as admin:
        if IS_2:
            response = admin.alter_configs([resource])
            for code, message, *_ in response.resources:
                if code != 0:
                    raise RuntimeError(code, message)
        else:
            incremental = operation["incremental"]
            results = admin.alter_configs(
                [resource], raise_on_unknown=incremental, incremental=incremental
            )
            result = results["topic"][operation["topic"]]
            if result != "OK":
                raise RuntimeError(result)
    return {}


def assignors(strategy: str) -> list[Any]:
    """The assignor of a name, from the places where both versions have it."""
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    if strategy == "cooperative-sticky":
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        return [CooperativeStickyAssignor]
    return [{"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}[strategy]]


def open_member(operation: Operation) -> KafkaConsumer:
    """A consumer in a group."""
    return KafkaConsumer(
        operation["topic"],
        **connection(operation),
        group_id=operation["group"],
        group_instance_id=operation["instance"],
        partition_assignment_strategy=assignors(operation["strategy"]),
        auto_offset_reset="earliest",
        isolation_level=operation["isolation"],
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=300,
        retry_backoff_ms=100,
        reconnect_backoff_ms=100,
        reconnect_backoff_max_ms=500,
    )


def poll_member(consumer: KafkaConsumer, timeout_s: float) -> list[tuple[int, int]]:
    """Partition and offset of what comes in time; a member without partitions is given longer."""
    if not consumer.assignment():
        timeout_s = max(timeout_s, LONGER_THAN_A_ROUND_S)
    found = consumer.poll(timeout_ms=int(timeout_s * 1000))
    return [(one.partition, one.offset) for records in found.values() for one in records]


if __name__ == "__main__":
    members_open: dict[str, Any] = {}
    operations = {
        **members.operations(
            open_member,
            poll_member,
            lambda consumer: [one.partition for one in consumer.assignment()],
            lambda consumer: consumer.commit(),
            members_open,
        ),
        "create_topic": create_topic,
        "produce": produce,
        "consume": consume,
        "bounds": bounds,
        "offset_for_time": offset_for_time,
        "create_partitions": create_partitions,
        "delete_records": delete_records,
        "delete_topic": delete_topic,
        "topic_config": topic_config,
        "set_topic_config": set_topic_config,
    }
    serve(
        transactions.operations(
            open_producer,
            sent,
            send_offsets,
            lambda producer: producer.close(timeout=5),
            members_open,
            operations,
        )
    )
