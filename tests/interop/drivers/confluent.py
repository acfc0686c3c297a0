"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests import patience
from tests.interop.drivers import members, security, transactions
from tests.interop.drivers.loop import Operation, Record, from_json, serve, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence


def connection(operation: Operation) -> dict[str, Any]:
    """How a client connects."""
    return {
        "bootstrap.servers": operation["bootstrap"],
        **security.of_librdkafka(operation),
    }


def create_topic(operation: Operation) -> Operation:
    """Creates a topic through the admin client."""
    admin = AdminClient(connection(operation))
    topic = NewTopic(operation["topic"], operation["partitions"], 1)
    admin.create_topics([topic])[operation["topic"]].result(timeout=patience.seconds(30))
    return {}


def produce(operation: Operation) -> Operation:
    """Sends all records without waiting in between, then collects their offsets."""
    problems: list[Any] = []
    producer = Producer(
        {
            **connection(operation),
            "error_cb": problems.append,
            "compression.type": operation["codec"],
            "enable.idempotence": operation["idempotent"],
            "acks": "all",
            # Its default of 1,000,000 counts the whole batch: a record of that size needs more.
            "message.max.bytes": 1_048_588,
            "message.timeout.ms": 30_000,
        }
    )
    return sent(producer, operation, problems)


def check_connection(problems: Sequence[Any]) -> None:
    """Raise KafkaException for an error of TLS or of the login: librdkafka tries again for ever."""
    for problem in problems:
        if problem.name() in {"_AUTHENTICATION", "_SSL"} or "SSL alert" in problem.str():
            raise KafkaException(problem)


def sent(producer: Any, operation: Operation, problems: Sequence[Any] = ()) -> Operation:
    """What `produce` does, with a producer that is there."""
    offsets: dict[int, int] = {}
    failures: list[Any] = []

    def delivered(index: int, error: Any, message: Any) -> None:
        if error is None:
            offsets[index] = message.offset()
        else:
            failures.append(error)

    for index, record in enumerate(map(from_json, operation["records"])):
        producer.produce(
            operation["topic"],
            key=record.key,
            value=record.value,
            headers=record.headers,
            partition=operation["partition"],
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, message, index=index: delivered(index, error, message),
        )
    deadline = time.monotonic() + 30
    while producer.flush(0.2) and time.monotonic() < deadline:
        check_connection(problems)
    if failures:
        raise KafkaException(failures[0])
    return {"offsets": [offsets[index] for index in range(len(operation["records"]))]}


def open_producer(operation: Operation) -> Any:
    """A producer that has fenced the others of its transactional id, or an idempotent one."""
    settings = {
        **connection(operation),
        "reconnect.backoff.max.ms": 500,
    }
    if operation["transactional_id"] is None:
        return Producer({**settings, "enable.idempotence": True, "message.timeout.ms": 30_000})
    settings["transactional.id"] = operation["transactional_id"]
    settings["transaction.timeout.ms"] = operation["timeout_ms"]
    if "," not in operation["bootstrap"]:
        # By its default a `send_offsets_to_transaction` never returns that is under way when all
        # connections are lost (docs/clients/confluent-kafka.md). With two, none does not help.
        settings["metadata.recovery.strategy"] = "none"
    producer = Producer(settings)
    producer.init_transactions(30)
    return producer


def send_offsets(producer: Any, member: Any) -> None:
    """Makes what a member has read part of a transaction."""
    offsets = [one for one in member.position(member.assignment()) if one.offset >= 0]
    producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 30)


def close_producer(producer: Any) -> None:
    """Gives up what was not sent: it would be tried for as long as the producer lives."""
    producer.purge()
    with suppress(KafkaException):  # what a fenced producer says to each call
        producer.flush(1)


def consumer_of(operation: Operation) -> Any:
    """A consumer; librdkafka insists on a group id, which an assignment never uses."""
    return Consumer(
        {
            **connection(operation),
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": operation.get("isolation", "read_uncommitted"),
        }
    )


def consume(operation: Operation) -> Operation:
    """Reads `count` records from an offset on."""
    records: list[Record] = []
    with closing(consumer_of(operation)) as consumer:
        start = TopicPartition(operation["topic"], operation["partition"], operation["offset"])
        consumer.assign([start])
        deadline = time.monotonic() + patience.seconds(30)
        while len(records) < operation["count"] and time.monotonic() < deadline:
            for read in consumer.consume(operation["count"] - len(records), timeout=0.2):
                if read.error() is not None:
                    raise KafkaException(read.error())
                _kind, timestamp_ms = read.timestamp()
                headers = read.headers() or []
                records.append(
                    Record(read.key(), read.value(), headers, timestamp_ms, read.offset())
                )
    return {"records": [to_json(record) for record in records]}


def bounds(operation: Operation) -> Operation:
    """Earliest and latest offset, through the admin client's ListOffsets."""
    admin = AdminClient(connection(operation))
    isolation = IsolationLevel[operation["isolation"].upper()]

    def offset_at(spec: Any) -> int:
        partition = TopicPartition(operation["topic"], operation["partition"])
        [future] = admin.list_offsets({partition: spec}, isolation_level=isolation).values()
        return int(future.result(timeout=patience.seconds(30)).offset)

    return {
        "earliest": offset_at(OffsetSpec.earliest()),
        "latest": offset_at(OffsetSpec.latest()),
    }


def offset_for_time(operation: Operation) -> Operation:
    """Offset of the first record that is not older than a time; librdkafka says -1 for none."""
    with closing(consumer_of(operation)) as consumer:
        time_of = TopicPartition(
            operation["topic"], operation["partition"], operation["timestamp_ms"]
        )
        [found] = consumer.offsets_for_times([time_of], timeout=patience.seconds(30))
        return {"offset": found.offset if found.offset >= 0 else None}


def create_partitions(operation: Operation) -> Operation:
    """Grows a topic to a number of partitions."""
    admin = AdminClient(connection(operation))
    wanted = NewPartitions(operation["topic"], operation["partitions"])
    admin.create_partitions([wanted])[operation["topic"]].result(timeout=patience.seconds(30))
    return {}


def delete_topic(operation: Operation) -> Operation:
    """Deletes a topic."""
    admin = AdminClient(connection(operation))
    admin.delete_topics([operation["topic"]])[operation["topic"]].result(
        timeout=patience.seconds(30)
    )
    return {}


def delete_records(operation: Operation) -> Operation:
    """Deletes what lies below an offset; where the partition begins then."""
    admin = AdminClient(connection(operation))
    before = TopicPartition(operation["topic"], operation["partition"], operation["offset"])
    [future] = admin.delete_records([before]).values()
    return {"log_start_offset": future.result(timeout=patience.seconds(30)).low_watermark}


def topic_config(operation: Operation) -> Operation:
    """The value of one setting."""
    admin = AdminClient(connection(operation))
    resource = ConfigResource(ResourceType.TOPIC, operation["topic"])
    settings = admin.describe_configs([resource])[resource].result(timeout=patience.seconds(30))
    return {"value": settings[operation["name"]].value}


def set_topic_config(operation: Operation) -> Operation:
    """Sets one setting, through either API."""
    admin = AdminClient(connection(operation))
    name, value = operation["name"], operation["value"]
    if operation["incremental"]:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(
            ResourceType.TOPIC, operation["topic"], incremental_configs=[entry]
        )
        futures = admin.incremental_alter_configs([resource])
    else:
        resource = ConfigResource(ResourceType.TOPIC, operation["topic"], set_config={name: value})
        futures = admin.alter_configs([resource])
    futures[resource].result(timeout=patience.seconds(30))
    return {}


def open_member(operation: Operation) -> Any:
    """A consumer in a group."""
    settings = {
        **connection(operation),
        "group.id": operation["group"],
        "partition.assignment.strategy": operation["strategy"],
        "auto.offset.reset": "earliest",
        "isolation.level": operation["isolation"],
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 300,
        "reconnect.backoff.ms": 100,
        "reconnect.backoff.max.ms": 500,
    }
    if operation["instance"] is not None:
        settings["group.instance.id"] = operation["instance"]
    consumer = Consumer(settings)
    consumer.subscribe([operation["topic"]])
    return consumer


def poll_member(consumer: Any, timeout_s: float) -> list[tuple[int, int]]:
    """Partition and offset of what comes in time; only a fatal error is one."""
    found = []
    for one in consumer.consume(500, timeout=timeout_s):
        if one.error() is None:
            found.append((one.partition(), one.offset()))
        elif one.error().fatal() or "AUTHORIZATION_FAILED" in one.error().name():
            raise KafkaException(one.error())
    return found


def commit_member(consumer: Any) -> None:
    """Commit everything that was read; nothing to commit is fine."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].name() != "_NO_OFFSET":
            raise


if __name__ == "__main__":
    members_open: dict[str, Any] = {}
    operations = {
        **members.operations(
            open_member,
            poll_member,
            lambda consumer: [one.partition for one in consumer.assignment()],
            commit_member,
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
            open_producer, sent, send_offsets, close_producer, members_open, operations
        )
    )
