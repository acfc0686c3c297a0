"""aiokafka."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests import patience
from tests.interop.drivers import security
from tests.interop.drivers.loop import Operation, Record, from_json, serve, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


def connection(operation: Operation) -> dict[str, Any]:
    """How a client connects."""
    return {
        "bootstrap_servers": operation["bootstrap"].split(","),
        **security.of_aiokafka(operation),
    }


@asynccontextmanager
async def admin_of(operation: Operation) -> AsyncIterator[Any]:
    """An admin client; it returns refusals instead of raising them."""
    admin = AIOKafkaAdminClient(**connection(operation))
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


def check(code: int, *more: Any) -> None:
    """Raises what the admin client has only returned."""
    if code != 0:
        raise RuntimeError(code, *more)


async def create_topic(operation: Operation) -> Operation:
    """Creates a topic."""
    async with admin_of(operation) as admin:
        topic = NewTopic(operation["topic"], operation["partitions"], 1)
        response = await admin.create_topics([topic])
        for _name, code, *message in response.topic_errors:
            check(code, *message)
    return {}


async def create_partitions(operation: Operation) -> Operation:
    """Grows a topic to a number of partitions."""
    async with admin_of(operation) as admin:
        wanted = {operation["topic"]: NewPartitions(operation["partitions"])}
        response = await admin.create_partitions(wanted)
        for _name, code, *message in response.topic_errors:
            check(code, *message)
    return {}


async def delete_topic(operation: Operation) -> Operation:
    """Deletes a topic."""
    async with admin_of(operation) as admin:
        response = await admin.delete_topics([operation["topic"]])
        for _name, code in response.topic_error_codes:
            check(code)
    return {}


async def delete_records(operation: Operation) -> Operation:
    """Deletes what lies below an offset; where the partition begins then."""
    partition = TopicPartition(operation["topic"], operation["partition"])
    before = RecordsToDelete(before_offset=operation["offset"])
    async with admin_of(operation) as admin:
        answer = await admin.delete_records({partition: before})
    return {"log_start_offset": answer[partition]}


async def topic_config(operation: Operation) -> Operation:
    """The value of one setting."""
    async with admin_of(operation) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, operation["topic"])
        [response] = await admin.describe_configs([resource])
        [(code, message, _type, _name, entries)] = response.resources
        check(code, message)
        return {"value": {entry[0]: entry[1] for entry in entries}[operation["name"]]}


async def set_topic_config(operation: Operation) -> Operation:
    """Sets one setting; the library knows AlterConfigs alone."""
    async with admin_of(operation) as admin:
        configs = {operation["name"]: operation["value"]}
        resource = ConfigResource(ConfigResourceType.TOPIC, operation["topic"], configs)
        [response] = await admin.alter_configs([resource])
        for code, message, *_ in response.resources:
            check(code, message)
    return {}


async def produce(operation: Operation) -> Operation:
    """Sends all records without waiting in between, then collects their offsets."""
    codec = operation["codec"]
    producer = AIOKafkaProducer(
        **connection(operation),
        compression_type=None if codec == "none" else codec,
        enable_idempotence=operation["idempotent"],
        acks="all",
        linger_ms=5,
    )
    try:
        await producer.start()
        return await sent(producer, operation)
    finally:
        await producer.stop()


async def sent(producer: Any, operation: Operation) -> Operation:
    """What `produce` does, with a producer that is there."""
    futures = [
        await producer.send(
            operation["topic"],
            key=record.key,
            value=record.value,
            headers=record.headers,
            partition=operation["partition"],
            timestamp_ms=record.timestamp_ms,
        )
        for record in map(from_json, operation["records"])
    ]
    return {"offsets": [written.offset for written in await asyncio.gather(*futures)]}


@asynccontextmanager
async def assigned(operation: Operation) -> AsyncIterator[tuple[Any, TopicPartition]]:
    """A consumer without a group, with the operation's partition assigned."""
    consumer = AIOKafkaConsumer(
        **connection(operation),
        auto_offset_reset="none",
        group_id=None,
        isolation_level=operation.get("isolation", "read_uncommitted"),
    )
    partition = TopicPartition(operation["topic"], operation["partition"])
    consumer.assign([partition])
    try:
        await consumer.start()
        yield consumer, partition
    finally:
        await consumer.stop()


async def consume(operation: Operation) -> Operation:
    """Reads `count` records from an offset on."""
    records: list[Record] = []
    async with assigned(operation) as (consumer, partition):
        consumer.seek(partition, operation["offset"])
        deadline = time.monotonic() + patience.seconds(30)
        while len(records) < operation["count"] and time.monotonic() < deadline:
            for read in (await consumer.getmany(partition, timeout_ms=1000)).get(partition, []):
                headers = list(read.headers)
                records.append(Record(read.key, read.value, headers, read.timestamp, read.offset))
    return {"records": [to_json(record) for record in records]}


async def bounds(operation: Operation) -> Operation:
    """Earliest and latest offset."""
    async with assigned(operation) as (consumer, partition):
        return {
            "earliest": (await consumer.beginning_offsets([partition]))[partition],
            "latest": (await consumer.end_offsets([partition]))[partition],
        }


async def offset_for_time(operation: Operation) -> Operation:
    """Offset of the first record that is not older than a time."""
    async with assigned(operation) as (consumer, partition):
        times = {partition: operation["timestamp_ms"]}
        found = (await consumer.offsets_for_times(times))[partition]
        return {"offset": None if found is None or found.offset < 0 else found.offset}


class Lasting:
    """Consumers in groups and transactional producers, in a loop that runs all the time."""

    def __init__(self) -> None:
        self._consumers: dict[str, Any] = {}
        self._groups: dict[str, str] = {}
        self._producers: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def operations(self) -> dict[str, Callable[[Operation], Operation]]:
        """The operations on members and producers, and `produce`, for the driver's table."""
        members = ("open_member", "poll_members", "commit_member", "close_member")
        producers = ("open_producer", "begin", "send_offsets", "end", "close_producer", "produce")
        return {name: self._in_loop(getattr(self, name)) for name in (*members, *producers)}

    def _in_loop(
        self, operation: Callable[[Operation], Coroutine[Any, Any, Operation]]
    ) -> Callable[[Operation], Operation]:
        return lambda fields: asyncio.run_coroutine_threadsafe(
            operation(fields), self._loop
        ).result(60)

    async def open_member(self, operation: Operation) -> Operation:
        """Joins a group with a new consumer."""
        strategy = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
        }[operation["strategy"]]
        consumer = AIOKafkaConsumer(
            operation["topic"],
            **connection(operation),
            group_id=operation["group"],
            group_instance_id=operation["instance"],
            partition_assignment_strategy=[strategy],
            auto_offset_reset="earliest",
            isolation_level=operation["isolation"],
            enable_auto_commit=False,
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            retry_backoff_ms=100,
        )
        await consumer.start()
        self._consumers[operation["member"]] = consumer
        return {}

    async def poll_members(self, operation: Operation) -> Operation:
        """Partition and offset of what comes to each member in time."""
        names = operation["members"]
        found = await asyncio.gather(*(self._poll(one, operation["timeout_s"]) for one in names))
        return {"members": dict(zip(names, found, strict=True))}

    async def _poll(self, name: str, timeout_s: float) -> Operation:
        consumer = self._consumers[name]
        found = await consumer.getmany(timeout_ms=int(timeout_s * 1000))
        return {
            "records": [(one.partition, one.offset) for ones in found.values() for one in ones],
            "assigned": sorted(one.partition for one in consumer.assignment()),
        }

    async def commit_member(self, operation: Operation) -> Operation:
        """Commits everything that was read."""
        await self._consumers[operation["member"]].commit()
        return {}

    async def close_member(self, operation: Operation) -> Operation:
        """Leaves the group, unless the member is static."""
        await stop(self._consumers.pop(operation["member"]))
        return {}

    async def open_producer(self, operation: Operation) -> Operation:
        """Fences the other producers of a transactional id; without one it is idempotent."""
        name = operation["producer"]
        if operation["group"] is not None:
            await self.open_member({**operation, "member": name, "instance": None})
            self._groups[name] = operation["group"]
        producer = AIOKafkaProducer(
            **connection(operation),
            transactional_id=operation["transactional_id"],
            transaction_timeout_ms=operation["timeout_ms"],
            enable_idempotence=True,
        )
        self._producers[name] = producer
        await producer.start()
        return {}

    async def produce(self, operation: Operation) -> Operation:
        """Sends with a producer of its own, or within the transaction of one that is open."""
        name = operation.get("producer")
        if name is None:
            return await produce(operation)
        return await sent(self._producers[name], operation)

    async def begin(self, operation: Operation) -> Operation:
        """Begins a transaction."""
        await self._producers[operation["producer"]].begin_transaction()
        return {}

    async def send_offsets(self, operation: Operation) -> Operation:
        """Makes what the member of the same name has read part of the transaction."""
        name = operation["producer"]
        member = self._consumers[name]
        offsets = {one: await member.position(one) for one in member.assignment()}
        await self._producers[name].send_offsets_to_transaction(offsets, self._groups[name])
        return {}

    async def end(self, operation: Operation) -> Operation:
        """Commits or aborts."""
        producer = self._producers[operation["producer"]]
        if operation["commit"]:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        return {}

    async def close_producer(self, operation: Operation) -> Operation:
        """Closes a producer, and the member of the same name."""
        name = operation["producer"]
        await stop(self._producers.pop(name))
        if name in self._consumers:
            await self.close_member({"member": name})
        return {}


async def stop(client: Any) -> None:
    """Ends a consumer or a producer."""
    try:
        await client.stop()
    except asyncio.CancelledError:
        # Nobody has cancelled this. aiokafka 0.14 lets the cancellation of a task of its own
        # through, now and then, when its connection to the coordinator was lost.
        logging.getLogger(__name__).warning("aiokafka has cancelled its own end")


def blocking(
    operation: Callable[[Operation], Coroutine[Any, Any, Operation]],
) -> Callable[[Operation], Operation]:
    """Runs a coroutine in an event loop of its own."""
    return lambda fields: asyncio.run(operation(fields))


if __name__ == "__main__":
    serve(
        {
            **Lasting().operations(),
            "create_topic": blocking(create_topic),
            "consume": blocking(consume),
            "bounds": blocking(bounds),
            "offset_for_time": blocking(offset_for_time),
            "create_partitions": blocking(create_partitions),
            "delete_records": blocking(delete_records),
            "delete_topic": blocking(delete_topic),
            "topic_config": blocking(topic_config),
            "set_topic_config": blocking(set_topic_config),
        }
    )
