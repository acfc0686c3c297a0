from __future__ import annotations

import asyncio
import gc
import warnings
from typing import TYPE_CHECKING, Any

import pytest

from kgw.client import (
    AdminClient,
    AsyncClient,
    CannotConnectError,
    ClientError,
    NewRecord,
    Producer,
    ServerRefusedError,
    TransactionalClient,
    UnsupportedApiError,
    WireReader,
)
from kgw.client.subscription import OffsetSubscriber
from kgw.client.values import LATEST, REQUEST_TIMEOUT_MS, REQUEST_TIMEOUT_S
from kgw.clock import SystemClock
from kgw.errors import ErrorCode
from kgw.offsets.seeker import Seek, SeekKind
from kgw.protocol.api_keys import ApiKey
from kgw.records.batch import HEADER_BYTES, Compression
from kgw.records.builder import BatchBuilder
from kgw.types import ZERO_TOPIC_ID
from tests import patience
from tests.client.serving import CuttingProxy, ServedGateway, served_client
from tests.client.test_connection import reply, scripted_server, versions

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from kgw.client import Produced
    from kgw.offsets.reader import ReadRecord
    from kgw.testing.broker import Broker
    from kgw.types import Buffer


def batch(*values: bytes) -> bytearray:
    """Return a batch of these values, one millisecond apart from 1000 on."""
    builder = BatchBuilder()
    for number, value in enumerate(values):
        builder.add(value=value, timestamp_ms=1000 + number)
    return builder.build()


def record(value: bytes, key: bytes | None = None) -> NewRecord:
    """Return a record at time 1000."""
    return NewRecord(key, value, 1000)


async def read_to_the_end(client: AsyncClient, offsets: Mapping[int, int]) -> list[ReadRecord]:
    """Return what a subscription to the topic "events" gives from these offsets on."""
    reader = WireReader(client, await client.topic("events"))
    subscription = await OffsetSubscriber(reader, SystemClock()).subscribe(
        {one: Seek(SeekKind.EXACT_OFFSET, offset) for one, offset in offsets.items()}
    )
    return await subscription.next_page(1000, max_wait_ms=0)


async def test_a_topic_is_found_or_not() -> None:
    """A name that no topic has, or could have, is an answer and no error."""
    async with served_client() as client:
        await AdminClient(client).create_topic("events", partitions=2)
        found = await client.find_topic("events")
        assert found is not None
        assert ([0, 1], True) == (
            [one.partition for one in found.partitions],
            found.topic_id != ZERO_TOPIC_ID,
        )
        assert [None, None] == [await client.find_topic(name) for name in ("none", "no/topic")]


async def test_refusals_carry_the_code_and_the_reason() -> None:
    """What the server says reaches the caller in one line."""
    async with served_client() as client:
        with pytest.raises(ServerRefusedError, match="there is no such topic") as caught:
            await client.topic("missing")
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await client.topic("events", auto_create=True)
        with pytest.raises(ServerRefusedError, match="no partition 7"):
            await client.produce("events", 7, batch(b"a"))
        with pytest.raises(ServerRefusedError, match="OFFSET_OUT_OF_RANGE"):
            await client.fetch("events", {0: 99})
        with pytest.raises(ServerRefusedError, match="INVALID_CONFIG"):
            await AdminClient(client).create_topic("b", config={"retention.ms": "-2"})
        damaged = batch(b"a")
        damaged[-1] ^= 1
        with pytest.raises(ServerRefusedError, match="CORRUPT_MESSAGE"):
            await client.produce("events", 0, damaged, retry=False)


@pytest.mark.kgw_topics("orders", "refunds")
async def test_a_topic_that_the_server_cannot_tell_is_not_among_all_topics(
    kgw_broker: Broker,
) -> None:
    """Of one that has an error nothing else is known; the others are listed."""
    kgw_broker.faults.refuse(
        "Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="orders", must_strike=True
    )
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        assert ["refunds"] == [one.name for one in await client.topics()]


@pytest.mark.kgw_topics("orders")
async def test_a_batch_that_is_refused_for_now_is_sent_again_unless_told_otherwise(
    kgw_broker: Broker,
) -> None:
    """With `retry=False` the refusal is the caller's."""
    async with AsyncClient([("127.0.0.1", kgw_broker.port)]) as client:
        for retry in (True, False):
            kgw_broker.faults.refuse(
                "Produce", "NOT_ENOUGH_REPLICAS", times=1, topic="orders", must_strike=True
            )
            if retry:
                assert 0 == (await client.produce("orders", 0, batch(b"a"))).base_offset
            else:
                with pytest.raises(ServerRefusedError, match="NOT_ENOUGH_REPLICAS"):
                    await client.produce("orders", 0, batch(b"b"), retry=False)
    assert [b"a"] == kgw_broker.values("orders")


def test_a_server_has_less_time_than_the_client_waits() -> None:
    """Its REQUEST_TIMED_OUT arrives before the client gives up, and closes the connection."""
    assert REQUEST_TIMEOUT_MS <= (REQUEST_TIMEOUT_S - 1) * 1_000


async def test_a_topic_with_numbers_of_its_own_is_created_by_an_old_server() -> None:
    """Only a number that is left to the server needs one that knows how (KIP-464)."""
    async with served_client() as client:
        connection = await client.controller_connection()
        connection.versions[ApiKey.CREATE_TOPICS] = (2, 3)
        admin = AdminClient(client)
        await admin.create_topic("events", partitions=2, replication_factor=1)
        assert 2 == len((await client.topic("events")).partitions)
        for partitions, replication_factor in ((2, -1), (-1, 1)):
            with pytest.raises(UnsupportedApiError, match="CreateTopics in versions 2 to 3"):
                await admin.create_topic(
                    "others", partitions=partitions, replication_factor=replication_factor
                )


@pytest.mark.parametrize(
    "large",
    [
        NewRecord(b"x" * 5000, None, 1000),
        NewRecord(None, b"x" * 5000, 1000),
        NewRecord(None, None, 1000, (("x" * 5000, None),)),
        NewRecord(None, None, 1000, (("h", b"x" * 5000), ("h", b"x" * 5000))),
    ],
    ids=["key", "value", "header-key", "header-values"],
)
def test_the_size_of_a_record_is_about_what_it_takes_in_a_batch(large: NewRecord) -> None:
    """Whatever is large in it: by that size records are put together to batches."""
    alone = BatchBuilder()
    alone.add(key=large.key, value=large.value, headers=large.headers)
    taken_bytes = len(alone.build()) - HEADER_BYTES
    assert taken_bytes <= large.size_bytes <= taken_bytes + 20


async def test_a_topic_is_created_only_when_asked() -> None:
    """Looking at a topic does not create it."""
    async with (
        ServedGateway(auto_create_topics_enable=False) as served,
        AsyncClient([("127.0.0.1", served.port)], retry_s=0) as client,
    ):
        with pytest.raises(ServerRefusedError, match="no such topic"):
            await client.topic("events", auto_create=True)


async def test_the_next_address_is_tried_when_one_is_down(unused_tcp_port: int) -> None:
    """One of several bootstrap addresses is enough; without any the first failure is told."""
    async with (
        ServedGateway() as served,
        AsyncClient([("127.0.0.1", unused_tcp_port), ("127.0.0.1", served.port)]) as client,
    ):
        assert [served.port] == [broker.port for broker in (await client.cluster()).brokers]
    with pytest.raises(CannotConnectError, match="refused"):
        await AsyncClient([("127.0.0.1", unused_tcp_port)]).open()


async def test_a_connection_that_is_being_opened_when_the_client_closes_is_closed() -> None:
    """Nobody else would: whoever opened it is told, and so is who asks later."""
    has_asked, may_answer, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asked = 0

    async def answer(frame: bytes) -> bytes:
        nonlocal asked
        asked += 1
        has_asked.set()
        await may_answer.wait()
        return reply(frame, versions(METADATA=(0, 13)), 4)

    async with scripted_server(answer, ended) as port, asyncio.timeout(patience.seconds(10)):
        client = AsyncClient([("127.0.0.1", port)])
        opening = [asyncio.ensure_future(client.any_connection()) for _ in range(2)]
        await has_asked.wait()
        await client.aclose()
        may_answer.set()
        for one in opening:
            with pytest.raises(ClientError, match="the client is closed"):
                await one
        await ended.wait()
        with pytest.raises(ClientError, match="the client is closed"):
            await client.topics()
        assert 1 == asked


async def test_a_closed_client_can_be_opened_again() -> None:
    """With new connections."""
    async with ServedGateway() as served:
        client = AsyncClient([(served.host, served.port)])
        for _ in range(2):
            async with client:
                assert [] == await client.topics()


async def test_a_close_that_is_cancelled_closes_every_connection() -> None:
    """Not the first alone: nobody knows of the others any more."""
    async with ServedGateway() as one, ServedGateway() as other:
        client = AsyncClient([(one.host, one.port)])
        opened = [await client.connection_to(served.host, served.port) for served in (one, other)]
        closing = asyncio.ensure_future(client.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert closing.cancelled()
        assert [False, False] == [connection.is_open for connection in opened]


async def test_an_advertised_address_that_is_wrong_is_named(unused_tcp_port: int) -> None:
    """The mistake most often made with listeners gets an error of its own."""
    async with (
        ServedGateway(advertised_listeners=(f"127.0.0.1:{unused_tcp_port}",)) as served,
        AsyncClient([("127.0.0.1", served.port)], retry_s=0) as client,
    ):
        with pytest.raises(CannotConnectError, match="that the server advertises for node 0"):
            await AdminClient(client).create_topic("events")


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_producer_stores_batches_in_order(compression: Compression) -> None:
    """Many batches in flight keep their order, whatever they are compressed with."""
    async with served_client() as client:
        await AdminClient(client).create_topic("events", partitions=2)
        async with Producer(client, compression=compression) as producer:
            futures = [
                await producer.send("events", number % 2, [record(b"%d" % number)])
                for number in range(40)
            ]
        assert list(range(20)) == [(await future).base_offset for future in futures[::2]]
        found = await read_to_the_end(client, {1: 0})
        assert [b"%d" % number for number in range(1, 40, 2)] == [one.record.value for one in found]


@pytest.mark.slow
async def test_a_retry_after_a_lost_answer_is_not_stored_twice() -> None:
    """A batch whose answer was lost with the connection is recognised by its sequence."""
    async with (
        CuttingProxy() as proxy,
        ServedGateway(advertised_listeners=(f"127.0.0.1:{proxy.port}",)) as served,
    ):
        proxy.target_port = served.port
        async with AsyncClient([("127.0.0.1", proxy.port)]) as client:
            await client.topic("events", auto_create=True)
            async with Producer(client) as producer:
                await (await producer.send("events", 0, [record(b"first")]))
                proxy.cuts = 1
                futures = [
                    await producer.send("events", 0, [record(b"%d" % number)])
                    for number in range(8)
                ]
            assert 0 == proxy.cuts
            assert list(range(1, 9)) == [(await future).base_offset for future in futures]
            assert 9 == (await client.list_offsets("events", {0: LATEST}))[0].offset


async def test_a_failure_that_lasts_ends_what_follows() -> None:
    """Batches after one that is refused are not stored out of order."""
    async with served_client(message_max_bytes=1000) as client:
        await client.topic("events", auto_create=True)
        producer = Producer(client)
        await producer.open()
        stored = await producer.send("events", 0, [record(b"small")])
        refused = await producer.send("events", 0, [record(b"x" * 2000)])
        after = await producer.send("events", 0, [record(b"small")])
        await producer.flush()
        assert 0 == (await stored).base_offset
        for future in (refused, after, await producer.send("events", 0, [record(b"y")])):
            with pytest.raises(ServerRefusedError, match="MESSAGE_TOO_LARGE"):
                await future
        assert 1 == (await client.list_offsets("events", {0: LATEST}))[0].offset


async def test_failures_that_nobody_asks_for_are_not_told_by_the_loop() -> None:
    """Whoever sends many batches looks at the first failure, and the others end silently."""
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    async with served_client(message_max_bytes=1000) as client:
        await client.topic("events", auto_create=True)
        producer = Producer(client)
        await producer.open()
        for _ in range(3):
            await producer.send("events", 0, [record(b"x" * 2000)])
        await producer.flush()
        await producer.send("events", 0, [record(b"after the lane has failed")])
        gc.collect()
    assert [] == told


async def test_a_producer_that_is_abandoned_is_over_when_that_returns() -> None:
    """Nothing of it runs on, in no partition."""
    async with served_client() as client:
        await AdminClient(client).create_topic("events", partitions=2)
        before = asyncio.all_tasks()
        producer = Producer(client)
        await producer.open()
        for partition in (0, 1):
            await producer.send("events", partition, [record(b"a")])
        assert 2 == len(asyncio.all_tasks() - before)
        await producer.abandon()
        assert set() == asyncio.all_tasks() - before


class Stuck(AsyncClient):
    """A client whose server takes one batch, and no more bytes then."""

    async def start_produce(
        self,
        topic: str,
        partition: int,
        records: Buffer,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
    ) -> Coroutine[Any, Any, Produced]:
        if records == batch(b"second"):
            await asyncio.Event().wait()
        return await super().start_produce(
            topic, partition, records, acks=acks, transactional_id=transactional_id
        )


@pytest.mark.parametrize("acks", [0, -1])
async def test_a_producer_that_is_abandoned_says_nothing(acks: int) -> None:
    """Not of the answers either that nobody waits for while the server takes no more bytes."""
    async with ServedGateway() as served, Stuck([(served.host, served.port)]) as client:
        await client.topic("events", auto_create=True)
        producer = Producer(client, acks=acks)
        for value in (b"first", b"second"):
            await producer.send_encoded("events", 0, batch(value), 1)
        limit = patience.Limit(10)
        while (await client.list_offsets("events", {0: LATEST}))[0].offset < 1:
            assert not limit.is_over
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            await producer.abandon()
            del producer
            gc.collect()
    assert [] == [str(one.message) for one in told]


async def test_the_end_for_readers_of_committed_records_is_asked_for_by_itself() -> None:
    """An open transaction is before the end of the log, and not before theirs."""
    async with served_client() as client:
        await client.topic("events", auto_create=True)
        transactions = TransactionalClient(client)
        transaction = await transactions.begin("t", timeout_ms=60_000)
        async with Producer(client, transaction=transaction) as producer:
            await (await producer.send("events", 0, [record(b"a")]))
        ends = [
            (await client.list_offsets("events", {0: LATEST}, read_committed=committed))[0].offset
            for committed in (False, True)
        ]
        assert [1, 0] == ends


async def test_nothing_is_awaited_without_acks() -> None:
    """With acks=0 a batch counts as sent, and its offset is not known."""
    async with served_client() as client:
        await client.topic("events", auto_create=True)
        async with Producer(client, acks=0) as producer:
            future = await producer.send("events", 0, [record(b"a")])
        assert -1 == (await future).base_offset
        assert 1 == (await client.list_offsets("events", {0: LATEST}))[0].offset


async def test_an_api_that_is_not_served_is_not_retried() -> None:
    """What the server does not serve fails at once, by name."""
    async with served_client() as client:
        connection = await client.any_connection()
        del connection.versions[22]
        with pytest.raises(UnsupportedApiError, match="does not serve InitProducerId"):
            await client.init_producer_id()
        await client.topic("events", auto_create=True)
        async with Producer(client) as producer:
            future = await producer.send("events", 0, [record(b"a")])
        assert 0 == (await future).base_offset
